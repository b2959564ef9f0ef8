"""Batches cross from worker processes whole, in order, and whatever becomes of either side."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import Dataset

from readers.dataset import LMDBDataset, TransformError
from readers.engines.processes import ProcessEngine, RemoteError, WorkerDiedError
from readers.loader.make import make_loader
from readers.reading.filling import MapFiller
from readers.stats import LoaderStats
from tests.processes import in_fork, is_gone, wait_until

ROOT = Path(__file__).resolve().parents[3]

Pair = namedtuple("Pair", "left right")


class Made(Dataset):
    """Sample i is make(i)."""

    def __init__(self, make):
        self.make = make

    def __getitem__(self, index):
        return self.make(index)


def as_it_is(samples):
    return samples


@pytest.fixture
def engine_of(left_in_shared_memory):
    """Makes engines over Made datasets; they are closed in the end, and nothing is left of them."""
    engines = []

    def make(function, workers=2, depth=None, collate=as_it_is, **settings):
        filler = MapFiller(Made(function), collate)
        engines.append(ProcessEngine(filler, workers, depth or 2 * workers, **settings))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()
    assert not multiprocessing.active_children()
    assert left_in_shared_memory() == []


@pytest.fixture
def loader_of(monkeypatch):
    """Makes loaders of processes, which are closed in the end."""
    loaders = []

    def make(dataset, batch_size, **settings):
        settings = {"train": False, "workers": 2, "engine": "process", **settings}
        loaders.append(make_loader(dataset, batch_size, **settings))
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()
    assert not multiprocessing.active_children()


def parts_of(count, size=1):
    """Indices of batches of one size."""
    return [np.arange(start, start + size) for start in range(0, count, size)]


def pids_of(engine):
    return [worker.process.pid for worker in engine._workers]


def row(index, size=10_000):
    """A tensor that tells its index."""
    return torch.full((size,), index, dtype=torch.int32)


def values_of(index):
    """One value of each kind that a user may put into a sample."""
    noise = np.random.default_rng(index)
    return {
        "image": torch.from_numpy(noise.integers(0, 256, (3, 4, 5), np.uint8)),
        "channels_last": torch.from_numpy(noise.integers(0, 9, (4, 5, 3))).permute(2, 0, 1),
        "array": noise.standard_normal((index % 3, 4)).astype(np.float32),
        "turned": noise.integers(0, 9, (3, 4))[::-1, ::-1],
        "names": np.array(["a", "bc"]),
        "flags": np.array([True, False]),
        "mask": torch.tensor([True, False, True]),
        "half": torch.tensor([0.5, -1.0], dtype=torch.bfloat16),
        "nothing": torch.empty(0, 7),
        "number": torch.tensor(index),
        "plain": [index, 1.5, None, "ä" * index, b"x", True, {"deep": (np.int16(3), [])}],
        "pair": Pair(torch.ones(2) * index, ["s", torch.zeros(1)]),
        "tuple": (torch.ones(1), ()),
        "own": slice(1, index),
        "blob": bytes(index),
    }


def test_every_kind_of_value_crosses_as_it_is(engine_of, same):
    """Dicts, lists, tuples and named ones, in each other; tensors and arrays of any layout."""
    engine = engine_of(values_of)
    batches = list(engine.batches(parts_of(6, 2), 0))
    assert len(batches) == 3
    for number, batch in enumerate(batches):
        assert len(batch) == 2
        for index, sample in zip((2 * number, 2 * number + 1), batch, strict=True):
            expected = values_of(index)
            for found in (sample, expected):
                found["half"] = found["half"].float()  # numpy has no bfloat16 to compare.
            assert same(sample, expected)
            assert type(sample["pair"]) is Pair
            assert sample["channels_last"].stride() == expected["channels_last"].clone().stride()


@dataclass(frozen=True)
class Sample:
    image: torch.Tensor
    size: tuple[int, int] = field(init=False, default=(3, 4))


def containers_of(index):
    image = torch.full((2**15,), float(index))
    return [
        OrderedDict(b=image, a=index),
        defaultdict(list, {"image": image}),
        UserDict(image=image),
        Sample(image),
        pack_sequence([image, image[:1]]),
    ]


def test_containers_of_every_kind_cross_with_their_types(engine_of):
    """Ordered and default dicts, dataclasses, and what is a named tuple only by descent."""
    for index, (sample,) in enumerate(engine_of(containers_of).batches(parts_of(3, 1), 0)):
        expected = containers_of(index)
        assert [type(part) for part in sample] == [type(part) for part in expected]
        ordered, default, user, one, packed = sample
        assert list(ordered) == ["b", "a"]
        assert default["new"] == []
        assert one.size == (3, 4)
        images = [ordered["b"], default["image"], user["image"], one.image, packed.data[2:]]
        assert all(torch.equal(image, expected[3].image[-len(image) :]) for image in images)


def test_a_batch_without_numbers_crosses(engine_of):
    """Texts alone take no memory of a slot."""
    engine = engine_of(lambda index: str(index))
    assert list(engine.batches(parts_of(4, 2), 0)) == [["0", "1"], ["2", "3"]]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_however_workers_are_started_they_read_the_same(every_kind, same, loader_of, method):
    """The batches of a process are those of the loop itself, for all kinds of fields."""
    dataset = LMDBDataset(every_kind.path)
    expected = list(make_loader(dataset, 3, train=False, workers=0))
    loader = loader_of(dataset, 3, start_method=method, workers=1)
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == 4
        for found, wanted in zip(batches, expected, strict=True):
            assert same(found, wanted)
    # The engine did start its workers that way.
    (worker,) = loader.engine._workers
    kind = {"fork": "ForkProcess", "spawn": "SpawnProcess", "forkserver": "ForkServerProcess"}
    assert type(worker.process).__name__ == kind[method]


def test_kept_batches_are_never_overwritten(engine_of):
    """Whole ones, views, arrays and single samples; while the loop goes on, and after its end."""
    engine = engine_of(row, collate=torch.stack)
    looks = [
        lambda batch: batch,
        lambda batch: batch[1],
        lambda batch: batch.view(-1)[5:-5],
        lambda batch: batch.numpy()[:, 3:],
        lambda batch: batch.unbind(0)[0][:7],
    ]
    kept = []
    for epoch in range(2):
        for number, batch in enumerate(engine.batches(parts_of(60, 2), epoch)):
            kept.append(
                (
                    number,
                    looks[number % 5](batch),
                    np.array(
                        looks[number % 5](batch.numpy() if number % 5 == 0 else batch).tolist()
                    ),
                )
            )
            del batch
    assert len(kept) == 60

    def check():
        for _, view, before in kept:
            assert np.array_equal(np.array(view.tolist()), before)

    check()
    for number, view, _ in kept:
        assert set(np.unique(np.array(view.tolist()))) <= {2 * number, 2 * number + 1}
    engine.close()
    check()
    list(engine.batches(parts_of(10, 2), 0))
    check()


def test_a_loop_that_lets_go_needs_few_slots(engine_of):
    """The ring is as long as there are batches on their way or in use, over any number of them."""
    engine = engine_of(row, workers=2, depth=4)
    for _ in range(2):
        for (value,) in engine.batches(parts_of(150), 0):
            assert value.shape == (10_000,)
    assert len(engine._slots) <= 6


def test_a_user_may_hold_thirty_batches(engine_of):
    """The ring grows by them, and memory that is not needed any more is given back."""
    engine = engine_of(row, depth=4)
    held = [value for (value,) in engine.batches(parts_of(30), 0)]
    assert [set(value.tolist()) for value in held] == [{index} for index in range(30)]
    assert 30 <= len(engine._slots) <= 36

    def blocks():
        return sum(os.fstat(slot.descriptor).st_blocks for slot in engine._slots)

    before = blocks()
    held.clear()
    assert len(engine._free) == len(engine._slots)
    assert blocks() < before / 3
    assert [int(value[0]) for (value,) in engine.batches(parts_of(50), 0)] == list(range(50))
    assert len(engine._slots) <= 36


def test_a_user_may_hold_all_batches_with_few_descriptors(run_python, shapes):
    """list(loader) of 300 batches in a process that may have 128 files open."""
    code = """
