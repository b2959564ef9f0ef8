"""Samples of a compiled store, by position, for any DataLoader."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from readers.chance.draws import is_sent
from readers.reading.batch_reader import BatchReader
from readers.reading.names import cannot_set, checked_names, split_name, unknown
from readers.reading.samples import Sample
from readers.reading.selection import Selection
from readers.reading.show import SampleReader
from readers.reading.together import SamplesTogether
from readers.reading.view import ImageAs, Io, StoreView, access_of
from readers.staging.settings import cache_of
from readers.staging.stager import StagingReport
from readers.store.errors import (
    SchemaMismatchError,
    StoreError,
    UnknownKeyError,
)
from readers.store.manifest import Manifest, identity_of
from readers.store.place import Url, place_of
from readers.store.read_policy import ReadPolicy
from readers.store.reader import StoreReader, open_store
from readers.store.schema import Schema

_OPENED = ("_sample_reader", "_batch_reader", "_as_tuple", "_count", "_start")
"""What a process works out for itself."""


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
                unknown("column", name, tuple(self._dtypes), self._store.path)
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

    The manifest is read here; shards are opened on first use, once in each process, whoever asks.
    So the dataset can be forked, spawned or pickled at any time, before or after it was read. A
    sample owns its memory: it stays valid, and may be written to, whatever becomes of the dataset.

    Args:
        path: Folder written by `packer build`; or a URL of one in a bucket or on a web server, such
            as "s3://bucket/out.lmdb" (`pip install "lmdb-packer[remote]"`; see docs/buckets.md).
        split: Name of a split, as the raw data has it or as "train", "val" or "test". None means
            all samples.
        fields: Names of the fields to decode, in any order. None means all, or those in `returns`.
        returns: Makes samples tuples of these fields, in this order. None: dicts of all `fields`.
        image_as: What images are: "tensor", (channel, height, width) uint8, channels-last in
            memory; "numpy", (height, width, channel) uint8; or "pil". Those of a store built with
            mode "unchanged" may be uint16.
        transform: Called with each sample; its result takes the sample's place. It may be set
            later as well: `dataset.transform = function`, or None.
        transform_field: Name of a field that the transform is called with instead; its result
            takes the field's place. So transforms of torchvision and timm get the image alone.
        io: How the store is read from its disk or server. "auto" reads what is asked for, in large
            pieces, and no neighbours: right for shuffled passes. On network mounts (NFS, Lustre,
            FUSE, ...) and at URLs it is "read": many explicit reads at once, which are tried again
            when the server fails for a while; elsewhere "map": out of mapped files. Either may be
            asked for; at a URL nothing can be mapped. "read-ahead" is "auto" with the kernel
            reading on, for passes in the order of the store; it holds for all of this process.
        read_policy: How a store is read that is not mapped: how many reads at once and how far
            ahead, and how often one that fails is tried again. None: `ReadPolicy()`, and at a URL
            one with larger reads.
        checks_files: See here, and never again, that all shards are there: by one stat a shard, and
            where the store is read by one listing of its folder. False leaves that out; what is
            missing is then an error where it is read.
        storage_options: Of a store at a URL: settings of its file system, as fsspec has them (keys,
            an endpoint, headers). They are pickled with the dataset.
        cache_dir: Folder on a local disk to which this process copies the shards in the background,
            each digest checked, once for all processes and jobs of the node. Reading begins at once
            where the store is, and goes over to each copy when it is there; see `docs/staging.md`.
            Where it cannot be used, a warning is logged (`readers.staging`).
        cache_limit: Bytes that all copies in it may take: those that were used least recently are
            removed, unless a process reads them. None: what the disk has.
        cache_rate: Bytes a second to copy at most. None: no limit.

    Raises:
        StoreNotFoundError: There is nothing at `path`.
        StoreIncompleteError: The folder has no manifest: its build did not finish.
        ShardError: Shards are missing or of another size: it was not copied to the end.
        FormatVersionError: The store is of a version that this release cannot read.
        RemoteError: A bucket or server refuses, fails or does not answer.
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
        transform_field: str | None = None,
        io: Io = "auto",
        read_policy: ReadPolicy | None = None,
        checks_files: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        cache_dir: str | Path | None = None,
        cache_limit: int | None = None,
        cache_rate: int | None = None,
    ) -> None:
        if io not in get_args(Io):
            raise ValueError(f"io must be one of {', '.join(get_args(Io))}; got {io!r}")
        if image_as not in get_args(ImageAs):
            raise ValueError(
                f"image_as must be one of {', '.join(get_args(ImageAs))}; got {image_as!r}"
            )
        if not isinstance(read_policy, ReadPolicy | None):
            raise TypeError(f"read_policy must be a ReadPolicy or None; got {read_policy!r}")
        place = place_of(path, storage_options)
        cache = cache_of(place, cache_dir, cache_limit, cache_rate)
        access = access_of(io, place)
        store = open_store(
            place, checks_files=checks_files, access=access, policy=read_policy, cache=cache
        )
        path = str(place) if isinstance(place, Url) else os.path.abspath(place)
        names = store.manifest.schema.names
        result = checked_names("returns", returns, names, path)
        wanted = checked_names("fields", fields, names, path)
        if wanted is None:
            wanted = names if result is None else result
        for name in result or ():
            if name not in wanted:
                raise ValueError(f"returns names {name!r}, which is not among fields={wanted!r}")
        if transform_field is not None and transform_field not in (result or wanted):
            what = "field of its samples"
            raise SchemaMismatchError(unknown(what, transform_field, result or wanted, path))
        self._transform_field = transform_field
        self.transform = transform
        self._set_view(
            StoreView(
                path=path,
                identity=identity_of(store.manifest),
                split=None if split is None else split_name(split, store.manifest, path),
                chosen=None,
                fields=wanted,
                returns=result,
                image_as=image_as,
                io=io,
                url=place if isinstance(place, Url) else None,
                read_policy=read_policy,
                cache=cache,
                stages_in=os.getpid(),
                # As it is open by now. It costs a slow mount ten calls, and a bucket some round
                # trips, to find it again.
                _store=None if io == "read-ahead" else store,
            )
        )
        self._view.stage(store.manifest)

    def _set_view(self, view: StoreView) -> None:
        self._view = view
        self._forget()

    def _forget(self) -> None:
        """Drop what this process has worked out; it is worked out again on demand."""
        self._sample_reader: SampleReader | None = None
        self._count = 0
        self._start: int | None = None
        self._as_tuple: Callable[[Sample], tuple[Any, ...]] | None = None
        self._batch_reader: BatchReader | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Settings alone: an opened store neither travels nor needs to."""
        return {name: value for name, value in vars(self).items() if name not in _OPENED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def __setattr__(self, name: str, value: Any) -> None:
        # A class of the user's may keep what it likes; here a name that means nothing is a mistake.
        is_own = name == "transform" or name.startswith("_") or type(self) is not LMDBDataset
        if not is_own:
            raise AttributeError(cannot_set(name, dir(LMDBDataset)))
        super().__setattr__(name, value)

    @property
    def transform(self) -> Callable[[Any], Any] | None:
        """What is called with each sample; None where nothing is. It may be set at any time.

        Loaders that were made of this dataset before take it with their next iteration, and so do
        torch's Subsets of it. What `select` and `filter` have given has its own.
        """
        return self._transform

    @transform.setter
    def transform(self, transform: Callable[[Any], Any] | None) -> None:
        if transform is not None and not callable(transform):
            raise TypeError(f"a transform is called with each sample, or None; got {transform!r}")
        self._transform = transform

    @property
    def is_plain(self) -> bool:
        """Whether samples are as the store has them: no transform, nothing of a subclass's."""
        return self._transform is None and not self.is_overridden

    @property
    def is_overridden(self) -> bool:
        """Whether a subclass makes samples in its own way."""
        kind = type(self)
        one, many = kind.__getitem__, kind.__getitems__
        return one is not LMDBDataset.__getitem__ or many is not LMDBDataset.__getitems__

    @property
    def view(self) -> StoreView:
        """Which samples and fields of which store these are: what the engines work from."""
        return self._view

    @property
    def manifest(self) -> Manifest:
        """Everything that the store says of itself."""
        return self._view.store.manifest

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
        return Columns(self._view.store, self._view.selection)

    def staging(self) -> StagingReport | None:
        """How far the store is copied to the cache; None without one, and in loader workers."""
        staging = self._view.stage(self.manifest)
        return None if staging is None else staging.report()

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, index: int) -> Any:
        """The sample at `index`, from the end when negative.

        Raises:
            IndexError: There is no such sample.
            ShardError: A shard or record is missing or damaged; the message names the sample.
            TransformError: The transform raised.
        """
        reader = self._sample_reader
        if reader is None:
            reader = self._open_reader()
        # Plain integers in range are nearly all that samplers ask for, and each look-up of an
        # attribute or call shows here: 4 us a sample are 2.
        count = self._count
        at = index if type(index) is int and 0 <= index < count else self._checked(index, count)
        start = self._start
        position = self._view.selection.position(at) if start is None else start + at
        sample: Any = reader.at(position)
        if self._as_tuple is not None:
            sample = self._as_tuple(sample)
        return sample if self._transform is None else self._transformed(sample, at)

    def _open_reader(self) -> SampleReader:
        """What reads single samples, and what finds them."""
        view = self._view
        reader = SampleReader(view.store, view.fields, view.image_as)
        self._count, self._start = len(view.selection), view.selection.only_start
        self._as_tuple = _tuple_of(view.returns)
        self._sample_reader = reader
        return reader

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """The samples of a batch: fields of fixed size come by one gather for all of them."""
        if self.is_overridden:
            return [self[index] for index in indices]
        if self._transform is not None:
            count = len(self._view.selection)
            return list(self.together(self._checked_indices(indices, count)))
        reader = self._batch_reader
        if reader is None:
            reader = self._batch_reader = BatchReader(self._view)
        samples = reader.read(self._checked_indices(indices, len(self._view.selection)))
        return samples.in_order() if is_sent(indices) else samples

    def together(self, indices: NDArray[np.int64]) -> SamplesTogether:
        """Samples one by one, out of records that are fetched together: for the engines.

        Args:
            indices: In [0, len). Of samples that no subclass makes in its own way.
        """
        reader = self._sample_reader or self._open_reader()
        positions = self._view.selection.positions(indices)
        return SamplesTogether(reader, indices, positions, self._finished)

    def _finished(self, sample: Sample, index: int) -> Any:
        """A sample as the caller gets it."""
        found: Any = sample if self._as_tuple is None else self._as_tuple(sample)
        return found if self._transform is None else self._transformed(found, index)

    def _checked(self, index: int, count: int) -> int:
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
            raise IndexError(f"sample {at} of {self._view.path}, expected [0, {count})")
        return at + count if at < 0 else at

    def _checked_indices(self, indices: Sequence[int], count: int) -> NDArray[np.int64]:
        """Many indices in [0, count), checked in one step where they are plain numbers."""
        array = np.array(indices)
        if array.dtype != np.int64 or array.ndim != 1:
            return np.array([self._checked(index, count) for index in indices], np.int64)
        wrong = (array < -count) | (array >= count)
        if wrong.any():
            self._checked(indices[int(wrong.argmax())], count)
        return np.where(array < 0, array + count, array)

    def _transformed(self, sample: Any, index: int) -> Any:
        """The sample after the user's function."""
        assert self._transform is not None
        field = self._transform_field
        try:
            if field is None:
                return self._transform(sample)
            if isinstance(sample, dict):
                return {**sample, field: self._transform(sample[field])}
            at = self._view.result_names.index(field)
            return (*sample[:at], self._transform(sample[at]), *sample[at + 1 :])
        except Exception as error:
            key = f" ({self.key_of(index)!r})" if "key" in self.schema else ""
            hint = ""
            if field is None and isinstance(error, (TypeError, AttributeError)):
                names = ", ".join(self._view.result_names)
                hint = (
                    f". It is called with the whole sample, a {type(sample).__name__} of {names}; "
                    "for one that takes a picture alone: LMDBDataset(..., transform_field='image')"
                )
            raise TransformError(
                f"{self._view.path}, sample {index}{key}: the transform raised "
                f"{type(error).__name__}: {error}{hint}"
            ) from error

    def key_of(self, index: int) -> str:
        """The key of a sample: its path relative to the raw folder.

        Raises:
            IndexError: There is no such sample.
            SchemaMismatchError: The samples of this store keep no key.
        """
        store, selection = self._view.store, self._view.selection
        if "key" not in store.manifest.schema:
            raise SchemaMismatchError(unknown("field", "key", self.schema.names, self._view.path))
        position = selection.position(self._checked(index, len(selection)))
        reader = SampleReader(store, ("key",), self._view.image_as)
        return str(reader.at(position)["key"])

    def index_of(self, key: str) -> int:
        """Index in this dataset of the sample with a key.

        Raises:
            UnknownKeyError: The dataset has no such sample.
        """
        try:
            position = self._view.store.find(key.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:  # No name on disk reads like that, so no sample has it.
            position = None
        index = None if position is None else self._view.selection.index_of(position)
        if index is None:
            where = (
                self._view.path
                if position is None
                else f"{self._view.path} has it, but not this selection"
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
                f"sample {array[wrong.argmax()]} of {self._view.path}, expected [0, {count})"
            )
        array = array.astype(np.int64)
        array = np.where(array < 0, array + count, array)
        chosen = LMDBDataset.__new__(type(self))
        chosen.__dict__.update(self.__dict__)
        selection = Selection.of(self._view.selection.positions(array))
        chosen._set_view(replace(self._view, chosen=selection, _selection=selection))
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
        self._view.close()
        self._forget()

    def __repr__(self) -> str:
        split = "" if self._view.split is None else f", split={self._view.split!r}"
        what = f"{len(self):,} samples of {', '.join(self._view.fields)}"
        io = "" if self._view.io == "auto" else f", io={self._view.io!r}"
        return f"LMDBDataset({self._view.path!r}{split}{io}): {what}"


def _tuple_of(names: Sequence[str] | None) -> Callable[[Sample], tuple[Any, ...]] | None:
    """What makes the caller's tuple of a sample; None for dicts."""
    if names is None:
        return None
    if len(names) == 1:
        (name,) = names
        return lambda sample: (sample[name],)
    return operator.itemgetter(*names) if names else lambda sample: ()
