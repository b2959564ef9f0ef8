"""Pictures and their masks must be joined by name, and masks be read for what they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer import build
from packer.errors import SourceError
from packer.files.masks import read_mask
from packer.items.raw_item import Scan
from packer.sources import scan_source
from packer.sources.masks import mask_pairs
from packer.sources.masks.names import role_of, stems_of_mask, stems_of_picture
from packer.sources.source import SourceOptions

SMALL = np.array([[0, 1], [2, 2]], np.uint8)
COLORS = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0]], np.uint8)
LABEL_MAP = "sky:0,0,0::\nroad:128,0,0::\ntree:0,128,0::\n"


def drawn(root: Path, files: Mapping[str, Any]) -> Path:
    """Arrays become pictures, text becomes text, and None a gray picture of two by two."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content)
        else:
            pixels = np.full((2, 2, 3), 90, np.uint8) if content is None else content
            Image.fromarray(pixels).save(path)
    return root


def scanned(root: Path, files: Mapping[str, Any], **options: Any) -> Scan:
    return mask_pairs.scan(drawn(root, files), SourceOptions(**options))


def pairs(scan: Scan) -> list[tuple[str, str]]:
    return [(item.key.decode(), item.masks["mask"].path.decode()) for item in scan.items]


def rejects(scan: Scan) -> dict[str, str]:
    return {reject.path: reject.reason for reject in scan.rejects}


def split_names(scan: Scan) -> list[str]:
    return [scan.splits[item.values["split"]] for item in scan.items]


# Names.


@pytest.mark.parametrize(
    ("picture", "mask"),
    [
        ("images/a.jpg", "masks/a.png"),
        ("imgs/a.jpg", "Labels/a.png"),
        ("JPEGImages/a.jpg", "SegmentationClass/a.png"),
        ("images/a.jpg", "annotations/trimaps/a.png"),
        ("img_dir/a.jpg", "ann_dir/a.png"),
        ("images/x/y/a.jpg", "masks/x/y/a.png"),
        ("set/images/a.jpg", "set/masks/a.png"),
        ("train_images/a.jpg", "train_masks/a.png"),
        ("images_prepped/a.png", "annotations_prepped/a.png"),
        ("a.jpg", "masks/a.png"),
        ("faces/a.jpg", "faces_mask/a.png"),
        ("images/a.jpg", "labels/a_P.png"),
        ("images/a.jpg", "masks/a.jpg.png"),
        ("images/a.b.jpg", "masks/a.b_mask.png"),
        ("images/img_7.jpg", "masks/mask_7.png"),
        ("images/a.jpg", "gt/gt_a.png"),
        ("a.jpg", "a_mask.png"),
        ("a.png", "a-gt.png"),
        ("x/a.jpg", "x/gt_a.png"),
        ("a_sat.jpg", "a_mask.png"),
        ("a (1).png", "a (1)_mask.png"),
        ("a.jpg", "a.png"),
        ("images/cafe\u0301.jpg", "masks/caf\u00e9.png"),
        ("training/image_2/a.png", "training/semantic/a.png"),
        ("images/a.png", "instances/a.png"),
        ("images/a.png", "ground-truth/a.png"),
        ("imagesTr/a_0000.png", "labelsTr/a.png"),
        ("Dataset1/imagesTs/a-1_0000.tif", "Dataset1/labelsTs/a-1.tif"),
    ],
)
def test_a_mask_is_found_by_its_folder_and_name(picture, mask, tmp_path):
    """Every common way of placing and naming masks, one pair each."""
    scan = scanned(tmp_path, {picture: None, mask: SMALL})
    assert pairs(scan) == [(picture, mask)]
    assert (scan.rejects, scan.annotation_rejects, scan.ignored.total) == ([], [], 0)
    assert scan.fields[0].kind == "mask"
    file = scan.items[0].masks["mask"]
    status = (tmp_path / mask).stat()
    assert (file.byte_count, file.mtime_ns) == (status.st_size, status.st_mtime_ns)


