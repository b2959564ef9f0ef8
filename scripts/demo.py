"""The demo: real photos -> a store -> batches, each step shown and its result checked.

    python scripts/demo.py FOLDER

FOLDER gets `raw` (the photos) and `demo.lmdb` (the store). What an earlier demo left there is made
anew; a folder with anything else in it is refused.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from demo_photos import CROP_COUNTS, PHOTOS, SIDE_MIN, cut_photos
from PIL import Image

from readers import LMDBDataset, make_loader

BATCH_SIZE = 16
WORKER_COUNT = 2
MARKER_NAME = "made-by-demo"

DIFFERENCE_MAX = 2
"""Levels out of 255 in which two JPEG decoders may differ, by how they round."""


class DemoError(Exception):
    """The demo found something that is not as it must be."""


def run_demo(folder: Path) -> None:
    """Make photos and store in `folder`, read the store back, and check what comes out."""
    raw, store = folder / "raw", folder / "demo.lmdb"
    _clear(folder)

    _title(f"1. Real photos, cut into small JPEG files: {raw}")
    photo_count = cut_photos(raw)
    photo_bytes = sum(path.stat().st_size for path in raw.rglob("*.jpg"))
    print(f"{photo_count} files, {len(PHOTOS)} classes, {photo_bytes / 2**20:.1f} MiB")

    _title("2. Compile them, look at the store, check every record")
    _packer("build", str(raw), str(store), "--size", str(SIDE_MIN), "--fit", "crop")
    _packer("info", str(store))
    _packer("verify", str(store))

    _title("3. Read it in Python")
    _check_classes(store, photo_count)
    _read_epoch(store)
    _read_validation(store)
    _compare_with_photos(raw, store)

    _title("Done. What next?")
    print(
        "Compile your own images, one folder a class (train/ and val/ above them, if you like):\n"
        f"    {shlex.quote(str(_program()))} build IMAGES STORE.lmdb --size 224 --fit crop\n"
        "Train from the store: the README has an example. All commands: packer --help"
    )


def _clear(folder: Path) -> None:
    """Make `folder`, or remove what an earlier demo left in it."""
    marker = folder / MARKER_NAME
    if folder.exists() and not marker.exists() and (folder.is_file() or any(folder.iterdir())):
        raise DemoError(
            f"{folder}: there are files that are not the demo's, and it would write among them. "
            "Name an empty folder or a new one: scripts/demo FOLDER"
        )
    folder.mkdir(parents=True, exist_ok=True)
    marker.write_text(
        "scripts/demo removes raw and demo.lmdb beside this file, to make them anew.\n"
    )
    # With the store goes what a build that was stopped left beside it.
    for path in (folder / "raw", *folder.glob("demo.lmdb*")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _check_classes(store: Path, photo_count: int) -> None:
    """Every photo is in the store, under the class of its folder."""
    dataset = LMDBDataset(store)
    _check("samples in the store", len(dataset), photo_count)
    _check("classes", tuple(dataset.classes), tuple(sorted(PHOTOS)))


def _read_epoch(store: Path) -> None:
    """An epoch of training, through worker processes."""
    dataset = LMDBDataset(store, split="train", returns=("image", "label"))
    expected_count = CROP_COUNTS["train"] * len(PHOTOS)
    _check("training samples", len(dataset), expected_count)
    loader = make_loader(dataset, batch_size=BATCH_SIZE, train=True, workers=WORKER_COUNT)
    sample_count = 0
    labels_seen: set[int] = set()
    start_s = time.perf_counter()
    for images, labels in loader:
        _check_quietly("shape of a batch", tuple(images.shape), (BATCH_SIZE, 3, SIDE_MIN, SIDE_MIN))
        _check_quietly("type of a batch", str(images.dtype), "torch.uint8")
        sample_count += len(labels)
        labels_seen.update(labels.tolist())
    seconds = time.perf_counter() - start_s
    print(f"batches: images {tuple(images.shape)} {images.dtype}, labels {tuple(labels.shape)}")
    # Training drops a last short batch; this batch size leaves none.
    _check("samples in an epoch", sample_count, expected_count)
    _check("labels in an epoch", sorted(labels_seen), list(range(len(PHOTOS))))
    print(
        f"speed: {sample_count / seconds:,.0f} images/s with {WORKER_COUNT} workers, "
        "most of the time for their start: the demo is tiny"
    )


def _read_validation(store: Path) -> None:
    """Evaluation meets every sample once, a last short batch included."""
    dataset = LMDBDataset(store, split="val", returns=("key", "label"))
    keys: list[str] = []
    for batch_keys, _ in make_loader(dataset, batch_size=BATCH_SIZE, train=False, workers=0):
        keys.extend(batch_keys)
    _check("validation samples", len(keys), CROP_COUNTS["val"] * len(PHOTOS))
    _check("different ones among them", len(set(keys)), len(keys))


def _compare_with_photos(raw: Path, store: Path) -> None:
    """The first crop of a class has the store's size, so its pixels must be those of its file."""
    dataset = LMDBDataset(store)
    largest = 0
    for name in PHOTOS:
        key = f"train/{name}/{name}-00.jpg"
        sample = dataset[dataset.index_of(key)]
        # Tensors are (channel, height, width); Pillow's pixels are (height, width, channel).
        stored = sample["image"].permute(1, 2, 0).numpy()
        with Image.open(raw / key) as photo:
            expected = np.asarray(photo.convert("RGB"))
        _check_quietly(f"shape of {key}", stored.shape, expected.shape)
        difference = int(np.abs(stored.astype(np.int16) - expected).max())
        if difference > DIFFERENCE_MAX:
            raise DemoError(
                f"{store}, sample {key!r}: a pixel differs by {difference} levels from the file as "
                f"Pillow decodes it; expected at most {DIFFERENCE_MAX}"
            )
        _check_quietly(f"class of {key}", dataset.classes[int(sample["label"])], name)
        largest = max(largest, difference)
    print(f"pixels of {len(PHOTOS)} samples against Pillow: largest difference {largest} of 255")


def _check(what: str, found: object, expected: object) -> None:
    """Print a result, and stop when it is not the expected one."""
    _check_quietly(what, found, expected)
    text = ", ".join(map(str, found)) if isinstance(found, (tuple, list)) else str(found)
    print(f"{what}: {text}")


def _check_quietly(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise DemoError(f"{what}: found {found}, expected {expected}")


def _program() -> Path:
    """The console script beside the interpreter, whether its environment is activated or not."""
    return Path(sys.executable).parent / "packer"


def _packer(*arguments: str) -> None:
    """Show a command as a person would type it, and run it."""
    print(f"\n$ {shlex.join(['packer', *arguments])}", flush=True)
    status = subprocess.run([_program(), *arguments], check=False).returncode
    if status != 0:
        raise DemoError(f"packer {arguments[0]} ended with status {status}; its message is above")


def _title(text: str) -> None:
    print(f"\n== {text}", flush=True)


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description="Compile real photos into a store and read it.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="Where photos and store go.")
    try:
        run_demo(parser.parse_args().folder)
    except DemoError as error:
        print(f"\nThe demo failed. {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
