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
    from readers.loader import LoaderConfig as LoaderConfig
    from readers.loader import make_loader as make_loader
    from readers.prefetch import DevicePrefetcher as DevicePrefetcher
    from readers.store.errors import StoreError as StoreError

_HOMES = {
    "DevicePrefetcher": "readers.prefetch",
    "LMDBDataset": "readers.dataset",
    "LoaderConfig": "readers.loader",
    "StoreError": "readers.store.errors",
    "make_loader": "readers.loader",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Public names are loaded on first use, so that `import readers.store` stays light."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