def test_pairs_are_never_made_by_position(tmp_path):
    """One missing mask must not shift the others; 10 sorts before 2 and belongs to 10."""
    files = {f"imgs/{n}.jpg": None for n in (1, 2, 10)}
    masks = {f"masks/{n}.png": np.full((2, 2), n, np.uint8) for n in (1, 10, 11)}
    scan = scanned(tmp_path, files | masks)
    assert pairs(scan) == [("imgs/1.jpg", "masks/1.png"), ("imgs/10.jpg", "masks/10.png")]
    assert rejects(scan) == {"imgs/2.jpg": "no mask of this name"}
    assert [(each.path, each.key) for each in scan.annotation_rejects] == [("masks/11.png", b"")]
    assert "looked in imgs/" in scan.annotation_rejects[0].reason


def test_a_mask_of_two_pictures_and_two_masks_of_a_picture_are_rejected(tmp_path):
    """Where it is not clear which belongs to which, nothing is chosen."""
    files = {
        "images/a.jpg": None,
        "images/a.png": None,
        "images/b.jpg": None,
        "images/c.jpg": None,
        "masks/a.png": SMALL,
        "masks/b.png": SMALL,
        "masks/b_mask.png": SMALL,
        "masks/c.png": SMALL,
    }
    scan = scanned(tmp_path, files)
    assert pairs(scan) == [("images/c.jpg", "masks/c.png")]
    found = rejects(scan)
    assert sorted(found) == ["images/a.jpg", "images/a.png", "images/b.jpg"]
    assert "masks/a.png fits other pictures too" in found["images/a.jpg"]
    assert "2 masks fit: masks/b.png, masks/b_mask.png" in found["images/b.jpg"]
    assert [each.path for each in scan.annotation_rejects] == ["masks/a.png"]
    assert "images/a.jpg, images/a.png" in scan.annotation_rejects[0].reason


def test_a_second_mask_with_a_number_is_not_left_out(tmp_path):
    """`a_mask_1` beside `a_mask` holds a part of the truth: the picture is rejected by name."""
    files = {"a.png": None, "a_mask.png": SMALL, "a_mask_1.png": SMALL}
    files |= {"b.png": None, "b_mask.png": SMALL}
    scan = scanned(tmp_path, files)
    assert pairs(scan) == [("b.png", "b_mask.png")]
    assert "2 masks fit: a_mask.png, a_mask_1.png" in rejects(scan)["a.png"]


def test_a_mask_named_like_a_jpeg_rejects_its_picture(tmp_path):
    """JPEG changes the values of a mask, so that it holds classes that nobody drew."""
    files = {"images/a.jpg": None, "masks/a.JPG": SMALL, "images/b.jpg": None, "masks/b.png": SMALL}
    scan = scanned(tmp_path, files)
    assert pairs(scan) == [("images/b.jpg", "masks/b.png")]
    assert "masks/a.JPG is a JPEG" in rejects(scan)["images/a.jpg"]


def test_pictures_that_no_masks_are_meant_for_are_ignored_by_reason(tmp_path):
    """A test set without masks, and strays beside the folder of pictures, are counted and noted."""
    files = {"train/images/a.jpg": None, "train/masks/a.png": SMALL, "test/images/b.jpg": None}
    scan = scanned(tmp_path / "x", files | {"train/c.jpg": None, "readme.txt": "words"})
    assert pairs(scan) == [("train/images/a.jpg", "train/masks/a.png")]
    assert scan.rejects == []
    assert scan.ignored.examples == {
        mask_pairs.WITHOUT_MASKS: ["test/images/b.jpg"],
        mask_pairs.BESIDE_PICTURES: ["train/c.jpg"],
        "not a picture": ["readme.txt"],
    }
    assert any("test/images/b.jpg" in note for note in scan.notes)


