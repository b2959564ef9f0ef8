"""Writes the golden store of the format's current version: a tiny one with every kind of field.

    python scripts/make_golden.py FOLDER

FOLDER must not exist; in the repository it is `tests/golden/v1.2`. It gets `store.lmdb`, and
`expected.json` with what each value of it must be read as, taken from what is written and not from
reading it back. A golden store is made once for each version and never again: the tests read those
of all versions, so that no release loses the stores of an earlier one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from readers.store.codecs import OriginalImage
from readers.store.layout import REJECTS_NAME, shard_name
from readers.store.manifest import (
    FormatVersion,
    Manifest,
    SourceInfo,
    publish_manifest,
    write_synced,
)
from readers.store.record import RecordLayout
from readers.store.schema import ITEM_DTYPES, Field, Schema
from readers.store.shapes.polygons import Outline, Polygons, Runs
from readers.store.shard import ShardWriter

PICTURES = Path(__file__).resolve().parents[1] / "tests" / "golden" / "pictures"
"""Files that samples keep as they are. Made once: encoders of other versions give other bytes."""

CLASSES = ("Katze", "caf\udce9", "犬")  # The second is a folder's name in Latin-1.
SPLITS = ("train", "val")

SCHEMA = Schema(
    (
        Field(name="key", kind="text"),
        Field(name="image", kind="image", dtype="uint8", shape=(6, 4, 3), codec="raw"),
        Field(name="depth", kind="image", dtype="uint16", shape=(None, None, 1), codec="raw"),
        Field(name="any_image", kind="image", shape=(None, None, None), codec="raw"),
        Field(
            name="photo",
            kind="image",
            dtype="uint8",
            shape=(None, None, 3),
            codec="original",
            mode="rgb",
        ),
        Field(name="scan", kind="image", shape=(None,) * 3, codec="original", mode="unchanged"),
        Field(
            name="either",
            kind="image",
            dtype="uint8",
            shape=(None, None, 3),
            codec="mixed",
            mode="rgb",
        ),
        Field(name="label", kind="label", dtype="int64", names=CLASSES),
        Field(name="split", kind="scalar", dtype="uint8", names=SPLITS),
        Field(name="mask", kind="mask", dtype="uint8", shape=(6, 4), names=CLASSES, ignore=255),
        Field(name="any_mask", kind="mask", dtype="int32", shape=(None, None)),
        Field(name="png_mask", kind="mask", dtype="uint8", shape=(6, 4), codec="png"),
        Field(name="png_ids", kind="mask", dtype="int32", shape=(None, None), codec="png"),
        Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4)),
        Field(name="labels", kind="label", dtype="int64", shape=(None,), names=CLASSES),
        Field(
            name="keypoints",
            kind="keypoints",
            dtype="float32",
            shape=(None, 2, 3),
            names=("nose", "tail"),
        ),
        Field(name="corners", kind="keypoints", dtype="float32", shape=(None, 4, 2)),
        Field(name="outlines", kind="polygons"),
        Field(name="pairs", kind="array", dtype="float32", shape=(None, 2)),
        Field(name="original_size", kind="array", dtype="int32", shape=(2,)),
        Field(name="transform", kind="array", dtype="float32", shape=(2, 3)),
        Field(name="note", kind="text"),
        Field(name="attributes", kind="json"),
        Field(name="blob", kind="bytes"),
        *(Field(name=f"one_{dtype}", kind="scalar", dtype=dtype) for dtype in ITEM_DTYPES),
        *(
            Field(name=f"two_{dtype}", kind="array", dtype=dtype, shape=(2,))
            for dtype in ITEM_DTYPES
        ),
    )
)

SAMPLES_PER_SHARD = (3, 2)


def make_golden(folder: Path) -> None:
    """Write the golden store and what it must be read as. The same bytes each time.

    Raises:
        FileExistsError: `folder` is there already.
    """
    store = folder / "store.lmdb"
    store.mkdir(parents=True)
    shards, first = [], 0
    for number, count in enumerate(SAMPLES_PER_SHARD):
        writer = ShardWriter(store / shard_name(number), RecordLayout.of(SCHEMA))
        for at in range(first, first + count):
            writer.add(golden_key(at), golden_values(at))
        shards.append(writer.seal())
        first += count
    reject = {"key": "b/1.jpg", "path": "b/1.jpg", "reason": "the file is empty (0 bytes)"}
    write_synced(store / REJECTS_NAME, (json.dumps(reject) + "\n").encode())
    manifest = Manifest(
        format=FormatVersion(),
        schema=SCHEMA,
        classes=CLASSES,
        splits={"train": 3, "val": 2},
        sample_count=first,
        shards=tuple(shards),
        recipe={"image": "raw", "size": 6, "fit": None},
        source=SourceInfo(
            format="imagefolder",
            sha256="5e" * 32,
            found_count=7,
            reject_count=1,
            ignored={"no picture": 1},
            notes=("drawn by scripts/make_golden.py",),
            annotations={"found": 7, "stored": 6, "rejected": 1},
            choices={"voc_origin": "1"},
        ),
        statistics={
            "class_counts": [2, 2, 1],
            "channel_mean": [0.25, 0.5, 0.125],
            "channel_std": [0.25, 0.25, 0.0],
            "sizes": {"edges": [0, 64], "original": [4, 1], "stored": [5, 0]},
        },
        versions={"lmdb": version("lmdb")},
    )
    publish_manifest(store, manifest)
    samples = [
        {"key_bytes": golden_key(at).hex()}
        | {name: described(value) for name, value in expected_values(at).items()}
        for at in range(first)
    ]
    text = json.dumps({"classes": CLASSES, "samples": samples}, indent=1)
    (folder / "expected.json").write_text(text + "\n", encoding="ascii")


def golden_key(number: int) -> bytes:
    """The text key of a sample. The last one is no UTF-8, and longer than LMDB's keys may be."""
    return b"train/caf\xe9/" + b"x" * 600 if number == 4 else f"train/犬/{number}.jpg".encode()


