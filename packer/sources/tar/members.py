"""Members of a tar archive, compressed with gzip or not, that may come from a stranger.

Nothing is ever written to a disk. `tarfile` parses the headers; what it leaves open is closed here:
it takes damage in the middle of an archive for its end, trusts sizes, and reads a header of
any length into memory.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from packer.files.start import pointer_reason
from packer.sources.container_files import member_parts, member_problem
from readers.store.pictures.signatures import START_BYTES

DATA_BYTES_MAX = 16 * 2**20
"""Largest member that is read with the headers: the JSON of one sample."""

ALL_DATA_BYTES_MAX = 2**31
"""Of all such members of an archive, which are in memory together: captions of ten million samples.
A few megabytes of gzip can claim any number of large ones."""

DEREFERENCED = (
    "expected a file. Make the archive with tar --dereference --hard-dereference, which writes "
    "the files that links lead to"
)

_READ_BYTES_MAX = 16 * 2**20
# From hostile headers, tarfile raises many classes.
_ERRORS = (
    tarfile.TarError,
    OSError,
    EOFError,
    zlib.error,
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    RecursionError,
    MemoryError,
)


class TarMember(NamedTuple):
    """A member that is not a folder.

    Attributes:
        name: Relative path without `.` parts; as written when there is a problem with it.
        position: Where its bytes begin in the archive, uncompressed.
        byte_count: Size.
        problem: Why it cannot be used; empty when it can.
        data: Its bytes, when they were asked for.
        link: Path of the member whose bytes are its own as well, in the archive; else empty.
    """

    name: bytes
    position: int
    byte_count: int
    problem: str
    data: bytes | None
    link: bytes = b""


class TarDamageError(Exception):
    """The archive is damaged; what was read before it is not. The text says where and how."""


class TarReader:
    """An archive that is open.

    Args:
        path: The file.
        data_bytes_max: Of a member of a name whose bytes are to be read, how many there may be; 0
            for others.

    Attributes:
        is_compressed: Whether it is compressed with gzip, whatever its name is.
        has_end: Whether the mark of the archive's end was seen; after `members`.
    """

    def __init__(self, path: Path, data_bytes_max: Callable[[bytes], int]) -> None:
        self._path = path
        self._data_bytes_max = data_bytes_max
        self._data_bytes = 0
        self.is_compressed = False
        self.has_end = False

    def members(self) -> Iterator[TarMember]:
        """All members in order, with one pass over the file.

        Raises:
            TarDamageError: The archive is damaged, after the members before the damage.
        """
        position = 0
        try:
            with open(self._path, "rb") as file:
                start = file.read(START_BYTES)
                if pointer_reason(start):
                    raise TarDamageError(pointer_reason(start))
                self.is_compressed = start[:2] == b"\x1f\x8b"
                file.seek(0)
                limit = None if self.is_compressed else os.fstat(file.fileno()).st_size
                stream = _GuardedStream(gzip.GzipFile(fileobj=file) if limit is None else file)
                with tarfile.open(
                    fileobj=stream,  # type: ignore[call-overload]  # Has what tarfile calls.
                    mode="r:",
                    encoding="utf-8",
                    errors="surrogateescape",
                ) as archive:
                    while (info := archive.next()) is not None:
                        # tarfile keeps every member, for lookups that are not made here.
                        archive.members.clear()
                        end = info.offset_data + info.size
                        if info.offset_data <= position and position:
                            raise TarDamageError(f"a header points back at byte {position:,}")
                        if info.size < 0 or (limit is not None and end > limit and info.isreg()):
                            raise TarDamageError(
                                f"{info.name!r} has {info.size:,} bytes from byte "
                                f"{info.offset_data:,} on, but the file ends at byte {limit:,}"
                            )
                        position = info.offset_data
                        if not info.isdir():
                            yield self._member(info, stream)
                    self._check_end(stream.last_read, position)
        except _ERRORS as error:
            what = f"{type(error).__name__}: {error}"
            raise TarDamageError(f"damaged after byte {position:,} ({what})") from error

    def _member(self, info: tarfile.TarInfo, stream: _GuardedStream) -> TarMember:
        written = info.name.encode("utf-8", "surrogateescape")
        parts = member_parts(written)
        problem = _problem(info, written, parts)
        name = written.replace(b"\\", b"/") if problem else b"/".join(parts)
        if not problem and (info.issym() or info.islnk()):
            link = _link_target(info, parts)
            if not link:
                problem = f"a link to {info.linkname!r}, outside of the archive; {DEREFERENCED}"
            return TarMember(name, info.offset_data, 0, problem, None, link)
        data = None
        limit = 0 if problem else self._data_bytes_max(name)
        if limit:
            self._data_bytes += info.size
            if info.size > limit:
                problem = f"{info.size:,} bytes; expected at most {limit:,}"
                self._data_bytes -= info.size
            elif self._data_bytes > ALL_DATA_BYTES_MAX:
                raise TarDamageError(
                    f"labels, captions and JSON of over {ALL_DATA_BYTES_MAX:,} bytes together"
                )
            else:
                stream.seek(info.offset_data)
                data = stream.read(info.size)
                if len(data) < info.size:
                    raise EOFError(f"{info.name!r} is cut")
        return TarMember(name, info.offset_data, info.size, problem, data)

    def _check_end(self, last_read: bytes, position: int) -> None:
        """Tell the end of an archive from damage: tarfile takes a header it cannot read for it."""
        if last_read.strip(b"\0"):
            raise TarDamageError(f"damaged after byte {position:,}: no header of a member follows")
        self.has_end = bool(last_read)

    def read_again(self, member: TarMember) -> bytes | None:
        """The bytes of a member that was given before; None where that costs all before it."""
        if self.is_compressed or member.byte_count > DATA_BYTES_MAX:
            return None
        with open(self._path, "rb") as file:
            file.seek(member.position)
            return file.read(member.byte_count)


def _problem(info: tarfile.TarInfo, written: bytes, parts: list[bytes]) -> str:
    is_link = info.issym() or info.islnk()
    if info.issparse():
        return "a sparse file; expected one whose bytes are all there. Make it with plain tar -c"
    if not info.isreg() and not is_link:
        return "not a regular file"
    return member_problem(written, parts, 0 if is_link else info.size)


def _link_target(info: tarfile.TarInfo, parts: list[bytes]) -> bytes:
    """Path of a link's target in the archive; empty where it leads out of it.

    That of a hard link is a member's, that of a symbolic link is relative to the link's folder.
    """
    written = info.linkname.encode("utf-8", "surrogateescape")
    target = [] if info.islnk() else parts[:-1]
    if written.startswith(b"/"):
        return b""
    for part in written.split(b"/"):
        if part == b"..":
            if not target:
                return b""
            target = target[:-1]
        elif part not in (b"", b"."):
            target = [*target, part]
    return b"/".join(target)


class _GuardedStream:
    """A stream that tarfile reads headers from, and from which it cannot be told to read a lot."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile) -> None:
        self._stream = stream
        self.last_read = b""

    def read(self, byte_count: int = -1) -> bytes:
        if not 0 <= byte_count <= _READ_BYTES_MAX:
            raise tarfile.ReadError(f"a header of {byte_count:,} bytes")
        self.last_read = self._stream.read(byte_count)
        return self.last_read

    def seek(self, position: int) -> int:
        return self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()
