"""Samples of a compiled store, by position, for any DataLoader."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, get_args, overload

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from readers.arguments import check_arguments
from readers.chance.draws import is_sent
from readers.reading.arguments import RULES, Settings
from readers.reading.batch_reader import BatchReader
from readers.reading.columns import Columns
from readers.reading.described import described
from readers.reading.indices import checked_index, checked_indices, chosen_indices
from readers.reading.keys import Keys
from readers.reading.names import cannot_set, checked_names, no_fact, split_names, unknown
from readers.reading.samples import Sample
from readers.reading.selection import Selection
from readers.reading.show import SampleReader
from readers.reading.together import SamplesTogether
from readers.reading.transforms import check_transform
from readers.reading.tv_tensors import TvTensors, check_fields
from readers.reading.view import ImageAs, Io, StoreView, access_of
from readers.staging.settings import cache_of
from readers.staging.stager import StagingReport
from readers.store.errors import (
    SchemaMismatchError,
    StoreError,
)
from readers.store.manifest import Manifest, identity_of
from readers.store.place import Url, place_of
from readers.store.read_policy import ReadPolicy
from readers.store.reader import open_store
from readers.store.samples import tuple_of
from readers.store.schema import Schema

if TYPE_CHECKING:
    from typing_extensions import Self, TypeVar, Unpack

    SampleT = TypeVar("SampleT", default=Any)
else:
    from typing import TypeVar  # Which has no default before Python 3.13.

    SampleT = TypeVar("SampleT")

_OPENED = ("_sample_reader", "_sample_at", "_batch_reader", "_as_asked", "_count", "_start")
"""What a process works out for itself."""


class TransformError(StoreError):
    """A dataset's transform raised. Its cause is what it raised; the text names the sample."""


