"""Folders of COCO files as they are published and exported: which are read, and what is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from packer.building.build import build
from packer.errors import SourceError
from packer.recipe import Recipe
from packer.sources.detection.detect import detect
from packer.sources.source import SourceOptions
from tests.packer.sources.test_coco import (
    CAT,
    annotated,
    box,
    draw,
    image,
    keys,
    objects,
    reasons,
    scan,
    write,
)

SQUARE = [2, 3, 6, 3, 6, 8, 2, 8]
POSED = CAT | {"keypoints": ["nose", "tail"], "skeleton": [[1, 2]]}


def images(count: int = 3, first: int = 0) -> list[dict[str, Any]]:
    """Entries of `images` with the names 0.png, 1.png, ..."""
    return [image(n, f"{n}.png") for n in range(first, first + count)]


def boxes(count: int = 3, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    """One box on each of the images."""
    return [box(n, n, **more) for n in range(first, first + count)]


def captions(count: int = 3, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": n, "image_id": n, "caption": f"cat {n}", **more} for n in range(first, first + count)
    ]


def published(root: Path) -> None:
    """What the COCO archives unpack to, of every kind, with a model's answers beside them."""
    for split, first in (("train2017", 0), ("val2017", 10)):
        listed = images(3, first)
        draw(root, *(f"{split}/{entry['file_name']}" for entry in listed))
        folder = root / "annotations"
        found = boxes(3, first, segmentation=[SQUARE])
        write(folder / f"instances_{split}.json", listed, found, [CAT])
        posed = [entry | {"keypoints": [1, 2, 2, 0, 0, 0]} for entry in found]
        write(folder / f"person_keypoints_{split}.json", listed, posed, [POSED])
        write(folder / f"captions_{split}.json", listed, captions(3, first), None)
        write(folder / f"stuff_{split}.json", listed, found, [CAT])
        entries = [
            {"image_id": n, "file_name": f"{n}.png", "segments_info": []}
            for n in range(first, first + 3)
        ]
        write(folder / f"panoptic_{split}.json", listed, entries, [CAT | {"isthing": 1}])
        write(folder / f"image_info_{split}.json", listed, [])
    write(folder / "image_info_test2017.json", images(1, 90), None)
    (root / "results.json").write_text(json.dumps([entry | {"score": 0.5} for entry in boxes()]))


def test_the_published_folder_is_read_as_it_is(tmp_path):
    """Instances and keypoints of both splits are stored, and all else is named."""
    published(tmp_path / "raw")
    assert detect(tmp_path / "raw", SourceOptions()).format == "coco"
    report = build(tmp_path / "raw", tmp_path / "s.lmdb", Recipe())
    assert (report.sample_count, report.reject_count) == (6, 0)
    assert report.splits == {"train2017": 3, "val2017": 3}
    assert report.annotations == {"found": 6, "stored": 6, "rejected": 0}
    assert {"boxes", "masks", "keypoints"} <= set(report.fields)
    (note,) = (note for note in report.notes if note.startswith("read as instances; left aside"))
    for text in (
        "captions_train2017.json (captions)",
        "stuff_val2017.json (stuff)",
        "panoptic_val2017.json (panoptic)",
        "image_info_test2017.json (images without annotations)",
        "results.json (results: predictions)",
    ):
        assert text in note
    assert "give the path of the file itself" in note


LABELS = [{"id": n, "image_id": n, "category_id": 1} for n in range(3)]
OTHERS = {
    "captions with categories": ("captions_train", captions(category_id=1), "captions"),
    "captions, badly named": ("text_train", captions(category_id=1), "captions"),
    "no annotations": ("image_info_train", [], "images without annotations"),
    "no annotations, badly named": ("pictures", [], "images without annotations"),
    "no list of annotations": ("image_info_train", None, "images without annotations"),
    "labels of pictures": ("labels_train", LABELS, "labels of whole pictures"),
    "labels with a box": ("labels_train", boxes(), "instances"),
    "stuff": ("stuff_train", boxes(), "stuff"),
    "the same file": ("instances_train (copy)", boxes(segmentation=[SQUARE]), "instances"),
}


@pytest.mark.parametrize("kind", list(OTHERS))
def test_files_of_other_kinds_beside_instances_are_left_aside_and_named(tmp_path, kind):
    """None of them makes the pictures of the instances into rejects."""
    name, entries, shown = OTHERS[kind]
    draw(tmp_path, *(f"images/train/{n}.png" for n in range(3)))
    folder = tmp_path / "annotations"
    write(folder / "instances_train.json", images(), boxes(segmentation=[SQUARE]))
    write(folder / f"{name}.json", images(), entries)
    found = scan(tmp_path)
    assert keys(found) == [f"images/train/{n}.png" for n in range(3)]
    assert found.rejects == found.annotation_rejects == []
    assert [len(objects(found, key)) for key in keys(found)] == [1, 1, 1]
    assert all(thing.polygons for key in keys(found) for thing in objects(found, key))
    assert found.ignored.counts == {"COCO file that was left aside": 1}
    (note,) = (note for note in found.notes if "left aside" in note)
    assert f"annotations/{name}.json ({shown})" in note


