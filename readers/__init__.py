"""Reads compiled stores in training.

from readers import LMDBDataset, make_loader
dataset = LMDBDataset("out.lmdb", returns=("image", "label"))
loader = make_loader(dataset, batch_size=64, train=True)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from readers.dataset import LMDBDataset as LMDBDataset
    from readers.loader.make import LoaderConfig as LoaderConfig
    from readers.loader.make import make_loader as make_loader
    from readers.orders.buckets import BucketBatchSampler as BucketBatchSampler
    from readers.orders.buckets import size_buckets as size_buckets
    from readers.orders.order_sampler import OrderSampler as OrderSampler
    from readers.orders.samplers import BlockShuffleSampler as BlockShuffleSampler
    from readers.orders.samplers import ClassBalancedSampler as ClassBalancedSampler
    from readers.orders.samplers import MixtureSampler as MixtureSampler
    from readers.orders.samplers import SequentialSampler as SequentialSampler
    from readers.orders.samplers import ShuffleSampler as ShuffleSampler
    from readers.orders.samplers import WeightedSampler as WeightedSampler
    from readers.prefetch import DevicePrefetcher as DevicePrefetcher
    from readers.store.errors import StoreError as StoreError
    from readers.store.read_policy import ReadPolicy as ReadPolicy
    from readers.targets import detection_targets as detection_targets
    from readers.targets import pack_objects as pack_objects
    from readers.targets import pad_images as pad_images

_HOMES = {
    "BlockShuffleSampler": "readers.orders.samplers",
    "BucketBatchSampler": "readers.orders.buckets",
    "ClassBalancedSampler": "readers.orders.samplers",
    "DevicePrefetcher": "readers.prefetch",
    "LMDBDataset": "readers.dataset",
    "LoaderConfig": "readers.loader.make",
    "MixtureSampler": "readers.orders.samplers",
    "OrderSampler": "readers.orders.order_sampler",
    "ReadPolicy": "readers.store.read_policy",
    "SequentialSampler": "readers.orders.samplers",
    "ShuffleSampler": "readers.orders.samplers",
    "StoreError": "readers.store.errors",
    "WeightedSampler": "readers.orders.samplers",
    "detection_targets": "readers.targets",
    "make_loader": "readers.loader.make",
    "pack_objects": "readers.targets",
    "pad_images": "readers.targets",
    "size_buckets": "readers.orders.buckets",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Public names are loaded on first use, so that `import readers.store` stays light."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
