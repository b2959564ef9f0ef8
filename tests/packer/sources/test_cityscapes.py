"""Cityscapes: pictures of leftImg8bit with the masks of gtFine, whose kinds are never mixed up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from packer.errors import SourceError
from packer.files.masks import read_mask
from packer.items.raw_item import Scan
from packer.sources.masks import cityscapes
from packer.sources.source import SourceOptions


def drawn(root: Path, names: Sequence[str]) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".png"):
            Image.fromarray(np.full((2, 3), 7, np.uint8)).save(path)
        else:
            path.write_text("{}")
    return root


def city(split: str, base: str, *kinds: str, masks: str = "gtFine") -> list[str]:
    place = base.split("_")[0]
    return [
        f"leftImg8bit/{split}/{place}/{base}_leftImg8bit.png",
        *(
            f"{masks}/{split}/{place}/{base}_{masks}_{kind}."
            + ("json" if kind == "polygons" else "png")
            for kind in kinds
        ),
    ]


def scanned(root: Path, names: Sequence[str], **options: object) -> Scan:
    return cityscapes.scan(drawn(root, names), SourceOptions(**options))


def test_pictures_are_joined_with_their_masks_by_place_and_name(tmp_path):
    """Split, city and number tell a picture; files of other kinds are counted by reason."""
    kinds = ("labelIds", "instanceIds", "color", "polygons")
    names = [
        *city("train", "ulm_000001_000019", *kinds),
        *city("train", "bonn_000001_000019", *kinds),
        *city("val", "ulm_000001_000019", *kinds),
    ]
    scan = scanned(tmp_path, names)
    assert [(item.key, item.masks["mask"].path, item.values) for item in scan.items] == [
        (
            f"leftImg8bit/{place}_000001_000019_leftImg8bit.png".encode(),
            f"gtFine/{place}_000001_000019_gtFine_labelIds.png".encode(),
            {"split": split},
        )
        for place, split in (("train/bonn/bonn", 0), ("train/ulm/ulm", 0), ("val/ulm/ulm", 1))
    ]
    assert scan.splits == ("train", "val")
    assert scan.ignored.counts == {cityscapes.OTHER_KIND: 6, "not a picture": 3}
    assert (scan.rejects, scan.annotation_rejects) == ([], [])
    field = scan.fields[0]
    assert (field.name, field.dtype, field.ignore) == ("mask", "uint8", None)
    assert field.names == scan.classes == cityscapes.LABELS
    assert (field.names[7], field.names[33], len(field.names)) == ("road", "bicycle", 34)


def test_train_ids_have_19_classes_and_ignore_255(tmp_path):
    """labelTrainIds count only what is scored; all else is 255."""
    scan = scanned(tmp_path, city("train", "ulm_0_1", "labelTrainIds"))
    field = scan.fields[0]
    assert (field.name, field.ignore, field.dtype) == ("mask", 255, "uint8")
    assert field.names == scan.classes == cityscapes.TRAIN_LABELS
    assert (field.names[0], field.names[18], len(field.names)) == ("road", "bicycle", 19)
    assert scan.choices == {"mask_values": "labelTrainIds"}


def test_of_both_kinds_neither_is_chosen(tmp_path):
    """Which of the two is meant is the user's to say when reading, so both are stored."""
    names = city("train", "ulm_0_1", "labelIds", "labelTrainIds")
    scan = scanned(tmp_path, [*names, *city("train", "ulm_0_2", "labelIds")])
    assert [each.name for each in scan.fields] == ["mask_label_ids", "mask_train_ids", "split"]
    (item,) = scan.items
    assert item.masks["mask_label_ids"].path.endswith(b"_labelIds.png")
    assert item.masks["mask_train_ids"].path.endswith(b"_labelTrainIds.png")
    assert [each.reason for each in scan.rejects] == ["no mask ulm_0_2_gtFine_labelTrainIds.png"]
    with pytest.raises(SourceError, match="labelIds and labelTrainIds at once"):
        cityscapes.scan(tmp_path, SourceOptions(classes=("a",)))


