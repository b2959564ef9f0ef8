"""Pascal VOC: which XML belongs to which picture, what it says, splits, origin and masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from packer.errors import SourceError
from packer.items.annotations import Annotations, object_fields, unpack_annotations
from packer.items.raw_item import Reject, Scan
from packer.sources import voc
from packer.sources.source import SourceOptions
from packer.sources.splits import split_field
from packer.sources.voc.masks import VOC_CLASSES, voc_colors
from readers.store.schema import Field


def box(*sides: object) -> str:
    tags = ("xmin", "ymin", "xmax", "ymax")
    inner = "".join(f"<{tag}>{side}</{tag}>" for tag, side in zip(tags, sides, strict=True))
    return f"<bndbox>{inner}</bndbox>"


def thing(name: str, *sides: object, more: str = "") -> str:
    return f"<object><name>{name}</name>{more}{box(*sides)}</object>"


CUP = thing("cup", 5, 6, 7, 8)


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    """Files by name: XML of the objects given, or whatever bytes; pictures are of one byte."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".xml") and isinstance(content, str):
            content = f"<annotation>{content}</annotation>"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def scan(root: Path, **options: Any) -> Scan:
    """A scan, in which every picture of the tree is accounted for exactly once."""
    found = voc.scan(root, SourceOptions(**options))
    used = {item.key.decode() for item in found.items}
    used |= {mask.path.decode() for item in found.items for mask in item.masks.values()}
    rejected = {reject.key.decode() for reject in found.rejects if reject.key}
    pictures = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.suffix in (".jpg", ".png")
    }
    assert not used & rejected
    reasons = (voc.MASK_FILE, voc.UNUSED_MASK, voc.NOT_LISTED, voc.NO_MASK, voc.NO_PICTURE_HERE)
    ignored = sum(found.ignored.counts.get(reason, 0) for reason in reasons)
    assert len(pictures) == len(used) + len(rejected) + ignored
    return found


def annotations(found: Scan) -> dict[str, Annotations]:
    return {item.key.decode(): unpack_annotations(item.annotations) for item in found.items}


def boxes(found: Scan) -> dict[str, list[tuple[str, tuple[float, ...]]]]:
    """Class and box of each object, by key."""
    return {
        key: [(found.classes[o.label], o.box or ()) for o in packed.objects]
        for key, packed in annotations(found).items()
    }


def splits(found: Scan) -> dict[str, str]:
    return {item.key.decode(): found.splits[item.values["split"]] for item in found.items}


# --- pairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("xml", "picture"),
    [
        ("1.xml", "1.jpg"),
        ("a/b/1.xml", "a/b/1.png"),
        ("Annotations/1.xml", "JPEGImages/1.jpg"),
        ("VOCdevkit/VOC2007/Annotations/1.xml", "VOCdevkit/VOC2007/JPEGImages/1.jpg"),
        ("annotations/xmls/1.xml", "images/1.jpg"),
        ("annotations/train/1.xml", "images/train/1.jpg"),
        ("train/annotations/1.xml", "train/images/1.jpg"),
        ("annotations/train/1.xml", "train/1.jpg"),
        ("Annotations/1.xml", "1.jpg"),
        ("boxes/1.xml", "camera/1.jpg"),
        ("Annotations/1.jpg.xml", "JPEGImages/1.jpg"),
    ],
)
def test_an_xml_file_belongs_to_the_picture_of_its_name(tmp_path, xml, picture):
    """Beside it, or in the partner of its folder; the key is the path of the picture."""
    found = scan(write(tmp_path, {xml: CUP, picture: b"x"}))
    assert boxes(found) == {picture: [("cup", (4, 5, 7, 8))]}
    assert annotations(found)[picture].objects[0].place == f"{xml}, object 1"
    assert (found.rejects, found.annotation_rejects, found.ignored.total) == ([], [], 0)


def test_the_nearest_partner_has_the_picture(tmp_path):
    """A folder further up may have pictures of the same names."""
    files = {"v/Annotations/1.xml": CUP, "v/images/1.jpg": "x", "images/1.jpg": "x"}
    found = scan(write(tmp_path, files))
    assert boxes(found) == {"v/images/1.jpg": [("cup", (4, 5, 7, 8))]}
    assert found.rejects == []