@pytest.mark.parametrize(
    ("train", "valid"),
    [
        (("train/images/a.png", "train/masks/a.png"), ("valid/images/b.png", "valid/masks/b.png")),
        (("images/train/a.png", "masks/train/a.png"), ("images/valid/b.png", "masks/valid/b.png")),
        (("train/a.png", "trainannot/a.png"), ("valid/b.png", "validannot/b.png")),
        (("train/a.jpg", "train/a_mask.png"), ("valid/b.jpg", "valid/b_mask.png")),
        (("x/train/a.png", "x/train_labels/a.png"), ("x/valid/b.png", "x/valid_labels/b.png")),
    ],
)
def test_folders_of_splits_are_splits_in_every_layout(train, valid, tmp_path):
    """The split is the folder's, whether it lies above or below that of pictures and masks."""
    scan = scanned(tmp_path, {train[0]: None, valid[0]: None, train[1]: SMALL, valid[1]: SMALL})
    assert sorted(pairs(scan)) == sorted([train, valid])
    assert scan.splits == ("train", "valid")
    assert [item.values["split"] for item in scan.items] == [0, 1]
    assert [each.name for each in scan.fields] == ["mask", "split"]


def test_folders_that_are_not_all_splits_are_none(tmp_path):
    """A folder may be called test without being a split."""
    files = {"images/test/a.png": None, "masks/test/a.png": SMALL}
    scan = scanned(tmp_path, files | {"images/city/b.png": None, "masks/city/b.png": SMALL})
    assert scan.splits == ()
    assert [item.values for item in scan.items] == [{}, {}]


def test_nothing_paired_says_what_was_found_and_expected(tmp_path):
    """A folder of class folders, or of defects alone, is not read as pairs of masks."""
    with pytest.raises(SourceError) as caught:
        scanned(tmp_path, {"test/crack/0.png": None, "ground_truth/crack/0_mask.png": SMALL})
    for part in ("test/crack/0.png", "ground_truth/crack/0_mask.png", "--format imagefolder"):
        assert part in str(caught.value)


def test_the_full_ade20k_is_named(tmp_path):
    """Its colours are numbers of another kind, which no label map explains."""
    files = {"training/a.jpg": None, "training/a_seg.png": SMALL, "training/a_atr.txt": "1 # 0"}
    with pytest.raises(SourceError, match=r"a_atr\.txt is of the full ADE20K"):
        scanned(tmp_path, files)


def test_names_of_folders_and_files_say_what_they_hold():
    """The rules by themselves, with the names that must not be taken apart."""
    assert role_of(b"images/train") == (b"train", False, True)
    assert role_of(b"trainannot") == (b"train", True, False)
    assert role_of(b"a/Masks") == (b"a", True, True)
    assert role_of(b"label_1") == (b"label_1", False, False)
    assert role_of(b"") == (b"", False, False)
    assert stems_of_mask(b"a_gt_mask") == [b"a_gt", b"a"]
    assert stems_of_mask(b"a_p") == stems_of_mask(b"mask") == stems_of_mask(b"amask") == []
    assert stems_of_picture(b"a_sat") == [b"a"]


# nnU-Net.


def nnunet(labels: Any, **more: Any) -> dict[str, Any]:
    """Two cases with masks, one without, and the file that names the values."""
    files = {f"imagesTr/c-{n}_0000.png": None for n in range(2)}
    files |= {f"labelsTr/c-{n}.png": SMALL for n in range(2)}
    names = labels if isinstance(labels, str) else json.dumps({"labels": labels})
    return {**files, "imagesTs/c-7_0000.png": None, "dataset.json": names, **more}


