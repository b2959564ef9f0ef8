"""Reading COCO's JSON entry by entry, and what strict readers refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packer.errors import SourceError
from packer.sources.coco.document import CocoAnnotation, CocoFile, CocoImage, known_id, read_coco

ENTRY = {"id": 5, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}
TEXT = json.dumps({"images": [{"id": 1, "file_name": "ä.png"}], "annotations": [ENTRY]})


def read(folder: Path, data: bytes) -> CocoFile | None:
    (folder / "a.json").write_bytes(data)
    return read_coco(folder, b"a.json")


def decoded(found: CocoFile) -> tuple[list[CocoImage | None], list[CocoAnnotation | None]]:
    images = [entry for entry, _ in found.entries(found.images, CocoImage)]
    return images, [entry for entry, _ in found.entries(found.annotations, CocoAnnotation)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_every_encoding_of_json_reads_alike(tmp_path, encoding):
    """A byte order mark or two bytes a character change nothing in the entries."""
    found = read(tmp_path, TEXT.encode(encoding))
    assert found is not None
    images, annotations = decoded(found)
    assert images == [CocoImage(id=1, file_name="ä.png")]
    assert annotations == [CocoAnnotation(id=5, image_id=1, category_id=1, bbox=[1.0, 2, 3, 4])]
    assert (found.note is not None) == (encoding == "utf-16")


def test_nan_is_read_by_pythons_json_and_said(tmp_path):
    """It is not JSON, but common: the other entries are as good as ever."""
    found = read(tmp_path, TEXT.replace('"id": 5', '"area": NaN').encode())
    assert found is not None
    assert found.note is not None
    assert "a.json is no strict JSON" in found.note
    _, (annotation,) = decoded(found)
    assert annotation is not None
    assert annotation.bbox == [1, 2, 3, 4]
    assert annotation.area != annotation.area


def test_a_broken_entry_costs_itself_alone(tmp_path):
    """The reason says what was found, what was expected and where; others are decoded."""
    entries = [{"bbox": 5}, ENTRY, {"id": True}, 7]
    found = read(tmp_path, json.dumps({"images": [], "annotations": entries}).encode())
    assert found is not None
    results = list(found.entries(found.annotations, CocoAnnotation))
    assert [problem for _, problem in results] == [
        "expected array | null, got int at bbox",
        "",
        "expected int | float | str | null, got bool at id",
        "expected object, got int",
    ]
    assert results[1][0] is not None


def test_half_an_emoji_is_no_reason_to_lose_an_entry(tmp_path):
    """Text that a tool has cut in a surrogate pair is decoded, as Python's json does."""
    found = read(tmp_path, b'{"images": [{"id": 1, "file_name": "\\ud83d.png"}], "categories": []}')
    assert found is not None
    assert found.note is not None
    ((image, problem),) = found.entries(found.images, CocoImage)
    assert problem == ""
    assert image is not None
    assert image.file_name == "\ud83d.png"


def test_text_that_is_not_utf8_costs_its_entry(tmp_path):
    """What the name was cannot be told."""
    data = b'{"images": [{"id": 1, "file_name": "\xff"}, {"id": 2}], "categories": []}'
    found = read(tmp_path, data)
    assert found is not None
    (first, problem), (second, _) = found.entries(found.images, CocoImage)
    assert (first, second) == (None, CocoImage(id=2))
    assert problem.startswith("cannot be decoded: ")  # In the words of msgspec's version.
    assert "utf-8" in problem.lower()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", r"a\.json: the file is empty"),
        (b'{"images": [', r"a\.json: not JSON"),
        (b'{"images": {}, "annotations": []}', r"a\.json: expected array \| null, got object at"),
        (b'{"annotations": [NaN], "images": {}}', r"'images' is not a list but dict"),
        (b'{"images": ' + b"[" * 200_000, r"a\.json: not JSON"),
        (b"\xff\xfe\x00", r"a\.json: not JSON"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(tmp_path, data, reason):
    """Whatever a stranger's file holds, the answer is one message."""
    with pytest.raises(SourceError, match=reason):
        read(tmp_path, data)


@pytest.mark.parametrize(
    ("lists", "kind"),
    [
        ({"images": [], "annotations": [ENTRY]}, "instances"),
        ({"images": [], "annotations": [ENTRY | {"keypoints": []}]}, "keypoints"),
        ({"images": [], "annotations": [{"image_id": 1, "caption": "x"}]}, "captions"),
        ({"images": [], "annotations": [{"image_id": 1, "segments_info": []}]}, "panoptic"),
        ({"images": [], "categories": []}, "images"),
        ([{"image_id": 1, "category_id": 1, "score": 1}], "results"),
        ({"images": []}, None),
        ({"shapes": [], "annotations": []}, None),
        ([{"image": "a.png", "annotations": []}], None),
        ([], None),
    ],
)
def test_what_a_file_holds_is_told_by_its_keys(tmp_path, lists, kind):
    """The name of a file may be anything."""
    found = read(tmp_path, json.dumps(lists).encode())
    assert (found.kind if found is not None else None) == kind


@pytest.mark.parametrize(
    ("written", "known"),
    [
        (7, 7),
        (7.0, 7),
        (7.5, None),
        ("7", 7),
        ("-7", -7),
        ("007", "007"),
        ("7 ", "7 "),
        ("\u0667", "\u0667"),
        ("9" * 30, "9" * 30),
        (float("inf"), None),
        (None, None),
    ],
)
def test_an_id_is_a_number_where_it_is_one(written, known):
    """Text and numbers meet, and names of digits that mean something else stay apart."""
    assert known_id(written) == known
