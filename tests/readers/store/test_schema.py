"""A schema is what FORMAT.md says, or it is refused by name."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given

from readers.store.errors import ManifestError
from readers.store.schema import ITEM_DTYPES, Field, Schema, field_bytes
from tests.readers.store.making import FIXED, NUMBERS, ORIGINAL, VARIABLE, schemas

IMAGE: dict[str, Any] = {"name": "image", "kind": "image", "codec": "raw", "shape": (4, 5, 3)}
LABEL: dict[str, Any] = {"name": "label", "kind": "label", "dtype": "int64"}
ARRAY: dict[str, Any] = {"name": "boxes", "kind": "array", "dtype": "float32", "shape": (None, 4)}
MASK: dict[str, Any] = {"name": "mask", "kind": "mask", "dtype": "uint8", "shape": (None, None)}
BOXES: dict[str, Any] = ARRAY | {"kind": "boxes"}
KEYPOINTS: dict[str, Any] = BOXES | {"kind": "keypoints", "shape": (None, 17, 3)}


@given(schemas())
def test_a_schema_comes_back_from_its_plain_form(schema):
    """The manifest keeps a schema as JSON; nothing about a field may be lost on the way."""
    plain = msgspec.json.decode(msgspec.json.encode(schema.as_builtins()))
    assert msgspec.convert(plain, Schema) == schema


def test_the_plain_form_leaves_out_what_is_not_set():
    """A shard's identity is a digest of this text, so it must never change for a given schema."""
    assert json.loads(json.dumps(FIXED.as_builtins())) == {
        "fields": [
            {
                "name": "image",
                "kind": "image",
                "dtype": "uint8",
                "shape": [4, 5, 3],
                "codec": "raw",
            },
            {"name": "label", "kind": "label", "dtype": "int64", "names": ["cat", "dog"]},
        ]
    }


def test_the_number_of_an_element_type_is_its_position():
    """Records hold these numbers: they are the format, and new types go to the end."""
    assert ITEM_DTYPES[:6] == ("bool", "uint8", "int8", "uint16", "int16", "uint32")
    assert ITEM_DTYPES[6:] == ("int32", "uint64", "int64", "float16", "float32", "float64")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (LABEL, True),
        (IMAGE | {"dtype": "uint8"}, True),
        (IMAGE | {"dtype": "uint8", "shape": (0, 5, 3)}, True),
        (ARRAY | {"shape": (3, 4)}, True),
        (MASK | {"shape": (3, 4)}, True),
        (MASK, False),
        (LABEL | {"shape": (None,)}, False),
        (BOXES, False),
        (KEYPOINTS, False),
        ({"name": "masks", "kind": "polygons"}, False),
        (IMAGE, False),
        (IMAGE | {"dtype": "uint8", "shape": (4, None, 3)}, False),
        (IMAGE | {"dtype": "uint8", "codec": "original", "mode": "rgb"}, False),
        (ARRAY, False),
        ({"name": "key", "kind": "text"}, False),
        ({"name": "more", "kind": "json"}, False),
        ({"name": "file", "kind": "bytes"}, False),
    ],
)
def test_a_field_is_fixed_when_all_its_values_take_the_same_bytes(settings, expected):
    """What is fixed has its place in every record; what is not has an end in the header."""
    assert Field(**settings).is_fixed is expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (LABEL, 8),
        (IMAGE | {"dtype": "uint16"}, 120),
        (ARRAY | {"shape": (2, 3)}, 24),
        (ARRAY | {"shape": (2, 0, 3)}, 0),
        ({"name": "flag", "kind": "scalar", "dtype": "bool"}, 1),
    ],
)
def test_bytes_of_a_fixed_field_are_its_elements(settings, expected):
    """One gather copies this many bytes of each record."""
    assert field_bytes(Field(**settings)) == expected


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (LABEL | {"name": "Label"}, "lower-case"),
        (LABEL | {"name": ""}, "lower-case"),
        (LABEL | {"name": "1st"}, "a letter first"),
        (LABEL | {"name": "a.b"}, "lower-case"),
        (LABEL | {"name": "label\n"}, "lower-case"),
        (LABEL | {"name": "l" * 65}, "1 to 64"),
        (LABEL | {"dtype": "complex64"}, "'complex64' is not one of bool, uint8"),
        (LABEL | {"dtype": None}, "a label has a dtype"),
        (LABEL | {"shape": (1,)}, "no shape"),
        (LABEL | {"shape": (None, None)}, "no shape"),
        (LABEL | {"kind": "scalar", "dtype": None}, "a single value has a dtype"),
        (LABEL | {"kind": "scalar", "shape": (None,)}, "a single value has a dtype and no shape"),
        (MASK | {"shape": (None, None, 1)}, r"a mask has a shape of \(height, width\)"),
        (MASK | {"dtype": "uint16"}, "a dtype of uint8, int32"),
        (MASK | {"dtype": None}, "a dtype of uint8, int32"),
        (MASK | {"codec": "raw"}, "only an image has a codec"),
        (MASK | {"ignore": 256}, "only a mask has a value to ignore, and one of its dtype"),
        (ARRAY | {"ignore": 255}, "only a mask has a value to ignore"),
        (BOXES | {"shape": (3, 4)}, r"boxes have a shape of \(null, 4\)"),
        (BOXES | {"dtype": "float64"}, "and dtype float32"),
        (KEYPOINTS | {"shape": (None, 17, 4)}, "2 or 3"),
        (KEYPOINTS | {"shape": (2, 17, 3)}, "null, points"),
        (KEYPOINTS | {"dtype": "int32"}, "dtype float32"),
        (KEYPOINTS | {"names": ("nose",)}, "1 names for 17 points"),
        ({"name": "masks", "kind": "polygons", "dtype": "float64"}, "neither dtype nor shape"),
        (IMAGE | {"shape": (4, 5)}, r"shape of \(height, width, channel\)"),
        (IMAGE | {"codec": None}, "an image has a codec"),
        (IMAGE | {"codec": "png"}, "an image has a codec of raw, original or mixed"),
        (MASK | {"codec": "mixed"}, "only an image has a codec"),
        (MASK | {"codec": "png", "mode": "gray"}, "only an image has a codec or a mode"),
        (IMAGE | {"codec": "mixed"}, "codec mixed of an image needs a mode of rgb"),
        (IMAGE | {"codec": "original"}, "mode of rgb, gray, rgba or unchanged, not None"),
        (IMAGE | {"codec": "original", "mode": "cmyk"}, "not 'cmyk'"),
        (IMAGE | {"shape": (-1, 5, 3)}, r"each in \[0, 2\*\*31\)"),
        (IMAGE | {"shape": (2**31, 5, 3)}, r"each in \[0, 2\*\*31\)"),
        (IMAGE | {"dtype": "uint8", "shape": (2**20, 2**20, 3)}, "more than 1 TiB"),
        (ARRAY | {"shape": (1,) * 9}, "at most 8 axes"),
        (ARRAY | {"shape": ()}, "an array has a dtype and a shape"),
        (ARRAY | {"dtype": None}, "an array has a dtype and a shape"),
        (ARRAY | {"codec": "raw"}, "only an image has a codec"),
        (ARRAY | {"mode": "rgb"}, "only an image has a codec or a mode"),
        ({"name": "key", "kind": "text", "dtype": "uint8"}, "neither dtype nor shape"),
        ({"name": "key", "kind": "json", "shape": (None,)}, "neither dtype nor shape"),
        ({"name": "key", "kind": "text", "names": ("a",)}, "only a label, a scalar, a mask or"),
        (ARRAY | {"names": ("a",)}, "only a label, a scalar, a mask or"),
        (LABEL | {"dtype": "float32", "names": ("a",)}, "integer"),
        (LABEL | {"dtype": "bool", "names": ("a", "b")}, "integer"),
    ],
)
def test_a_field_that_the_format_does_not_have_is_refused(settings, reason):
    """A crafted schema must fail here, by the field's name, and not somewhere in a reader."""
    with pytest.raises(ManifestError, match=reason) as caught:
        Field(**settings)
    assert str(caught.value).startswith(f"field {settings['name']!r}: ")


