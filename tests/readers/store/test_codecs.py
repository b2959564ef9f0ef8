"""One field's value becomes header items and a payload, and the value again."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from readers.store.codecs import (
    CODECS,
    OriginalImage,
    codec_of,
    fitting_array,
    free_axes,
    little,
)
from readers.store.errors import CodecError, ImageError
from readers.store.schema import ITEM_DTYPES, Field
from tests.readers.store.making import original, pixels

TEXT = Field(name="key", kind="text")
JSON = Field(name="more", kind="json")
BYTES = Field(name="file", kind="bytes")
ANY_IMAGE = Field(name="image", kind="image", shape=(None, None, None), codec="raw")


def encoded(field: Field, value: Any) -> tuple[tuple[int, ...], bytes]:
    items, payload = codec_of(field).encode(field, value)
    return items, bytes(payload)


def decoded(field: Field, items: tuple[int, ...], payload: bytes) -> Any:
    return codec_of(field).decode(field, items, memoryview(payload))


@pytest.mark.parametrize(
    ("field", "key"),
    [
        (TEXT, "text"),
        (JSON, "json"),
        (BYTES, "bytes"),
        (ANY_IMAGE, "raw"),
        (Field(name="a", kind="array", dtype="bool", shape=(None,)), "array"),
        (
            Field(name="a", kind="image", shape=(None,) * 3, codec="original", mode="rgb"),
            "original",
        ),
        (Field(name="a", kind="image", shape=(None,) * 3, codec="mixed", mode="rgb"), "mixed"),
        (Field(name="a", kind="mask", dtype="uint8", shape=(None, None)), "mask"),
        (Field(name="a", kind="mask", dtype="uint8", shape=(None, None), codec="png"), "png"),
    ],
)
def test_each_kind_has_its_codec(field, key):
    """Images and masks choose theirs; other kinds have one each."""
    assert codec_of(field) is CODECS[key]


def test_free_axes_are_those_that_each_sample_has_its_own_of():
    """Their names are what the columns of the index are called by."""
    image = Field(name="image", kind="image", shape=(None, 5, None), codec="raw")
    assert free_axes(image) == (("height", 0), ("channel", 2))
    array = Field(name="a", kind="array", dtype="bool", shape=(3, None, 4, None))
    assert free_axes(array) == (("1", 1), ("3", 3))


@pytest.mark.parametrize("dtype", ITEM_DTYPES)
def test_pixels_are_their_elements_in_c_order_least_byte_first(dtype):
    """Reading them is a copy, on any machine."""
    array = np.arange(12).reshape(2, 3, 2).astype(dtype)
    items, payload = encoded(ANY_IMAGE, np.asfortranarray(array.astype(little(dtype))))
    assert items == (2, 3, 2, ITEM_DTYPES.index(dtype))
    assert payload == array.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    found = decoded(ANY_IMAGE, items, payload)
    assert found.dtype == np.dtype(dtype)
    assert np.array_equal(found, array)


def test_a_codec_says_which_arrays_lie_in_the_payload():
    """Pixels as they are come without a copy, for who writes them elsewhere at once."""
    payload = memoryview(bytes(pixels(2, 3).tobytes()))
    found = CODECS["raw"].decode(ANY_IMAGE, (2, 3, 3, 1), payload)
    assert CODECS["raw"].gives_views
    assert np.shares_memory(found, np.frombuffer(payload, np.uint8))
    names = ("original", "png", "text", "json", "bytes")
    assert not any(CODECS[name].gives_views for name in names)


@given(st.binary())
def test_text_keeps_names_that_are_no_utf8(data):
    """Names of files are bytes; they come back as Python's own form of them."""
    text = decoded(TEXT, *encoded(TEXT, data))
    assert text == data.decode("utf-8", "surrogateescape")
    assert encoded(TEXT, text) == ((), data)


def test_text_that_no_file_can_be_named_is_refused():
    """A lone half of a surrogate pair is neither a character nor a byte."""
    with pytest.raises(CodecError, match="not UTF-8"):
        encoded(TEXT, "a\ud83d")


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        (None, b"null"),
        ({"b": [1, 2.5, "ä"], "a": True}, '{"b":[1,2.5,"ä"],"a":true}'.encode()),
        (2**70, b"1180591620717411303424"),
        ((1, 2), b"[1,2]"),
    ],
)
def test_json_is_json(value, payload):
    """Any reader of JSON can read it."""
    assert encoded(JSON, value) == ((), payload)


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [object(), {None: 1}, "\udc80", {"\udc80": 1}, 1j, _deep(100_000)],
    ids=["object", "key", "surrogate", "surrogate in a key", "complex", "deep"],
)
def test_what_is_no_json_is_refused(value):
    """Values come from users' files, so whatever they are, one kind of error says it."""
    with pytest.raises(CodecError, match="not JSON"):
        encoded(JSON, value)


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"nul", b"[1,]", b"1 2", b'"\xff"', b'"\\ud800"', b"NaN", b"1e999", b"[" * 10**5],
    ids=lambda payload: repr(payload[:10]),
)
def test_bytes_that_are_no_json_are_refused(payload):
    """A damaged record is an error and not another value."""
    with pytest.raises(CodecError, match="not JSON"):
        decoded(JSON, (), payload)


