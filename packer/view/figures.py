"""Histograms of a store, from its manifest and from the columns of its index: no record is read.

Of a store of more shards than `SHARDS_MAX` some are read, spread over it, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.report import class_counts
from packer.view.cards import key_text
from packer.view.spread import spread
from packer.wording import size_text
from readers.store.reader import StoreReader
from readers.store.schema import Schema

SHARDS_MAX = 64
"""Shards whose index is read: each takes some round trips where a store is far away."""

NAMED_MAX = 40
"""Bars of names, such as classes."""

_SIDES = (32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096)
_SHAPES = (0.4, 0.52, 0.62, 0.71, 0.85, 0.99, 1.01, 1.18, 1.41, 1.62, 1.92, 2.5)
_SHAPE_NAMES = (
    *("taller", "1:2", "9:16", "2:3", "3:4", "5:6", "1:1"),
    *("6:5", "4:3", "3:2", "16:9", "2:1", "wider"),
)
_COUNTS = (1, 2, 3, 5, 9, 17, 33, 65)
_BYTES = tuple(2**power for power in range(10, 27, 2))


@dataclass
class Figure:
    """A histogram.

    Attributes:
        title: What is counted.
        names: Of its bars, in order.
        counts: Of its bars; several rows where two things are compared.
        rows: What the rows are called, where there are several.
        note: What else is to be known.
    """

    title: str
    names: list[str]
    counts: list[list[int]]
    rows: list[str] = field(default_factory=list)
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As the page reads it. Bars of nothing on either end are left out."""
        filled = [at for at in range(len(self.names)) if any(row[at] for row in self.counts)]
        first, end = (filled[0], filled[-1] + 1) if filled else (0, 0)
        return {
            "title": self.title,
            "names": self.names[first:end],
            "counts": [row[first:end] for row in self.counts],
            "rows": self.rows,
            "note": self.note,
        }


def store_figures(store: StoreReader) -> list[dict[str, Any]]:
    """The histograms of a whole store, those that it has anything for."""
    manifest, schema = store.manifest, store.manifest.schema
    found = [_classes(store), _splits(store), _sizes(store)]
    wanted = _from_columns(schema, set(store.column_dtypes))
    counts = {figure.title: np.zeros(len(figure.names), np.int64) for figure, _, _ in wanted}
    numbers = spread(len(manifest.shards), SHARDS_MAX).tolist()
    seen = 0
    for number in numbers:
        shard = store.shard(number)
        seen += len(shard.offsets)
        columns = {"length": shard.lengths, **shard.columns}
        for figure, edges, take in wanted:
            counts[figure.title] += _histogram(take(columns), edges)
    for figure, _, _ in wanted:
        figure.counts = [counts[figure.title].tolist()]
        if len(numbers) < len(manifest.shards):
            figure.note = (
                f"From {len(numbers)} of {len(manifest.shards):,} shards: {seen:,} of "
                f"{manifest.sample_count:,} samples."
            )
    return [f.as_dict() for f in (*filter(None, found), *(f for f, _, _ in wanted)) if any_of(f)]


def counted(title: str, values: Sequence[float], kind: str) -> Figure:
    """A histogram of given values. `kind` is "side", "shape" or "objects"."""
    edges, names = {
        "side": (_SIDES, [f"below {_SIDES[0]}", *range_names(_SIDES)]),
        "shape": (_SHAPES, list(_SHAPE_NAMES)),
        "objects": (_COUNTS, range_names((0, *_COUNTS))),
    }[kind]
    return Figure(title, names, [_histogram(np.asarray(values), edges).tolist()])


def any_of(figure: Figure) -> bool:
    """Whether it counts anything."""
    return any(any(row) for row in figure.counts)


def named_counts(title: str, counts: dict[str, int], note: str = "") -> Figure | None:
    """A histogram of names; None where nothing is counted."""
    if not any(counts.values()):
        return None
    most = sorted(counts.items(), key=lambda one: -one[1])[:NAMED_MAX]
    if len(counts) > NAMED_MAX:
        left = sum(counts.values()) - sum(count for _, count in most)
        note = f"The {NAMED_MAX} largest of {len(counts):,}; the others have {left:,} together."
    return Figure(title, [key_text(n) for n, _ in most], [[count for _, count in most]], note=note)


def range_names(edges: Sequence[int]) -> list[str]:
    """What the bars from each edge to the next are called: "32-63", ..., "4,096 and more"."""
    names = [
        f"{low:,}" if low == high - 1 else f"{low:,}-{high - 1:,}" for low, high in pairwise(edges)
    ]
    return [*names, f"{edges[-1]:,} and more"]


def _classes(store: StoreReader) -> Figure | None:
    schema, counts = store.manifest.schema, class_counts(store.manifest)
    if not _are_counts(list(counts.values())):
        return None
    what = "Objects of each class" if "labels" in schema else "Samples of each class"
    return named_counts(what, counts)


def _splits(store: StoreReader) -> Figure | None:
    return named_counts("Samples of each split", dict(store.manifest.splits))


def _sizes(store: StoreReader) -> Figure | None:
    """Long sides of raw and stored pictures, which the build has counted."""
    sizes = store.manifest.statistics.get("sizes")
    if not isinstance(sizes, dict) or not _are_counts(sizes.get("edges")) or not sizes["edges"]:
        return None
    edges = sizes["edges"]
    rows = [name for name in ("original", "stored") if _are_counts(sizes.get(name))]
    counts = [sizes[name] for name in rows]
    if not rows or any(len(row) != len(edges) for row in counts):
        return None
    if len(counts) == 2 and counts[0] == counts[1]:
        rows, counts = [], counts[:1]
    return Figure("Long side in pixels", range_names(edges), counts, rows)


def _are_counts(values: Any) -> bool:
    """Whether a list of counts is one: the manifest may be a stranger's."""
    return isinstance(values, list) and all(type(one) is int and one >= 0 for one in values)


_Columns = dict[str, NDArray[Any]]


def _from_columns(
    schema: Schema, names: set[str]
) -> list[tuple[Figure, tuple[float, ...], Callable[[_Columns], NDArray[Any]]]]:
    """(figure without counts, edges, values of a shard) of what the index tells."""
    found: list[tuple[Figure, tuple[float, ...], Callable[[_Columns], NDArray[Any]]]] = []
    image = next((one.name for one in schema.fields if one.kind == "image"), None)
    height, width = f"{image}.height", f"{image}.width"
    if height in names and width in names:
        figure = Figure("Width to height, stored", list(_SHAPE_NAMES), [])
        found.append((figure, _SHAPES, lambda c: c[width] / np.maximum(c[height], 1)))
    objects = next((n for n in ("boxes.0", "labels.0", "keypoints.0") if n in names), None)
    if objects is not None:
        figure = Figure("Objects in a picture", range_names((0, *_COUNTS)), [])
        found.append((figure, _COUNTS, lambda c: c[objects]))
    figure = Figure("Bytes of a record, from", _byte_names(), [])
    found.append((figure, _BYTES, lambda c: c["length"]))
    return found


def _byte_names() -> list[str]:
    names = [size_text(edge).replace(".0", "") for edge in _BYTES]
    return [f"below {names[0]}", *names]


def _histogram(values: NDArray[Any], edges: Sequence[float]) -> NDArray[np.int64]:
    """How many values are below the first edge, from each edge to the next, and from the last."""
    places = np.searchsorted(np.asarray(edges, np.float64), values, side="right")
    return np.bincount(places, minlength=len(edges) + 1).astype(np.int64)
