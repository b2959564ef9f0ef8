"""Cases from public bug reports: annotations of COCO, Pascal VOC and YOLO, and masks.

As in test_cases.py, what must hold is in the case's own folder and is checked as it stands there.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from packer import SourceOptions, build
from packer.errors import SourceError, TooManyRejectsError
from packer.report import BuildReport
from readers import LMDBDataset, make_loader

DETECTION = [f"S-COCO-0{n}" for n in range(1, 7)]
DETECTION += [f"S-VOC-0{n}" for n in range(1, 5)]
DETECTION += [f"S-YOLO-0{n}" for n in range(1, 5)]
MASKS = ["S-SEG-01", "S-SEG-02", "S-SEG-03"]

TOLERANCE_PX = 0.01


@dataclass
class Built:
    """A case, the store that was built of it, and what was said."""

    folder: Path
    expect: dict[str, Any]
    out: Path
    report: BuildReport
    rejects: list[dict[str, str]] = field(default_factory=list)

    @property
    def dataset(self) -> LMDBDataset:
        return LMDBDataset(self.out)


def expect_of(cases: Path, name: str) -> dict[str, Any]:
    return json.loads((cases / name / "case.json").read_bytes())["expect"]  # type: ignore[no-any-return]


def raw_of(cases: Path, name: str, tmp_path: Path) -> tuple[Path, SourceOptions]:
    """RAW and the options that a user would give: a copy of the inputs without case.json."""
    expect = expect_of(cases, name)
    folder = tmp_path / "raw"
    shutil.copytree(cases / name, folder, ignore=shutil.ignore_patterns("case.json"))
    if expect.get("format") == "coco":
        return folder / expect["annotations"], SourceOptions(root=folder / expect["root"])
    if expect.get("format") == "voc":
        return folder / expect["root"], SourceOptions()
    return folder, SourceOptions()


def built(cases: Path, name: str, tmp_path: Path, **settings: Any) -> Built:
    raw, options = raw_of(cases, name, tmp_path)
    out = tmp_path / "out.lmdb"
    report = build(raw, out, source=options, worker_count=1, **settings)
    lines = (out / "rejects.jsonl").read_text().splitlines()
    rejects = [json.loads(line) for line in lines]
    return Built(cases / name, expect_of(cases, name), out, report, rejects)


def check_boxes(case: Built, sample: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    """Types, numbers, names and flags of each box; and that it is the patch of its colour."""
    assert sample["boxes"].dtype == torch.float32
    assert sample["labels"].dtype == torch.int64
    assert sample["boxes"].shape == (len(expected), 4)
    assert sample["labels"].shape == (len(expected),)
    image = sample["image"].permute(1, 2, 0).numpy()
    for row, box in enumerate(expected):
        known = {"name", "xyxy", "tol", "colour", "crowd", "area", "difficult"}
        assert set(box) <= known, "the case expects something that is not checked here"
        assert case.dataset.classes[sample["labels"][row]] == box["name"]
        found = sample["boxes"][row].numpy()
        tolerance = box.get("tol", TOLERANCE_PX)
        assert np.abs(found - box["xyxy"]).max() <= tolerance
        if "crowd" in box:
            assert bool(sample["iscrowd"][row]) is bool(box["crowd"])
        if "area" in box:
            assert float(sample["area"][row]) == pytest.approx(box["area"])
        if "difficult" in box:
            assert bool(sample["difficult"][row]) is bool(box["difficult"])
        if "colour" in box:
            x0, y0, x1, y1 = np.round(found).astype(int)
            inside = image[y0:y1, x0:x1].astype(int) - box["colour"]
            assert np.abs(inside).max() <= (40 if case.folder.name == "S-COCO-06" else 0)


@pytest.mark.parametrize("name", DETECTION)
def test_boxes_are_as_the_case_says(cases, name, tmp_path):
    """Every sample in order, every box; nothing more is stored, and all else is named."""
    case = built(cases, name, tmp_path)
    expect, dataset = case.expect, case.dataset
    assert dataset.classes == expect["classes"]
    assert case.report.format == expect["format"]
    if "length" in expect:
        assert len(dataset) == expect["length"]
    keys = [dataset[at]["key"] for at in range(len(dataset))]
    assert keys == sorted(keys)
    for expected in expect["samples"]:
        assert set(expected) <= {"path", "ok", "shape", "dtype", "boxes"}
        (key,) = [key for key in keys if expected["path"].endswith(key)]
        sample = dataset[dataset.index_of(key)]
        if "shape" in expected:
            assert list(sample["image"].permute(1, 2, 0).shape) == expected["shape"]
        check_boxes(case, sample, expected["boxes"])
    # found = stored + rejected + ignored, for images and for annotations.
    report = case.report
    assert report.found_count == report.sample_count + report.reject_count + report.ignored_count
    counts = report.annotations
    assert counts["found"] == counts["stored"] + counts["rejected"]
    assert counts["stored"] == sum(len(dataset[at]["boxes"]) for at in range(len(dataset)))
    assert counts["rejected"] == sum(line.get("kind") == "annotation" for line in case.rejects)
    for reported in (*expect.get("reported", []), *expect.get("reject", [])):
        assert _is_reported(case, reported), reported


def _is_reported(case: Built, reported: dict[str, Any]) -> bool:
    lines = [f"{line['path']}: {line['reason']}" for line in case.rejects]
    if "annotation" in reported:
        return any(f"annotation {reported['annotation']}:" in line for line in lines)
    path = os.path.relpath(reported["path"], "raw") if "raw/" in reported["path"] else None
    wanted = [path or reported["path"]]
    if "line" in reported:
        wanted.append(f"line {reported['line']}")
    return any(all(part in line for part in wanted) for line in lines)


def test_s_coco_01_the_ids_of_the_file_stay_readable(cases, tmp_path):
    """3, 17, 90: which label was which category."""
    manifest = built(cases, "S-COCO-01", tmp_path).dataset.manifest
    assert manifest.source.choices["category_ids"] == "3,17,90"


def test_s_coco_03_the_reasons_are_those_of_the_boxes(cases, tmp_path):
    """One has no height, the other a negative width; neither is turned round."""
    case = built(cases, "S-COCO-03", tmp_path)
    reasons = {line["path"].split()[-1]: line["reason"] for line in case.rejects}
    assert "10 wide and 0 high" in reasons["102"]
    assert "-8 wide and 6 high" in reasons["103"]


def test_s_coco_04_runs_become_pixels(cases, tmp_path):
    """The crowd's region is the right half of the picture."""
    sample = built(cases, "S-COCO-04", tmp_path).dataset[0]
    masks = sample["masks"].to_masks()
    assert masks[1, :, 32:].all()
    assert not masks[1, :, :32].any()


