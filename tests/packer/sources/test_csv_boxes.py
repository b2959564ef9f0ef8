"""CSV lists of boxes."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer.errors import SourceError
from packer.items.annotations import object_fields, unpack_annotations
from packer.items.raw_item import Scan
from packer.sources.lists.csv_list import scan
from packer.sources.source import SourceOptions


def scan_text(
    folder: Path, text: str, *pictures: str, options: SourceOptions | None = None
) -> Scan:
    for name in pictures or ("1.png", "2.png", "3.png"):
        (folder / name).write_bytes(b"x")
    (folder / "list.csv").write_text(text)
    return scan(folder / "list.csv", options or SourceOptions())


def boxes(found: Scan) -> dict[str, list[tuple[str, tuple[float, ...]]]]:
    """Class and box of each object, by key."""
    return {
        item.key.decode(): [
            (found.classes[o.label], o.box or ())
            for o in unpack_annotations(item.annotations).objects
        ]
        for item in found.items
    }


def annotation_reasons(found: Scan) -> dict[str, str]:
    return {reject.path: reject.reason for reject in found.annotation_rejects}


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("xmin,xmax,ymin,ymax", "10,30,20,50"),
        ("YMax,YMin,XMax,XMin", "50,20,30,10"),
        ("x0,y0,x1,y1", "10,20,30,50"),
        ("x1,y1,x2,y2", "10,20,30,50"),
        ("left,top,right,bottom", "10,20,30,50"),
        ("x1,y1,w,h", "10,20,20,30"),
        ("x,y,width,height", "10,20,20,30"),
        ("bbox_x,bbox_y,bbox_width,bbox_height", "10,20,20,30"),
        ("x_center,y_center,w,h", "20,35,20,30"),
        ("bbox_xyxy", '"[10, 20, 30, 50]"'),
        ("bbox_xyxy", '"10 20 30 50"'),
        ("bbox_xywh", '"[10 20 20 30]"'),
        ("boxes", '"[[10, 20, 30, 50]]"'),
    ],
)
def test_boxes_are_read_by_the_names_of_their_columns(header, row, tmp_path):
    """The same box in every way to write it, whatever the order of the columns."""
    found = scan_text(tmp_path, f"filename,{header},class\n1.png,{row},a\n")
    assert boxes(found) == {"1.png": [("a", (10.0, 20.0, 30.0, 50.0))]}
    assert unpack_annotations(found.items[0].annotations).size is None
    assert found.fields == object_fields(("a",))
    assert not found.rejects
    assert not found.annotation_rejects


def test_boxes_with_an_angle_are_counted(tmp_path):
    """Lists have no common form of it: the note says whose box is that before it was turned."""
    found = scan_text(
        tmp_path,
        "filename,class,x,y,width,height,rotation\n1.png,a,1,2,3,4,30\n1.png,a,5,2,3,4,0\n",
    )
    assert len(boxes(found)["1.png"]) == 2
    assert "1 box with an angle in 'rotation', which is not read" in "\n".join(found.notes)


def test_rows_of_one_picture_are_its_boxes(tmp_path):
    """Boxes come in the order of the list, and pictures in the order of their first row."""
    found = scan_text(
        tmp_path,
        "filename,cell_type,xmin,xmax,ymin,ymax\n"
        "2.png,b,1,2,3,4\n1.png,a,5,6.5,7,8\n2.png,a,9,10,11,12\n3.png,,,,,\n",
    )
    assert boxes(found) == {
        "2.png": [("b", (1.0, 3.0, 2.0, 4.0)), ("a", (9.0, 11.0, 10.0, 12.0))],
        "1.png": [("a", (5.0, 7.0, 6.5, 8.0))],
        "3.png": [],
    }
    assert [item.key for item in found.items] == [b"2.png", b"1.png", b"3.png"]
    first = unpack_annotations(found.items[0].annotations)
    assert [o.place for o in first.objects] == ["list.csv, line 2", "list.csv, line 4"]
    assert first.size is None
    assert not first.is_relative
    assert "1 picture without boxes: background" in found.notes


def test_width_and_height_are_the_size_of_the_picture(tmp_path):
    """They are no part of a box that has its corners; a row that differs is a reject."""
    found = scan_text(
        tmp_path,
        "filename,width,height,class,xmin,ymin,xmax,ymax\n"
        "1.png,60,30,a,1,2,3,4\n1.png,61,30,a,1,2,3,5\n2.png,0,0,a,1,2,3,4\n3.png,x,9,a,1,2,3,4\n",
    )
    sizes = [unpack_annotations(item.annotations).size for item in found.items]
    assert sizes == [(60, 30), None]
    assert annotation_reasons(found) == {
        "list.csv, line 3": "the picture's size is (61, 30), and (60, 30) in list.csv, line 2",
        "list.csv, line 5": "its picture was rejected",
    }
    assert [(r.path, r.reason) for r in found.rejects] == [
        ("list.csv, line 5", "'width' is 'x'; expected a whole number of pixels")
    ]


def test_rows_that_cannot_be_used_are_rejects_with_their_line(tmp_path):
    """A picture keeps its good boxes; one that is missing is rejected once, with all its boxes."""
    found = scan_text(
        tmp_path,
        "filename,class,xmin,ymin,xmax,ymax\n"
        "1.png,a,1,2,3,4\n1.png,a,1,2,,4\n1.png,a,1,2,nan,4\n1.png,a,1,2,1_0,4\n1.png,,1,2,3,4\n"
        "gone.png,a,1,2,3,4\ngone.png,a,1,2,3,5\n1.png,a,1,2,3\n",
    )
    assert boxes(found) == {"1.png": [("a", (1.0, 2.0, 3.0, 4.0))]}
    assert [(r.key, r.path) for r in found.rejects] == [(b"gone.png", "list.csv, line 7")]
    assert annotation_reasons(found) == {
        "list.csv, line 3": "box ['1', '2', '', '4']; expected four numbers",
        "list.csv, line 4": "box ['1', '2', 'nan', '4']; expected four numbers",
        "list.csv, line 5": "box ['1', '2', '1_0', '4']; expected four numbers",
        "list.csv, line 6": "the label is empty",
        "list.csv, line 7": "its picture was rejected",
        "list.csv, line 8": "its picture was rejected",
        "list.csv, line 9": "has 5 columns; the header has 6",
    }
    assert {r.key for r in found.annotation_rejects} == {b"1.png", b"gone.png", b""}


def test_degenerate_boxes_are_left_for_later(tmp_path):
    """Whether a box fits its picture is known when the picture is; the list gives its numbers."""
    found = scan_text(tmp_path, "file,class,xmin,ymin,xmax,ymax\n1.png,a,504,337,504,337\n")
    assert boxes(found) == {"1.png": [("a", (504.0, 337.0, 504.0, 337.0))]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("xmin,ymin,class", "the columns 'xmin', 'ymin' are not a whole box; expected xmin, ymin"),
        ("x1,y1,x2,y2,x3,y3,x4,y4,class", "hold more than one box of four numbers"),
        ("xmin,ymin,xmax,ymax,bbox,class", "hold more than one box of four numbers"),
        ("xmin,ymin,xmax,ymax", "expected a column with the class of each box"),
    ],
)
def test_boxes_that_names_do_not_settle_are_refused(columns, message, tmp_path):
    """Position says nothing about a column, and nothing is dropped."""
    with pytest.raises(SourceError, match=message):
        scan_text(tmp_path, f"filename,{columns}\n")


def test_boxes_without_a_class_are_of_the_only_one(tmp_path):
    """One class name says what all boxes are."""
    options = SourceOptions(classes=("face",))
    found = scan_text(tmp_path, "path,xmin,ymin,xmax,ymax\n1.png,1,2,3,4\n", options=options)
    assert boxes(found) == {"1.png": [("face", (1.0, 2.0, 3.0, 4.0))]}
    assert any("all taken for 'face'" in note for note in found.notes)


def test_an_open_column_is_decided_by_boxes_that_are_impossible(tmp_path):
    """Where x1 would lie before x0, four numbers are x, y, width, height; else a user says it."""
    header = "image,label,bbox\n"
    found = scan_text(tmp_path, header + '1.png,a,"[50, 2, 10, 4]"\n2.png,a,"[1, 2, 10, 40]"\n')
    assert boxes(found)["1.png"] == [("a", (50.0, 2.0, 60.0, 6.0))]
    assert found.choices == {"boxes": "x y width height"}
    assert any("1 of 2 boxes would be impossible" in note for note in found.notes)
    with pytest.raises(SourceError, match=r"both fit its 1 box\. Rename .* to 'bbox_xyxy'"):
        scan_text(tmp_path, header + '1.png,a,"[1, 2, 3, 4]"\n')


def test_an_open_column_is_decided_by_the_size_of_the_picture(tmp_path):
    """Where boxes would end outside of the picture, four numbers are corners."""
    text = 'image,width,height,label,bbox\n1.png,100,50,a,"[60, 20, 90, 50]"\n'
    found = scan_text(tmp_path, text)
    assert boxes(found) == {"1.png": [("a", (60.0, 20.0, 90.0, 50.0))]}
    assert found.choices == {"boxes": "x0 y0 x1 y1"}
    found = scan_text(tmp_path, 'image,label,bbox\n1.png,a,"[-20, -20, -5, -4]"\n')
    assert boxes(found) == {"1.png": [("a", (-20.0, -20.0, -5.0, -4.0))]}
    with pytest.raises(SourceError, match="neither fits its 1 box"):
        scan_text(tmp_path, 'image,width,height,label,bbox\n1.png,100,50,a,"[1, 2, 300, 40]"\n')


def test_a_few_impossible_boxes_are_dirt(tmp_path):
    """One box in thirty that is turned round proves nothing about the others."""
    rows = "".join(f'1.png,a,"[1, 2, 10, {n + 4}]"\n' for n in range(30))
    with pytest.raises(SourceError, match="both fit its 31 boxes"):
        scan_text(tmp_path, f'image,label,bbox\n{rows}1.png,a,"[9, 2, 3, 4]"\n')


def test_a_column_that_is_not_what_it_is_called_is_refused(tmp_path):
    """`boxes` are corners, as in a store; where they cannot be, the message says how to go on."""
    with pytest.raises(SourceError, match=r"in 1 of 1 box x1 or y1 is less .* 'bbox_xywh'"):
        scan_text(tmp_path, 'image,label,boxes\n1.png,a,"[[50, 2, 10, 4]]"\n')


def test_relative_boxes_are_read_if_they_are_called_so(tmp_path):
    """Shares of the sides look like tiny boxes; unless the names say what they are, it is asked."""
    text = "image,label,{0},{1},{2},{3}\n1.png,a,0.1,0.2,0.5,1\n"
    names = ("xmin", "ymin", "xmax", "ymax")
    with pytest.raises(SourceError, match=r"all 1 box in 'xmin'.* lie in \[0, 1\].*'xmin_rel'"):
        scan_text(tmp_path, text.format(*names))
    found = scan_text(tmp_path, text.format(*(f"{name}_rel" for name in names)))
    annotations = unpack_annotations(found.items[0].annotations)
    assert annotations.is_relative
    assert annotations.objects[0].box == (0.1, 0.2, 0.5, 1.0)
    found = scan_text(tmp_path, "image,label,bbox_xyxy_norm\n1.png,a,0.1 0.2 1.5 1\n")
    assert "at most 1" in annotation_reasons(found)["list.csv, line 2"]


def test_rows_of_one_picture_in_two_splits(tmp_path):
    """A picture is in one split; boxes that say otherwise are rejects."""
    found = scan_text(
        tmp_path,
        "image,label,split,xmin,ymin,xmax,ymax\n1.png,a,train,1,2,3,4\n1.png,a,val,1,2,3,5\n",
    )
    assert found.splits == ("train",)
    assert annotation_reasons(found) == {
        "list.csv, line 3": "the split is 'val', and 'train' in list.csv, line 2, of the same "
        "picture"
    }


def test_the_class_of_a_box_must_be_given(tmp_path):
    """A box of another class is a reject; its picture is kept."""
    options = SourceOptions(classes=("b",))
    text = "image,label,xmin,ymin,xmax,ymax\n1.png,a,1,2,3,4\n"
    found = scan_text(tmp_path, text, options=options)
    assert boxes(found) == {"1.png": []}
    assert annotation_reasons(found) == {"list.csv, line 2": "class 'a' is not one of --classes"}