def test_years_of_a_devkit_do_not_mix(tmp_path):
    """The same name in two years is two pictures with their own boxes and their own split."""
    files: dict[str, str | bytes] = {}
    for number, (year, split) in enumerate((("VOC2007", "train"), ("VOC2012", "val")), 1):
        files |= {
            f"{year}/JPEGImages/1.jpg": b"x",
            f"{year}/Annotations/1.xml": thing("cup", number, 2, 8, 9),
            f"{year}/ImageSets/Main/{split}.txt": "1\n",
        }
    found = scan(write(tmp_path, files))
    assert boxes(found) == {
        "VOC2007/JPEGImages/1.jpg": [("cup", (0, 1, 8, 9))],
        "VOC2012/JPEGImages/1.jpg": [("cup", (1, 1, 8, 9))],
    }
    assert splits(found) == {
        "VOC2007/JPEGImages/1.jpg": "train",
        "VOC2012/JPEGImages/1.jpg": "val",
    }


def test_the_filename_in_the_file_is_only_worth_a_note(tmp_path):
    """It lies: copied files and renamed pictures keep an old one."""
    files = {
        "1.xml": "<filename>2.png</filename>" + CUP,
        "1.png": b"x",
        "2.xml": "<filename>2.png</filename>" + thing("bat", 2, 2, 3, 3),
        "2.png": b"x",
    }
    found = scan(write(tmp_path, files))
    assert boxes(found) == {"1.png": [("cup", (4, 5, 7, 8))], "2.png": [("bat", (1, 1, 3, 3))]}
    assert [note for note in found.notes if "<filename>" in note] == [
        "1 XML file with another picture in <filename>, which is not used; the first is 1.xml"
    ]


def test_pictures_without_a_file_have_no_objects_and_are_counted(tmp_path):
    """As have those whose file has none; only where others have a file."""
    files = {
        "a/1.xml": CUP, "a/1.jpg": b"x", "a/2.jpg": b"x", "a/3.xml": "", "a/3.jpg": b"x",
        "b/4.jpg": b"x",
    }  # fmt: skip
    found = scan(write(tmp_path, files))
    assert boxes(found) == {"a/1.jpg": [("cup", (4, 5, 7, 8))], "a/2.jpg": [], "a/3.jpg": []}
    assert "1 picture without an XML file: packed as pictures without objects" in found.notes
    assert found.ignored.counts == {voc.NO_PICTURE_HERE: 1}
    assert any("not packed, lies in a folder where" in note for note in found.notes)


def test_a_file_without_a_picture_is_rejected_with_its_objects(tmp_path):
    """The reason says what was expected and where it was looked for."""
    files = {"A/1.xml": CUP, "A/2.xml": CUP + CUP, "images/1.jpg": b"x", "A/other.xml": b"<x/>"}
    found = scan(write(tmp_path, files))
    reason = (
        "annotations of 2 objects without a picture: expected 2.jpg, .png or the like; looked in "
        "'A/', 'images/'"
    )
    assert found.rejects == [Reject(key=b"", path="A/2.xml", reason=reason)]
    assert found.ignored.counts == {voc.OTHER_XML: 1}


