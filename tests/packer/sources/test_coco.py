"""COCO files in all the forms that people have, and what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer.errors import SourceError
from packer.items.annotations import (
    Annotations,
    RawObject,
    join_objects,
    pack_annotations,
    pack_object,
    unpack_annotations,
)
from packer.items.raw_item import Scan
from packer.sources import coco
from packer.sources.source import SourceOptions
from readers.store.shapes.rle import encode_counts

CAT, DOG = {"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}


def draw(root: Path, *names: str) -> None:
    """A picture of 16 x 12 pixels at each path."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 12), "red").save(path)


def image(image_id: Any, file_name: str, **more: Any) -> dict[str, Any]:
    """An entry of `images`."""
    return {"id": image_id, "file_name": file_name, "width": 16, "height": 12, **more}


def box(annotation_id: Any, image_id: Any, category_id: Any = 1, **more: Any) -> dict[str, Any]:
    """An entry of `annotations`."""
    return {
        "id": annotation_id,
        "image_id": image_id,
        "category_id": category_id,
        "bbox": [2, 3, 4, 5],
        **more,
    }


def write(
    path: Path,
    images: Sequence[Any],
    annotations: Sequence[Any] | None,
    categories: Sequence[Any] | None = (CAT, DOG),
) -> Path:
    """A COCO file; a list that is None is left out."""
    lists = {"images": images, "annotations": annotations, "categories": categories}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: value for key, value in lists.items() if value is not None}))
    return path


def scan(raw: Path, **options: Any) -> Scan:
    return coco.scan(raw, SourceOptions(**options))


def keys(found: Scan) -> list[str]:
    return [item.key.decode() for item in found.items]


def annotated(found: Scan, key: str) -> Annotations:
    (item,) = (item for item in found.items if item.key == key.encode())
    return unpack_annotations(item.annotations)


def objects(found: Scan, key: str) -> tuple[RawObject, ...]:
    return annotated(found, key).objects


def reasons(found: Scan) -> dict[str, str]:
    """Reasons of rejected annotations, by place."""
    return {reject.path: reject.reason for reject in found.annotation_rejects}


def one(root: Path, *entries: dict[str, Any], **more: Any) -> Scan:
    """A scan of one picture with these annotations."""
    draw(root, "a.png")
    write(root / "ann.json", [image(1, "a.png", **more)], entries)
    return scan(root)


# Labels.


def test_labels_follow_the_order_of_category_ids(tmp_path):
    """Ids with holes in any order become labels without holes, and stay readable."""
    draw(tmp_path, "a.png")
    categories = [{"id": 90, "name": "cup"}, {"id": 3, "name": "car"}, {"id": 17, "name": "cat"}]
    entries = [box(5, 1, 90), box(6, 1, 3), box(7, 1, 17)]
    write(tmp_path / "ann.json", [image(1, "a.png")], entries, categories)
    found = scan(tmp_path)
    assert found.classes == ("car", "cat", "cup")
    assert [(o.place, o.label) for o in objects(found, "a.png")] == [
        ("annotation 5", 2),
        ("annotation 6", 0),
        ("annotation 7", 1),
    ]
    assert found.choices["category_ids"] == "3,17,90"
    assert next(f for f in found.fields if f.name == "labels").names == ("car", "cat", "cup")


def test_given_classes_decide_labels_and_reject_others(tmp_path):
    """The user's order holds, and a class that is not in it loses its annotations by name."""
    draw(tmp_path, "a.png")
    write(tmp_path / "ann.json", [image(1, "a.png")], [box(5, 1, 1), box(6, 1, 2)])
    found = scan(tmp_path, classes=("bird", "dog"))
    assert found.classes == ("bird", "dog")
    assert [o.label for o in objects(found, "a.png")] == [1]
    assert reasons(found) == {"ann.json, annotation 5": "class 'cat' is not one of --classes"}
    assert found.choices["category_ids"] == "-,2"


def test_an_unused_category_of_a_name_that_is_taken_is_left_out_and_said(tmp_path):
    """A group of the same name as a class would shift all labels by one."""
    draw(tmp_path, "a.png")
    categories = [{"id": 0, "name": "cat"}, CAT, DOG]
    write(tmp_path / "ann.json", [image(1, "a.png")], [box(5, 1, 1), box(6, 1, 2)], categories)
    found = scan(tmp_path)
    assert found.classes == ("cat", "dog")
    assert [o.label for o in objects(found, "a.png")] == [0, 1]
    assert any("category 0 is called 'cat' like category 1" in note for note in found.notes)


