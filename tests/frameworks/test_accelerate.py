"""accelerate prepares our loaders, for one process and for two."""

from __future__ import annotations

import pytest

from readers import BucketBatchSampler


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two processes"])
def found(request, run):
    """What each rank of so many has seen."""
    return [facts["rank"] for facts in run("with_accelerate", request.param)]


@pytest.mark.parametrize(
    "name",
    [
        "prepared",
        "prepared, workers",
        "split",
        "dispatched",
        "dispatched and split",
        "dispatched, no operations",
        "dispatched, a transform",
        "no operations",
        "of one rank",
        "seedable",
    ],
)
def test_training_has_the_steps_of_one_process(found, reference, name):
    """Each sample once an epoch over all ranks, with the operations of its epoch."""
    settings = {"ops": ()} if "no operations" in name or "transform" in name else {}
    expected = reference.steps(4 * len(found), 2, **settings)
    for rank, facts in enumerate(found):
        length, *epochs = facts[name]
        assert epochs == [reference.dealt_out(epoch, rank, len(found)) for epoch in expected]
        assert length == len(epochs[0])


@pytest.mark.parametrize(
    "name", ["skipped", "skipped, not prepared", "skipped by hand", "stateful"]
)
def test_going_on_in_a_later_epoch_has_its_order(found, reference, name):
    """From the third step of the second epoch on."""
    expected = reference.steps(4 * len(found), 3)
    for rank, facts in enumerate(found):
        if name == "skipped, not prepared":  # Our own parts of each step: every other sample.
            assert facts[name] == [step[rank :: len(found)] for step in expected[1][2:]]
        else:
            assert facts[name] == reference.dealt_out(expected[1], rank, len(found))[2:]
        assert facts["and then"] == reference.dealt_out(expected[2], rank, len(found))


@pytest.mark.parametrize(
    "name", ["gathered", "gathered, split", "gathered, padded", "gathered, dispatched"]
)
def test_what_accelerate_gathers_is_each_sample_once(found, name):
    """On all ranks, whether it fills up the last batches or the loader does."""
    for facts in found:
        assert sorted(facts[name]) == list(range(50))
        assert facts["gathered, a part"] == list(range(29))


def test_ranks_may_have_as_many_samples_as_there_are(found):
    """Without even batches."""
    numbers = [number for facts in found for number in facts["gathered, uneven"]]
    assert sorted(numbers) == list(range(50))


@pytest.mark.parametrize("name", ["padded", "padded, split", "padded, dispatched"])
def test_each_sample_is_valid_once(found, name):
    """All batches are full, ranks have equally many, and what fills up is marked on all of them."""
    rows = [row for facts in found for batch in facts[name] for row in batch]
    assert sorted(number for number, _, is_valid in rows if is_valid) == list(range(50))
    shapes = {tuple(len(batch) for batch in facts[name]) for facts in found}
    assert len(shapes) == 1
    assert len(set(shapes.pop())) == 1


def test_a_batch_of_a_bucket_stays_whole(found, reference):
    """Ranks have the batches that the loader itself gives each of them."""
    for rank, facts in enumerate(found):
        length, *epochs = facts["buckets"]
        sampler = BucketBatchSampler(
            [at % 3 for at in range(50)], 4, seed=3, rank=rank, world_size=len(found)
        )
        assert epochs == reference.epochs_of(2, batch_sampler=sampler)
        assert length == len(epochs[0]) == len(sampler)


def test_an_order_of_the_user_has_operations_of_each_epoch(found):
    """accelerate puts a sampler of its own in the place of torch's random one."""
    for epoch in range(2):
        rows = [row for facts in found for batch in facts["foreign"][epoch] for row in batch]
        assert len({number for number, _ in rows}) == len(rows) >= 48
    first, second = (
        dict(row for batch in found[0]["foreign"][at] for row in batch) for at in (0, 1)
    )
    both = first.keys() & second.keys()
    assert sum(first[number] != second[number] for number in both) > len(both) // 2


def test_a_loader_of_one_rank_of_several_is_refused(found):
    """accelerate would give each process a part of a part."""
    if len(found) > 1:
        for facts in found:
            assert "2 processes, and the loader is of one rank of 2 already" in facts["refused"]
            assert "Leave rank and world_size out" in facts["refused"]
