"""The examples for frameworks run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from packer import build

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A store of pictures of two classes, bright and dark, with two splits."""
    folder = tmp_path_factory.mktemp("examples")
    generator = np.random.default_rng(0)
    for split, count in (("train", 64), ("val", 20)):
        for number in range(count):
            level = (40, 200)[number % 2]
            path = folder / "raw" / split / ("dark", "bright")[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = generator.integers(level - 40, level + 40, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
    build(folder / "raw", folder / "photos.lmdb", workers=1)
    return folder / "photos.lmdb"


def run(*command):
    """What a program printed; with one thread, as sums are small."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_lightning_data_module_trains(photos):
    """Two epochs by `Trainer.fit`, and a share of right answers from validation."""
    text = run(ROOT / "examples" / "lightning_datamodule.py", photos)
    assert 0 <= float(re.search(r"right: ([\d.]+)", text)[1]) <= 1


@pytest.mark.parametrize("processes", [1, 2])
def test_accelerate_counts_each_validation_image_once(photos, processes):
    """On one process and on two."""
    launch = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", processes]
    launch += ["--num_machines", 1, "--mixed_precision", "no", "--dynamo_backend", "no"]
    text = run(*launch, ROOT / "examples" / "accelerate_train.py", photos)
    assert re.findall(r"right: \d+ of (\d+)", text) == ["20"]


def test_the_hugging_face_trainer_trains(photos, tmp_path):
    """Two epochs, checkpoints, and an evaluation."""
    text = run(ROOT / "examples" / "hf_trainer.py", photos, "--out", tmp_path / "runs")
    assert "eval loss:" in text
    assert len(list((tmp_path / "runs").glob("checkpoint-*"))) == 2
