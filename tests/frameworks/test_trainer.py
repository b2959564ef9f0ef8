"""transformers.Trainer trains with our loaders, on one process and on two."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two processes"])
def found(request, run):
    """What each rank of so many has seen."""
    return [facts["rank"] for facts in run("with_trainer", request.param)]


@pytest.mark.parametrize("name", ["prepared", "plain"])
def test_it_trains_in_our_order_and_goes_on_in_a_later_epoch(found, reference, name):
    """Whether accelerate has prepared the loader, or it is taken as it is."""
    world_size = len(found)
    expected = reference.steps(4 * world_size, 3)
    part = {"prepared": reference.dealt_out, "plain": reference.taken_in_turns}[name]
    for rank, facts in enumerate(found):
        steps = [step for epoch in expected for step in part(epoch, rank, world_size)]
        assert facts[name] == steps
        # The checkpoint is of the second step of the second epoch.
        assert facts[f"{name}, resumed"] == steps[len(expected[0]) + 2 :]
        assert sorted(facts[f"{name}, evaluated"]) == list(range(50))
