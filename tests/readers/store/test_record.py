"""A record gives back what was packed, and bytes that are no record never do harm."""

from __future__ import annotations

import io
import math
import struct
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from readers.store.codecs import OriginalImage
from readers.store.errors import CodecError, ImageError
from readers.store.record import RecordLayout, RecordReader, pack_record
from readers.store.schema import ITEM_DTYPES, Field, Schema, field_bytes
from tests.readers.store.making import (
    FIXED,
    NUMBERS,
    ORIGINAL,
    VARIABLE,
    assert_same_value,
    original,
    pixels,
    png,
    sample_of,
    samples,
    schemas,
    single_values,
)

schemas_and_samples = schemas().flatmap(lambda schema: st.tuples(st.just(schema), samples(schema)))
names_of_schemas = schemas().flatmap(
    lambda schema: st.tuples(
        st.just(schema), samples(schema), st.lists(st.sampled_from(schema.names), unique=True)
    )
)


def packed(schema: Schema, values: dict[str, object]) -> bytes:
    return pack_record(RecordLayout.of(schema), values)[0]


def unpacked(schema: Schema, record: bytes, names: list[str] | None = None) -> dict[str, object]:
    return RecordReader(RecordLayout.of(schema), names).unpack(memoryview(record))


@given(names_of_schemas)
def test_any_sample_comes_back_as_it_was(case):
    """Whatever the fields, and whichever of them are asked for, values are what was packed."""
    schema, values, names = case
    record = packed(schema, values)
    everything = unpacked(schema, record)
    assert list(everything) == list(schema.names)
    for name, value in everything.items():
        assert_same_value(schema[name], value, values[name])
    some = unpacked(schema, record, names)
    assert list(some) == names
    for name, value in some.items():
        assert_same_value(schema[name], value, values[name])