@pytest.mark.parametrize(
    ("labels", "names", "ignore"),
    [
        ({"background": 0, "road": 1, "car": 2}, ("background", "road", "car"), None),
        ({"0": "background", "1": "road", "2": "car"}, ("background", "road", "car"), None),
        ({"background": 0, "road": "1", "ignore": 2}, ("background", "road"), 2),
        ({"road": 1, "car": 2}, ("0", "road", "car"), None),
        ({"whole": [1, 2], "core": [2]}, (), None),
    ],
)
def test_folders_of_nnunet_are_pairs_with_the_names_of_their_file(labels, names, ignore, tmp_path):
    """The suffix of a channel is no part of the name, and a test set without masks is named."""
    root = drawn(tmp_path, nnunet(labels))
    scan = scan_source(root, SourceOptions())
    assert scan.format == "mask-pairs"
    assert pairs(scan) == [(f"imagesTr/c-{n}_0000.png", f"labelsTr/c-{n}.png") for n in range(2)]
    assert (scan.classes, scan.fields[0].ignore) == (names, ignore)
    assert split_names(scan) == ["train", "train"]
    assert scan.ignored.examples == {mask_pairs.WITHOUT_MASKS: ["imagesTs/c-7_0000.png"]}
    assert any("labels are regions" in note for note in scan.notes) == (not names)
    drawn(tmp_path, {"labelsTs/c-7.png": SMALL})
    assert split_names(scan_source(root, SourceOptions())) == ["train", "train", "test"]


def test_the_report_of_masks_counts_no_samples_of_classes(tmp_path):
    """A mask has pixels of many classes: their names are told, and not that each has 0 samples."""
    root = drawn(tmp_path / "raw", nnunet({"background": 0, "road": 1, "car": 2}))
    report = build(root, tmp_path / "out.lmdb", worker_count=1)
    assert "\n3 classes: background, road, car\n" in report.summary()


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ("{", "dataset.json: not JSON"),
        ("[]", "dataset.json: found no labels"),
        ({"road": -1}, "dataset.json, label 'road': found -1; expected a whole number"),
        ({"road": 1, "car": 1}, "label 'car': found 1; .*another for each label"),
    ],
)
def test_a_file_of_names_that_says_none_is_an_error(labels, says, tmp_path):
    """Masks without the names that lie beside them would be a loss that nobody sees."""
    with pytest.raises(SourceError, match=says):
        scanned(tmp_path, nnunet(labels))


def test_channels_in_files_of_their_own_are_refused(tmp_path):
    """A sample has one picture; a second channel would be another sample of the same mask."""
    files = nnunet({"background": 0}) | {"imagesTr/c-1_0001.png": None}
    root = drawn(tmp_path, files)
    for kind in ("auto", "mask-pairs"):
        with pytest.raises(SourceError) as caught:
            scan_source(root, SourceOptions(format=kind))
        for part in ("imagesTr holds several channels", "c-1_0000.png and c-1_0001.png"):
            assert part in str(caught.value)


def test_two_folders_of_masks_of_the_same_pictures_are_told_before_the_build(tmp_path):
    """KITTI has masks of classes and of objects; nothing is chosen between them."""
    files = {f"training/{f}/{n}.png": SMALL for f in ("instance", "semantic") for n in range(3)}
    root = drawn(tmp_path, files | {f"training/image_2/{n}.png": None for n in range(3)})
    with pytest.raises(SourceError, match="training/instance and training/semantic both have a ma"):
        scan_source(root, SourceOptions())


# Lists.


def camvid(root: Path) -> dict[str, Any]:
    files: dict[str, Any] = {}
    for split, names in {"train": "ab", "val": "c"}.items():
        for letter in names:
            files[f"{split}/{letter}.png"] = None
            files[f"{split}annot/{letter}.png"] = SMALL
        files[f"{split}.txt"] = "".join(
            f"/{split}/{letter}.png /{split}annot/{letter}.png\n" for letter in reversed(names)
        )
    return files


def test_lists_of_pictures_and_masks_decide_pairs_order_and_splits(tmp_path):
    """CamVid's lists are followed line by line, although their paths begin with a slash."""
    files = camvid(tmp_path) | {"train/unlisted.png": None}
    files["trainval.txt"] = files["train.txt"] + files["val.txt"]
    scan = scanned(tmp_path, files)
    assert pairs(scan) == [
        ("train/b.png", "trainannot/b.png"),
        ("train/a.png", "trainannot/a.png"),
        ("val/c.png", "valannot/c.png"),
    ]
    assert split_names(scan) == ["train", "train", "val"]
    assert scan.ignored.examples[mask_pairs.NOT_NAMED] == ["train/unlisted.png"]
    # The same pictures again, under a name that is not a split's.
    assert scan.ignored.examples["not a picture"] == ["trainval.txt"]
    assert scan.rejects == []