import json, os, resource, sys
import numpy as np
from readers import LMDBDataset, make_loader
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
dataset = LMDBDataset(sys.argv[1], returns=("image", "label"))
sampler = [at % 12 for at in range(600)]
loader = make_loader(
    dataset, 2, train=False, workers=2, sampler=sampler, engine="process"
)
batches = list(loader)
for number, (image, label) in enumerate(batches):
    for row in (0, 1):
        expected = dataset[sampler[2 * number + row]]
        assert (image[row] == expected[0]).all() and label[row] == expected[1]
count = len(os.listdir("/proc/self/fd"))
assert count < 100, count
for worker in loader.engine._workers:
    assert len(os.listdir(f"/proc/{worker.process.pid}/fd")) <= 64
del batches, image, label
assert len(loader.engine._held) == 0
print(json.dumps(len([0 for _ in loader])))
"""
    assert run_python(code, shapes.path) == 300


def test_a_loop_may_be_left_and_begun_again(engine_of):
    """Answers to the earlier loop are dropped, their slots used again, by the same workers."""
    engine = engine_of(row, workers=2, depth=6)
    pids = None
    for turn in range(12):
        batches = engine.batches(parts_of(30), turn)
        for _ in range(turn % 4):
            next(batches)
        del batches
        (value,) = next(iter(engine.batches(parts_of(1) + [np.array([77])] * 5, 0)))
        assert int(value[0]) == 0
        assert pids in (None, pids_of(engine))
        pids = pids_of(engine)
    assert [int(value[0]) for (value,) in engine.batches(parts_of(30), 0)] == list(range(30))
    assert len(engine._slots) <= 4 * 6


def test_workers_live_until_the_loader_is_closed(engine_of):
    """Over epochs the same; a closed one starts new ones, and the old are gone at once."""
    engine = engine_of(lambda index: os.getpid(), workers=2)

    def pids():
        return {pid for batch in engine.batches(parts_of(20), 0) for pid in batch}

    first = pids() | pids() | pids()
    assert first == set(pids_of(engine))
    engine.close()
    assert all(is_gone(pid) for pid in first)
    engine.close()  # Twice is once.
    assert not pids() & first


def test_an_iteration_ends_with_its_loader_or_with_a_newer_one(engine_of):
    """What is on its way belongs to one loop; the other is told, and does not wait for ever."""
    engine = engine_of(row)
    first = engine.batches(parts_of(9), 0)
    next(first)
    second = engine.batches(parts_of(9), 0)
    assert int(next(second)[0][0]) == 0
    with pytest.raises(RuntimeError, match=r"this iteration is over.*Begin another"):
        next(first)
    assert int(next(second)[0][0]) == 1
    engine.close()
    with pytest.raises(RuntimeError, match="this iteration is over"):
        next(second)


def test_two_loaders_may_be_used_in_turns(engine_of):
    """Each has its own workers; also when one is made while the other is at work."""
    one = engine_of(row).batches(parts_of(20), 0)
    found = [int(next(one)[0][0])]
    two = engine_of(lambda index: row(index + 100)).batches(parts_of(20), 0)
    for a, b in zip(one, two, strict=False):
        found += [int(a[0][0]), int(b[0][0]) - 100]
    assert found[:2] == [0, 1]
    assert found[1::2] == list(range(1, 20))
    assert found[2::2] == list(range(19))


def test_it_works_in_another_thread(engine_of):
    """A training loop need not run in the main thread."""
    engine, found = engine_of(row), []

    def loop():
        for (value,) in engine.batches(parts_of(20), 0):
            found.append(int(value[0]))

    thread = threading.Thread(target=loop)
    thread.start()
    thread.join(30)
    assert found == list(range(20))


def test_long_lists_of_indices_and_texts_do_not_wait_for_each_other(engine_of):
    """Neither side waits in sending for the other to read: a batch may be larger than a pipe."""
    engine = engine_of(lambda index: f"sample {index:020d}", workers=1, depth=4)
    batches = engine.batches(parts_of(240_000, 40_000), 0)
    for number, batch in enumerate(batches):
        assert batch[-1] == f"sample {number * 40_000 + 39_999:020d}"
    assert number == 5


def fail_at(wrong, error, sleeping=()):
    """A sample function that raises at one index, and takes long at others."""

    def make(index):
        if index == wrong:
            raise error
        if index in sleeping:
            time.sleep(3)
        return index

    return make


def chain_of(error):
    """The types of an error and its causes."""
    types = []
    while error is not None:
        types.append(type(error))
        error = error.__cause__
    return types


def test_an_error_of_a_worker_surfaces_at_once(engine_of):
    """Though batches before it are not there yet; with its type, and where it was raised."""
    engine = engine_of(fail_at(1, ValueError("no such thing", 7), sleeping=[0]))
    start = time.monotonic()
    with pytest.raises(ValueError, match="no such thing") as caught:
        list(engine.batches(parts_of(9), 0))
    assert time.monotonic() - start < 2
    assert caught.value.args == ("no such thing", 7)
    assert chain_of(caught.value) == [ValueError, RemoteError]
    assert 'in a loader worker:\nTraceback (most recent call last):\n  File "' in str(
        caught.value.__cause__
    )
    assert "raise error\nValueError: ('no such thing', 7)" in str(caught.value.__cause__)


def test_after_an_error_the_next_loop_is_whole(engine_of):
    """Nothing of the loop that failed gets into it, and no slot is lost."""
    engine = engine_of(fail_at(5, KeyError("x")))
    for _ in range(8):
        with pytest.raises(KeyError):
            list(engine.batches(parts_of(12), 0))
    assert list(engine.batches(parts_of(5), 0)) == [[index] for index in range(5)]
    assert len(engine._slots) <= 9


def refuse(sample):
    if sample["key"] == "train/star/0002.png":
        raise ValueError("two is too many")
    return sample


def test_an_error_of_a_transform_names_the_sample_and_its_cause(shapes, loader_of):
    """A stranger finds the image by its key, and what was raised about it."""
    dataset = LMDBDataset(shapes.path, transform=refuse)
    with pytest.raises(TransformError, match=r"sample 2 \('train/star/0002.png'\)") as caught:
        list(loader_of(dataset, 4))
    assert chain_of(caught.value) == [TransformError, ValueError, RemoteError]
    assert str(caught.value.__cause__) == "two is too many"
    assert "in refuse" in str(caught.value.__cause__.__cause__)


class StubbornError(Exception):
    """Cannot be made of what pickle has of it."""

    def __init__(self, place, reason):
        super().__init__(f"{reason} at {place}")


class UnsendableError(Exception):
    def __reduce__(self):
        raise TypeError("not me")


@pytest.mark.parametrize("error", [StubbornError("here", "fog"), UnsendableError("fog at here")])
def test_an_error_that_cannot_cross_is_told_in_words(engine_of, error):
    """Its type and text are in what is raised in its stead."""
    engine = engine_of(fail_at(0, error))
    with pytest.raises(RuntimeError, match=f"{type(error).__name__}: fog at here") as caught:
        list(engine.batches(parts_of(2), 0))
    assert chain_of(caught.value) == [RuntimeError, RemoteError]


def test_a_batch_that_cannot_cross_is_an_error_with_a_reason(engine_of):
    """It does not end the worker, which can go on."""
    engine = engine_of(lambda index: (lambda: index) if index == 1 else index)
    with pytest.raises((pickle.PicklingError, AttributeError), match=r"[Cc]an't pickle") as caught:
        list(engine.batches(parts_of(3), 0))
    assert chain_of(caught.value)[-1] is RemoteError
    pids = pids_of(engine)
    assert list(engine.batches(parts_of(1), 0)) == [[0]]
    assert pids_of(engine) == pids


def test_a_tensor_on_a_device_is_an_error_that_says_what_to_do(engine_of):
    """Slots are memory of the CPU."""
    engine = engine_of(lambda index: torch.empty(3, device="meta"))
    with pytest.raises(ValueError, match=r"a tensor on meta; .* DevicePrefetcher\(loader, device"):
        list(engine.batches(parts_of(1), 0))


def end_at(index, wrong, end):
    if index == wrong:
        end()
    return index


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "how"),
    [(kill_self, "was killed by SIGKILL"), (partial(os._exit, 3), "left with status 3")],
)
def test_the_death_of_a_worker_is_told_at_once_with_the_sample(engine_of, end, how):
    """Which sample it was on is known though it could say nothing any more."""
    engine = engine_of(lambda index: end_at(index, 17, end))
    start = time.monotonic()
    with pytest.raises(WorkerDiedError, match=f"{how} while it loaded sample 17. .*workers=0"):
        list(engine.batches(parts_of(40, 4), 0))
    assert time.monotonic() - start < 1
    assert not multiprocessing.active_children()
    assert list(engine.batches(parts_of(8, 4), 0)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_the_death_of_a_worker_at_rest_is_told_too(engine_of):
    """The system may have killed it between two epochs; afterwards new ones are started."""
    engine = engine_of(row)
    assert len(list(engine.batches(parts_of(4), 0))) == 4
    os.kill(pids_of(engine)[1], signal.SIGKILL)
    wait_until(lambda: is_gone(pids_of(engine)[1]), 5)
    with pytest.raises(WorkerDiedError, match=r"was killed by SIGKILL\. Was it out of memory"):
        list(engine.batches(parts_of(4), 1))
    assert len(list(engine.batches(parts_of(4), 2))) == 4


def test_a_worker_killed_from_outside_in_the_middle_of_a_batch(engine_of):
    """The loop that waits for its batch wakes up."""
    engine = engine_of(fail_at(-1, None, sleeping=[0]), workers=1)
    batches = engine.batches(parts_of(3), 0)
    killer = threading.Timer(0.4, lambda: os.kill(pids_of(engine)[0], signal.SIGKILL))
    killer.start()
    start = time.monotonic()
    with pytest.raises(WorkerDiedError, match="killed by SIGKILL while it loaded sample 0"):
        next(batches)
    killer.join()
    assert time.monotonic() - start < 1.4


PROGRAM = """
import os, signal, sys, time
import numpy as np
from readers import LMDBDataset, make_loader
dataset = LMDBDataset(sys.argv[1], fields=["image", "label"])
loader = make_loader(
    dataset, 1, train=True, workers=2, engine="process", start_method=sys.argv[2]
)
other = make_loader(dataset, 2, train=True, workers=1, engine="process")  # In between.
for number, batch in enumerate(loader):
    if number == 1:
        others = iter(other)
        next(others)
    if number == 3:
        workers = [*loader.engine._workers, *other.engine._workers]
        print(*[worker.process.pid for worker in workers], flush=True)
        {end}