def test_s_coco_05_the_repeated_id_is_said_with_its_count(cases, tmp_path):
    """A warning, since each picture keeps its own box."""
    notes = built(cases, "S-COCO-05", tmp_path).report.notes
    assert any("id" in note and ("1 " in note or "2 " in note or "7" in note) for note in notes[1:])


def test_s_voc_02_the_origin_is_said_and_recorded(cases, tmp_path):
    """Official rule by default; a switch for files that count from 0."""
    case = built(cases, "S-VOC-02", tmp_path)
    assert case.dataset.manifest.source.choices["voc_origin"] == "1"
    assert any("origin" in note for note in case.report.notes)
    raw = tmp_path / "raw" / case.expect["root"]
    out = tmp_path / "zero.lmdb"
    build(raw, out, source=SourceOptions(voc_origin="0"), worker_count=1, rejects_max=1)
    dataset = LMDBDataset(out)
    assert dataset[dataset.index_of("full.png")]["boxes"].tolist() == [[1, 1, 40, 30]]


def test_s_yolo_01_the_far_picture_is_not_lost(cases, tmp_path):
    """Its only line is rejected by file, line and value; the picture is there, without the box."""
    case = built(cases, "S-YOLO-01", tmp_path)
    (line,) = case.rejects
    assert "labels/far.txt, line 1" in line["path"]
    assert "1.4033" in line["reason"]
    dataset = case.dataset
    assert dataset[dataset.index_of("images/far.png")]["boxes"].shape == (0, 4)


def test_s_yolo_02_one_duplicate_is_said(cases, tmp_path):
    """By its line, and which line it repeats."""
    (line,) = built(cases, "S-YOLO-02", tmp_path).rejects
    assert "labels/1.txt, line 3" in line["path"]
    assert "labels/1.txt, line 1" in line["reason"]