def test_two_used_categories_of_one_name_are_refused(tmp_path):
    """Two classes that are called alike cannot be told apart later."""
    draw(tmp_path, "a.png")
    categories = [{"id": 0, "name": "cat"}, CAT]
    write(tmp_path / "ann.json", [image(1, "a.png")], [box(5, 1, 0), box(6, 1, 1)], categories)
    with pytest.raises(SourceError, match=r"ann.json: categories 0 and 1 are both called 'cat'"):
        scan(tmp_path)


def test_files_are_joined_by_the_names_of_their_classes(tmp_path):
    """An id that means another class in another file changes no label."""
    draw(tmp_path, "train/a.png", "val/b.png")
    name = "_annotations.coco.json"
    write(tmp_path / "train" / name, [image(1, "a.png")], [box(1, 1, 1)], [CAT, DOG])
    swapped = [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}, {"id": 7, "name": "eel"}]
    write(tmp_path / "val" / name, [image(1, "b.png")], [box(1, 1, 1), box(2, 1, 7)], swapped)
    found = scan(tmp_path)
    assert found.classes == ("cat", "dog", "eel")
    assert [o.label for o in objects(found, "train/a.png")] == [0]
    assert [o.label for o in objects(found, "val/b.png")] == [1, 2]
    assert any("'cat' has category ids 1 and 2" in note for note in found.notes)
    assert found.splits == ("train", "val")
    assert [item.values["split"] for item in found.items] == [0, 1]


# Objects.


def test_boxes_areas_and_crowds_are_taken_as_written(tmp_path):
    """x, y, width, height become corners; what is missing is not made up; flags have many forms."""
    found = one(
        tmp_path,
        box(1, 1, bbox=[1.5, 2, 3, 4.25], area=7, iscrowd=1),
        box(2, 1, iscrowd=False),
        box(3, 1, iscrowd=None, area=None),
        box(4, 1, bbox=[5, 5, -2, 0]),
        box("x", "1", "1", bbox=["1", 2.0, 3, 4], iscrowd="1"),
    )
    assert [(o.place, o.box, o.area, o.iscrowd) for o in objects(found, "a.png")] == [
        ("annotation 1", (1.5, 2.0, 4.5, 6.25), 7.0, True),
        ("annotation 2", (2.0, 3.0, 6.0, 8.0), None, False),
        ("annotation 3", (2.0, 3.0, 6.0, 8.0), None, False),
        ("annotation 4", (5.0, 5.0, 3.0, 5.0), None, False),
        ("annotation x", (1.0, 2.0, 4.0, 6.0), None, True),
    ]
    assert annotated(found, "a.png").size == (16, 12)
    assert found.annotation_rejects == []
    assert [f.name for f in found.fields] == ["boxes", "labels", "area", "iscrowd", "image_id"]


