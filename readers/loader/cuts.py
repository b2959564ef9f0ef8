"""Whether a framework that asks for an order cuts it over ranks by itself.

NOTE [ who is asking ]
Our orders ask torch.distributed for their rank, and give its share. `accelerate.prepare` puts a
batch sampler of its own around a loader's, which deals out its batches to the ranks: of a share, it
would give each rank a share, and the rest of the samples would never come. But what it puts around
a loader of one that is not prepared (`skip_first_batches`) takes the batches as they are. Both ask
the same sampler in the same way, so nothing tells them apart but who is asking: once an epoch, we
look who called.
"""

from __future__ import annotations

import sys
from types import FrameType, ModuleType
from typing import Any, NamedTuple

_MODULE = "accelerate.data_loader"

_WRAPPED = ("base_dataloader", "batch_sampler", "sampler")
"""Where loaders and samplers keep what they ask."""


class Asking(NamedTuple):
    """Who asks for an order.

    Attributes:
        rank_count: Ranks that it deals batches out to; None where it takes them as they are.
        splits: Whether it deals out parts of each batch, rather than whole batches.
        epoch: Which one it says this is, if it does.
        sends: Whether it sends batches to the other ranks, from their memory.
    """

    rank_count: int | None = None
    splits: bool = False
    epoch: int | None = None
    sends: bool = False


def who_asks(sampler: object) -> Asking:
    """Who calls, of those who are known to cut an order.

    Args:
        sampler: Of which the order is asked.
    """
    module = sys.modules.get(_MODULE)
    asking = Asking()
    if module is None:
        return asking
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is vars(module):
            asking = _told_by(module, frame.f_locals.get("self"), sampler, asking)
        frame = frame.f_back
    return asking


def _told_by(module: ModuleType, caller: Any, sampler: object, asking: Asking) -> Asking:
    """What is known, with what one more caller says."""
    shard = getattr(module, "BatchSamplerShard", ())
    dispatcher = getattr(module, "DataLoaderDispatcher", ())
    loaders = (getattr(module, "DataLoaderShard", ()), dispatcher)
    kind = type(caller)  # These loaders say of themselves that they are plain ones of torch.
    is_loader = any(isinstance(one, type) and issubclass(kind, one) for one in loaders)
    is_dispatcher = isinstance(dispatcher, type) and issubclass(kind, dispatcher)
    if not (is_loader or isinstance(caller, shard)) or not _asks(caller, sampler):
        return asking
    if is_loader and isinstance(getattr(caller, "iteration", None), int):
        asking = asking._replace(epoch=caller.iteration)
    count = caller.state.num_processes if is_dispatcher else getattr(caller, "num_processes", 1)
    if isinstance(caller, shard) or is_dispatcher:
        splits = bool(getattr(caller, "split_batches", False))
        asking = asking._replace(
            rank_count=count if count > 1 else None, splits=splits, sends=is_dispatcher
        )
    return asking


def _asks(caller: Any, sampler: object) -> bool:
    """Whether a loader or sampler asks this one, perhaps through others."""
    waiting, seen = [caller], set()
    while waiting:
        one = waiting.pop()
        if one is sampler:
            return True
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            waiting += [getattr(one, name, None) for name in _WRAPPED]
    return False
