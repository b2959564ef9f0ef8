"""The examples in the README and in docstrings run as they stand."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import packer
import readers
from packer import Recipe, build

README = Path(__file__).parents[1] / "README.md"
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
    return folder


def test_the_examples_of_the_readme_run(folder, monkeypatch):
    """A newcomer pastes them, one after the other."""
    monkeypatch.chdir(folder)
    examples = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) >= 2
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, str(README), "exec"), names)
    batches = list(names["batches"])
    assert batches[0][0].shape == (64, 3, 160, 160)
    assert batches[0][0].is_floating_point()


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
