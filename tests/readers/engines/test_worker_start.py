"""A start of workers is whole or leaves nothing, says what was wrong, and may be tried again."""

from __future__ import annotations

import contextlib
import errno
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import Dataset, Subset

import readers.engines.processes as process_engine
from readers.dataset import LMDBDataset
from readers.engines.processes import ProcessEngine
from readers.engines.threads import ThreadEngine
from readers.engines.worker_start import WorkerStartError, in_lasting_thread
from readers.loader.make import make_loader
from readers.reading.filling import MapFiller

ROOT = Path(__file__).resolve().parents[3]


class Numbers(Dataset):
    """Sample i is i, after a function."""

    def __init__(self, transform=None):
        self.transform = transform

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return index if self.transform is None else self.transform(index)


class Steps:
    """Functions one after the other, as other libraries have them."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def __call__(self, value):
        return value


def joined(samples):
    return list(samples)


def parts_of(count):
    return [np.array([index]) for index in range(count)]


def open_count():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def nothing_left():
    """After the test there are as many descriptors, children and threads as before it."""
    # What starts once for the whole process, and stays.
    multiprocessing.resource_tracker.ensure_running()
    multiprocessing.forkserver.ensure_running()
    before = open_count(), threading.active_count()
    yield
    deadline = time.monotonic() + 10
    while (open_count(), threading.active_count()) != before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (open_count(), threading.active_count()) == before
    assert multiprocessing.active_children() == []


@pytest.fixture
def engine_of(nothing_left):
    """Makes engines over `Numbers`, which are closed in the end."""
    engines = []

    def make(transform=None, workers=2, **settings):
        filler = MapFiller(Numbers(transform), joined)
        engines.append(ProcessEngine(filler, workers, 2 * workers, **settings))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()
    engines.clear()


def numbers_of(engine, count=20):
    return [index for batch in engine.batches(parts_of(count), 0) for index in batch]


# --- what cannot be sent --------------------------------------------------------------------------


def unsendable(shapes):
    """(dataset, collate_fn, what the error must say) of functions that no other process can get."""

    def local(sample):
        return sample

    lines = Path(__file__)
    here = f"{Path(__file__).name}, line "
    stored = functools.partial(LMDBDataset, shapes.path)
    return {
        "lambda": (stored(transform=lambda sample: sample), None,
                   ["dataset.transform, ", "<lambda> (", here]),
        "local": (stored(transform=local), None, ["dataset.transform, ", ".local (", here]),
        "in a list": (Numbers(Steps(len, [local])), None,
                      ["dataset.transform.steps[1][0], ", ".local ("]),
        "partial": (Numbers(functools.partial(local)), None,
                    ["dataset.transform.func, ", ".local ("]),
        "method": (Numbers(Steps(local).__call__), None,
                   ["dataset.transform.__self__.steps[0], ", ".local ("]),
        "in a subset": (Subset(stored(transform=local), range(8)), None,
                        ["dataset.dataset.transform, ", ".local ("]),
        "collate": (Numbers(), lambda samples: samples, ["collate_fn, ", "<lambda> ("]),
        "a file": (Numbers({"log": lines.open()}), None, ["dataset.transform['log'], ",
                                                         "a _io.TextIOWrapper, "]),
        "a lock": (Numbers([threading.Lock()]), None, ["dataset.transform[0], ",
                                                       "a _thread.lock, "]),
    }  # fmt: skip


KINDS = [
    *("lambda", "local", "in a list", "partial", "method", "in a subset", "collate"),
    *("a file", "a lock"),
]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_sent_is_named(shapes, nothing_left, kind, method):
    """Each time that it is tried, with what to do about it; with "fork" it works."""
    dataset, collate_fn, said = unsendable(shapes)[kind]
    settings = {"train": False, "workers": 2, "engine": "process"}
    settings |= {} if collate_fn is None else {"collate_fn": collate_fn}
    loader = make_loader(dataset, 4, start_method=method, **settings)
    function = kind not in ("a file", "a lock")
    for _ in range(2):
        with pytest.raises(WorkerStartError) as caught:
            next(iter(loader))
        text = str(caught.value)
        for words in (*said, repr(method), "start_method='fork'"):
            assert words in text
        assert ("Define it with def at the top of a module" in text) == function
        assert ("Make it in the worker" in text) == (not function)
        assert caught.value.__cause__ is not None
    del caught


def test_what_only_a_start_can_send_is_sent():
    """Locks and shared values of multiprocessing go to a spawned worker, as in a stock loader."""
    context = multiprocessing.get_context("spawn")
    steps = Steps(context.Value("i", 7), context.Lock())
    engine = ProcessEngine(MapFiller(Numbers(steps), joined), 1, 2, start_method="spawn")
    assert numbers_of(engine, 3) == [0, 1, 2]
    engine.close()


def run_program(tmp_path, code, *arguments, is_file=True):
    """What a program says, what it prints on stderr, and its status."""
    path = tmp_path / "program.py"
    path.write_text(code)
    done = subprocess.run(
        [sys.executable, *([path] if is_file else ["-c", code]), *map(str, arguments)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return done.stdout, done.stderr, done.returncode


PROGRAM = """
import sys
from readers import make_loader
import sample_functions

