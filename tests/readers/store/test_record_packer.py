"""Records that are packed the short way are those that every value is looked at for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.store import record_packer
from readers.store.codecs import OriginalImage
from readers.store.errors import CodecError
from readers.store.record import RecordLayout, pack_record
from readers.store.record_packer import RecordPacker
from readers.store.schema import Field, Schema
from readers.store.shapes.polygons import Polygons

FIELDS = {
    "key": Field(name="key", kind="text"),
    "image": Field(name="image", kind="image", dtype="uint8", shape=(None, None, 3), codec="raw"),
    "small": Field(name="small", kind="image", dtype="uint8", shape=(2, 3, 1), codec="raw"),
    "any": Field(name="any", kind="image", shape=(None, None, None), codec="raw"),
    "file": Field(
        name="file", kind="image", dtype="uint8", shape=(None, None, 3), codec="mixed", mode="rgb"
    ),
    "label": Field(name="label", kind="label", dtype="int64", names=("a", "b")),
    "count": Field(name="count", kind="scalar", dtype="uint8"),
    "share": Field(name="share", kind="scalar", dtype="float32"),
    "flag": Field(name="flag", kind="scalar", dtype="bool"),
    "labels": Field(name="labels", kind="label", dtype="int64", shape=(None,), names=("a", "b")),
    "boxes": Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4)),
    "mask": Field(name="mask", kind="mask", dtype="int32", shape=(None, None)),
    "half": Field(name="half", kind="array", dtype="float16", shape=(2,)),
    "halves": Field(name="halves", kind="array", dtype="float16", shape=(None,)),
    "none": Field(name="none", kind="array", dtype="float32", shape=(0, 2)),
    "affine": Field(name="affine", kind="array", dtype="float32", shape=(2, 3)),
    "outlines": Field(name="outlines", kind="polygons"),
    "notes": Field(name="notes", kind="json"),
    "blob": Field(name="blob", kind="bytes"),
}
"""A field of every kind."""

PLAIN = {
    "key": b"a/b.png",
    "image": np.arange(24, dtype=np.uint8).reshape(2, 4, 3),
    "small": np.arange(6, dtype=np.uint8).reshape(2, 3, 1),
    "any": np.arange(8, dtype=np.uint16).reshape(2, 4, 1),
    "file": OriginalImage(b"file", (4, 6, 3), "uint8", 6),
    "label": 1,
    "count": 255,
    "share": 0.5,
    "flag": True,
    "labels": np.array([0, 1]),
    "boxes": np.ones((3, 4), np.float32),
    "mask": np.ones((3, 5), np.int32),
    "half": np.ones(2, np.float16),
    "halves": np.ones(3, np.float16),
    "none": np.zeros((0, 2), np.float32),
    "affine": np.ones((2, 3), np.float32),
    "outlines": Polygons([[np.ones((3, 2))]], 9, 9),
    "notes": {"a": [1, None]},
    "blob": b"\0\1",
}
"""What each is given by a build."""

ODD = [
    None,
    -1,
    2,
    256,
    2**70,
    1.5,
    True,
    "text",
    "\ud800",
    "\udcff",
    b"",
    np.int64(1),
    np.float32(0.25),
    [1, 0],
    [[1, 2], [3]],
    np.zeros((0, 0, 3), np.uint8),
    np.zeros((2, 4, 3), np.float32),
    np.zeros((2, 4), np.uint8),
    np.zeros((4, 2, 3), np.uint8).transpose(1, 0, 2),
    np.zeros((2, 3), ">f4"),
    np.zeros((3, 2), np.float32).T,
    np.zeros((0, 4), np.float32),
    np.array([0, 5]),
    np.zeros((2, 3, 1), np.uint8)[:, ::-1],
    np.ma.masked_array(np.zeros((2, 3), np.float32)),
]
"""What any of them may be given."""


def outcome(pack):
    try:
        return pack()
    except CodecError as error:
        return str(error)


@given(
    st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, unique=True),
    st.dictionaries(st.sampled_from(sorted(FIELDS)), st.integers(0, len(ODD)), max_size=2),
)
@settings(deadline=None, max_examples=400)
def test_any_sample_is_packed_the_same_or_refused_the_same(names, odd):
    """Of any fields, with values that fit and values that do not."""
    layout = RecordLayout.of(Schema(tuple(FIELDS[name] for name in names)))
    values = {name: PLAIN[name] for name in names}
    for name, at in odd.items():
        if name in values and at < len(ODD):
            values[name] = ODD[at]
        else:
            values.pop(name, None)
    expected = outcome(lambda: pack_record(layout, values))
    packer = RecordPacker(layout)
    assert outcome(lambda: packer.pack(values)) == expected
    assert outcome(lambda: packer.pack(values)) == expected


def test_every_odd_value_is_packed_the_same_in_every_field():
    """One at a time, so that none is missed by chance."""
    for name, field in FIELDS.items():
        fields = (field,) if name == "key" else (FIELDS["key"], field)
        layout = RecordLayout.of(Schema(fields))
        packer = RecordPacker(layout)
        for value in [PLAIN[name], *PLAIN.values(), *ODD]:
            values = {"key": b"k", name: value}
            expected = outcome(lambda values=values: pack_record(layout, values))  # noqa: B023
            assert outcome(lambda values=values: packer.pack(values)) == expected  # noqa: B023


@pytest.mark.parametrize("image", ["image", "small", "file"])
def test_what_builds_make_is_packed_the_short_way(image, monkeypatch):
    """Else nothing would be gained: a record of an image, a label and where it came from."""
    names = ("key", image, "label", "boxes", "affine")
    layout = RecordLayout.of(Schema(tuple(FIELDS[name] for name in names)))
    expected = pack_record(layout, PLAIN)
    monkeypatch.setattr(record_packer, "pack_record", None)
    assert RecordPacker(layout).pack(PLAIN) == expected
