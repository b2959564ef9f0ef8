"""Every real data set is read whole, or refused by name: all 65 against what is known of them.

What a store holds is held against EXPECTED.json, which other people's tools wrote. Where the two
differ, real_sets.py says so and why, and a difference that goes away fails as well.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from packer import BuildError, Recipe, SourceOptions, build
from packer.building.build import build as build_in_the_words_of_options
from readers.loader import make
from readers.store.shapes.rle import area, decode_counts, fill
from tests.cases.real_data import (
    CHECKS,
    EXPECTED,
    NOT_HELD,
    REAL_DATA,
    Comparison,
    Store,
    check_coco,
    check_csv,
    check_datumaro,
    compare,
    shards_made_here,
    source_options,
)
from tests.cases.real_sets import READ, REFUSED, RealSet, RefusedSet, read

Facts = dict[str, Any]


@pytest.fixture(scope="module")
def expected() -> Facts:
    """The facts of each set, by its folder."""
    if not EXPECTED.exists():
        pytest.skip(f"the real data sets are not here: {EXPECTED}")
    facts: Facts = json.loads(EXPECTED.read_bytes())["datasets"]
    return facts


class Stores:
    """Stores of real sets, each built when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[str, Store] = {}

    def __getitem__(self, name: str) -> Store:
        if name not in self._built:
            real = next(real for real in READ if real.name == name)
            self._built[name] = Store(real, self._folder / f"{len(self._built)}.lmdb")
        return self._built[name]


