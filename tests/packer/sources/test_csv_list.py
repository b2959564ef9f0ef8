"""Lists of pictures and labels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import SourceError
from packer.items.raw_item import Scan
from packer.sources.lists.csv_list import scan
from packer.sources.lists.csv_table import read_columns
from packer.sources.lists.files import split_in_name
from packer.sources.lists.pictures import posix_form
from packer.sources.source import SourceOptions
from readers.store.schema import Field


def write_files(root: Path, *names: str) -> Path:
    """Files of as many bytes as their name has letters; a name with a slash last is a folder."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(b"x" * len(name))
    return root


def scan_text(
    folder: Path, text: str | bytes, name: str = "list.csv", root: Path | None = None
) -> Scan:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return scan(folder / name, SourceOptions(root=root))


def labelled(found: Scan) -> list[tuple[str, str]]:
    return [(item.key.decode(), found.classes[item.values["label"]]) for item in found.items]


def reasons(found: Scan) -> dict[str, str]:
    return {reject.path: reject.reason for reject in found.rejects}


def test_values_are_text_and_the_order_is_the_lists(tmp_path):
    """007, NA and 1e3 stay as written; BOM, CRLF, quotes and upper-case headers change nothing."""
    write_files(tmp_path, "007.png", "two, parts.png", "12.png")
    text = '\ufeff PATH , Label \r\n007.png,NA\r\n"two, parts.png",010\r\n\r\n12.png,1e3\r\n'
    found = scan_text(tmp_path, text)
    assert labelled(found) == [("007.png", "NA"), ("two, parts.png", "010"), ("12.png", "1e3")]
    assert found.classes == ("010", "1e3", "NA")
    assert found.fields == (Field(name="label", kind="label", dtype="int64", names=found.classes),)
    assert (found.format, found.root, found.splits) == ("csv", tmp_path, ())
    assert found.items[0].path == b"007.png"
    assert found.items[0].byte_count == 7
    assert found.items[0].mtime_ns == os.stat(tmp_path / "007.png").st_mtime_ns
    assert not found.rejects


@pytest.mark.parametrize(
    ("name", "delimiter"), [("a.csv", ","), ("a.csv", ";"), ("a.csv", "\t"), ("a.TSV", "\t")]
)
def test_the_delimiter_is_the_one_that_gives_a_path_column(name, delimiter, tmp_path):
    """Semicolons come from spreadsheets of many countries; a comma in a value is then no matter."""
    write_files(tmp_path, "a,b.png")
    text = f"file name{delimiter}class\na,b.png{delimiter}x y\n"
    if delimiter == ",":
        text = 'file name,class\n"a,b.png",x y\n'
    assert labelled(scan_text(tmp_path, text, name)) == [("a,b.png", "x y")]


@pytest.mark.parametrize("path", ["path", "file", "FileName", "image_path", "img", "image_id"])
@pytest.mark.parametrize("label", ["label", "Class", "category", "target", "class_name"])
def test_columns_are_known_by_name_wherever_they_stand(path, label, tmp_path):
    """Other columns are not read, and a note names them."""
    write_files(tmp_path, "1.png")
    found = scan_text(tmp_path, f"width,{label},{path}\n10,x,1.png\n")
    assert labelled(found) == [("1.png", "x")]
    assert found.notes == [
        f"columns read: {path!r}, {label!r}; files that the list does not name were not looked at",
        "columns not read: 'width'",
    ]


def test_a_split_column_is_read(tmp_path):
    """Names as written, sorted by code point; a row without one is a reject."""
    write_files(tmp_path, "1.png", "2.png", "3.png")
    found = scan_text(tmp_path, "path,label,Split\n1.png,b,val\n2.png,a,train\n3.png,a,\n")
    assert [item.values for item in found.items] == [
        {"label": 1, "split": 1},
        {"label": 0, "split": 0},
    ]
    assert found.splits == ("train", "val")
    assert found.fields[1] == Field(
        name="split", kind="scalar", dtype="uint8", names=("train", "val")
    )
    assert reasons(found) == {"list.csv, line 4": "the split is empty"}