@given(schemas_and_samples)
def test_header_items_are_where_the_layout_says(case):
    """The index and readers in other languages go by the items, in this order, without gaps."""
    schema, values = case
    layout = RecordLayout.of(schema)
    record, header = pack_record(layout, values)
    at = 0
    for item, value in zip(layout.items, header, strict=True):
        dtype = np.dtype(item.dtype).newbyteorder("<")
        assert record[at : at + dtype.itemsize] == np.array(value, dtype).tobytes()
        at += dtype.itemsize
    assert layout.header.size == -(-at // 8) * 8
    assert not any(record[at : layout.header.size])


@given(schemas_and_samples)
def test_fixed_fields_lie_at_multiples_of_8_and_the_others_behind_them(case):
    """One gather fetches a fixed field from many records, and aligned views of it are possible."""
    schema, values = case
    layout = RecordLayout.of(schema)
    record, header = pack_record(layout, values)
    end = layout.header.size
    for field in schema.fields:
        if field.is_fixed and not field.is_scalar:
            start = layout.fixed_offsets[field.name]
            assert start == -(-end // 8) * 8
            assert not any(record[end:start])
            end = start + field_bytes(field)
            given_bytes = values[field.name].astype(values[field.name].dtype.newbyteorder("<"))
            assert record[start:end] == given_bytes.tobytes()
    assert layout.variable_start == -(-end // 8) * 8
    assert not any(record[end : layout.variable_start])
    ends = [
        value
        for item, value in zip(layout.items, header, strict=True)
        if item.name.endswith(".end")
    ]
    assert sorted([layout.variable_start, *ends]) == [layout.variable_start, *ends]
    assert len(record) == [layout.variable_start, *ends][-1]


def test_a_record_is_these_bytes():
    """The format is bytes: this record must look like this in every release of version 1."""
    schema = Schema(
        (
            Field(name="key", kind="text"),
            Field(name="label", kind="label", dtype="int64"),
            Field(name="image", kind="image", shape=(None, None, 1), codec="raw"),
            Field(name="size", kind="array", dtype="uint16", shape=(2,)),
            Field(name="flag", kind="scalar", dtype="bool"),
        )
    )
    layout = RecordLayout.of(schema)
    assert [item.name for item in layout.items] == [
        "key.end",
        "label",
        "image.end",
        "image.height",
        "image.width",
        "image.dtype",
        "flag",
    ]
    assert [item.name for item in layout.columns] == [
        "label",
        "image.height",
        "image.width",
        "image.dtype",
        "flag",
    ]
    values = {
        "key": "ä",
        "label": -2,
        "image": np.array([[[0x0102], [0x0304]]], np.uint16),
        "size": np.array([5, 6], np.uint16),
        "flag": True,
    }
    record, header = pack_record(layout, values)
    assert header == (42, -2, 46, 1, 2, 3, True)
    assert record == (
        struct.pack("<IqIIIBB", 42, -2, 46, 1, 2, 3, 1)
        + bytes(6)  # The header ends at a multiple of 8,
        + bytes((5, 0, 6, 0))
        + bytes(4)  # and so does each fixed field.
        + "ä".encode()
        + bytes((2, 1, 4, 3))
    )


def test_items_of_an_original_image_end_with_its_orientation():
    """The order of items is sides, element type, orientation; see FORMAT.md."""
    field = Field(name="image", kind="image", shape=(None,) * 3, codec="original", mode="unchanged")
    layout = RecordLayout.of(Schema((field,)))
    assert [(item.name, item.dtype) for item in layout.items] == [
        ("image.end", "uint32"),
        ("image.height", "uint32"),
        ("image.width", "uint32"),
        ("image.channel", "uint32"),
        ("image.dtype", "uint8"),
        ("image.orientation", "uint8"),
    ]
    record, header = pack_record(layout, {"image": original(4, 6, 5)})
    assert header == (len(record), 6, 4, 3, 1, 5)


def test_free_sides_of_an_array_are_named_by_their_axis():
    """Columns of the index are called by these names."""
    field = Field(name="a", kind="array", dtype="int8", shape=(None, 4, None))
    layout = RecordLayout.of(Schema((field,)))
    assert [item.name for item in layout.items] == ["a.end", "a.0", "a.2"]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_the_record_is_applied(orientation):
    """The record says how a picture is turned; the file itself, a PNG without EXIF, does not."""
    image = original(3, 5, orientation)
    values = {"image": image, "label": 1}
    assert_same_value(
        ORIGINAL["image"], unpacked(ORIGINAL, packed(ORIGINAL, values))["image"], image
    )


def test_the_orientation_of_the_record_stands_above_that_of_the_file():
    """A later decoder may read EXIF otherwise; the store has settled how a picture is turned."""
    exif = Image.Exif()
    exif[0x0112] = 6
    stream = io.BytesIO()
    Image.fromarray(pixels(3, 5)).save(stream, "PNG", exif=exif)
    kept = OriginalImage(stream.getvalue(), (3, 5, 3), "uint8", 1)
    record = packed(ORIGINAL, {"image": kept, "label": 0})
    assert np.array_equal(unpacked(ORIGINAL, record)["image"], pixels(3, 5))


def test_a_field_that_is_not_asked_for_is_not_decoded():
    """Labels must be readable where the picture is broken, and without paying for it."""
    broken = OriginalImage(b"no picture", (3, 5, 3), "uint8", 1)
    record = packed(ORIGINAL, {"image": broken, "label": 1})
    assert unpacked(ORIGINAL, record, ["label"]) == {"label": 1}
    with pytest.raises(ImageError, match=r"^field 'image': "):
        unpacked(ORIGINAL, record)


def test_an_unknown_field_is_a_key_error():
    """A mistyped name must not come out as an absent value."""
    with pytest.raises(KeyError, match="'imagee'"):
        RecordReader(RecordLayout.of(FIXED), ["imagee"])


def test_a_missing_value_is_named():
    """A source that forgot a field must hear which."""
    with pytest.raises(CodecError, match=r"^field 'label': no value; found \['image'\]$"):
        packed(FIXED, {"image": pixels(4, 5)})


@pytest.mark.parametrize("dtype", ITEM_DTYPES)
@given(data=st.data())
def test_single_values_come_back_exactly(dtype, data):
    """A label is never off by one, at the extremes of its type neither."""
    schema = Schema((Field(name="value", kind="scalar", dtype=dtype),))
    value = data.draw(single_values(dtype))
    found = unpacked(schema, packed(schema, {"value": value}))["value"]
    assert type(found) is type(value)
    assert found == value or (math.isnan(found) and math.isnan(value))


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("float32", 0.1, 0.10000000149011612),
        ("float32", 2**24 + 1, 2.0**24),
        ("float16", math.inf, math.inf),
        ("int8", np.float64(5), 5),
        ("int64", True, 1),
        ("bool", 1, True),
        ("uint8", np.array(7, ">i4"), 7),
    ],
)
def test_a_number_of_another_type_is_taken_when_it_means_the_same(dtype, value, expected):
    """Sources give Python's and numpy's numbers; a float is the nearest that its type has."""
    schema = Schema((Field(name="value", kind="scalar", dtype=dtype),))
    found = unpacked(schema, packed(schema, {"value": value}))["value"]
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint8", 256),
        ("uint8", -1),
        ("int8", 128),
        ("int64", 2**63),
        ("int64", float(2**63)),
        ("uint64", 2**64),
        ("uint64", -1),
        ("int64", 1.5),
        ("int64", math.nan),
        ("int64", math.inf),
        ("bool", 2),
        ("bool", 0.5),
        ("float16", 70000.0),
        ("float32", 1e300),
        ("float64", 10**400),
        ("float32", None),
        ("float32", "1.5"),
        ("int64", "5"),
        ("int64", None),
        ("int64", 1j),
        ("int64", b"5"),
        ("int64", [5]),
        ("int64", [[1], [1, 2]]),
        ("int64", np.datetime64(5, "s")),
        ("int64", {}),
    ],
)
def test_a_number_that_would_change_is_refused(dtype, value):
    """Nothing is rounded to a whole number, wrapped around or made of text in silence."""
    schema = Schema((Field(name="value", kind="scalar", dtype=dtype),))
    with pytest.raises(CodecError, match=r"^field 'value': "):
        packed(schema, {"value": value})


