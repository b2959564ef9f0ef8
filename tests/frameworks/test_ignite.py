"""Ignite runs over our loaders, and makes loaders of what they show."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two processes"])
def found(request, run):
    """What each rank of so many has seen."""
    found = [facts["rank"] for facts in run("with_ignite", request.param)]
    assert found[0]["world size"] == request.param
    return found


@pytest.fixture(scope="module")
def expected(found, reference):
    """The parts of each rank, epoch by epoch."""
    steps = reference.steps(4 * len(found), 2)
    return [
        [reference.taken_in_turns(epoch, rank, len(found)) for epoch in steps]
        for rank in range(len(found))
    ]


@pytest.mark.parametrize("name", ["engine", "deterministic"])
def test_an_engine_sees_our_order_with_operations(found, expected, name):
    """Also the one that makes a loader like ours with a batch sampler of its own."""
    for facts, epochs in zip(found, expected, strict=True):
        assert facts[name] == [batch for epoch in epochs for batch in epoch]


def test_an_engine_goes_on_in_mid_epoch(found, expected):
    """From the third step of the second epoch."""
    for facts, epochs in zip(found, expected, strict=True):
        assert facts["resumed"] == epochs[1][2:]


@pytest.mark.parametrize("name", ["auto", "auto of the sampler"])
def test_what_it_makes_of_our_samplers_has_our_batches(found, expected, name):
    """By batch sampler and by sampler: it does not cut them once more."""
    for facts, epochs in zip(found, expected, strict=True):
        assert facts[name] == epochs


def test_a_dataset_and_a_sampler_of_ours_do_without_a_loader(found, expected):
    """The same samples, as they are stored."""
    for facts, epochs in zip(found, expected, strict=True):
        numbers = [[[row[0] for row in batch] for batch in epoch] for epoch in epochs]
        assert [
            [[row[0] for row in batch] for batch in epoch] for epoch in facts["auto of a dataset"]
        ] == numbers


def test_each_sample_is_valid_once(found):
    """Over all ranks."""
    rows = [row for facts in found for batch in facts["evaluation"] for row in batch]
    assert sorted(number for number, _, is_valid in rows if is_valid) == list(range(50))
