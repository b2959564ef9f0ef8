"""Which samples and fields of which store: what a dataset is, apart from torch's interface to it.

It pickles to a few hundred bytes, and opens the store in each process when it is first asked.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from readers.machine import mount_of
from readers.reading.selection import Selection
from readers.store.errors import ManifestError, ShardError, StoreError
from readers.store.layout import MANIFEST_NAME
from readers.store.manifest import Manifest
from readers.store.read_policy import ReadPolicy
from readers.store.reader import Access, StoreReader, open_store

ImageAs = Literal["tensor", "numpy", "pil", "tv_tensor"]

Io = Literal["auto", "map", "read", "read-ahead"]


def access_of(io: Io, path: str | Path) -> Access:
    """How the shards of a store are read: by reads where its folder is on a network mount.

    Out of a mapped file a network mount gives page after page, one small request after the other.
    By reads as well where a mount refuses to map files, as some cluster file systems do.
    """
    if io == "map" or io == "read":
        return io
    is_far = mount_of(Path(path)).is_network or _refuses_maps(Path(path) / MANIFEST_NAME)
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


_OPENED = ("_store", "_selection")


@dataclass(eq=False, kw_only=True)
class StoreView:
    """Some samples and fields of a store.

    Attributes:
        path: Folder of the store, absolute.
        identity: Digest of the store that `path` had when the view was made.
        split: Name of a split, names of several, or None for all samples.
        chosen: Positions in the store, once they were chosen; else a split is found in the index.
        fields: Names of the fields, in order.
        returns: Names of those that make a tuple of a sample, or None for dicts.
        image_as: What images are.
        io: How the store is read from its disk or server.
        read_policy: How stubbornly, and how many at once, where it is not mapped.
    """

    path: str
    identity: bytes
    split: str | tuple[str, ...] | None
    chosen: Selection | None
    fields: tuple[str, ...]
    returns: tuple[str, ...] | None
    image_as: ImageAs
    io: Io = "auto"
    read_policy: ReadPolicy | None = None
    _store: StoreReader | None = field(default=None, repr=False)
    _selection: Selection | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Settings alone: an opened store neither travels nor needs to."""
        return {**self.__dict__, **dict.fromkeys(_OPENED)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def close(self) -> None:
        """Let go of the store; the next call opens it again."""
        self.__dict__.update(dict.fromkeys(_OPENED))

    @property
    def store(self) -> StoreReader:
        """The store, opened in this process.

        Raises:
            StoreError: It is gone, damaged, or another than when the view was made.
        """
        store = self._store
        if store is None:
            # Whoever made the view has seen that the shards are there.
            access = access_of(self.io, self.path)
            policy = self.read_policy
            store = open_store(self.path, checks_files=False, access=access, policy=policy)
            if identity_of(store.manifest) != self.identity:
                raise StoreError(
                    f"{self.path}: the store was replaced since this dataset was made. "
                    "Make the dataset again."
                )
            if self.io == "read-ahead":
                store.read_ahead()
            self._store = store
        return store

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


def identity_of(manifest: Manifest) -> bytes:
    """What tells a store from another that took its place."""
    digest = hashlib.sha256()
    for shard in manifest.shards:
        digest.update(shard.sha256.encode())
    return digest.digest()[:16]


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