def test_paths_are_looked_for_beside_the_list_and_then_under_the_root(tmp_path):
    """The item can be read from the scan's root in either case; a picture has one key."""
    lists, pictures = tmp_path / "lists", tmp_path / "pictures"
    write_files(lists, "a.png", "both.png")
    write_files(pictures, "sub/b.png", "both.png")
    text = "path,label\na.png,x\nsub/b.png,x\nboth.png,x\n../pictures/sub/b.png,y\n"
    found = scan_text(lists, text, root=pictures)
    assert labelled(found) == [
        ("a.png", "x"),
        ("sub/b.png", "x"),
        ("both.png", "x"),
    ]
    assert reasons(found) == {"list.csv, line 5": "listed twice (first in line 3)"}
    assert [
        os.path.realpath(os.path.join(os.fsencode(found.root), i.path)) for i in found.items
    ] == [
        os.path.realpath(os.fsencode(path))
        for path in (
            lists / "a.png",
            pictures / "sub/b.png",
            lists / "both.png",
        )
    ]
    assert found.root == pictures
    assert found.items[1].path == b"sub/b.png"


def test_rows_that_cannot_be_used_are_rejects_with_their_line(tmp_path):
    """Each names the line, what was found and where it was looked for; the others are kept."""
    write_files(tmp_path, "1.png", "2.png", "folder/")
    text = (
        "path,label\n"
        "1.png,a\n"
        "gone.png,a\n"
        "./1.png,b\n"
        "\n"
        "2.png, \n"
        "2.png\n"
        "2.png,a,b\n"
        ",a\n"
        "folder,a\n"
        '"multi\nline.png",a\n'
        "2.png,a\n"
        "2.png,b\n"
    )
    found = scan_text(tmp_path, text, root=tmp_path / "folder")
    assert labelled(found) == [("1.png", "a"), ("2.png", "a")]
    looked = f"looked in {tmp_path} and {tmp_path}/folder"
    assert reasons(found) == {
        "list.csv, line 3": f"gone.png not found; {looked}",
        "list.csv, line 4": "listed twice (first in line 2)",
        "list.csv, line 6": "the label is empty",
        "list.csv, line 7": "has 1 columns; the header has 2",
        "list.csv, line 8": "has 3 columns; the header has 2",
        "list.csv, line 9": "the path is empty",
        "list.csv, line 10": "folder is not a regular file",
        "list.csv, line 11": f"multi\\nline.png not found; {looked}",
        "list.csv, line 14": "listed twice (first in line 13)",
    }
    assert [reject.key for reject in found.rejects][:2] == [b"gone.png", b"1.png"]


def test_names_and_labels_that_are_not_utf8(tmp_path):
    """A path is found by its bytes; a label would have to be guessed, and is refused."""
    (tmp_path / os.fsdecode(b"caf\xe9.png")).write_bytes(b"x")
    write_files(tmp_path, "1.png")
    found = scan_text(tmp_path, b"path,label\ncaf\xe9.png,a\n1.png,caf\xe9\n")
    assert [item.key for item in found.items] == [b"caf\xe9.png"]
    assert reasons(found) == {"list.csv, line 3": "the label is not UTF-8 text: caf\\xe9"}


def test_windows_paths_get_slashes_unless_a_file_is_called_that(tmp_path):
    """A list written on Windows is read, and a file whose name has a backslash is found too."""
    write_files(tmp_path, "a/1.png", "a\\2.png")
    found = scan_text(tmp_path, "path,label\na\\1.png,x\na\\2.png,x\n")
    assert [item.key for item in found.items] == [b"a/1.png", b"a\\2.png"]


