"""What a user says of a cache: its folder, how large it may become, how fast it may fill."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from readers.staging.cache_folder import CacheFolder, StagingError
from readers.staging.staged_bytes import StagedBytes
from readers.store.manifest import ShardInfo
from readers.store.place import Place, Url
from readers.store.record_bytes import RecordBytes

_log = logging.getLogger("readers.staging")


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """Settings of a cache of shards.

    Attributes:
        folder: On a local disk, absolute. Any number of stores may share it.
        bytes_max: Limit of all copies in it; None: what the disk has.
        bytes_per_s_max: How fast a store is copied; None: as fast as it comes.
    """

    folder: str
    bytes_max: int | None = None
    bytes_per_s_max: int | None = None

    def __post_init__(self) -> None:
        if not os.path.isabs(self.folder):
            raise ValueError(f"the folder of a cache must be absolute; got {self.folder!r}")
        for name, value in (("limit", self.bytes_max), ("rate", self.bytes_per_s_max)):
            if value is not None and value < 1:
                raise ValueError(f"the {name} of a cache must be at least 1 byte; got {value!r}")

    def around(self, far: RecordBytes, shards: Sequence[ShardInfo]) -> StagedBytes:
        """See `readers.store.copies.ShardCache`."""
        return StagedBytes(far, shards, CacheFolder(self.folder))


def check_apart(store: Place, folder: str | Path) -> None:
    """A cache lies neither in its store nor around it.

    Raises:
        ValueError: It does.
    """
    if isinstance(store, Url):
        return
    a, b = Path(os.path.realpath(store)), Path(os.path.realpath(folder))
    if a == b or a in b.parents:
        raise ValueError(
            f"the cache {str(folder)!r} is {'the store' if a == b else 'in the store'} {a}; "
            "expected a folder of its own on a local disk, such as /local/cache"
        )


def cache_of(
    store: Place, folder: str | Path | None, bytes_max: int | None, bytes_per_s_max: int | None
) -> CacheSettings | None:
    """The cache that the user of a store asks for, if it can be used; else a warning says why not.

    Raises:
        ValueError: It cannot be meant.
    """
    if folder is None:
        given = {"cache_limit": bytes_max, "cache_rate": bytes_per_s_max}
        names = [name for name, value in given.items() if value is not None]
        if names:
            raise ValueError(f"{' and '.join(names)} are about a cache; give cache_dir with them")
        return None
    check_apart(store, folder)
    settings = CacheSettings(
        folder=os.path.abspath(folder), bytes_max=bytes_max, bytes_per_s_max=bytes_per_s_max
    )
    try:
        CacheFolder(settings.folder).check()
    except StagingError as error:
        _log.warning("%s Shards are read from where the store is: %s", error, store)
        return None
    return settings