def golden_values(number: int) -> dict[str, Any]:
    """A value for every field of one sample, computed from its number alone."""
    side = 1 + 13 * (number % 4)  # Some records fit a leaf, others take pages of their own.
    dtype = ITEM_DTYPES[number + 1]
    values: dict[str, Any] = {
        "key": golden_key(number).decode("utf-8", "surrogateescape"),
        "image": counted((6, 4, 3), "uint8", number),
        "depth": counted((side, 2 * side, 1), "uint16", number),
        "any_image": counted((2, 1 + number, 1 + number % 4), dtype, number),
        **{name: _original(*picture) for name, picture in _pictures(number).items()},
        "label": (number * 2) % 3,
        "split": int(number > 2),
        "mask": counted((6, 4), "uint8", number) % 3,
        "any_mask": counted((1 + number, 2), "int32", number) - 100,
        "either": (
            _original(*_pictures(number)["photo"])
            if number % 2
            else counted((1 + number, 5, 3), "uint8", number)
        ),
        "png_mask": counted((6, 4), "uint8", number),
        "png_ids": counted((1 + number, 3), "int32", number) * 65_537,
        "boxes": counted((number % 3, 4), "float32", number) / np.float32(8),
        "labels": counted((number % 3,), "int64", number) % 3,
        "keypoints": counted((number % 3, 2, 3), "float32", number) / np.float32(8),
        "corners": counted((number % 3, 4, 2), "float32", number) / np.float32(8),
        "outlines": _outlines(number),
        "pairs": counted((number % 3, 2), "float32", number) / np.float32(8),
        "original_size": counted((2,), "int32", number),
        "transform": counted((2, 3), "float32", number) / np.float32(7),
        "note": ("", "ä\n", "\udcff", "犬", "a\0b")[number],
        "attributes": {"number": number, "of": [None, True, 0.1, "é"], "deep": {"": []}},
        "blob": bytes(range(number * 50)),
    }
    for name in ITEM_DTYPES:
        pair = _extremes(name) if number else np.zeros(2, name)
        values[f"one_{name}"] = pair[number % 2].item()
        values[f"two_{name}"] = pair
    return values


def _outlines(number: int) -> Polygons:
    """As many objects as boxes: one of two polygons, one of runs, one of nothing."""
    parts = (counted((3, 2), "float64", number) / 7, counted((5, 2), "float64", number + 1) / 3)
    runs = Runs(np.array([number, 20 - number, 4], np.uint32))
    outlines: list[Outline] = [parts, runs, ()]
    return Polygons(outlines[: number % 3], 4, 6)


def expected_values(number: int) -> dict[str, Any]:
    """What the fields of one sample must be read as: pixels in place of pictures."""
    decoded = {name: _decoded(*picture) for name, picture in _pictures(number).items()}
    if number % 2:
        decoded["either"] = decoded["photo"]
    return golden_values(number) | decoded


def counted(shape: tuple[int, ...], dtype: str, first: int) -> NDArray[Any]:
    """An array whose elements count on from `first`, wrapped at 251."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7 + first) % 251).astype(dtype).reshape(shape)


def _extremes(dtype: str) -> NDArray[Any]:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.array([False, True])
    limits: Any = np.finfo(dtype) if kind == "f" else np.iinfo(dtype)
    return np.array([limits.min, limits.max], dtype)


def _pictures(number: int) -> dict[str, tuple[Path, str | None]]:
    """By field, the file that a sample keeps, and Pillow's mode that it is read in."""
    photo = ("turned.jpg", "palette.png", "alpha.png")[number % 3]
    scan = ("gray16.png", "alpha.png", "palette.png")[number % 3]
    return {"photo": (PICTURES / photo, "RGB"), "scan": (PICTURES / scan, None)}


def _original(path: Path, mode: str | None) -> OriginalImage:
    pixels = _decoded(path, mode)
    with Image.open(path) as image:
        orientation = image.getexif().get(0x0112, 1)
    height, width, channel_count = pixels.shape
    size = (height, width, channel_count)
    return OriginalImage(path.read_bytes(), size, pixels.dtype.name, orientation)


def _decoded(path: Path, mode: str | None) -> NDArray[Any]:
    """The pixels (height, width, channel), upright, by Pillow alone."""
    with Image.open(path) as image:
        if mode is None and image.mode == "P":
            mode = "RGB"
        if mode == "RGB" and image.mode == "RGBA":
            pixels = np.asarray(image)[..., :3]
        else:
            upright = ImageOps.exif_transpose(image)
            pixels = np.asarray(upright if mode is None else upright.convert(mode))
    return pixels if pixels.ndim == 3 else pixels[..., None]


def described(value: Any) -> Any:
    """A value in `expected.json`: itself if small, else its digest, shape and element type."""
    if isinstance(value, np.ndarray):
        little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        digest = hashlib.sha256(little.tobytes()).hexdigest()
        return {"dtype": value.dtype.name, "shape": list(value.shape), "sha256": digest}
    if isinstance(value, Polygons):
        return {
            "size": [value.height, value.width],
            "outlines": [
                {"runs": outline.counts.tolist()}
                if isinstance(outline, Runs)
                else [part.tolist() for part in outline]
                for outline in value
            ],
        }
    if isinstance(value, bytes):
        return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    return value


def main() -> None:
    """Parse the command line and write the store."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where to write it; must not exist")
    make_golden(parser.parse_args().folder)


if __name__ == "__main__":
    main()
