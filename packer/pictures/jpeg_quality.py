"""The quality at which a JPEG was encoded, told from its quantization tables."""

from __future__ import annotations

import functools

from readers.store.pictures.jpeg_segments import JPEG_START, SCAN, TABLES, jpeg_segments

# ITU-T T.81, table K.1, in the zigzag order of files: brightness at a quality of 50.
_STANDARD = (
    *(16, 11, 12, 14, 12, 10, 16, 14, 13, 14, 18, 17, 16, 19, 24, 40),
    *(26, 24, 22, 22, 24, 49, 35, 37, 29, 40, 58, 51, 61, 60, 57, 51),
    *(56, 55, 64, 72, 92, 78, 64, 68, 87, 69, 55, 56, 80, 109, 81, 87),
    *(95, 98, 103, 104, 103, 62, 77, 113, 121, 112, 100, 120, 92, 101, 103, 99),
)


def jpeg_quality(data: bytes) -> int | None:
    """Quality on libjpeg's scale, in [1, 100], of whatever encoder; None when it cannot be told.

    Encoders with tables of their own get the quality of the standard table that is as fine on
    average.

    Args:
        data: A JPEG file.
    """
    table = _first_table(data)
    if table is None:
        return None
    found = sum(table)
    return min(range(1, 101), key=lambda quality: abs(_table_sum(quality) - found))


@functools.cache
def _table_sum(quality: int) -> int:
    """Sum of the table that libjpeg makes for a quality, in [1, 100]."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return sum(min(255, max(1, (entry * percent + 50) // 100)) for entry in _STANDARD)


def _first_table(data: bytes) -> list[int] | None:
    """The table number 0, which is that of brightness."""
    if data[:2] != JPEG_START:
        return None
    for marker, start, end in jpeg_segments(data):
        if marker == SCAN or end > len(data):
            return None
        if marker == TABLES:
            table = _table_zero(data[start + 4 : end])
            if table is not None:
                return table
    return None


def _table_zero(segment: bytes) -> list[int] | None:
    """The table number 0 of a segment of several tables."""
    at = 0
    while at < len(segment):
        is_wide, number = segment[at] >> 4, segment[at] & 15
        count = 128 if is_wide else 64
        entries = segment[at + 1 : at + 1 + count]
        if len(entries) < count:
            return None
        if number == 0:
            step = count // 64
            return [int.from_bytes(entries[i : i + step], "big") for i in range(0, count, step)]
        at += 1 + count
    return None