"""


def start(end, path, method):
    """A program with running loaders, and the pids of its workers."""
    program = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM.replace("{end}", end), path, method],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that runs the suite in its background has it ignore Ctrl-C, children included.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    pids = [int(pid) for pid in program.stdout.readline().split()]
    return program, pids


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ("break", 0, ""),
        ("sys.exit(4)", 4, ""),
        ("raise KeyError('x')", 1, "KeyError: 'x'"),
    ],
)
def test_a_program_ends_without_a_trace_of_its_loaders(shapes, method, end, status, said):
    """No process stays, nothing is printed that the program did not say, and soon."""
    if method == "spawn" and end != "break":
        pytest.skip("the same as with fork, and slow")
    program, pids = start(end, shapes.path, method)
    _, errors = program.communicate(timeout=30)
    assert (program.returncode, len(pids)) == (status, 3)
    assert errors.count("Traceback") == bool(said)
    assert errors.strip().endswith(said)
    assert said or not errors
    assert all(is_gone(pid) for pid in pids)


def test_an_interrupt_reaches_the_program_alone(shapes):
    """Ctrl-C goes to all processes of a terminal: workers leave it to the program what to do."""
    program, pids = start("time.sleep(30)", shapes.path, "fork")
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=30)
    assert errors.count("Traceback") == 1
    assert errors.strip().endswith("KeyboardInterrupt")
    assert all(is_gone(pid) for pid in pids)


def test_workers_of_a_killed_program_end_by_themselves(shapes, left_in_shared_memory):
    """Also when a forked child of the program lives on, which holds copies of all its pipes."""
    program, pids = start(
        # One write each: two of a print would mix with the other's.
        r"os.write(1, b'%d\n' % os.fork()); time.sleep(30)",
        shapes.path,
        "fork",
    )
    child = max(int(program.stdout.readline()) for _ in range(2))  # The child says 0.
    program.kill()
    try:
        wait_until(lambda: all(is_gone(pid) for pid in pids), 8)
    finally:
        os.kill(child, signal.SIGKILL)
    _, errors = program.communicate(timeout=10)
    assert not errors
    assert left_in_shared_memory() == []


def test_a_forked_child_disturbs_nobody(engine_of):
    """It iterates with workers of its own, is told that the parent's loop is not its, and what it
    lets go of stays the parent's."""
    engine = engine_of(row, depth=4)
    batches = engine.batches(parts_of(40), 0)
    held = [next(batches)[0] for _ in range(20)]
    parent = pids_of(engine)

    def work():
        held.clear()
        with pytest.raises(RuntimeError, match="forked child"):
            next(batches)
        found = [int(value[0]) for (value,) in engine.batches(parts_of(10), 0)]
        assert found == list(range(10))
        assert not set(parent) & set(pids_of(engine))
        engine.close()

    in_fork(work)
    in_fork(lambda: None)
    in_fork(engine.close)
    assert [set(value.tolist()) for value in held] == [{index} for index in range(20)]
    assert [int(value[0]) for (value,) in batches] == list(range(20, 40))
    assert pids_of(engine) == parent
    assert not any(is_gone(pid) for pid in parent)