@pytest.mark.parametrize("value", [-1, 2])
def test_a_position_among_names_is_in_their_range(value):
    """A label that has no class is found when it is written."""
    with pytest.raises(CodecError, match=r"field 'label': .*expected \[0, 2\)"):
        packed(NUMBERS, {"label": value, "weight": 0})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("image", np.zeros((4, 4, 4), np.uint8), r"shape \(4, 4, 4\), expected \(any, any, 3\)"),
        ("image", np.zeros((4, 4), np.uint8), r"shape \(4, 4\), expected"),
        ("image", np.zeros((4, 4, 3), np.complex64), "element type complex64, expected bool or"),
        ("image", "picture.jpg", r"shape \(\), expected"),
        ("boxes", np.zeros((0, 4), np.float64), "element type float64, expected float32"),
        ("boxes", [[1.0, 2.0, 3.0, 4.0]], "element type float64, expected float32"),
        ("boxes", [[1.0], [2.0, 3.0]], "no array"),
        ("boxes", np.zeros((2**31, 0), np.float32), r"shape \(2147483648, 0\), expected"),
        ("key", 5, "expected text, found int"),
        ("key", "\ud800", "not UTF-8"),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_refused(name, value, reason):
    """The writer names the field, what it found and what it expected."""
    values = sample_of(VARIABLE, 1)[1] | {name: value}
    with pytest.raises(CodecError, match=f"^field '{name}': .*{reason}"):
        packed(VARIABLE, values)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (pixels(3, 5), "expected an OriginalImage, found ndarray"),
        (OriginalImage(b"x", (3, 5, 1), "uint8", 1), r"shape \(3, 5, 1\), expected \(any, any"),
        (OriginalImage(b"x", (3, 5, 3), "uint16", 1), "element type uint16, expected uint8"),
        (OriginalImage(b"x", (3, 5, 3), "uint8", 0), r"orientation 0, expected \[1, 8\]"),
        (OriginalImage(b"x", (3, 5, 3), "uint8", 9), r"orientation 9, expected \[1, 8\]"),
        (OriginalImage(b"x", (-3, 5, 3), "uint8", 1), r"shape \(-3, 5, 3\), expected"),
        (OriginalImage(b"x", (2**31, 5, 3), "uint8", 1), r"shape \(2147483648, 5, 3\), expected"),
    ],
)
def test_an_original_image_must_be_what_its_field_says(value, reason):
    """What a reader is told before it decodes must be right."""
    with pytest.raises(CodecError, match=f"^field 'image': .*{reason}"):
        packed(ORIGINAL, {"image": value, "label": 0})


