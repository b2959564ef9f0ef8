"""Cuts, sizes and facts of a plan: a pure function of the data and the recipe."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.items.raw_item import RawItem, Scan
from packer.plan.cuts import SHARD_BYTES_LEAST, cut_items
from packer.plan.estimate import estimate_record_bytes, store_bytes
from packer.plan.shards import make_plan, make_schema
from packer.recipe import Recipe
from packer.sources import SourceOptions, scan_source
from packer.workspace.unfinished import facts_that_differ
from readers.store.manifest import read_manifest
from readers.store.schema import Field


def scan_of(byte_counts, root=Path(".")):
    items = [
        RawItem(b"%06d.jpg" % at, b"%06d.jpg" % at, count, 0)
        for at, count in enumerate(byte_counts)
    ]
    return Scan(format="flat", root=root, items=items)


@given(
    st.lists(st.integers(0, 1000), max_size=60).map(lambda sizes: np.array(sizes, np.int64)),
    st.integers(1, 2000),
)
def test_cuts_hold_every_item_once_in_order_within_the_limit(sizes, bytes_max):
    """Runs without gaps; a run above the limit is of one item; none could take its next item."""
    cuts = cut_items(sizes, bytes_max)
    assert [at for first, end in cuts for at in range(first, end)] == list(range(len(sizes)))
    for first, end in cuts:
        assert end - first == 1 or sizes[first:end].sum() <= bytes_max
        if end < len(sizes):
            assert sizes[first : end + 1].sum() > bytes_max
    assert cut_items(sizes, bytes_max) == cuts


@given(st.lists(st.integers(1, 10**8), min_size=1, max_size=300))
def test_a_plan_is_the_same_each_time_and_covers_all_items(byte_counts):
    """Items of any size; the cuts add up, and nothing but the input decides them."""
    recipe = Recipe(image="original")
    plan, again = make_plan(scan_of(byte_counts), recipe), make_plan(scan_of(byte_counts), recipe)
    assert plan.facts() == again.facts()
    ends = [0, *(end for _, end in plan.cuts)]
    assert [first for first, _ in plan.cuts] == ends[:-1]
    assert ends[-1] == len(byte_counts)
    assert plan.byte_count == store_bytes(np.array(byte_counts) + 200)


def test_a_small_store_is_not_cut_and_a_large_one_is_cut_for_many_workers():
    """4 MiB a shard at least, unless asked for less; about 64 shards, up to the largest size."""
    original = Recipe(image="original")
    assert len(make_plan(scan_of([2**20] * 3), original).cuts) == 1
    assert len(make_plan(scan_of([2**20] * 128), original).cuts) == 43
    assert len(make_plan(scan_of([2**28] * 64), original).cuts) == 64
    small = Recipe(image="original", shard_bytes_max=2**20)
    assert len(make_plan(scan_of([2**19 - 200] * 16), small).cuts) == 8
    assert SHARD_BYTES_LEAST == 2**22


@pytest.mark.parametrize("fit", ["letterbox", "stretch", "crop"])
def test_records_of_equal_size_are_estimated_without_reading_a_file(fit):
    """A square of known side and channels; the raw files need not even be there."""
    scan = scan_of([5, 7], Path("/nowhere"))
    recipe = Recipe(size=100, fit=fit, mode="gray")
    assert estimate_record_bytes(scan, recipe).tolist() == [10_200, 10_200]
    # Masks and annotations are records' bytes too.
    mask = Field(name="mask", kind="mask", dtype="int32", shape=(None, None))
    items = [msgspec.structs.replace(item, annotations=b"12345") for item in scan.items]
    masked = dataclasses.replace(scan, items=items, fields=(mask,))
    assert estimate_record_bytes(masked, recipe).tolist() == [50_205, 50_205]
    assert make_schema(masked, recipe)["mask"].shape == (100, 100)


def test_records_of_their_own_size_are_estimated_from_headers(tmp_path, draw_tree, raw, store):
    """Within some per cent of what the store takes; a file that is not a picture does no harm."""
    scan = scan_source(raw, SourceOptions())
    plan = make_plan(scan, Recipe())
    pixels = 12 * 24 * 16 * 3
    assert pixels < plan.byte_count < pixels * 1.3
    tree = draw_tree(tmp_path / "raw", ["1.png"])
    (tree / "2.png").write_bytes(b"no picture")
    with_bad = scan_source(tree, SourceOptions())
    assert make_plan(with_bad, Recipe()).byte_count > 24 * 16 * 3
    assert make_plan(with_bad, Recipe(size=48)).byte_count == 2 * (3 * 4096 + 130)
    assert read_manifest(store).source.sha256 == plan.source_sha256


def test_the_schema_says_what_each_sample_has(raw):
    """Sides that are the same for all, channels by mode, the codec; the source's own fields."""
    scan = scan_source(raw, SourceOptions())
    label = Field(name="label", kind="label", dtype="int64", names=("ant", "bee", "cat"))
    schema = make_schema(scan, Recipe())
    assert schema.names == ("key", "image", "label", "original_size", "transform")
    assert schema["label"] == label
    shapes = {
        Recipe(): (None, None, 3),
        Recipe(size=9): (None, None, 3),
        Recipe(size=9, fit="long"): (None, None, 3),
        Recipe(size=9, fit="crop", mode="gray"): (9, 9, 1),
        Recipe(size=9, fit="letterbox", mode="rgba"): (9, 9, 4),
        Recipe(mode="unchanged"): (None, None, None),
    }
    for recipe, shape in shapes.items():
        image = make_schema(scan, recipe)["image"]
        assert (image.shape, image.codec, image.mode) == (shape, "raw", None)
        assert image.dtype == (None if recipe.mode == "unchanged" else "uint8")
    original = make_schema(scan, Recipe(image="original", mode="gray"))["image"]
    assert (original.codec, original.mode, original.shape) == ("original", "gray", (None, None, 1))