def test_s_yolo_03_missing_label_files_are_counted(cases, tmp_path):
    """As what they are; and when there is none at all, it is an error."""
    case = built(cases, "S-YOLO-03", tmp_path)
    assert any("no label file" in note and "1" in note for note in case.report.notes)
    raw = tmp_path / "raw"
    for path in raw.rglob("labels/*.txt"):
        path.unlink()
    with pytest.raises(SourceError, match="label"):
        build(raw, tmp_path / "none.lmdb", source=SourceOptions(format="yolo"), worker_count=1)
    assert not (tmp_path / "none.lmdb").exists()


def test_s_yolo_04_outlines_are_kept_or_asked_for(cases, tmp_path):
    """For segmentation the line without an outline is reported."""
    raw, _ = raw_of(cases, "S-YOLO-04", tmp_path)
    out = tmp_path / "segment.lmdb"
    report = build(raw, out, source=SourceOptions(task="segment"), worker_count=1)
    assert report.annotations == {"found": 2, "stored": 1, "rejected": 1}
    sample = LMDBDataset(out)[0]
    assert np.abs(sample["boxes"].numpy() - [32, 12, 60, 40]).max() < TOLERANCE_PX
    mask = sample["masks"].to_masks()[0]
    # Half of its bounding box, being a triangle.
    assert abs(int(mask.sum()) - 28 * 28 / 2) < 30


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_as_the_case_says(cases, name, tmp_path):
    """Single-channel integers exactly as stored, each with its own picture."""
    expect = expect_of(cases, name)
    if expect.get("reject"):
        # As it stands it is refused, all named; with rejects allowed the rest is stored.
        raw, options = raw_of(cases, name, tmp_path / "strict")
        with pytest.raises(TooManyRejectsError) as caught:
            build(raw, tmp_path / "strict.lmdb", source=options, worker_count=1)
        for reject in expect["reject"]:
            assert reject["path"] in str(caught.value)
            assert reject["why"] in str(caught.value)
    case = built(cases, name, tmp_path, rejects_max="90%")
    dataset = case.dataset
    assert len(dataset) == len(expect["samples"])
    for expected in expect["samples"]:
        assert set(expected) <= {"path", "pair", "ok", "shape", "mask", "sha256"}
        picture = expected.get("pair", expected["path"].replace("masks/", "imgs/"))
        sample = dataset[dataset.index_of(picture)]
        mask = sample["mask"].numpy()
        assert mask.ndim == 2
        assert mask.dtype == np.uint8
        assert list(mask.shape) == expected.get("shape", list(mask.shape))
        values, counts = np.unique(mask, return_counts=True)
        found = {str(v): c for v, c in zip(values.tolist(), counts.tolist(), strict=True)}
        assert found == expected["mask"]
        if name == "S-SEG-03":
            # Red level 20 n in picture n, and its mask is filled with n.
            number = int(values[0])
            assert abs(int(sample["image"][0].float().mean()) - 20 * number) <= 6
    assert {line["path"] for line in case.rejects} == {r["path"] for r in expect.get("reject", ())}


def test_s_seg_02_without_a_table_nothing_is_guessed(cases, tmp_path):
    """The error names the file, its three channels and the colours that were found."""
    raw, options = raw_of(cases, "S-SEG-02", tmp_path)
    (raw / "colours.json").unlink()
    with pytest.raises(SourceError) as caught:
        build(raw, tmp_path / "out.lmdb", source=options, worker_count=1)
    message = str(caught.value)
    assert "masks/1.png" in message
    assert "three channels" in message
    assert "(128, 0, 0)" in message
    assert "(0, 128, 0)" in message
    assert not (tmp_path / "out.lmdb").exists()


def test_s_dl_01_pictures_of_several_boxes_make_a_batch(cases, tmp_path):
    """Images are stacked; boxes and labels are lists, of the lengths that the pictures have."""
    case = built(cases, "S-DL-01", tmp_path)
    for engine in ("thread", "process"):
        loader = make_loader(case.dataset, 4, train=False, engine=engine, workers=1)
        (batch,) = loader
        assert batch["image"].shape == (4, 3, 48, 64)
        assert [len(boxes) for boxes in batch["boxes"]] == [0, 1, 2, 5]
        assert [len(labels) for labels in batch["labels"]] == [0, 1, 2, 5]
        assert batch["boxes"][0].shape == (0, 4)
        assert {boxes.dtype for boxes in batch["boxes"]} == {torch.float32}
        assert {labels.dtype for labels in batch["labels"]} == {torch.int64}
    for at, expected in enumerate(case.expect["samples"]):
        check_boxes(case, case.dataset[at], expected["boxes"])
