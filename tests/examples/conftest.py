"""Stores that the examples are run on: photos in classes, drawn boxes, drawn masks."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from packer import build

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

# Small sums on several cores are slower than on one, and far slower on busy ones.
RUNNER = """
import runpy, sys, warnings
import torch
warnings.simplefilter("ignore")
torch.set_num_threads(1)
sys.path.insert(0, {root!r})
from tests.vision import need_torchvision
if {vision}:
    need_torchvision()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def run():
    """Runs an example as a program of its own; what it printed."""

    def run_example(name, *arguments, vision=False):
        code = RUNNER.format(root=str(ROOT), vision=vision)
        command = [sys.executable, "-c", code, EXAMPLES / name, *arguments]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return run_example


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Crops of ten real photos, `train` and `val`, as files."""
    pytest.importorskip("skimage")
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        demo_photos = importlib.import_module("demo_photos")
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    folder = tmp_path_factory.mktemp("examples") / "photos"
    demo_photos.cut_photos(folder)
    return folder


@pytest.fixture(scope="session")
def photo_store(photos):
    """A store of the photos, 72 x 72."""
    store = photos.with_name("photos.lmdb")
    build(photos, store, size=72, fit="crop", workers=1)
    return store


def draw(path, mask_path, number):
    """A red and a green rectangle on noise, and their mask; boxes as x, y, width, height."""
    generator = np.random.default_rng(number)
    picture = Image.fromarray(generator.integers(0, 90, (128, 128, 3), dtype=np.uint8))
    mask = Image.new("L", picture.size)
    boxes = []
    for label, colour in ((1, (40, 250, 40)), (2, (250, 40, 40))):
        width, height = generator.integers(24, 48, 2).tolist()
        x, y = generator.integers(0, 80, 2).tolist()
        for image, fill in ((picture, colour), (mask, label)):
            ImageDraw.Draw(image).rectangle([x, y, x + width - 1, y + height - 1], fill=fill)
        boxes.append([x, y, width, height])
    picture.save(path)
    mask.save(mask_path)
    return boxes


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    """Stores of boxes and of masks of the same 16 pictures."""
    folder = tmp_path_factory.mktemp("drawn")
    for name in ("street", "masks/images", "masks/masks"):
        (folder / name).mkdir(parents=True)
    images, annotations = [], []
    for number in range(16):
        path = folder / "masks" / "images" / f"{number}.png"
        boxes = draw(path, folder / "masks" / "masks" / path.name, number)
        (folder / "street" / path.name).write_bytes(path.read_bytes())
        images.append({"id": number, "file_name": path.name, "width": 128, "height": 128})
        for label, box in enumerate(boxes, 1):
            facts = {"id": len(annotations), "image_id": number, "category_id": label, "bbox": box}
            annotations.append(facts)
    categories = [{"id": 1, "name": "car"}, {"id": 2, "name": "bus"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "street" / "train.json").write_text(json.dumps(content))
    stores = {name: folder / f"{name}.lmdb" for name in ("street", "masks")}
    for name, store in stores.items():
        build(folder / name, store, workers=1)
    return stores
