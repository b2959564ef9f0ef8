"""Class folders, with and without splits, and pictures without labels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packer.errors import SourceError
from packer.items.raw_item import Scan
from packer.sources import flat, imagefolder
from packer.sources.source import SourceOptions
from packer.sources.splits import are_all_splits
from readers.store.schema import Field
from readers.store.splits import canonical_split


def write_files(root: Path, *names: str) -> Path:
    """Files of as many bytes as their name has letters; a name with a slash last is a folder."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(b"x" * len(name))
    return root


def scan(root: Path) -> Scan:
    return imagefolder.scan(root, SourceOptions())


def labelled(found: Scan) -> dict[str, str]:
    """Key of each item, in order, and the name of its class, behind that of its split."""
    names = {}
    for item in found.items:
        split = [found.splits[item.values["split"]]] if found.splits else []
        names[item.key.decode()] = "/".join([*split, found.classes[item.values["label"]]])
    return names


def test_the_first_folder_of_the_path_is_the_class(tmp_path):
    """Also for pictures further down; order and classes are sorted by bytes."""
    write_files(
        tmp_path, "b/1.png", "B/1.png", "a/deep/er/1.png", "a/2.png", "a-x/1.png", "10/1.png"
    )
    found = scan(tmp_path)
    assert labelled(found) == {
        "10/1.png": "10",
        "B/1.png": "B",
        "a-x/1.png": "a-x",
        "a/2.png": "a",
        "a/deep/er/1.png": "a",
        "b/1.png": "b",
    }
    assert [item.key for item in found.items] == sorted(item.key for item in found.items)
    assert found.classes == ("10", "B", "a", "a-x", "b")
    assert found.fields == (Field(name="label", kind="label", dtype="int64", names=found.classes),)
    assert (found.format, found.root, found.splits) == ("imagefolder", tmp_path, ())
    assert found.items[1].path == b"B/1.png"
    assert found.items[1].byte_count == 7
    assert found.items[1].mtime_ns == os.stat(tmp_path / "B/1.png").st_mtime_ns


def test_the_same_name_in_several_classes_is_several_items(tmp_path):
    """Neither a folder nor an extension is dropped from what a sample is known by."""
    write_files(tmp_path, "cat/0001.png", "dog/0001.png", "dog/0001.jpg")
    assert labelled(scan(tmp_path)) == {
        "cat/0001.png": "cat",
        "dog/0001.jpg": "dog",
        "dog/0001.png": "dog",
    }


def test_splits_share_one_list_of_classes(tmp_path):
    """A class that one split lacks does not shift the labels of that split, and is said."""
    write_files(tmp_path, "val/b/1.png", "train/a/1.png", "train/b/1.png", "Train/c/1.png")
    found = scan(tmp_path)
    assert found.classes == ("a", "b", "c")
    assert found.splits == ("Train", "train", "val")
    assert labelled(found) == {
        "Train/c/1.png": "Train/c",
        "train/a/1.png": "train/a",
        "train/b/1.png": "train/b",
        "val/b/1.png": "val/b",
    }
    assert found.fields == (
        Field(name="label", kind="label", dtype="int64", names=("a", "b", "c")),
        Field(name="split", kind="scalar", dtype="uint8", names=("Train", "train", "val")),
    )
    assert found.notes == [
        "split Train has no pictures of: 'a', 'b'",
        "split train has no pictures of: 'c'",
        "split val has no pictures of: 'a', 'c'",
    ]


def test_folders_are_splits_only_if_all_are_called_like_splits(tmp_path):
    """A class may be called test; then train is a class too, and a note says so."""
    write_files(tmp_path, "train/x/1.png", "test/x/1.png", "trial/x/1.png", "notes/a.txt")
    found = scan(tmp_path)
    assert found.splits == ()
    assert found.classes == ("test", "train", "trial")
    assert found.notes == [
        "no pictures but other files, not taken for classes: 'notes/'",
        "taken for classes, although named like splits: 'test', 'train'; other folders beside "
        "them hold pictures too",
    ]


def test_other_folders_without_pictures_do_not_undo_splits(tmp_path):
    """Documents and an empty split beside the splits are no splits, and are said."""
    write_files(tmp_path, "train/a/1.png", "docs/a.txt", "val/", "test/b/")
    found = scan(tmp_path)
    assert found.splits == ("train",)
    assert found.classes == ("a", "b")
    assert found.notes == [
        "no pictures, kept in the list of classes: 'b'",
        "no pictures, not taken for splits: 'docs/', 'test/', 'val/'",
    ]


def test_pictures_beside_class_folders_are_ignored_and_said(tmp_path):
    """They have no label; they are counted and named, at the root and in a split."""
    write_files(tmp_path / "1", "0.png", "1.png", "a/1.png")
    found = scan(tmp_path / "1")
    assert labelled(found) == {"a/1.png": "a"}
    assert found.ignored.counts == {"unlabelled: lies beside class folders": 2}
    assert found.notes == [
        "2 pictures not packed, unlabelled: lies beside class folders: '0.png', '1.png'",
        "only one class: 'a'",
    ]
    write_files(tmp_path / "2", "train/0.png", "train/a/1.png", "val/b/1.png", "0.png")
    found = scan(tmp_path / "2")
    assert labelled(found) == {"train/a/1.png": "train/a", "val/b/1.png": "val/b"}
    assert found.ignored.examples == {
        "unlabelled: lies beside class folders": ["0.png", "train/0.png"]
    }