class LMDBDataset(Dataset[SampleT]):
    """Samples of a compiled store, by position.

    The manifest is read here; shards are opened on first use, once in each process, whoever asks.
    So the dataset can be forked, spawned or pickled at any time, before or after it was read. A
    sample owns its memory: it stays valid, and may be written to, whatever becomes of the dataset.

    Args:
        path: Folder written by `packer build`; or a URL of one in a bucket or on a web server, such
            as "s3://bucket/out.lmdb" (`pip install "lmdb-packer[remote]"`; see docs/buckets.md).
        split: Name of a split, as the raw data has it or as "train", "val" or "test"; or several,
            whose samples come in the order of the store. None means all samples.
        fields: Names of the fields to decode, in any order. None means all, or those in `returns`.
        returns: Makes samples tuples of these fields, in this order. None: dicts of all `fields`.
        image_as: What images are: "tensor", (channel, height, width) uint8, channels-last in
            memory; "numpy", (height, width, channel) uint8; or "pil". Those of a store built with
            mode "unchanged" may be uint16. "tv_tensor": the images, boxes, masks and keypoints of
            single samples are torchvision's tv_tensors, which its v2 transforms move together;
            outlines are pixels then, and a visibility is a field of its own, `visibility`.
        transform: Called with each sample; its result takes the sample's place. It may be set
            later as well: `dataset.transform = function`, or None. **A plain transform that moves
            the image moves nothing else**: torchvision's v2 transforms take all along with
            image_as="tv_tensor", albumentations' in `readers.Albumented`, a loader's `ops` always.
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
        TypeError: An argument is of another kind.
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

    # What a sample is to a type checker: a dict, a tuple of as many values, or what a transform
    # makes of it, which nobody knows.
    @overload
    def __init__(
        self: LMDBDataset[dict[str, Any]],
        path: str | Path,
        *,
        returns: None = None,
        transform: None = None,
        **settings: Unpack[Settings],
    ) -> None: ...
    @overload
    def __init__(
        self: LMDBDataset[tuple[Any]],
        path: str | Path,
        *,
        returns: tuple[str],
        transform: None = None,
        **settings: Unpack[Settings],
    ) -> None: ...
    @overload
    def __init__(
        self: LMDBDataset[tuple[Any, Any]],
        path: str | Path,
        *,
        returns: tuple[str, str],
        transform: None = None,
        **settings: Unpack[Settings],
    ) -> None: ...
    @overload
    def __init__(
        self: LMDBDataset[tuple[Any, Any, Any]],
        path: str | Path,
        *,
        returns: tuple[str, str, str],
        transform: None = None,
        **settings: Unpack[Settings],
    ) -> None: ...
    @overload
    def __init__(
        self: LMDBDataset[tuple[Any, ...]],
        path: str | Path,
        *,
        returns: Sequence[str],
        transform: None = None,
        **settings: Unpack[Settings],
    ) -> None: ...
    @overload
    def __init__(
        self: LMDBDataset[Any],
        path: str | Path,
        *,
        returns: Sequence[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        **settings: Unpack[Settings],
    ) -> None: ...
    def __init__(
        self,
        path: str | Path,
        *,
        split: str | Sequence[str] | None = None,
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
        check_arguments("LMDBDataset", RULES, locals())
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
        if image_as == "tv_tensor":
            check_fields([store.manifest.schema[name] for name in wanted], result)
        self._set_view(
            StoreView(
                path=path,
                identity=identity_of(store.manifest),
                split=None if split is None else split_names(split, store.manifest, path),
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
        self.transform = transform

    def _set_view(self, view: StoreView) -> None:
        self._view = view
        self._forget()

    def _forget(self) -> None:
        """Drop what this process has worked out; it is worked out again on demand."""
        self._sample_reader: SampleReader | None = None
        self._sample_at: Callable[[int], Any] | None = None
        self._count = 0
        self._start: int | None = None
        self._as_asked: Callable[[Sample], Any] | None = None
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
        check_transform(transform, self._view)
        self._transform = transform

    @property
    def is_plain(self) -> bool:
        """Whether samples are as stored: no transform, no tv_tensors, nothing of a subclass's."""
        is_stored = self._transform is None and self._view.image_as != "tv_tensor"
        return is_stored and not self.is_overridden

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
    def class_to_idx(self) -> dict[str, int]:
        """Class name -> label."""
        return {name: label for label, name in enumerate(self.manifest.classes)}

    @property
    def splits(self) -> dict[str, int]:
        """Split name -> samples of it in the store; empty when it has no splits."""
        return dict(self.manifest.splits)

    @property
    def targets(self) -> NDArray[np.int64]:
        """The label of each sample, (sample,) int64, from the index.

        Raises:
            AttributeError: The samples have no label.
        """
        if "label" not in self.columns:
            raise AttributeError(no_fact("targets", "field 'label'", self._view.path))
        return np.array(self.columns["label"], np.int64)

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of each channel over all pixels of the store, white as 1.

        Raises:
            AttributeError: The store does not say it.
        """
        return self._channel_fact("mean")

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of each channel over all pixels of the store, white as 1.

        Raises:
            AttributeError: The store does not say it.
        """
        return self._channel_fact("std")

    def _channel_fact(self, name: str) -> tuple[float, ...]:
        values = self.manifest.statistics.get(f"channel_{name}")
        if values is None:
            what = f"channel_{name}, as its images differ in channels or depth, or are not pixels"
            raise AttributeError(no_fact(name, what, self._view.path))
        return tuple(values)

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

    @overload
    def __getitem__(self, index: slice) -> Self: ...
    @overload
    def __getitem__(self, index: SupportsIndex | str) -> SampleT: ...
    def __getitem__(self, index: Any) -> Any:
        """The sample at `index`, from the end when negative; that of a key, when it is a text.

        A slice gives a dataset of those samples, as `select` does.

        Raises:
            IndexError: There is no such sample.
            UnknownKeyError: No sample of this dataset has the key.
            ShardError: A shard or record is missing or damaged; the message names the sample.
            TransformError: The transform raised.
        """
        sample_at = self._sample_at
        if sample_at is None:
            sample_at = self._open_samples()
        # Plain integers in range are nearly all that samplers ask for, and each look-up of an
        # attribute or call shows here: 4 us a sample are 2.
        count = self._count
        if type(index) is int and 0 <= index < count:
            at = index
        elif isinstance(index, slice):
            return self.select(np.arange(*index.indices(count)))
        elif isinstance(index, str):
            at = self.index_of(index)
        else:
            at = checked_index(index, count, self._view.path)
        start = self._start
        position = self._view.selection.position(at) if start is None else start + at
        sample = sample_at(position)
        return sample if self._transform is None else self._transformed(sample, at)

    def __iter__(self) -> Iterator[SampleT]:
        return (self[index] for index in range(len(self)))

    def __contains__(self, key: object) -> bool:
        """Whether a sample of this dataset has the key."""
        return key in self.keys()

    def _open_samples(self) -> Callable[[int], Any]:
        """What gives the sample at a position of the store, as the caller asked for it."""
        reader = self._sample_reader or self._open_reader()
        view, as_asked = self._view, self._as_asked
        sample_at: Callable[[int], Any] = reader.at
        if view.returns is not None and view.image_as != "tv_tensor":
            sample_at = reader.tuples(view.returns)
        elif as_asked is not None:
            sample_at = _composed(reader.at, as_asked)
        self._sample_at = sample_at
        return sample_at

    def _open_reader(self) -> SampleReader:
        """What reads single samples, and what finds them."""
        view = self._view
        reader = SampleReader(view.store, view.fields, view.image_as)
        self._count, self._start = len(view.selection), view.selection.only_start
        self._as_asked = _form_of(view)
        self._sample_reader = reader
        return reader

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """The samples of a batch: fields of fixed size come by one gather for all of them."""
        if self.is_overridden:
            return [self[index] for index in indices]
        view = self._view
        if self._transform is not None or view.image_as == "tv_tensor":
            found = checked_indices(indices, len(view.selection), view.path)
            return list(self.together(found))
        reader = self._batch_reader
        if reader is None:
            reader = self._batch_reader = BatchReader(view)
        samples = reader.read(checked_indices(indices, len(view.selection), view.path))
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
        found: Any = sample if self._as_asked is None else self._as_asked(sample)
        return found if self._transform is None else self._transformed(found, index)

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
        return self.keys()[checked_index(index, len(self), self._view.path)]

    def index_of(self, key: str) -> int:
        """Index in this dataset of the sample with a key.

        Raises:
            UnknownKeyError: The dataset has no such sample.
        """
        return self.keys().index(key)

    def keys(self) -> Keys:
        """The keys of the samples, in order. Each is read from its record when it is asked for."""
        return Keys(self._view)

    def select(self, indices: Iterable[int]) -> Self:
        """A dataset of some of the samples, in the order given.

        It carries the choice along when it is pickled: 16 bytes for each run of neighbours.

        Raises:
            IndexError: There is no such sample.
        """
        array = chosen_indices(indices, len(self), self._view.path)
        chosen = object.__new__(type(self))
        chosen.__dict__.update(self.__dict__)
        selection = Selection.of(self._view.selection.positions(array))
        chosen._set_view(replace(self._view, chosen=selection, _selection=selection))
        return chosen

    def filter(self, mask: NDArray[np.bool_] | Callable[[Columns], NDArray[np.bool_]]) -> Self:
        """A dataset of the samples for which a mask is true.

        Args:
            mask: One bool for each sample, or a function that makes it of the `columns`.

        Raises:
            ValueError: The mask is not one bool for each sample.
            SchemaMismatchError: The function asks for a column or name that there is not.

        Example:
            >>> dataset = LMDBDataset("shapes.lmdb")
            >>> len(dataset.filter(lambda columns: columns["label"] == "cat"))
            35
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return described(self._view, len(self))


def _form_of(view: StoreView) -> Callable[[Sample], Any] | None:
    """What makes of a sample as it was read what the caller asked for; None where that is it."""
    as_tuple = None if view.returns is None else tuple_of(view.returns)
    if view.image_as != "tv_tensor":
        return as_tuple
    as_tv_tensors = TvTensors(view.store.manifest.schema, view.fields)
    if as_tuple is None:
        return as_tv_tensors
    return lambda sample: as_tuple(as_tv_tensors(sample))


def _composed(
    read: Callable[[int], Sample], as_asked: Callable[[Sample], Any]
) -> Callable[[int], Any]:
    return lambda position: as_asked(read(position))