@pytest.mark.parametrize(
    "field",
    [
        Field(name="big", kind="array", dtype="uint8", shape=(2**20, 2**12)),
        Field(name="big", kind="array", dtype="float64", shape=(2**20, 2**17)),
    ],
)
def test_a_record_that_no_shard_can_hold_is_refused(field):
    """LMDB's values end at 4 GiB; this must be known before as much memory is taken."""
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match="at most 4294967295"):
            packed(Schema((field,)), {"big": np.zeros(1, np.uint8)})
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


# Bytes that are no record.


@pytest.mark.parametrize("schema", [NUMBERS, FIXED, VARIABLE, ORIGINAL])
def test_a_record_of_any_other_length_is_refused(schema):
    """A record that was cut short or has something behind it is noticed, whatever is asked for."""
    record = packed(schema, sample_of(schema, 3)[1])
    for data in (*(record[:end] for end in range(len(record))), record + b"\0"):
        for names in (None, ["label"], []):
            with pytest.raises(CodecError):
                unpacked(schema, data, names)


def _sizes(values: dict[str, object]) -> int:
    return sum(value.nbytes for value in values.values() if isinstance(value, np.ndarray))


@given(schemas_and_samples, st.data())
def test_a_changed_byte_gives_a_value_or_an_error(case, data):
    """Records may come from strangers: no other exception, and no memory beyond the record."""
    schema, values = case
    record = bytearray(packed(schema, values))
    at = data.draw(st.integers(0, max(0, len(record) - 1)))
    reader = RecordReader(RecordLayout.of(schema))
    for byte in (0, 1, 0x7F, 0x80, 0xFF, data.draw(st.integers(0, 255))):
        changed = record.copy()
        changed[at : at + 1] = bytes((byte,)) if changed else b""
        try:
            found = reader.unpack(memoryview(changed))
        except (CodecError, ImageError):
            continue
        has_picture = any(field.codec == "original" for field in schema.fields)
        assert has_picture or _sizes(found) <= len(record)


HEADERS = {
    "an array without elements": (
        Field(name="a", kind="array", dtype="float64", shape=(None, None, None)),
        np.zeros((0, 1, 1)),
    ),
    "pixels": (
        Field(name="a", kind="image", shape=(None, None, None), codec="raw"),
        pixels(2, 3),
    ),
    "a picture": (
        Field(name="a", kind="image", shape=(None,) * 3, codec="original", mode="rgb"),
        original(2, 3, 6),
    ),
}


@pytest.mark.parametrize("kind", HEADERS)
@given(items=st.lists(st.sampled_from((0, 1, 2, 3, 255, 2**31 - 1, 2**31, 2**32 - 1)), min_size=5))
@example(items=[0, 2**32 - 1, 2**32 - 1, 255, 255])
@example(items=[0, 2**31 - 1, 2**31 - 1, 1, 1])
@example(items=[2**16, 2**16, 2**32 - 1, 1, 1])
def test_a_crafted_header_gives_a_value_or_an_error(kind, items):
    """Sides whose product overflows, element types that are none: an error."""
    field, value = HEADERS[kind]
    layout = RecordLayout.of(Schema((field,)))
    record, header = pack_record(layout, {"a": value})
    widths = [np.iinfo(item.dtype).max for item in layout.items]
    crafted = [header[0]] + [item & width for item, width in zip(items, widths[1:], strict=False)]
    crafted += header[len(crafted) :]
    record = layout.header.pack(*crafted) + record[layout.header.size :]
    with suppress(CodecError, ImageError):
        found = RecordReader(layout).unpack(memoryview(record))["a"]
        assert kind == "a picture" or found.nbytes < len(record)