def test_paths_that_leave_the_raw_folder_are_rejects(tmp_path):
    """A list may name a file inside by its full path, and none outside."""
    write_files(tmp_path, "raw/a.png", "out.png")
    text = f"path,label\n../out.png,x\n{tmp_path}/out.png,x\n{tmp_path}/raw/a.png,x\n/a.png,x\n"
    found = scan_text(tmp_path / "raw", text)
    assert [(item.key, item.path) for item in found.items] == [(b"a.png", b"a.png")]
    outside = f"lies outside of {tmp_path}/raw; expected a file inside"
    assert outside in reasons(found)["list.csv, line 2"]
    assert outside in reasons(found)["list.csv, line 3"]
    assert reasons(found)["list.csv, line 5"].startswith("/a.png not found")
    (tmp_path / "link").symlink_to(tmp_path / "raw")
    assert len(scan(tmp_path / "link", SourceOptions()).items) == 1


def test_ids_without_extension_name_the_one_picture_of_that_stem(tmp_path):
    """An id that fits two pictures is a reject; the whole name of a file is that file."""
    write_files(tmp_path, "1.jpg", "2.png", "2.jpg", "v1.5.png", "5", "1.txt", ".3.png")
    found = scan_text(tmp_path, "image_id,label\n1,a\n2,a\nv1.5,b\n5,b\n3,a\n1.jpg,a\n")
    assert labelled(found) == [("1.jpg", "a"), ("v1.5.png", "b"), ("5", "b")]
    assert reasons(found) == {
        "list.csv, line 3": "several pictures fit 2: 2.jpg, 2.png; expected one. Rename one of "
        "them",
        "list.csv, line 6": f"3 not found; looked in {tmp_path}; if it lies elsewhere, give --root",
        "list.csv, line 7": "listed twice (first in line 2)",
    }


def test_a_name_in_another_unicode_form_is_found(tmp_path):
    """Archives made on macOS decompose names; the key is the name that the file has."""
    decomposed = "cafe\u0301.png"
    write_files(tmp_path, decomposed)
    found = scan_text(tmp_path, "path,label\ncaf\u00e9.png,a\n")
    assert [item.key.decode() for item in found.items] == [decomposed]


def test_one_column_for_each_class_gives_lists_of_labels(tmp_path):
    """Headers have blanks in such lists; classes stand in the order of the columns."""
    write_files(tmp_path, "train/1.png", "train/2.png", "val/3.png")
    (tmp_path / "train/_classes.csv").write_text("filename, b, a\n1.png, 1, 0\n2.png, 1, 1\n")
    (tmp_path / "val/_classes.csv").write_text("filename, b, a\n3.png, 0, 0\n")
    found = scan(tmp_path, SourceOptions())
    assert [(item.key, item.values) for item in found.items] == [
        (b"train/1.png", {"labels": [0], "split": 0}),
        (b"train/2.png", {"labels": [0, 1], "split": 0}),
        (b"val/3.png", {"labels": [], "split": 1}),
    ]
    assert (found.classes, found.splits) == (("b", "a"), ("train", "val"))
    assert found.fields[0] == Field(
        name="labels", kind="label", dtype="int64", shape=(None,), names=("b", "a")
    )
    assert not any("exactly one class" in note for note in found.notes)
    assert "one list for each split: train/_classes.csv (train), val/_classes.csv (val)" in (
        found.notes
    )


def test_one_hot_lists_stay_lists_of_labels(tmp_path):
    """One 1 in each row proves nothing about the next row, and a note says so."""
    write_files(tmp_path, "1.png", "2.png", "3.png")
    found = scan_text(tmp_path, "path,a,b,x\n1.png,1,0,7\n2.png,0,1,8\n3.png,0,1\n")
    assert [item.values for item in found.items] == [{"labels": [0]}, {"labels": [1]}]
    assert any("every picture has exactly one class" in note for note in found.notes)
    assert "columns not read: 'x'" in found.notes