def test_two_pictures_or_two_files_of_a_name_are_rejected(tmp_path):
    """Which one is meant cannot be known, so neither is packed."""
    files = {
        "1.xml": CUP, "1.jpg": b"x", "1.png": b"x", "2.xml": CUP, "2.jpg": b"x",
        "v/images/3.jpg": b"x", "v/images/3.xml": CUP, "v/labels/3.xml": CUP,
    }  # fmt: skip
    found = scan(write(tmp_path, files))
    assert list(boxes(found)) == ["2.jpg"]
    both = "several pictures fit: 1.jpg, 1.png; expected one. Rename one of them"
    assert found.rejects == [
        Reject(key=b"1.jpg", path="1.jpg", reason=f"of its annotations 1.xml, {both}"),
        Reject(key=b"1.png", path="1.png", reason=f"of its annotations 1.xml, {both}"),
        Reject(
            key=b"v/images/3.jpg",
            path="v/images/3.jpg",
            reason="several annotation files fit: 'v/images/3.xml', 'v/labels/3.xml'; expected "
            "one. Move the others away",
        ),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<annotation>", "not well-formed XML"),
        (b"", "the file is empty"),
        (b"<!DOCTYPE a><annotation/>", "<!DOCTYPE"),
        (b"<annotations/>", "the root element is <annotations>, expected <annotation>"),
        (b"<annotation>\xff</annotation>", "not UTF-8"),
    ],
)
def test_a_picture_whose_file_cannot_be_read_is_rejected(tmp_path, content, reason):
    """It is not taken for a picture without objects."""
    files = {"1.xml": content, "1.jpg": b"x", "2.xml": CUP, "2.jpg": b"x"}
    found = scan(write(tmp_path, files))
    assert list(boxes(found)) == ["2.jpg"]
    assert [(r.key, r.path) for r in found.rejects] == [(b"1.jpg", "1.xml")]
    assert reason in found.rejects[0].reason


def test_no_pair_at_all_is_an_error_that_says_where_it_looked(tmp_path):
    """A set of backgrounds by mistake would be worse."""
    write(tmp_path, {"Annotations/7.xml": CUP, "pics/8.jpg": b"x"})
    with pytest.raises(SourceError, match=r"looked in 'Annotations/', 'pics/'.*7\.jpg, \.png"):
        voc.scan(tmp_path, SourceOptions())
    with pytest.raises(SourceError, match="0 XML files and no picture"):
        voc.scan(write(tmp_path / "pics", {}), SourceOptions())


# --- objects --------------------------------------------------------------------------------------


def test_only_the_box_of_the_object_itself_counts(tmp_path):
    """Boxes of parts stand before and after it, and are none of it."""
    part = "<part><name>{}</name>{}</part>"
    person = (
        "<object><name>person</name>"
        + part.format("head", box(15, 3, 25, 12))
        + box(5, 3, 40, 46)
        + part.format("foot", box(30, 40, 40, 46))
        + "<actions><walking>1</walking></actions></object>"
    )
    found = scan(write(tmp_path, {"1.xml": person, "1.png": b"x"}))
    assert found.classes == ("person",)
    assert boxes(found) == {"1.png": [("person", (4, 2, 40, 46))]}
    assert "2 <part>s inside of objects: no objects, not packed" in found.notes
    assert "<actions> of 1 object: not packed" in found.notes


def test_flags_and_attributes_are_kept_as_far_as_the_file_has_them(tmp_path):
    """Missing flags are false; an unspecified pose is none; an odd flag is kept as text."""
    flags = [
        "",
        "<difficult>1</difficult><truncated>0</truncated><pose>Unspecified</pose>",
        "<truncated>1</truncated><pose>Left</pose><occluded>0</occluded>",
        "<difficult>maybe</difficult><occluded>1</occluded>",
        "<occluded>Unspecified</occluded>",
    ]
    inner = "".join(thing("cup", 2, 2, 9, 9 + n, more=more) for n, more in enumerate(flags))
    found = scan(write(tmp_path, {"1.xml": inner, "1.png": b"x"}))
    assert [
        (o.difficult, o.truncated, o.attributes) for o in annotations(found)["1.png"].objects
    ] == [
        (False, False, {}),
        (True, False, {}),
        (False, True, {"pose": "Left", "occluded": False}),
        (False, False, {"difficult": "maybe", "occluded": True}),
        (False, False, {}),
    ]
    names = ("boxes", "labels", "difficult", "truncated", "attributes")
    assert found.fields == object_fields(("cup",), names)