@pytest.fixture(scope="module")
def stores(expected: Facts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """The store of each set of `READ`, by its name."""
    folder = tmp_path_factory.mktemp("real")
    with shards_made_here():
        yield Stores(folder)
    shutil.rmtree(folder)


def named(real: RealSet | RefusedSet) -> str:
    return real.name


def test_every_set_and_every_fact_is_held_or_explained(expected):
    """No folder may be left out, nor a kind of fact, silently on why."""
    tables = {real.folder for real in READ} | {refused.folder for refused in REFUSED}
    assert tables == set(expected) == {path.name for path in REAL_DATA.iterdir() if path.is_dir()}
    for real in READ:
        kinds = set(expected[real.folder]) - set(NOT_HELD) - set(real.left_out)
        assert kinds <= set(CHECKS), real.name


@pytest.mark.parametrize("real", READ, ids=named)
def test_a_set_holds_what_is_known_of_it(real, stores, expected):
    """Counts, sizes, pixels, boxes, classes and masks are as known, but for what the table says."""
    store = stores[real.name]
    assert store.report.format == store.dataset.manifest.source.format == real.format
    found = compare(store, expected[real.folder])
    said = {fact: ours for fact, (ours, _) in real.differences.items()}
    assert {fact: ours for fact, (ours, _) in found.differences.items()} == said
    assert found.count > len(said)


@pytest.mark.parametrize("real", READ, ids=named)
def test_the_lines_that_a_build_prints_run_on_its_store(real, stores, monkeypatch):
    """As they stand, but that the loop itself fills the batches: what they give last is a batch."""
    monkeypatch.setattr(make, "loader_worker_count", lambda: 0)
    store = stores[real.name]
    lines = store.report.python
    assert store.report.summary().endswith("\n".join(["", *lines]))
    found: dict[str, Any] = {}
    exec("\n".join(lines), found)
    images = found["images"] if "images" in found else found["batch"]["image"]
    assert len(images) > 0
    is_mixed = store.dataset.schema["image"].shape[2] is None
    assert isinstance(images, torch.Tensor) or "detection_targets" in lines[0] or is_mixed


@pytest.mark.parametrize("refused", REFUSED, ids=named)
def test_what_no_source_reads_is_refused_by_name(refused, expected, tmp_path):
    """The message must say what was found and what to do now, and there is no store."""
    raw, out = REAL_DATA / refused.folder / refused.inside, tmp_path / "out.lmdb"
    with pytest.raises(BuildError) as caught:
        build_in_the_words_of_options(raw, out, source=source_options(refused), worker_count=1)
    message = str(caught.value)
    assert [part for part in refused.says if part not in message] == [], message
    assert not out.exists()


def test_build_workers_give_the_same_bytes(stores, tmp_path):
    """The stores of this file are made without build workers, which must not matter."""
    here = stores["coco-instances"]
    report = build(REAL_DATA / "coco-instances", tmp_path / "out.lmdb", worker_count=1)
    assert report.content_sha256 == here.report.content_sha256


# Pictures.


def test_nine_orientations_show_one_picture(stores):
    """The same photograph with each EXIF orientation must come out upright, to JPEG's errors."""
    store = stores["images-exif"]
    pictures = [store.dataset[at]["image"].astype(np.int16) for at in range(len(store.keys))]
    assert [picture.shape for picture in pictures] == [(1200, 1800, 3)] * 9
    for picture in pictures:
        # The files were compressed one by one, to at most 3.7 between two; a mirrored one is 73.
        assert np.abs(picture - pictures[1]).mean() < 4
    affines = {tuple(sample["transform"].ravel().tolist()) for sample in store.samples()}
    assert len(affines) == 8  # Orientations 0 and 1 are the same.


BROKEN = {
    "bmp_b_shortfile.bmp": "truncated",
    "broken.png": "broken PNG file",
    "broken_data_stream.png": "PNG file",
    "crash-2020-10-test.tif": "Missing dimensions",
    "decompression_bomb.gif": "65535x66601 pixels is over the limit",
    "hopper_unknown_pixel_mode.tif": "unknown pixel mode",
    "truncated_end_chunk.png": "truncated PNG file",
    "truncated_image.png": "truncated PNG file",
    "truncated_jpeg.jpg": "truncated",
    "ultrahdr.jpg": "truncated",
}
"""What the reject list must say of each broken picture: those that Pillow cannot read either."""

PROFILE_ALONE = "unknown_compression_method.png"
"""Of this Pillow reads no more, but its pixels are whole: the checksum of its profile is wrong."""


def test_broken_pictures_are_rejected_with_their_reason(stores, expected):
    """Those that Pillow refuses and whose pixels are not whole, each with what is wrong with it."""
    facts = expected["images-broken"]["images"]
    store = stores["images-broken"]
    refused = {path for path, fact in facts.items() if "pillow_error" in fact}
    assert refused == {*BROKEN, PROFILE_ALONE}
    assert set(store.rejected_keys) == set(BROKEN)
    wrong = {k: r for k, r in store.rejected_keys.items() if BROKEN[k] not in r}
    assert wrong == {}


@pytest.mark.parametrize("given", ["", " (--mode unchanged)"])
def test_odd_pictures_are_stored_or_rejected_for_a_reason(given, stores):
    """Of 77 odd pictures only these are rejects, and the reason says what cannot be read."""
    reasons = {
        "ice_test_1_bands_float32.tif": "floating-point pixels",
        "ice_test_1_bands_int16.tif": "signed pixels",
        "ice_test_3_bands_int8.tif": "unknown pixel mode",
    }
    if importlib.util.find_spec("imagecodecs") is None:
        reasons["turbo_monkey12.jpg"] = "JPEG 12 bit needs imagecodecs: install the extra"
    if given:
        reasons["apng_mode_16bit.png"] = "16-bit colour"
    rejected = stores[f"images-odd{given}"].rejected_keys
    assert set(rejected) == set(reasons)
    assert {key: reason for key, reason in rejected.items() if reasons[key] not in reason} == {}


# Sets that hold the same data in several forms.


def boxes_of(store: Store, at: int) -> list[tuple[str, list[float]]]:
    """Class and box of each object of a sample."""
    sample = store.sample(at)
    return list(zip(store.names_of(sample["labels"]), sample["boxes"].tolist(), strict=True))


@pytest.mark.parametrize("name", ["hf-parquet", "hf-saved", "hf-imagefolder-metadata"])
def test_forms_of_hugging_face_hold_the_boxes_of_the_xml(name, stores):
    """The twelve pictures were written from the XML; every form must give back its numbers."""
    tars = [stores[f"webdataset/bccd-00000{n}.tar"] for n in (0, 1)]
    written = {
        key.rsplit("/", 1)[1]: tar.sample(at)["json"]
        for tar in tars
        for at, key in enumerate(tar.keys)
    }
    store = stores[name]
    numbers = {str(n): label for n, label in enumerate(("WBC", "RBC", "Platelets"))}
    for at, picture in enumerate(sorted(written, key=lambda p: _place(p, stores))):
        if name == "hf-imagefolder-metadata":
            assert store.keys[at].rsplit("/", 1)[1] == picture
        ours = [(numbers.get(label, label), box) for label, box in boxes_of(store, at)]
        truth = written[picture]
        assert ours == list(zip(truth["labels"], truth["boxes"], strict=True))


def _place(picture: str, stores: Stores) -> int:
    """Place of a picture in the order of splits: train, then val."""
    at = stores["yolo-ultralytics"].picture(picture)
    assert at is not None
    return at


def test_yolo_labels_that_supervision_wrote_are_the_xml_counted_from_1(stores):
    """Supervision takes 1 off xmin and ymin, as our Pascal VOC does under its official origin."""
    store, xml = stores["yolo-ultralytics"], stores["manifest-jsonl"]
    for at, key in enumerate(xml.keys):
        ours = store.picture(key.rsplit("/", 1)[1])
        assert ours is not None
        there, here = boxes_of(xml, at), boxes_of(store, ours)
        assert [label for label, _ in here] == [label for label, _ in there]
        written = np.array([box for _, box in there])
        found = np.array([box for _, box in here])
        # Shares with 6 digits, of 640 pixels.
        assert np.abs(found - (written - [1, 1, 0, 0])).max() < 1e-3


def test_columns_of_boxes_are_read_by_name(stores):
    """BCCD's list has xmin, xmax, ymin, ymax in this order, and its numbers are kept as written."""
    store = stores["csv-bccd (--root images)"]
    wanted: dict[str, list[Any]] = {}
    with open(REAL_DATA / "csv-bccd" / "annotations.csv", newline="") as file:
        for row in csv.DictReader(file):
            box = [float(row[name]) for name in ("xmin", "ymin", "xmax", "ymax")]
            wanted.setdefault(row["filename"], []).append((row["cell_type"], box))
    assert {key: boxes_of(store, at) for at, key in enumerate(store.keys)} == wanted


@pytest.mark.parametrize(
    ("name", "file", "picture", "label"),
    [
        ("manifest-csv", "labels.csv", "path", "label"),
        ("csv-classes/ann.csv", "ann.csv", "image_name", "label_name"),
        ("csv-classes/ann_wo_ext.csv", "ann_wo_ext.csv", "image_name", "label_name"),
    ],
)
def test_each_row_of_a_list_gives_its_picture_its_label(name, file, picture, label, stores):
    """Labels, and splits where there are any, are those of the row that names the picture."""
    store = stores[name]
    with open(REAL_DATA / store.real.folder / file, newline="") as lines:
        rows = {Path(row[picture]).stem: row for row in csv.DictReader(lines)}
    assert len(rows) == len(store.keys)
    for key, sample in zip(store.keys, store.samples(), strict=True):
        row = rows[Path(key).stem]
        assert store.dataset.classes[sample["label"]] == row[label]
        assert sample.get("split") == row.get("split")


def test_a_table_with_pictures_inside_gives_the_pixels_of_their_files(stores):
    """The Parquet file was made of the folder `train`, in its order."""
    table, folder = stores["hf-parquet-classes"], stores["imagefolder"]
    assert table.dataset.classes == folder.dataset.classes
    for at in range(30):
        inside, file = table.dataset[at], folder.dataset[at]
        assert np.array_equal(inside["image"], file["image"])
        assert (inside["label"], file["split"]) == (file["label"], "train")


def test_shares_of_yolo_lines_become_pixels(stores):
    """Middle and size as shares of a picture of 15x10 pixels, each line in its place."""
    store = stores["yolo-flat-pairs"]
    for at, key in enumerate(store.keys):
        lines = (REAL_DATA / "yolo-flat-pairs" / key).with_suffix(".txt").read_text().split("\n")
        numbers = [[float(word) for word in line.split()] for line in lines if line.strip()]
        sample = store.sample(at)
        labels, shares = np.array(numbers)[:, 0], np.array(numbers)[:, 1:]
        middle, size = shares[:, :2] * [15, 10], shares[:, 2:] * [15, 10]
        wanted = np.hstack([middle - size / 2, middle + size / 2])
        assert np.abs(sample["boxes"] - wanted).max() < 1e-4
        assert store.names_of(sample["labels"]) == [f"{label:.0f}" for label in labels]


# What a refusal advises.


def test_lists_that_say_boxes_in_three_ways_agree(stores, expected, tmp_path):
    """Corners, sides, and one column once it is called bbox_xyxy, as its refusal advises."""
    folder = tmp_path / "csv-boxes"
    shutil.copytree(REAL_DATA / "csv-boxes", folder)
    text = (folder / "ann3.csv").read_text()
    (folder / "ann3.csv").write_text(text.replace(",bbox\n", ",bbox_xyxy\n", 1))
    real = read("csv-boxes", "csv", inside="ann3.csv", options={"root": folder / "images"})
    three = Store(real, tmp_path / "three.lmdb", folder / "ann3.csv")
    found = Comparison()
    check_csv(three, expected["csv-boxes"]["csv"], found)
    assert found.differences == {}
    one, two = stores["csv-boxes/ann.csv"], stores["csv-boxes/ann2.csv"]
    truth = {
        "1.jpg": [("dog", [0, 1, 1, 2]), ("cat", [1, 2, 3, 3])],
        "2.jpg": [("cat", [0, 0, 1, 1])],
        "3.jpg": [("dog", [0, 2, 2, 4]), ("dog", [0, 0, 1, 1]), ("cat", [1, 1, 2, 2])],
    }
    for store in (one, two, three):
        assert {key: boxes_of(store, at) for at, key in enumerate(store.keys)} == truth


def test_camvid_pairs_are_read_once_a_label_map_is_there(expected, tmp_path):
    """With the file that the refusal asks for, pixels of each class are those that are known."""
    folder = tmp_path / "camvid"
    shutil.copytree(REAL_DATA / "seg-pairs-camvid-txt", folder)
    colors = {
        "Animal": (64, 128, 64),
        "Archway": (192, 0, 128),
        "Bicyclist": (0, 128, 192),
        "Bridge": (0, 128, 64),
        "Child": (192, 128, 64),
        "Road": (128, 64, 128),
        "Sky": (128, 128, 128),
        "Tree": (128, 128, 0),
    }
    lines = [f"{name}:{','.join(map(str, color))}::\n" for name, color in colors.items()]
    (folder / "labelmap.txt").write_text("".join(lines))
    real = read("seg-pairs-camvid-txt", "mask-pairs")
    with shards_made_here():
        store = Store(real, tmp_path / "out.lmdb", folder)
    facts = {**expected["seg-pairs-camvid-txt"]["datumaro"], "labels": list(colors)}
    found = Comparison()
    check_datumaro(store, facts, found)
    assert found.differences == {}
    assert store.report.splits == {"train": 1, "val": 1, "test": 2}


def test_annotations_without_pictures_are_read_once_these_are_there(expected, tmp_path):
    """Fifty pictures in the place that the refusal names, and 3,326 objects are all there."""
    facts = expected["coco-json-only"]["coco"]
    (file,) = facts
    (tmp_path / "raw" / "images").mkdir(parents=True)
    shutil.copy(REAL_DATA / "coco-json-only" / file, tmp_path / "raw")
    for name, fact in facts[file]["per_image"].items():
        Image.new("L", (fact["width"], fact["height"])).save(tmp_path / "raw" / name)
    with shards_made_here():
        store = Store(
            read("coco-json-only", "coco"),
            tmp_path / "out.lmdb",
            tmp_path / "raw",
            Recipe(image="original"),
        )
    found = Comparison()
    check_coco(store, facts, found)
    assert found.differences == {}
    annotations = store.dataset.manifest.source.annotations
    assert annotations == {"found": 3326, "stored": 3326, "rejected": 0}


def test_runs_of_real_results_decode(expected):
    """Results are refused, but the runs in them are those of annotations: areas as COCO's tools."""
    facts = expected["coco-rle"]["rle"]
    (file,) = (p for p in (REAL_DATA / "coco-rle").glob("*.json") if "bbox" not in p.name)
    results = json.loads(file.read_bytes())
    assert len(results) == facts["n"]
    for number, result in enumerate(results):
        height, width = result["segmentation"]["size"]
        runs = decode_counts(result["segmentation"]["counts"], height * width)
        assert [height, width] == facts["sizes"][number]
        assert area(runs) == facts["areas"][number]
        mask = fill(runs, height, width)
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        box = [columns[0], rows[0], np.ptp(columns) + 1, np.ptp(rows) + 1]
        assert box == facts["bboxes_xywh"][number]
        if number < 10:
            assert mask.sum() == facts["mask_sum_first10"][number]


def test_a_class_list_turns_numbers_into_names(stores, tmp_path):
    """Labels that are numbers are kept as names; with the classes given they are positions."""
    options = SourceOptions(classes=("WBC", "RBC", "Platelets"), label_is_index=True)
    raw = REAL_DATA / "hf-imagefolder-metadata"
    report = build(raw, tmp_path / "out.lmdb", source=options, worker_count=1)
    assert stores["hf-imagefolder-metadata"].report.classes == {"0": 13, "1": 141, "2": 18}
    assert report.classes == {"WBC": 13, "RBC": 141, "Platelets": 18}