def test_lists_made_on_another_machine_are_followed_from_the_last_folder(tmp_path):
    """Folders that are not here are taken off the front of a path, and a note says so."""
    files = camvid(tmp_path)
    files["train.txt"] = "/SegNet/CamVid/train/a.png, C:\\data\\trainannot\\a.png\r\n"
    scan = scanned(tmp_path, files)
    assert pairs(scan)[0] == ("train/a.png", "trainannot/a.png")
    assert any("2 paths" in note for note in scan.notes)


def test_lines_that_cannot_be_used_are_rejects_with_their_place(tmp_path):
    """Each line is stored or named."""
    files = camvid(tmp_path)
    files["train/d.png"], files["trainannot/d.jpg"] = None, SMALL
    files["train.txt"] = (
        "train/a.png trainannot/a.png\n"
        "train/a.png trainannot/a.png\n"
        "\n"
        "train/b.png\n"
        "train/nothing.png trainannot/a.png\n"
        "train/b.png trainannot/nothing.png\n"
        "train/d.png trainannot/d.jpg\n"
        "../../etc/a.png trainannot/a.png\n"
    )
    scan = scanned(tmp_path, files)
    assert [key for key, _ in pairs(scan)] == ["train/a.png", "val/c.png"]
    found = rejects(scan)
    assert list(found) == [f"train.txt, line {n}" for n in (2, 4, 5, 6, 7, 8)]
    assert "first in train.txt, line 1" in found["train.txt, line 2"]
    assert "expected the paths of a picture and of its mask" in found["train.txt, line 4"]
    assert "picture train/nothing.png is not" in found["train.txt, line 5"]
    assert "mask trainannot/nothing.png is not" in found["train.txt, line 6"]
    assert "is a JPEG" in found["train.txt, line 7"]
    assert "etc/a.png is not in the raw folder" in found["train.txt, line 8"]


# What masks hold.


def decided(
    root: Path, masks: list[Any], extra: Mapping[str, Any] | None = None, **opts: Any
) -> Scan:
    files = {f"images/{n}.jpg": None for n in range(len(masks))}
    files |= {f"masks/{n}.png": mask for n, mask in enumerate(masks)}
    return scanned(root, files | dict(extra or {}), **opts)


def ids(scan: Scan) -> list[Any]:
    """The values of each mask, as they will be stored."""
    return [
        read_mask(
            (scan.root / item.masks["mask"].path.decode()).read_bytes(),
            scan.mask_colors,
            scan.fields[0],
            1000,
        ).tolist()
        for item in scan.items
    ]


@pytest.mark.parametrize(
    ("masks", "ignore", "note"),
    [
        ([[0, 1, 2]], None, "0 to 2"),
        ([[0, 1, 255]], 255, "255 is ignored"),
        ([[0, 255], [0, 7]], 255, "255 is ignored"),
        ([[0, 255]], None, "binary"),
        ([[255, 255]], None, "binary"),
        ([[0, 0]], None, "values found in masks: 0"),
    ],
)
def test_255_is_ignored_only_beside_values_other_than_0(masks, ignore, note, tmp_path):
    """0 and 255 alone are a binary mask; values are kept as they are in any case."""
    scan = decided(tmp_path, [np.array([mask], np.uint8) for mask in masks])
    field = scan.fields[0]
    assert (field.name, field.kind, field.dtype, field.shape) == (
        *("mask", "mask", "uint8"),
        (None, None),
    )
    assert (field.ignore, field.names, scan.mask_colors, scan.classes) == (ignore, None, (), ())
    assert any(note in each for each in scan.notes)
    assert ids(scan) == [[mask] for mask in masks]
    assert scan.choices.get("mask_ignore") == (None if ignore is None else "255")


