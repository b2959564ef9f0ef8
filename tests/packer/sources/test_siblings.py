"""Folders that hold parts of samples, and folders of names that are no class, make no classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from packer import build
from packer.errors import SourceError
from packer.sources import SourceOptions, scan_source
from packer.sources.class_folders import classless, names_no_class, split_and_words
from packer.sources.detection.detect import examine
from packer.sources.siblings import find_parts, split_names
from tests.packer.raw_files import write_files, write_texts

AUTO = SourceOptions()

WORDS = ["lake", "house", "old tower", "IMG_2041", "beach-2"]


def counted(count: int, first: int = 0) -> list[str]:
    return [f"{n:04d}" for n in range(first, first + count)]


def detected(root: Path) -> str:
    return examine(root).evidence[0].format


def pictures(root: Path, folders: Iterable[str], stems: Iterable[str], extension: str) -> Path:
    return write_files(root, *(f"{f}/{stem}{extension}" for f in folders for stem in stems))


# Parts of samples.

PAIRS = [
    ("A", "B"),
    ("a", "b"),
    ("left", "right"),
    ("lr", "hr"),
    ("low_res", "high_res"),
    ("low", "high"),
    ("source", "target"),
    ("photo", "sketch"),
    ("photos", "sketches"),
    ("images", "depth"),
    ("image", "edges"),
    ("image_2", "image_3"),
    ("rgb", "thermal"),
    ("T1", "T2"),
    ("im1", "im2"),
    ("before", "after"),
    ("noisy", "clean"),
    ("left_images", "right_images"),
    ("visible", "infrared"),
    ("left", "disparity"),
    ("HR", "X4"),
    ("before", "change_mask"),
]

NAMES: dict[str, list[str]] = {
    "counted": counted(4),
    "with a prefix": [f"frame_{n}" for n in range(1, 12)],
    "letters": ["a", "b", "c"],
    "words": WORDS,
    "numbers with gaps": ["000139", "000285", "000632", "001000"],
}

PLACES: dict[str, Callable[[str], list[str]]] = {
    "alone": lambda name: [name],
    "in splits": lambda name: [f"train/{name}", f"val/{name}"],
    "over splits": lambda name: [f"{name}/train", f"{name}/test"],
    "in one split": lambda name: [f"train/{name}"],
    "with a split in the name": lambda name: [f"train_{name}", f"test_{name}"],
    "deep": lambda name: [f"x/one/train/{name}", f"y/one/train/{name}", "y/two/train/" + name],
    "wrapped": lambda name: [f"unpacked/data-1.0/{name}"],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("extensions", [(".png", ".png"), (".jpg", ".png")])
def test_folders_of_parts_are_never_classes(extensions, names, place, tmp_path):
    """Two folders with the names of parts and files of the same names stop the build."""
    for number, pair in enumerate(PAIRS):
        root = tmp_path / str(number)
        for name, extension in zip(pair, extensions, strict=True):
            pictures(root, PLACES[place](name), NAMES[names], extension)
        found = examine(root)
        assert found.evidence[0].format == "sample-parts", pair
        message = str(found.error)
        count = len(NAMES[names]) * (2 if place == "over splits" else 1)
        assert f"{count} of {count} names are in " in message
        assert "called images and masks, and give --format mask-pairs" in message
        assert "--format imagefolder (names of folders become labels)" in message
        assert "--format flat (every picture, unlabelled)" in message


@pytest.mark.parametrize("folders", [("real", "fake"), ("x", "y", "z"), ("512", "original")])
@pytest.mark.parametrize("names", ["words", "numbers with gaps"])
def test_names_that_nobody_counted_make_parts_whatever_folders_are_called(names, folders, tmp_path):
    """Two people do not give their files the same words by chance, nor the same gaps."""
    pictures(tmp_path, folders, NAMES[names], ".jpg")
    found = examine(tmp_path)
    assert found.evidence[0].format == "sample-parts"
    assert "names are in " in found.evidence[0].seen
    assert found.evidence[0].seen.endswith(f"{sorted(folders)[-2]} and {sorted(folders)[-1]}")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("photo/{}.jpg", "depthmap/{}_depth.png"),
        ("photo/{}.jpg", "x/{}.jpg.png"),
        ("fine/{}.png", "coarse/{}x4.png"),
        ("fine/{}_rgb.png", "coarse/{}_ir.png"),
        ("fine/{}.png", "coarse/gt_{}.png"),
        ("left/left_{}.png", "right/right_{}.png"),
    ],
)
def test_usual_endings_and_beginnings_do_not_hide_parts(one, other, tmp_path):
    """What all names of a folder end in says which part it is."""
    write_files(tmp_path, *(each.format(word) for each in (one, other) for word in WORDS))
    assert detected(tmp_path) == "sample-parts"


def test_most_of_the_names_are_enough(tmp_path):
    """Parts of some samples are missing; a few names in common are chance."""
    names = [f"{word} {n}" for word in WORDS for n in (2, 5)]
    pictures(tmp_path / "1", ["one"], names, ".jpg")
    pictures(tmp_path / "1", ["other"], [*names[:6], "x", "zz"], ".jpg")
    assert "6 of 10 names are in one and other" in str(examine(tmp_path / "1").error)
    pictures(tmp_path / "2", ["one"], names, ".jpg")
    pictures(tmp_path / "2", ["other"], [*names[:3], *"opqrst", "uu", "vv"], ".jpg")
    assert detected(tmp_path / "2") == "imagefolder"


def drawn(root: Path, masks: str, photos: str, values: Iterable[int] = (0, 3, 7), count: int = 3):
    """Counted photographs, and as many masks of one channel."""
    noise = np.random.default_rng(5).integers(0, 255, (24, 24, 3), dtype=np.uint8)
    mask = np.resize(np.repeat(np.array(list(values), np.uint8), 8), (24, 24))
    for n in range(count):
        for name, pixels in ((photos, noise), (masks, mask)):
            path = root / name.format(n)
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return root


def test_masks_are_told_by_what_they_hold(tmp_path):
    """Folders of any names, and counted files: one holds few values, the other photographs."""
    for extension in (".png", ".jpg"):
        root = drawn(tmp_path / extension, "zones/{:03d}.png", "fields/{:03d}" + extension)
        seen = examine(root).evidence[0].seen
        assert seen == ("3 of 3 names are in fields and zones; zones holds few values, as masks do")
    palette = tmp_path / ".jpg" / "zones"
    for path in palette.iterdir():
        Image.open(path).convert("P").save(path)
    assert detected(palette.parent) == "sample-parts"


@pytest.mark.parametrize("folders", [("cats", "dogs"), ("0", "1"), ("x", "y", "z")])
def test_gray_pictures_are_no_masks(folders, tmp_path):
    """Digits and drawings are gray or black and white in all class folders alike."""
    for n, folder in enumerate(folders):
        for values in ((0, 255), range(0, 250, 3)):
            name = f"{folder}{len(list(values))}/" + "{:03d}.png"
            drawn(tmp_path / str(len(list(values))), name, f"photos-{n}/" + "{:03d}.jpg", values)
    for root in tmp_path.iterdir():
        for path in root.glob("photos-*/*"):
            path.unlink()
        assert detected(root) == "imagefolder"


@pytest.mark.parametrize("target", ["target", "gt", "GT"])
def test_targets_that_are_photographs_are_no_masks(target, tmp_path):
    """What a picture is to become lies in folders that have masks elsewhere."""
    root = drawn(tmp_path / "1", target + "/{:03d}.png", "input/{:03d}.png")
    assert detected(root) == "mask-pairs"
    root = drawn(tmp_path / "2", "x/{:03d}.png", target + "/{:03d}.png")
    (root / "x").rename(root / "spare")
    drawn(root, "input/{:03d}.png", "other/{:03d}.png")
    for folder in ("spare", "other"):
        for path in (root / folder).iterdir():
            path.unlink()
    found = examine(root)
    assert found.evidence[0].format == "sample-parts"
    assert f"3 of 3 names are in {' and '.join(sorted((target, 'input')))}" in str(found.error)


# Classes.

CLASSES: dict[str, list[str]] = {
    "counted alike": [f"{c}/{n}.jpg" for c in ("cats", "dogs") for n in counted(20, 1)],
    "counted from other numbers": [
        f"{c}/{n}.jpg" for c, at in (("cats", 1), ("dogs", 100)) for n in counted(20, at)
    ],
    "counted, and some thrown away": [
        f"{c}/{n:03d}.jpg" for c in (2, 3, 5) for n in range(60) if n % c
    ],
    "not padded": [f"{c}/img_{n}.png" for c in ("cat", "dog") for n in range(120)],
    "every fifth": [f"obj{c}/{n}.png" for c in range(4) for n in range(0, 360, 5)],
    "letters": [f"{c}/{n}.png" for c in ("cat", "dog") for n in "abc"],
    "one each": [f"{c}/1.png" for c in ("a", "b")],
    "one each, called the same": [f"{c}/photo.png" for c in ("cat", "dog")],
    "as MNIST": [f"{c}/{n}.png" for c in range(10) for n in range(c, 1000, 10 + c)],
    "as CIFAR": [
        f"{s}/{c}/{n}.png"
        for s in ("train", "test")
        for c in ("airplane", "cat", "ship")
        for n in counted(30, 1)
    ],
    "in two numbers": [f"{c}/{a}_{b}.png" for c in ("x", "y") for a in range(4) for b in range(5)],
    "counted, but for a few": [
        *(f"{c}/{n}.jpg" for c in ("cat", "dog") for n in range(4)),
        *("cat/empty.jpg", "cat/old.jpg", "dog/cut.jpg", "dog/new.jpg", "dog/old.jpg"),
    ],
    "days": [f"{c}/2024-05-{n:02d}.jpg" for c in ("sun", "rain") for n in range(1, 31)],
    "the class in the name": [f"{c}/{c}.{n}.jpg" for c in ("cat", "dog") for n in range(30)],
    "letters of the alphabet": [f"{c}/{n}.png" for c in "ABCDEF" for n in counted(9)],
    "three levels": [f"{c}/{n}.png" for c in ("low", "medium", "high") for n in counted(9)],
    "left and right of different counts": [
        f"{c}/{n}.png" for c, count in (("left", 20), ("right", 12)) for n in counted(count)
    ],
    "types": [f"type_{c}/{n}.png" for c in "ab" for n in counted(9)],
    "masks on faces": [f"{c}/{n}.jpg" for c in ("with_mask", "without_mask") for n in counted(9)],
    "people in the same poses": [f"s{c}/{n}.pgm" for c in range(1, 41) for n in range(1, 11)],
    "people in poses with names": [
        f"subject{c:02d}/{n}.png" for c in range(1, 16) for n in ("glad", "sad", "wink", "asleep")
    ],
    "a picture in two classes": [
        *(f"{c}/{c}-{n}.jpg" for c in ("cat", "dog", "fox", "owl", "bat") for n in "pqrstuv"),
        *(f"{c}/both-{n}.jpg" for c in ("cat", "dog") for n in "xyz"),
    ],
    "folders of images in classes": [
        f"train/{c}/images/{n}.jpg" for c in ("n01", "n02") for n in counted(9)
    ],
    "classes over splits": [
        f"{c}/{s}/{n}.jpg" for c in ("cat", "dog") for s in ("train", "test") for n in counted(9)
    ],
    "names that begin like splits": [
        f"{c}/{n}.jpg" for c in ("train_station", "test_tube") for n in counted(9)
    ],
}


@pytest.mark.parametrize("names", CLASSES.values(), ids=CLASSES.keys())
def test_counted_names_in_class_folders_are_classes(names, tmp_path):
    """Cameras and programs count the files of each class; equal numbers are no evidence."""
    write_files(tmp_path, *names)
    found = examine(tmp_path)
    assert (found.format, found.error) == ("imagefolder", None)


@pytest.mark.parametrize("kind", ["imagefolder", "flat"])
@pytest.mark.parametrize("folders", [("A", "B", "label"), ("testA", "trainA", "trainB")])
def test_what_is_asked_for_is_built_with_a_note(kind, folders, tmp_path):
    """The user knows better; what was seen is said nevertheless."""
    pictures(tmp_path, folders, counted(3), ".png")
    scan = scan_source(tmp_path, SourceOptions(format=kind))
    assert len(scan.items) == 9
    assert scan.classes == (tuple(sorted(folders)) if kind == "imagefolder" else ())
    (note,) = (note for note in scan.notes if "as asked for" in note and "format:" not in note)
    assert "3 of 3 names are in" in note
    plain = scan_source(tmp_path / folders[0], SourceOptions(format="flat"))
    assert plain.notes == ["format: flat (as asked for)"]


def test_a_build_stops_before_anything_is_written(tmp_path):
    """Pictures of before and after with their label are no three classes."""
    pictures(tmp_path / "raw", ["A", "B", "label"], counted(3), ".png")
    with pytest.raises(SourceError, match="3 of 3 names are in A, B and label"):
        build(tmp_path / "raw", tmp_path / "out.lmdb")
    assert not (tmp_path / "out.lmdb").exists()


def test_a_list_goes_before_the_names_of_files(tmp_path):
    """It says of each picture what it is, also of those that look like parts."""
    pictures(tmp_path, ["A", "B"], counted(3), ".png")
    rows = "".join(f"{f}/{n}.png,{f}\n" for f in "AB" for n in counted(3))
    write_texts(tmp_path, {"list.csv": "path,label\n" + rows})
    assert examine(tmp_path).format == "csv"


# Splits in names.


@pytest.mark.parametrize(
    "folders",
    [
        ("trainA", "trainB", "testA", "testB"),
        ("trainA", "trainB"),
        ("train_A", "train_B", "train_C"),
        ("train_cats", "train_dogs", "test_cats", "test_dogs"),
        ("train_images", "test_images"),
        ("cats-train", "dogs-train", "cats-val", "dogs-val"),
    ],
)
def test_a_split_in_the_name_of_a_folder_makes_no_class(folders, tmp_path):
    """`trainA` and `testA` would be two classes of the same kind of picture."""
    for number, folder in enumerate(folders):
        pictures(tmp_path, [folder], counted(3 + number, 10 * number), ".jpg")
    found = examine(tmp_path)
    assert found.evidence[0].format == "split-names"
    assert sorted(folders)[0] in str(found.error)
    assert "--format imagefolder" in str(found.error)


def test_words_of_folder_names_are_told_apart():
    """The rules by themselves, with names that hold no split or two."""
    assert split_and_words(b"trainA") == ("train", ("a",))
    assert split_and_words(b"DIV2K_valid_HR") == ("val", ("div", "2", "k", "hr"))
    assert split_and_words(b"train2017") == ("train", ())
    assert split_and_words(b"train-test") == ("", ("train", "test"))
    assert split_and_words("\u732b 2".encode()) == ("", ("\u732b", "2"))
    assert split_names({b"trainA": [b"1.png"], b"cat": [b"1.png"]}) == ()


def test_many_names_are_compared_by_the_first(tmp_path):
    """Numbers of large folders begin alike whatever the counts, so that these decide as well."""
    few = [b"%d.png" % n for n in range(6000)]
    assert find_parts(b"", {b"left": few, b"right": few}) is not None
    assert find_parts(b"", {b"left": few, b"right": few[:5100]}) is None
    many = {b"%d" % n: [b"lake.png", b"house.png", b"tree.png"] for n in range(65)}
    assert find_parts(b"", many) is None


# Folders that name no class.


@pytest.mark.parametrize(
    "name", ["images", "Images", "img1", "JPEGImages", "jpg", "pictures", "frames", "data"]
)
def test_a_folder_in_a_split_that_names_no_class_is_none(name, tmp_path):
    """Unlabelled pictures of splits are packed as such, not as one class."""
    write_files(tmp_path, *(f"{s}/{name}/{n}.png" for s in ("train", "val") for n in range(3)))
    found = examine(tmp_path)
    assert found.format == "flat"
    assert f"splits train, val without class folders: train/{name}, val/{name} name none" in (
        found.line
    )
    scan = scan_source(tmp_path, AUTO)
    assert (scan.splits, scan.classes, len(scan.items)) == (("train", "val"), (), 6)
    asked = scan_source(tmp_path, SourceOptions(format="imagefolder"))
    assert asked.classes == (name,)
    assert any("although they name none" in note for note in asked.notes)


@pytest.mark.parametrize(
    "names", [("seq-01", "seq-02"), ("images_001", "images_2"), ("img", "data")]
)
def test_numbered_parts_of_a_whole_are_no_classes(names, tmp_path):
    """A sequence or the third part of an archive says nothing of what is on its pictures."""
    pictures(tmp_path, names[:1], counted(3), ".png")
    pictures(tmp_path, names[1:], counted(5, 3), ".png")
    found = examine(tmp_path)
    assert found.format == "flat"
    assert "which are the names of no class" in found.line


def test_class_folders_below_images_of_a_split_are_the_classes(tmp_path):
    """`train/images/cat` is of the class cat, as `train/cat` and `train/cat/images` are."""
    layouts = ("train/images/{}/1.png", "train/{}/1.png", "train/{}/images/1.png")
    for number, layout in enumerate(layouts):
        root = write_files(tmp_path / str(number), *(layout.format(c) for c in ("cat", "dog")))
        write_files(root, "val/images/cat/1.png", "val/images/2.png")
        scan = scan_source(root, AUTO)
        assert scan.classes == ("cat", "dog")
        assert [scan.classes[item.values["label"]] for item in scan.items] == ["cat", "dog", "cat"]
        assert scan.ignored.total == 1


def test_splits_below_images_are_no_classes(tmp_path):
    """Asked for or not, they are splits of the folder below."""
    write_files(tmp_path, *(f"data/{s}/{c}/1.png" for s in ("train", "val") for c in "xy"))
    for kind in ("auto", "imagefolder"):
        with pytest.raises(SourceError, match=f"[gG]ive {tmp_path}/data instead"):
            scan_source(tmp_path, SourceOptions(format=kind))
    assert scan_source(tmp_path / "data", AUTO).classes == ("x", "y")


def test_images_beside_a_class_folder_is_a_class(tmp_path):
    """Names say nothing by themselves where a class lies beside them."""
    write_files(tmp_path, "train/images/1.png", "train/sketches/2.png", "val/images/3.png")
    assert scan_source(tmp_path, AUTO).classes == ("images", "sketches")
    assert classless([[b"images", b"sketches"], [b"images", b"data"]]) == {b"data"}
    assert [names_no_class(name) for name in (b"seq-1", b"MOT17-02", b"photos", b"n01")] == [
        *(True, False),
        *(False, False),
    ]


def test_an_unpacked_folder_is_not_the_only_class(tmp_path):
    """Classes in one folder that an archive made would all be one."""
    write_files(tmp_path, *(f"flowers/{c}/{n}.png" for c in ("rose", "tulip") for n in range(3)))
    message = str(examine(tmp_path).error)
    assert "it would be the only class, and the pictures lie in folders below it: rose" in message
    assert f"give {tmp_path}/flowers instead" in message


# Labels of a split in a text file.


def tiny(root: Path, labels: str, *splits: str) -> Path:
    """Tiny ImageNet's folders: two classes, and pictures of val and test in `images`."""
    write_files(root, *(f"train/{c}/images/{c}_{n}.JPEG" for c in ("n01", "n02") for n in range(3)))
    for split in splits:
        write_files(root, *(f"{split}/images/{split}_{n}.JPEG" for n in range(4)))
    if "val" in splits:
        write_texts(root, {"val/val_annotations.txt": labels})
    return write_texts(root, {"wnids.txt": "n02\nn01\n"})


