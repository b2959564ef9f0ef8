"""Every real data set goes through the layouts that can hold it and comes back the same.

Archives and tables take what comes, whatever it is: each set goes through one of the two, in turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer.errors import BuildError
from packer.recipe import Recipe
from packer.sources import SourceOptions
from packer.stores.export.formats import EXPORT_FORMATS, FormatName
from readers.store.manifest import read_manifest
from tests.cases.real_data import REAL_DATA, shards_made_here, source_options
from tests.cases.real_sets import READ, RealSet
from tests.packer.stores.export.making import is_same, samples

OPTIONS: dict[FormatName, dict[str, Any]] = {
    "folder": {"format": "imagefolder"},
    "coco": {"format": "coco"},
    "yolo": {"format": "yolo"},
    "voc": {"format": "voc", "voc_origin": "1"},
    "tar": {"format": "tar"},
    "parquet": {"format": "hf"},
}
"""How each is read again, besides the classes."""

TOO_LARGE = "photos-large"
"""Photos that say no more than those of flat-photos, and take ten times as long."""

WITHIN_PX = 1e-4

SAMPLES_MAX = 15
"""Of a set: what is left of MNIST says no less than all of it."""


@pytest.fixture(autouse=True, scope="module")
def _here() -> Iterator[None]:
    if not REAL_DATA.exists():
        pytest.skip(f"the real data sets are not here: {REAL_DATA}")
    with shards_made_here():
        yield


def keys_of(files: Path) -> dict[str, str]:
    """Key in the store, by path in an export, of those that are not the same."""
    lines = (files / ".packer-keys.jsonl").read_text().splitlines()
    return {said["path"]: said["key"] for said in map(json.loads, lines)}


def built_again(store: Path, as_: FormatName, folder: Path) -> list[dict[str, Any]]:
    """The samples of a store that is made of an export, with their keys in the first store."""
    files = folder / as_
    packer.export(store, files, as_=as_, workers=1)
    manifest = read_manifest(store)
    options = dict(OPTIONS[as_])
    about = "label" if as_ in ("folder", "tar") else "boxes"
    if about in manifest.schema and as_ != "parquet":
        options["classes"] = manifest.classes
    if as_ == "folder" and "label" not in manifest.schema:
        options = {"format": "flat"}
    if as_ == "voc" and "boxes" not in manifest.schema:
        options = {"format": "voc", "task": "segment"}
    out = folder / f"{as_}.lmdb"
    recipe = Recipe(image="original", mode="unchanged")
    source = SourceOptions(**options)
    packer.build(files, out, recipe, source=source, workers=1, rejects_max=0)
    found = samples(out, with_pixels=False)
    keys = keys_of(files)
    for sample in found:
        path = sample["key"]
        if as_ == "tar":
            path = path.partition("/")[2]
        sample["key"] = keys.get(path, path)
    return found


def holds(as_: FormatName, store: Path) -> bool:
    """Whether a layout has a place for what a store is about."""
    try:
        packer.plan_export(store, as_=as_)
    except BuildError:
        return False
    return True


def in_tables(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Samples in the order of the tables of their splits."""
    return sorted(found, key=lambda sample: str(sample.get("split", "")))


SETS = [real for real in READ if real.folder != TOO_LARGE]


def named(real: RealSet) -> str:
    return real.name


@pytest.mark.slow
@pytest.mark.parametrize("real", SETS, ids=named)
def test_a_real_set_comes_back_from_its_layouts(real, tmp_path):
    """The files' bytes, and what each layout carries: classes, splits, boxes, outlines, points."""
    store = tmp_path / "store.lmdb"
    packer.build(
        REAL_DATA / real.folder / real.inside,
        store,
        Recipe(image="original", mode="unchanged", limit=SAMPLES_MAX),
        source=source_options(real),
        workers=1,
        rejects_max="100%",
    )
    before = samples(store, with_pixels=False)
    done = []
    not_now: FormatName = ("tar", "parquet")[SETS.index(real) % 2]
    for as_ in EXPORT_FORMATS:
        if as_ == not_now or not holds(as_, store):
            continue
        after = built_again(store, as_, tmp_path)
        done.append(as_)
        if as_ == "parquet":
            first, second = in_tables(before), in_tables(after)
        else:
            first = sorted(before, key=lambda sample: str(sample["key"]))
            second = sorted(after, key=lambda sample: str(sample["key"]))
            assert [s["key"] for s in first] == [s["key"] for s in second], as_
        for a, b in zip(first, second, strict=True):
            assert a["file"] == b["file"], (as_, a["key"])
            check_carried(as_, a, b)
    assert {"folder", "tar", "parquet"} - {not_now} <= set(done)


def check_carried(as_: FormatName, a: dict[str, Any], b: dict[str, Any]) -> None:
    """Hold the fields that a layout carries against each other."""
    height, width = a["size"]
    limits = np.array([width, height, width, height], np.float32)
    names = {"label"} if as_ in ("folder", "tar", "parquet") else set()
    if as_ in ("coco", "parquet") and "boxes" in a:
        names |= {"boxes", "labels", "area", "iscrowd"}
    if as_ == "coco":
        names |= {"masks", "keypoints", "attributes"}
    for name in names & a.keys():
        assert is_same(a[name], b[name], WITHIN_PX), (as_, a["key"], name)
    if as_ == "yolo" and "boxes" in a and not {"masks", "corners"} & a.keys():
        assert is_same(np.clip(a["boxes"], 0, limits), b["boxes"], WITHIN_PX), a["key"]
    if as_ == "voc" and "boxes" in a and "corners" not in a:
        assert is_same(np.clip(a["boxes"], 0, limits), b["boxes"], WITHIN_PX), a["key"]
    if "mask" in a and as_ == "voc" and "boxes" not in a and a["mask"].dtype == np.uint8:
        assert np.array_equal(a["mask"], b["mask"])
