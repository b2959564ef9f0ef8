"""Reading a raw file, and seeing that it is the one that the plan saw."""

from __future__ import annotations

import os

from packer.sources.items import RawFile


class RawFileError(Exception):
    """A raw file cannot be read, or is not the one that the plan saw. The text is the reason."""


def read_raw_file(root: bytes, file: RawFile) -> bytes:
    """The whole of a raw file, in one read.

    Args:
        root: Folder that its path is relative to.
        file: As the source found it.

    Raises:
        RawFileError: It cannot be read, or is not what the source found.
    """
    try:
        with open(os.path.join(root, file.path), "rb", buffering=0) as stream:
            found = os.fstat(stream.fileno())
            if (found.st_size, found.st_mtime_ns) != (file.byte_count, file.mtime_ns):
                raise RawFileError(
                    "the file changed while the build ran; run the build again when it is at rest"
                )
            # One byte more than there should be: a regular file is read in one call, and one that
            # grows meanwhile is noticed.
            data = stream.read(file.byte_count + 1) or b""
            while 0 < len(data) < file.byte_count and (
                more := stream.read(file.byte_count - len(data))
            ):
                data += more
    except OSError as error:
        raise RawFileError(f"cannot be read: {error.strerror}") from error
    if len(data) != file.byte_count:
        raise RawFileError(f"{len(data)} bytes could be read, expected {file.byte_count}")
    return data
