"""The global random numbers of a worker process, which a user's transform may draw from."""

from __future__ import annotations

import random

import numpy as np
import torch


def seed_globals(seed: int, epoch: int, *numbers: int) -> None:
    """Give them a state of their own for each batch, whoever fills it.

    Which worker that is depends on who is free first, and must not show in the samples.

    Args:
        seed: The loader's seed.
        epoch: Its number.
        numbers: Of the batch in the epoch, over all ranks; and of a part in the batch, if it was
            cut.
    """
    state = np.random.SeedSequence([seed, epoch, *numbers]).generate_state(4)
    random.seed(int(state[0]))
    np.random.seed(state[1:3])
    torch.default_generator.manual_seed(int(state[3]))  # Of the CPU alone: 5 times as quick.
