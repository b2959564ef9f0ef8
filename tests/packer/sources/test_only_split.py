"""--split and patterns keep to what they ask for, in every source and whatever lies beside it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from packer import build
from packer.errors import RejectedItemError, SourceError
from packer.items.raw_item import Reject, Scan
from packer.plan.arrange import EXCLUDED, NOT_INCLUDED, arranged
from packer.recipe import Recipe
from packer.sources import SourceOptions, scan_source
from packer.sources.only_split import OTHER_SPLIT, is_other_split, only_split
from tests.packer.raw_files import write_texts
from tests.packer.source_trees import (
    ENDS_SCAN,
    MAKERS,
    draw_tree,
    make_coco,
    make_csv,
    make_csv_lists,
)


@pytest.mark.parametrize("case", MAKERS)
def test_what_is_wrong_in_another_split_is_counted_there(case, tmp_path):
    """Of each source, --split train has no reject, whatever is damaged or missing in val or test.

    All that was met is accounted for all the same, and without --split it is a reject or an error.
    """
    format_name, make = MAKERS[case]
    raw = tmp_path / "raw"
    make(raw)
    found = scan_source(raw, SourceOptions(format=format_name, split="train"))
    assert (found.rejects, found.annotation_rejects) == ([], [])
    assert found.items
    assert len(found.splits) == 1
    if case in ENDS_SCAN:
        with pytest.raises(SourceError):
            scan_source(raw, SourceOptions(format=format_name))
        return
    everything = scan_source(raw, SourceOptions(format=format_name))
    assert everything.rejects or everything.annotation_rejects
    assert found.ignored.counts[OTHER_SPLIT] > 0
    met = [len(s.items) + len(s.rejects) + s.ignored.total for s in (everything, found)]
    assert met[0] == met[1]


def test_a_table_of_another_split_that_says_nothing_is_no_list(tmp_path):
    """Beside it the only list still has the split that its name tells, where that is asked for."""
    raw = tmp_path / "raw"
    make_csv_lists(raw)
    (raw / "val.csv").write_text("path,width\n0.png,3\n")
    found = scan_source(raw, SourceOptions(split="train"))
    assert len(found.items) == 2
    assert (found.rejects, found.splits) == ([], ("train",))
    with pytest.raises(SourceError, match="'val' was asked for"):
        scan_source(raw, SourceOptions(split="val"))


PATTERNS = {
    "coco": "val2017/*",
    "yolo": "valid/*",
    "yolo_lines": "valid/*",
    "voc_folders": "valid/*",
    "labelme": "val/*",
    "kitti": "testing/*",
    "dota": "val/*",
    "mask_pairs": "*/val/*",
    "cityscapes": "*/val/*",
    "imagefolder": "val/*",
    "flat": "val/*",
    "tar": "val/*",
    "tar_damaged": "val/*",
    "zip": "val/*",
    "zip_folders": "all/val/*",
    "csv": "val/*",
    "open_images": "validation/*",
}


@pytest.mark.parametrize("case", PATTERNS)
def test_exclude_leaves_out_what_is_wrong_below_it_too(case, tmp_path):
    """Rejects, missing pictures and annotations go with the folder that a pattern leaves out.

    The account stays whole: each is counted as left out.
    """
    format_name, make = MAKERS[case]
    make(tmp_path / "raw")
    found = scan_source(tmp_path / "raw", SourceOptions(format=format_name))
    kept = arranged(found, Recipe(exclude=(PATTERNS[case],)))
    assert found.rejects or found.annotation_rejects
    assert (kept.rejects, kept.annotation_rejects) == ([], [])
    met = [len(s.items) + len(s.rejects) + s.ignored.total for s in (found, kept)]
    assert met[0] == met[1]
    assert kept.ignored.counts[EXCLUDED] > 0


@pytest.mark.parametrize("case", ["coco", "voc_folders", "tar", "zip_folders", "imagefolder"])
def test_include_takes_in_no_reject_of_elsewhere(case, tmp_path):
    """What matches no --include is left out, whether it could have been packed or not."""
    format_name, make = MAKERS[case]
    make(tmp_path / "raw")
    found = scan_source(tmp_path / "raw", SourceOptions(format=format_name))
    include = tuple({os.fsdecode(os.path.dirname(item.key)) + "/*" for item in found.items})
    include = tuple(pattern for pattern in include if "train" in pattern)
    kept = arranged(found, Recipe(include=include))
    assert kept.rejects == []
    assert kept.ignored.counts[NOT_INCLUDED] > 0
    assert kept.items


def test_a_reject_that_no_pattern_can_be_held_against_stays(tmp_path):
    """A row without a path may be of any picture: it is not left out in silence."""
    draw_tree(tmp_path, ["a/0.png", "b/1.png"])
    write_texts(tmp_path, {"list.csv": "path,label\na/0.png,x\nb/1.png,x\n,x\n"})
    found = scan_source(tmp_path, SourceOptions(format="csv"))
    for recipe in (Recipe(include=("a/*",)), Recipe(exclude=("b/*",))):
        assert [r.path for r in arranged(found, recipe).rejects] == ["list.csv, line 4"]


def test_a_build_of_one_split_stops_at_its_own_rejects_alone(tmp_path):
    """--on-error fail and --max-rejects 0 are about the split or the pattern that was asked for."""
    raw = tmp_path / "raw"
    make_coco(raw)
    source = SourceOptions(split="train")
    for name, options in (("split", source), ("pattern", SourceOptions())):
        recipe = Recipe() if options.split else Recipe(exclude=("val2017/*",))
        out = tmp_path / f"{name}.lmdb"
        report = build(raw, out, recipe, source=options, on_error="fail", worker_count=1)
        assert report.sample_count == 2
        assert report.found_count == 2 + report.ignored_count
    with pytest.raises(RejectedItemError, match=r"val2017/9\.png: the link leads nowhere"):
        build(raw, tmp_path / "all.lmdb", on_error="fail", worker_count=1)


def test_a_split_of_which_nothing_can_be_packed_names_what_is_wrong_in_it(tmp_path):
    """Asked for the broken split, a build names its rejects rather than deny that there is one."""
    make_coco(tmp_path / "coco")
    found = scan_source(tmp_path / "coco", SourceOptions(split="val"))
    assert found.items == []
    assert {reject.split for reject in found.rejects} == {"val2017", ""}
    make_csv(tmp_path / "csv")
    found = scan_source(tmp_path / "csv", SourceOptions(split="val"))
    assert (found.items, found.splits) == ([], ("val",))
    assert len(found.rejects) == 3
    with pytest.raises(SourceError, match="has 'train', 'val'"):
        scan_source(tmp_path / "csv", SourceOptions(split="test"))


def test_splits_are_meant_by_name_first_and_by_meaning_else():
    """`train` takes train2017 and training, unless one is called train itself."""
    meanings = [("train2017", "train"), ("training", "train"), ("Train", "train"), ("val", "dev")]
    assert not any(is_other_split(split, wanted) for split, wanted in meanings)
    assert is_other_split("val2017", "train")
    assert is_other_split("extra", "train")
    assert not is_other_split("", "train")
    assert not is_other_split("val", None)
    rejects = [Reject(key=b"", path="a", reason="", split=s) for s in ("train", "training", "val")]
    scan = Scan(format="x", root=Path(), items=[], rejects=rejects)
    assert [r.split for r in only_split(scan, "train").rejects] == ["train"]
    assert [r.split for r in only_split(scan, "train2017").rejects] == ["train", "training"]


def test_a_dataset_from_python_has_no_splits_to_choose_from(tmp_path):
    """A split that is asked of a torch Dataset is refused, not passed over."""
    with pytest.raises(SourceError, match="has no splits by name"):
        build([np.zeros((4, 4, 3), np.uint8)], tmp_path / "o", source=SourceOptions(split="train"))