def twice(value):
    return 2 * value

def run(transform, method):
    loader = make_loader(
        sample_functions.Numbers(transform), 2, train=False, workers=2, start_method=method
    )
    for _ in range(2):
        try:
            print(sum(int(batch.sum()) for batch in loader))
        except Exception as error:
            print(type(error).__name__, error)
"""

FUNCTIONS = """
import multiprocessing
from torch.utils.data import Dataset

class Numbers(Dataset):
    def __init__(self, transform):
        self.transform = transform
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return self.transform(index)
"""


@pytest.fixture
def functions(tmp_path):
    """A module beside the programs of a test."""
    path = tmp_path / "sample_functions.py"
    path.write_text(FUNCTIONS)
    return path


def test_a_function_that_no_new_process_can_find_is_told_by_the_error(tmp_path, functions):
    """As of a notebook: it can be sent, but not opened. No worker prints a traceback."""
    code = PROGRAM + "run(twice, 'spawn')"
    said, errors, status = run_program(tmp_path, code, is_file=False)
    assert (errors, status) == ("", 0)
    lines = said.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("WorkerStartError loader workers cannot load what they are to work")
        assert "'twice' on <module '__main__'" in line
        assert "define it with def at the top of a module" in line


def test_an_import_that_fails_in_the_worker_alone_is_told_by_the_error(tmp_path, functions):
    """With the reason that the import gave."""
    name = "multiprocessing.current_process().name"
    functions.write_text(
        f"{FUNCTIONS}\nif {name}.startswith('loader'):\n    raise ImportError('no libpicture here')"
    )
    code = PROGRAM.replace("import sample_functions", "import sample_functions  # Of this test.")
    # Not through the main module: that would be imported before any code of ours.
    code += "\nif __name__ == '__main__':\n    run(abs, 'spawn')"
    code = code.replace("import sample_functions  # Of this test.\n", "")
    code = code.replace("def run(", "def run(").replace(
        "    loader = make", "    import sample_functions\n    loader = make"
    )
    said, errors, status = run_program(tmp_path, code)
    assert (errors, status) == ("", 0)
    for line in said.splitlines():
        assert line.startswith("WorkerStartError ")
        assert "ImportError: no libpicture here" in line


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_program_without_a_guard_is_told_so(tmp_path, functions, method):
    """One error, and not a traceback of each worker that tries to start workers itself."""
    said, errors, status = run_program(tmp_path, PROGRAM + f"run(twice, {method!r})")
    assert (errors, status) == ("", 0)
    lines = said.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("WorkerStartError a loader worker left with status")
        assert "starts loader workers as it is imported" in line
        assert "`if __name__ == '__main__':`" in line


def test_a_main_module_that_fails_in_the_worker_is_told_so(tmp_path, functions):
    """What the worker printed says why; the error says where to look and what to do."""
    code = PROGRAM + "if __name__ == '__main__':\n    run(twice, 'spawn')\nelse:\n    1 / 0\n"
    said, errors, status = run_program(tmp_path, code)
    assert status == 0
    assert "ZeroDivisionError" in errors
    for line in said.splitlines():
        assert line.startswith("WorkerStartError a loader worker left with status 1 as it started.")
        assert "`if __name__ == '__main__':`" in line


# --- limits ---------------------------------------------------------------------------------------


def test_a_fork_that_fails_leaves_nothing_and_names_the_limit(engine_of, monkeypatch):
    """The second of three workers cannot be started: the first goes too; then all three come."""
    fork, calls = os.fork, []

    def refuse():
        calls.append(1)
        if len(calls) % 2 == 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    engine = engine_of(workers=3)
    before = open_count()
    for _ in range(3):
        monkeypatch.setattr(os, "fork", refuse)
        with pytest.raises(WorkerStartError, match=r"loader worker 2 of 3 .*ulimit -u.*workers=1"):
            numbers_of(engine)
        monkeypatch.undo()
        assert multiprocessing.active_children() == []
        assert open_count() == before
    assert numbers_of(engine) == list(range(20))
    assert len(engine._workers) == 3


FEW_FILES = """
import json, multiprocessing, os, resource, sys
from readers import LMDBDataset, make_loader
if __name__ == "__main__":
    dataset = LMDBDataset(sys.argv[1], returns=("image", "label"))
    loader = make_loader(dataset, 2, train=False, workers=2, engine="process", start_method="fork")
    count = len(os.listdir("/proc/self/fd")) - 1
    found = set()
    for more in range(2, 40):
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + more, 20000))
        try:
            number = len(list(loader))
            assert number == 6
            break
        except (RuntimeError, OSError) as error:
            found.add(type(error).__name__)
            assert "ulimit -n" in str(error), repr(error)
            assert multiprocessing.active_children() == []
        error = None
        assert len(os.listdir("/proc/self/fd")) - 1 == count, more
    else:
        raise AssertionError("never enough")
    loader.close()
    print(sorted(found))
