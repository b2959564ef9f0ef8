"""Names of files: keys and classes made safe as paths, and none given twice.

A key is a path as some machine had it, or whatever a data set calls its pictures. What no file can
be called, what would lead out of the folder, and what every reader passes over (a hidden name) is
written as in a URL: `..` is `%2E%2E`, a class `cat/dog` is `cat%2Fdog`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from packer.sources.pairing import stem_of
from packer.sources.walk import is_picture_name, skip_reason

_ODD = re.compile(rb"[\x00-\x1f\x7f\\]|^[ ]+|[ ]+$")
"""Controls, which lists of a name a line cannot hold, and what is a slash elsewhere."""

_NAME_BYTES_MAX = 200
"""File systems take 255; the rest is for an extension and a number."""


def safe_part(name: bytes) -> bytes:
    """A name as that of a file or folder, which may be any bytes but empty."""
    try:
        name.decode()
    except UnicodeDecodeError:
        name = re.sub(rb"[\x80-\xff]", _escaped, name)
    name = _ODD.sub(_escaped, name).replace(b"/", b"%2F")
    if name in (b".", b".."):
        return name.replace(b".", b"%2E")
    if skip_reason(name) is not None:
        name = b"%%%02X" % name[0] + name[1:]
    if len(name) > _NAME_BYTES_MAX:
        digest = hashlib.blake2b(name, digest_size=4).hexdigest().encode()
        short = name[: _NAME_BYTES_MAX - 9].decode("utf-8", "ignore").encode()
        name = short + b"-" + digest
    return name


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"".join(b"%%%02X" % byte for byte in found[0])


def safe_path(path: bytes) -> bytes:
    """A path inside of a folder, in its parts as `safe_part` has them."""
    parts = [safe_part(part) for part in path.split(b"/") if part]
    return b"/".join(parts) or b"unnamed"


def safe_names(names: Iterable[str]) -> list[bytes]:
    """Names of folders for classes or splits, each another one."""
    found: list[bytes] = []
    for name in names:
        part = safe_part(name.encode("utf-8", "surrogateescape") or b"%")
        while part in found:
            part += b"%"
        found.append(part)
    return found


def stem_and_extension(key: bytes) -> tuple[bytes, bytes]:
    """A key as a safe path without the end of a picture's name, and that end; empty if none."""
    path = safe_path(key)
    if not is_picture_name(path):
        return path, b""
    stem = stem_of(path)
    return stem, path[len(stem) :]


class Names:
    """Where the picture of each sample lies: as its layout wishes, but where two would be one.

    Only a number of each path is held, 8 bytes a sample, and the few that are not as wished.

    Args:
        count: Samples.
        wishes: The places of a sample by its row, the best first, without extension; and the
            extension, where that tells files apart, or else b"".
    """

    def __init__(self, count: int, wishes: Callable[[int], tuple[Sequence[bytes], bytes]]) -> None:
        self._others: dict[int, bytes] = {}
        numbers = np.empty(count, np.uint64)
        for row in range(count):
            stems, extension = wishes(row)
            numbers[row] = _number(stems[0] + extension)
        order = np.argsort(numbers, kind="stable")
        in_order = numbers[order]
        again = np.flatnonzero(in_order[1:] == in_order[:-1]) + 1
        taken: set[int] = set()
        for row in np.sort(order[again]).tolist():
            stems, extension = wishes(row)
            self._others[row] = self._free(row, stems, extension, in_order, taken)

    def _free(
        self,
        row: int,
        stems: Sequence[bytes],
        extension: bytes,
        numbers: NDArray[np.uint64],
        taken: set[int],
    ) -> bytes:
        """A place that no other sample has: another wish, or with a number behind it."""
        tries = [*stems[1:], b"%s-%d" % (stems[0], row)]
        while True:
            for stem in tries:
                number = _number(stem + extension)
                at = int(np.searchsorted(numbers, np.uint64(number)))
                is_wished = at < len(numbers) and int(numbers[at]) == number
                if not is_wished and number not in taken:
                    taken.add(number)
                    return stem
            tries = [tries[-1] + b"_"]

    def __getitem__(self, row: int) -> bytes | None:
        """The place of a sample, without extension; None: its first wish."""
        return self._others.get(row)


def _number(path: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(path, digest_size=8).digest(), "little")