def test_without_any_attribute_there_is_no_such_field(tmp_path):
    """A field that is empty in every sample would only take room."""
    found = scan(write(tmp_path, {"1.xml": CUP, "1.png": b"x"}))
    assert found.fields == object_fields(("cup",), ("boxes", "labels", "difficult", "truncated"))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("<object>" + box(1, 2, 3, 4) + "</object>", "no class: <name> is missing or empty"),
        ("<object><name> </name>" + box(1, 2, 3, 4) + "</object>", "no class: <name> is missing"),
        (
            "<object><name>a</name><robndbox/></object>",
            "<cx> is missing, expected a number",
        ),
        (
            "<object><name>a</name><pose>Left</pose></object>",
            "no box: found <name>, <pose>; expected <bndbox>, <robndbox> or <polygon>",
        ),
        (thing("a", 1, "x", 3, 4), "<ymin> is 'x', expected a number"),
        (thing("a", 1, 2, "nan", 4), "<xmax> is 'nan', expected a number"),
        (thing("a", 1, 2, 3, "inf"), "<ymax> is 'inf', expected a number"),
        (thing("a", "1_0", 2, 3, 4), "<xmin> is '1_0', expected a number"),
        (
            "<object><name>a</name><bndbox><xmin>1</xmin></bndbox></object>",
            "<ymin> is missing, expected a number",
        ),
    ],
)
def test_an_object_that_cannot_be_read_is_rejected_alone(tmp_path, bad, reason):
    """With the file and the number of the object; the others of the picture stay."""
    found = scan(write(tmp_path, {"1.xml": CUP + bad, "1.png": b"x"}))
    assert boxes(found) == {"1.png": [("cup", (4, 5, 7, 8))]}
    (reject,) = found.annotation_rejects
    assert (reject.key, reject.path) == (b"1.png", "1.xml, object 2")
    assert reason in reject.reason


def test_sizes_that_say_nothing_are_none(tmp_path):
    """Then the picture's own size counts, and a note says for how many."""
    size = "<size><width>{}</width><height>{}</height></size>"
    values = [("40", "30"), ("0", "0"), ("", "9"), ("x", "3"), ("1e99", "3"), ("40.0", "30.0")]
    files: dict[str, str | bytes] = {"6.xml": CUP, "6.png": b"x"}
    for number, (width, height) in enumerate(values):
        files[f"{number}.xml"] = size.format(width, height) + CUP
        files[f"{number}.png"] = b"x"
    found = scan(write(tmp_path, files))
    assert [packed.size for packed in annotations(found).values()] == [
        (40, 30), None, None, None, None, (40, 30), None,
    ]  # fmt: skip
    assert any(note.startswith("5 XML files without the size") for note in found.notes)


def test_classes_are_sorted_by_code_point_or_as_given(tmp_path):
    """With given ones, an object of another class is rejected and named."""
    inner = "".join(thing(name, 2, 2, 5, 5) for name in ("caf\u00e9", "b", "10", "2", "B"))
    found = scan(write(tmp_path, {"1.xml": inner, "1.png": b"x"}))
    assert found.classes == ("10", "2", "B", "b", "caf\u00e9")
    assert [name for name, _ in boxes(found)["1.png"]] == ["caf\u00e9", "b", "10", "2", "B"]
    given = scan(tmp_path, classes=("b", "B", "none", "2", "10"))
    assert [name for name, _ in boxes(given)["1.png"]] == ["b", "10", "2", "B"]
    assert [(r.path, r.reason) for r in given.annotation_rejects] == [
        ("1.xml, object 1", "class 'caf\u00e9' is not one of --classes")
    ]


# --- origin ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sides", "origin"),
    [
        ((1, 1, 40, 30), 1),
        ((9.0, 5.5, 28.0, 25.7), 1),
        ((0, 3, 9, 9), 0),
        ((3, 0, 9, 9), 0),
        ((0.5, 3, 9, 9), 0),
        ((-2, 0, 9, 9), 0),
        ((-2, 3, 9, 9), 1),
        ((0, 0, 0, 0), 1),
        ((0, 5, 9, 5), 1),
    ],
)
def test_a_box_that_begins_in_the_first_pixel_proves_that_it_is_called_0(tmp_path, sides, origin):
    """Otherwise the official rule holds. A box without an area is not a proof, nor one below 0."""
    found = scan(write(tmp_path, {"1.xml": CUP + thing("cup", *sides), "1.png": b"x"}))
    assert found.choices == {"voc_origin": str(origin)}
    x0, y0, x1, y1 = sides
    assert [b for _, b in boxes(found)["1.png"]] == [
        (5 - origin, 6 - origin, 7, 8),
        (x0 - origin, y0 - origin, x1, y1),
    ]


