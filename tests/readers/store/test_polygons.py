"""Outlines come back as they were given, and a stranger's bytes are refused or harmless."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.store.errors import CodecError
from readers.store.schema import Field
from readers.store.shapes.polygons import (
    PIXELS_MAX,
    Polygons,
    Runs,
    decode_polygons,
    encode_polygons,
)
from tests.readers.store.making import assert_same_value, outlines

FIELD = Field(name="masks", kind="polygons")

SQUARE = np.array([[1.0, 1], [4, 1], [4, 3], [1, 3]])
DOT = np.array([[5.0, 0], [6, 0], [6, 1], [5, 1]])


def runs(*counts: int) -> Runs:
    return Runs(np.array(counts, np.uint32))


def payload(*numbers: int, points: int = 0) -> memoryview:
    """Bytes with these numbers in front and so many points behind."""
    return memoryview(struct.pack(f"<{len(numbers)}I", *numbers) + bytes(16 * points))


@given(outlines())
def test_outlines_are_read_as_they_were_written(value):
    """Objects, their parts, all points to the last bit, all runs, and the size of the image."""
    assert_same_value(FIELD, decode_polygons(memoryview(encode_polygons(value))), value)


def test_the_bytes_are_those_of_the_document():
    """A reader in another language goes by FORMAT.md: head, parts, lengths, runs, points."""
    value = Polygons([(SQUARE, DOT), runs(3, 2, 19), ()], 4, 6)
    expected = struct.pack("<5I", 4, 6, 3, 3, 3)
    expected += struct.pack("<3I", 2, 2**32 - 1, 0) + struct.pack("<3I", 4, 4, 3)
    expected += struct.pack("<3I", 3, 2, 19) + np.concatenate([SQUARE, DOT]).tobytes()
    assert encode_polygons(value) == expected


def test_pixels_of_outlines_are_those_of_coco():
    """A part outside of the others is united with them; runs go down the columns."""
    masks = Polygons([(SQUARE, DOT), runs(3, 2, 19), ()], 4, 6).to_masks()
    assert masks.shape == (3, 4, 6)
    assert masks.dtype == np.uint8
    expected = np.zeros((4, 6), np.uint8)
    expected[1:3, 1:4] = 1
    expected[0, 5] = 1
    assert masks[0].tolist() == expected.tolist()
    assert np.flatnonzero(masks[1].T).tolist() == [3, 4]
    assert not masks[2].any()


def test_outlines_can_be_chosen():
    """As boxes and labels can, by position and by slice."""
    value = Polygons([(SQUARE,), runs(24), (DOT,)], 4, 6)
    assert isinstance(value[1], Runs)
    assert value[2][0] is DOT
    assert (len(value[1:]), value[1:].height, value[1:].width) == (2, 4, 6)
    assert value[1:][1][0] is DOT


@pytest.mark.parametrize(
    ("numbers", "points", "reason"),
    [
        ((4, 6, 0, 0), 0, "at least 20"),
        ((4, 6, 1, 0, 0), 0, "1 objects"),
        ((4, 6, 2**32 - 1, 2**32 - 1, 2**32 - 1), 0, "4294967295 objects"),
        ((4, 6, 1, 1, 0, 1, 4), 3, "4 points, expected 1, 0 and 3"),
        ((4, 6, 1, 1, 0, 1, 2), 3, "2 points, expected 1, 0 and 3"),
        ((4, 6, 1, 1, 0, 2, 3), 3, "outlines of 2 parts"),
        ((4, 6, 1, 1, 0, 2**31, 3), 3, "outlines of 2147483648 parts"),
        ((4, 6, 1, 2, 0, 1, 3, 0), 3, "outlines of 1 parts"),
        ((4, 6, 1, 1, 2, 2**32 - 1, 2, 20, 5), 0, "runs of 25 pixels in all, expected 6x4"),
        ((4, 6, 1, 1, 2, 2**32 - 1, 1, 24, 5), 0, "1 runs and 0 points, expected 1, 2"),
        ((4, 6, 1, 1, 1, 2**32 - 1, 2**32 - 1, 24), 0, "4294967295 runs"),
        ((2**14 + 1, 2**14, 0, 0, 0), 0, "pixels; at most"),
    ],
)
def test_bytes_that_are_no_outlines_are_refused(numbers, points, reason):
    """Counts that lie must end in an error, not in a read beyond the record or in gigabytes."""
    with pytest.raises(CodecError, match=reason):
        decode_polygons(payload(*numbers, points=points))
    assert PIXELS_MAX == 2**28


@given(st.binary(max_size=80))
def test_any_bytes_are_outlines_or_a_codec_error(data):
    """A store from a stranger raises nothing else."""
    with contextlib.suppress(CodecError):
        decode_polygons(memoryview(data))


@pytest.mark.parametrize("outline", [(np.zeros((3, 3)),), (np.zeros(6),), runs(23), runs()])
def test_outlines_of_another_form_are_refused_when_they_are_made(outline):
    """So that a build stops with the image's name, and not a training run."""
    with pytest.raises(ValueError, match=r"polygon must be|runs of"):
        Polygons([outline], 4, 6)
