"""Reading a raw file, and seeing that it is the one that the plan saw."""

from __future__ import annotations

import errno
import os
import stat

from packer.files.sizes import LOOKED_AT_BYTES, check_start, size_problem
from packer.items.raw_item import RawFile
from readers.store.errors import ImageError
from readers.store.pictures.signatures import START_BYTES


class RawFileError(Exception):
    """A raw file cannot be read, or is not the one that the plan saw. The text is the reason.

    Args:
        reason: Why.
        may_pass: Whether it may be otherwise when the same build is tried again.
    """

    def __init__(self, reason: str, *, may_pass: bool = True) -> None:
        super().__init__(reason)
        self.may_pass = may_pass


def read_raw_file(root: bytes, file: RawFile, bytes_max: int) -> bytes:
    """The whole of a raw file, in one read.

    Args:
        root: Folder that its path is relative to.
        file: As the source found it.
        bytes_max: A file that is larger is not read; see `packer.files.sizes`.

    Raises:
        RawFileError: It cannot be read, or is not what the source found.
    """
    problem = size_problem(file.byte_count, bytes_max)
    if problem is not None:
        raise RawFileError(problem, may_pass=False)
    try:
        # Descriptors rather than file objects, which take longer to make than a file to read.
        descriptor = os.open(os.path.join(root, file.path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if (found.st_size, found.st_mtime_ns) != (file.byte_count, file.mtime_ns):
                raise RawFileError(
                    "the file changed while the build ran; run the build again when it is at rest"
                )
            if file.byte_count > LOOKED_AT_BYTES:
                _look_at_start(descriptor, file)
            # One byte more than there should be: a regular file is read in one call, and one that
            # grows meanwhile is noticed.
            data = os.read(descriptor, file.byte_count + 1)
            while 0 < len(data) < file.byte_count and (
                more := os.read(descriptor, file.byte_count - len(data))
            ):
                data += more
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RawFileError(f"cannot be read: {error.strerror}") from error
    if len(data) != file.byte_count:
        raise RawFileError(f"{len(data)} bytes could be read, expected {file.byte_count}")
    return data


def _look_at_start(descriptor: int, file: RawFile) -> None:
    """See that a large file begins like a picture, before it is read."""
    try:
        check_start(os.pread(descriptor, START_BYTES, 0), file.byte_count, file.path)
    except ImageError as error:
        raise RawFileError(str(error), may_pass=False) from error