def test_outlines_are_polygons_or_runs(tmp_path):
    """Polygons, plain counts and compressed counts come out as numbers; none is none."""
    runs = np.array([24, 12, 156], np.uint32)
    text = encode_counts(runs).decode()
    found = one(
        tmp_path,
        box(1, 1, segmentation=[[0, 0, 4, 0, 4, 4.5], [8, 8, 9, 8, 9, 9, 8, 9]]),
        box(2, 1, segmentation={"size": [12, 16], "counts": [24, 12, 156]}),
        box(3, 1, segmentation={"size": [12, 16], "counts": text}),
        box(4, 1, segmentation=[]),
        box(5, 1, segmentation=None),
        {"id": 6, "image_id": 1, "category_id": 1, "segmentation": [[0, 0, 4, 0, 4, 4]]},
    )
    outlined, plain, packed, empty, null, boxless = objects(found, "a.png")
    first, second = (np.frombuffer(polygon, "<f8").tolist() for polygon in outlined.polygons)
    assert first == [0, 0, 4, 0, 4, 4.5]
    assert second == [8, 8, 9, 8, 9, 9, 8, 9]
    assert np.frombuffer(plain.runs, "<u4").tolist() == [24, 12, 156]
    assert packed.runs == plain.runs
    assert (empty.polygons, empty.runs, null.polygons, null.runs) == ((), b"", (), b"")
    assert boxless.box is None
    assert len(boxless.polygons) == 1
    assert "masks" in [f.name for f in found.fields]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"category_id": 9}, "category 9 is not one of the file's: 1, 2"),
        ({"bbox": [1, 2, 3]}, "bbox has 3 numbers; expected 4"),
        ({"bbox": None}, "has neither bbox nor segmentation"),
        ({"bbox": ["nan", 1, 2, 3]}, "is not finite"),
        ({"bbox": {"x": 1}}, "bbox is {'x': 1}; expected 4 numbers: x, y, width, height"),
        ({"category_id": [1]}, "category_id is [1]; expected a number"),
        ({"bbox": None, "segmentation": [[1, 2, 3, 4]]}, "a polygon of 4 numbers"),
        ({"bbox": [1], "segmentation": 5}, "segmentation is 5; expected lists of numbers"),
    ],
)
def test_an_annotation_that_cannot_be_used_is_named_with_its_reason(tmp_path, change, reason):
    """It is rejected by its id; the others on the image stay."""
    found = one(tmp_path, box(17, 1) | change, box(18, 1))
    assert [o.place for o in objects(found, "a.png")] == ["annotation 18"]
    (reject,) = found.annotation_rejects
    assert (reject.key, reject.path) == (b"a.png", "ann.json, annotation 17")
    assert reason in reject.reason


def test_annotations_of_no_image_and_those_that_are_none_are_rejected(tmp_path):
    """A missing image or a stray value in the list costs itself alone, in the order of the file."""
    found = one(tmp_path, box(1, 1), box(2, 99), "stray", box(None, None))  # type: ignore[arg-type]
    assert [o.place for o in objects(found, "a.png")] == ["annotation 1"]
    assert reasons(found) == {
        "ann.json, annotation 2": "image_id 99 is none of the file's images",
        "ann.json, annotations[2]": "expected object, got str",
        "ann.json, annotations[3]": "image_id None is none of the file's images",
    }


def test_annotations_go_by_image_and_not_by_their_own_id(tmp_path):
    """An id that is listed twice overwrites nothing, and is counted in a note."""
    draw(tmp_path, "a.png", "b.png")
    entries = [box(7, 2, bbox=[0, 0, 1, 1]), box(7, 1, bbox=[0, 0, 2, 2])]
    write(tmp_path / "ann.json", [image(1, "a.png"), image(2, "b.png")], entries)
    found = scan(tmp_path)
    assert [o.box for o in objects(found, "a.png")] == [(0, 0, 2, 2)]
    assert [o.box for o in objects(found, "b.png")] == [(0, 0, 1, 1)]
    assert any("1 annotation with an id that stands before (such as 7)" in n for n in found.notes)


def test_images_read_in_several_parts_keep_the_order_of_the_file(tmp_path, monkeypatch):
    """Large files are gone through for some images at a time; nothing may move or go missing."""
    draw(tmp_path, "a.png", "b.png", "c.png")
    images = [image(1, "a.png"), image(2, "b.png"), image(3, "c.png")]
    entries = [box(n, n % 3 + 1, 9 if n in (4, 5) else 1) for n in range(12)]
    write(tmp_path / "ann.json", images, entries)
    whole = scan(tmp_path)
    monkeypatch.setattr("packer.sources.coco.annotations._ANNOTATIONS_AT_ONCE", 1)
    parts = scan(tmp_path)
    assert parts.items == whole.items
    assert [r.path[-1] for r in parts.annotation_rejects] == ["4", "5"]
    assert [o.place for o in objects(parts, "c.png")] == [
        "annotation 2",
        "annotation 8",
        "annotation 11",
    ]


def test_objects_that_are_joined_are_those_that_are_packed_together():
    """Both ways to make an item's annotations give the same bytes."""
    found = tuple(RawObject(place=f"annotation {n}", label=n, area=1.5) for n in range(3))
    for size in ((16, 12), None):
        joined = join_objects([pack_object(raw_object) for raw_object in found], size)
        assert joined == pack_annotations(Annotations(objects=found, size=size))