def draws(_index):
    return (random.random(), float(np.random.rand()), float(torch.rand(())))


def test_random_numbers_follow_from_seed_epoch_and_place(engine_of):
    """Those of each batch are others, and the same again for a seed: whichever worker fills it."""

    def run(seed, workers, epochs=(0, 1)):
        engine = engine_of(draws, workers=workers, seed=seed)
        return [
            drawn
            for epoch in epochs
            for batch in engine.batches(parts_of(12, 2), epoch)
            for drawn in batch
        ]

    first = run(5, 2)
    assert run(5, 2) == run(5, 3) == run(5, 1) == first
    assert run(5, 2, epochs=(1,)) == first[12:]
    other = run(6, 2)
    for kind in range(3):
        assert len({drawn[kind] for drawn in first + other}) == 48


def test_the_random_numbers_of_the_main_process_stay_its_own(engine_of):
    """A loader draws none of them, and seeds none."""
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = draws(0)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    list(engine_of(draws).batches(parts_of(4), 0))
    assert draws(0) == expected


def test_workers_use_one_thread_each(engine_of):
    """The cores are shared out already; also when OpenCV and torch ran threads before the fork."""
    before = cv2.getNumThreads(), torch.get_num_threads()
    picture = np.random.default_rng(0).integers(0, 256, (2000, 2000, 3), np.uint8)
    cv2.setNumThreads(4)
    torch.set_num_threads(2)
    try:
        expected = cv2.resize(picture, (500, 500))
        torch.ones(2_000_000).add(1).sum()

        def make(_index):
            small = cv2.resize(picture, (500, 500))
            total = float(torch.ones(2_000_000).add(1).sum())
            return cv2.getNumThreads(), torch.get_num_threads(), total, small

        for batch in engine_of(make).batches(parts_of(4), 0):
            ((*counts, total, small),) = batch
            assert counts == [1, 1]
            assert total == 4_000_000
            assert np.array_equal(small, expected)
        assert (cv2.getNumThreads(), torch.get_num_threads()) == (4, 2)
    finally:
        cv2.setNumThreads(before[0])
        torch.set_num_threads(before[1])


