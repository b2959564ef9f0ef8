"""A store's reject list: what of the raw data was not packed, and why, one JSON object a line.

FORMAT.md has the fields. The list is ASCII: a key that is not UTF-8 has its bytes as escapes of
lone surrogates, as `os.fsdecode` makes them. It may be a stranger's: nothing in it is trusted.
"""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from readers.store.errors import StoreError
from readers.store.layout import REJECTS_NAME
from readers.store.place import Place, Url
from readers.store.remote import files_of

_LINE_BYTES_MAX = 2**20


class RejectLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list. Keys that a later release adds are passed over.

    Attributes:
        key: Key of the sample, as text; see `key_bytes`. Empty when it is not known.
        path: Where it is in the raw data, as a person would write it.
        reason: Why it was not packed.
        kind: "annotation" for an annotation of a sample, "part" for a part of one that is stored
            without it; empty for a whole raw item.
        part: Which part: "outline", "keypoints", "box", "attributes"; empty but for a part.
    """

    key: str
    path: str
    reason: str
    kind: str = ""
    part: str = ""

    @property
    def key_bytes(self) -> bytes:
        """The key as the store's index has it."""
        return self.key.encode("utf-8", "surrogateescape")

    @property
    def is_item(self) -> bool:
        """Whether it is a raw item, rather than an annotation or a part of one."""
        return not self.kind


def rejects_bytes(lines: Iterable[RejectLine]) -> bytes:
    """The list as its file holds it."""
    return "".join(json.dumps(_as_dict(line)) + "\n" for line in lines).encode("ascii")


def _as_dict(line: RejectLine) -> dict[str, str]:
    values = {"key": line.key, "path": line.path, "reason": line.reason}
    more = {"kind": line.kind, "part": line.part}
    return values | {name: value for name, value in more.items() if value}


def read_rejects(folder: Place) -> Iterator[RejectLine]:
    """The lines of a store's list.

    Args:
        folder: The store.

    Raises:
        StoreError: The list is missing, not a plain file (a link would lead out of the store, a
            pipe make us wait), or a line is not what the format says, or over 1 MiB.
    """
    path = folder / REJECTS_NAME
    with _opened(folder) as stream:
        while line := stream.readline(_LINE_BYTES_MAX + 1):
            if len(line) > _LINE_BYTES_MAX:
                raise StoreError(f"{path}: a line of over {_LINE_BYTES_MAX} bytes; copy it again.")
            yield _line(line, path)


def _opened(folder: Place) -> BinaryIO:
    if isinstance(folder, Url):
        files = files_of(folder)
        return io.BytesIO(files.read(REJECTS_NAME, files.find(REJECTS_NAME).size))
    path = folder / REJECTS_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; copy the store again.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{path}: it is not a plain file; copy the store again.")
    return open(descriptor, "rb")


def _line(line: bytes, path: Place) -> RejectLine:
    try:
        return msgspec.convert(json.loads(line), RejectLine)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise StoreError(
            f"{path}: it holds {line[:80]!r}, expected a JSON object with the texts key, path and "
            "reason; copy the store again."
        ) from error


def item_count(lines: Iterable[RejectLine]) -> int:
    """How many raw items are listed: what the manifest says as `reject_count`."""
    return sum(line.is_item for line in lines)
