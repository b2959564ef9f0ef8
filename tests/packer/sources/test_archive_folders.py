"""Folders inside of archives are read by the rules of folders on a disk."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from packer import build
from packer.errors import SourceError
from packer.items.raw_item import Scan
from packer.sources import SourceOptions, scan_source
from packer.sources.detection.detect import examine
from readers import LMDBDataset
from tests.command import run_packer

AUTO = SourceOptions()
KINDS = ["zip", "tar", "tgz"]


def photo(seed: int = 0, kind: str = "PNG") -> bytes:
    data = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(data, kind)
    return data.getvalue()


def mask() -> bytes:
    data = io.BytesIO()
    Image.fromarray(np.eye(8, dtype=np.uint8)).save(data, "PNG")
    return data.getvalue()


def pictures(*names: str) -> dict[str, bytes]:
    return {name: photo(n) for n, name in enumerate(names)}


def spread(*folders: str, count: int = 4) -> dict[str, bytes]:
    return pictures(*(f"{folder}/{n:04d}.png" for folder in folders for n in range(count)))


def put(path: Path, members: Mapping[str, bytes]) -> Path:
    """Write members as a folder or an archive, by the path's ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    elif path.suffix in (".tar", ".tgz"):
        with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as tar:
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    else:
        for name, data in members.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
    return path


def told(scan: Scan, prefix: str = "") -> dict[str, tuple[str, str]]:
    """(class, split) of each picture, by its path in the archive or folder."""
    return {
        item.key.decode().removeprefix(prefix): (
            scan.classes[item.values["label"]] if "label" in item.values else "",
            scan.splits[item.values["split"]] if "split" in item.values else "",
        )
        for item in scan.items
    }


def error_of(raw: Path) -> str:
    with pytest.raises(SourceError) as raised:
        scan_source(raw, AUTO)
    return str(raised.value)


# Classes and splits.

