"""How a build grows with the number of files: its scan, plan, tasks, publishing, and a reader.

    python scripts/bench_scale.py --folder /data/scale --counts 100000,1000000,10000000
    python scripts/bench_scale.py --folder /data/scale --counts 100000,1000000 --build

Makes trees of hard links to a few small pictures, 1,000 in a folder; past a million files, folders
are links to those of the first million, which the walk follows. `--flat` puts all files of a tree
into one folder. Each measurement is a process of its own: memory is what it grew by since its
modules were loaded, at its peak, and CPU time is the least of the rounds. With `--build`, stores
are built of them, and publishing, one build worker and one reader measured. The trees are removed,
unless `--keep` is given. `--calls` counts what the walk asks of the file system.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from packer.building.build import build
from packer.plan.shards import make_plan
from packer.recipe import Recipe
from packer.sources import SourceOptions, scan_source
from packer.sources.detection.detect import detect
from packer.sources.walk import walk
from packer.workspace.folder import Workspace
from packer.workspace.step import Step
from readers.dataset import LMDBDataset

_FOLDER_FILES = 1000
_LINKS_MAX = 50_000  # Of one file; ext4 allows 65,000.
_LINKED_PAST = 1_000_000


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="a new one, for the trees")
    parser.add_argument("--counts", default="100000,1000000")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--flat", action="store_true", help="all files of a tree in one folder")
    parser.add_argument("--build", action="store_true", help="build stores as well")
    parser.add_argument("--calls", action="store_true", help="count calls of the walk alone")
    parser.add_argument("--keep", action="store_true", help="leave the trees, and take those there")
    parser.add_argument("--step", choices=_STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step is not None:
        print(json.dumps(_STEPS[options.step](options.folder)))
        return
    steps = ["calls"] if options.calls else ["driver", *(["store"] if options.build else [])]
    for count in map(int, options.counts.split(",")):
        tree = make_tree(options.folder, count, is_flat=options.flat)
        for step in steps:
            rounds = options.rounds if step == "driver" else 1
            print_rounds(count, [measured(step, tree) for _ in range(rounds)])
    if not options.keep:
        shutil.rmtree(options.folder)


def make_tree(folder: Path, count: int, *, is_flat: bool) -> Path:
    """A tree of so many files, the one that is there or a new one."""
    tree = folder / f"{count}{'-flat' if is_flat else ''}"
    if tree.exists():
        return tree
    if count > _LINKED_PAST and not is_flat:
        first = make_tree(folder, _LINKED_PAST, is_flat=False)
        tree.mkdir()
        for number in range(count // _LINKED_PAST):
            (tree / f"part-{number:03d}").symlink_to(first, target_is_directory=True)
        return tree
    pictures = tree.with_name(f"{tree.name}.pictures")
    pictures.mkdir(parents=True)
    random = np.random.default_rng(0)
    files = []
    for number in range(-(-count // _LINKS_MAX)):
        files.append(os.fsencode(pictures / f"{number}.jpg"))
        pixels = random.integers(0, 255, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(os.fsdecode(files[-1]))
    place = b""
    for number in range(count):
        if number == 0 or (number % _FOLDER_FILES == 0 and not is_flat):
            place = os.fsencode(tree / f"n{number // _FOLDER_FILES:08d}")
            os.makedirs(place)
        os.link(files[number // _LINKS_MAX], b"%s/n%012d.JPEG" % (place, number))
    return tree


def measured(step: str, tree: Path) -> dict[str, Any]:
    """What a step costs, in a process of its own."""
    command = [sys.executable, __file__, "--folder", os.fspath(tree), "--step", step]
    found: dict[str, Any] = json.loads(subprocess.check_output(command))
    return found


def print_rounds(count: int, rounds: list[dict[str, Any]]) -> None:
    """The least of each figure."""
    print(f"{count:,} files")
    for name in rounds[0]:
        value = min(found[name] for found in rounds)
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
        print(f"  {name:<34}{shown:>16}", flush=True)


# --- steps, each in its own process ---------------------------------------------------------------


class Laps:
    """CPU time a file and memory of one part after the other."""

    def __init__(self, count: int = 0) -> None:
        self.found: dict[str, Any] = {}
        self.count = count
        self._before = _resident_bytes()

    def lap(self, name: str, work: Callable[[], Any]) -> Any:
        """What the work returns."""
        used, started = time.process_time(), time.monotonic()
        result = work()
        used, wall = time.process_time() - used, time.monotonic() - started
        self.found[f"{name}: CPU s"] = used
        self.found[f"{name}: wall s"] = wall
        return result

    def memory(self, name: str) -> None:
        """The most that the process has held by now."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - self._before
        self.found[f"{name}: peak MB"] = peak / 1e6


