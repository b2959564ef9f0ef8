"""The walk over a JPEG's segments, which headers, leniency and the quality are read by."""

from __future__ import annotations

import struct

import pytest

from readers.store.pictures.jpeg_segments import (
    APP0,
    CODES,
    COMMENT,
    JPEG_START,
    SCAN,
    TABLES,
    jpeg_segments,
)
from tests.readers.store.pictures import saved, smooth


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, 2 + len(content)) + content


def test_the_walk_meets_each_segment_up_to_the_scan():
    """Of a file that Pillow writes, they lie one behind the other, and pixels come behind."""
    data = saved(smooth(), "JPEG", quality=80)
    found = list(jpeg_segments(data))
    markers, starts, ends = zip(*found, strict=True)
    assert [markers[0], markers[-1]] == [APP0, SCAN]
    assert {TABLES, CODES} < set(markers)
    assert starts == (len(JPEG_START), *ends[:-1])
    assert list(jpeg_segments(memoryview(data))) == found


def test_bare_markers_and_filling_bytes_are_passed_over():
    """They may stand between any two segments."""
    data = JPEG_START + b"\xff\xd0" + b"\xff\xff\xff" + segment(COMMENT, b"one") + b"\xff\x01"
    data += segment(SCAN, b"\0")
    assert list(jpeg_segments(data)) == [(COMMENT, 7, 14), (SCAN, 16, 21)]


@pytest.mark.parametrize(
    "rest",
    [b"", b"\xff", b"\xff\xda\0", b"junk and more", b"\xff\xd9\xff\xd9", b"\xff\xd8\xff\xe0"],
)
def test_the_walk_ends_at_what_is_no_segment(rest):
    """Junk, the picture's end and the file's leave a last one that is not the scan's."""
    data = JPEG_START + segment(COMMENT, b"one") + rest
    assert list(jpeg_segments(data)) == [(COMMENT, 2, 9)]


def test_a_length_that_cannot_be_still_leads_on():
    """A segment has its two bytes of length, whatever they say; and may say too much."""
    short = JPEG_START + struct.pack(">BBH", 0xFF, COMMENT, 0) + segment(SCAN, b"")
    assert [marker for marker, _, _ in jpeg_segments(short)] == [COMMENT, SCAN]
    long = JPEG_START + struct.pack(">BBH", 0xFF, COMMENT, 9000)
    assert list(jpeg_segments(long)) == [(COMMENT, 2, 2 + 2 + 9000)]