def test_images_without_annotations_are_background_where_no_file_has_theirs(tmp_path):
    """A split whose list of annotations is empty is a split like the others."""
    draw(tmp_path, "train/0.png", "test/10.png")
    write(tmp_path / "train/_annotations.coco.json", images(1), boxes(1))
    write(tmp_path / "test/_annotations.coco.json", images(1, 10), [])
    found = scan(tmp_path)
    assert keys(found) == ["test/10.png", "train/0.png"]
    assert annotated(found, "test/10.png").objects == ()


def test_two_annotations_of_the_same_pictures_are_refused_with_what_to_give(tmp_path):
    """Neither is better than the other, and one error says so, not one for each picture."""
    draw(tmp_path, *(f"{n}.png" for n in range(3)))
    write(tmp_path / "old.json", images(), boxes())
    write(tmp_path / "new.json", images(), boxes(bbox=[0, 0, 2, 2]))
    with pytest.raises(SourceError) as error:
        scan(tmp_path)
    text = "new.json and old.json both have annotations of 3 pictures, such as 0.png. Expected one"
    assert text in str(error.value)
    assert "Give the path of the file that you want instead of the folder" in str(error.value)
    assert len(scan(tmp_path / "new.json").items) == 3


def test_a_file_of_all_splits_beside_them_is_refused_by_name(tmp_path):
    """Exports often hold both, and each picture would be there twice."""
    draw(tmp_path, "train/0.png", "val/1.png")
    folder = tmp_path / "annotations"
    write(folder / "instances_train.json", images(1), boxes(1))
    write(folder / "instances_val.json", images(1, 1), boxes(1, 1))
    everything = [image(n, f"{split}/{n}.png") for n, split in enumerate(("train", "val"))]
    write(folder / "all.json", everything, boxes(2))
    with pytest.raises(SourceError) as error:
        scan(tmp_path)
    for name in ("instances_train", "instances_val"):
        assert f"annotations/all.json and annotations/{name}.json both have" in str(error.value)


def test_a_file_of_labels_alone_says_what_to_write_instead(tmp_path):
    """Each annotation would be a reject of its own."""
    draw(tmp_path, *(f"{n}.png" for n in range(3)))
    write(tmp_path / "labels.json", images(), LABELS)
    with pytest.raises(SourceError, match=r"the category of a whole picture.*Write a CSV"):
        scan(tmp_path)


def test_a_split_that_was_not_fetched_is_named_with_the_way_around_it(tmp_path):
    """The archive of annotations is of all splits; often one has the pictures of val alone."""
    published(tmp_path)
    shutil.rmtree(tmp_path / "train2017")
    found = scan(tmp_path)
    assert keys(found) == [f"val2017/{n}.png" for n in (10, 11, 12)]
    assert len(found.rejects) == 3
    assert (
        "none of the 3 pictures of annotations/instances_train2017.json is there. Put them there, "
        "or say with --root where they lie; to take what is there, give --split val2017"
    ) in found.rejects[0].reason


# Names and ids of images.


def lvis(root: Path, folders: tuple[str, ...] = ("val2017/", "train2017/")) -> None:
    """LVIS: addresses for names, of pictures of two folders, and what was not looked for."""
    listed = []
    for n, split in enumerate(("val2017", "train2017")):
        draw(root, f"{folders[n]}00{n}.png")
        address = f"http://images.example.org/{split}/00{n}.png"
        entry = image(n, "") | {"coco_url": address, "neg_category_ids": [1]}
        del entry["file_name"]
        listed.append(entry)
    write(root / "annotations/lvis_v1_val.json", listed, boxes(2, segmentation=[SQUARE]), [CAT])


@pytest.mark.parametrize("folders", [("val2017/", "train2017/"), ("x/", "x/"), ("", "")])
def test_pictures_are_found_by_their_address_where_there_is_no_name(tmp_path, folders):
    """LVIS names pictures of train2017 and val2017 in one file, by coco_url alone."""
    lvis(tmp_path, folders)
    found = scan(tmp_path)
    assert keys(found) == sorted(f"{folder}00{n}.png" for n, folder in enumerate(folders))
    assert found.rejects == []
    assert all(objects(found, key)[0].polygons for key in keys(found))
    assert any("2 images without file_name; named by 'coco_url'" in n for n in found.notes)
    assert any("neg_category_ids of its images are not stored" in n for n in found.notes)