def test_attributes_are_kept_where_there_are_some(tmp_path):
    """What the file says beside the form is kept as it is, and gets a field only then."""
    found = one(
        tmp_path,
        box(1, 1, attributes={"occluded": True, "note": "x"}),
        box(2, 1),
        box(3, 1, attributes={"big": 2**70}),
    )
    kept = [{"occluded": True, "note": "x"}, {}, {}]
    assert [o.attributes for o in objects(found, "a.png")] == kept
    assert "attributes" in [f.name for f in found.fields]
    assert "attributes cannot be kept" in reasons(found)["ann.json, annotation 3, attributes"]


def test_images_without_objects_are_background(tmp_path):
    """They are packed with an empty list, which is not the same as none."""
    draw(tmp_path, "a.png", "b.png")
    write(tmp_path / "ann.json", [image(1, "a.png"), image(2, "b.png")], [box(1, 1)])
    found = scan(tmp_path)
    assert annotated(found, "b.png") == Annotations(objects=(), size=(16, 12))
    assert any("1 of 2 images packed without objects" in note for note in found.notes)


def test_no_annotation_at_all_is_an_error(tmp_path):
    """A file that only lists images would make a store of nothing but background."""
    draw(tmp_path, "a.png")
    write(tmp_path / "ann.json", [image(1, "a.png")], [])
    with pytest.raises(SourceError, match=r"no annotations in ann\.json.*--format flat"):
        scan(tmp_path)
    write(tmp_path / "ann.json", [image(1, "a.png")], None)
    with pytest.raises(SourceError, match=r"lists images but no annotations.*--format flat"):
        scan(tmp_path)


# Images.


def test_image_ids_are_numbers_or_else_text(tmp_path):
    """Ids written as text or with a fraction of 0 are numbers; a name makes all of them text."""
    draw(tmp_path, "a.png", "b.png")
    write(tmp_path / "ann.json", [image("7", "a.png"), image(8.0, "b.png")], [box(1, 7)])
    found = scan(tmp_path)
    assert [item.values["image_id"] for item in found.items] == [7, 8]
    assert found.fields[-1].dtype == "int64"
    assert len(objects(found, "a.png")) == 1
    write(tmp_path / "ann.json", [image(7, "a.png"), image("007", "b.png")], [box(1, "007")])
    found = scan(tmp_path)
    assert [item.values["image_id"] for item in found.items] == ["7", "007"]
    assert found.fields[-1].kind == "text"
    assert [len(objects(found, key)) for key in ("a.png", "b.png")] == [0, 1]


def test_entries_that_are_no_images_are_rejected(tmp_path):
    """Without an id or a name there is no picture to give; the place says which entry it is."""
    draw(tmp_path, "a.png")
    images = [image(1, "a.png"), {"id": 2}, {"file_name": "b.png"}, 5]
    write(tmp_path / "ann.json", images, [box(1, 1)])
    found = scan(tmp_path)
    assert keys(found) == ["a.png"]
    by_place = {reject.path: reject.reason for reject in found.rejects}
    assert list(by_place) == [f"ann.json, images[{n}]" for n in (1, 2, 3)]
    nameless, idless, none = by_place.values()
    assert nameless.startswith("image 2 has no file_name, and none of filename, path, coco_url")
    assert "It has 'id': add file_name, or rename" in nameless
    assert idless.startswith("has no id (it is None); expected the number that annotations name")
    assert none == "expected object, got int"


def test_a_missing_picture_is_rejected_with_its_annotations(tmp_path):
    """It is named with where it was looked for, and not found in another split by its name."""
    draw(tmp_path, "val/1.png", "train/2.png")
    images = [image(1, "1.png"), image(2, "2.png")]
    entries = [box(1, 1), box(2, 2), box(3, 2, bbox=[1])]
    write(tmp_path / "annotations/instances_val.json", images, entries)
    found = scan(tmp_path)
    assert keys(found) == ["val/1.png"]
    (reject,) = found.rejects
    assert (reject.key, reject.path) == (b"val/2.png", "annotations/instances_val.json, image 2")
    assert reject.reason == "2.png not found in val/; its 2 annotations go with it"
    assert found.annotation_rejects == []
    assert found.ignored.counts == {"not named by the annotations": 1}


