"""The stock DataLoader runs over datasets and samplers unchanged."""

from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

from readers import BucketBatchSampler, LMDBDataset, ShuffleSampler, make_loader
from readers.reading.collate import collate


@pytest.fixture
def dataset(many_shards):
    """50 samples: their keys are their numbers."""
    return LMDBDataset(many_shards, returns=("key", "label")).select(range(50))


def keys_of(batches):
    return [list(batch[0]) for batch in batches]


def expected_epochs(count, batch_size=4):
    """The batches of each epoch of an exact shuffle with seed 1."""
    sampler, epochs = ShuffleSampler(50, seed=1), []
    for _ in range(count):
        keys = [f"{index:03d}" for index in sampler]
        epochs.append([keys[start : start + batch_size] for start in range(0, 50, batch_size)])
    return epochs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_stock_dataloader_gives_the_batches_of_ours(dataset, workers, persistent):
    """With the same sampler, epoch by epoch, on each rank; with persistent workers too."""
    expected = expected_epochs(3)
    settings = {"num_workers": workers, "persistent_workers": persistent and workers > 0}
    loader = DataLoader(dataset, 4, sampler=ShuffleSampler(50, seed=1), **settings)
    assert len(loader) == 13
    assert [keys_of(loader) for _ in range(3)] == expected
    for rank in range(2):
        ranks = {"rank": rank, "world_size": 2}
        stock = DataLoader(
            dataset, 4, sampler=ShuffleSampler(50, seed=1, **ranks), drop_last=True, **settings
        )
        ours = make_loader(dataset, 4, train=True, seed=1, workers=workers, **ranks)
        assert [keys_of(stock) for _ in range(2)] == [keys_of(ours) for _ in range(2)]
        ours.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stock_dataloader_takes_our_batch_sampler(dataset, workers):
    """And ours takes it with any engine."""

    def sampler():
        return BucketBatchSampler([at % 3 for at in range(50)], 4, seed=2)

    stock = DataLoader(dataset, batch_sampler=sampler(), num_workers=workers, collate_fn=collate)
    expected = [keys_of(stock) for _ in range(2)]
    assert all(len({int(key) % 3 for key in batch}) == 1 for batch in expected[0])
    for engine in ("thread", "process"):
        ours = make_loader(
            dataset, train=True, batch_sampler=sampler(), engine=engine, workers=workers
        )
        assert [keys_of(ours) for _ in range(2)] == expected
        ours.close()