def test_totals_of_a_run_add_up(engine_of):
    """Workers' times arrive, stage by stage, and how many batches were ready."""
    stats = LoaderStats("process", 2)

    def make(index):
        time.sleep(0.01)
        return index

    engine = engine_of(make, stats=stats)
    for _ in engine.batches(parts_of(12), 0):
        time.sleep(0.02)
    assert 0.12 <= stats.stages_s["transform"] < 1
    assert stats.stages_s["read"] == stats.stages_s["decode"] == 0
    assert stats.ready_count >= 12


CHILD = """
import multiprocessing, os, signal, sys
from readers import LMDBDataset, make_loader

def child(path, done):
    os.setsid()
    signal.signal(signal.SIGTERM, lambda *_: None)  # As Lightning has one in each rank.
    loader = make_loader(LMDBDataset(path), 4, train=False, workers=1, engine="process")
    next(iter(loader))
    done.put(os.getpid())
    globals()["loader"] = loader  # Alive until the process ends.

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    done = context.SimpleQueue()
    rank = context.Process(target=child, args=(sys.argv[1], done))
    rank.start()
    done.get()
    rank.join(30)
    print(rank.exitcode)
    if rank.is_alive():
        os.killpg(rank.pid, signal.SIGKILL)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_that_handles_sigterm_ends_with_its_workers(tmp_path, shapes, method):
    """multiprocessing asks a child's children to end by SIGTERM, and waits for them."""
    program = tmp_path / "program.py"
    program.write_text(CHILD)
    done = subprocess.run(
        [sys.executable, str(program), str(shapes.path), method],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "0", done.stderr
