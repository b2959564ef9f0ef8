"""Build workers that die over a raw item, as a decoder that crashes makes them die.

The item's file is replaced by a FIFO that nobody writes to, so that a worker comes no further; it
is killed there, by the signal that the kernel sends for the fault in question.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from packer.building.build import Step, build
from packer.errors import RejectedItemError, TooManyRejectsError
from packer.recipe import Recipe
from readers.store.manifest import read_manifest

RECIPE = Recipe(size=320, fit="stretch", shard_bytes_max=2**20)
KILLED = "signal 9: killed, perhaps by the out-of-memory killer"


def children() -> set[int]:
    """The processes that this one has started."""
    path = f"/proc/self/task/{threading.main_thread().native_id}/children"
    return {int(pid) for pid in Path(path).read_text().split()}


class Trap:
    """An `on_step` that has the build worker die whenever it comes to one of some raw items.

    Args:
        raw: Tree of the items.
        places: Name of each item that is a trap, and its position in its shard.
        number: The signal.
        times: How often the worker dies; from then on the files are what they were.
    """

    def __init__(self, raw: Path, places: dict[str, int], number: int, times: int = 99) -> None:
        self._raw, self._places = raw, places
        self._number, self._times = number, times
        self._aside = raw.with_name("aside")
        self._before = children()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.killed: list[int] = []

    def __call__(self, step: Step) -> None:
        if step is Step.PLANNED:
            for name in self._places:
                path = self._aside / name
                path.parent.mkdir(parents=True, exist_ok=True)
                os.rename(self._raw / name, path)
                os.mkfifo(self._raw / name)
            self._thread.start()

    def _watch(self) -> None:
        still: Counter[int] = Counter()
        while not self._ends.wait(0.005):
            for pid in children() - self._before:
                still[pid] = still[pid] + 1 if self._is_caught(pid) else 0
                if still[pid] == 20 and pid not in self.killed:
                    self.killed.append(pid)
                    if len(self.killed) == self._times:
                        self.release()
                    os.kill(pid, self._number)

    def _is_caught(self, pid: int) -> bool:
        """Whether a build worker sleeps over the position of a trap, as it says itself."""
        try:
            place = int(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2])
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            (descriptor,) = (
                entry
                for entry in Path("/proc/self/fd").iterdir()
                if entry.is_symlink() and "packer-positions" in os.readlink(entry)
            )
            position = os.pread(int(descriptor.name), 8, place)
        except (OSError, ValueError, IndexError):
            return False  # It is not there yet, or no more.
        return state == "S" and int.from_bytes(position, "little") in self._places.values()

    def release(self) -> None:
        """Put the files back, with their times."""
        for name in self._places:
            os.replace(self._aside / name, self._raw / name)

    def end(self) -> None:
        """Stop watching."""
        self._ends.set()
        self._thread.join()


@pytest.fixture
def tree(raw, tmp_path):
    """A copy of the raw tree: shard 1 holds ant/3, bee/0, bee/1; shard 3 cat/1, cat/2, cat/3."""
    return Path(shutil.copytree(raw, tmp_path / "raw"))


@pytest.fixture
def trap(tree):
    """Makes the trap of a test, and sees that it is gone when the test is."""
    traps = []

    def make(*arguments, **options):
        traps.append(Trap(tree, *arguments, **options))
        return traps[-1]

    yield make
    for one in traps:
        one.end()


def names_and_reasons(out: Path) -> list[tuple[str, str]]:
    rejects = [json.loads(line) for line in (out / "rejects.jsonl").read_text().splitlines()]
    return [(reject["key"], reject["reason"]) for reject in rejects]


@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, KILLED),
        (signal.SIGSEGV, "signal 11: segmentation fault"),
        (signal.SIGABRT, "signal 6: aborted"),
    ],
    ids=["KILL", "SEGV", "ABRT"],
)
def test_an_item_on_which_two_workers_die_becomes_a_reject(
    tree, tmp_path, contents_of, whole, trap, number, how
):
    """It is named with the signal; all other shards, and all other items of its own, are stored."""
    out = tmp_path / "out.lmdb"
    fatal = trap({"bee/0.png": 1}, number)
    report = build(tree, out, RECIPE, worker_count=1, rejects_max=1, on_step=fatal)
    assert len(fatal.killed) == 2
    reason = f"a build worker died twice while working on it ({how})"
    assert names_and_reasons(out) == [("bee/0.png", reason)]
    assert (report.sample_count, report.reject_count) == (11, 1)
    assert report.notes[-2:] == [
        f"a build worker died while working on bee/0.png ({how}); shard 1 is tried again at the "
        "end, on its own",
        f"a build worker died while working on bee/0.png ({how}), for the second time: it becomes "
        "a reject",
    ]
    assert not [note for note in read_manifest(out).source.notes if "died" in note]
    # The shard is what it is for a file that cannot be decoded.
    fatal.release()
    times = (tree / "bee/0.png").stat()
    (tree / "bee/0.png").write_bytes(b"spoilt")
    os.utime(tree / "bee/0.png", ns=(times.st_atime_ns, times.st_mtime_ns))
    build(tree, tmp_path / "spoilt.lmdb", RECIPE, worker_count=1, rejects_max=1)
    spoilt = contents_of(tmp_path / "spoilt.lmdb")
    for file, data in contents_of(out).items():
        if file.startswith("shard-"):
            assert data == (spoilt if file == "shard-00001.lmdb" else whole)[file]


def test_an_item_on_which_one_worker_dies_is_stored(tree, tmp_path, contents_of, whole, trap):
    """Memory was short at that moment: the second try is made, and the store is the same."""
    out = tmp_path / "out.lmdb"
    once = trap({"bee/0.png": 1}, signal.SIGKILL, times=1)
    report = build(tree, out, RECIPE, worker_count=1, on_step=once)
    assert len(once.killed) == 1
    assert contents_of(out) == whole
    assert report.notes[-1].startswith(f"a build worker died while working on bee/0.png ({KILLED})")


@pytest.mark.slow
def test_several_fatal_items_cost_no_other(tree, tmp_path, trap):
    """Two in one shard and one in another: three rejects, six deaths, nine samples."""
    out = tmp_path / "out.lmdb"
    places = {"bee/0.png": 1, "bee/1.png": 2, "cat/2.png": 1}
    fatal = trap(places, signal.SIGSEGV)
    report = build(tree, out, RECIPE, worker_count=1, rejects_max=3, on_step=fatal)
    assert len(fatal.killed) == 6
    assert [name for name, _ in names_and_reasons(out)] == list(places)
    assert report.sample_count == 9


def test_a_fatal_item_is_tried_again_by_the_next_run(tree, tmp_path, contents_of, whole, trap):
    """What killed it may be past: nobody has to discard the shards that are finished."""
    out = tmp_path / "out.lmdb"
    fatal = trap({"bee/0.png": 1}, signal.SIGKILL)
    with pytest.raises(TooManyRejectsError, match="died, are tried again by the same command"):
        build(tree, out, RECIPE, worker_count=1, on_step=fatal)
    fatal.release()
    report = build(tree, out, RECIPE, worker_count=1)
    assert report.kept_shard_count == 3
    assert contents_of(out) == whole


def test_a_fatal_item_stops_a_build_that_is_to_stop_at_rejects(tree, tmp_path, trap):
    """Named like any other reject."""
    fatal = trap({"bee/0.png": 1}, signal.SIGSEGV)
    with pytest.raises(RejectedItemError, match=r"^bee/0\.png: a build worker died twice"):
        build(tree, tmp_path / "out.lmdb", RECIPE, worker_count=1, on_error="fail", on_step=fatal)
