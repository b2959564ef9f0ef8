"""Shards in a bucket or on a web server, as `ReadBytes` reads them: by requests for ranges.

All that reads of a disk have holds here as well: they are sorted, merged when near, many at once,
and tried again. Each answer is held against the file that was found when the shard was opened.
"""

from __future__ import annotations

import os

from readers.store.errors import RemoteError, ShardError
from readers.store.place import Place
from readers.store.read_policy import ReadPolicy
from readers.store.remote import RemoteFile, RemoteFiles
from readers.store.remote_errors import RemoteFaultError

REMOTE_POLICY = ReadPolicy(gap_bytes_max=256 * 2**10, read_bytes_max=8 * 2**20)
"""A request takes 20 to 100 ms until its first byte: as long as a connection takes for a MiB and
more. But connections share the line, and what is read in vain may cost money; so a gap is less."""


class RemoteShards:
    """Shards by number; see `ShardFiles` in `read_bytes.py`.

    Args:
        files: The files of the store.
    """

    def __init__(self, files: RemoteFiles) -> None:
        self._open_files: RemoteFiles | None = files
        self._found: dict[int, tuple[Place, RemoteFile]] = {}

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._open_files is None

    @property
    def _files(self) -> RemoteFiles:
        if self._open_files is None:
            raise ValueError("these shards are closed")
        return self._open_files

    def add(
        self, number: int, path: Place, descriptor: int, found: os.stat_result | None = None
    ) -> int:
        """Find a shard. Its size is returned."""
        try:
            file = self._files.find(path.name)
        except RemoteError as error:
            raise ShardError(str(error)) from error
        self._found[number] = path, file
        return file.size

    def read_into(self, number: int, into: list[memoryview], offset: int) -> int:
        """Ask once for the bytes that fill pieces of memory: how many of them came."""
        path, file = self._found[number]
        wanted = sum(map(len, into))
        try:
            answer = memoryview(self._files.read_range(file, offset, offset + wanted))
        except RemoteFaultError as fault:
            if fault.failure.kind == "passing":
                raise
            raise ShardError.at(
                path,
                f"{wanted} bytes at offset {offset}: {fault.failure.text}. {fault.failure.remedy}",
            ) from fault
        if len(answer) > wanted:
            raise ShardError.at(
                path,
                f"{len(answer)} bytes came for {wanted} at offset {offset}. "
                "See whether the server is well.",
            )
        first = 0
        for piece in into:
            part = answer[first : first + len(piece)]
            piece[: len(part)] = part
            first += len(piece)
        return len(answer)

    def renew(self, number: int) -> None:
        """See that a shard is the same, where answers do not tell."""
        path, file = self._found[number]
        if self._files.checks_answers():
            return
        found = self._now(number)
        if found != file:
            raise ShardError.at(
                path,
                f"is another file than the one that was opened at first: {found.size} bytes, "
                f"version {found.version}; expected {file.size}, version {file.version}. Open the "
                "store again.",
            )

    def size_now(self, number: int) -> int:
        """Bytes that the server says the file has."""
        return self._now(number).size

    def _now(self, number: int) -> RemoteFile:
        file = self._found[number][1]
        try:
            return self._files.find(file.name, is_fresh=True)
        except RemoteError as error:
            raise ShardError(str(error)) from error

    def advise(self, number: int, advice: int) -> None:
        """A server reads as it likes."""

    def close(self) -> None:
        """Let go of all files, and of the connections to them, if nobody else has them."""
        self._open_files = None
        self._found = {}
