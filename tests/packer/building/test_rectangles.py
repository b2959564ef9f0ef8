"""Stores whose images all come to a rectangle: `--size 320x224`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from packer import Recipe, build
from packer.plan.shards import make_plan
from packer.sources import SourceOptions, scan_source
from readers import LMDBDataset
from readers.store.manifest import read_manifest
from tests.command import run_packer

WIDTH, HEIGHT = 30, 20


@pytest.mark.parametrize("fit", ["crop", "letterbox", "stretch"])
def test_a_rectangle_is_width_and_height_on_the_command_line_and_the_other_way_in_python(
    fit, raw, tmp_path, contents
):
    """One store comes of both; schema, manifest, `info` and plan have the size, and each sample."""
    typed, called = tmp_path / "typed.lmdb", tmp_path / "called.lmdb"
    done = run_packer("build", raw, typed, "--size", f"{WIDTH}x{HEIGHT}", "--fit", fit, "-j", "1")
    assert done.exit_code == 0, done.stderr
    build(raw, called, size=(HEIGHT, WIDTH), fit=fit, workers=1)
    assert contents(typed) == contents(called)
    manifest = read_manifest(typed)
    assert manifest.recipe["size"] == [HEIGHT, WIDTH]
    assert manifest.schema["image"].shape == (HEIGHT, WIDTH, 3)
    assert manifest.statistics["image_size"] == [HEIGHT, WIDTH]
    assert f"size={WIDTH}x{HEIGHT}, fit={fit}" in run_packer("info", typed).stdout
    assert LMDBDataset(typed)[3]["image"].shape == (3, HEIGHT, WIDTH)
    plan = make_plan(scan_source(raw, SourceOptions()), Recipe(size=(HEIGHT, WIDTH), fit=fit))
    assert plan.record_bytes[0] == 200 + HEIGHT * WIDTH * 3


def test_what_lies_on_an_image_follows_it_into_a_rectangle(tmp_path):
    """A box's corners and a mask's pixels lie where the drawn object lies."""
    (tmp_path / "raw").mkdir()
    pixels = np.zeros((40, 100, 3), np.uint8)
    pixels[10:30, 60:80] = 255
    Image.fromarray(pixels).save(tmp_path / "raw" / "1.png")
    annotation = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [60, 10, 20, 20]}
    image = {"id": 1, "file_name": "1.png", "width": 100, "height": 40}
    coco = {
        "images": [image],
        "annotations": [annotation],
        "categories": [{"id": 1, "name": "square"}],
    }
    (tmp_path / "raw" / "train.json").write_text(json.dumps(coco))
    for fit in ("crop", "letterbox", "stretch"):
        out = tmp_path / f"{fit}.lmdb"
        build(tmp_path / "raw", out, size=(64, 96), fit=fit, workers=1)
        sample = LMDBDataset(out)[0]
        rows, columns = np.nonzero(sample["image"][0].numpy() > 200)
        found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        np.testing.assert_allclose(sample["boxes"][0], found, atol=1.5)


def test_an_update_goes_on_with_its_rectangle(raw, tmp_path):
    """Nothing to do where nothing changed; another rectangle is another recipe, and is said so."""
    out = tmp_path / "out.lmdb"
    build(raw, out, size=(HEIGHT, WIDTH), fit="crop", workers=1)
    report = build(raw, out, size=(HEIGHT, WIDTH), fit="crop", workers=1, update=True)
    assert report.kept_shard_count == report.shard_count
    assert run_packer("verify", out, "--against", raw).exit_code == 0
    build(raw, out, size=(WIDTH, HEIGHT), fit="crop", workers=1, update=True)
    assert LMDBDataset(out)[0]["image"].shape == (3, WIDTH, HEIGHT)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--size", "320x224"], "--size 320x224 is a rectangle"),
        (["--size", "320x224", "--fit", "long"], "give --fit 'crop'"),
        (["--size", "320*224", "--fit", "crop"], "expected a side in pixels such as 224, or"),
        (["--size", "320x", "--fit", "crop"], "'320x' is not a size"),
        (["--size", "0x224", "--fit", "crop"], "--size must be in [1, 65536) pixels"),
        (["--size", "320x224", "--fit", "crop", "--max-side", "300"], "is below --size 320x224"),
    ],
)
def test_a_rectangle_that_says_too_little_is_refused_at_once(arguments, said, raw, tmp_path):
    """Whether to cut, pad or stretch is the user's choice; messages have the order that was
    typed."""
    done = run_packer("build", raw, tmp_path / "out.lmdb", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_square_written_as_a_rectangle_is_the_same_recipe(raw, tmp_path, contents):
    """Also where the short or the long side is meant: `--size 24x24` is `--size 24`."""
    done = run_packer("build", raw, tmp_path / "a.lmdb", "--size", "24X24", "-j", "1")
    assert done.exit_code == 0, done.stderr
    build(raw, tmp_path / "b.lmdb", Recipe(size=24), workers=1)
    assert contents(tmp_path / "a.lmdb") == contents(tmp_path / "b.lmdb")
    assert Recipe(size=(24, 24)).size == 24
