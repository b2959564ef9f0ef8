"""FFCV's .beton files."""

from __future__ import annotations

import os
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.building.build import build
from packer.errors import SourceError
from packer.items.raw_item import Scan
from packer.raw.containers import Containers
from packer.sources import SourceOptions, scan_source
from readers import LMDBDataset
from tests.packer.foreign_stores import KINDS, drawn, encoded, write_beton

AUTO = SourceOptions()
FIELDS = {"image": "image", "label": "int"}


def contents(found: Scan) -> list[Any]:
    with closing(Containers(os.fsencode(found.root))) as containers:
        return [containers.read(item) for item in found.items]


def samples_of(count: int) -> list[tuple[Any, ...]]:
    return [(pixels, n % 3) for n, pixels in enumerate(drawn(count, 5, 7))]


def test_images_as_pixels_and_as_jpeg_with_their_labels(tmp_path):
    """A mixture, as FFCV's smart mode writes it; the name of a file speaks of its split."""
    samples = samples_of(4)
    write_beton(tmp_path / "train.beton", FIELDS, samples, {1, 3})
    write_beton(tmp_path / "val.beton", FIELDS, samples[:1])
    found = scan_source(tmp_path, AUTO)
    assert (found.format, found.rejects, found.splits) == ("ffcv", [], ("train", "val"))
    assert [item.key.decode() for item in found.items] == [
        *(f"train/0000{n}" for n in range(4)),
        "val/00000",
    ]
    assert [item.values["label"] for item in found.items] == [0, 1, 2, 0, 0]
    read = contents(found)
    for number in (0, 2):
        assert np.array_equal(read[number], samples[number][0])
    for number in (1, 3):
        assert read[number] == encoded(samples[number][0], "JPEG")
    out = tmp_path / "out.lmdb"
    build(tmp_path / "train.beton", out, worker_count=1)
    with LMDBDataset(out, image_as="numpy") as dataset:
        assert np.array_equal(dataset[0]["image"], samples[0][0])
        assert [int(sample["label"]) for sample in dataset] == [0, 1, 2, 0]


def test_the_other_fields_of_a_sample_are_kept_or_named(tmp_path):
    """Numbers and JSON by their names; arrays and bytes that are no images in a note."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    fields = {"image": "image", "label": "int", "Score": "float", "meta": "json", "area": "int"}
    fields |= {"embedding": "array", "blob": "bytes"}
    samples = [(p, 1, 0.5, {"é": [n]}, -n, array, b"x") for n, p in enumerate(drawn(2))]
    found = scan_source(write_beton(tmp_path / "a.beton", fields, samples), AUTO)
    assert [item.values for item in found.items] == [
        {"label": 1, "score": 0.5, "meta": {"é": [n]}, "area_scalar": -n} for n in range(2)
    ]
    assert {field.name: field.kind for field in found.fields}["score"] == "scalar"
    assert "columns not read: 'embedding', 'blob'" in found.notes
    assert all(map(np.array_equal, contents(found), drawn(2)))


@pytest.mark.parametrize("kind", ["rows", "planes", "bytes"])
def test_arrays_and_bytes_may_be_the_images(kind, tmp_path):
    """Where there is no field of images: an array of uint8, or bytes that begin like a picture."""
    pixels = drawn(2)
    values = {
        "rows": pixels,
        "planes": [np.ascontiguousarray(p.transpose(2, 0, 1)) for p in pixels],
        "bytes": [encoded(p) for p in pixels],
    }[kind]
    fields = {"x": "bytes" if kind == "bytes" else "array", "y": "int"}
    samples = [(value, n) for n, value in enumerate(values)]
    found = scan_source(write_beton(tmp_path / "a.beton", fields, samples), AUTO)
    assert [item.values for item in found.items] == [{"label": 0}, {"label": 1}]
    expected = values if kind == "bytes" else pixels
    assert all(map(np.array_equal, contents(found), expected))


def test_files_without_images_or_of_different_fields_are_refused(tmp_path):
    """With the fields that there are."""
    write_beton(tmp_path / "a.beton", {"n": "int"}, [(1,)])
    with pytest.raises(SourceError, match=r"no field is an image; its fields are 'n \(int\)'"):
        scan_source(tmp_path, AUTO)
    write_beton(tmp_path / "a.beton", FIELDS, samples_of(1))
    write_beton(tmp_path / "b.beton", {"image": "image"}, [samples_of(1)[0][:1]])
    with pytest.raises(SourceError, match=r"b\.beton: other fields than a\.beton"):
        scan_source(tmp_path, AUTO)


def reason_of(path: Path) -> str:
    found = scan_source(path, AUTO)
    assert found.items == []
    return found.rejects[0].reason


def test_a_file_that_is_not_whole_or_unknown_is_rejected(tmp_path):
    """Cut short, never finished, of another version, or with fields of a program's own."""
    path = write_beton(tmp_path / "a.beton", FIELDS, samples_of(3))
    whole = path.read_bytes()
    for kept in (10, 700, 2200, len(whole) // 2):
        path.write_bytes(whole[:kept])
        assert "cut short" in reason_of(path) or "too few" in reason_of(path)
    path.write_bytes(whole[:16] + bytes(8) + whole[24:])
    assert "its writing did not end" in reason_of(path)
    path.write_bytes(b"\x01\0" + whole[2:])
    assert "version 1 with 2 fields; expected version 2" in reason_of(path)
    path.write_bytes(whole[:8] + struct.pack("<Q", 2**50) + whole[16:])
    assert "do not fit" in reason_of(path)
    write_beton(path, {**FIELDS, "mine": "own"}, [(*s, b"") for s in samples_of(1)])
    assert "'mine' is of kind 255" in reason_of(path)
    assert KINDS["own"] == 255


def test_a_record_that_points_nowhere_rejects_its_sample_alone(tmp_path):
    """The sizes of images are in the allocation table; what it does not have is not read."""
    path = write_beton(tmp_path / "a.beton", FIELDS, samples_of(3))
    data = bytearray(path.read_bytes())
    record = 24 + 2 * 1041 + 24  # The second: mode, width, height, place; then the label at 16.
    data[record + 5] ^= 0xFF
    path.write_bytes(data)
    found = scan_source(path, AUTO)
    assert [item.key for item in found.items] == [b"a/00000", b"a/00002"]
    assert "no image at byte" in found.rejects[0].reason
    assert found.rejects[0].path == "a.beton, a/00001"