def test_a_split_without_class_folders_is_ignored_and_said(tmp_path):
    """Public test sets come without labels; they are no third class called test."""
    write_files(tmp_path, "train/a/1.png", "train/b/1.png", *(f"test/{n}.png" for n in range(7)))
    found = scan(tmp_path)
    assert labelled(found) == {"train/a/1.png": "train/a", "train/b/1.png": "train/b"}
    assert found.ignored.counts == {"unlabelled: its split has no class folders": 7}
    assert found.notes == [
        "7 pictures not packed, unlabelled: its split has no class folders: "
        "'test/0.png', 'test/1.png', 'test/2.png', 'test/3.png', 'test/4.png' and 2 more"
    ]


def test_an_empty_class_folder_keeps_its_class(tmp_path):
    """Labels are not renumbered because one class has no pictures yet; it may hold litter."""
    write_files(tmp_path, "a/.gitkeep", "b/1.png", "c/Thumbs.db", "d/")
    found = scan(tmp_path)
    assert found.classes == ("a", "b", "c", "d")
    assert labelled(found) == {"b/1.png": "b"}
    assert found.notes == ["no pictures, kept in the list of classes: 'a', 'c', 'd'"]


def test_a_class_whose_pictures_cannot_be_read_keeps_its_class(tmp_path):
    """A lost link is a reject, and does not shift the labels of the others."""
    write_files(tmp_path, "a/", "b/1.png")
    (tmp_path / "a/1.png").symlink_to("gone")
    found = scan(tmp_path)
    assert found.classes == ("a", "b")
    assert [reject.key for reject in found.rejects] == [b"a/1.png"]


def test_class_names_may_be_any_bytes(tmp_path):
    """A class folder that is not UTF-8 gets a name that can be stored and printed."""
    for folder in (b"caf\xe9", "\u732b".encode()):
        os.mkdir(os.fsencode(tmp_path) + b"/" + folder)
        with open(os.fsencode(tmp_path) + b"/" + folder + b"/1.png", "wb"):
            pass
    found = scan(tmp_path)
    assert found.classes == ("caf\\xe9", "\u732b")
    assert [(item.key, item.values["label"]) for item in found.items] == [
        (b"caf\xe9/1.png", 0),
        ("\u732b/1.png".encode(), 1),
    ]


def test_two_classes_never_get_one_name(tmp_path):
    """A folder called like the written form of another one is refused, not merged."""
    write_files(tmp_path, "caf\\xe9/1.png")
    os.mkdir(os.fsencode(tmp_path) + b"/caf\xe9")
    with pytest.raises(SourceError, match="two class folders have the same name"):
        scan(tmp_path)


def test_classes_that_look_alike_are_said(tmp_path):
    """Archives made on different systems write one name in two ways, which makes two classes."""
    write_files(tmp_path, "train/caf\u00e9/1.png", "val/cafe\u0301/1.png", "val/Dog/1.png")
    found = scan(tmp_path)
    assert len(found.classes) == 3
    assert (
        "classes that differ only in case or Unicode form, kept apart: 'cafe\u0301', 'caf\u00e9'"
        in found.notes
    )


def test_items_of_a_class_share_their_values(tmp_path):
    """A dict for each of a million items would take more memory than all the rest."""
    write_files(tmp_path, "a/1.png", "a/2.png")
    first, second = scan(tmp_path).items
    assert first.values is second.values


def test_class_folders_are_required(tmp_path):
    """Asked for by name, imagefolder does not make up a class for pictures that have none."""
    write_files(tmp_path, "train/1.png", "val/1.png")
    with pytest.raises(SourceError, match=r"lie in no class folder.* --format flat"):
        scan(tmp_path)


def test_nothing_at_all_is_an_empty_scan(tmp_path):
    """Whether that is an error is for the one entry to say, which knows what was asked for."""
    assert scan(tmp_path).items == []


def test_a_flat_folder_is_unlabelled(tmp_path):
    """Every picture at any depth, in the order of its path, without a label."""
    write_files(tmp_path, "2.png", "10.png", "deep/er/1.png", "z.png", "notes.txt")
    found = flat.scan(tmp_path, SourceOptions())
    assert [(item.key, item.values) for item in found.items] == [
        (b"10.png", {}),
        (b"2.png", {}),
        (b"deep/er/1.png", {}),
        (b"z.png", {}),
    ]
    assert (found.format, found.fields, found.classes, found.splits) == ("flat", (), (), ())
    assert found.ignored.counts == {"not a picture": 1}


def test_flat_folders_may_be_splits(tmp_path):
    """Pictures of a split know it; those that lie in none are ignored, and said."""
    write_files(tmp_path, "valid/1.png", "train/sub/1.png", "0.png")
    found = flat.scan(tmp_path, SourceOptions())
    assert [(item.key, item.values) for item in found.items] == [
        (b"train/sub/1.png", {"split": 0}),
        (b"valid/1.png", {"split": 1}),
    ]
    assert found.splits == ("train", "valid")
    assert found.fields == (
        Field(name="split", kind="scalar", dtype="uint8", names=("train", "valid")),
    )
    assert found.notes == ["1 picture not packed, in no split: lies beside split folders: '0.png'"]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train", "train"),
        ("Training", "train"),
        ("train2017", "train"),
        ("valid", "val"),
        ("VALIDATION", "val"),
        ("dev", "val"),
        ("minival", "val"),
        ("testing", "test"),
        ("trains", None),
        ("", None),
    ],
)
def test_split_names_have_a_meaning(name, split):
    """The name is kept as it is written; what it means is looked up, without case."""
    assert canonical_split(name) == split


def test_no_folders_are_no_splits():
    """All of none would be true."""
    assert not are_all_splits([])
    assert are_all_splits([b"train", b"Val"])
    assert not are_all_splits([b"train", b"caf\xe9"])