def test_a_schema_names_each_field_once_and_has_some():
    """Fields are asked for by name."""
    label = Field(**LABEL)
    with pytest.raises(ManifestError, match="field 'label' is listed twice"):
        Schema((label, Field(**ARRAY), label))
    with pytest.raises(ManifestError, match="1 to 1000 fields; found 0"):
        Schema(())
    many = [Field(name=f"f{at}", kind="text") for at in range(1001)]
    Schema(tuple(many[:1000]))
    with pytest.raises(ManifestError, match="1 to 1000 fields; found 1001"):
        Schema(tuple(many))


def test_labels_of_objects_are_no_single_value():
    """One number a sample is kept in the header and in the index; a list of them is not."""
    assert Field(**LABEL).is_scalar
    assert not Field(**LABEL | {"shape": (None,)}).is_scalar
    assert Field(**LABEL | {"shape": (None,)}).holds_elements


def test_fields_are_found_by_name():
    """The order of fields is the schema's; a name that it lacks is a KeyError."""
    assert VARIABLE.names == ("key", "image", "label", "boxes")
    assert VARIABLE["boxes"].shape == (None, 4)
    assert "boxes" in VARIABLE
    assert "box" not in VARIABLE
    with pytest.raises(KeyError, match="'box'"):
        VARIABLE["box"]
    assert all(schema["label"].is_scalar for schema in (NUMBERS, FIXED, VARIABLE, ORIGINAL))
    assert not ORIGINAL["image"].is_scalar


@pytest.mark.parametrize(
    "plain",
    [
        {"fields": [LABEL | {"compression": "zstd"}]},
        {"fields": [LABEL | {"kind": "video"}]},
        {"fields": [LABEL | {"kind": "image", "codec": "jxl", "shape": [1, 1, 3]}]},
        {"fields": [{"kind": "text"}]},
        {"fields": [], "order": 1},
        {"fields": "label"},
    ],
)
def test_a_field_that_means_more_than_we_know_is_refused(plain):
    """Ignoring part of a field's description would give wrong values, so it is not ignored."""
    with pytest.raises((msgspec.ValidationError, ManifestError)):
        msgspec.convert(plain, Schema)
