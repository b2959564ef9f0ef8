"""The one door to the bytes of a store's records.

    positions -> index -> Wanted: shard, offset, length of each     one request for all of a batch
                              |  fetch
                              v
                          Pieces: memory, and where in it each begins

Who asks need not know where the bytes come from: out of mapped files (`mapped_bytes.py`), or by
reads at known offsets (`read_bytes.py`). A request names all that a batch needs, so that an
implementation which reads can merge what is near, and have many reads under way.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import ShardError
from readers.store.place import Place


@dataclass(kw_only=True, eq=False, slots=True)  # Frozen, it would take twice as long to make.
class Wanted:
    """Parts of shard files, one for each of some samples: records, fields of them, rows of pixels.

    Parts may come in any order, overlap and repeat.

    Attributes:
        shards: (part,) int64, number of the shard of each.
        offsets: (part,) int64, first byte of each in its file.
        lengths: (part,) int64, bytes of each; or one number for all.
        out: (part, byte) uint8, C-contiguous, where the caller would have them, if all are of one
            length. An implementation that copies anyway copies them there.
    """

    shards: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64] | int
    out: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def byte_count(self) -> int:
        """Bytes of all parts."""
        if isinstance(self.lengths, int):
            return len(self.offsets) * self.lengths
        return int(self.lengths.sum())


@dataclass(frozen=True, slots=True)
class ReadFigures:
    """What it took to get bytes by reads.

    Attributes:
        read_count: Reads.
        byte_count: Bytes that they brought, also those between parts.
        seconds: How long they took, one by one: many are under way at once.
        ahead_count: Requests that were announced before.
        ahead_bytes: Bytes of such requests that were kept at once in one process, at most.
        in_flight: Reads that were under way at once in one process, at most.
    """

    read_count: int = 0
    byte_count: int = 0
    seconds: float = 0.0
    ahead_count: int = 0
    ahead_bytes: int = 0
    in_flight: int = 0

    def __add__(self, other: ReadFigures) -> ReadFigures:
        return ReadFigures(
            self.read_count + other.read_count,
            self.byte_count + other.byte_count,
            self.seconds + other.seconds,
            self.ahead_count + other.ahead_count,
            max(self.ahead_bytes, other.ahead_bytes),
            max(self.in_flight, other.in_flight),
        )


NO_READS = ReadFigures()


class Pieces(NamedTuple):
    """Bytes that were asked for. They stay as they are for as long as `memory` is kept.

    Attributes:
        memory: uint8, read-only to the caller.
        starts: (part,) int64, where each part begins in it.
        in_out: Whether the parts are in `Wanted.out`, which then is the memory.
        waited: Whether a disk or server had to be waited for, as far as that is known.
        reads: What it took. The first of a request's pieces tell of all.
    """

    memory: NDArray[np.uint8]
    starts: NDArray[np.int64]
    in_out: bool
    waited: bool
    reads: ReadFigures = NO_READS


class FileBytes(Protocol):
    """The bytes of one shard file: a memoryview is one, and what reads a slice when asked."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> memoryview: ...


class Announced(Protocol):
    """A request whose bytes are on their way. Whoever lets go of it does not want them any more."""

    def fetch(self) -> list[Pieces]:
        """The bytes, once they are there; it is asked for once. See `RecordBytes.fetch`."""


class RecordBytes(Protocol):
    """Bytes of the shards of one store, by number of the shard and offset in its file.

    Any thread may ask at any time, and a forked child goes on with what its parent had. It does not
    pickle: a process that gets a store by its path opens it anew.

    Attributes:
        memory: What `file` gives lies in this one piece of memory, if the files are mapped; else it
            is empty.
    """

    memory: NDArray[np.uint8]

    def add(
        self, number: int, path: Place, descriptor: int, found: os.stat_result | None = None
    ) -> FileBytes:
        """Take a shard in; before that nothing of it may be asked for.

        Args:
            number: The shard's number.
            path: Of its file, for messages; of a shard at a URL, what it is found by.
            descriptor: Of the open file, of the size that is known; it may be closed afterwards.
                `NO_DESCRIPTOR` for a shard at a URL.
            found: What the descriptor was found to be, which need not be asked of a server again.
                None: it was not looked at.

        Returns:
            All its bytes.

        Raises:
            ShardError: The file cannot be read in this way.
        """

    def expect(self, number: int, *, in_order: bool) -> None:
        """How a shard will be read from now on: from end to end, or here and there."""

    def fetch(self, wanted: Sequence[Wanted]) -> list[Pieces]:
        """The bytes of all parts, once they are there.

        Raises:
            ShardError: A part leaves its file, or cannot be read; the message names shard and
                offset.
            ValueError: A shard was not taken in, or this is closed.
        """

    def announce(self, wanted: Sequence[Wanted]) -> Announced | None:
        """Begin to read parts that will be fetched soon, such as those of the next batches.

        Returns:
            The request, to be kept until it is fetched. None: there is nothing to keep, or no
            room for more; then it is fetched as ever.
        """

    def close(self) -> None:
        """Let go of the files. Pieces that were given out stay."""


NO_PICKLE = "the bytes of a store do not pickle; its path does, and so do datasets and views"

NO_DESCRIPTOR = -1
"""In place of one: the shard lies where there are none."""

NOT_ADDED = -1
"""In a table of file sizes: this shard cannot be asked for."""


def check_within(wanted: Wanted, sizes: NDArray[np.int64], paths: Sequence[Place | None]) -> None:
    """Hold a request against the sizes of files.

    Args:
        wanted: The request.
        sizes: Bytes of each shard's file, or `NOT_ADDED`.
        paths: The shards' paths.

    Raises:
        ShardError, ValueError: See `RecordBytes.fetch`.
    """
    if not len(wanted):
        return
    offsets, lengths = wanted.offsets, wanted.lengths
    # Compared, not added up: a sum may be more than int64 has. Counted: any() takes thrice as long.
    wrong_count = np.count_nonzero(sizes[wanted.shards] - offsets < lengths)
    wrong_count += np.count_nonzero(offsets < 0)
    wrong_count += lengths < 0 if isinstance(lengths, int) else np.count_nonzero(lengths < 0)
    if wrong_count:
        _refuse(wanted, sizes, paths)


def _refuse(wanted: Wanted, sizes: NDArray[np.int64], paths: Sequence[Place | None]) -> NoReturn:
    """Name the first part that is not there."""
    lengths = np.broadcast_to(wanted.lengths, len(wanted))
    room = sizes[wanted.shards] - wanted.offsets
    is_wrong = (wanted.offsets < 0) | (lengths < 0) | (room < lengths)
    at = int(is_wrong.argmax())
    number, offset = int(wanted.shards[at]), int(wanted.offsets[at])
    path, size = paths[number], int(sizes[number])
    if path is None or size == NOT_ADDED:
        raise ValueError(f"shard {number} is not open, so its byte {offset} cannot be read")
    raise ShardError.at(
        path, f"{lengths[at]} bytes at offset {offset} leave the file of {size} bytes"
    )