def measure_driver(tree: Path) -> dict[str, Any]:
    """Scan, plan and tasks of a build."""
    options = SourceOptions()
    laps = Laps()
    laps.lap("detect", lambda: detect(tree, options))
    name = detect(tree, options).format
    scan = laps.lap("scan", lambda: scan_source(tree, SourceOptions(format=name)))
    laps.memory("scan")
    plan = laps.lap("plan", lambda: make_plan(scan, Recipe(size=16, fit="stretch")))
    workspace = Workspace(tree.with_name(f"{tree.name}.work"))
    workspace.folder.mkdir()
    parts = (scan.items[first:end] for first, end in plan.cuts)
    laps.lap("tasks", lambda: workspace.begin(parts, plan.facts()))
    laps.memory("all")
    shutil.rmtree(workspace.folder)
    count, found = len(scan.items), laps.found
    used = sum(value for key, value in found.items() if key.endswith("CPU s"))
    names = sum(len(os.path.basename(item.key)) for item in scan.items)
    found["CPU us a file"] = used / count * 1e6
    found["bytes a file, names included"] = found["all: peak MB"] * 1e6 / count
    found["bytes a file, without names"] = (found["all: peak MB"] * 1e6 - names) / count
    return found


def count_calls(tree: Path) -> dict[str, Any]:
    """Calls of the walk, by kind."""
    calls: Counter[str] = Counter()

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return call(*args, **kwargs)

        return counted

    os.stat, os.scandir = counting("stat", os.stat), counting("scandir", os.scandir)
    found = walk(tree)
    return {"folders": len(found.folders), "files": len(found.table), **calls}


def measure_store(tree: Path) -> dict[str, Any]:
    """A build of pixels of 16 x 16: publishing, one build worker, the driver; then a reader."""
    out = tree.with_name(f"{tree.name}.lmdb")
    times: dict[Step, float] = {}
    laps = Laps()
    peaks: dict[int, int] = {}
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(0.1):
            for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                peaks[int(child)] = max(peaks.get(int(child), 0), _peak_bytes(int(child)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        recipe = Recipe(size=16, fit="stretch")
        report = laps.lap(
            "build",
            lambda: build(
                tree, out, recipe, on_step=lambda step: times.update({step: time.monotonic()})
            ),
        )
    finally:
        is_done.set()
        watcher.join()
    laps.memory("build driver")
    found = laps.found
    found["publish: wall s"] = times[Step.CLEANED] - times[Step.SHARDS_FINISHED]
    found["one build worker: peak MB"] = max(peaks.values()) / 1e6
    found["shards"] = len(os.listdir(out)) - 3
    found["store bytes an item"] = (
        sum(f.stat().st_size for f in out.iterdir()) / report.sample_count
    )
    found |= measured("reader", out)
    shutil.rmtree(out)
    return found


def measure_reader(out: Path) -> dict[str, Any]:
    """A process that opens a store and reads samples from all over it."""
    laps = Laps()
    dataset = laps.lap("open", lambda: LMDBDataset(out))
    laps.memory("open")
    some = range(0, len(dataset), max(1, len(dataset) // 1000))
    laps.lap("1,000 samples", lambda: [dataset[at] for at in some])
    laps.memory("reader")
    return laps.found


_STEPS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "driver": measure_driver,
    "calls": count_calls,
    "store": measure_store,
    "reader": measure_reader,
}


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak_bytes(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((int(x.split()[1]) * 1024 for x in status.splitlines() if "VmHWM" in x), 0)


if __name__ == "__main__":
    main()
