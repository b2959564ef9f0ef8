"""A gzip file as bytes by their place in what it unpacks to."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO

_MAGIC = b"\x1f\x8b"
_STEP_BYTES = 2**16


def is_compressed(path: Path) -> bool:
    """Whether a file is one of gzip by its first bytes; False when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


class GzipDamageError(Exception):
    """The stream cannot be unpacked as far as was asked for. The text is the reason."""


class GzipStream:
    """Bytes of a gzip file by their place in the unpacked stream, which only moves forward.

    A place before those in memory costs all that lies before it once more. The steps from the start
    are always the same ones: how far a damaged stream can be unpacked depends on how it is read,
    and no build worker may store an image that another one cannot read.

    Args:
        file: The file, open; it is left open.

    Attributes:
        end: How far the stream was unpacked, in bytes.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stream: gzip.GzipFile | None = None
        self._piece = b""
        self.end = 0
        self._damage: tuple[int, str] | None = None

    def read(self, position: int, byte_count: int) -> bytes:
        """Bytes from a place on; fewer where the stream ends.

        Raises:
            GzipDamageError: The stream is damaged before their end.
        """
        last = position + byte_count
        if self._damage is not None and last > self._damage[0]:
            # Found once: looking again would unpack all that lies before it for every image.
            raise GzipDamageError(self._damage[1])
        if self._stream is None or position < self.end - len(self._piece):
            self._start_over()
        first = position - (self.end - len(self._piece))
        if last <= self.end:  # Nearly always, of small images.
            return self._piece[first : first + byte_count]
        parts = io.BytesIO()
        while position < last:
            if position < self.end:
                first = self.end - len(self._piece)
                part = self._piece[position - first : last - first]
                parts.write(part)
                position += len(part)
            elif not self._step():
                break
        return parts.getvalue()

    def _start_over(self) -> None:
        self.close()
        self._file.seek(0)
        self._stream = gzip.GzipFile(fileobj=self._file)
        self._piece, self.end = b"", 0

    def _step(self) -> bool:
        """Unpack the next piece in place of the last; False at the end of the stream."""
        assert self._stream is not None
        try:
            # At most one read of the file, so that what is whole before a damage comes first.
            piece = self._stream.read1(_STEP_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            self.close()
            # A disk or a file server that failed may be asked again; a damaged stream stays so.
            if not isinstance(error, OSError) or error.errno is None:
                self._damage = self.end, str(error)
            raise GzipDamageError(str(error)) from error
        if piece:
            self._piece = piece
            self.end += len(piece)
        return bool(piece)

    def close(self) -> None:
        """Let go of the stream; the next read starts over."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
