"""What `packer plan` says of a build, beside what the build comes to.

    python scripts/compare_plan.py RAW OUT --size 256

Each policy that the settings allow is planned, built at OUT (a folder that is made, and removed
again) and read: every sample once, shuffled, by one process from the page cache. Times of a plan
hold for a machine at rest; run it on one.
"""

from __future__ import annotations

import argparse
import random
import shutil
import time
from pathlib import Path

from packer import Recipe, build
from packer.plan.cost import PolicyCost, estimate_costs

_HEAD = "| policy | MB: plan | is | | build s: plan | is | | images/s a core: plan | is | |"

_READ_S = 3.0
_READ_COUNT_MAX = 20_000


def main() -> None:
    """Parse the command line, plan, build, read, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("raw", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=int)
    parser.add_argument("--fit", default="short")
    parser.add_argument("--max-side", type=int)
    parser.add_argument("--only", help="policies, by commas")
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    try:
        recipe = Recipe(size=options.size, fit=options.fit, max_side=options.max_side)
        costs = estimate_costs(options.raw, options.out / "store.lmdb", recipe)
        print(costs.summary())
        print(f"\n{_HEAD}\n{'|---' * 10}|")
        for each in costs.policies:
            if options.only is None or each.image in options.only.split(","):
                print(row(each, *real(each, options)), flush=True)
    finally:
        shutil.rmtree(options.out)


def real(planned: PolicyCost, options: argparse.Namespace) -> tuple[float, float, float]:
    """Bytes and seconds of the build, and images a second that one core reads of its store."""
    out = options.out / "store.lmdb"
    recipe = Recipe(
        image=planned.image,
        quality=planned.quality,
        raw_share=planned.raw_share,
        size=options.size,
        fit=options.fit,
        max_side=options.max_side,
    )
    started = time.monotonic()
    build(options.raw, out, recipe, rejects_max="100%")
    build_s = time.monotonic() - started
    byte_count = sum(path.stat().st_size for path in out.iterdir())
    rate = read_rate(out)
    shutil.rmtree(out)
    return byte_count, build_s, rate


def read_rate(out: Path) -> float:
    """Images a second of CPU time that one process reads, shuffled, once all were read before."""
    import cv2

    from readers import LMDBDataset

    cv2.setNumThreads(1)
    dataset = LMDBDataset(out, fields=("image",), image_as="numpy")
    order = list(range(len(dataset)))
    random.Random(0).shuffle(order)
    order = order[:_READ_COUNT_MAX]
    for at in order:
        dataset[at]
    started, count = time.thread_time(), 0
    while (spent_s := time.thread_time() - started) < _READ_S:
        dataset[order[count % len(order)]]
        count += 1
    return count / spent_s


def row(planned: PolicyCost, byte_count: float, build_s: float, rate: float) -> str:
    """A line of the table, with what is planned against what is."""
    cells: list[str] = [planned.image]
    for plan, is_, scale, digits in (
        (planned.bytes, byte_count, 1e-6, 0),
        (planned.build_s, build_s, 1, 1),
        (planned.images_per_s_per_core, rate, 1, 0),
    ):
        cells += [f"{plan * scale:,.{digits}f}", f"{is_ * scale:,.{digits}f}"]
        cells.append(f"{plan / is_ - 1:+.0%}")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