def test_the_origin_is_one_for_all_the_data_and_is_said(tmp_path):
    """One proof in one file decides for every file, with the counts that speak for it."""
    files = {"1.xml": thing("cup", 0, 3, 9, 9) + CUP, "1.png": b"x", "2.xml": CUP, "2.png": b"x"}
    found = scan(write(tmp_path, files))
    assert boxes(found)["2.png"] == [("cup", (5, 6, 7, 8))]
    assert found.notes[0] == (
        "VOC origin 0: 1 of 3 boxes begin in [0, 1), which is outside of the picture when counted "
        "from 1 (first: 1.xml, object 1); coordinates taken as written"
    )


def test_a_given_origin_is_taken_and_a_proof_against_it_is_said(tmp_path):
    """The user's word counts."""
    write(tmp_path, {"1.xml": thing("cup", 0, 3, 9, 9), "1.png": b"x"})
    one = scan(tmp_path, voc_origin="1")
    assert boxes(one) == {"1.png": [("cup", (-1, 2, 9, 9))]}
    assert one.choices == {"voc_origin": "1"}
    assert "But 1 of 1 box begin in [0, 1)" in one.notes[0]
    write(tmp_path, {"1.xml": thing("cup", 1, 3, 9, 9)})
    zero = scan(tmp_path, voc_origin="0")
    assert boxes(zero) == {"1.png": [("cup", (1, 3, 9, 9))]}
    assert "VOC origin 0, as given" in zero.notes[0]
    assert "0 at 1" not in scan(tmp_path).notes[0]
    assert "But" not in scan(tmp_path, voc_origin="1").notes[0]


def test_a_box_of_one_pixel_is_kept_and_said(tmp_path):
    """Counted from 1, xmin = xmax is a pixel; it may also be a slip of the hand."""
    found = scan(write(tmp_path, {"1.xml": thing("cup", 5, 6, 5, 6), "1.png": b"x"}))
    assert boxes(found) == {"1.png": [("cup", (4, 5, 5, 6))]}
    assert any("1 box covers a single pixel" in n and "1.xml, object 1" in n for n in found.notes)
    assert not any("single pixel" in note for note in scan(tmp_path, voc_origin="0").notes)


# --- splits ---------------------------------------------------------------------------------------


def write_listed(root: Path, lists: dict[str, str], count: int = 4) -> Path:
    files: dict[str, str | bytes] = {f"ImageSets/{name}": text for name, text in lists.items()}
    for number in range(1, count + 1):
        files[f"JPEGImages/{number}.jpg"] = b"x"
        files[f"Annotations/{number}.xml"] = CUP
    return write(root, files)


def test_lists_named_by_split_give_the_splits(tmp_path):
    """Those of classes do not, and a list of a union counts only for what no finer one names."""
    lists = {
        "Main/train.txt": "1\n",
        "Main/val.txt": "2 \r\n\r\n",
        "Main/trainval.txt": "1\n2\n4\n",
        "Main/test.txt": "3",
        "Main/cup_train.txt": "1  1\n4 -1\n",
        "Layout/train.txt": "4\n",
    }
    found = scan(write_listed(tmp_path, lists))
    assert found.splits == ("train", "val", "test", "trainval")
    assert list(splits(found).values()) == ["train", "val", "test", "trainval"]
    assert found.fields[-1] == split_field(found.splits)
    assert found.ignored.counts == {voc.UNREAD_LIST: 2}
    assert not any("also in" in note for note in found.notes)


def test_a_picture_in_no_list_is_ignored_with_its_file(tmp_path):
    """Its classes do not count either, and a note says how many there are."""
    write_listed(tmp_path, {"Main/train.txt": "1\n2.jpg\nVOC\\JPEGImages\\3\n"})
    write(tmp_path, {"Annotations/4.xml": thing("zebra", 2, 2, 5, 5), "readme.txt": "x"})
    found = scan(tmp_path)
    assert list(splits(found)) == ["JPEGImages/1.jpg", "JPEGImages/2.jpg", "JPEGImages/3.jpg"]
    assert found.classes == ("cup",)
    assert found.ignored.counts == {voc.NOT_LISTED: 1, voc.UNUSED_XML: 1, "not a picture": 1}
    assert any(note.startswith("1 picture not packed, in no ImageSets") for note in found.notes)