LAYOUTS = {
    "classes": spread("cat", "dog"),
    "classes in splits": spread("train/cat", "train/dog", "val/cat", "val/dog"),
    "a class that a split lacks": spread("train/cat", "train/dog", "val/dog"),
    "one class below splits": spread("train/cat", "val/cat"),
    "images in each split": spread("train/images", "val/images"),
    "images in one split": spread("train/cat", "train/dog", "val/images"),
    "images in each class": spread("train/cat/images", "train/dog/images", "test/images"),
    "images beside a class": spread("images", count=3) | spread("cat", count=9),
    "classes below images": spread("train/images/cat", "train/images/dog", "val/images/cat"),
    "parts of a whole": spread("part_1", "part_2"),
    "parts of a whole with classes": pictures(
        *(f"part_{k}/{c}/{k}{n}.png" for k in (1, 2) for c in ("cat", "dog") for n in range(3))
    ),
    "pictures beside classes": spread("cat", "dog") | pictures("preview.png"),
    "a picture beside splits": spread("train/cat", "train/dog", "val/cat") | pictures("0.png"),
    "splits without classes": spread("train", "val"),
    "a class called test": spread("test", "cat", "dog"),
    "deep": spread("cat/a/b", "dog/c"),
    "sequences in splits": spread(
        "train/MOT17-02/img1", "train/MOT17-04/img1", "test/MOT17-01/img1"
    ),
    "sequences": spread("MOT17-02/img1", "MOT17-04/img1"),
    "one of them is not a sequence": spread("MOT17-02/img1", "MOT17-04/img1", "MOT17-05/other"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("members", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_an_archive_has_the_classes_and_splits_of_its_folder(members, kind, tmp_path):
    """Whether a tree is packed into an archive or not, its pictures have the same labels."""
    folder = scan_source(put(tmp_path / "folder", members), AUTO)
    archive = scan_source(put(tmp_path / "raw" / f"a.{kind}", members).parent, AUTO)
    assert told(archive, "a/") == told(folder)
    assert archive.classes == folder.classes
    assert set(archive.splits) == set(folder.splits)
    assert sum(archive.ignored.counts.values()) == sum(folder.ignored.counts.values())
    assert len(archive.items) + archive.ignored.total == len(members)


@pytest.mark.parametrize("place", ["", "train/"])
@pytest.mark.parametrize("count", [1, 3])
def test_sequences_of_frames_are_no_classes(count, place, tmp_path):
    """MOT's sequences without boxes, as its test set has them, are frames without labels."""
    members = spread(*(f"{place}MOT17-{n:02d}/img1" for n in range(count)))
    for path in (tmp_path / "folder", *(tmp_path / f"a.{kind}" for kind in KINDS)):
        found = scan_source(put(path, members), AUTO)
        assert (found.classes, len(found.items)) == ((), 4 * count)


def test_what_is_no_class_is_said(tmp_path):
    """Folders that are passed over are named, and pictures without a class are counted."""
    members = spread("train/cat", "train/dog", "val/images") | pictures("train/1.png")
    found = scan_source(put(tmp_path / "a.zip", members), AUTO)
    notes = "\n".join(found.notes)
    assert "not taken for classes, since they name none: 'images'" in notes
    assert (
        "4 pictures not packed, unlabelled: its split has no class folders: 'a/val/images/0000"
        in notes
    )
    assert "1 picture not packed, unlabelled: lies beside class folders: 'a/train/1.png'" in notes
    assert found.ignored.total == 5


def test_one_folder_beside_pictures_is_no_class(tmp_path):
    """Nothing is left out for the sake of one folder that may be anything."""
    found = scan_source(put(tmp_path / "a.zip", spread("more") | pictures("0.png")), AUTO)
    assert len(found.items) == 5
    assert found.classes == ()
    assert "one folder alone may be a class ('more')" in "\n".join(found.notes)


def test_the_name_of_an_archive_tells_the_split_where_its_folders_do_not(tmp_path):
    """`test.zip` without folders lies beside one of split folders and is of split test."""
    put(tmp_path / "trainval.zip", spread("train/cat", "train/dog", "val/cat"))
    put(tmp_path / "test.zip", pictures("0.png", "1.png"))
    put(tmp_path / "more.zip", pictures("2.png"))
    found = scan_source(tmp_path, AUTO)
    assert found.splits == ("train", "val", "test")
    notes = "\n".join(found.notes)
    assert (
        "2 pictures not packed, unlabelled: its split has no class folders: 'test/0.png'" in notes
    )
    assert "1 picture not packed, in no split: lies beside split folders: 'more/2.png'" in notes


def test_different_folders_around_archives_are_named(tmp_path):
    """cat.zip with cat/ in it and dog.zip with dog/ may be meant as classes."""
    put(tmp_path / "cat.zip", pictures("cat/0.png", "cat/1.png"))
    put(tmp_path / "dog.zip", pictures("dog/2.png", "dog/3.png"))
    notes = "\n".join(scan_source(tmp_path, AUTO).notes)
    assert "not taken for classes: 'cat', 'dog'; if they are, unpack the archives" in notes


def test_samples_with_parts_of_their_own_take_no_class_from_folders(tmp_path):
    """WebDataset's keys may hold folders: what a .cls says is the label."""
    members = spread("a", "b") | {f"{f}/{n:04d}.cls": b"7" for f in "ab" for n in range(4)}
    found = scan_source(put(tmp_path / "s.tar", dict(sorted(members.items()))), AUTO)
    assert [item.values for item in found.items] == [{"label": 7}] * 8


# Parts of samples.

PARTS = {
    "A and B": spread("A", "B", "OUT"),
    "in splits": spread("train/A", "train/B", "val/A", "val/B"),
    "sides": spread("left", "right"),
    "sizes": spread("lr", "hr"),
    "in names": spread("trainA", "trainB", "testA", "testB"),
    "names that nobody counted": pictures(
        *(f"{f}/{n}.png" for f in ("one", "two") for n in ("lake", "house", "tower"))
    ),
    "splits in names": pictures("train_cat/1.png", "test_cat/2.png"),
    "masks by what they hold": {
        **spread("pics"),
        **{f"other/{n:04d}.png": mask() for n in range(4)},
    },
}
MASKS = {
    "folders": ("imgs", "annot"),
    "a folder with an ending": ("train", "trainannot"),
    "nnU-Net": ("imagesTr", "labelsTr"),
    "semantic": ("training/image_2", "training/semantic"),
    "a known folder": ("rgb", "masks"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("members", PARTS.values(), ids=PARTS.keys())
def test_parts_of_samples_are_no_classes(members, kind, tmp_path):
    """A build stops with what the folder's does, and says what can be given."""
    on_disk = error_of(put(tmp_path / "folder", members))
    path = put(tmp_path / f"a.{kind}", members)
    message = error_of(path)
    seen = on_disk[on_disk.index(" (") + 2 : on_disk.index("), which")]
    assert seen.removeprefix("folders ") in message
    name = "zip" if kind == "zip" else "tar"
    assert f"Unpack it and give the folder, or give --format {name}" in message
    assert "give --classes with their names" in message
    assert str(examine(path).error) == message
    asked = scan_source(path, SourceOptions(format=name))
    assert (len(asked.items), asked.classes) == (len(members), ())
    assert "unlabelled, as asked for" in "\n".join(asked.notes)


@pytest.mark.parametrize("kind", KINDS)
def test_folders_that_the_user_calls_classes_are_classes(kind, tmp_path):
    """People smile and do not, and their pictures have their names."""
    members = pictures(*(f"{f}/{n}.png" for f in ("smiling", "not") for n in ("ann", "bob", "eve")))
    path = put(tmp_path / f"a.{kind}", members)
    found = scan_source(path, SourceOptions(classes=("not", "smiling")))
    assert [item.values["label"] for item in found.items].count(1) == 3
    assert len(found.items) == 6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("folders", MASKS.values(), ids=MASKS.keys())
def test_masks_are_no_pictures_of_a_class(folders, kind, tmp_path):
    """Whatever the folders of pictures and masks are called, they make no classes."""
    members = spread(folders[0]) | {
        name.replace(folders[0], folders[1]): mask() for name in spread(folders[0])
    }
    assert "Unpack it" in error_of(put(tmp_path / f"a.{kind}", members))


@pytest.mark.parametrize("kind", KINDS)
def test_masks_beside_pictures_are_no_pictures(kind, tmp_path):
    """a.png and a_mask.png are a pair in an archive as in a folder."""
    members = {"a.png": photo(), "a_mask.png": mask(), "b.png": photo(1), "b_mask.png": mask()}
    message = error_of(put(tmp_path / f"a.{kind}", members))
    assert "masks beside pictures, such as a_mask.png" in message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", [("left", "right"), ("images", "depth"), ("A", "B")])
def test_archives_side_by_side_may_be_parts(names, kind, tmp_path):
    """left.zip and right.zip are as two folders."""
    for name in names:
        put(tmp_path / f"{name}.{kind}", spread("."))
    assert f"4 of 4 names are in {' and '.join(sorted(names))}" in error_of(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_archives_of_a_set_that_is_cut_are_no_parts(kind, tmp_path):
    """Shards count their pictures anew, or go on counting; both are pictures of one set."""
    for n in range(3):
        put(tmp_path / f"shard-{n:05d}.{kind}", spread("."))
    assert len(scan_source(tmp_path, AUTO).items) == 12


# Files that say something.

LISTS = {
    "train.csv": b"id,label\n0000,cat\n",
    "labels.json": b'{"0000.png": "cat"}',
    "annotation_train.odgt": b'{"ID": "0000", "gtboxes": []}\n',
    "output.manifest": b'{"source-ref": "s3://b/0000.png", "label": 1}\n',
    "gt/gt.txt": b"1,1,2,3,4,5,1,1,1\n",
    "obj.names": b"cat\n",
    "0000.xml": b"<annotation/>",
    "labels.pkl": b"\x80\x04]",
    "list.lst": b"0000.png 1\n",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LISTS)
def test_annotations_in_an_archive_stop_the_build(name, kind, tmp_path):
    """They are not read there, and a store without them is not what anybody expects."""
    members = {**pictures("images/0000.png", "images/0001.png"), name: LISTS[name]}
    path = put(tmp_path / f"a.{kind}", members)
    message = error_of(path)
    assert f"the archives hold annotation files ('a.{kind}, member {name}')" in message
    asked = scan_source(path, SourceOptions(format="zip" if kind == "zip" else "tar"))
    assert len(asked.items) == 2
    assert "unpack the archive to have them read" in "\n".join(asked.notes)


def test_a_list_of_any_ending_in_a_zip_stops_the_build(tmp_path):
    """What names the pictures says something about them, whatever it is called."""
    members = {**pictures("0.png", "1.png"), "ground_truth": b"0.png 1\n1.png 2\n"}
    assert "member ground_truth" in error_of(put(tmp_path / "a.zip", members))
    members["ground_truth"] = b"made by hand\n"
    assert len(scan_source(put(tmp_path / "b.zip", members), AUTO).items) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_documents_in_an_archive_stop_nothing(kind, tmp_path):
    """A licence is neither a sample nor a list; it is counted among the ignored."""
    documents = {"set/LICENSE.txt": b"MIT\n", "set/README.txt": b"0.png\n", "set/make.py": b"1"}
    members = documents | spread("set/daisy", "set/rose")
    found = scan_source(put(tmp_path / f"a.{kind}", members), AUTO)
    assert found.classes == ("daisy", "rose")
    assert (len(found.items), found.ignored.total, found.rejects) == (8, 3, [])


def test_a_list_among_samples_with_labels_is_said(tmp_path):
    """Shards of WebDataset that have their labels may hold a list as well: a note names it."""
    members = {"0.png": photo(), "0.cls": b"1", "captions.txt": b"0.png a cat\n"}
    found = scan_source(put(tmp_path / "a.tar", members), AUTO)
    assert len(found.items) == 1
    assert "1 file ignored: tar member with .txt, which is not read" in "\n".join(found.notes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["annotation_train.odgt", "output.manifest", "train.csv"])
def test_a_list_beside_an_archive_stops_the_build(name, kind, tmp_path):
    """Whether the folder is given or the archive in it."""
    path = put(tmp_path / f"a.{kind}", pictures("0000.png", "0001.png"))
    (tmp_path / name).write_bytes(LISTS[name] + LISTS[name].replace(b"0000", b"0001"))
    for raw in (path, tmp_path):
        assert name in error_of(raw)


# The command, and whole builds.


def test_detect_says_what_a_build_of_an_archive_will_do(tmp_path):
    """Exit status 1 where a build would stop, with the same message; 0 where it would not."""
    good = put(tmp_path / "good.zip", spread("cat", "dog"))
    bad = put(tmp_path / "bad.zip", spread("left", "right"))
    assert run_packer("detect", good).exit_code == 0
    run = run_packer("detect", "--json", bad)
    assert run.exit_code == 1
    found = json.loads(run.stdout)
    assert found["format"] == "zip"
    assert "parts of one sample" in found["problem"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_of_an_archive_has_the_labels_of_its_folders(kind, tmp_path):
    """From the archive to what training reads."""
    members = spread("set/train/cat", "set/train/dog", "set/val/cat")
    build(put(tmp_path / f"a.{kind}", members), tmp_path / "out.lmdb", worker_count=1)
    dataset = LMDBDataset(tmp_path / "out.lmdb")
    assert list(dataset.classes) == ["cat", "dog"]
    samples = {str(sample["key"]): sample for sample in (dataset[n] for n in range(len(dataset)))}
    for name, data in members.items():
        sample = samples[f"a/{name}"]
        assert int(sample["label"]) == int("dog" in name)
        assert sample["split"] == name.split("/")[1]
        expected = np.asarray(Image.open(io.BytesIO(data)))
        assert np.array_equal(np.asarray(sample["image"]).transpose(1, 2, 0), expected)
