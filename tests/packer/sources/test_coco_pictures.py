"""Where pictures lie that a COCO file names."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer.sources.coco.pictures import FoundPictures, find_pictures, picture_folders
from packer.sources.pairing import PictureIndex
from packer.sources.walk import Picture, walk


def find(root: Path, files: list[str], names: list[str], json_folder: str = "") -> FoundPictures:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    tree = walk(root)
    folders = picture_folders(json_folder.encode(), ["val2017"], None)
    return find_pictures([n.encode() for n in names], folders, PictureIndex(tree), tree)


def paths(found: FoundPictures) -> list[str]:
    return [p.path.decode() if isinstance(p, Picture) else p for p in found.pictures]


@pytest.mark.parametrize(
    ("json_folder", "folder"),
    [
        ("", ""),
        ("", "images/"),
        ("", "val2017/"),
        ("annotations", "annotations/"),
        ("annotations", "annotations/images/"),
        ("annotations", "val2017/"),
        ("annotations", "images/val2017/"),
        ("annotations", "images/"),
        ("annotations", ""),
        ("set/annotations", "set/val2017/"),
        ("set/annotations", "set/images/val2017/"),
        ("set/annotations", "val2017/"),
    ],
)
def test_the_usual_folders_are_tried(tmp_path, json_folder, folder):
    """Each of the layouts in the wild is found as it is, without a note."""
    found = find(tmp_path, [f"{folder}sub/a.png"], ["sub/a.png"], json_folder)
    assert paths(found) == [f"{folder}sub/a.png"]
    assert found.note is None


def test_the_folder_of_most_is_that_of_all(tmp_path):
    """A name that is missing there is not taken from another folder: it is another picture."""
    files = ["val2017/1.png", "val2017/2.png", "images/3.png", "other/4.png"]
    found = find(tmp_path, files, ["1.png", "2.png", "3.png", "4.png"])
    assert paths(found) == [
        "val2017/1.png",
        "val2017/2.png",
        "3.png not found in val2017/",
        "4.png not found in val2017/",
    ]
    assert (found.folder, found.found_count) == (b"val2017", 2)


def test_the_likelier_of_two_folders_that_hold_all_is_taken(tmp_path):
    """The file's own folder before the split's, and that before others."""
    found = find(tmp_path, ["images/a.png", "images/val2017/a.png", "val2017/a.png"], ["a.png"])
    assert paths(found) == ["val2017/a.png"]
    assert paths(find(tmp_path, ["a.png"], ["a.png"])) == ["a.png"]


def test_an_absolute_path_is_not_taken_for_a_relative_one(tmp_path):
    """`/home/a.png` of another machine is not `home/a.png` here."""
    found = find(tmp_path, ["home/a.png", "val2017/a.png"], ["/home/a.png"])
    assert paths(found) == ["val2017/a.png"]


@pytest.mark.parametrize(
    "name",
    [
        "sub\\a.png",
        "sub/../sub/./a.png",
        "sub//a.png",
    ],
)
def test_paths_are_read_as_any_system_writes_them(tmp_path, name):
    """Backslashes and detours lead to the same file."""
    assert paths(find(tmp_path, ["sub/a.png"], [name])) == ["sub/a.png"]


def test_a_backslash_in_a_name_is_part_of_it_where_a_file_is_called_so(tmp_path):
    """On Linux it is a character like any other."""
    assert paths(find(tmp_path, ["x\\a.png", "x/b.png"], ["x\\a.png"])) == ["x\\a.png"]


@pytest.mark.parametrize(
    "name", ["/home/me/a.png", "C:\\data\\a.png", "https://x.org/b/a.png", "upload/3/a.png"]
)
def test_folders_of_another_machine_are_left_out_with_a_note(tmp_path, name):
    """The name alone finds the picture in the usual folders, or anywhere when it is alone."""
    found = find(tmp_path, ["images/a.png"], [name])
    assert paths(found) == ["images/a.png"]
    assert found.note == "found by name, without the folders in file_name, in images/"
    found = find(tmp_path / "far", ["deep/down/a.png"], [name])
    assert paths(found) == ["deep/down/a.png"]
    assert found.note == "found by name alone, wherever they lie"


def test_a_name_that_several_pictures_have_is_not_guessed(tmp_path):
    """Both are named."""
    found = find(tmp_path, ["x/a.png", "y/a.png", "y/b.png"], ["a.png", "b.png", "c.png"])
    several, one, none = paths(found)
    assert several.startswith("several pictures fit: x/a.png, y/a.png")
    assert one == "y/b.png"
    assert none.startswith("c.png not found; looked in the raw folder, ")


@pytest.mark.parametrize("name", ["../secret.png", "../../etc/x.png", "", "/"])
def test_a_path_that_leaves_the_raw_folder_finds_nothing(tmp_path, name):
    """Only what lies in the raw folder can be a sample."""
    (tmp_path / "secret.png").touch()
    found = find(tmp_path / "raw", ["a.png"], [name, "a.png"])
    assert paths(found)[1] == "a.png"
    assert "not found" in paths(found)[0]


@pytest.mark.parametrize("prefix", ["/data/set/", "https://x.org/coco/", "s3://bucket/", "D:\\d\\"])
def test_the_ends_of_far_paths_tell_folders_apart(tmp_path, prefix):
    """Pictures of one name in two folders are told apart by as many parts as it takes."""
    files = ["train/1.png", "train/2.png", "val/1.png"]
    names = [prefix + file for file in files]
    found = find(tmp_path, files, names, "annotations")
    assert paths(found) == files
    assert found.note == "found by the last 2 parts of their paths in the raw folder"


def test_a_whole_path_counts_where_nothing_less_tells_pictures_apart(tmp_path):
    """A mounted folder's name is gone here, and its path begins with that of the split."""
    files = ["train/1.png", "val/1.png"]
    assert paths(find(tmp_path, files, ["/train/1.png", "/val/1.png"])) == files


