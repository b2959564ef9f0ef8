"""What a run must have seen: the loader's own batches in one process."""

from __future__ import annotations

import hashlib

from readers import LMDBDataset, make_loader
from readers.ops import RandomFlip, RandomResizedCrop

OPS = (RandomResizedCrop(6), RandomFlip())


def seen(batch):
    """A batch as numbers and digests of images."""
    digests = [hashlib.sha256(image.numpy().tobytes()).hexdigest()[:8] for image in batch[1]]
    return [list(row) for row in zip(batch[0].tolist(), digests, strict=True)]


def steps_of(store, size, epochs, **settings):
    """The samples of each step over all ranks, epoch by epoch."""
    loader = make_loader(
        LMDBDataset(store, returns=("number", "image")),
        **{"batch_size": size, "train": True, "ops": OPS, "seed": 3, "workers": 0, **settings},
    )
    return [[seen(batch) for batch in loader] for _ in range(epochs)]


def dealt_out(steps, rank, world_size):
    """The part of each step that a rank gets from accelerate: neighbours."""
    each = len(steps[0]) // world_size
    return [step[rank * each : (rank + 1) * each] for step in steps]


def taken_in_turns(steps, rank, world_size):
    """The part of each step that a rank of ours takes: every so many-th sample."""
    return [step[rank::world_size] for step in steps]
