"""Raw items -> shards, before any pixel is decoded: a pure function of the data and the recipe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from packer.geometry import plan_fit
from packer.recipe import Recipe
from packer.sources.items import RawItem, Scan
from readers.store.decode import read_header
from readers.store.errors import ImageError
from readers.store.schema import Field, Schema

CHANNEL_COUNTS = {"rgb": 3, "gray": 1, "rgba": 4, "unchanged": None}

SHARD_COUNT_AIM = 64
"""A store that would have fewer shards is cut finer, so that many build workers have work."""

SHARD_BYTES_LEAST = 16 * 2**20
"""... but no finer than this: a shard costs an open, and up to one page of waste in each tree."""

_PROBE_COUNT = 200
_RECORD_OVERHEAD_BYTES = 200


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """What a build will do.

    Attributes:
        recipe: The settings.
        scan: What the source found.
        schema: The fields of a sample.
        cuts: (first, end) of each shard's items.
        byte_count: Estimated size of the store.
        source_sha256: Digest over key, size and values of every raw item, in hex.
        state_sha256: The same with the times of their last change: whether a build can go on.
    """

    recipe: Recipe
    scan: Scan
    schema: Schema
    cuts: tuple[tuple[int, int], ...]
    byte_count: int
    source_sha256: str
    state_sha256: str

    def facts(self) -> dict[str, Any]:
        """What must be the same for an unfinished build to be finished by this one, by name."""
        return {
            "recipe": self.recipe.as_dict(),
            "format": self.scan.format,
            "raw data": self.state_sha256,
            "schema": self.schema.as_builtins(),
            "library versions": library_versions(),
            "shards": [list(cut) for cut in self.cuts],
        }


def library_versions() -> dict[str, str]:
    """Versions of the libraries whose pixels and bytes end up in a store, by name."""
    return {name: version(name) for name in ("lmdb", "numpy", "opencv-python-headless", "pillow")}


def make_schema(scan: Scan, recipe: Recipe) -> Schema:
    """The fields of a sample of a build."""
    channel_count = CHANNEL_COUNTS[recipe.mode]
    is_square = recipe.size is not None and recipe.fit in ("letterbox", "stretch", "crop")
    side = recipe.size if is_square else None
    image = Field(
        name="image",
        kind="image",
        dtype=None if recipe.mode == "unchanged" else "uint8",
        shape=(side, side, channel_count),
        codec=recipe.image,
        mode=recipe.mode if recipe.image == "original" else None,
    )
    return Schema(
        (
            Field(name="key", kind="text"),
            image,
            *(_stored_field(field, side) for field in scan.fields),
            Field(name="original_size", kind="array", dtype="int32", shape=(2,)),
            Field(name="transform", kind="array", dtype="float32", shape=(2, 3)),
        )
    )


def _stored_field(field: Field, side: int | None) -> Field:
    """A source's field as it is stored: a mask has the size of the images."""
    if field.kind != "mask":
        return field
    return msgspec.structs.replace(field, shape=(side, side))


def make_plan(scan: Scan, recipe: Recipe) -> BuildPlan:
    """Cut the items of a scan into shards."""
    sizes = estimate_record_bytes(scan, recipe)
    total = int(sizes.sum())
    limit = max(SHARD_BYTES_LEAST, total // SHARD_COUNT_AIM)
    state, source = _digests(scan.items)
    return BuildPlan(
        recipe=recipe,
        scan=scan,
        schema=make_schema(scan, recipe),
        cuts=_cuts(sizes, min(limit, recipe.shard_bytes_max)),
        byte_count=total,
        source_sha256=source,
        state_sha256=state,
    )


def _cuts(sizes: NDArray[np.int64], bytes_max: int) -> tuple[tuple[int, int], ...]:
    """(first, end) of runs of items whose sizes add up to at most `bytes_max`, or of one item."""
    ends = np.cumsum(sizes)
    cuts: list[tuple[int, int]] = []
    first = 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + bytes_max, side="right")))
        cuts.append((first, end))
        first = end
    return tuple(cuts)


