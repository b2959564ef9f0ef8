"""What a few small samples cost: single ones, small batches, opening a store, imports.

    a batch of 512 of 3 KB   time of the thread, apart from that of a bare gather of the same rows
    64 bytes and a label     dataset[i], __getitems__, a batch of one
    open, import             in processes of their own, the least of several

Each figure is the least over rounds: what else the machine does only adds to it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loader_peers import BareGather
from peers_adapter import write_arrays

from readers import LMDBDataset, make_loader
from readers.engines.threads import DirectEngine
from readers.reading.filling import StoreFiller
from readers.stats import LoaderStats
from readers.store.schema import Field

_ROUNDS = 7
_IMAGE_COUNT = 20_000
_SMALL_COUNT = 100_000
_CALLS = 2_000

_OPENED = """
import time
from readers import LMDBDataset
LMDBDataset({path!r})[0]
started = time.perf_counter()
LMDBDataset({path!r})
print((time.perf_counter() - started) * 1e3)
"""
# With the compiled modules that installing leaves: to compile them anew takes three times as long.
_IMPORTED = """
import sys, time
sys.dont_write_bytecode = False
{before}
started = time.perf_counter()
{line}
print((time.perf_counter() - started) * 1e3)
"""
_IMPORTS = (
    ("", "import readers"),
    ("", "import torch, torch.utils.data"),
    ("import torch, torch.utils.data", "from readers import LMDBDataset"),
)


def small_reads(folder: Path, shard_counts: Sequence[int]) -> None:
    """Measure and print all of it.

    Args:
        folder: For stores.
        shard_counts: Shards of each store of small images.
    """
    generator = np.random.default_rng(2)
    for count in shard_counts:
        _batch_cost(folder / f"images-{count}.lmdb", count, generator)
    path = folder / "small.lmdb"
    payloads = generator.integers(0, 256, (_SMALL_COUNT, 64), dtype=np.uint8)
    payload = Field(name="payload", kind="array", dtype="uint8", shape=(64,))
    write_arrays(str(path), {"payload": (payload, payloads), "label": _labels(_SMALL_COUNT)})
    dataset = LMDBDataset(path, returns=("payload", "label"))
    order = generator.permutation(_SMALL_COUNT)
    singles = order[:_CALLS].tolist()
    single = _least(lambda: [dataset[at] for at in singles]) / _CALLS
    _say("dataset[i], 64 B", f"{single * 1e6:.2f} us, {1 / single:,.0f}/s")
    batches = [order[at * 256 :][:256].tolist() for at in range(100)]
    together = _least(lambda: [dataset.__getitems__(at) for at in batches]) / len(batches)
    _say("__getitems__ of 256", f"{together * 1e6:.1f} us, {256 / together:,.0f} samples/s")
    ones = [[at] for at in singles]
    one = _least(lambda: [dataset.__getitems__(at) for at in ones]) / _CALLS
    _say("__getitems__ of 1", f"{one * 1e6:.1f} us")
    loader = make_loader(dataset, 1, train=True, workers=0)
    step = _least(lambda: sum(1 for _ in loader)) / _SMALL_COUNT
    _say("make_loader, batch of 1, workers=0", f"{step * 1e6:.1f} us")
    engine = DirectEngine(StoreFiller(dataset.view), stats=LoaderStats("thread", 0))
    parts = [np.array([at]) for at in singles]
    alone = _least(lambda: sum(1 for _ in engine.batches(parts, 0))) / _CALLS
    _say("the same, filled one by one", f"{alone * 1e6:.1f} us")
    _say("open a store", f"{_least_of_processes(_OPENED.format(path=str(path))):.1f} ms")
    for before, line in _IMPORTS:
        took = _least_of_processes(_IMPORTED.format(before=before, line=line))
        _say(f"{line}, after torch" if before else line, f"{took:.0f} ms")


def _labels(count: int) -> tuple[Field, Any]:
    return Field(name="label", kind="label", dtype="int64"), np.arange(count) % 10


def _batch_cost(path: Path, shard_count: int, generator: np.random.Generator) -> None:
    """A batch of 512 of 32 x 32 x 3, and what of it is not the copy."""
    images = generator.integers(0, 256, (_IMAGE_COUNT, 32, 32, 3), dtype=np.uint8)
    image = Field(name="image", kind="image", dtype="uint8", shape=(32, 32, 3), codec="raw")
    arrays = {"image": (image, images), "label": _labels(_IMAGE_COUNT)}
    write_arrays(str(path), arrays, shard_count)
    dataset = LMDBDataset(path, returns=("image", "label"))
    bare = BareGather(dataset, "image", 512)
    engine = DirectEngine(StoreFiller(dataset.view), stats=LoaderStats("thread", 0))
    # Others for the bare gather: what was copied just before is in the cache of the core.
    parts, others = generator.integers(0, _IMAGE_COUNT, (2, 100, 512))
    wholes, copies = [], []
    for _ in range(_ROUNDS):
        batches = engine.batches(parts, 0)
        for other in others:
            started = time.thread_time_ns()
            next(batches)
            between = time.thread_time_ns()
            bare.gather(torch.from_numpy(other))
            wholes.append(between - started)
            copies.append(time.thread_time_ns() - between)
    costs = [whole - copy for whole, copy in zip(wholes, copies, strict=True)]
    whole, copy = (statistics.quantiles(found, n=10)[0] / 1e3 for found in (wholes, copies))
    _say(
        f"batch of 512 of 3 KB, {shard_count} shards",
        f"{whole:.0f} us, copy {copy:.0f} us, cost apart from it {whole - copy:.0f} us "
        f"(median of differences {statistics.median(costs) / 1e3:.0f})",
    )


def _least(function: Callable[[], object]) -> float:
    """Seconds that it takes, at best."""
    found = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        function()
        found.append(time.perf_counter() - started)
    return min(found)


def _least_of_processes(code: str) -> float:
    """What a program prints, at best."""
    command = [sys.executable, "-c", code]
    runs = (
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        for _ in range(_ROUNDS)
    )
    return min(float(run.stdout) for run in runs)


def _say(what: str, found: str) -> None:
    print(f"{what:40}{found}")