def test_masks_of_sixteen_bits_make_a_wide_field(tmp_path):
    """Values past 255 need int32, also if only one of the masks has them."""
    scan = decided(tmp_path, [SMALL, np.array([[0, 300]], np.uint16)])
    assert scan.fields[0].dtype == "int32"
    assert ids(scan) == [SMALL.tolist(), [[0, 300]]]


def test_a_palette_is_no_label_map(tmp_path):
    """VOC's masks are stored by position, whatever their colours."""
    image = Image.fromarray(SMALL).convert("P")
    image.putdata(SMALL.ravel().tolist())
    image.putpalette(COLORS.ravel().tolist())
    drawn(tmp_path, {"images/0.jpg": None, "masks/x": "not a picture"})
    image.save(tmp_path / "masks/0.png")
    scan = mask_pairs.scan(tmp_path, SourceOptions())
    assert (ids(scan), scan.mask_colors) == ([SMALL.tolist()], ())
    assert any("positions in a palette" in note for note in scan.notes)
    # A label map of the same colours in the same order only adds the names.
    drawn(tmp_path, {"labelmap.txt": LABEL_MAP})
    scan = mask_pairs.scan(tmp_path, SourceOptions())
    assert (ids(scan), scan.mask_colors, scan.classes) == (
        *([SMALL.tolist()], ()),
        ("sky", "road", "tree"),
    )
    # In another order, colours say what the values are: a tool has made palettes of colours.
    drawn(tmp_path, {"labelmap.txt": "tree:0,128,0::\nsky:0,0,0::\nroad:128,0,0::\n"})
    scan = mask_pairs.scan(tmp_path, SourceOptions())
    assert ids(scan) == [[[1, 2], [0, 0]]]
    assert scan.choices == {"mask_values": "colors", "label_map": "labelmap.txt"}


def test_painted_masks_without_a_label_map_are_an_error_that_lists_the_colours(tmp_path):
    """Only the user knows what the colours mean; the message says which files would say it."""
    with pytest.raises(SourceError) as caught:
        decided(tmp_path, [COLORS[SMALL]], {"codes.txt": "sky\nroad\ntree\n"})
    for part in ("masks/0.png", "three channels", "(0, 128, 0)", "labelmap.txt", "codes.txt names"):
        assert part in str(caught.value)


def test_painted_masks_take_their_values_from_the_label_map(tmp_path):
    """Colours, names and the order of the label map make the field."""
    scan = decided(tmp_path, [COLORS[SMALL]], {"labelmap.txt": LABEL_MAP})
    assert ids(scan) == [SMALL.tolist()]
    assert scan.mask_colors == ((0, 0, 0), (128, 0, 0), (0, 128, 0))
    assert scan.classes == scan.fields[0].names == ("sky", "road", "tree")
    assert scan.ignored.total == 0
    chosen = mask_pairs.scan(tmp_path, SourceOptions(classes=("tree", "sky", "road")))
    assert ids(chosen) == [[[1, 2], [0, 0]]]
    with pytest.raises(SourceError, match="'lake', which --classes names"):
        mask_pairs.scan(tmp_path, SourceOptions(classes=("sky", "lake")))


def test_colours_that_the_label_map_lacks_are_noted_or_an_error(tmp_path):
    """Where no mask at all fits, the label map is a wrong one."""
    odd = np.full((1, 2, 3), (1, 2, 3), np.uint8)
    scan = decided(tmp_path, [COLORS[SMALL], odd], {"labelmap.txt": LABEL_MAP})
    assert any("masks/1.png" in note and "(1, 2, 3)" in note for note in scan.notes)
    with pytest.raises(SourceError, match=r"\(1, 2, 3\).*all 1 mask"):
        decided(tmp_path / "other", [odd], {"labelmap.txt": LABEL_MAP})


def test_three_equal_channels_are_one(tmp_path):
    """Many programs write a gray mask as RGB, in which the value stands three times."""
    scan = decided(tmp_path, [np.dstack([SMALL] * 3), SMALL])
    assert ids(scan) == [SMALL.tolist(), SMALL.tolist()]
    assert scan.choices["mask_values"] == "equal channels"
    assert any("three equal channels" in note for note in scan.notes)


