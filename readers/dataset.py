"""Samples of a compiled store, by position, for any DataLoader."""

from __future__ import annotations

import difflib
import hashlib
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from readers.gather import bytes_of, gather
from readers.samples import GatheredSamples, Sample
from readers.selection import Selection
from readers.store.errors import (
    CodecError,
    ImageError,
    ManifestError,
    SchemaMismatchError,
    ShardError,
    StoreError,
    UnknownKeyError,
)
from readers.store.manifest import Manifest
from readers.store.reader import StoreReader, open_store
from readers.store.record import RecordReader
from readers.store.schema import Field, Schema, field_bytes
from readers.store.shard import ShardReader
from readers.store.splits import canonical_split

ImageAs = Literal["tensor", "numpy", "pil"]


class TransformError(StoreError):
    """A dataset's transform raised. Its cause is what it raised; the text names the sample."""


class Columns(Mapping[str, NDArray[Any]]):
    """Numbers that the index of a store keeps of every sample, by name: no record is read.

    Scalar fields have their own names (`label`, `split`); an image whose size differs between
    samples has `image.height` and `image.width`. Each value is an array with one row a sample of
    the dataset, in its order; it is made when it is asked for.
    """

    def __init__(self, store: StoreReader, selection: Selection) -> None:
        self._store = store
        self._selection = selection
        self._dtypes = {item.name: item.dtype for item in store.layout.columns}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._dtypes:
            raise SchemaMismatchError(
                _unknown("column", name, tuple(self._dtypes), self._store.path)
            )
        parts = [shard.columns[name] for shard in self._store.shards()]
        if not parts:  # A store without samples has no shards to say the element type.
            return np.empty(0, self._dtypes[name])
        return np.concatenate(parts)[self._selection.all_positions()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dtypes)

    def __len__(self) -> int:
        return len(self._dtypes)


