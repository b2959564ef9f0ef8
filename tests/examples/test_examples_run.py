"""Each example runs as it stands, and does what it says. Those of frameworks: tests/frameworks."""

from __future__ import annotations

import gzip
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from packer import build

ROOT = Path(__file__).resolve().parents[2]
FASHION = Path("/usr/share/datasets/fashion-mnist")


def losses(text):
    """The losses of the epochs, as an example prints them."""
    return [float(found) for found in re.findall(r"loss (\d+\.\d+)", text)]


def need(*names):
    """Skip by name what is not installed here."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


@pytest.fixture(scope="module")
def fashion(tmp_path_factory):
    """2,000 training and 1,000 validation pictures of Fashion-MNIST in class folders."""
    if not FASHION.exists():
        script = ROOT / "scripts" / "debian_packages.py"
        done = subprocess.run([sys.executable, script, "dataset-fashion-mnist"], check=False)
        if done.returncode or not FASHION.exists():
            pytest.skip("needs Debian's package dataset-fashion-mnist")
    folder = tmp_path_factory.mktemp("fashion") / "photos"
    for split, name, count in (("train", "train", 2000), ("val", "t10k", 1000)):
        pixels = gzip.decompress((FASHION / f"{name}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((FASHION / f"{name}-labels-idx1-ubyte.gz").read_bytes())[8:]
        images = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28)
        for number in range(count):
            path = folder / split / f"{labels[number]}" / f"{number:05d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[number]).save(path)
    build(folder, folder.with_name("photos.lmdb"), size=32, fit="stretch", workers=2)
    return folder


@pytest.mark.slow
def test_folder_and_store_train_to_the_same_accuracy(fashion, run):
    """Three seeds each; the means differ by no more than noise, and both learn."""
    text = run("classification.py", fashion, fashion.with_name("photos.lmdb"), "--epochs", 5)
    print(text)
    rows = re.findall(r"\| (folder|store) \| ([\d., ]+) \| ([\d.]+) \|", text)
    means = {name: float(mean) for name, _, mean in rows}
    assert means.keys() == {"folder", "store"}
    assert min(means.values()) > 0.6
    assert abs(means["folder"] - means["store"]) < 0.05


@pytest.mark.slow
def test_a_detector_learns_from_a_store(drawn, run, tmp_path):
    """The loss falls, and a picture with boxes is drawn."""
    need("torchvision")
    picture = tmp_path / "boxes.png"
    text = run(
        "detection.py", drawn["street"], "--epochs", 4, "--drawn", picture, vision=True
    )  # fmt: skip
    found = losses(text)
    assert found[-1] < found[0]
    with Image.open(picture) as image:
        assert image.size == (128, 128)


def test_a_segmentation_network_learns_from_a_store(drawn, run):
    """The loss falls."""
    found = losses(run("segmentation.py", drawn["masks"], "--epochs", 4))
    assert found[-1] < found[0]


def test_batches_can_be_mixed(photo_store, run):
    """Mixup and CutMix in turn, and the loss falls."""
    found = losses(run("mixup_cutmix.py", photo_store))
    assert found[-1] < found[0]


def test_transforms_of_others_move_boxes_as_ours_do(drawn, run):
    """A flip gives the same boxes by torchvision, albumentations and ops."""
    need("torchvision", "albumentations", "kornia")
    text = run("transforms.py", drawn["street"], vision=True)
    lines = dict(line.split(":", 1) for line in text.splitlines() if ": " in line)
    found = {name.strip(): value.strip() for name, value in lines.items()}
    assert found["torchvision"] == found["albumentations"] == found["ops"]
    assert found["as stored"] != found["ops"]
    assert found["kornia"] == "(4, 3, 64, 64)"


@pytest.mark.slow
def test_a_model_of_timm_trains_from_our_loader(photo_store, run):
    """With its own mixup, behind our prefetcher."""
    need("torchvision", "timm")
    assert len(losses(run("timm_train.py", photo_store, vision=True))) == 2


def test_each_example_is_a_screen_and_says_how_it_is_run():
    """A newcomer reads it whole: no more than 110 lines, the commands on top."""
    programs = sorted((ROOT / "examples").glob("*.py"))
    assert len(programs) >= 8
    for path in programs:
        text = path.read_text()
        assert len(text.splitlines()) <= 110, path.name
        assert f"examples/{path.name}" in text.partition('"""\n\nfrom')[0], path.name
