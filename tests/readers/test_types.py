"""A type checker knows what a sample and a batch are, and finds a user's mistakes."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

USERS = """
from __future__ import annotations

from typing import Any

import torch
from typing_extensions import assert_type

from readers import LMDBDataset, make_loader
from readers.loader.loader import Loader

samples = LMDBDataset("a.lmdb", split=["train", "val"], io="read")
assert_type(samples, LMDBDataset[dict[str, Any]])
assert_type(samples[0], dict[str, Any])
assert_type(samples["a/b.jpg"], dict[str, Any])
assert_type(samples[2:5], LMDBDataset[dict[str, Any]])
assert_type(samples.filter(lambda columns: columns["label"] == "cat")[0], dict[str, Any])
for sample in samples.select([1, 2]):
    assert_type(sample, dict[str, Any])

pairs = LMDBDataset("a.lmdb", returns=("image", "label"), image_as="numpy")
assert_type(pairs[0], tuple[Any, Any])
listed = LMDBDataset("a.lmdb", returns=["image", "label"])
assert_type(listed[0], tuple[Any, ...])
changed = LMDBDataset("a.lmdb", returns=("image", "label"), transform=len)
assert_type(changed[0], Any)

loader = make_loader(pairs, 64, train=True, num_workers=4)
assert_type(loader, Loader[tuple[Any, Any]])
for images, labels in loader:
    assert_type(images, Any)
for batch in make_loader(samples, 64, train=False, workers=0):
    assert_type(batch, dict[str, Any])


def joined(given: list[Any]) -> torch.Tensor:
    return torch.tensor(len(given))


assert_type(next(iter(make_loader(pairs, 2, train=True, collate_fn=joined))), torch.Tensor)
assert_type(next(iter(make_loader(pairs, 2, train=False, pad=True))), Any)
with pairs as opened:
    assert_type(opened, LMDBDataset[tuple[Any, Any]])


def count(dataset: LMDBDataset) -> int:
    return len(dataset)


assert_type(count(pairs), int)
"""

MISTAKEN = """
from readers import LMDBDataset, make_loader

pairs = LMDBDataset("a.lmdb", returns=("image", "label"))
pairs[0]["image"]
make_loader("a.lmdb", 2, train=True)
make_loader(pairs, 2, train="val")
LMDBDataset("a.lmdb", image_as="jax")
make_loader(pairs, 2, train=True, num_worker=3)
a, b, c = pairs[0]
"""


@pytest.fixture
def errors_of(tmp_path):
    """The lines of a program with what mypy says of each."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("needs mypy")

    def check(program):
        path = tmp_path / "program.py"
        path.write_text(program.lstrip())
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", str(path)],
            cwd=ROOT,  # Where scripts/check has left what it knows of torch.
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        lines = done.stdout.splitlines()
        found = [re.match(r".*program\.py:(\d+): error: (.*)", line) for line in lines]
        return {int(one[1]): one[2] for one in found if one}

    return check


def test_a_users_program_is_typed(errors_of):
    """Dicts, tuples of as many values as were asked for, and what a collate_fn makes."""
    assert errors_of(USERS) == {}


def test_mistakes_are_found_before_they_run(errors_of):
    """A name of a tuple, a path for a dataset, a split for train, words that nobody knows."""
    errors = errors_of(MISTAKEN)
    assert sorted(errors) == [4, 5, 6, 7, 8, 9]
    assert "more than 2 values to unpack (3 expected)" in errors[9]