def test_a_listed_picture_that_is_not_there_is_rejected_once(tmp_path):
    """At the line of its list; or at its XML file, when that is there."""
    write_listed(tmp_path, {"Main/train.txt": "1\n\nnone\n", "Main/trainval.txt": "none\n9\n"})
    write(tmp_path, {"Annotations/9.xml": CUP})
    found = scan(tmp_path)
    assert [(r.path, r.reason) for r in found.rejects] == [
        (
            "Annotations/9.xml",
            "annotations of 1 object without a picture: expected 9.jpg, .png or the like; looked "
            "in 'Annotations/', 'JPEGImages/'",
        ),
        (
            "ImageSets/Main/train.txt, line 3",
            "no picture named none lies in this folder, expected one",
        ),
    ]


def test_a_picture_in_two_splits_is_packed_once_and_said(tmp_path):
    """Train before val before test: nothing of training is ever evaluated."""
    lists = {"Main/val.txt": "1\n2\n", "Main/train.txt": "1\n", "Main/test.txt": "2\n3\n4\n"}
    found = scan(write_listed(tmp_path, lists))
    assert list(splits(found).values()) == ["train", "val", "test", "test"]
    assert "ImageSets/Main: 1 picture of val also in train, taken for train" in found.notes
    assert "ImageSets/Main: 1 picture of test also in val, taken for val" in found.notes


def test_a_background_that_a_list_names_is_packed(tmp_path):
    """A picture needs no XML file for that."""
    write_listed(tmp_path, {"Main/train.txt": "1\n5\n"}, count=1)
    found = scan(write(tmp_path, {"JPEGImages/5.jpg": b"x"}))
    assert boxes(found)["JPEGImages/5.jpg"] == []


def test_folders_give_the_splits_where_there_are_no_lists(tmp_path):
    """All of them, or none: a folder may be called test for another reason."""
    files = {"train/1.jpg": b"x", "train/1.xml": CUP, "valid/2.jpg": b"x", "valid/2.xml": CUP}
    found = scan(write(tmp_path, files))
    assert splits(found) == {"train/1.jpg": "train", "valid/2.jpg": "valid"}
    found = scan(write(tmp_path, {"more/3.jpg": b"x", "more/3.xml": CUP}))
    assert found.splits == ()
    assert found.items[0].values == {}


def test_lists_that_name_nothing_here_are_an_error(tmp_path):
    """It says what they name."""
    write(tmp_path, {"a/JPEGImages/1.jpg": b"x", "a/Annotations/1.xml": CUP})
    write(tmp_path, {"a/ImageSets/Main/train.txt": "00001\n"})
    with pytest.raises(SourceError, match=r"none is in an ImageSets list.*train.txt, line 1"):
        voc.scan(tmp_path, SourceOptions())


# --- masks ----------------------------------------------------------------------------------------


def write_masks(root: Path, name: str = "cat") -> Path:
    return write(
        root,
        {
            "JPEGImages/1.jpg": b"x",
            "JPEGImages/2.jpg": b"x",
            "Annotations/1.xml": thing(name, 2, 2, 5, 5),
            "Annotations/2.xml": thing(name, 2, 2, 5, 5),
            "SegmentationClass/1.png": b"mask",
            "SegmentationObject/1.png": b"x",
            "ImageSets/Main/train.txt": "1\n2\n",
            "ImageSets/Segmentation/val.txt": "1\n",
        },
    )


def test_masks_are_left_aside_unless_asked_for_and_a_note_says_how(tmp_path):
    """Every sample has a value in every field, and only some pictures have a mask."""
    found = scan(write_masks(tmp_path))
    assert list(splits(found).values()) == ["train", "train"]
    assert [item.masks for item in found.items] == [{}, {}]
    assert found.mask_colors == ()
    assert found.ignored.counts == {voc.MASK_FILE: 2, voc.UNREAD_LIST: 1}
    assert any("Give --task segment" in note for note in found.notes)


