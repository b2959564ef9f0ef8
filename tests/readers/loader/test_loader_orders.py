"""A loader's batches over ranks, epochs and interruptions."""

from __future__ import annotations

import logging
import random

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
)

import readers.loader.make
from readers import (
    BlockShuffleSampler,
    BucketBatchSampler,
    ClassBalancedSampler,
    DevicePrefetcher,
    LMDBDataset,
    MixtureSampler,
    ShuffleSampler,
    WeightedSampler,
)


@pytest.fixture
def make_loader():
    """make_loader, without workers unless asked for; what it made is closed in the end."""
    made = []

    def make(*arguments, **settings):
        made.append(readers.loader.make.make_loader(*arguments, **{"workers": 0, **settings}))
        return made[-1]

    yield make
    for loader in made:
        loader.close()


class Numbers(Dataset):
    """Sample i is the number i."""

    def __init__(self, count=50):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.tensor(index)


@pytest.fixture
def numbers(many_shards):
    """A store of 50 samples, the label of each a digit: the fast way of the engines."""
    return LMDBDataset(many_shards, returns=("label",)).select(range(50))


def lists(loader):
    return [batch.tolist() for batch in loader]


def over_ranks(make_loader, dataset, batch_size, world_size, epochs=1, **settings):
    """For each step, the batches of all ranks; for several epochs."""
    loaders = [
        make_loader(dataset, batch_size, rank=rank, world_size=world_size, **settings)
        for rank in range(world_size)
    ]
    steps = []
    for _ in range(epochs):
        batches = [lists(loader) for loader in loaders]
        assert [len(each) for each in batches] == [len(loader) for loader in loaders]
        steps.append(batches)
    return steps


@pytest.mark.parametrize(
    ("drop_last", "expected"),
    [(True, [[12] * 4] * 3), (False, [[12] * 4 + [2]] * 3)],
)
def test_a_step_has_the_same_samples_on_any_number_of_ranks(make_loader, drop_last, expected):
    """1, 2, 3, 4, 6 and 12 ranks with 12 samples a step; in each of three epochs."""
    steps = {}
    for world_size in (1, 2, 3, 4, 6, 12):
        epochs = over_ranks(
            make_loader,
            Numbers(),
            12 // world_size,
            world_size,
            3,
            train=True,
            seed=2,
            drop_last=drop_last,
        )
        for batches in epochs:
            assert len({len(each) for each in batches}) == 1
            assert len({tuple(map(len, each)) for each in batches}) == 1
        steps[world_size] = [
            [
                # Ranks that lack a sample in the last step have one that was there before.
                [index for turn in zip(*step, strict=True) for index in turn]
                for step in zip(*batches, strict=True)
            ]
            for batches in epochs
        ]
    sizes = [[len(step) for step in epoch] for epoch in steps[1]]
    assert sizes == expected
    for epochs in steps.values():
        for epoch, alone in zip(epochs, steps[1], strict=True):
            assert [step[: len(own)] for step, own in zip(epoch, alone, strict=True)] == alone
    assert len({str(epoch) for epoch in steps[1]}) == 3


def test_evaluation_has_each_sample_once_over_all_ranks(make_loader):
    """10 on four ranks: three, three, two, two. Also when there are more ranks than samples."""
    ((batches),) = over_ranks(make_loader, Numbers(10), 2, 4, train=False)
    assert batches == [[[0, 4], [8]], [[1, 5], [9]], [[2, 6]], [[3, 7]]]
    ((batches),) = over_ranks(make_loader, Numbers(2), 2, 3, train=False)
    assert batches == [[[0]], [[1]], []]


