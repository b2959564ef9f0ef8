"""The words of torch's DataLoader are taken where they mean the same; else the error has ours."""

from __future__ import annotations

import pytest
import torch

from readers import LMDBDataset, make_loader


@pytest.fixture
def dataset(shapes):
    return LMDBDataset(shapes.path, returns=("label",))


@pytest.mark.parametrize("train", [False, True])
def test_stock_words_that_mean_the_same_are_taken(dataset, train):
    """As a person who knows torch alone would write it."""
    loader = make_loader(
        dataset,
        batch_size=4,
        train=train,
        shuffle=train,
        num_workers=0,
        pin_memory=True,
        persistent_workers=True,
        drop_last=train,
        prefetch_factor=None,
    )
    assert loader.num_workers == 0
    assert loader.pin_memory is torch.cuda.is_available()
    ours = make_loader(dataset, 4, train=train, workers=0)
    assert [batch[0].tolist() for batch in loader] == [batch[0].tolist() for batch in ours]


def test_how_far_workers_are_ahead_can_be_said(dataset):
    """It arrives where batches are asked for ahead."""
    loader = make_loader(
        dataset,
        2,
        train=False,
        num_workers=1,
        prefetch_factor=5,
        engine="process",
        pin_memory=False,
    )
    assert (loader.num_workers, loader.prefetch_factor) == (1, 5)
    assert loader.config.prefetch_factor == 5
    assert not loader.pin_memory
    assert make_loader(dataset, 2, train=False, workers=1).prefetch_factor == 2


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"num_workers": 2, "workers": 2}, ValueError, "are the same; give one"),
        ({"shuffle": False}, ValueError, r"not what the rest says: train=True.*Sequential"),
        ({"shuffle": True, "train": False}, ValueError, r"sampler=ShuffleSampler\(dataset\)"),
        ({"shuffle": True, "sampler": [1]}, ValueError, "the sampler is the order"),
        ({"persistent_workers": False}, ValueError, r"loader.close\(\) ends them"),
        ({"prefetch_factor": 0}, ValueError, "prefetch_factor must be at least 1; got 0"),
        ({"worker_init_fn": print}, TypeError, "make_loader has no worker_init_fn. Instead: a tr"),
        ({"generator": None}, TypeError, "has no generator. Instead: seed="),
        ({"multiprocessing_context": "spawn"}, TypeError, "Instead: start_method="),
        ({"timeout": 5}, TypeError, "has no timeout. Instead: nothing"),
        ({"num_worker": 5}, TypeError, "no argument 'num_worker'. Did you mean 'num_workers'"),
        ({"op": []}, TypeError, "no argument 'op'. Did you mean 'ops'.*It has .*drop_last"),
    ],
)
def test_stock_words_that_mean_another_thing_name_ours(dataset, given, error, message):
    """What cannot be honoured is not passed over."""
    with pytest.raises(error, match=message):
        make_loader(dataset, 2, **{"train": True, **given})


@pytest.mark.parametrize("shuffle", [{"shuffle": True}, {"shuffle": False}, {}])
def test_a_loader_without_train_says_what_it_means(dataset, shuffle):
    """Nothing could be right by itself; who writes shuffle is told that it is the same."""
    with pytest.raises(TypeError, match="make_loader needs train") as caught:
        make_loader(dataset, 2, **shuffle)
    value = shuffle.get("shuffle")
    assert f"shuffle={value} is train={value} here" in str(caught.value) or not shuffle
    assert "train=False, for evaluation" in str(caught.value)
