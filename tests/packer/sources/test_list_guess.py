"""Lists whose columns have names of their own: which of them names the pictures."""

from __future__ import annotations

import os

import pytest

from packer.errors import SourceError
from packer.sources import SourceOptions, scan_source
from tests.packer.conftest import draw_tree


@pytest.mark.parametrize(
    ("header", "rows", "folder", "fields", "classes"),
    [
        ("id,breed", ("{},pug", "{},boxer", "{},pug"), "train", ["label"], ("boxer", "pug")),
        ("id_code,diagnosis", ("{},0", "{},3", "{},0"), "train_images", ["label"], ("0", "3")),
        ("id,kind", ("{}.png,0", "{}.png,1", "{}.png,1"), "", ["label"], ("0", "1")),
        ("Bild;Klasse", ("{}.png;a", "{}.png;b", "{}.png;a"), "a/b", ["label"], ("a", "b")),
        (
            "patientId,x,y,width,height,Target",
            ("{},,,,,0", "{},1.0,2.0,5.0,6.0,1", "{},1,2,5,6,1"),
            "train",
            ["boxes", "labels"],
            ("1",),
        ),
    ],
)
def test_a_column_that_names_every_picture_is_the_path(
    header, rows, folder, fields, classes, tmp_path
):
    """What a column is called matters less than that its values are names of the pictures."""
    stems = [f"img{n}" for n in range(3)]
    draw_tree(tmp_path / folder, [f"{stem}.png" for stem in stems])
    lines = [row.format(stem) for row, stem in zip(rows, stems, strict=True)]
    (tmp_path / "train.csv").write_text("\n".join([header, *lines]))
    for raw in (tmp_path, tmp_path / "train.csv"):
        found = scan_source(raw, SourceOptions())
        assert found.format == "csv"
        splits = ["split"] if folder == "train" else []
        assert [field.name for field in found.fields] == [*fields, *splits]
        assert found.classes == classes
        keys = [os.path.join(folder, f"{stem}.png").encode() for stem in stems]
        assert [item.key for item in found.items] == keys
        assert not found.rejects


@pytest.mark.parametrize(
    "text",
    [
        "id,kinds\nimg0,5 0\nimg1,1\nimg2,25 2\n",
        "id,age\nimg0,5.5\nimg1,1.0\nimg2,2.5\n",
        "id,a,b\nimg0,x,y\nimg1,x,z\nimg2,x,y\n",
        "id,date\n" + "".join(f"img{n},day {n}\n" for n in range(3)) + "img0,a\nimg1,b\n",
        "img0,cat\nimg1,dog\nimg2,cat\n",
        "id,name,kind\nimg0,img0,a\nimg1,img1,a\nimg2,img2,b\n",
    ],
)
def test_a_list_whose_columns_are_not_clear_stops_the_build(text, tmp_path):
    """Several labels in a cell, measures, several columns, no header: no label is made of them."""
    draw_tree(tmp_path / "train", [f"img{n}.png" for n in range(3)])
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(SourceError, match=r"labels\.csv names 3 of 3 pictures"):
        scan_source(tmp_path, SourceOptions())


def test_a_name_in_two_folders_is_not_chosen_for_a_list(tmp_path):
    """Which of two pictures of a name a row means is not guessed."""
    for folder in ("old", "new"):
        draw_tree(tmp_path / folder, [f"img{n}.png" for n in range(3)])
    (tmp_path / "labels.csv").write_text("id,kind\nimg0,a\nimg1,b\nimg2,a\n")
    with pytest.raises(SourceError):
        scan_source(tmp_path, SourceOptions())


def test_a_link_in_a_circle_beside_a_list_of_unknown_columns_ends_no_scan(tmp_path):
    """The list is read as without it, and the link is a reject."""
    draw_tree(tmp_path, ["a.png", "b.png", "c.png"])
    (tmp_path / "list.csv").write_text("id,breed\na,pug\nb,boxer\nc,pug\n")
    (tmp_path / "round").symlink_to("round")
    found = scan_source(tmp_path, SourceOptions())
    assert len(found.items) == 3
    assert [reject.path for reject in found.rejects] == ["round"]