def test_segment_takes_the_pictures_with_masks_and_their_lists(tmp_path):
    """With boxes beside, official names of the values, and the colours that VOC draws them in."""
    found = scan(write_masks(tmp_path), task="segment")
    assert splits(found) == {"JPEGImages/1.jpg": "val"}
    (mask,) = found.items[0].masks.values()
    status = (tmp_path / "SegmentationClass/1.png").stat()
    assert (mask.path, mask.byte_count) == (b"SegmentationClass/1.png", 4)
    assert mask.mtime_ns == status.st_mtime_ns
    assert found.fields == (
        *object_fields(("cat",), ("boxes", "labels", "difficult", "truncated")),
        Field(
            name="mask",
            kind="mask",
            dtype="uint8",
            shape=(None, None),
            names=VOC_CLASSES,
            ignore=255,
        ),
        split_field(("val",)),
    )
    assert found.mask_colors[:4] == ((0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0))
    assert boxes(found) == {"JPEGImages/1.jpg": [("cat", (1, 1, 5, 5))]}
    assert found.ignored.counts[voc.NOT_LISTED] == 1


def test_masks_alone_need_no_xml(tmp_path):
    """Then there are no boxes, rather than pictures that claim to be empty."""
    files = {f"{folder}/{n}" for folder in ("JPEGImages", "SegmentationClass") for n in ("1.png",)}
    write(tmp_path, {**dict.fromkeys(files, b"x"), "JPEGImages/2.png": b"x"})
    found = scan(tmp_path, task="segment")
    assert [field.name for field in found.fields] == ["mask"]
    assert [(item.key, item.annotations) for item in found.items] == [(b"JPEGImages/1.png", b"")]
    assert found.ignored.counts == {voc.NO_MASK: 1}
    assert found.choices == {}


def test_boxes_are_left_aside_unless_every_picture_with_a_mask_has_a_file(tmp_path):
    """Those without would claim to be empty; masks of pictures that are not listed are ignored."""
    write_masks(tmp_path)
    more = {"JPEGImages/3.jpg": "x", "SegmentationClass/3.png": "x", "SegmentationClass/2.png": "x"}
    write(tmp_path, {**more, "ImageSets/Segmentation/train.txt": "3\n"})
    found = scan(tmp_path, task="segment")
    assert [item.annotations for item in found.items] == [b"", b""]
    assert [field.name for field in found.fields] == ["mask", "split"]
    assert (found.classes, found.annotation_rejects) == ((), [])
    assert any(note.startswith("boxes left aside") for note in found.notes)
    assert found.ignored.counts[voc.UNUSED_MASK] == 1


def test_values_of_other_classes_have_the_names_of_the_label_map_or_none(tmp_path):
    """Official names would be wrong ones."""
    found = scan(write_masks(tmp_path, "zebra"), task="segment")
    assert {field.name: field.names for field in found.fields}["mask"] is None
    assert found.mask_colors == voc_colors()
    write(tmp_path, {"labelmap.txt": "# label:color\nbackground:0,0,0::\nzebra:7,8,9:a,b:c\n"})
    mapped = scan(tmp_path, task="segment")
    assert {field.name: field.names for field in mapped.fields}["mask"] == ("background", "zebra")
    assert mapped.mask_colors == ((0, 0, 0), (7, 8, 9))
    assert "not a picture" not in mapped.ignored.counts
    assert scan(tmp_path).ignored.counts["not a picture"] == 1
    write(tmp_path, {"labelmap.txt": "zebra:7,8\n"})
    with pytest.raises(SourceError, match=r"labelmap\.txt, line 1"):
        scan(tmp_path, task="segment")


def test_the_colours_are_those_of_the_devkit():
    """Known ones, at both ends."""
    colors = voc_colors()
    assert len(set(colors)) == 256
    assert (colors[15], colors[20], colors[255]) == ((192, 128, 128), (0, 64, 128), (224, 224, 192))


def test_segment_without_a_mask_is_an_error(tmp_path):
    """Rather than a store of boxes that nobody asked for."""
    write(tmp_path, {"1.xml": CUP, "1.png": b"x"})
    with pytest.raises(SourceError, match="no picture has a mask; expected SegmentationClass/"):
        voc.scan(tmp_path, SourceOptions(task="segment"))