@pytest.mark.parametrize("value", [b"\0\xff", bytearray(b"\0\xff"), memoryview(b"\0\xff")])
def test_bytes_stay_as_they_are(value):
    """Any object that holds bytes will do."""
    assert encoded(BYTES, value) == ((), b"\0\xff")
    assert decoded(BYTES, (), b"\0\xff") == b"\0\xff"


def test_text_is_not_taken_for_bytes_nor_a_number_for_a_size():
    """`bytes(5)` would be five zeros."""
    for value in ("ab", 5, [1, 2], None):
        with pytest.raises(CodecError, match=f"expected bytes, found {type(value).__name__}"):
            encoded(BYTES, value)


def test_an_original_image_keeps_every_byte_of_its_file():
    """The way back to the raw data stays open."""
    field = Field(name="image", kind="image", shape=(None, None, 3), codec="original", mode="rgb")
    image = original(3, 5, 8)
    items, payload = encoded(field, image)
    assert items == (5, 3, ITEM_DTYPES.index("uint8"), 8)
    assert payload == image.data
    kept = OriginalImage(b"not even a picture", (1, 2, 3), "uint8", 1)
    assert encoded(field, kept)[1] == b"not even a picture"


MIXED = Field(name="image", kind="image", shape=(None, None, 3), codec="mixed", mode="rgb")


def test_a_mixed_image_is_told_by_its_orientation():
    """0 for pixels, which are read without a copy; what a file has for a file's bytes."""
    image = original(3, 5, 8)
    items, payload = encoded(MIXED, image)
    assert items == (5, 3, ITEM_DTYPES.index("uint8"), 8)
    assert payload == image.data
    assert decoded(MIXED, items, payload).shape == (5, 3, 3)
    array = pixels(3, 5)
    items, payload = encoded(MIXED, array)
    assert items == (3, 5, ITEM_DTYPES.index("uint8"), 0)
    assert payload == array.tobytes()
    found = decoded(MIXED, items, payload)
    assert np.array_equal(found, array)
    assert np.shares_memory(found, np.frombuffer(payload, np.uint8))
    with pytest.raises(CodecError, match=r"orientation 9, expected \[1, 8\]"):
        decoded(MIXED, (*items[:-1], 9), payload)


MASK = Field(name="mask", kind="mask", dtype="uint8", shape=(None, None), codec="png")
SEGMENTS = Field(name="mask", kind="mask", dtype="int32", shape=(None, None), codec="png")


def test_a_mask_as_png_is_read_by_any_viewer_and_loses_no_id():
    """Gray for bytes; R + 256 G + 65536 B for more, as COCO writes its segments."""
    ids = pixels(3, 5)[..., 0]
    items, payload = encoded(MASK, ids)
    assert items == (3, 5)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(payload))), ids)
    assert np.array_equal(decoded(MASK, items, payload), ids)
    numbers = np.array([[0, 255, 256], [65_536, 2**24 - 1, 70_000]], np.int32)
    items, payload = encoded(SEGMENTS, numbers)
    colors = np.asarray(Image.open(io.BytesIO(payload))).astype(np.int32)
    assert np.array_equal(colors @ [1, 256, 65_536], numbers)
    found = decoded(SEGMENTS, items, payload)
    assert found.dtype == np.int32
    assert np.array_equal(found, numbers)


@pytest.mark.parametrize("wrong", [-1, 2**24])
def test_an_id_that_a_png_mask_cannot_hold_is_refused(wrong):
    """Cut to 24 bits, it would be another segment's."""
    with pytest.raises(CodecError, match=rf"expected \[0, {2**24}\)"):
        encoded(SEGMENTS, np.array([[0, wrong]], np.int32))


def test_a_png_mask_is_held_against_its_record_before_it_is_decoded():
    """Another size or kind than the record says, or no PNG at all, is an error."""
    items, payload = encoded(MASK, pixels(3, 5)[..., 0])
    for field, sides, data in (
        (MASK, (5, 3), payload),
        (SEGMENTS, (3, 5), payload),
        (MASK, (3, 5), payload[:20]),
        (MASK, (3, 5), b""),
    ):
        with pytest.raises(ImageError, match="no PNG of"):
            decoded(field, sides, data)
    with pytest.raises(ImageError, match="the PNG of a mask is damaged"):
        decoded(MASK, items, payload[:40])


def test_an_array_of_another_shape_or_type_is_not_converted():
    """A silent cast would hide the mistake of a source."""
    field = Field(name="boxes", kind="array", dtype="float32", shape=(None, 4))
    assert fitting_array(field, np.zeros((3, 4), ">f4")).dtype == np.dtype("<f4")
    with pytest.raises(CodecError, match=r"^shape \(3, 5\), expected \(any, 4\)$"):
        fitting_array(field, np.zeros((3, 5), np.float32))
    with pytest.raises(CodecError, match=r"^element type float64, expected float32$"):
        fitting_array(field, np.zeros((3, 4)))
