"""Which samples and fields of which store: what a dataset is, apart from torch's interface to it.

It pickles to a few hundred bytes, and opens the store in each process when it is first asked.
"""

from __future__ import annotations

import errno
import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from readers.machine import mount_of
from readers.reading.selection import Selection
from readers.staging.background import BackgroundStaging, stage_in_background
from readers.staging.settings import CacheSettings
from readers.store.errors import ManifestError, ShardError, StoreError
from readers.store.layout import MANIFEST_NAME
from readers.store.manifest import Manifest, identity_of
from readers.store.place import Place, Url, place_of
from readers.store.read_policy import ReadPolicy
from readers.store.reader import Access, StoreReader, open_store

ImageAs = Literal["tensor", "numpy", "pil", "tv_tensor"]

Io = Literal["auto", "map", "read", "read-ahead"]


def access_of(io: Io, place: Place) -> Access:
    """How the shards of a store are read: by reads where it is on a network mount, or at a URL.

    Out of a mapped file a network mount gives page after page, one small request after the other.
    By reads as well where a mount refuses to map files, as some cluster file systems do.

    Raises:
        ValueError: A store at a URL cannot be mapped.
    """
    if isinstance(place, Url):
        if io == "map":
            raise ValueError(f"io must be 'auto' or 'read' for a store at a URL; got {io!r}")
        return "read"
    if io == "map" or io == "read":
        return io
    is_far = mount_of(place).is_network or _refuses_maps(place / MANIFEST_NAME)
    return "read" if is_far else "map"


def _refuses_maps(file: Path) -> bool:
    """Whether a file of the mount cannot be mapped as shards are. One that is not there can."""
    try:
        # A pipe of that name would wait for a writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        size = os.fstat(descriptor).st_size
        if size:
            mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ).close()
    except OSError as error:
        return error.errno == errno.ENODEV
    finally:
        os.close(descriptor)
    return False


_OPENED = ("_store", "_selection", "_staging")


@dataclass(eq=False, kw_only=True)
class StoreView:
    """Some samples and fields of a store.

    Attributes:
        path: Folder of the store, absolute; or its URL, as it may be shown.
        identity: Digest of the store that `path` had when the view was made.
        split: Name of a split, names of several, or None for all samples.
        chosen: Positions in the store, once they were chosen; else a split is found in the index.
        fields: Names of the fields, in order.
        returns: Names of those that make a tuple of a sample, or None for dicts.
        image_as: What images are.
        io: How the store is read from its disk or server.
        url: Its URL, when it lies at one, with what is needed to read there.
        read_policy: How stubbornly, and how many at once, where it is not mapped.
        cache: Where its shards are copied to, and read when they are there; None: nowhere.
        stages_in: Number of the process whose thread copies them, if it is this one's to do.
    """

    path: str
    identity: bytes
    split: str | tuple[str, ...] | None
    chosen: Selection | None
    fields: tuple[str, ...]
    returns: tuple[str, ...] | None
    image_as: ImageAs
    io: Io = "auto"
    url: Url | None = None
    read_policy: ReadPolicy | None = None
    cache: CacheSettings | None = None
    stages_in: int | None = None
    _store: StoreReader | None = field(default=None, repr=False)
    _selection: Selection | None = field(default=None, repr=False)
    _staging: BackgroundStaging | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Settings alone: an opened store neither travels nor needs to."""
        return {**self.__dict__, **dict.fromkeys(_OPENED)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def close(self) -> None:
        """Let go of the store; the next call opens it again."""
        self.__dict__.update(dict.fromkeys(_OPENED))

    @property
    def place(self) -> Place:
        """Where the store lies."""
        return place_of(self.path) if self.url is None else self.url

    @property
    def store(self) -> StoreReader:
        """The store, opened in this process.

        Raises:
            StoreError: It is gone, damaged, or another than when the view was made.
        """
        store = self._store
        if store is None:
            # Whoever made the view has seen that the shards are there.
            place = self.place
            store = open_store(
                place,
                checks_files=False,
                access=access_of(self.io, place),
                policy=self.read_policy,
                cache=self.cache,
            )
            if identity_of(store.manifest) != self.identity:
                raise StoreError(
                    f"{self.path}: the store was replaced since this dataset was made. "
                    "Make the dataset again."
                )
            if self.io == "read-ahead":
                store.read_ahead()
            self._store = store
            self.stage(store.manifest)
        return store

    def stage(self, manifest: Manifest) -> BackgroundStaging | None:
        """Have the shards be copied to the cache, if that is for this process to do.

        NOTE [ which process copies ]: the one that made the dataset, not one that got it by fork or
        by a pickle: those are loader workers, which end with an epoch.
        """
        if self._staging is None and self.cache is not None and self.stages_in == os.getpid():
            self._staging = stage_in_background(self.place, manifest, self.cache)
        return self._staging

    def shards_of(self, indices: NDArray[np.int64]) -> list[int]:
        """Numbers of the shards in which samples lie, in the order in which they come up."""
        positions = self.selection.positions(indices)
        numbers = np.searchsorted(self.store.first_samples, positions, side="right") - 1
        return list(dict.fromkeys(numbers.tolist()))

    @property
    def selection(self) -> Selection:
        """Positions in the store of the samples, in order."""
        selection = self._selection
        if selection is not None:
            return selection
        selection = self.chosen
        if selection is None:
            if self.split is None:
                selection = Selection.of_all(self.store.manifest.sample_count)
            else:
                selection = _split_selection(self.store, _as_names(self.split))
        self._selection = selection
        return selection

    @property
    def result_names(self) -> tuple[str, ...]:
        """Names of the fields of a result, in order."""
        return self.fields if self.returns is None else self.returns

    def __len__(self) -> int:
        if self._selection is None and self.chosen is None and self.split is not None:
            return sum(self.store.manifest.splits[name] for name in _as_names(self.split))
        return len(self.selection)

    def damaged(self, position: int, error: StoreError) -> ShardError:
        """The error of a record that cannot be read, with its place.

        Args:
            position: Of the sample in the store.
            error: What is wrong with it.
        """
        shard, place = self.store.locate(position)
        return ShardError.at(
            shard.path,
            f"{error}. The record is damaged; list every damaged sample with: "
            f"packer verify {self.path}",
            place,
        )


def _as_names(split: str | tuple[str, ...]) -> tuple[str, ...]:
    return (split,) if isinstance(split, str) else split


def _split_selection(store: StoreReader, splits: tuple[str, ...]) -> Selection:
    schema = store.manifest.schema
    expected = sum(store.manifest.splits[split] for split in splits)
    names = (schema["split"].names or ()) if "split" in schema else ()
    for split in splits:
        if split not in names:
            raise ManifestError(
                f"{store.path}: split {split!r} is none of its field 'split': {names}"
            )
    values = [names.index(split) for split in splits]
    runs: list[NDArray[np.int64]] = []
    for shard, first in zip(store.shards(), store.first_samples, strict=False):
        runs.append(np.flatnonzero(np.isin(shard.columns["split"], values)) + first)
    selection = Selection.of(np.concatenate(runs) if runs else np.zeros(0, np.int64))
    if len(selection) != expected:
        shown = ", ".join(map(repr, splits))
        raise ManifestError(
            f"{store.path}: {len(selection)} samples of split {shown}, expected {expected}. "
            "The manifest was changed; copy the store again."
        )
    return selection