@pytest.mark.parametrize(
    ("item", "value", "reason"),
    [
        ("image.dtype", 99, r"element type 99, expected \[0, 12\)"),
        ("image.height", 3, "36 bytes, expected 54 for"),
        ("image.height", 1, "36 bytes, expected 18 for"),
        ("image.end", 40, "fields end at"),
        ("image.end", 2**32 - 1, "fields end at"),
        ("key.end", 0, "fields end at"),
        ("boxes.0", 2**32 - 1, "expected"),
        ("boxes.end", 0, "fields end at"),
    ],
)
def test_a_header_that_contradicts_the_record_is_refused(item, value, reason):
    """Ends, sides and element types are held against the bytes that are there."""
    layout = RecordLayout.of(VARIABLE)
    values = {
        "key": "k",
        "image": pixels(2, 3).astype(np.uint16),
        "label": 0,
        "boxes": np.zeros((1, 4), np.float32),
    }
    record, header = pack_record(layout, values)
    place = [each.name for each in layout.items].index(item)
    header = (*header[:place], value, *header[place + 1 :])
    with pytest.raises(CodecError, match=reason):
        RecordReader(layout).unpack(
            memoryview(layout.header.pack(*header) + record[layout.header.size :])
        )


@pytest.mark.parametrize(
    ("item", "value", "error", "reason"),
    [
        ("image.height", 4, ImageError, "decoded to"),
        ("image.height", 1, ImageError, "over the limit"),
        ("image.orientation", 0, CodecError, r"orientation 0, expected \[1, 8\]"),
        ("image.orientation", 9, CodecError, r"orientation 9, expected \[1, 8\]"),
        ("image.dtype", 3, ImageError, "uint8, expected .* uint16"),
        ("image.dtype", 200, CodecError, r"element type 200, expected \[0, 12\)"),
    ],
)
def test_a_header_that_contradicts_the_picture_is_refused(item, value, error, reason):
    """A batch is made by what the index says; a picture must be that, whatever its file holds."""
    field = Field(name="image", kind="image", shape=(None,) * 3, codec="original", mode="rgb")
    layout = RecordLayout.of(Schema((field,)))
    record, header = pack_record(layout, {"image": original(3, 5, 1)})
    place = [each.name for each in layout.items].index(item)
    header = (*header[:place], value, *header[place + 1 :])
    with pytest.raises(error, match=f"^field 'image': .*{reason}"):
        RecordReader(layout).unpack(
            memoryview(layout.header.pack(*header) + record[layout.header.size :])
        )


def test_a_picture_larger_than_its_record_says_takes_no_memory():
    """A file of some bytes may decode to gigabytes; the record's size is the limit."""
    bomb = OriginalImage(png(np.zeros((3000, 3000, 3), np.uint8)), (3, 5, 3), "uint8", 1)
    record = packed(ORIGINAL, {"image": bomb, "label": 0})
    unpacked(ORIGINAL, packed(ORIGINAL, sample_of(ORIGINAL, 0)[1]))  # Loads the decoders.
    tracemalloc.start()
    try:
        with pytest.raises(ImageError, match="3000x3000 pixels is over the limit of 15"):
            unpacked(ORIGINAL, record)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_what_is_unpacked_owns_its_memory_unless_told_otherwise():
    """A user keeps samples for longer than a store is open, and writes into them."""
    schema = Schema(
        (
            Field(name="image", kind="image", dtype="uint8", shape=(None, None, 3), codec="raw"),
            Field(name="size", kind="array", dtype="int32", shape=(2,)),
        )
    )
    layout = RecordLayout.of(schema)
    values = {"image": np.arange(18, dtype=np.uint8).reshape(2, 3, 3), "size": np.int32([2, 3])}
    record = bytearray(pack_record(layout, values)[0])
    owned = RecordReader(layout).unpack(memoryview(record))
    viewed = RecordReader(layout, copies=False).unpack(memoryview(record))
    assert np.array_equal(viewed["image"], values["image"])
    record[:] = bytes(len(record))
    for name, value in values.items():
        assert np.array_equal(owned[name], value)
        assert not viewed[name].any()
        owned[name] += 1


def test_an_original_image_can_be_had_undecoded():
    """A decoder that needs a part of a picture alone takes its file's bytes."""
    schema = Schema(
        (
            Field(name="key", kind="text"),
            Field(
                name="image",
                kind="image",
                dtype="uint8",
                shape=(None, None, 3),
                codec="original",
                mode="rgb",
            ),
        )
    )
    layout = RecordLayout.of(schema)
    image = OriginalImage(b"some file", (4, 5, 3), "uint8", 6)
    record = memoryview(pack_record(layout, {"key": "a", "image": image})[0])
    data, orientation = RecordReader(layout, ("image",)).encoded(record)
    assert (bytes(data), orientation) == (b"some file", 6)
