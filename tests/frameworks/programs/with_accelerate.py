"""accelerate.prepare and skip_first_batches of our loaders."""

from __future__ import annotations

import torch
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches
from common import OPS, all_seen, answer, dataset, loader

from readers import BucketBatchSampler, SequentialSampler, make_loader


def accelerator(**settings):
    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**settings))


facts = {}
plain = accelerator()
world_size = plain.num_processes

# Training: two epochs, with and without workers of torch's.
for name, settings, ours in (
    ("prepared", {}, {"workers": 0}),
    ("prepared, workers", {}, {"workers": 1}),
    ("split", {"split_batches": True}, {"workers": 0, "batch_size": 4 * world_size}),
    ("dispatched", {"dispatch_batches": True}, {"workers": 0}),
    (
        "dispatched and split",
        {"dispatch_batches": True, "split_batches": True},
        {"workers": 0, "batch_size": 4 * world_size},
    ),
    ("dispatched, no operations", {"dispatch_batches": True}, {"workers": 0, "ops": ()}),
    (
        "dispatched, a transform",
        {"dispatch_batches": True},
        {"workers": 0, "ops": (), "transform": tuple},
    ),
    ("no operations", {}, {"workers": 0, "ops": ()}),
    ("of one rank", {}, {"workers": 0, "rank": 0, "world_size": 1}),
    ("seedable", {"use_seedable_sampler": True}, {"workers": 0}),
):
    prepared = accelerator(**settings).prepare(loader(**ours))
    facts[name] = [len(prepared), *(all_seen(prepared) for _ in range(2))]

# Going on in mid-epoch, in a later epoch: as transformers.Trainer does, and by hand.
for name, prepare in (("skipped", plain.prepare), ("skipped, not prepared", lambda one: one)):
    resumed = skip_first_batches(prepare(loader(workers=0)), 2)
    for one in (resumed, getattr(resumed.batch_sampler, "batch_sampler", None)):
        if hasattr(one, "set_epoch"):
            one.set_epoch(1)
    facts[name] = all_seen(resumed)
by_hand = plain.prepare(loader(workers=0))
by_hand.set_epoch(1)
facts["skipped by hand"] = all_seen(plain.skip_first_batches(by_hand, 2))
by_hand.set_epoch(2)
facts["and then"] = all_seen(by_hand)

# A checkpoint of torchdata's loader inside.
stateful = accelerator(use_stateful_dataloader=True)
first = stateful.prepare(loader(workers=0))
all_seen(first)
for turn, _ in enumerate(first):
    if turn == 1:
        break
state = first.state_dict()
second = stateful.prepare(loader(workers=0))
second.set_epoch(1)
second.load_state_dict(state)
facts["stateful"] = all_seen(second)

# Evaluation, each sample once: as accelerate gathers it, and by `valid`.
for name, settings, ours in (
    ("gathered", {}, {}),
    ("gathered, split", {"split_batches": True}, {"batch_size": 3 * world_size}),
    ("gathered, padded", {}, {"pad": True}),
    ("gathered, dispatched", {"dispatch_batches": True}, {}),
    ("gathered, a part", {}, {"sampler": SequentialSampler(50, num_samples=29)}),
    ("gathered, uneven", {"even_batches": False}, {}),
):
    with_settings = accelerator(**settings)
    prepared = with_settings.prepare(
        loader(**{"batch_size": 3, "train": False, "workers": 0, **ours})
    )
    numbers = []
    for batch in prepared:
        if name == "gathered, uneven":  # Ranks have as many as they have.
            numbers += batch[0].tolist()
        else:
            numbers += with_settings.gather_for_metrics(batch[0]).tolist()
    facts[name] = numbers
for name, settings in (
    ("padded", {}),
    ("padded, split", {"split_batches": True}),
    ("padded, dispatched", {"dispatch_batches": True}),
):
    prepared = accelerator(**settings).prepare(
        loader(batch_size=6, train=False, pad=True, workers=0)
    )
    facts[name] = all_seen(prepared)

# Other orders.
buckets = torch.arange(50).numpy() % 3
bucketed = plain.prepare(
    make_loader(
        dataset(),
        train=True,
        ops=OPS,
        seed=3,
        workers=0,
        batch_sampler=BucketBatchSampler(buckets, 4, seed=3),
    )
)
facts["buckets"] = [len(bucketed), all_seen(bucketed), all_seen(bucketed)]
torch.manual_seed(5)
foreign = accelerator(use_seedable_sampler=True).prepare(
    loader(workers=0, sampler=torch.utils.data.RandomSampler(range(50)))
)
facts["foreign"] = [all_seen(foreign), all_seen(foreign)]

if world_size > 1:
    given = loader(workers=0, rank=plain.process_index, world_size=world_size)
    try:
        list(plain.prepare(given))
    except ValueError as error:
        facts["refused"] = str(error)
answer(facts)
if world_size > 1:
    torch.distributed.destroy_process_group()