def test_a_rank_that_gets_no_batch_says_so(make_loader, caplog):
    """As a warning, with the rank: its loop will run zero times."""
    with caplog.at_level(logging.INFO, "readers.loader"):
        make_loader(Numbers(2), 2, train=False, rank=2, world_size=3)
        make_loader(Numbers(2), 2, train=False, rank=1, world_size=3)
    first, second = caplog.records
    assert (first.levelno, second.levelno) == (logging.WARNING, logging.INFO)
    assert "evaluation ready: 0 batches of 2 on rank 2 of 3;" in first.getMessage()
    assert "1 batches of 2 on rank 1 of 3, the last of 1;" in second.getMessage()
    with pytest.raises(
        ValueError, match="16 samples on rank 0 of 3 are fewer than one batch of 20"
    ):
        make_loader(Numbers(), 20, train=True, rank=0, world_size=3)


@pytest.mark.parametrize("engine", ["thread", "process"])
@pytest.mark.parametrize("workers", [0, 2])
def test_padded_batches_are_all_full_and_say_what_counts(numbers, make_loader, engine, workers):
    """On all ranks equally many; what is valid is each sample once."""
    settings = {"train": False, "pad": True, "engine": engine, "workers": workers}
    for count, world_size, batch_count in ((10, 4, 1), (13, 4, 2), (12, 2, 2), (2, 3, 1)):
        dataset = LMDBDataset(numbers.view.path, fields=["label"]).select(range(count))
        kept = []
        for rank in range(world_size):
            loader = make_loader(dataset, 3, rank=rank, world_size=world_size, **settings)
            batches = list(loader)
            assert len(batches) == len(loader) == batch_count
            for batch in batches:
                assert list(batch) == ["label", "valid"]
                assert batch["valid"].dtype == torch.bool
                assert batch["label"].shape == batch["valid"].shape == (3,)
                kept += batch["label"][batch["valid"]].tolist()
        assert sorted(kept) == sorted(at % 10 for at in range(count))


def test_valid_is_the_last_field_of_a_tuple_or_list(make_loader):
    """And of training too, if it is asked for; other batches have no place for it."""
    dataset = [(torch.tensor(at), -at) for at in range(5)]
    loader = make_loader(dataset, 4, train=True, pad=True)
    batches = list(loader)
    assert [valid.tolist() for _, _, valid in batches] == [[True] * 4, [True] + [False] * 3]
    seen = torch.cat([numbers[valid] for numbers, _, valid in batches])
    assert sorted(seen.tolist()) == [0, 1, 2, 3, 4]
    for wrong, found in ((torch.tensor(1), "Tensor"), ({"valid": 1}, "a dict that has one")):
        with pytest.raises(ValueError, match=f"dicts, tuples or lists; got {found}"):
            next(iter(make_loader([wrong] * 3, 2, train=False, pad=True)))


