"""What a build prints to be copied runs as it stands, and what is said of sizes is so."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from packer import Recipe, SourceOptions, build
from packer.advice import python_lines
from packer.stores.info import describe
from packer.stores.subset import subset
from readers.loader import make
from readers.store.manifest import read_manifest
from tests.cases.real_data import shards_made_here
from tests.packer.source_trees import ENDS_SCAN, MAKERS

CASES = [case for case in MAKERS if case not in ENDS_SCAN]


def run_lines(lines):
    """What the lines give last: images as a batch has them."""
    found = {}
    exec("\n".join(lines), found)
    images = found.get("images")
    if images is None:
        images = found["batch"]["image"]
    return images


@pytest.mark.parametrize("case", CASES)
def test_the_lines_run_on_the_store_that_they_are_printed_for(case, tmp_path, monkeypatch):
    """Of each layout; with ops where sizes differ, images are one tensor."""
    monkeypatch.setattr(make, "loader_worker_count", lambda: 0)
    name, write = MAKERS[case]
    write(tmp_path / "raw")
    out = tmp_path / "out.lmdb"
    with shards_made_here():
        report = build(
            tmp_path / "raw",
            out,
            source=SourceOptions(format=name),
            worker_count=1,
            rejects_max="100%",
        )
    lines = python_lines(str(out), read_manifest(out))
    assert report.summary().endswith("\n".join(["", *lines]))
    assert describe(out).endswith("\n".join(["", *lines]))
    images = run_lines(lines)
    assert len(images) > 0
    assert isinstance(images, torch.Tensor) or "detection_targets" in lines[0]


def _draw(folder, sizes, mode="RGB"):
    folder.mkdir(parents=True)
    for number, (width, height) in enumerate(sizes):
        shade = np.full((height, width), 40 * number, np.uint8)
        Image.fromarray(shade).convert(mode).save(folder / f"{number}.png")
    return folder


def test_sizes_are_told_where_they_differ_and_only_there(tmp_path):
    """By the build and by info, with what to add; a store of one size says so in its statistics."""
    with shards_made_here():
        alike = build(_draw(tmp_path / "a", [(8, 6)] * 3), tmp_path / "alike", worker_count=1)
        unlike = build(
            _draw(tmp_path / "b", [(8, 6), (9, 6), (9, 6)]), tmp_path / "unlike", worker_count=1
        )
    assert read_manifest(tmp_path / "alike").statistics["image_size"] == [6, 8]
    assert "image_size" not in read_manifest(tmp_path / "unlike").statistics
    for text in (alike.summary(), describe(tmp_path / "alike")):
        assert "differ in size" not in text
        assert "ops" not in text
    for text in (unlike.summary(), describe(tmp_path / "unlike")):
        assert "differ in size" in text
        assert "give ops=[ops.RandomResizedCrop(224)] to make_loader" in text
    subset(tmp_path / "alike", tmp_path / "part", limit=1)
    assert read_manifest(tmp_path / "part").statistics["image_size"] == [6, 8]


def test_gray_pictures_in_colour_are_told(tmp_path):
    """With the option that stores them as they are."""
    raw = _draw(tmp_path / "raw", [(8, 6)] * 3, "L")
    with shards_made_here():
        colour = build(raw, tmp_path / "colour", worker_count=1)
        gray = build(raw, tmp_path / "gray", Recipe(mode="gray"), worker_count=1)
    assert "mode='gray'" in colour.summary()
    assert "mode='gray'" not in gray.summary()


def test_the_lines_run_with_workers_in_a_program_of_its_own(tmp_path):
    """As a user pastes them into a file."""
    with shards_made_here():
        report = build(_draw(tmp_path / "a", [(8, 6)] * 3), tmp_path / "o", worker_count=1)
    program = tmp_path / "train.py"
    program.write_text("\n".join([*report.python, "print(tuple(images.shape))"]))
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.returncode) == ("(3, 3, 6, 8)\n", 0), done.stderr