def test_a_row_without_0_or_1_is_a_reject(tmp_path):
    """The first rows decide what the columns are; a later one cannot change that."""
    write_files(tmp_path, *(f"{n}.png" for n in range(101)))
    rows = "".join(f"{n}.png,{n % 2},1\n" for n in range(100))
    found = scan_text(tmp_path, f"path,a,b\n{rows}100.png,2,0\n")
    assert len(found.items) == 100
    assert reasons(found) == {"list.csv, line 102": "column 'a' has '2'; expected 0 or 1"}


def test_minus_one_means_no_where_there_is_no_zero(tmp_path):
    """CelebA writes -1 and 1. Beside zeros, -1 may mean "not known" and is a reject."""
    write_files(tmp_path, "1.png", "2.png")
    found = scan_text(tmp_path, "image_id,Bald,Hat\n1.png,-1,1\n2.png,-1,-1\n")
    assert [item.values["labels"] for item in found.items] == [[1], []]
    found = scan_text(tmp_path, "image_id,Bald,Hat\n1.png,-1,1\n2.png,0,1\n")
    assert reasons(found) == {"list.csv, line 2": "column 'Bald' has '-1'; expected 0 or 1"}


def test_given_classes_decide_the_labels(tmp_path):
    """A class that is not among them is a reject."""
    write_files(tmp_path, "1.png", "2.png")
    (tmp_path / "list.csv").write_text("path,label\n1.png,b\n2.png,c\n")
    found = scan(tmp_path, SourceOptions(classes=("b", "a")))
    assert [item.values for item in found.items] == [{"label": 0}]
    assert found.classes == ("b", "a")
    assert reasons(found) == {"list.csv, line 3": "class 'c' is not one of --classes"}


def test_digits_are_names_unless_they_are_said_to_be_positions(tmp_path):
    """As names, 10 sorts before 2; as positions, a class without pictures keeps its place."""
    write_files(tmp_path, "1.png", "2.png", "3.png")
    (tmp_path / "list.csv").write_text("path,label\n1.png,10\n2.png,2\n3.png,x\n")
    found = scan_text(tmp_path, "path,label\n1.png,10\n2.png,2\n", "digits.csv")
    assert (found.classes, [i.values["label"] for i in found.items]) == (("10", "2"), [0, 1])
    assert any("--label-is-index" in note for note in found.notes)
    options = SourceOptions(label_is_index=True)
    (tmp_path / "huge.csv").write_text(f"path,label\n1.png,1\n2.png,{10**30}\n3.png,9999999\n")
    assert scan(tmp_path / "huge.csv", options).classes == ("0", "1")
    found = scan(tmp_path / "list.csv", options)
    assert found.classes == tuple(map(str, range(11)))
    assert [i.values["label"] for i in found.items] == [10, 2]
    assert "whole number in [0, 1000000)" in reasons(found)["list.csv, line 4"]
    options = SourceOptions(label_is_index=True, classes=("a", "b", "c"))
    found = scan(tmp_path / "list.csv", options)
    assert labelled(found) == [("2.png", "c")]
    assert reasons(found)["list.csv, line 2"] == (
        "label 10 is not in [0, 3), the positions of --classes"
    )


def test_masks_and_captions(tmp_path):
    """A mask is a file beside the picture; a picture whose mask is missing is a reject."""
    write_files(tmp_path, "1.png", "2.png", "3.png", "masks/1.png")
    found = scan_text(
        tmp_path, 'image,mask_path,caption\n1.png,masks/1.png,"a, cat"\n2.png,masks/2.png,x\n'
    )
    (item,) = found.items
    assert item.values == {"caption": "a, cat"}
    assert (item.masks["mask"].path, item.masks["mask"].byte_count) == (b"masks/1.png", 11)
    assert found.fields == (
        Field(name="mask", kind="mask", dtype="uint8", shape=(None, None)),
        Field(name="caption", kind="text"),
    )
    assert reasons(found) == {
        "list.csv, line 3": f"mask masks/2.png not found; looked in {tmp_path}; if it lies "
        "elsewhere, give --root"
    }
    found = scan(tmp_path, SourceOptions())
    assert found.ignored.counts == {"not named by the annotations": 1}
    assert found.ignored.examples["not named by the annotations"] == ["3.png"]


