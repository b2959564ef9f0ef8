"""One measured pass of a loader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from readers.bench.process_tree import tree_cpu_s, tree_memory_bytes

_WARM_SHARE = 0.25
"""Of a pass: batches that were made ahead before it began are taken out first."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What one pass showed.

    Attributes:
        images_per_s: Rate, once batches come as fast as they are made.
        first_batch_s: From the making of the loader to its first batch.
        used_cores: Seconds on cores in each second, of this process and its workers.
        memory_bytes: What they held together at the end.
        waiting_share: Of the time, how much the loop waited for a batch.
    """

    images_per_s: float
    first_batch_s: float
    used_cores: float
    memory_bytes: int
    waiting_share: float


def measure_pass(
    make: Callable[[], Iterable[Any]], batch_size: int, seconds: float, step_s: float = 0.0
) -> Pass:
    """Take batches of a new loader for some time, over as many epochs as that takes.

    Args:
        make: Makes the loader.
        batch_size: Images of each batch.
        seconds: How long to take batches, after the first one.
        step_s: How long a training step takes, which leaves the cores alone as a GPU's does.
    """
    begun = time.perf_counter()
    loader = make()
    batches = _forever(loader)
    try:
        next(batches)
        first_s = time.perf_counter() - begun
        _take(batches, seconds * _WARM_SHARE, step_s)
        cpu_s = tree_cpu_s()
        count, elapsed_s, waited_s = _take(batches, seconds * (1 - _WARM_SHARE), step_s)
        return Pass(
            images_per_s=count * batch_size / elapsed_s,
            first_batch_s=first_s,
            used_cores=max(0.0, tree_cpu_s() - cpu_s) / elapsed_s,
            memory_bytes=tree_memory_bytes(),
            waiting_share=waited_s / elapsed_s,
        )
    finally:
        batches.close()
        close = getattr(loader, "close", None)  # A stock loader's workers end with its iterator.
        if close is not None:
            close()


def _forever(loader: Iterable[Any]) -> Any:
    while True:
        yield from loader


def _take(batches: Iterator[Any], seconds: float, step_s: float) -> tuple[int, float, float]:
    """Batches taken, at least one; seconds that it took; and those waited for batches."""
    count, waited_s, begun = 0, 0.0, time.perf_counter()
    while True:
        asked = time.perf_counter()
        next(batches)
        waited_s += time.perf_counter() - asked
        count += 1
        if step_s:
            time.sleep(step_s)
        elapsed_s = time.perf_counter() - begun
        if elapsed_s >= seconds:
            return count, elapsed_s, waited_s