"""


def test_too_few_descriptors_are_told_wherever_they_run_out(tmp_path, shapes):
    """At any place of the start: nothing stays open, no child is left, and the limit is named."""
    said, errors, status = run_program(tmp_path, FEW_FILES, shapes.path)
    # multiprocessing's own first line, of a worker that was ended while it began to say more.
    lines = [line for line in errors.splitlines() if not line.startswith("Process loader-worker-")]
    assert (lines, status) == ([], 0)
    assert "WorkerStartError" in said


def load_numbers(answers):
    try:
        answers.put(len(list(make_loader(Numbers(), 2, train=False, workers=1))))
    except Exception as error:
        answers.put(f"{type(error).__name__}: {error}")


def test_a_daemonic_process_is_told_why_it_cannot_have_workers():
    """Such as a worker of a stock DataLoader, or of a pool."""
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    process = context.Process(target=load_numbers, args=(answers,), daemon=True)
    process.start()
    said = answers.get()
    process.join()
    answers.close()
    assert said.startswith("WorkerStartError: loader worker 1 of 1 could not be started: this is a")
    assert "engine='thread'" in said


# --- interrupts and threads -----------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ZeroDivisionError])
def test_a_start_that_is_broken_off_leaves_nothing(engine_of, monkeypatch, error):
    """Whatever it is that is raised there, after one of two workers."""
    whole, calls = process_engine._Worker.__init__, []

    def broken(self, *given):
        calls.append(1)
        if len(calls) == 2:
            raise error
        whole(self, *given)

    monkeypatch.setattr(process_engine._Worker, "__init__", broken)
    engine = engine_of()
    with pytest.raises(WorkerStartError if error is MemoryError else error):
        numbers_of(engine)
    assert multiprocessing.active_children() == []
    assert numbers_of(engine) == list(range(20))
    assert len(engine._workers) == 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_an_interrupt_at_any_moment_leaves_nothing_behind(nothing_left, method):
    """By a real signal whose handler raises, sooner or later: in the start, or amid messages."""

    class Stop(BaseException):
        pass

    def stop(number, frame):
        raise Stop

    engine = ProcessEngine(MapFiller(Numbers(), joined), 2, 4, start_method=method)
    before = signal.signal(signal.SIGALRM, stop)
    stopped = 0
    try:
        for delay in np.linspace(0.0005, 0.06, 60 if method == "fork" else 4):
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                numbers_of(engine)
                while True:
                    time.sleep(1)
            except Stop:
                stopped += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            count = len(multiprocessing.active_children())
            assert count == (0 if engine._owner == -1 else 2)
            if stopped % 2:
                assert numbers_of(engine) == list(range(20))
                engine.close()
    finally:
        signal.signal(signal.SIGALRM, before)
        engine.close()


def test_an_interrupt_amid_a_new_slot_loses_no_descriptor(engine_of, monkeypatch):
    """A handler that raises right after the memory of a slot was opened: it is closed again."""

    class Stop(BaseException):
        pass

    def stop(number, frame):
        raise Stop

    make = os.memfd_create
    before = signal.signal(signal.SIGALRM, stop)
    engine = engine_of()
    assert numbers_of(engine) == list(range(20))
    engine._free.clear()
    try:
        descriptors = []

        def interrupted(*settings):
            descriptors.append(make(*settings))
            signal.raise_signal(signal.SIGALRM)
            return descriptors[-1]

        monkeypatch.setattr(os, "memfd_create", interrupted)
        with pytest.raises(Stop):
            numbers_of(engine)
        assert len(descriptors) == 1
    finally:
        monkeypatch.undo()
        signal.signal(signal.SIGALRM, before)
    assert numbers_of(engine) == list(range(20))


def test_handlers_and_blocked_signals_of_the_program_stay(engine_of):
    """A start puts them aside for a moment, and leaves all as it was; as does one that fails."""

    def on_signal(number, frame):
        got.append(number)

    got = []
    old = signal.signal(signal.SIGUSR1, on_signal)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    try:
        expected = [signal.getsignal(number) for number in signal.valid_signals()]

        def check():
            assert [signal.getsignal(number) for number in signal.valid_signals()] == expected
            assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask | {signal.SIGUSR2}

        engine = engine_of(lambda index: sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        assert list(engine.batches(parts_of(1), 0)) == [[sorted(mask | {signal.SIGUSR2})]]
        check()
        engine = engine_of(lambda index: index, start_method="spawn")
        with pytest.raises(WorkerStartError):
            numbers_of(engine)
        check()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert got == [signal.SIGUSR1]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGUSR1, old)


def test_threads_that_begin_at_once_start_the_workers_once(engine_of):
    """Each has the batches of its own run, or is told that another has begun one."""
    engine = engine_of(workers=2)
    go, found = threading.Barrier(4), []

    def loop():
        go.wait()
        try:
            found.append(numbers_of(engine))
        except RuntimeError as error:
            found.append(str(error))

    for _ in range(5):
        threads = [threading.Thread(target=loop) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(multiprocessing.active_children()) == 2
        assert len(found) == 4
        assert list(range(20)) in found
        for one in found:
            assert one == list(range(20)) or "this iteration is over" in one
        found.clear()
        engine.close()


def test_a_loop_that_waits_is_told_when_another_thread_closes_the_loader(engine_of):
    """At once, though the batch that it waits for is long in coming."""
    engine = engine_of(lambda index: time.sleep(60), workers=1)
    found = []

    def loop():
        with contextlib.suppress(RuntimeError):
            numbers_of(engine)
            found.append("a batch")
        found.append("told")

    thread = threading.Thread(target=loop)
    thread.start()
    while not multiprocessing.active_children():
        time.sleep(0.01)
    time.sleep(0.2)
    engine.close()
    thread.join(10)
    assert found == ["told"]


def test_a_thread_for_a_start_hands_on_what_it_raises_and_ends():
    """In another thread than the main one: the result or the error, whatever it is."""
    found = []

    def loop():
        end = threading.Event()
        found.append(in_lasting_thread(threading.get_ident, end) != threading.get_ident())
        end.set()
        with contextlib.suppress(KeyboardInterrupt):
            in_lasting_thread(interrupted, threading.Event())
            found.append("no error")

    def interrupted():
        raise KeyboardInterrupt

    count = threading.active_count()
    thread = threading.Thread(target=loop)
    thread.start()
    thread.join(10)
    assert found == [True]
    while threading.active_count() > count:
        time.sleep(0.01)


# --- the program's choice of a start method -------------------------------------------------------

CHOICE = """
import multiprocessing, sys
from readers import make_loader
import sample_functions

