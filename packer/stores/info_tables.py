"""Fields and statistics of a store as tables and small histograms, for `packer info`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from packer.report import class_counts
from packer.wording import cut_text
from readers.store.manifest import Manifest
from readers.store.schema import OBJECT_NAMES, Field, Kind
from readers.store.wording import few, few_text

_NAMES_SHOWN_MAX = 5
_ROWS_SHOWN_MAX = 20
_BAR_CELLS = 30
_NAME_CELLS_MAX = 24

_MEANINGS: dict[Kind, str] = {
    "image": "pixels, RGB order",
    "mask": "an id for each pixel",
    "label": "class, by its number",
    "boxes": "x0 y0 x1 y1 in pixels of the image",
    "keypoints": "x y, and visibility as a third number",
    "polygons": "outlines, points in pixels of the image",
    "scalar": "a number",
    "array": "numbers",
    "text": "text",
    "json": "whatever JSON can say",
    "bytes": "bytes",
}

_SPECIAL = {
    "key": "path in the raw data",
    "split": "split, by its number",
    "original_size": "height and width in the raw file",
    "transform": "affine from the raw file's pixels to the image's",
    "area": "square pixels",
    "caption": "text about the image",
    "captions": "texts about the image, a list",
}
"""What fields of these names are, where their kind says less."""


def field_lines(fields: Sequence[Field]) -> list[str]:
    """A row for each field: its name, kind, shape and element type, and what it means."""
    rows = [("field", "kind", "shape", "elements", "stored as", "is")]
    rows += [
        (
            field.name,
            field.kind,
            _shape_text(field),
            field.dtype or ("uint8 or uint16" if field.kind == "image" else "-"),
            field.codec or "-",
            _meaning(field),
        )
        for field in fields
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _shape_text(field: Field) -> str:
    if not field.shape:
        return "-"
    return "(" + ", ".join("any" if side is None else str(side) for side in field.shape) + ")"


def _meaning(field: Field) -> str:
    text = _SPECIAL.get(field.name, _MEANINGS[field.kind])
    if field.name in OBJECT_NAMES and field.kind != "boxes":
        text += "; one for each box"
    if field.names:
        text += f": {few_text(field.names, _NAMES_SHOWN_MAX)}"
    if field.ignore is not None:
        text += f"; {field.ignore} counts for nothing"
    return text


def statistics_lines(manifest: Manifest) -> list[str]:
    """Mean and deviation, then histograms: splits, classes, sizes of raw and stored images."""
    statistics = manifest.statistics
    lines: list[str] = []
    for name, text in (("channel_mean", "mean"), ("channel_std", "deviation")):
        if name in statistics:
            values = " ".join(f"{value:.4f}" for value in statistics[name])
            lines.append(f"{text} of each channel, white being 1: {values}")
    sections = [("samples of each split", list(manifest.splits.items()), False)]
    counts = class_counts(manifest)
    if any(counts.values()):
        what = "objects" if "boxes" in manifest.schema.names else "samples"
        sections.append((f"{what} of each class", list(counts.items()), True))
    sizes = statistics.get("sizes", {})
    for name, text in (("original", "raw"), ("stored", "stored")):
        rows = _size_rows(sizes.get("edges", ()), sizes.get(name, ()))
        sections.append((f"long side of the {text} images, in pixels", rows, False))
    for title, rows, is_sorted in sections:
        if rows:
            lines += ["", f"{title}:", *bar_lines(rows, is_sorted=is_sorted)]
    if not lines:
        lines = ["the manifest has no statistics: an older release made this store"]
    return lines[1:] if not lines[0] else lines


def _size_rows(edges: Sequence[int], counts: Sequence[int]) -> list[tuple[str, int]]:
    """Ranges of sizes and how many images are in each, without the empty ends."""
    filled = [n for n, count in enumerate(counts) if count]
    if not filled:
        return []
    rows = []
    for n in range(filled[0], filled[-1] + 1):
        to = f"to {edges[n + 1] - 1:,}" if n + 1 < len(edges) else "on"
        rows.append((f"{edges[n]:,} {to}", counts[n]))
    return rows


def bar_lines(rows: Iterable[tuple[str, int]], *, is_sorted: bool = False) -> list[str]:
    """A bar for each count, as long as its share of the largest one.

    Args:
        rows: (name, count) of each.
        is_sorted: Whether the largest come first; of equal counts, in their order.
    """
    every = list(rows)
    if is_sorted:
        every.sort(key=lambda row: -row[1])
    most = max((count for _, count in every), default=0)
    total = sum(count for _, count in every)
    shown = every[:_ROWS_SHOWN_MAX]
    names = min(_NAME_CELLS_MAX, max((len(name) for name, _ in shown), default=0))
    width = max((len(f"{count:,}") for _, count in shown), default=0)

    def line(row: tuple[str, int]) -> str:
        name, count = row
        share = f"{100 * count / max(1, total):.1f}%"
        return (
            f"  {cut_text(name, names):<{names}}  {count:>{width},}  {share:>6}  "
            f"{_bar(count, most)}"
        ).rstrip()

    lines = few(every, _ROWS_SHOWN_MAX, line)
    if len(every) > _ROWS_SHOWN_MAX:
        rest = sum(count for _, count in every[_ROWS_SHOWN_MAX:])
        lines[-1] = f"  {lines[-1]}, which have {rest:,} together"
    return lines


def _bar(count: int, most: int) -> str:
    cells = round(_BAR_CELLS * count / max(1, most))
    return "#" * max(cells, bool(count))  # What is there is seen.
