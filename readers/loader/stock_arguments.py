"""The words of torch's DataLoader: what they are here, where they mean the same."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypedDict

from readers.loader.attributes import INSTEAD


class StockArguments(TypedDict, total=False):
    """Arguments of torch's DataLoader that `make_loader` takes in their own words.

    Attributes:
        num_workers: The same as `workers`.
        shuffle: The same as `train` says; another is refused.
        pin_memory: Whether batches lie in pinned memory, where there is a GPU. As it is by itself.
        prefetch_factor: Batches that each worker is ahead. 2 by itself.
        persistent_workers: True, which workers always are.
    """

    num_workers: int
    shuffle: bool | None
    pin_memory: bool
    prefetch_factor: int | None
    persistent_workers: bool


class Machine(NamedTuple):
    """Settings of a loader that depend on the machine, as asked for; None chooses."""

    workers: int | None
    pin_memory: bool | None
    prefetch_factor: int | None


def machine_of(
    stock: StockArguments, *, workers: int | None, train: bool, has_order: bool
) -> Machine:
    """What stock arguments ask for.

    Args:
        stock: As given.
        workers: Our own word.
        train: Whether samples are shuffled.
        has_order: Whether a sampler is given beside them.

    Raises:
        ValueError: One of them says another thing than the rest.
    """
    if "num_workers" in stock and workers is not None:
        raise ValueError("workers and num_workers are the same; give one of them")
    shuffle = stock.get("shuffle")
    if shuffle is not None and (has_order or shuffle != train):
        raise ValueError(
            f"shuffle={shuffle!r} is not what the rest says: "
            + ("the sampler is the order" if has_order else f"train={train!r}")
            + ". train=True shuffles and drops the last short batch, train=False does neither; "
            "for another order give the sampler alone: sampler="
            + ("ShuffleSampler(dataset)" if shuffle else "SequentialSampler(dataset)")
        )
    if stock.get("persistent_workers") is False:
        raise ValueError(
            "persistent_workers=False: workers live on between epochs, always; leave it out. "
            "loader.close() ends them, and the next epoch starts new ones"
        )
    factor = stock.get("prefetch_factor")
    if factor is not None and factor < 1:
        raise ValueError(f"prefetch_factor must be at least 1; got {factor!r}")
    return Machine(stock.get("num_workers", workers), stock.get("pin_memory"), factor)


def without_train(shuffle: object) -> str:
    """What to say where `train` was left out, which has no value that could be right by itself."""
    given = f"shuffle={shuffle!r} is train={shuffle!r} here. " if isinstance(shuffle, bool) else ""
    return (
        f"make_loader needs train. {given}train=True shuffles, anew each epoch, and drops the last "
        "short batch; train=False, for evaluation, does neither"
    )


def check_known(stock: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse words that are nobody's, or that mean nothing here.

    Args:
        stock: Arguments that are not our own, by name.
        known: Our own arguments.

    Raises:
        TypeError: One is not known; the text says what to give instead.
    """
    names = [*StockArguments.__annotations__, *known]
    for name in stock:
        if name in StockArguments.__annotations__:
            continue
        if name in INSTEAD:
            raise TypeError(f"make_loader has no {name}. Instead: {INSTEAD[name]}")
        close = difflib.get_close_matches(name, names, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise TypeError(f"make_loader has no argument {name!r}.{hint} It has {', '.join(names)}")