def test_a_picture_that_cannot_be_read_is_rejected_once(tmp_path):
    """The walk has said why already; the image that names it is not counted again."""
    draw(tmp_path, "a.png")
    (tmp_path / "b.png").symlink_to("gone.png")
    write(tmp_path / "ann.json", [image(1, "a.png"), image(2, "b.png")], [box(1, 1)])
    found = scan(tmp_path)
    assert [(r.key, r.reason) for r in found.rejects] == [
        (b"b.png", "the link leads nowhere: gone.png")
    ]


def test_splits_are_there_only_when_every_file_is_of_one(tmp_path):
    """A sample of no split would have no value to store; a note says which file it was."""
    draw(tmp_path, "a.png", "b.png")
    write(tmp_path / "train.json", [image(1, "a.png")], [box(1, 1)])
    write(tmp_path / "more.json", [image(1, "b.png")], [box(1, 1)])
    found = scan(tmp_path)
    assert (found.splits, found.items[0].values) == ((), {"image_id": 1})
    assert any("no splits: more.json has the name of none" in note for note in found.notes)
    (tmp_path / "more.json").rename(tmp_path / "coco_valid.json")
    found = scan(tmp_path)
    assert found.splits == ("train", "valid")
    assert [item.values["split"] for item in found.items] == [0, 1]


def test_no_picture_at_all_is_an_error_that_says_where_it_looked(tmp_path):
    """Annotations alone make no store."""
    write(tmp_path / "annotations/instances_val2017.json", [image(1, "1.png")], [box(1, 1)])
    with pytest.raises(SourceError) as error:
        scan(tmp_path)
    for part in ("1 picture of annotations/instances_val2017.json", "1.png", "--root"):
        assert part in str(error.value)
    for folder in ("annotations/,", " val2017/", "images/val2017/", "annotations/images/"):
        assert folder in str(error.value)


def test_ids_and_pictures_that_stand_twice_are_rejected(tmp_path):
    """What annotations belong to is then unknown; an entry that is repeated whole is fine."""
    draw(tmp_path, "a.png", "b.png", "c.png", "d.png")
    images = [
        *(image(1, "a.png"), image(1, "b.png")),
        *(image(2, "c.png"), image(3, "./c.png")),
        *(image(4, "d.png"), image(4, "d.png")),
    ]
    write(tmp_path / "ann.json", images, [box(1, 4), box(2, 2)])
    found = scan(tmp_path)
    assert keys(found) == ["d.png"]
    reject_reasons = [(r.key.decode(), r.reason) for r in found.rejects]
    assert [key for key, _ in reject_reasons] == ["a.png", "b.png", "c.png", "c.png"]
    assert "several images have the id 1: a.png, b.png; expected" in reject_reasons[0][1]
    assert "ann.json, image 2 and ann.json, image 3" in reject_reasons[2][1]
    assert found.ignored.total == 0
    assert any("1 image listed again" in note for note in found.notes)


def test_annotations_of_two_files_are_never_added_up(tmp_path):
    """A picture that two files describe is rejected, and both are named."""
    draw(tmp_path, "a.png", "b.png", "c.png")
    write(tmp_path / "one.json", [image(1, "a.png"), image(2, "b.png")], [box(1, 1)])
    write(tmp_path / "two.json", [image(9, "a.png"), image(8, "c.png")], [box(1, 9)])
    found = scan(tmp_path)
    assert keys(found) == ["b.png", "c.png"]
    assert len(found.rejects) == 2
    assert "one.json, image 1 and two.json, image 9" in found.rejects[0].reason


def test_a_declared_size_that_is_none_is_left_open(tmp_path):
    """0 is what tools write that never opened the picture; runs say the size as well."""
    found = one(tmp_path, box(1, 1), width=0, height=None)
    assert annotated(found, "a.png").size is None
    assert any("1 image without a width and height" in note for note in found.notes)
    runs = {"size": [12, 16], "counts": [192]}
    found = one(tmp_path, box(1, 1, segmentation=runs), width=0)
    assert annotated(found, "a.png").size == (16, 12)


# Several files.