def test_several_captions_of_a_picture_are_all_kept(tmp_path):
    """As Flickr8k and Flickr30k have them, five rows a picture, in the order of the list."""
    write_files(tmp_path, "1.png", "2.png", "3.png")
    found = scan_text(
        tmp_path,
        "image,caption,split,width,height\n1.png,a cat,train,9,9\n2.png,a dog,train,9,9\n"
        "1.png,one cat,train,9,9\n1.png,a cat,val,9,9\n3.png,,train,9,9\n1.png,a cat,train,9,9\n",
    )
    captions = {item.key.decode(): item.values["captions"] for item in found.items}
    assert captions == {"1.png": ["a cat", "one cat", "a cat"], "2.png": ["a dog"], "3.png": [""]}
    assert Field(name="captions", kind="json") in found.fields
    assert "caption" not in {field.name for field in found.fields}
    assert not found.rejects
    (reject,) = found.annotation_rejects
    assert (reject.key, reject.path) == (b"1.png", "list.csv, line 5")
    assert (
        reject.reason == "the split is 'val', and 'train' in list.csv, line 2, of the same picture"
    )


def test_a_second_row_with_a_mask_is_no_caption_alone(tmp_path):
    """Its mask would be lost."""
    write_files(tmp_path, "1.png", "m1.png", "m2.png")
    found = scan_text(tmp_path, "image,mask,caption\n1.png,m1.png,a cat\n1.png,m2.png,a tail\n")
    assert [item.values for item in found.items] == [{"caption": "a cat"}]
    assert reasons(found) == {"list.csv, line 3": "listed twice (first in line 2)"}


def test_outlines_are_not_dropped(tmp_path):
    """A list that holds outlines is refused by name: without them it would lose its masks."""
    with pytest.raises(SourceError, match="columns 'EncodedPixels' hold outlines"):
        scan_text(tmp_path, "image,EncodedPixels,label\n")


def test_files_that_no_list_names_are_counted(tmp_path):
    """In a raw folder, what is not packed is ignored by reason; the list itself is not counted."""
    write_files(tmp_path, "1.png", "sub/2.png", "readme.md")
    (tmp_path / "list.csv").write_text("path,label\n1.png,a\n")
    (tmp_path / "stats.csv").write_text("id,mean\n1,2\n")
    found = scan(tmp_path, SourceOptions())
    assert found.ignored.counts == {
        "not a picture": 1,
        "not named by the annotations": 1,
        "list that was not read": 1,
    }
    assert any(note.startswith("1 picture not packed, not named") for note in found.notes)


def test_a_dead_link_that_a_list_names_is_one_reject(tmp_path):
    """The walk and the list both meet it; it is one picture."""
    (tmp_path / "1.png").symlink_to("gone.png")
    (tmp_path / "2.png").symlink_to("gone.png")
    (tmp_path / "list.csv").write_text("path,label\n1.png,a\n")
    assert [(r.key, r.path) for r in scan(tmp_path, SourceOptions()).rejects] == [
        (b"1.png", "list.csv, line 2"),
        (b"2.png", "2.png"),
    ]


def test_lists_of_one_split_are_not_added_up(tmp_path):
    """Two lists of one split may be versions of one another; a user has to say which."""
    write_files(tmp_path, "1.png")
    for name in ("train_a.csv", "train_b.csv"):
        (tmp_path / name).write_text("path,label\n1.png,a\n")
    with pytest.raises(SourceError, match=r"found train_a\.csv, train_b\.csv; expected"):
        scan(tmp_path, SourceOptions())


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.csv", "train"),
        ("oidv6-Validation-bbox.csv", "Validation"),
        ("train_val.csv", None),
        ("trainees.csv", None),
    ],
)
def test_the_one_split_in_a_name(name, split):
    """A word of the name, and no part of one."""
    assert split_in_name(Path(name)) == split


