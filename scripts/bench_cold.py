"""What training gets from storage that is far away, while nothing is in memory.

    scripts/bench_cold.py [--images 600] [--delays 0.5,2,10] [--forms raw256,jpg256,original]
    scripts/bench_cold.py --quick --chart cold.svg             # In a few minutes.
    scripts/bench_cold.py --quick --delays "" --nfs 1,5 --ways folder,ours --samples 320 --rounds 1
        # A real kernel's NFS, as quick: there the start of a run takes several seconds.
    scripts/bench_cold.py --delays "" --mount /mnt/nfs/scratch

`cold_ways.py` says what is compared. Each place is read by each way in turn, round after round, so
that what else the machine does meets all alike; each run is a process of its own, and counts from
opening the data to the last batch; "steady" counts from the first batch on, without the opening and
the start of workers. A run takes --samples, or as many as come in --seconds by a first round that
does not count. Calls are those that came to the server: requests for bytes a sample, and calls for
names (opens, looks, listings), in all of the run and a sample.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cv2
import torch
from cold_chart import draw_chart
from cold_ways import FORMS, ORDERS, WAYS, batches, make_data
from far_mount import Far, FarMount, FarMountUnavailableError, mounted
from nfs_calls import Calls, nfs_calls

NFS_RUN = Path(__file__).resolve().parents[2] / "shared" / "cluster" / "nfs-run"
"""Runs a command in a guest system with a real NFS mount; beside the checkout, if it is there."""

PILOT_BATCH_COUNT = 2

QUICK = {
    "images": 1200,
    "rounds": 2,
    "seconds": 4.0,
    "forms": "raw256,jpg256",
    "orders": "shuffled",
    "ways": "folder,plain,ours",
}
"""What `--quick` sets; options that are given beside it win."""


@dataclass(frozen=True)
class Place:
    """Where the data lies.

    Attributes:
        name: For the table.
        folder: The data, as it is seen there.
        calls: Counts calls so far; None where they cannot be counted.
        forget: Has the machine forget what it has read.
    """

    name: str
    folder: Path
    calls: Callable[[], Calls] | None = None
    forget: Callable[[], None] = lambda: None


@dataclass
class Row:
    """One line of the table: all runs of one way at one place.

    Attributes:
        place: Name of the place.
        form: What a sample is.
        order: How samples are read.
        way: How they are kept.
        sample_count: Samples of a run.
        images_per_s: Of each run, from opening to the last batch.
        steady_per_s: Of each run, images a second from the first batch on.
        first_s: Of each run, to the first batch.
        cpu_share: Of each run: how much of all cores it took.
        reads: Requests for bytes a sample, in the last run.
        kilobytes: Bytes that were read a sample, in the last run, in 1000.
        names: Calls for names in the last run.
    """

    place: str
    form: str
    order: str
    way: str
    sample_count: int = 0
    images_per_s: list[float] = field(default_factory=list)
    steady_per_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    cpu_share: list[float] = field(default_factory=list)
    reads: float | None = None
    kilobytes: float | None = None
    names: int | None = None


def run(row: Row, place: Place, count: int, batch_size: int, workers: int) -> dict[str, float]:
    """One run, in a process of its own: what it took, and what came to the server."""
    place.forget()
    before = place.calls() if place.calls else None
    receiver, sender = multiprocessing.Pipe(duplex=False)
    settings = {"count": count, "batch_size": batch_size, "workers": workers}
    arguments = (sender, (row.way, row.form, row.order, place.folder), settings)
    child = multiprocessing.get_context("fork").Process(target=_read, args=arguments)
    child.start()
    sender.close()
    try:
        found: dict[str, float] = receiver.recv()
    finally:
        child.join()
    if place.calls and before:
        calls = place.calls().since(before)
        row.reads = calls.reads / found["samples"]
        row.kilobytes = calls.read_bytes / found["samples"] / 1000
        row.names = calls.names
    return found


def _read(sender: Connection, which: tuple[str, str, str, Path], settings: dict[str, Any]) -> None:
    started, first_s, first_count, sample_count = time.perf_counter(), 0.0, 0, 0
    for images, _ in batches(*which, **settings):
        first_s = first_s or time.perf_counter() - started
        first_count = first_count or len(images)
        sample_count += len(images)
    seconds = time.perf_counter() - started
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in spent)
    cores = len(os.sched_getaffinity(0))
    sender.send(
        {
            "samples": sample_count,
            "seconds": seconds,
            "first_s": first_s,
            "steady_per_s": (sample_count - first_count) / (seconds - first_s),
            "cpu_share": cpu_s / seconds / cores,
        }
    )


def _samples_of(row: Row, place: Place, options: argparse.Namespace) -> float:
    """How many samples come in the seconds that a run is to take, from its first batch on."""
    count = options.batch * PILOT_BATCH_COUNT
    found = run(row, place, count, options.batch, options.workers)
    if found["seconds"] > options.seconds:  # Its start is not what took so long.
        rate = found["samples"] / found["seconds"]
    else:
        rate = run(row, place, 4 * count, options.batch, options.workers)["steady_per_s"]
    seconds: float = options.seconds
    return rate * seconds


def measure(place: Place, options: argparse.Namespace) -> list[Row]:
    """All ways at one place."""
    rows = [
        Row(place.name, form, order, way)
        for form in options.forms
        for order in options.orders
        for way in options.ways
        if way != "tar" or order == "ordered"
    ]
    for row in rows:
        wanted = options.samples or _samples_of(row, place, options)
        batch_count = max(PILOT_BATCH_COUNT, round(wanted / options.batch))
        row.sample_count = min(batch_count, options.images // options.batch) * options.batch
    print(f"{place.name}: the sizes of runs are known", file=sys.stderr)
    for number in range(1, options.rounds + 1):
        for row in rows:
            found = run(row, place, row.sample_count, options.batch, options.workers)
            row.images_per_s.append(found["samples"] / found["seconds"])
            row.steady_per_s.append(found["steady_per_s"])
            row.first_s.append(found["first_s"])
            row.cpu_share.append(found["cpu_share"])
        print(f"{place.name}: round {number} of {options.rounds}", file=sys.stderr)
    return rows


# --- Places ---------------------------------------------------------------------------------------


@contextmanager
def far_place(data: Path, delay_ms: float) -> Iterator[Place]:
    """The data, each call taking so long."""
    far = Far.of_delay(delay_ms)
    with (
        tempfile.TemporaryDirectory() as folder,
        mounted(data, Path(folder) / "mount", far) as mount,
    ):
        yield Place(f"{delay_ms:g} ms a call", mount.path, lambda: _far_calls(mount))


def _far_calls(mount: FarMount) -> Calls:
    found = mount.counts()
    return Calls(found.read_count, found.open_count + found.stat_count, found.read_bytes)


def given_place(name: str, folder: Path, *, drops_caches: bool) -> Place:
    """Data that lies on some mount; its calls are counted if it is NFS."""

    def forget() -> None:
        if drops_caches:
            Path("/proc/sys/vm/drop_caches").write_text("3\n")
            return
        for path in folder.rglob("*"):
            if path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)

    has_calls = nfs_calls(folder) is not None
    return Place(
        name, folder, (lambda: nfs_calls(folder) or Calls(0, 0, 0)) if has_calls else None, forget
    )


def measure_nfs(data: Path, delay_ms: float, options: argparse.Namespace) -> list[Row]:
    """All ways in a guest system, over the NFS of a real kernel.

    Args:
        data: Copied to the guest's server.
        delay_ms: Of each packet; a round trip is twice that.
        options: As for this program.
    """
    command = [sys.executable, __file__, "--measure", f"NFS, {2 * delay_ms:g} ms a round trip"]
    for name in ("images", "batch", "workers", "rounds", "seconds", "samples"):
        command += [f"--{name}", str(getattr(options, name))]
    for name in ("forms", "orders", "ways"):
        command += [f"--{name}", ",".join(getattr(options, name))]
    guest = [str(NFS_RUN), "--delay", f"{delay_ms:g}", "--seed", str(data)]
    guest += ["--limit", str(options.limit)]
    done = subprocess.run([*guest, "--", *command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{NFS_RUN} failed, exit status {done.returncode}: {done.stdout}")
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


# --- Results --------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """All rows, each beside the plain way of its kind."""
    lines = [
        f"{'':24}{'':10}{'':10}{'':8}{'images/s':>9}{'of folder':>11}{'of plain':>9}{'steady':>8}"
        f"{'first batch':>13}{'reads':>8}{'kB':>8}{'names':>8}{'a sample':>10}"
        f"{'samples':>9}{'CPU':>6}"
    ]
    rates = {_key(row): statistics.median(row.images_per_s) for row in rows}
    for row in rows:
        rate = rates[_key(row)]
        beside = [rates.get((*_key(row)[:3], way)) for way in ("folder", "plain")]
        ratios = [f"{rate / other:.2f}" if other else "" for other in beside]
        names = "-" if row.names is None else f"{row.names / row.sample_count:.2f}"
        lines.append(
            f"{row.place:24}{row.form:10}{row.order:10}{row.way:8}{rate:9,.0f}"
            f"{ratios[0]:>11}{ratios[1]:>9}{statistics.median(row.steady_per_s):8,.0f}"
            f"{statistics.median(row.first_s) * 1000:10,.0f} ms"
            f"{_number(row.reads, '.2f'):>8}{_number(row.kilobytes, '.0f'):>8}"
            f"{_number(row.names, 'd'):>8}{names:>10}{row.sample_count:9}"
            f"{statistics.median(row.cpu_share):6.0%}"
        )
    return "\n".join(lines)


def _key(row: Row) -> tuple[str, str, str, str]:
    return row.place, row.form, row.order, row.way


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def main() -> None:
    """Parse, make the data, measure at each place, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=600, help="photos to draw")
    parser.add_argument("--quick", action="store_true", help="less of all: a few minutes")
    parser.add_argument("--batch", type=int, default=32, help="samples of a batch")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count")
    parser.add_argument("--seconds", type=float, default=5.0, help="about, of a run")
    parser.add_argument("--samples", type=int, default=0, help="of a run, in place of --seconds")
    parser.add_argument("--delays", default="0.5,2,10", help="ms a call, of far file systems")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--orders", default=",".join(ORDERS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--local", action="store_true", help="also from the local disk, in memory")
    parser.add_argument(
        "--nfs", default="", help=f"ms a packet, of real NFS in a guest system: {NFS_RUN}"
    )
    parser.add_argument("--limit", type=int, default=1800, help="seconds of a guest system")
    parser.add_argument("--mount", type=Path, help="also from a folder of yours; it gets the data")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("--chart", type=Path, help="file for a chart, SVG")
    options = parser.parse_args()
    if options.quick:
        parser.set_defaults(**QUICK)
        options = parser.parse_args()
    for name, known in (("forms", FORMS), ("orders", ORDERS), ("ways", WAYS)):
        chosen = tuple(getattr(options, name).split(","))
        setattr(options, name, chosen)
        if unknown := set(chosen) - set(known):
            parser.error(f"--{name}: {', '.join(unknown)}; expected some of {', '.join(known)}")
    cv2.setNumThreads(0)  # Runs are forked; threads of OpenCV that they miss would be waited for.
    torch.set_num_threads(1)
    if options.measure:  # In a guest system.
        place = given_place(options.measure, Path(os.environ["NFS_DIR"]), drops_caches=True)  # noqa: TID251
        print(json.dumps([asdict(row) for row in measure(place, options)]))
        return
    delays = [float(text) for text in options.delays.split(",") if text]
    nfs_delays = [float(text) for text in options.nfs.split(",") if text]
    if nfs_delays and not NFS_RUN.exists():
        parser.error(f"--nfs: {NFS_RUN} is not there")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.mount) as name:
        data = Path(name) / "data"
        make_data(data, options.images, options.forms)
        try:
            for delay in delays:
                with far_place(data, delay) as place:
                    rows += measure(place, options)
        except FarMountUnavailableError as error:
            parser.error(f"--delays: {error}")
        for delay in nfs_delays:
            rows += measure_nfs(data, delay, options)
        if options.local:
            rows += measure(Place("memory", data), options)
        if options.mount is not None:
            rows += measure(given_place(str(options.mount), data, drops_caches=False), options)
    print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    if options.chart is not None:
        options.chart.write_text(
            draw_chart([(_key(row), statistics.median(row.images_per_s)) for row in rows])
        )


if __name__ == "__main__":
    main()