def test_the_schema_says_the_size_that_a_source_knows():
    """As it is stored: resized or not; and records of it are estimated to the byte."""
    mask = Field(name="mask", kind="mask", dtype="uint8", shape=(None, None))
    scan = dataclasses.replace(scan_of([5, 7], Path("/nowhere")), fields=(mask,))
    known = dataclasses.replace(scan, image_size=(30, 40))
    sizes = {
        Recipe(): (30, 40),
        Recipe(size=15): (15, 20),
        Recipe(size=15, fit="long"): (11, 15),
        Recipe(size=15, fit="crop"): (15, 15),
        Recipe(max_side=20): (15, 20),
        Recipe(image="original"): (30, 40),
    }
    for recipe, size in sizes.items():
        schema = make_schema(known, recipe)
        assert schema["image"].shape == (*size, 3)
        assert schema["mask"].shape == size
    assert estimate_record_bytes(known, Recipe()).tolist() == [30 * 40 * 4 + 200] * 2
    assert make_schema(known, Recipe(mode="unchanged"))["image"].shape == (30, 40, None)
    assert make_schema(scan, Recipe())["image"].shape == (None, None, 3)


def test_facts_name_what_differs(tmp_path, draw_tree):
    """Times count for going on with a build, not for the identity of the data."""
    tree = draw_tree(tmp_path / "raw", ["1.png", "2.png"])
    plan = make_plan(scan_source(tree, SourceOptions()), Recipe())
    written = json.loads(json.dumps(plan.facts()))
    assert facts_that_differ(plan.facts(), written) == []
    os.utime(tree / "1.png", ns=(0, 0))
    later = make_plan(scan_source(tree, SourceOptions()), Recipe(size=8, mode="gray"))
    assert facts_that_differ(later.facts(), written) == [
        "mode was 'rgb' and is 'gray'",
        "size was None and is 8",
        "the raw data changed",
        "the schema changed",
    ]
    assert later.source_sha256 == plan.source_sha256
    assert later.state_sha256 != plan.state_sha256
    other = {**written, "format": "csv", "library versions": {"numpy": "1.0"}}
    differences = facts_that_differ(plan.facts(), other)
    assert "format was csv and is flat" in differences
    assert any(line.startswith("numpy was '1.0' and is ") for line in differences)
