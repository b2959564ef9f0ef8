"""What the programs of these tests have in common."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from pathlib import Path

import torch

from readers import LMDBDataset, make_loader
from readers.ops import RandomFlip, RandomResizedCrop

warnings.simplefilter("ignore")
torch.set_num_threads(1)

STORE, FOLDER = sys.argv[1], Path(sys.argv[2])
OPS = (RandomResizedCrop(6), RandomFlip())
RETURNS = ("number", "image")


def dataset(transform=None):
    return LMDBDataset(STORE, returns=RETURNS, transform=transform)


def loader(batch_size=4, transform=None, **settings):
    """A loader of all samples with random operations."""
    return make_loader(
        dataset(transform), batch_size, **{"train": True, "ops": OPS, "seed": 3, **settings}
    )


def seen(batch):
    """A batch as numbers and digests of images; and what is valid, if it says so."""
    numbers, images = batch[0].tolist(), batch[1]
    digests = [hashlib.sha256(image.numpy().tobytes()).hexdigest()[:8] for image in images]
    rows = [[number, digest] for number, digest in zip(numbers, digests, strict=True)]
    if len(batch) == 3:
        rows = [[*row, bool(ok)] for row, ok in zip(rows, batch[2].tolist(), strict=True)]
    return rows


def all_seen(batches):
    return [seen(batch) for batch in batches]


def answer(facts):
    """Leave what this rank found where the test finds it."""
    rank = os.environ.get("RANK", "0")
    (FOLDER / f"rank-{rank}.json").write_text(json.dumps(facts))