ORDERS = {
    "training": (lambda: {"batch_size": 4, "train": True, "seed": 5}),
    "short last batch": (lambda: {"batch_size": 4, "train": True, "drop_last": False}),
    "evaluation": (lambda: {"batch_size": 4, "train": False}),
    "blocks": (
        lambda: {
            "batch_size": 4,
            "train": True,
            "sampler": BlockShuffleSampler(50, block_size=4, window=3),
        }
    ),
    "weighted": (
        lambda: {"batch_size": 4, "train": True, "sampler": WeightedSampler(np.arange(50))}
    ),
    "balanced": (
        lambda: {"batch_size": 4, "train": True, "sampler": ClassBalancedSampler(np.arange(50) % 3)}
    ),
    "buckets": (lambda: {"train": True, "batch_sampler": BucketBatchSampler([0, 1] * 25, 4)}),
    "given batches": (
        lambda: {
            "train": True,
            "batch_sampler": BatchSampler(SequentialSampler(range(50)), 4, False),
        }
    ),
    "torch's own": (
        lambda: {
            "batch_size": 4,
            "train": True,
            "sampler": DistributedSampler(range(50), num_replicas=1, rank=0),
        }
    ),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("engine", ["thread", "process"])
def test_going_on_at_any_step_is_as_if_it_had_not_stopped(numbers, make_loader, engine, order):
    """With batches under way; with another engine and other workers; into the next epoch."""
    run = {"engine": engine, "workers": 2}
    other = {"engine": {"thread": "process", "process": "thread"}[engine], "workers": 1}
    whole = make_loader(numbers, **order(), **run)
    expected = [[batch[0].tolist() for batch in whole] for _ in range(2)]
    resumed, same = make_loader(numbers, **order(), **other), make_loader(numbers, **order(), **run)
    loader = make_loader(numbers, **order(), **run)
    states = [loader.state_dict()]
    for _ in loader:
        states.append(loader.state_dict())
    assert len(states) == len(expected[0]) + 1
    after = loader.state_dict()
    assert (after["epoch"], after["position"]) == (1, 0)
    for done, state in enumerate(states):
        assert state["epoch"] == 0
        assert all(type(value) in (int, str) for value in state.values())
        for follower in (resumed, same) if done in (0, 3, len(states) - 1) else (resumed,):
            follower.load_state_dict(state)
            assert follower.state_dict() == state
            assert [batch[0].tolist() for batch in follower] == expected[0][done:]
        if done in (2, len(states) - 1):
            assert [batch[0].tolist() for batch in resumed] == expected[1]
    resumed.load_state_dict(after)
    assert [batch[0].tolist() for batch in resumed] == expected[1]


@pytest.mark.parametrize("before", [1, 2, 3, 4])
@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_going_on_with_another_number_of_ranks_is_the_same_run(make_loader, before, after):
    """The rest of the epoch comes in the same steps, and so does the next one."""
    settings = {"train": True, "seed": 9}
    alone = make_loader(Numbers(), 12, **settings)
    expected = [lists(alone) for _ in range(2)]
    for done in range(5):
        states = []
        for rank in range(before):
            loader = make_loader(Numbers(), 12 // before, rank=rank, world_size=before, **settings)
            batches = iter(loader)
            for _ in range(done):
                next(batches)
            states.append(loader.state_dict())
        assert all(state == states[0] for state in states)
        assert states[0]["position"] == 12 * done
        found = []
        for rank in range(after):
            loader = make_loader(Numbers(), 12 // after, rank=rank, world_size=after, **settings)
            loader.load_state_dict(states[0])
            found.append([lists(loader), lists(loader)])
        for epoch in range(2):
            ranks = [batches[epoch] for batches in found]
            steps = [
                [index for turn in zip(*step, strict=True) for index in turn]
                for step in zip(*ranks, strict=True)
            ]
            assert steps == (expected[0][done:] if epoch == 0 else expected[1])


def test_set_epoch_of_the_epoch_to_come_keeps_the_place(make_loader):
    """A loop that says its epoch goes on in the middle of it; another epoch begins at its start."""
    loader = make_loader(Numbers(), 10, train=True)
    epochs = [lists(loader) for _ in range(3)]
    loader.set_epoch(1)
    batches = iter(loader)
    next(batches)
    next(batches)
    state = loader.state_dict()
    for epoch, expected in ((1, epochs[1][2:]), (2, epochs[2]), (0, epochs[0])):
        resumed = make_loader(Numbers(), 10, train=True)
        resumed.load_state_dict(state)
        resumed.set_epoch(epoch)
        assert lists(resumed) == expected
    resumed.load_state_dict(state)
    resumed.sampler.set_epoch(1)  # As Lightning does.
    assert lists(resumed) == epochs[1][2:]


def test_a_loop_that_was_left_keeps_its_place_until_the_next(make_loader):
    """So that it can be saved; the next iteration is the next epoch."""
    loader = make_loader(Numbers(), 10, train=True)
    epochs = [lists(loader) for _ in range(2)]
    loader.set_epoch(0)
    for number, _ in enumerate(loader):
        if number == 1:
            break
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (0, 20)
    assert lists(loader) == epochs[1]
    abandoned = iter(loader)
    next(abandoned)
    loader.load_state_dict(state)
    next(abandoned)
    assert loader.state_dict() == state
    assert lists(loader) == epochs[0][2:]


def test_an_iteration_takes_its_epoch_with_its_first_batch(make_loader):
    """One that is not used takes none, and the epoch may be set between the two."""
    loader = make_loader(Numbers(), 10, train=True)
    epochs = [lists(loader) for _ in range(3)]
    loader.set_epoch(1)
    iter(loader)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    loader.load_state_dict(state)
    batches = iter(loader)
    loader.set_epoch(1)
    assert loader.state_dict() == state
    assert [batch.tolist() for batch in batches] == epochs[1][1:]
    assert lists(loader) == epochs[2]


def test_another_batch_size_goes_on_with_the_same_samples(make_loader):
    """The place is counted in samples."""
    loader = make_loader(Numbers(), 10, train=True)
    order = [index for batch in lists(loader) for index in batch]
    loader.set_epoch(0)
    next(iter(loader))
    resumed = make_loader(Numbers(), 7, train=True)
    resumed.load_state_dict(loader.state_dict())
    assert [index for batch in lists(resumed) for index in batch] == order[10:45]
    evaluation = make_loader(Numbers(), 20, train=False)
    assert [evaluation.state_dict()["position"] for _ in evaluation] == [20, 40, 50]


def test_a_state_of_other_data_is_refused(numbers, shapes, make_loader, copy_store):
    """Another store, split, selection or kind; not the same store in another place."""

    def state_of(dataset):
        return make_loader(dataset, 1, train=False).state_dict()

    whole = LMDBDataset(shapes.path)
    state = state_of(whole)
    make_loader(LMDBDataset(copy_store(shapes.path)), 1, train=False).load_state_dict(state)
    first = whole.select(range(8))
    datasets = [
        LMDBDataset(shapes.path, split="train"),
        first,
        whole.select([*range(7), 9]),
        numbers.select(range(8)),
        Subset(whole, range(8)),
        Subset(whole, [0] * 8),
        ConcatDataset([first.select(range(4))] * 2),
        ConcatDataset([first.select(range(3)), first.select(range(5))]),
        Numbers(8),
    ]
    digests = [state_of(dataset)["dataset"] for dataset in datasets]
    assert len(set(digests)) == len(digests)
    assert state_of(whole.select(range(8)))["dataset"] == digests[1]
    loader = make_loader(first, 1, train=False)
    with pytest.raises(ValueError, match=r"taken with dataset '\w{16}'; here it is '\w{16}'"):
        loader.load_state_dict(state_of(Numbers(8)))
    with pytest.raises(ValueError, match="taken with order 'SequentialSampler of 12 from 12'"):
        loader.load_state_dict(state)


def test_the_order_of_torch_s_random_samplers_cannot_be_had_again(make_loader):
    """Going on in the middle of it would be another epoch, so it is refused, with what to use."""
    loader = make_loader(Numbers(), 5, train=True, sampler=RandomSampler(range(50)))
    next(iter(loader))
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (0, 1)
    loader.load_state_dict(state)
    with pytest.raises(ValueError, match=r"RandomSampler draws another order.*ShuffleSampler"):
        next(iter(loader))


def test_torch_s_distributed_sampler_is_told_the_epoch(make_loader):
    """Each epoch has an order of its own without a call; what the user calls is obeyed."""

    def sampler():
        return DistributedSampler(range(50), num_replicas=2, rank=1)

    loader, expected = make_loader(Numbers(), 5, train=True, sampler=sampler()), []
    stock = sampler()
    for epoch in range(8):
        stock.set_epoch(epoch)
        expected.append(lists(DataLoader(Numbers(), 5, sampler=stock)))
    assert [lists(loader) for _ in range(3)] == expected[:3]
    loader.sampler.set_epoch(6)
    assert [lists(loader), lists(loader)] == expected[6:]
    loader.set_epoch(2)
    assert lists(loader) == expected[2]


class Draws:
    """A transform that draws one number from each global generator."""

    def __call__(self, sample):
        drawn = [torch.rand(()), torch.tensor(np.random.rand()), torch.tensor(random.random())]
        return torch.stack([one.double() for one in drawn])


def test_random_numbers_of_workers_go_on_too_and_differ_between_ranks(numbers, make_loader):
    """A batch draws the same whether or not the run was interrupted before it; no two batches of
    all ranks draw alike."""
    dataset = LMDBDataset(numbers.view.path, transform=Draws()).select(range(24))
    drawn = []
    for rank in range(2):
        settings = {"train": True, "workers": 2, "rank": rank, "world_size": 2}
        loader = make_loader(dataset, 4, **settings)
        batches = [lists(loader) for _ in range(2)]
        resumed = make_loader(dataset, 4, **{**settings, "workers": 1})
        loader.set_epoch(1)
        next(iter(loader))
        resumed.load_state_dict(loader.state_dict())
        assert lists(resumed) == batches[1][1:]
        drawn += [tuple(sample) for epoch in batches for batch in epoch for sample in batch]
    assert len(set(drawn)) == len(drawn) == 48


def test_a_prefetcher_counts_what_the_loop_got(make_loader):
    """Not what is on its way to the device; and it goes on there."""
    expected = lists(make_loader(Numbers(), 5, train=True))
    loader = make_loader(Numbers(), 5, train=True)
    batches = DevicePrefetcher(loader, "cpu", depth=3)
    states = [batches.state_dict()]
    for _ in batches:
        states.append(batches.state_dict())
    assert [state["position"] for state in states] == list(range(0, 51, 5))
    for done, state in enumerate(states):
        resumed = DevicePrefetcher(make_loader(Numbers(), 5, train=True), "cpu", depth=2)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert lists(resumed) == expected[done:]
        assert resumed.state_dict()["epoch"] == 1
    assert (batches.state_dict()["epoch"], batches.state_dict()["position"]) == (1, 0)
    with pytest.raises(TypeError, match="a list, has no state_dict"):
        DevicePrefetcher([1], "cpu").state_dict()


def test_several_stores_are_mixed(numbers, make_loader):
    """Through torch's ConcatDataset: an epoch has of each what was asked for."""
    both = ConcatDataset([numbers.select(range(10)), numbers.filter(np.arange(50) % 10 == 3)])
    sampler = MixtureSampler(both, counts=[20, 10])
    loader = make_loader(both, 5, train=True, sampler=sampler)
    labels = torch.cat([labels for (labels,) in loader])
    assert torch.bincount(labels, minlength=10).tolist() == [2, 2, 2, 12, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_sampler": [[1]], "drop_last": True}, "got drop_last beside it"),
        ({"batch_sampler": [[1]], "drop_last": False}, "got drop_last beside it"),
        ({"batch_sampler": [[1]], "pad": True}, "got pad beside it"),
        ({"batch_sampler": [[1]], "rank": 0, "world_size": 1}, "got rank and world_size beside it"),
        ({"batch_size": 2, "pad": True, "drop_last": True}, "pad fills the last batch up"),
        ({"batch_size": 2, "pad": True, "sampler": [1]}, "a sampler of readers; got list"),
        (
            {"batch_size": 2, "pad": True, "sampler": ShuffleSampler(50, remainder="drop")},
            "remainder='drop' drops it",
        ),
        ({"batch_size": 2, "rank": 0, "world_size": 1, "sampler": [1]}, "go to the sampler"),
        ({"batch_size": 2, "sampler": ShuffleSampler(40)}, "of 40 samples, and the dataset has 50"),
        ({"batch_size": 2, "rank": 1}, "rank and world_size go together"),
        ({"batch_size": 2, "rank": -1, "world_size": 2}, r"rank must be in \[0, 2\); got -1"),
        ({"batch_size": 2, "seed": -1}, "seed must be in"),
    ],
)
def test_arguments_that_do_not_go_together_are_an_error(make_loader, settings, message):
    """None of them is passed over in silence."""
    with pytest.raises(ValueError, match=message):
        make_loader(Numbers(), train=True, **settings)
