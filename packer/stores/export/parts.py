"""Samples that are written together: what a killed export does again or has behind it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from packer.plan.cuts import cut_items
from packer.stores.export.job import Job

_PART_BYTES_MAX = 2**26
"""Of pictures in files of their own: what a killed export writes again, for each thread."""

_FILE_BYTES = 2**15
"""Added for each picture, so that a part has no more than 2,048 small ones."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some samples of one export.

    Attributes:
        number: Which part it is.
        rows: Positions of the samples in the job's `indices`, in order.
        split: Their split, where a part is one file; else empty.
        at: Which file of that split it is, from 0.
        of: How many files that split has.
    """

    number: int
    rows: NDArray[np.int64]
    split: str = ""
    at: int = 0
    of: int = 1


class PartReport(msgspec.Struct, kw_only=True):
    """What became of a part.

    Attributes:
        sample_count: Samples that are in it.
        files: Path and size of each file.
        lost: How often each thing could not be carried.
        pieces: Parts of files that are put together at the end, by name.
    """

    sample_count: int = 0
    files: list[tuple[bytes, int]] = []
    lost: dict[str, int] = {}
    pieces: dict[str, bytes] = {}


def cut_parts(job: Job, *, holds_many: bool) -> list[Part]:
    """The parts of an export; where each is one file, of one split and about as large as wanted."""
    if not holds_many:
        cuts = cut_items(job.sizes + _FILE_BYTES, _PART_BYTES_MAX)
        return [Part(number, np.arange(first, end)) for number, (first, end) in enumerate(cuts)]
    parts: list[Part] = []
    for number, split in enumerate(job.splits or ("",)):
        rows = np.flatnonzero(job.split_numbers == number)
        cuts = cut_items(job.sizes[rows], job.shard_bytes_max)
        for at, (first, end) in enumerate(cuts):
            parts.append(Part(len(parts), rows[first:end], split, at, len(cuts)))
    return parts