LABELS = "".join(f"val_{n}.JPEG\t{('n01', 'n02')[n % 2]}\t0\t32\t44\t62\n" for n in range(4))


def test_labels_of_train_are_the_same_whatever_other_splits_there_are(tmp_path):
    """`images` in val and test is not a class that moves the others."""
    for number, splits in enumerate([(), ("val",), ("test",), ("val", "test")]):
        scan = scan_source(tiny(tmp_path / str(number), LABELS, *splits), AUTO)
        assert scan.classes == ("n01", "n02")
        train = scan.splits.index("train")
        labels = [i.values["label"] for i in scan.items if i.values["split"] == train]
        assert labels == [0, 0, 0, 1, 1, 1]


def test_a_text_file_labels_the_pictures_of_its_split(tmp_path):
    """Pictures of val get the labels of val_annotations.txt; those of test have none: a note."""
    scan = scan_source(tiny(tmp_path, LABELS, "val", "test"), AUTO)
    val = scan.splits.index("val")
    assert [(i.key, i.values["label"]) for i in scan.items if i.values["split"] == val] == [
        (f"val/images/val_{n}.JPEG".encode(), n % 2) for n in range(4)
    ]
    assert "labels of val/ are those of val/val_annotations.txt" in scan.notes
    assert scan.ignored.counts == {
        "unlabelled: its split has no class folders": 4,
        "not a picture": 1,
    }
    assert "also seen: 1 other file, not read: wnids.txt" in scan.notes[0]
    assert scan.rejects == []


