"""What an opened store asks of a cache of its shards; `readers.staging` has one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from readers.store.manifest import ShardInfo
from readers.store.place import Place
from readers.store.record_bytes import FileBytes, RecordBytes


class CopiedBytes(RecordBytes, Protocol):
    """A door to record bytes that takes shards from copies where there are any."""

    def add_copy(self, number: int, path: Place) -> FileBytes | None:
        """Take a shard in from its copy, in place of `add`; None where there is no copy."""

    def drop_copy(self, number: int) -> None:
        """Read a shard where the store is after all: its copy is damaged."""


class ShardCache(Hashable, Protocol):
    """A place with copies of shards. Equal ones lead to one `StoreReader`."""

    def around(self, far: RecordBytes, shards: Sequence[ShardInfo]) -> CopiedBytes:
        """A door that leads to the copies, and else to `far`.

        Raises:
            MemoryError: The process may not reserve that many addresses.
        """