def test_instance_ids_are_read_where_there_is_nothing_else(tmp_path):
    """They are numbers of instances, past 255, and have no names."""
    names = city("train", "ulm_0_1", "instanceIds")
    drawn(tmp_path, names)
    path = tmp_path / names[1]
    Image.fromarray(np.array([[7, 26_001]], np.uint16)).save(path)
    scan = cityscapes.scan(tmp_path, SourceOptions())
    field = scan.fields[0]
    assert (field.name, field.dtype, field.names, field.ignore) == ("mask", "int32", None, None)
    assert read_mask(path.read_bytes(), scan.mask_colors, field, 99).tolist() == [[7, 26_001]]
    assert any("1000 times the class" in note for note in scan.notes)


def test_what_lacks_its_partner_is_named(tmp_path):
    """A picture without a mask is rejected, a mask without a picture too, and counted apart."""
    names = [
        *city("train", "ulm_0_1", "labelIds"),
        *city("train", "ulm_0_2"),
        *city("train", "ulm_0_3", "labelIds")[1:],
        *city("test", "bonn_0_1"),
        "leftImg8bit/train/ulm/cover.png",
        "elsewhere/x.png",
    ]
    scan = scanned(tmp_path, names)
    assert len(scan.items) == 1
    assert [(each.path, each.reason) for each in scan.rejects] == [
        (
            "leftImg8bit/train/ulm/ulm_0_2_leftImg8bit.png",
            "no mask ulm_0_2_gtFine_labelIds.png",
        )
    ]
    assert [each.path for each in scan.annotation_rejects] == [
        "gtFine/train/ulm/ulm_0_3_gtFine_labelIds.png"
    ]
    assert scan.ignored.examples == {
        cityscapes.WITHOUT_MASKS: ["leftImg8bit/test/bonn/bonn_0_1_leftImg8bit.png"],
        cityscapes.OTHER_NAME: ["leftImg8bit/train/ulm/cover.png"],
        cityscapes.OTHER_FOLDER: ["elsewhere/x.png"],
    }


def test_folders_may_lie_in_the_folders_of_their_archives(tmp_path):
    """The archives unpack into leftImg8bit_trainvaltest/leftImg8bit and the like."""
    picture, mask = city("train", "ulm_0_1", "labelIds")
    names = [f"leftImg8bit_trainvaltest/{picture}", f"gtFine_trainvaltest/{mask}"]
    scan = scanned(tmp_path, names)
    assert [item.key.decode() for item in scan.items] == names[:1]
    assert scan.items[0].masks["mask"].path.decode() == names[1]
    assert scan.splits == ("train",)


def test_fine_and_coarse_masks_are_not_mixed(tmp_path):
    """Where there are fine masks, only these are read; coarse ones alone are read as well."""
    coarse = city("train_extra", "ulm_0_1", "labelIds", masks="gtCoarse")
    scan = scanned(tmp_path / "coarse", coarse)
    assert scan.items[0].masks["mask"].path.decode() == coarse[1]
    assert scan.splits == ("train_extra",)
    fine = city("train", "ulm_0_2", "labelIds")
    scan = scanned(tmp_path / "both", coarse + fine)
    assert [item.key.decode() for item in scan.items] == fine[:1]
    assert scan.ignored.counts == {cityscapes.WITHOUT_MASKS: 1, cityscapes.OTHER_FOLDER: 1}
    assert (scan.rejects, scan.annotation_rejects) == ([], [])


def test_own_classes_in_the_same_layout(tmp_path):
    """Other data sets copy the layout and have names of their own."""
    drawn(tmp_path, city("train", "ulm_0_1", "labelIds"))
    scan = cityscapes.scan(tmp_path, SourceOptions(classes=("a", "b")))
    assert scan.fields[0].names == scan.classes == ("a", "b")


def test_polygons_alone_are_an_error_that_says_how_masks_are_made(tmp_path):
    """Only masks of values are read."""
    with pytest.raises(SourceError, match=r"gtFine_labelIds\.png.*createTrainIdLabelImgs"):
        scanned(tmp_path, city("train", "ulm_0_1", "polygons", "color"))
