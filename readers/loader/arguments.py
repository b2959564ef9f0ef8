"""What the arguments of `make_loader` take."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, get_args

from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from readers.arguments import FLAG, FUNCTION, TEXT, WHOLE, Takes, is_whole
from readers.loader.engine_choice import EngineName
from readers.loader.stock_arguments import StockArguments
from readers.ops.operations import ImageOp


class Settings(StockArguments, total=False):
    """Arguments of `make_loader` that do not change what kind of thing a batch is."""

    engine: EngineName
    workers: int | None
    seed: int
    rank: int | None
    world_size: int | None
    drop_last: bool | None
    ops: Sequence[ImageOp]
    sampler: Sampler[int] | None
    batch_sampler: Iterable[Sequence[int]] | None
    start_method: str | None
    tuned: str | os.PathLike[str] | None


def _is_dataset(value: Any) -> bool:
    if isinstance(value, (str, bytes, os.PathLike, Mapping, DataLoader, Sampler, IterableDataset)):
        return False
    is_kind = isinstance(value, type)
    return not is_kind and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _dataset_hint(value: Any) -> str:
    if isinstance(value, (str, os.PathLike)):
        return f"Open the store first: LMDBDataset({os.fspath(value)!r})"
    if isinstance(value, DataLoader):
        return "It is a loader already, and can be iterated as it is"
    if is_whole(value):
        return "Swapped? It is make_loader(dataset, batch_size, train=...)"
    if isinstance(value, Mapping):
        return "Choose one of them: make_loader(datasets['train'], ...)"
    # An IterableDataset inherits a __getitem__ that it has not.
    has_places = hasattr(value, "__getitem__") and not isinstance(value, IterableDataset)
    if isinstance(value, Iterable) and not has_places:
        return "Its samples have no positions, and orders are of positions: take torch's DataLoader"
    return ""


def _batch_size_hint(value: Any) -> str:
    is_swapped = _is_dataset(value)
    return "Swapped? It is make_loader(dataset, batch_size, train=...)" if is_swapped else ""


def _train_hint(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return (
        "It says whether samples are shuffled; which split they are of, the dataset says: "
        f"LMDBDataset(path, split={value!r})"
    )


def _is_order(value: Any) -> bool:
    if isinstance(value, (str, bytes, Mapping, Dataset, DataLoader, type)):
        return False
    return isinstance(value, Iterable) and isinstance(value, Sized)


def _order_hint(value: Any) -> str:
    if isinstance(value, type):
        return f"Make one of the dataset: {value.__name__}(dataset)"
    if isinstance(value, Dataset):
        return (
            "It is a dataset; an order of it is ShuffleSampler(dataset), say. Left out, train says "
            "the order"
        )
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping, DataLoader)):
        return "It has no length, so nobody could say how many batches an epoch has"
    return ""


def _is_ops(value: Any) -> bool:
    # What is in it is checked with the images that it is to work on.
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping, Sampler))


def _ops_hint(value: Any) -> str:
    if isinstance(value, get_args(ImageOp)):
        return f"One alone: ops=[{value!r}]"
    if type(value).__module__ == "readers.augment":
        return (
            "That of readers.augment works on whole batches: DevicePrefetcher(loader, device, "
            "transform=...). Those of readers.ops, some of the same names, go here"
        )
    if callable(value):
        return (
            "A function of samples is the dataset's: LMDBDataset(..., transform=function). ops are "
            "those of readers.ops"
        )
    return ""


_ORDER = Takes("something that yields indices and has a length", _is_order, _order_hint)

RULES: dict[str, Takes] = {
    "dataset": Takes("a dataset with samples by position", _is_dataset, _dataset_hint),
    "batch_size": WHOLE.or_none().hinting(_batch_size_hint),
    "train": FLAG.hinting(_train_hint),
    "engine": TEXT,
    "workers": WHOLE.or_none(),
    "seed": WHOLE,
    "rank": WHOLE.or_none(),
    "world_size": WHOLE.or_none(),
    "drop_last": FLAG.or_none(),
    "pad": FLAG,
    "ops": Takes("a list of operations", _is_ops, _ops_hint),
    "sampler": _ORDER.or_none(),
    "batch_sampler": _ORDER.or_none(),
    "collate_fn": FUNCTION,
    "start_method": TEXT.or_none(),
    "tuned": Takes(
        "the path of a file", lambda value: isinstance(value, (str, os.PathLike))
    ).or_none(),
    "num_workers": WHOLE,
    "shuffle": FLAG.or_none(),
    "pin_memory": FLAG,
    "prefetch_factor": WHOLE.or_none(),
    "persistent_workers": FLAG,
}
