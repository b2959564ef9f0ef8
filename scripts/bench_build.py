"""How fast `packer build` is, beside what else there is.

    python scripts/bench_build.py --peers PEERS --env ENV --raw RAW --out OUT --only w1:raw256
    python scripts/bench_build.py --quality PHOTOS

PEERS is a folder with a driver `case.py` that builds one store when it is told to, as `make_loader`
and `write` of `scripts/peers_adapter.py` want it; ENV holds `venv/bin/python`, in which all that is
compared is installed; RAW are its workloads. Rounds are interleaved, A B C, C B A, and each build
is a process of its own, so that all meet the same phases of the machine. CPU time counts the
process and all that it started; memory is the most that they held together (PSS), with what they
read mapped.

`--quality` prints how near `--scaling fast` comes to `exact`, over the JPEGs of a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TICK = os.sysconf("SC_CLK_TCK")
_SAMPLE_S = 0.05


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quality", type=Path, metavar="PHOTOS", help="measure scaling alone")
    parser.add_argument("--peers", type=Path, help="folder of the driver")
    parser.add_argument("--env", type=Path, help="folder of the environment")
    parser.add_argument("--raw", type=Path, help="folder of the workloads")
    parser.add_argument("--out", type=Path, help="folder for the stores, which are removed")
    parser.add_argument("--only", default="w1:raw256,w1:jpg256,w3:raw640")
    parser.add_argument("--names", default="ours,ffcv_,litdata_,lmdb_naive")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.quality is not None:
        print_quality(options.quality)
        return
    for each in options.only.split(","):
        workload, _, variant = each.partition(":")
        print_table(workload, variant, measure(workload, variant, options))


def measure(workload: str, variant: str, options: Any) -> dict[str, list[dict[str, float]]]:
    """Seconds, CPU seconds, peak bytes and image count of each build, by peer."""
    names = options.names.split(",")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(options.rounds):
        for name in names if turn % 2 == 0 else names[::-1]:
            result = build_once(name, workload, variant, options)
            if result is not None:
                found[name].append(result)
    return found


def build_once(name: str, workload: str, variant: str, options: Any) -> dict[str, float] | None:
    """One build in a process of its own, or None where the peer cannot do it."""
    store = options.out / f"{workload}-{variant}-{name}"
    command = [options.env / "venv/bin/python", options.peers / "case.py", name, workload, variant]
    command += [options.raw, store, str(options.workers)]
    # The driver finds this checkout by it.
    project = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PROJECT": project}  # noqa: TID251
    process = subprocess.Popen(
        list(map(str, command)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=options.peers,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    watch = _Watch(process.pid)
    try:
        process.stdin.write("build\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline() or '{"ok": false}')
        cpu_s, peak_bytes = watch.stop()
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(store, ignore_errors=True)
    if not answer["ok"]:
        print(f"{name}: {answer.get('error', 'died')}")
        return None
    return {
        "count": answer["n"],
        "seconds": answer["build_s"],
        "cpu_s": cpu_s,
        "peak": peak_bytes,
        "bytes": answer["bytes"],
    }


class _Watch:
    """CPU time and memory of a process and its descendants, until it is stopped."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0
        self._cpu: dict[int, float] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(_SAMPLE_S):
            self._look()

    def _look(self) -> None:
        memory = 0
        for pid in _family(self._pid):
            try:
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                # Its own time: that of children that ended was seen while they lived.
                self._cpu[pid] = sum(map(int, words[11:13])) / _TICK
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        memory += int(line.split()[1]) * 1024
            except (OSError, IndexError):
                continue
        self._peak = max(self._peak, memory)

    def stop(self) -> tuple[float, int]:
        """CPU seconds so far, and the most bytes."""
        self._look()
        self._is_over.set()
        self._thread.join()
        return sum(self._cpu.values()), self._peak


def _family(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        each = waiting.pop()
        found.append(each)
        for task in Path(f"/proc/{each}/task").glob("*"):
            try:
                waiting += map(int, (task / "children").read_text().split())
            except OSError:
                continue
    return found


def print_table(workload: str, variant: str, found: dict[str, list[dict[str, float]]]) -> None:
    """One row a peer: medians, and the ratio to the best of the others."""
    rates = {
        name: statistics.median(run["count"] / run["seconds"] for run in runs)
        for name, runs in found.items()
        if runs
    }
    others = [rate for name, rate in rates.items() if name != "ours"]
    print(f"\n### {workload} {variant}\n")
    print("| | images/s | best | to the best peer | CPU ms/image | peak MB | store MB |")
    print("|---|---|---|---|---|---|---|")
    for name, rate in sorted(rates.items(), key=lambda pair: -pair[1]):
        runs = found[name]
        best = max(run["count"] / run["seconds"] for run in runs)
        cpu = statistics.median(run["cpu_s"] / run["count"] * 1000 for run in runs)
        peak, size = (max(run[key] for run in runs) / 1e6 for key in ("peak", "bytes"))
        ratio = f"{rate / max(others):.2f}" if others else "-"
        print(
            f"| {name.rstrip('_')} | {rate:,.0f} | {best:,.0f} | {ratio} | {cpu:.2f} | {peak:,.0f} "
            f"| {size:,.0f} |",
            flush=True,
        )


def print_quality(folder: Path) -> None:
    """PSNR of both ways of scaling to each other and to Pillow's filters, for several sizes."""
    import cv2
    from PIL import Image

    from packer.pictures.prepare import prepare_image
    from packer.recipe import Recipe, Scaling

    paths = sorted(folder.rglob("*.jpg"))[:: max(1, len(list(folder.rglob("*.jpg"))) // 40)]
    print("| size | images | fast to exact | to bilinear: fast, exact | to Lanczos: fast, exact |")
    print("|---|---|---|---|---|")
    ways: tuple[Scaling, ...] = ("fast", "exact")
    for size in (224, 256, 320, 512):
        rows = []
        for path in paths:
            data = path.read_bytes()
            fast, exact = (prepare_image(data, Recipe(size=size, scaling=w)).pixels for w in ways)
            whole = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB)
            to = fast.shape[1], fast.shape[0]
            if whole is None or np.array_equal(fast, exact):
                continue
            picture = Image.fromarray(whole)
            near, sharp = (
                np.asarray(picture.resize(to, getattr(Image.Resampling, name)))
                for name in ("BILINEAR", "LANCZOS")
            )
            pairs = (fast, exact), (fast, near), (exact, near), (fast, sharp), (exact, sharp)
            rows.append([_psnr(a, b) for a, b in pairs])
        if rows:
            mean, least = np.mean(rows, axis=0), np.min(rows, axis=0)
            text = [f"{m:.1f} (least {n:.1f})" for m, n in zip(mean, least, strict=True)]
            print(
                f"| {size} | {len(rows)} | {text[0]} | {text[1]}, {text[2]} | {text[3]}, "
                f"{text[4]} |"
            )


def _psnr(a: NDArray[Any], b: NDArray[Any]) -> float:
    error = float(np.mean((a.astype(np.float64) - b) ** 2))
    return 10 * float(np.log10(255**2 / error)) if error else 99.0


if __name__ == "__main__":
    main()
