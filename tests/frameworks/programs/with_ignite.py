"""Ignite's engines over our loaders, and its loaders over our datasets and samplers."""

from __future__ import annotations

import os
import warnings

import ignite.distributed as idist
import torch
from common import all_seen, answer, dataset, loader, seen
from ignite.engine import Engine
from ignite.engine.deterministic import DeterministicEngine

from readers import ShuffleSampler

if "RANK" in os.environ:
    idist.initialize("gloo")
warnings.simplefilter("ignore")
facts = {"world size": idist.get_world_size()}


def run(kind, ours, epochs, state=None):
    """What an engine sees."""
    found = []
    engine = kind(lambda _engine, batch: found.append(seen(batch)))
    torch.manual_seed(7)
    if state is not None:
        engine.load_state_dict(state)
    engine.run(ours, max_epochs=epochs)
    return found, engine


facts["engine"] = run(Engine, loader(workers=1), 2)[0]
facts["evaluation"] = run(Engine, loader(train=False, workers=0, pad=True), 1)[0]
facts["deterministic"], whole = run(DeterministicEngine, loader(workers=0), 2)

# From the third step of the second epoch on.
state = whole.state_dict()
length = len(loader(workers=0))
state.update(iteration=length + 2, epoch_length=length, max_epochs=2, rng_states=None)
ours = loader(workers=0)
ours.set_epoch(1)
facts["resumed"] = run(DeterministicEngine, ours, 2, state)[0]

ours = loader(workers=0)
shown = idist.auto_dataloader(
    ours.dataset, batch_sampler=ours.batch_sampler, collate_fn=ours.collate_fn
)
facts["auto"] = [all_seen(shown), all_seen(shown)]
ours = loader(workers=0)
shown = idist.auto_dataloader(
    ours.dataset,
    batch_size=4 * idist.get_world_size(),
    sampler=ours.sampler,
    drop_last=ours.drop_last,
    collate_fn=ours.collate_fn,
)
facts["auto of the sampler"] = [all_seen(shown), all_seen(shown)]
shown = idist.auto_dataloader(
    dataset(),
    batch_size=4 * idist.get_world_size(),
    sampler=ShuffleSampler(50, seed=3),
    drop_last=True,
)
facts["auto of a dataset"] = [all_seen(shown), all_seen(shown)]
answer(facts)
if torch.distributed.is_initialized():
    idist.finalize()