def people(root: Path) -> None:
    """Instances and keypoints of one split, as the COCO archive has them."""
    draw(root, "val2017/a.png", "val2017/b.png")
    person = {"id": 1, "name": "person"}
    posed = person | {"keypoints": ["nose", "tail"], "skeleton": [[1, 2]]}
    folder = root / "annotations"
    entries = [box(10, 1), box(11, 1), box(12, 2)]
    images = [image(1, "a.png"), image(2, "b.png")]
    write(folder / "instances_val2017.json", images, entries, [person])
    points = [
        box(11, 1, bbox=[0, 0, 9, 9], keypoints=[1, 2, 2, 0, 0, 0]),
        box(99, 1, keypoints=[0] * 6),
        box(12, 2, keypoints=[1, 2, 2]),
    ]
    write(folder / "person_keypoints_val2017.json", images, points, [posed])


def test_keypoints_are_added_to_instances_by_annotation_id(tmp_path):
    """Instances give the boxes; points without their annotation, or too few, are rejected."""
    people(tmp_path)
    found = scan(tmp_path)
    first, second = objects(found, "val2017/a.png")
    assert (first.keypoints, second.box) == (b"", (2, 3, 6, 8))
    assert np.frombuffer(second.keypoints, "<f4").tolist() == [1, 2, 2, 0, 0, 0]
    keypoints = next(f for f in found.fields if f.name == "keypoints")
    assert (keypoints.shape, keypoints.names) == ((None, 2, 3), ("nose", "tail"))
    assert found.choices["skeleton"] == "1-2"
    assert found.splits == ("val2017",)
    by_place = reasons(found)
    place = "annotations/person_keypoints_val2017.json, annotation "
    assert "file of instances does not have" in by_place[place + "99"]
    assert "keypoints has 3 numbers; expected 6" in by_place[place + "12"]
    assert found.ignored.total == 0


def test_a_file_that_is_given_is_read_alone(tmp_path):
    """Keypoints are then the objects themselves, and pictures lie beside the folder of files."""
    people(tmp_path)
    found = scan(tmp_path / "annotations/person_keypoints_val2017.json")
    assert keys(found) == ["val2017/a.png", "val2017/b.png"]
    assert [o.place for o in objects(found, "val2017/a.png")] == ["annotation 11", "annotation 99"]
    assert found.ignored.counts == {"JSON file that was not asked for": 1}


def test_captions_are_left_aside_or_read_when_they_are_meant(tmp_path):
    """Beside instances a note says how to have them; alone, or given, they are the sample."""
    people(tmp_path)
    captions = [
        {"id": 2, "image_id": 1, "caption": "a dog"},
        {"id": 1, "image_id": 1, "caption": "a pet"},
        {"id": 3, "image_id": 2, "caption": None},
    ]
    images = [image(1, "a.png"), image(2, "b.png")]
    path = write(tmp_path / "annotations/captions_val2017.json", images, captions, None)
    path.write_text(path.read_text().replace("{", '{"categories": [], ', 1))
    found = scan(tmp_path)
    assert any(
        "captions_val2017.json (captions)" in n and "give the path" in n for n in found.notes
    )
    assert found.ignored.counts == {"COCO file that was left aside": 1}
    found = scan(path)
    assert [item.values for item in found.items] == [
        {"split": 0, "image_id": 1, "captions": ["a dog", "a pet"]},
        {"split": 0, "image_id": 2, "captions": []},
    ]
    assert [item.annotations for item in found.items] == [b"", b""]
    assert [f.name for f in found.fields] == ["captions", "image_id", "split"]
    assert list(reasons(found).values()) == ["caption is None; expected text"]


def test_stuff_is_left_aside_beside_instances(tmp_path):
    """It has the form of instances of the same pictures, and would double them."""
    draw(tmp_path, "val2017/a.png")
    folder = tmp_path / "annotations"
    write(folder / "instances_val2017.json", [image(1, "a.png")], [box(1, 1)])
    write(folder / "stuff_val2017.json", [image(1, "a.png")], [box(1, 1)])
    found = scan(tmp_path)
    assert keys(found) == ["val2017/a.png"]
    assert any("stuff_val2017.json (stuff)" in note for note in found.notes)


def test_results_are_refused_by_name(tmp_path):
    """Predictions look like annotations, and are none."""
    draw(tmp_path, "a.png")
    results = [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}]
    (tmp_path / "results.json").write_text(json.dumps(results))
    with pytest.raises(SourceError, match=r"'results\.json': COCO results .*predictions"):
        scan(tmp_path)
    write(tmp_path / "ann.json", [image(1, "a.png")], [box(1, 1)])
    found = scan(tmp_path)
    assert list(found.ignored.examples.values()) == [["results.json"]]


