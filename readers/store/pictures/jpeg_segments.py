"""The segments of a JPEG before its pixels: ITU-T T.81, B.1.1."""

from __future__ import annotations

from collections.abc import Iterator

JPEG_START = b"\xff\xd8"

APP0, APP1, APP14, APP15 = 0xE0, 0xE1, 0xEE, 0xEF
CODES, TABLES, RESTARTS, COMMENT = 0xC4, 0xDB, 0xDD, 0xFE
SCAN = 0xDA

FRAME_STARTS = frozenset((*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), 0xCD, 0xCE))

_BARE = frozenset((0x01, *range(0xD0, 0xD8)))
"""Markers with nothing behind them."""

_PICTURE_ENDS = frozenset((0xD8, 0xD9))
"""Start and end of a picture, of which neither may come here."""


def jpeg_segments(data: bytes | memoryview) -> Iterator[tuple[int, int, int]]:
    """(marker, start, end) of each segment of a JPEG, up to that of the first scan.

    A start is that of the marker. Bare markers and filling bytes are passed over. Where something
    else comes than a segment, or the file ends, so does this: the last marker is then not `SCAN`.

    Args:
        data: A file that begins with `JPEG_START`. In one that is cut off, an end may lie past it.
    """
    at, size = len(JPEG_START), len(data)
    while at + 4 <= size and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _BARE:
            at += 2
        elif marker in _PICTURE_ENDS:
            return
        else:
            # Its length counts itself, so that one below 2 is damage.
            end = at + 2 + max(2, data[at + 2] << 8 | data[at + 3])
            yield marker, at, end
            if marker == SCAN:
                return
            at = end
