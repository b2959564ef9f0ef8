"""A Lightning Trainer fits, goes on, tests and predicts with our loaders, however it is spread."""

from __future__ import annotations

import pytest

ALL = ("fit", "resume", "test", "predict")

WAYS = {
    "one process": (1, "auto", "1", ALL),
    "launched": (2, "ddp", "1", ALL),
    "forked": (2, "ddp_fork", "1", ALL),
    "in a notebook": (2, "ddp_notebook", "1", ("fit",)),
    "spawned": (2, "ddp_spawn", "1", ("fit",)),
}


@pytest.fixture(scope="module", params=WAYS.values(), ids=WAYS)
def found(request, run):
    """What each rank of so many has seen, and in which phases."""
    count, strategy, workers, phases = request.param
    settings = (strategy, str(count), workers, *phases)
    return run("with_lightning", count, *settings, launches=False), phases


def test_it_trains_in_our_order_with_operations(found, reference):
    """Two epochs, each rank its part; each sample is validated once an epoch."""
    ranks, _ = found
    expected = reference.steps(4 * len(ranks), 2)
    validated = []
    for rank, facts in enumerate(ranks):
        steps = [
            step for epoch in expected for step in reference.taken_in_turns(epoch, rank, len(ranks))
        ]
        assert facts["whole"]["trained"] == steps
        validated += [number for batch in facts["whole"]["validated"] for number, _ in batch]
    assert sorted(validated) == sorted([*range(50), *range(50)])


def test_it_goes_on_in_mid_epoch(found):
    """Its checkpoint keeps the loader's place, also of a loader that is made in a hook."""
    ranks, phases = found
    for facts in ranks:
        whole = facts["whole"]["trained"]
        if "resume" in phases:
            assert facts["resumed"]["trained"] == whole[len(whole) // 2 + 3 :] != []


@pytest.mark.parametrize("phase", ["test", "predict"])
def test_each_sample_is_valid_once(found, phase):
    """Where it makes a loader of its own from ours, to keep indices, they are still marked."""
    ranks, phases = found
    if phase in phases:
        rows = [
            row
            for facts in ranks
            for batch in facts[{"test": "tested", "predict": "predicted"}[phase]]["tested"]
            for row in batch
        ]
        assert {len(row) for row in rows} == {3}
        assert sorted(number for number, _, is_valid in rows if is_valid) == list(range(50))
