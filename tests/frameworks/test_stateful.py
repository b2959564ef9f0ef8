"""torchdata's StatefulDataLoader goes on in our orders."""

from __future__ import annotations

import pytest

from readers import BucketBatchSampler, LMDBDataset, ShuffleSampler, make_loader

StatefulDataLoader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

# What it warns of, of torch, is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def dataset(store):
    """50 samples with their numbers."""
    return LMDBDataset(store, returns=("number", "image"))


def numbers_of(batches):
    return [batch[0].tolist() for batch in batches]


def expected_epochs(count, batch_size=4, drop_last=False):
    """The batches of each epoch of an exact shuffle with seed 1."""
    sampler, epochs = ShuffleSampler(50, seed=1), []
    for _ in range(count):
        numbers = list(sampler)
        end = 50 - 50 % batch_size if drop_last else 50
        epochs.append([numbers[start : start + batch_size] for start in range(0, end, batch_size)])
    return epochs


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_dataloader_goes_on_at_any_step(dataset, workers):
    """With batches under way; at the last one, and between epochs; into the next epoch."""

    def loader():
        return StatefulDataLoader(
            dataset, 4, sampler=ShuffleSampler(50, seed=1), num_workers=workers
        )

    expected = expected_epochs(3)
    whole = loader()
    assert [numbers_of(whole) for _ in range(3)] == expected
    for done in (1, 6, 12, 13):
        stopped, resumed = loader(), loader()
        batches = iter(stopped)
        for _ in range(done):
            next(batches)
        resumed.load_state_dict(stopped.state_dict())
        assert numbers_of(resumed) == expected[0][done:]
        assert numbers_of(resumed) == expected[1]
    finished, resumed = loader(), loader()
    numbers_of(finished)
    resumed.load_state_dict(finished.state_dict())
    assert [numbers_of(resumed), numbers_of(resumed)] == expected[1:]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_dataloader_goes_on_with_buckets(dataset, workers):
    """A batch sampler has a place of its own."""

    def loader():
        sampler = BucketBatchSampler([at % 3 for at in range(50)], 4, seed=2)
        return StatefulDataLoader(dataset, batch_sampler=sampler, num_workers=workers)

    whole = loader()
    expected = [numbers_of(whole) for _ in range(2)]
    for done in (1, 7, len(expected[0])):
        stopped, resumed = loader(), loader()
        batches = iter(stopped)
        for _ in range(done):
            next(batches)
        resumed.load_state_dict(stopped.state_dict())
        assert numbers_of(resumed) == expected[0][done:]
        assert numbers_of(resumed) == expected[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_dataloader_of_it_goes_on_in_mid_epoch(dataset, reference, workers):
    """With operations, in the next epoch as well."""

    def loader():
        ours = make_loader(dataset, 4, train=True, workers=0, ops=reference.ops, seed=6)
        return StatefulDataLoader(
            ours.dataset,
            batch_sampler=ours.batch_sampler,
            collate_fn=ours.collate_fn,
            num_workers=workers,
        )

    def epochs_of(one, count):
        return [[reference.seen(batch) for batch in one] for _ in range(count)]

    expected = epochs_of(loader(), 3)
    stopped, resumed = loader(), loader()
    list(stopped)
    next(iter(stopped))
    resumed.load_state_dict(stopped.state_dict())
    assert epochs_of(resumed, 2) == [expected[1][1:], expected[2]]
