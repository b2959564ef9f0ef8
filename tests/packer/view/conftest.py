"""Stores of all that a page draws, small and drawn by code; and a browser that shows the page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer.building.build import build
from tests.browser import Browser, find_program

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("chromium-headless-shell", "fonts-liberation")

EVIL = "<script>document.title='owned'</script>"
EVIL_TOO = "</script><img src=x onerror=\"document.title='owned'\">"
WIDTH, HEIGHT = 160, 120


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real Chromium; it is installed where we are root, and else the test is skipped by name."""
    program = find_program()
    if program is None:
        installer = ROOT / "scripts" / "debian_packages.py"
        done = subprocess.run(
            [sys.executable, installer, *PACKAGES], capture_output=True, text=True, check=False
        )
        program = find_program()
        if program is None:
            pytest.skip(f"needs a Chromium: {done.stdout.strip()}")
    found = Browser(program, tmp_path_factory.mktemp("profile"))
    try:
        yield found
    finally:
        found.close()


def scene(seed: int, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray[Any, Any]:
    """A picture with large smooth shapes, as photos have: (height, width, 3) uint8."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    parts = []
    for _ in range(3):
        across, down, shift = rng.uniform(15, 60), rng.uniform(15, 60), rng.uniform(0, 6)
        parts.append(120 + 80 * np.sin(x / across + shift) * np.cos(y / down))
    return np.clip(np.stack(parts, axis=2), 0, 255).astype(np.uint8)


def coco_tree(root: Path, count: int = 4) -> Path:
    """Boxes, polygons, runs and keypoints of two classes whose names are meant to break a page."""
    (root / "images").mkdir(parents=True)
    images, annotations = [], []
    for number in range(count):
        name = f"{number:03d}.png"
        Image.fromarray(scene(number)).save(root / "images" / name)
        images.append({"id": number + 1, "file_name": name, "width": WIDTH, "height": HEIGHT})
        annotations.append(
            {
                "id": 10 * number + 1,
                "image_id": number + 1,
                "category_id": 1,
                "bbox": [10, 10, 60, 80],
                "area": 4800,
                "iscrowd": 0,
                "segmentation": [[10, 10, 70, 10, 70, 90, 40, 60, 10, 90]],
                "keypoints": [40, 20, 2, 20, 40, 1, 60, 40, 2, 0, 0, 0],
                "num_keypoints": 3,
            }
        )
        if number % 2 == 0:
            runs = [WIDTH * HEIGHT // 2, 40 * HEIGHT, WIDTH * HEIGHT // 2 - 40 * HEIGHT]
            annotations.append(
                {
                    "id": 10 * number + 2,
                    "image_id": number + 1,
                    "category_id": 2,
                    "bbox": [80, 0, 40, HEIGHT],
                    "area": 40 * HEIGHT,
                    "iscrowd": 1,
                    "segmentation": {"counts": runs, "size": [HEIGHT, WIDTH]},
                }
            )
    # One that cannot be kept, so that there is a reject.
    annotations.append(
        {"id": 999, "image_id": 1, "category_id": 1, "bbox": [5, 5, 0, 9], "area": 0, "iscrowd": 0}
    )
    categories = [
        {
            "id": 1,
            "name": EVIL,
            "keypoints": ["nose", "left_shoulder", "right_shoulder", "left_hip"],
            "skeleton": [],
        },
        {"id": 2, "name": EVIL_TOO},
    ]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations.json").write_text(json.dumps(document))
    return root


@pytest.fixture(scope="session")
def coco_raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coco_tree(tmp_path_factory.mktemp("view") / "raw")


@pytest.fixture(scope="session")
def coco_store(coco_raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of `coco_raw`. Not to be changed."""
    out = tmp_path_factory.mktemp("view-store") / "out.lmdb"
    build(coco_raw, out, worker_count=1)
    return out


@pytest.fixture(scope="session")
def page_data() -> Callable[[Path], dict[str, Any]]:
    """What a page holds."""

    def read(path: Path) -> dict[str, Any]:
        text = path.read_text("utf-8")
        found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
        assert len(found) == 1
        data: dict[str, Any] = json.loads(found[0])
        return data

    return read
