"""Which shards an epoch needs next, for whoever copies them to the local disk."""

from __future__ import annotations

import weakref

from torch.utils.data import Dataset

from readers.dataset import LMDBDataset
from readers.orders.batching import Batches, OrderBatches
from readers.orders.place import Run
from readers.reading.view import StoreView

_SAMPLE_COUNT_MAX = 2**14
"""Samples that are looked at: they are 1 in 870 of 14 million, where a shard has thousands."""


def say_order(dataset: Dataset[object], batches: Batches, run: Run) -> None:
    """Have those shards of a dataset staged first that an epoch needs first, where they differ.

    Args:
        dataset: Of a loader; nothing is to do for one without a cache.
        batches: What the epoch is made of.
        run: The epoch, and how far it is whenever that is asked.
    """
    if not isinstance(dataset, LMDBDataset) or dataset.view.cache is None:
        return
    if not isinstance(batches, OrderBatches) or not batches.keeps_neighbours:
        return
    staging = dataset.view.stage(dataset.manifest)
    if staging is None:
        return
    # The view keeps what copies: it ends when nobody has the dataset any more.
    known: weakref.ref[StoreView] = weakref.ref(dataset.view)

    def order() -> list[int]:
        view = known()
        if view is None or run.position >= (batches.end or 0):
            return []
        return view.shards_of(batches.coming(run.epoch, run.position, _SAMPLE_COUNT_MAX))

    staging.expect(order)