def test_the_file_of_labels_may_lie_beside_the_split(tmp_path):
    """It is told by the split in its name; without one, nobody knows which pictures it is about."""
    tiny(tmp_path, "", "val", "test")
    (tmp_path / "val" / "val_annotations.txt").unlink()
    write_texts(tmp_path, {"val_labels.txt": LABELS})
    scan = scan_source(tmp_path, SourceOptions(format="imagefolder"))
    assert "labels of val/ are those of val_labels.txt" in scan.notes
    assert len(scan.items) == 10
    (tmp_path / "val_labels.txt").rename(tmp_path / "labels.txt")
    scan = scan_source(tmp_path, SourceOptions(format="imagefolder"))
    assert len(scan.items) == 6


def test_lines_of_labels_that_cannot_be_used_are_rejects(tmp_path):
    """Every picture of the split is stored, rejected with the line, or ignored by reason."""
    labels = "val_0.JPEG n01\nval_1.JPEG n09\nval_2.JPEG n01\nval_2.JPEG n02\nval_9.JPEG n01\n\n"
    scan = scan_source(tiny(tmp_path, labels, "val"), AUTO)
    found = {reject.path: (reject.key, reject.reason) for reject in scan.rejects}
    assert found == {
        "val/val_annotations.txt, line 2": (
            b"val/images/val_1.JPEG",
            "label 'n09' is not the name of a class folder",
        ),
        "val/val_annotations.txt, line 4": (
            b"val/images/val_2.JPEG",
            "listed with another label (first in line 3)",
        ),
        "val/val_annotations.txt, line 5": (b"", "val_9.JPEG is not in val/"),
    }
    assert scan.ignored.examples["unlabelled: not named by the file of labels in its split"] == [
        "val/images/val_3.JPEG"
    ]
    assert len(scan.items) == 7


@pytest.mark.parametrize("labels", ["", "val_0.JPEG 7\nval_1.JPEG 8\n", "n01 n02\n"])
def test_a_text_file_of_other_things_labels_nothing(labels, tmp_path):
    """A file that names no class of the others is left aside, and counted."""
    scan = scan_source(tiny(tmp_path, labels, "val"), AUTO)
    assert len(scan.items) == 6
    assert scan.ignored.counts["unlabelled: its split has no class folders"] == 4
    assert "val/val_annotations.txt" in scan.ignored.examples["not a picture"]
    note = "val/val_annotations.txt names pictures, and none with the name of a class folder"
    assert any(each.startswith(note) for each in scan.notes) == labels.startswith("val_0")
