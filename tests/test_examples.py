"""The examples in the README and in docstrings run as they stand."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import packer
import readers
from packer import Recipe, build
from tests.command import run_packer

README = Path(__file__).parents[1] / "README.md"
DOCS = README.parent / "docs"
FRAMEWORKS = DOCS / "frameworks.md"
ANNOTATIONS = DOCS / "annotations.md"
NETWORK = DOCS / "network.md"
OTHERS = ["quickstart.md", "training.md", "tuning.md", "staging.md"]
"""Pages whose examples need nothing but a store of photos."""
MODULES = sorted(
    module.name
    for package in (packer, readers)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if "__main__" not in module.name
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the stores that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    generator = np.random.default_rng(0)
    for number in range(70):
        path = folder / "raw" / "train" / ("cat", "dog")[number % 2] / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(path)
    build(folder / "raw", folder / "shapes.lmdb", worker_count=1)
    build(folder / "raw", folder / "photos.lmdb", Recipe(size=224, fit="crop"), worker_count=1)
    measured = run_packer(
        *("bench", folder / "photos.lmdb", "--batch-size", "32", "--seconds", "1"),
        *("-o", folder / "tuned.json"),
    )
    assert measured.exit_code == 0, measured.stderr
    return folder


def run_examples(document: Path, count: int = 2) -> dict[str, Any]:
    """Run the examples of a document, one after the other; what they named."""
    examples = re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) >= count
    names: dict[str, Any] = {}
    for example in examples:
        for place in ("/nfs/", "/local/"):
            example = example.replace(place, "")
        exec(compile(example, str(document), "exec"), names)
    return names


def test_the_examples_of_the_readme_run(folder, monkeypatch):
    """A newcomer pastes them, one after the other."""
    monkeypatch.chdir(folder)
    batches = list(run_examples(README)["batches"])
    assert batches[0][0].shape == (64, 3, 160, 160)
    assert batches[0][0].is_floating_point()


@pytest.mark.parametrize("name", OTHERS)
def test_the_examples_of_other_pages_run(name, folder, monkeypatch, capsys):
    """Each page begins anew."""
    monkeypatch.chdir(folder)
    names = run_examples(DOCS / name, count=1)
    if "dataset" in names:
        names["dataset"].close()


def test_the_examples_of_every_page_are_python():
    """Those that need a bucket or a cluster are at least read."""
    for page in sorted(DOCS.rglob("*.md")):
        for example in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.DOTALL):
            compile(example, str(page), "exec")


def test_the_example_about_frameworks_runs(folder, monkeypatch):
    """A loader that is built from what ours shows has its batches."""
    monkeypatch.chdir(folder)
    names = run_examples(FRAMEWORKS, count=1)
    first, other = (next(iter(names[name])) for name in ("loader", "same"))
    names["loader"].set_epoch(0)
    assert torch.equal(first[0], next(iter(names["same"]))[0])
    assert first[0].shape == other[0].shape == (16, 3, 160, 160)


def test_the_example_about_network_storage_runs(folder, monkeypatch):
    """How failed reads are tried again is a setting of the dataset."""
    monkeypatch.chdir(folder)
    images = run_examples(NETWORK, count=1)["dataset"].__getitems__([3, 60])
    assert [image.shape for image, _ in images] == [(3, 224, 224)] * 2


def test_the_examples_about_annotations_run(tmp_path, monkeypatch, capsys):
    """They lead from a turned and resized picture back to the numbers of its annotation file."""
    boxes = [[4.0, 6.0, 24.0, 16.0], [30.0, 8.0, 10.0, 20.0]]
    images, annotations = [], []
    for number in range(4):
        exif = Image.Exif()
        exif[0x0112] = 6  # The file lies on its side, and so do its annotations.
        (tmp_path / "street").mkdir(exist_ok=True)
        Image.new("RGB", (64, 48)).save(tmp_path / "street" / f"{number}.jpg", exif=exif)
        images.append({"id": number, "file_name": f"{number}.jpg", "width": 64, "height": 48})
        for x, y, w, h in [*boxes, [1.0, 1.0, 0.0, 9.0]]:
            annotation = {"id": len(annotations), "image_id": number, "category_id": 1}
            outline = [[x, y, x + w, y, x + w, y + h]]
            annotations.append({**annotation, "bbox": [x, y, w, h], "segmentation": outline})
    categories = [{"id": 1, "name": "car"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "street" / "train.json").write_text(json.dumps(content))
    recipe = Recipe(size=96, fit="letterbox")
    build(tmp_path / "street", tmp_path / "street.lmdb", recipe, worker_count=1)
    monkeypatch.chdir(tmp_path)
    names = run_examples(ANNOTATIONS)
    expected = [[x, y, x + w, y + h] for x, y, w, h in boxes]
    np.testing.assert_allclose(names["raw_boxes"], expected, atol=1e-4)
    np.testing.assert_allclose(names["raw_points"][:, 0], [4, 30], atol=1e-4)
    assert "annotation 2 box [1, 1, 1, 10] has no area" in capsys.readouterr().out


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_docstrings_run(name, folder, monkeypatch):
    """What a docstring shows is what one gets."""
    monkeypatch.chdir(folder)
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_there_are_examples_to_run():
    """The test above passes for a module without any; the dataset has one."""
    found = doctest.DocTestFinder().find(importlib.import_module("readers.dataset"))
    assert sum(len(test.examples) for test in found) >= 2
