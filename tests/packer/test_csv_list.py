"""Lists of pictures and labels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import SourceError
from packer.sources.csv_list import posix_form, read_columns, scan
from packer.sources.items import Scan
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
    """The item can be read from the scan's root in either case; `..` is the user's own word."""
    lists, pictures = tmp_path / "lists", tmp_path / "pictures"
    write_files(lists, "a.png", "both.png")
    write_files(pictures, "sub/b.png", "both.png")
    text = "path,label\na.png,x\nsub/b.png,x\nboth.png,x\n../pictures/sub/b.png,y\n"
    found = scan_text(lists, text, root=pictures)
    assert labelled(found) == [
        ("a.png", "x"),
        ("sub/b.png", "x"),
        ("both.png", "x"),
        ("../pictures/sub/b.png", "y"),
    ]
    assert [
        os.path.realpath(os.path.join(os.fsencode(found.root), i.path)) for i in found.items
    ] == [
        os.path.realpath(os.fsencode(path))
        for path in (
            lists / "a.png",
            pictures / "sub/b.png",
            lists / "both.png",
            pictures / "sub/b.png",
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


@pytest.mark.parametrize(
    "columns", ["xmin,xmax,ymin,ymax", "x1,y1,x2,y2", "bbox", "X_Min", "Boxes"]
)
def test_boxes_are_not_dropped(columns, tmp_path):
    """A list that holds boxes is refused by name: as a list of labels it would lose them."""
    with pytest.raises(SourceError, match=f"columns '{columns[:2]}.* lists of boxes are not read"):
        scan_text(tmp_path, f"filename,{columns},class\n")


def test_masks_are_not_dropped(tmp_path):
    """A list that pairs pictures with masks is refused by name."""
    with pytest.raises(SourceError, match="columns 'mask_path' hold masks"):
        scan_text(tmp_path, "image,mask_path,label\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the header has nothing; expected a column of paths, called one of path, "),
        ("name,label\n1.png,a\n", "the header has 'name', 'label'; expected a column of paths"),
        ("path,0,1\n1.png,0,1\n", "the header has 'path', '0', '1'; expected a column of labels"),
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
    """A file of other columns is no second list; hidden files are none either."""
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
    """An id is no path where there is a path, wherever the columns stand."""
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