def test_lvis_is_recognised_when_its_list_of_images_fills_the_head(tmp_path):
    """Of a large file only the keys of the first images are seen."""
    lvis(tmp_path)
    path = tmp_path / "annotations/lvis_v1_val.json"
    document = json.loads(path.read_text())
    extra = [entry | {"id": 100 + n} for n, entry in enumerate(document["images"] * 500)]
    pad = {"categories": [CAT | {"def": "x" * 100_000}]}
    path.write_text(json.dumps({"images": document["images"] + extra, "annotations": [], **pad}))
    assert detect(tmp_path, SourceOptions()).format == "coco"


@pytest.mark.parametrize("key", ["filename", "path", "url"])
def test_other_keys_that_name_the_picture_are_taken_and_said(tmp_path, key):
    """What can be read is read."""
    draw(tmp_path, "images/a.png")
    write(tmp_path / "ann.json", [{"id": 1, key: "/home/me/images/a.png"}], [box(1, 1)])
    found = scan(tmp_path)
    assert keys(found) == ["images/a.png"]
    assert any(f"1 image without file_name; named by '{key}'" in note for note in found.notes)


def test_the_address_counts_where_no_file_name_is_there(tmp_path):
    """Pictures that were renamed since are found by the name that they have now."""
    draw(tmp_path, "val2017/0001.png", "val2017/0002.png")
    listed = [
        image(n, f"COCO_val2014_000{n}.png", coco_url=f"http://x.org/val2017/000{n}.png")
        for n in (1, 2, 3)
    ]
    write(tmp_path / "annotations/lvis_v0.5_val.json", listed, boxes(2, 1))
    found = scan(tmp_path)
    assert keys(found) == ["val2017/0001.png", "val2017/0002.png"]
    assert any("no file_name is there; found by the other name of each" in n for n in found.notes)
    (reject,) = found.rejects
    assert "val2017/0003.png not found" in reject.reason


def test_captions_with_category_ids_are_captions_when_they_are_given(tmp_path):
    """A key that says nothing does not make objects of them."""
    draw(tmp_path, *(f"train/{n}.png" for n in range(3)))
    path = write(tmp_path / "annotations/captions_train.json", images(), captions(category_id=1))
    found = scan(path)
    assert [item.values["captions"] for item in found.items] == [[f"cat {n}"] for n in range(3)]
    assert found.annotation_rejects == []


def test_images_without_any_name_are_an_error_of_their_own(tmp_path):
    """Nothing was looked for, so no folder is to blame."""
    draw(tmp_path, "a.png")
    entries = [{"id": 0, "width": 16, "flickr_url": "http://x.org/z.jpg"}, {"id": 1}]
    write(tmp_path / "ann.json", entries, [box(1, 0)])
    with pytest.raises(SourceError) as error:
        scan(tmp_path)
    text = str(error.value)
    assert "none of the 2 images of ann.json can be used. ann.json, images[0]: image 0 has" in text
    assert "has no file_name" in text
    assert "It has 'id', 'width', 'flickr_url'" in text
    assert "--root" not in text
    write(tmp_path / "ann.json", [], [box(1, 0)])
    with pytest.raises(SourceError, match=r"the list images of ann\.json is empty"):
        scan(tmp_path)


def test_a_repeated_id_names_the_files_that_have_it(tmp_path):
    """The id alone does not say which entries are to be corrected."""
    draw(tmp_path, "0.png", "1.png", "2.png")
    listed = [image(0, "0.png"), image(0, "1.png"), image(2, "2.png")]
    write(tmp_path / "ann.json", listed, [box(0, 0), box(1, 2)])
    found = scan(tmp_path)
    assert keys(found) == ["2.png"]
    assert [r.key for r in found.rejects] == [b"0.png", b"1.png"]
    for reject in found.rejects:
        assert "several images have the id 0: 0.png, 1.png; expected one" in reject.reason
    assert found.rejects[1].reason.endswith("its 1 annotation goes with it")


@pytest.mark.parametrize(("of_image", "of_box"), [(2, "2"), ("2", 2)])
def test_a_text_id_that_spells_a_number_is_taken_with_a_note(tmp_path, of_image, of_box):
    """It is the same image for whoever wrote it, but other tools will not find it."""
    draw(tmp_path, "a.png")
    write(tmp_path / "ann.json", [image(of_image, "a.png")], [box(7, of_box), box(8, of_box)])
    found = scan(tmp_path)
    assert len(objects(found, "a.png")) == 2
    assert reasons(found) == {}
    (note,) = (note for note in found.notes if "image_id" in note)
    assert "image_id of 2 annotations is text" in note
    assert "such as ann.json, annotation 7" in note


@pytest.mark.parametrize("image_id", ["2", "street", "007", 2, 2.0])
def test_ids_of_one_kind_need_no_note(tmp_path, image_id):
    """Text everywhere, or numbers everywhere, is as it should be."""
    draw(tmp_path, "a.png")
    write(tmp_path / "ann.json", [image(image_id, "a.png")], [box(7, image_id)])
    assert not any("image_id" in note for note in scan(tmp_path).notes)
