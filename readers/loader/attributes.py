"""Attributes of a loader that others set: what can be heard of them, and what not."""

from __future__ import annotations

from typing import Any

from readers.loader.served import MarkingCollate
from readers.store.wording import did_you_mean

_INSTEAD = {
    "collate_fn": "collate_fn=",
    "num_workers": "workers=",
    "worker_init_fn": "a transform that sets up what it needs when it is first called, as workers' "
    "random numbers follow from seed, epoch and batch already",
    "generator": "seed=",
    "multiprocessing_context": "start_method=",
    "batch_size": "batch_size=",
    "sampler": "sampler=",
    "batch_sampler": "batch_sampler=",
    "drop_last": "drop_last=",
    "pad": "pad=",
}
"""What to give `make_loader` for a setting of DataLoader."""

_ARGUMENTS = ("ops", "seed", "engine", "workers", "sampler", "collate_fn", "batch_size", "pad")

_SEEDERS = ("lightning", "lightning_fabric", "pytorch_lightning")
"""Whose worker_init_fn does no more than seed a worker, which is done for each batch here."""


def is_same_setting(shown: Any, value: Any) -> bool:
    """Whether a value changes nothing, or nothing that counts."""
    if value is shown or (isinstance(shown, MarkingCollate) and isinstance(value, MarkingCollate)):
        return True
    function = getattr(value, "func", value)
    module = getattr(function, "__module__", None)
    if callable(function) and isinstance(module, str) and module.split(".")[0] in _SEEDERS:
        return True
    return type(value) is type(shown) and bool(value == shown)


def settled(name: str, value: Any, loader: Any) -> str:
    """Why a setting cannot be changed, and what can be done."""
    instead = _INSTEAD.get(name)
    way = f" with {instead}" if instead else ""
    return (
        f"a loader of make_loader is settled when it is made: {name} is "
        f"{getattr(loader, name)!r}, and cannot become {value!r}. Make another one{way}"
    )


def unknown_setting(name: str) -> str:
    """Why an attribute cannot be set, and what can be done."""
    hint = did_you_mean(name, [*_INSTEAD, *_ARGUMENTS])
    if name in ("transform", "transforms", "target_transform"):
        hint = " A transform is the dataset's: dataset.transform = function."
    elif name in _ARGUMENTS:
        hint = f" It is an argument: make_loader(..., {name}=...)."
    return f"a loader has no attribute {name!r}, so setting it would change nothing.{hint}"
