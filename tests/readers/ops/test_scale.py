"""A store of a million samples is opened at once, and reading it takes no memory that stays."""

from __future__ import annotations

import pickle

import pytest

from readers.dataset import LMDBDataset

MB = 10**6


def test_a_million_samples_pickle_as_small_as_ten(million):
    """What a spawned worker gets does not grow with the store, nor with what was read of it."""
    dataset = LMDBDataset(million, returns=("image", "label"))
    assert len(dataset) == 10**6
    fresh = len(pickle.dumps(dataset))
    for at in range(0, 10**6, 99_999):
        assert dataset[at][1] == at % 10
    dataset.__getitems__(range(0, 10**6, 12_345))
    assert len(dataset.columns["label"]) == 10**6
    assert len(pickle.dumps(dataset)) == fresh < 1000
    half = dataset.select(range(250_000, 750_000))
    assert len(pickle.dumps(half)) < 1500
    assert half[1][1] == 1


def test_a_million_samples_are_open_within_a_third_of_a_second(million, run_python):
    """Up to the first sample, and up to one of every shard: the index is used where it lies.

    The requirement is the bound; the best of three runs is taken since the machine is shared.
    """
    code = """
import gc, json, sys, time
import readers.dataset
from readers import LMDBDataset

def resident():
    with open("/proc/self/status") as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith("VmRSS"))

seconds, growth = [], []
for _ in range(3):
    gc.collect()
    before, start = resident(), time.perf_counter()
    dataset = LMDBDataset(sys.argv[1], returns=("image", "label"))
    samples = [dataset[at] for at in range(0, 10**6, 100_000)]
    seconds.append(time.perf_counter() - start)
    growth.append(resident() - before)
    assert len(dataset) == 10**6
    del dataset
print(json.dumps([min(seconds), growth[0]]))
"""
    seconds, growth = run_python(code, million)
    assert seconds < 0.3
    assert growth < 60 * MB


@pytest.mark.parametrize(("count", "settings"), [(100_000, ""), (25_000, ", transform=tuple")])
def test_the_private_memory_of_a_worker_does_not_grow(million, run_python, count, settings):
    """Three epochs of tiny samples, read in batches or one by one, leave less than 5 MB."""
    code = f"""
import json, sys
from readers import LMDBDataset, make_loader

def private(pid):
    with open(f"/proc/{{pid}}/smaps_rollup") as stream:
        return next(int(l.split()[1]) * 1024 for l in stream if l.startswith("Private_Dirty"))

dataset = LMDBDataset(sys.argv[1], returns=("image", "label"){settings})
assert len(dataset.columns["label"]) == 10**6  # The parent has read all of it before.
dataset = dataset.select(range(495_000, 495_000 + {count}))
loader = make_loader(dataset, 500, train=True, workers=1, engine="process")
batches, sizes = iter(loader), []
next(batches)
pid = loader.engine._workers[0].process.pid
for epoch in range(3):
    sizes.append(private(pid))
    count = sum(len(label) for _, label in (batches if epoch == 0 else loader))
    assert count == {count} - 500 * (epoch == 0)
sizes.append(private(pid))
print(json.dumps(sizes))
"""
    sizes = run_python(code, million)
    assert max(sizes) - sizes[0] < 5 * MB