def _digests(items: Sequence[RawItem]) -> tuple[str, str]:
    """(with times, without) digest over all items, in hex."""
    state, source = hashlib.sha256(), hashlib.sha256()
    encoder = msgspec.msgpack.Encoder()
    for item in items:
        masks = {name: file.byte_count for name, file in item.masks.items()}
        facts = encoder.encode((item.key, item.byte_count, item.values, item.annotations, masks))
        source.update(facts)
        state.update(facts)
        times = {name: (file.path, file.mtime_ns) for name, file in item.masks.items()}
        state.update(encoder.encode((item.path, item.mtime_ns, item.member, times)))
    return state.hexdigest(), source.hexdigest()


def estimate_record_bytes(scan: Scan, recipe: Recipe) -> NDArray[np.int64]:
    """Bytes that each item's record will take, about, as int64.

    Exact but for a few bytes where every record is as long as the others or keeps its file's bytes.
    Otherwise from the headers of up to 200 items, evenly spaced.
    """
    items = scan.items
    count = len(items)
    file_bytes = np.fromiter((item.byte_count for item in items), np.int64, count)
    other_bytes = _RECORD_OVERHEAD_BYTES + np.fromiter(
        (len(item.annotations) for item in items), np.int64, count
    )
    mask_bytes = sum(
        np.dtype(field.dtype).itemsize for field in scan.fields if field.kind == "mask"
    )
    pixel_bytes = mask_bytes
    if recipe.image == "original":
        if not mask_bytes:
            return file_bytes + other_bytes
        other_bytes += file_bytes
    else:
        pixel_bytes += CHANNEL_COUNTS[recipe.mode] or 3
    return _pixel_counts(scan, recipe, file_bytes) * pixel_bytes + other_bytes


def _pixel_counts(scan: Scan, recipe: Recipe, file_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pixels of each item's image as it will be stored, about."""
    items = scan.items
    if recipe.size is not None and recipe.fit in ("letterbox", "stretch", "crop"):
        return np.full(len(items), recipe.size**2, np.int64)
    probes = [
        items[i]
        for i in np.linspace(0, max(0, len(items) - 1), min(len(items), _PROBE_COUNT), dtype=int)
        if items[i].member is None
    ]
    found = [
        (item.byte_count, pixels)
        for item in probes
        if (pixels := _stored_pixels(item, scan.root, recipe)) is not None
    ]
    if recipe.size is not None:
        # A side is given, so the size does not depend on the file's.
        mean = np.mean([pixels for _, pixels in found]) if found else float(recipe.size**2)
        return np.full(len(items), int(mean), np.int64)
    # Pixels for each byte of a file; 8 is that of a JPEG of middling quality.
    rate = sum(p for _, p in found) / max(1, sum(b for b, _ in found)) if found else 8.0
    return (file_bytes * rate).astype(np.int64)


def _stored_pixels(item: RawItem, root: Path, recipe: Recipe) -> int | None:
    """Pixels of the image as it will be stored; None when the file cannot be read."""
    try:
        data = (root / Path(_text(item.path))).read_bytes()
        header = read_header(data, pixels_max=recipe.pixels_max)
    except (OSError, ImageError):
        return None
    if recipe.size is None:
        return header.width * header.height
    width, height = plan_fit(header.width, header.height, recipe.size, recipe.fit).final
    return width * height


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def facts_that_differ(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """What is not the same in two builds' facts, in words."""
    differences = []
    for name, value in ours.items():
        other = theirs.get(name)
        if json.loads(json.dumps(value)) == other:
            continue
        if name in ("recipe", "library versions") and isinstance(other, dict):
            differences += [
                f"{key} was {other.get(key)!r} and is {value.get(key)!r}"
                for key in sorted({*value, *other})
                if value.get(key) != other.get(key)
            ]
        elif name == "format":
            differences.append(f"format was {other} and is {value}")
        else:
            differences.append(f"the {name} changed")
    return differences
