"""Records that are not in memory are read ahead, and it is known that they were not."""

from __future__ import annotations

import mmap
import os
import resource

import numpy as np
import pytest

from readers.dataset import LMDBDataset
from readers.store.schema import Field

FIELDS = [
    Field(name="image", kind="image", dtype="uint8", shape=(100, 200, 3), codec="raw"),
    Field(name="label", kind="scalar", dtype="int64"),
]


@pytest.fixture
def folder(tmp_path, write_store):
    """30 samples of 60 KB in two shards; pixels of sample i are i."""
    samples = [{"image": np.full((100, 200, 3), at, np.uint8), "label": at} for at in range(30)]
    return write_store(tmp_path / "s", FIELDS, samples, (11, 19))


COLD = """
import ctypes, json, mmap, os, pathlib, sys
import numpy as np
from readers.dataset import LMDBDataset
from readers.reading.filling import BatchReader
from readers.reading.batch_reader import BatchReader
from readers.stats import Watch
dataset = LMDBDataset(sys.argv[1])
store, order = dataset.view.store, np.random.default_rng(0).permutation(30)
watch, facts = Watch(), []
reader = BatchReader(dataset.view)
records = store.located(order).records()
# Opening it has read some of it. The kernel forgets what no process has in its page tables.
madvise = ctypes.CDLL(None).madvise
memory = store.bytes.memory
madvise(ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(len(memory)), mmap.MADV_DONTNEED)
for path in pathlib.Path(sys.argv[1]).glob("shard-*"):
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
for _ in range(2):
    batch = reader.read(order, 0, watch=watch).collated()
    assert batch["image"].flatten(1).float().mean(1).tolist() == order.tolist()
    assert batch["label"].tolist() == order.tolist()
    facts.append(watch.storage_batch_count)
facts.append(store.bytes.fetch([records])[0].waited)
print(json.dumps(facts))
"""


def can_forget(path):
    """Whether the kernel forgets a file when asked: not one of a file system in memory."""
    path.write_bytes(bytes(10**6))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
            assert data[500_000] == 0
            return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt > before


def test_cold_records_are_read_ahead_and_counted(tmp_path, folder, run_python):
    """The first batch came from the disk, the second did not; both are right."""
    if not can_forget(tmp_path / "file"):
        pytest.skip("this file system keeps all in memory")
    assert run_python(COLD, folder) == [1, 1, False]


GROWN_COLD = """
import ctypes, json, mmap, os, pathlib, sys
import numpy as np
from readers.dataset import LMDBDataset
from readers.reading.batch_reader import BatchReader
from readers.stats import Watch
dataset = LMDBDataset(sys.argv[1])
reader, order, watch = BatchReader(dataset.view), np.random.default_rng(0).permutation(30), Watch()
for _ in range(60):
    reader.read(order, 0, watch=watch)
store, warm_count = dataset.view.store, watch.storage_batch_count
madvise, memory = ctypes.CDLL(None).madvise, store.bytes.memory
counts = []
for at in range(3):
    madvise(ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(len(memory)), mmap.MADV_DONTNEED)
    for path in pathlib.Path(sys.argv[1]).glob("shard-*"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = watch.storage_batch_count
    assert reader.read(order, 0, watch=watch).collated()["label"].tolist() == order.tolist()
    counts.append(watch.storage_batch_count - before)
print(json.dumps([warm_count <= 1, counts]))
"""


def test_records_that_left_memory_are_read_ahead_again(tmp_path, folder, run_python):
    """Nothing is probed where all was cached for long, but the faults of one batch end that."""
    if not can_forget(tmp_path / "file"):
        pytest.skip("this file system keeps all in memory")
    assert run_python(GROWN_COLD, folder) == [True, [0, 1, 1]]


def test_warm_records_are_left_alone(folder):
    """Nothing is told to the kernel when all is there; nor when there is nothing to read."""
    store = LMDBDataset(folder).view.store
    records = store.located(np.arange(30)).records()
    store.bytes.announce([records])
    (pieces,) = store.bytes.fetch([records])
    for start in pieces.starts.tolist():
        pieces.memory[start : start + 60_000].sum()
    for count in (30, 7, 3, 1, 0):
        (pieces,) = store.bytes.fetch([store.located(np.arange(count)).records()])
        assert pieces.waited is False
    assert store.bytes.fetch([]) == []