def test_json_of_other_kinds_is_counted_and_broken_coco_stops(tmp_path):
    """A stray file is no reason to stop; half an annotation file is."""
    draw(tmp_path, "a.png")
    write(tmp_path / "ann.json", [image(1, "a.png")], [box(1, 1)])
    (tmp_path / "settings.json").write_text('{"a": 1}')
    (tmp_path / "comments.json").write_text('{"a": 1, // b\n}')
    assert scan(tmp_path).ignored.counts == {"JSON file that is not COCO annotations": 2}
    (tmp_path / "half.json").write_text('{"images": [{"id": 1}], "annotations": [{"id"')
    with pytest.raises(SourceError, match=r"half\.json: not JSON: .*copied in full"):
        scan(tmp_path)


def test_a_root_outside_of_the_raw_folder_is_where_pictures_are(tmp_path):
    """Keys and paths are then relative to it."""
    draw(tmp_path, "pictures/sub/a.png")
    path = write(tmp_path / "raw/ann.json", [image(1, "sub/a.png")], [box(1, 1)])
    for raw in (path, path.parent):
        found = scan(raw, root=tmp_path / "pictures")
        assert (keys(found), found.root) == (["sub/a.png"], tmp_path / "pictures")


# Panoptic.


def panoptic(root: Path, segments: Sequence[Any]) -> None:
    """One picture with a panoptic mask."""
    draw(root, "images/val/b.jpg", "annotations/panoptic_val/b.png")
    sky = {"id": 5, "name": "sky", "isthing": 0}
    entry = {"image_id": 4, "file_name": "b.png", "segments_info": segments}
    path = root / "annotations/panoptic_val.json"
    write(path, [image(4, "b.jpg"), image(5, "c.jpg")], [entry], [sky, CAT | {"isthing": 1}])


def test_panoptic_masks_come_with_their_segments(tmp_path):
    """The mask's file is the item's, and each segment an object that names its value in it."""
    panoptic(
        tmp_path,
        [
            {"id": 460551, "category_id": 5, "bbox": [0, 1, 2, 3], "area": 6, "iscrowd": 0},
            {"id": 7, "category_id": 1, "bbox": [2, 0, 1, 9], "area": 9, "iscrowd": 1},
            {"id": 8, "category_id": 3, "bbox": [2, 0, 1, 9]},
            {"id": 0, "category_id": 1, "bbox": [2, 0, 1, 9]},
        ],
    )
    found = scan(tmp_path)
    (item,) = found.items
    assert item.masks["panoptic"].path == b"annotations/panoptic_val/b.png"
    assert item.masks["panoptic"].byte_count > 0
    sky, cat = objects(found, "images/val/b.jpg")
    assert (sky.label, sky.box, sky.area, sky.iscrowd) == (1, (0, 1, 2, 4), 6.0, False)
    assert (sky.attributes, cat.attributes) == ({"segment_id": 460551}, {"segment_id": 7})
    assert (cat.label, cat.iscrowd) == (0, True)
    assert found.choices == {"category_ids": "1,5", "isthing": "1,0"}
    mask = next(f for f in found.fields if f.name == "panoptic")
    assert (mask.kind, mask.dtype) == ("mask", "int32")
    assert list(reasons(found)) == [
        "annotations/panoptic_val.json, annotations[0], segment 8",
        "annotations/panoptic_val.json, annotations[0], segment 0",
    ]
    assert found.ignored.total == 0
    (reject,) = found.rejects
    assert "c.jpg not found" in reject.reason


def test_an_image_without_its_panoptic_mask_is_rejected(tmp_path):
    """A mask cannot be made up, and the reason says where it was looked for."""
    panoptic(tmp_path, [])
    (tmp_path / "annotations/panoptic_val/b.png").unlink()
    found = scan(tmp_path)
    assert found.items == []
    assert found.rejects[0].path == "annotations/panoptic_val.json, image 4"
    assert "its panoptic mask: b.png not found; looked in annotations/panoptic_val/" in (
        found.rejects[0].reason
    )
