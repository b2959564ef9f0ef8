"""Every setting of how raw data is read does something, or is refused: for each layout."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from packer import Recipe, SourceOptions, build
from packer.errors import SourceError
from packer.plan.arrange import arranged
from packer.sources import LAYOUTS, scan_source
from packer.sources.layouts import SourceSetting
from packer.sources.source import AUTO_FORMAT
from tests.packer.source_trees import ENDS_SCAN, MAKERS

CASES = [case for case in MAKERS if case not in ENDS_SCAN]

GIVEN = {
    "classes": ("zebra", "a", "b", "0", "1", "2"),
    "path_column": "zebra",
    "label_column": "zebra",
    "label_is_index": True,
    "voc_origin": "0",
    "task": "detect",
    "split": "train",
}
"""A value for each setting but the folder; one that no layout has as its default."""


def _facts(scan):
    """What of a scan becomes the store."""
    return scan.items, scan.fields, scan.classes, scan.splits, scan.rejects, scan.ignored.counts


def _tried(raw, options):
    """The scan, or None and the refusal."""
    try:
        return scan_source(raw, options), ""
    except SourceError as error:
        return None, str(error)


def _made(case, folder):
    name, make = MAKERS[case]
    make(folder)
    return name, scan_source(folder, SourceOptions(format=name))


@pytest.mark.parametrize("case", CASES)
def test_no_setting_is_passed_over(case, tmp_path):
    """It changes the scan, is recorded as what was asked for, or is refused by its option."""
    raw = tmp_path / "raw"
    name, plain = _made(case, raw)
    for setting, value in {**GIVEN, "root": raw}.items():
        option = setting if setting in ("task", "split", "root") else setting.replace("_", "-")
        found, message = _tried(raw, SourceOptions(**{"format": name, setting: value}))
        if found is None:
            assert option in message, setting
            continue
        takes = LAYOUTS[name].takes
        assert setting in ("task", "split") or setting in takes, setting
        names = {field.name for field in found.fields}
        if setting == "classes":
            assert found.classes[:1] != plain.classes[:1] or _facts(found) != _facts(plain)
        elif setting == "task":
            assert "boxes" in names
        elif setting == "voc_origin":
            assert (name, found.choices["voc_origin"]) == ("voc", "0")
        elif setting == "label_is_index":
            assert {"label", "labels"} & names
        elif setting == "split":
            assert found.splits
            assert all("train" in split for split in found.splits)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("setting", get_args(SourceSetting))
def test_a_layout_takes_what_its_row_says(name, setting, tmp_path):
    """Others are refused before their data is read, by the option and the layout."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(b"x")
    value = tmp_path if setting == "root" else GIVEN[setting]
    _, message = _tried(tmp_path, SourceOptions(**{"format": name, setting: value}))
    is_refused = f"--{setting.replace('_', '-')}" in message and f"format {name!r}" in message
    assert is_refused == (setting not in LAYOUTS[name].takes), message


@pytest.mark.parametrize("case", CASES)
def test_boxes_are_clipped_where_there_are_boxes(case, tmp_path):
    """Elsewhere the recipe would say something that never was."""
    _, scan = _made(case, tmp_path / "raw")
    if any(field.name == "boxes" for field in scan.fields):
        assert arranged(scan, Recipe(clip_boxes=True)).items == scan.items
    else:
        with pytest.raises(SourceError, match=r"clip_boxes was asked for.* has no boxes"):
            arranged(scan, Recipe(clip_boxes=True))


@pytest.mark.parametrize("setting", sorted({*get_args(SourceSetting)} - {"classes"}))
def test_a_dataset_takes_class_names_alone(setting, tmp_path):
    """Of a torch Dataset there are no paths, lists or files of Pascal VOC."""
    images = [(np.zeros((4, 4, 3), np.uint8), 0)]
    options = SourceOptions(**{setting: Path(tmp_path) if setting == "root" else GIVEN[setting]})
    with pytest.raises(SourceError, match=rf"SourceOptions\({setting}=(True|'.*')\) is "):
        build(images, tmp_path / "out.lmdb", source=options, worker_count=1)


def test_classes_of_folders_choose_and_number_them(tmp_path):
    """In their order; pictures of the others are left out and counted, not rejected."""
    _, plain = _made("imagefolder", tmp_path / "raw")
    assert len(plain.classes) > 1
    last = plain.classes[-1]
    found = scan_source(tmp_path / "raw", SourceOptions(format=AUTO_FORMAT, classes=(last, "new")))
    assert found.classes == (last, "new")
    assert {item.values["label"] for item in found.items} == {0}
    kept = {item.key for item in plain.items if plain.classes[item.values["label"]] == last}
    assert {item.key for item in found.items} == kept
    left = found.ignored.counts["of a class that --classes does not name"]
    assert left == len(plain.items) - len(kept)
    with pytest.raises(SourceError, match=f"no class folder is called so; there are .*{last}"):
        scan_source(tmp_path / "raw", SourceOptions(classes=("zebra",)))