def test_one_painted_mask_among_many_of_values_is_noted(tmp_path):
    """The others are still read; the one is rejected when it is packed."""
    scan = decided(tmp_path, [SMALL, COLORS[SMALL]])
    assert scan.mask_colors == ()
    assert any("masks/1.png has three channels" in note for note in scan.notes)


def test_black_and_white_with_a_label_map_of_both_is_looked_up(tmp_path):
    """Gray 255 is class 1 where a label map says that white is."""
    mask = np.array([[0, 255]], np.uint8)
    scan = decided(tmp_path, [mask], {"labelmap.txt": "no:0,0,0::\nyes:255,255,255::\n"})
    assert ids(scan) == [[[0, 1]]]
    assert scan.classes == ("no", "yes")


def test_names_come_from_the_list_beside_the_masks_or_from_the_user(tmp_path):
    """Names are by value; the user's own come first."""
    extra = {"codes.txt": "a\nb\nc\n", "label_colors.txt": "9 9 9 c\n8 8 8 b\n7 7 7 a\n"}
    scan = decided(tmp_path, [SMALL], extra)
    assert scan.classes == ("a", "b", "c")
    assert scan.choices["label_map"] == "codes.txt"
    scan = mask_pairs.scan(tmp_path, SourceOptions(classes=("x", "y", "z")))
    assert scan.classes == ("x", "y", "z")
    assert scan.fields[0].names == ("x", "y", "z")


def test_names_that_fit_no_mask_are_an_error(tmp_path):
    """A list of other classes would reject every mask, or name them wrongly."""
    with pytest.raises(SourceError, match=r"values 2 of masks are no classes of codes\.txt"):
        decided(tmp_path / "a", [SMALL], {"codes.txt": "a\nb\n"})
    scan = decided(tmp_path / "b", [SMALL, SMALL[:1]], {"codes.txt": "a\nb\n"})
    assert any("such masks are rejected" in note for note in scan.notes)
    binary = np.array([[0, 255]], np.uint8)
    scan = decided(tmp_path / "c", [binary], {"codes.txt": "no\nyes\n"})
    assert (scan.classes, scan.fields[0].names) == ((), None)
    assert any("its names are not used" in note for note in scan.notes)
    with pytest.raises(SourceError, match="--classes names 2 classes, but masks hold 0 and 255"):
        mask_pairs.scan(tmp_path / "c", SourceOptions(classes=("no", "yes")))


def test_a_label_map_may_set_a_value_apart(tmp_path):
    """255 that a label map calls void is ignored, also in a mask of 0 and 255."""
    table = "Pixel Value,Class\n0,sky\n255,void\n"
    scan = decided(tmp_path, [np.array([[0, 255]], np.uint8)], {"_classes.csv": table})
    assert (scan.fields[0].ignore, scan.classes) == (255, ("sky",))


def test_at_most_64_masks_are_looked_into_evenly_spaced(tmp_path):
    """A large set costs no more to look at, and its end counts as much as its start."""
    masks = [np.full((1, 1), 0, np.uint8) for _ in range(130)]
    masks[65] = np.full((1, 1), 9, np.uint8)
    files = {f"images/{n:03}.png": None for n in range(130)}
    files |= {f"masks/{n:03}.png": mask for n, mask in enumerate(masks)}
    scan = scanned(tmp_path, files)
    assert any("looked into 64 of 130 masks" in note for note in scan.notes)
    assert any("values found in masks: 0, 9" in note for note in scan.notes)


def test_masks_that_cannot_be_read_are_noted_and_all_of_them_an_error(tmp_path):
    """A broken mask is rejected when it is packed; if there are no others, nothing is known."""
    scan = decided(tmp_path, [SMALL, SMALL], {"masks/1.png": "no picture"})
    assert any("masks/1.png cannot be read as a mask" in note for note in scan.notes)
    with pytest.raises(SourceError, match=r"masks/0\.png: .*1 mask that were looked at"):
        decided(tmp_path / "x", [SMALL], {"masks/0.png": "no picture"})