class LMDBDataset(Dataset[Any]):
    """Samples of a compiled store, by position.

    The manifest is read here; shards are mapped on first use, once in each process, whoever asks.
    So the dataset can be forked, spawned or pickled at any time, before or after it was read. A
    sample owns its memory: it stays valid, and may be written to, whatever becomes of the dataset.

    Args:
        path: Folder written by `packer build`.
        split: Name of a split, as the raw data has it or as "train", "val" or "test". None means
            all samples.
        fields: Names of the fields to decode, in any order. None means all, or those in `returns`.
        returns: Makes samples tuples of these fields, in this order. None: dicts of all `fields`.
        image_as: What images are: "tensor", (channel, height, width) uint8, channels-last in
            memory; "numpy", (height, width, channel) uint8; or "pil". Those of a store built with
            mode "unchanged" may be uint16.
        transform: Called with each sample; its result takes the sample's place.

    Raises:
        StoreNotFoundError: There is nothing at `path`.
        StoreIncompleteError: The folder has no manifest: its build did not finish.
        FormatVersionError: The store is of a version that this release cannot read.
        SchemaMismatchError: `split`, `fields` or `returns` names what the store does not have.

    Example:
        >>> dataset = LMDBDataset("shapes.lmdb", fields=["image", "label"])
        >>> dataset[0]["image"].shape  # (channel, height, width), uint8
        torch.Size([3, 48, 64])
    """

    def __init__(
        self,
        path: str | Path,
        *,
        split: str | None = None,
        fields: Iterable[str] | None = None,
        returns: Sequence[str] | None = None,
        image_as: ImageAs = "tensor",
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        if image_as not in get_args(ImageAs):
            raise ValueError(
                f"image_as must be one of {', '.join(get_args(ImageAs))}; got {image_as!r}"
            )
        self._path = os.path.abspath(path)
        self._store: StoreReader | None = open_store(path)
        self._identity = _identity(self._store.manifest)
        names = self._store.manifest.schema.names
        self._returns = _checked("returns", returns, names, self._path)
        wanted = _checked("fields", fields, names, self._path)
        if wanted is None:
            wanted = names if self._returns is None else self._returns
        self._fields = wanted
        for name in self._returns or ():
            if name not in self._fields:
                raise ValueError(
                    f"returns names {name!r}, which is not among fields={self._fields!r}"
                )
        self._split = (
            None if split is None else _split_name(split, self._store.manifest, self._path)
        )
        self._image_as: ImageAs = image_as
        self._transform = transform
        # Positions in the store after select() or filter(); a split alone is found in its index.
        self._chosen: Selection | None = None
        self._forget()

    def _forget(self) -> None:
        """Drop what this process has worked out; it is worked out again on demand."""
        self._bytes: torch.Tensor | None = None
        self._selection: Selection | None = self._chosen
        self._whole_reader: _SampleReader | None = None
        self._ragged_reader: _SampleReader | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Settings alone: an opened store neither travels nor needs to."""
        opened = ("_store", "_bytes", "_selection", "_whole_reader", "_ragged_reader")
        return {**self.__dict__, **dict.fromkeys(opened)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def _opened(self) -> StoreReader:
        store = self._store
        if store is None:
            store = open_store(self._path)
            if _identity(store.manifest) != self._identity:
                raise StoreError(
                    f"{self._path}: the store was replaced since this dataset was made. "
                    "Make the dataset again."
                )
            self._store = store
        return store

    def _selected(self) -> Selection:
        selection = self._selection
        if selection is None:
            store = self._opened()
            if self._split is None:
                selection = Selection.of_all(store.manifest.sample_count)
            else:
                selection = _split_selection(store, self._split)
            self._selection = selection
        return selection

    @property
    def manifest(self) -> Manifest:
        """Everything that the store says of itself."""
        return self._opened().manifest

    @property
    def schema(self) -> Schema:
        """The fields of the store."""
        return self.manifest.schema

    @property
    def classes(self) -> list[str]:
        """Class names; a label is a position in it."""
        return list(self.manifest.classes)

    @property
    def columns(self) -> Columns:
        """Arrays of the index, one row for each sample of this dataset, by name."""
        return Columns(self._opened(), self._selected())

    def __len__(self) -> int:
        if self._selection is None and self._split is not None:
            return self.manifest.splits[self._split]
        return len(self._selected())

    def __getitem__(self, index: int) -> Any:
        """The sample at `index`, from the end when negative.

        Raises:
            IndexError: There is no such sample.
            ShardError: A shard or record is missing or damaged; the message names the sample.
            TransformError: The transform raised.
        """
        store, selection = self._opened(), self._selected()
        at = self._checked_index(index, len(selection))
        reader = self._whole_reader
        if reader is None:
            reader = self._whole_reader = _SampleReader(store, self._fields, self._image_as)
        return self._finish(self._read(store, reader, selection.position(at)), at)

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """The samples of a batch: fields of fixed size come by one gather for all of them."""
        if self._transform is not None:
            return [self[index] for index in indices]
        store, selection = self._opened(), self._selected()
        positions = selection.positions(self._checked_indices(indices, len(selection)))
        starts = store.record_starts(positions)
        batch: dict[str, Any] = dict.fromkeys(self._fields)
        ragged = []
        for name in self._fields:
            field = store.manifest.schema[name]
            if field.is_scalar:
                batch[name] = _shown_column(store, field, positions)
            elif field.is_fixed:
                batch[name] = self._shown_rows(store, field, starts)
            else:
                ragged.append(name)
        if ragged:
            reader = self._ragged_reader
            if reader is None:
                reader = self._ragged_reader = _SampleReader(store, ragged, self._image_as)
            samples = [self._read(store, reader, position) for position in positions.tolist()]
            for name in ragged:
                batch[name] = [sample[name] for sample in samples]
        return GatheredSamples(
            batch,
            self._fields if self._returns is None else self._returns,
            len(positions),
            as_tuples=self._returns is not None,
            as_numpy=self._image_as == "numpy",
        )

    def _read(self, store: StoreReader, reader: _SampleReader, position: int) -> Sample:
        shard, place = store.locate(position)
        try:
            return reader.read(shard.record(place))
        except (CodecError, ImageError) as error:
            raise self._damaged(shard, place, error) from error

    def _damaged(self, shard: ShardReader, place: int, error: StoreError) -> ShardError:
        return ShardError(
            shard.path,
            f"{error}. The record is damaged; list every damaged sample with: "
            f"packer verify {self._path}",
            place,
        )

    def _checked_index(self, index: int, count: int) -> int:
        try:
            at = operator.index(index)
        except TypeError:
            at = None
        # True is an int to Python, and a mask by mistake to everybody else.
        if at is None or isinstance(index, bool):
            raise TypeError(
                f"an index is a whole number; got {index!r}. For several samples: "
                "dataset.select(...)"
            )
        if not -count <= at < count:
            raise IndexError(f"sample {at} of {self._path}, expected [0, {count})")
        return at + count if at < 0 else at

    def _checked_indices(self, indices: Sequence[int], count: int) -> NDArray[np.int64]:
        """Many indices in [0, count), checked in one step where they are plain numbers."""
        array = np.array(indices)
        if array.dtype != np.int64 or array.ndim != 1:
            return np.array([self._checked_index(index, count) for index in indices], np.int64)
        wrong = (array < -count) | (array >= count)
        if wrong.any():
            self._checked_index(indices[int(wrong.argmax())], count)
        return np.where(array < 0, array + count, array)

    def _finish(self, sample: Sample, index: int) -> Any:
        """The sample as the caller wants it: dict or tuple, transformed."""
        result: Any = sample
        if self._returns is not None:
            result = tuple(sample[name] for name in self._returns)
        if self._transform is None:
            return result
        try:
            return self._transform(result)
        except Exception as error:
            key = f" ({self.key_of(index)!r})" if "key" in self.schema else ""
            raise TransformError(
                f"{self._path}, sample {index}{key}: the transform raised "
                f"{type(error).__name__}: {error}"
            ) from error

    def _shown_rows(self, store: StoreReader, field: Field, starts: NDArray[np.int64]) -> Any:
        """A field of fixed size of many samples, gathered: (sample, ...)."""
        data = self._bytes
        if data is None:
            data = self._bytes = bytes_of(store.range)
        rows = gather(data, starts + store.layout.fixed_offsets[field.name], field_bytes(field))
        shape = (len(starts), *(side or 0 for side in field.shape))
        values = rows.view(getattr(torch, field.dtype or "")).view(shape)
        if field.kind != "image" or self._image_as == "numpy":
            return values
        if self._image_as == "pil":
            return [_pil_image(pixels) for pixels in values.numpy()]
        return values.permute(0, 3, 1, 2)

    def key_of(self, index: int) -> str:
        """The key of a sample: its path relative to the raw folder.

        Raises:
            IndexError: There is no such sample.
            SchemaMismatchError: The samples of this store keep no key.
        """
        store, selection = self._opened(), self._selected()
        if "key" not in store.manifest.schema:
            raise SchemaMismatchError(_unknown("field", "key", self.schema.names, self._path))
        position = selection.position(self._checked_index(index, len(selection)))
        reader = _SampleReader(store, ("key",), self._image_as)
        return str(self._read(store, reader, position)["key"])

    def index_of(self, key: str) -> int:
        """Index in this dataset of the sample with a key.

        Raises:
            UnknownKeyError: The dataset has no such sample.
        """
        position = self._opened().find(key.encode("utf-8", "surrogateescape"))
        index = None if position is None else self._selected().index_of(position)
        if index is None:
            where = (
                self._path if position is None else f"{self._path} has it, but not this selection"
            )
            raise UnknownKeyError(
                f"no sample with the key {key!r}: {where}. A key is the path relative to the raw "
                "folder, with / between folders."
            )
        return index

    def select(self, indices: Iterable[int]) -> LMDBDataset:
        """A dataset of some of the samples, in the order given.

        It carries the choice along when it is pickled: 16 bytes for each run of neighbours.

        Raises:
            IndexError: There is no such sample.
        """
        if not isinstance(indices, (np.ndarray, torch.Tensor, range)):
            indices = list(indices)
        array = np.asarray(indices)
        if array.dtype == bool:
            raise TypeError("a mask goes to filter(); select() takes indices")
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TypeError(
                f"indices must be whole numbers in one row; got {array.dtype} {array.shape}"
            )
        count = len(self)
        wrong = (array < -count) | (array >= count)
        if wrong.any():
            raise IndexError(
                f"sample {array[wrong.argmax()]} of {self._path}, expected [0, {count})"
            )
        array = array.astype(np.int64)
        array = np.where(array < 0, array + count, array)
        chosen = LMDBDataset.__new__(type(self))
        chosen.__dict__.update(self.__dict__)
        chosen._chosen = chosen._selection = Selection.of(self._selected().positions(array))
        return chosen

    def filter(
        self, mask: NDArray[np.bool_] | Callable[[Columns], NDArray[np.bool_]]
    ) -> LMDBDataset:
        """A dataset of the samples for which a mask is true.

        Args:
            mask: One bool for each sample, or a function that makes it of the `columns`.

        Raises:
            ValueError: The mask is not one bool for each sample.

        Example:
            >>> dataset.filter(lambda columns: columns["label"] == 1)  # doctest: +SKIP
        """
        array = np.asarray(mask(self.columns) if callable(mask) else mask)
        if array.dtype != bool or array.shape != (len(self),):
            raise ValueError(
                f"mask must be {len(self)} bools, one for each sample; "
                f"got {array.dtype} {array.shape}"
            )
        return self.select(np.flatnonzero(array))

    def close(self) -> None:
        """Let go of the store. Samples stay valid; the next read opens it again."""
        self._store = None
        self._forget()

    def __repr__(self) -> str:
        split = "" if self._split is None else f", split={self._split!r}"
        what = f"{len(self):,} samples of {', '.join(self._fields)}"
        return f"LMDBDataset({self._path!r}{split}): {what}"


def _identity(manifest: Manifest) -> bytes:
    """What tells a store from another that took its place."""
    digest = hashlib.sha256()
    for shard in manifest.shards:
        digest.update(shard.sha256.encode())
    return digest.digest()[:16]


class _SampleReader:
    """Takes fields out of a record, as the caller wants them.

    What can be known from the schema is worked out once, here; `read` is the per-sample path.
    """

    def __init__(self, store: StoreReader, names: Sequence[str], image_as: ImageAs) -> None:
        self._unpack = RecordReader(store.layout, names).unpack
        shows = [(name, _show_of(store.manifest.schema[name], image_as)) for name in names]
        self._shows = [(name, show) for name, show in shows if show is not None]

    def read(self, record: memoryview) -> Sample:
        sample = self._unpack(record)
        for name, show in self._shows:
            sample[name] = show(sample[name])
        return sample


def _show_of(field: Field, image_as: ImageAs) -> Callable[[Any], Any] | None:
    """What turns a field's stored value into the caller's; None when they are the same."""
    if field.kind == "scalar" and field.names is not None:
        return field.names.__getitem__
    if field.kind not in ("image", "array"):
        return None
    if field.kind == "image" and image_as == "pil":
        return _pil_image
    if image_as == "numpy":
        return None
    return _image_tensor if field.kind == "image" else torch.from_numpy


def _image_tensor(pixels: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _pil_image(pixels: NDArray[Any]) -> Any:
    from PIL import Image

    try:
        return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"image_as='pil': Pillow has no mode for {pixels.shape[2]} channels of "
            f"{pixels.dtype}; take 'tensor' or 'numpy'"
        ) from error


def _shown_column(store: StoreReader, field: Field, positions: NDArray[np.int64]) -> Any:
    """A scalar field of many samples: a tensor, or a list of names."""
    values = np.empty(len(positions), field.dtype)
    numbers = np.searchsorted(store.first_samples, positions, side="right") - 1
    for number in np.unique(numbers).tolist():
        rows = numbers == number
        places = positions[rows] - store.first_samples[number]
        values[rows] = store.shard(number).columns[field.name][places]
    if field.kind == "scalar" and field.names is not None:
        return [field.names[value] for value in values.tolist()]
    return torch.from_numpy(values)


def _checked(
    argument: str, names: Iterable[str] | None, known: tuple[str, ...], path: str
) -> tuple[str, ...] | None:
    """The names of an argument, each of them a field of the store and there once."""
    if names is None:
        return None
    if isinstance(names, str):
        raise ValueError(f"{argument} is a list of names; got {names!r}. One: [{names!r}]")
    wanted = tuple(names)
    for name in wanted:
        if name not in known:
            raise SchemaMismatchError(_unknown("field", name, known, path))
        if wanted.count(name) > 1:
            raise ValueError(f"{argument}: {name!r} is named twice in {wanted!r}")
    return wanted


def _unknown(what: str, name: str, known: Sequence[str], path: str | Path) -> str:
    close = difflib.get_close_matches(str(name), known, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{path}: no {what} {name!r}; it has {', '.join(known) or 'none'}.{hint}"


def _split_name(split: str, manifest: Manifest, path: str) -> str:
    """The split of this name, or the only one that goes by it (valid for val)."""
    if split in manifest.splits:
        return split
    found = [name for name in manifest.splits if canonical_split(name) == canonical_split(split)]
    if len(found) == 1 and canonical_split(split) is not None:
        return found[0]
    raise SchemaMismatchError(_unknown("split", split, tuple(manifest.splits), path))


def _split_selection(store: StoreReader, split: str) -> Selection:
    schema, expected = store.manifest.schema, store.manifest.splits[split]
    names = (schema["split"].names or ()) if "split" in schema else ()
    if split not in names:
        raise ManifestError(f"{store.path}: split {split!r} is none of its field 'split': {names}")
    value = names.index(split)
    runs = []
    for shard, first in zip(store.shards(), store.first_samples, strict=False):
        runs.append(np.flatnonzero(shard.columns["split"] == value) + first)
    selection = Selection.of(np.concatenate(runs) if runs else np.zeros(0, np.int64))
    if len(selection) != expected:
        raise ManifestError(
            f"{store.path}: {len(selection)} samples of split {split!r}, expected {expected}. "
            "The manifest was changed; copy the store again."
        )
    return selection