def test_near_and_far_names_of_one_file_are_both_found(tmp_path):
    """Each kind has its own folder, and neither hides the other."""
    names = ["a.png", "http://x.org/val2017/b.png", "c.png"]
    found = find(tmp_path, ["images/a.png", "val2017/b.png"], names)
    assert paths(found) == ["images/a.png", "val2017/b.png", "c.png not found in images/"]
    assert found.found_count == 2


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("my photo.png", "my%20photo.png"),
        ("my%20photo.png", "my photo.png"),
        ("\u00fc.png", "%C3%BC.png"),
        ("sub/my photo.png", "sub\\my%20photo.png"),
        ("my sub/a.png", "my%20sub/a.png"),
        ("sub/b/a.png", "sub\\b/a.png"),
        ("a.png", "https://x.org/a.png?raw=1#top"),
        ("my photo.png", "https://x.org/my%20photo.png?raw=1"),
        ("sub/my photo.png", "/data/local-files/?d=sub/my%20photo.png"),
        ("a.png", "file:///home/me/a.png"),
        ("a.png", "./a.png"),
        ("sub/a.png", ".\\sub\\a.png"),
        ("100%.png", "100%.png"),
        ("a?b#c.png", "a?b#c.png"),
    ],
)
def test_names_are_read_as_addresses_write_them(tmp_path, file, name):
    """Escapes and queries lead to the file, and a file that is called just so is that file."""
    assert paths(find(tmp_path, [file], [name])) == [file]


def test_a_missing_picture_names_the_one_that_nearly_fits(tmp_path):
    """Another extension or another case is what most missing pictures come down to."""
    found = find(tmp_path, ["val2017/a.png", "val2017/B.JPG", "val2017/c.png"], ["a.png", "b.jpg"])
    expected = (
        "b.jpg not found in val2017/, but val2017/B.JPG is there: correct file_name, or rename "
        "the picture"
    )
    assert paths(found) == ["val2017/a.png", expected]
    (reason,) = paths(find(tmp_path / "x", ["a.png"], ["a.jpg"]))
    assert reason.endswith(", but a.png is there: correct file_name, or rename the picture")