def test_lists_of_splits_lie_side_by_side(tmp_path):
    """Each has its split in its name; a picture of both is packed once."""
    write_files(tmp_path, "1.png", "2.png", "3.png")
    (tmp_path / "train-export.csv").write_text("path,label\n3.png,a\n1.png,a\n")
    (tmp_path / "test-export.csv").write_text("path,label\n2.png,b\n1.png,b\n")
    found = scan(tmp_path, SourceOptions())
    assert found.splits == ("train", "test")
    assert [(i.key, i.values) for i in found.items] == [
        (b"2.png", {"label": 1, "split": 1}),
        (b"1.png", {"label": 1, "split": 1}),
        (b"3.png", {"label": 0, "split": 0}),
    ]
    assert reasons(found) == {
        "train-export.csv, line 3": "listed twice (first in test-export.csv, line 3)"
    }
    (tmp_path / "train-export.csv").write_text("path,caption\n1.png,a\n")
    with pytest.raises(SourceError, match=r"train-export\.csv holds no labels, and test-export"):
        scan(tmp_path, SourceOptions())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty; expected a list of pictures"),
        ("name,label\n1.png,a\n", "the header has 'name', 'label'; expected a column of paths"),
        ("path,0,1\n1.png,0,2\n", "the header has 'path', '0', '1'; expected a column of labels"),
        ("path,label\n", "the list has a header and no rows"),
        ('path,label\n1.png,"a\n2.png,b\n', r"list\.csv, line 2: not CSV: .*unclosed quote"),
        ("path,label\n".encode("utf-16"), "the list is UTF-16. Save it as CSV in UTF-8"),
    ],
)
def test_what_is_no_list_of_labels_is_refused(text, message, tmp_path):
    """The message says what was found and what was expected."""
    with pytest.raises(SourceError, match=message):
        scan_text(tmp_path, text)


def test_a_folder_is_read_if_it_has_exactly_one_list(tmp_path):
    """A file of other columns is not a second list; hidden files are none either."""
    write_files(tmp_path, "1.png")
    with pytest.raises(SourceError, match=r"found none; expected exactly one \.csv or \.tsv"):
        scan(tmp_path, SourceOptions())
    (tmp_path / "b.csv").write_text("path,label\n1.png,a\n")
    (tmp_path / ".c.csv").write_text("path,label\n1.png,a\n")
    (tmp_path / "classes.csv").write_text("id,name\n1,a\n")
    assert labelled(scan(tmp_path, SourceOptions())) == [("1.png", "a")]
    (tmp_path / "a.tsv").write_text("path\tlabel\n1.png\ta\n")
    with pytest.raises(SourceError, match=r"found a\.tsv, b\.csv; expected exactly one"):
        scan(tmp_path, SourceOptions())


def test_the_more_telling_of_several_columns_is_read(tmp_path):
    """An id is not a path where there is a path, wherever the columns stand."""
    (tmp_path / "list.csv").write_text("image_id,class,file_path,label\n")
    columns = read_columns(tmp_path / "list.csv")
    assert (columns.path, columns.label) == (2, 3)


@given(st.lists(st.sampled_from(["a", "b.png", ".", "", "..", "..."]), max_size=6).map("/".join))
def test_a_path_has_one_form(path):
    """Two ways to write one path are one key, and `..` is left alone."""
    form = posix_form(path)
    parts = form.lstrip("/").split("/")
    assert posix_form(form) == form
    assert "." not in parts
    assert form == "" or form == "/" or "" not in parts
    assert form.startswith("/") == path.startswith("/")
    assert [p for p in parts if p] == [p for p in path.split("/") if p not in ("", ".")]