def kind(loader):
    next(iter(loader))
    name = type(loader.engine._workers[0].process).__name__
    loader.close()
    return name

if __name__ == "__main__":
    asked = None if sys.argv[1] == "none" else sys.argv[1]
    loader = make_loader(sample_functions.Numbers(abs), 2, train=False, workers=1,
                         start_method=asked)
    assert multiprocessing.get_start_method(allow_none=True) is None
    first = kind(loader)
    assert multiprocessing.get_start_method(allow_none=True) is None
    multiprocessing.set_start_method("spawn")
    print(first, kind(loader))
"""


@pytest.mark.parametrize(
    ("asked", "kinds"),
    [
        ("none", "ForkProcess SpawnProcess"),
        ("fork", "ForkProcess ForkProcess"),
        ("spawn", "SpawnProcess SpawnProcess"),
        ("forkserver", "ForkServerProcess ForkServerProcess"),
    ],
)
def test_the_start_method_stays_the_programs_to_choose(tmp_path, functions, asked, kinds):
    """After a loader was made, and after its workers were started; the next start follows it."""
    if asked == "none" and multiprocessing.get_all_start_methods()[0] != "fork":
        kinds = "ForkServerProcess SpawnProcess"
    said, errors, status = run_program(tmp_path, CHOICE, asked)
    assert (errors, status) == ("", 0)
    assert said == f"{kinds}\n"


def test_an_unknown_start_method_is_refused_when_the_loader_is_made():
    """With those that there are."""
    with pytest.raises(ValueError, match=r"start_method must be one of fork, .*got 'thread'"):
        make_loader(Numbers(), 2, train=False, workers=1, start_method="thread")


# --- threads --------------------------------------------------------------------------------------


class Filler:
    """Batches that are their indices."""

    ahead_count = 0

    def fill_group(self, parts, epoch, take, watch):
        return list(parts)


def test_threads_that_cannot_be_started_leave_none(nothing_left, monkeypatch):
    """All of them or none, with the limit in the error; then all come."""
    engine = ThreadEngine(Filler(), 3, 4, is_pinned=False)
    start, calls = threading._start_new_thread, []

    def refuse(*arguments):
        calls.append(1)
        if len(calls) % 2 == 0:
            raise RuntimeError("can't start new thread")
        return start(*arguments)

    for _ in range(2):
        monkeypatch.setattr(threading, "_start_new_thread", refuse)
        with pytest.raises(WorkerStartError, match=r"loader thread 2 of 3 .*ulimit -u.*workers=1"):
            list(engine.batches(parts_of(20), 0))
        monkeypatch.undo()
    assert [int(batch[0]) for batch in engine.batches(parts_of(20), 0)] == list(range(20))
    end = time.monotonic() + 20  # One of a start that failed may still be on its way out.
    while sum(thread.name.startswith("loader") for thread in threading.enumerate()) != 3:
        assert time.monotonic() < end, [thread.name for thread in threading.enumerate()]
        time.sleep(0.01)
    engine.close()


def test_threads_that_begin_at_once_share_the_engines_threads(nothing_left):
    """There are as many as were asked for, whoever comes first; each has all of its batches."""
    engine = ThreadEngine(Filler(), 2, 3, is_pinned=False)
    go, found = threading.Barrier(4), []

    def loop():
        go.wait()
        found.append([int(batch[0]) for batch in engine.batches(parts_of(50), 0)])

    threads = [threading.Thread(target=loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [list(range(50))] * 4
    assert sum(thread.name.startswith("loader") for thread in threading.enumerate()) == 2
    engine.close()
