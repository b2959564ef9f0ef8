"""How fast crops of large stored JPEGs are, decoded at a part of their size and in full.

    scripts/bench_crops.py [--photos FOLDER] [--images 24] [--workers 2] [--rounds 5]

Without a folder of photos it draws some of 4000 x 3000. Rounds are interleaved, so that what else
the machine does meets all alike; each way is warm before it is timed. `thread` decodes whole
pictures, `process` the windows alone. PSNR is that to the window of all pixels averaged by area,
which neither way computes: 2 x 2 of the pixels are read for each one under `exact`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from packer import Recipe, build
from readers import LMDBDataset, make_loader
from readers.ops import RandomFlip, RandomResizedCrop
from readers.ops.image_plan import compile_ops
from readers.ops.operations import Scaling

SIDE = 224
SEED = 0
WAYS: tuple[Scaling, ...] = ("exact", "fast")


def draw_photos(folder: Path, count: int) -> None:
    """Smooth noise with grain, 4000 x 3000."""
    generator = np.random.default_rng(0)
    for number in range(count):
        small = generator.integers(0, 256, (48, 64, 3), dtype=np.uint8)
        photo = cv2.resize(small, (4000, 3000), interpolation=cv2.INTER_CUBIC).astype(np.float32)
        photo += generator.normal(0, 8, photo.shape[:2]).astype(np.float32)[..., None]
        folder.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / f"{number:03d}.jpg"), np.clip(photo, 0, 255).astype(np.uint8))


def ops(scaling: Scaling) -> list[Any]:
    """What training does to photos."""
    return [RandomResizedCrop(SIDE, scaling=scaling), RandomFlip()]


def print_rates(dataset: LMDBDataset, workers: int, rounds: int) -> None:
    """Images a second of both ways, by either engine."""
    for engine in ("thread", "process"):
        loaders = {
            scaling: make_loader(
                dataset,
                min(8, len(dataset)),
                train=True,
                drop_last=False,
                engine=engine,
                workers=workers,
                ops=ops(scaling),
                seed=SEED,
            )
            for scaling in WAYS
        }
        rates: dict[str, list[float]] = {scaling: [] for scaling in WAYS}
        for turn in range(rounds + 1):
            for scaling, loader in loaders.items():
                started = time.perf_counter()
                count = sum(len(batch["image"]) for batch in loader)
                if turn:
                    rates[scaling].append(count / (time.perf_counter() - started))
        for loader in loaders.values():
            loader.close()
        exact, fast = (statistics.median(rates[scaling]) for scaling in WAYS)
        ratios = sorted(b / a for a, b in zip(*rates.values(), strict=True))
        print(
            f"{engine:8} exact {exact:6.1f} images/s   fast {fast:6.1f}   "
            f"{statistics.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


def print_quality(store: Path) -> None:
    """How near either way comes to the average of all pixels."""
    dataset = LMDBDataset(store, fields=["image"])
    whole = LMDBDataset(store, fields=["image"], image_as="numpy")
    for scaling in WAYS:
        plan = compile_ops(ops(scaling)[:1])
        found = []
        settings: dict[str, Any] = {"train": False, "workers": 0, "seed": SEED}
        with closing(make_loader(dataset, 1, ops=ops(scaling)[:1], **settings)) as loader:
            for at, batch in enumerate(loader):
                pixels = whole[at]["image"]
                params = plan.draw([pixels.shape[0]], [pixels.shape[1]], SEED, 0, [at])
                top, left, height, width = params.windows[0]
                window = pixels[top : top + height, left : left + width]
                averaged = cv2.resize(window, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
                image = batch["image"][0].permute(1, 2, 0).numpy()
                error = np.mean((image.astype(np.float64) - averaged) ** 2)
                found.append(10 * np.log10(255**2 / max(float(error), 1e-9)))
        print(f"{scaling:6} PSNR {np.mean(found):.1f} dB, least {min(found):.1f}")


def main() -> None:
    """Parse, make what is needed, measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--photos", type=Path, help="a folder of JPEGs")
    parser.add_argument("--images", type=int, default=24, help="photos to draw")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        raw = options.photos
        if raw is None:
            raw = Path(folder) / "raw"
            draw_photos(raw, options.images)
        store = Path(folder) / "photos.lmdb"
        build(raw, store, Recipe(image="original"), worker_count=options.workers)
        dataset = LMDBDataset(store, fields=["image"])
        print(f"{len(dataset)} photos, crops of {SIDE} x {SIDE}, {options.workers} workers")
        print_rates(dataset, options.workers, options.rounds)
        print_quality(store)


if __name__ == "__main__":
    main()
