"""A page of a store, or of raw data: chosen, drawn, written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from packer.errors import BuildError
from packer.sources import SourceOptions
from packer.threads import map_threads
from packer.view.page import ViewReport, check_page_path, write_page
from packer.view.raw_view import RawView
from packer.view.spread import spread
from packer.view.store_view import StoreView, class_table
from readers.machine import core_count
from readers.store.layout import BUILDING_SUFFIX, MANIFEST_BYTES_MAX, MANIFEST_NAME
from readers.store.manifest import says_store
from readers.store.place import Place, Url

LIMIT = 200
"""Samples on a page, where nothing else is asked for."""

PAGE_BYTES = 4_300_000
"""What the samples of a page take together, about, so that 200 of them are below 5 MB."""

PAGE_NAME = "preview.html"

_CARD_BYTES_MAX = 400_000
_CARD_BYTES_MIN = 9_000
"""However many samples are asked for, each can be made out."""

_THREADS_MAX = 4

_REJECTS_BESIDE = 200
"""Lines of the reject list on a page of samples."""


def view_store(
    path: str | Place,
    out: str | Path,
    *,
    limit: int = LIMIT,
    splits: Iterable[str] = (),
    classes: Iterable[str] = (),
    keys: Iterable[str] | None = None,
    rejects: bool = False,
    against: str | Path | None = None,
    root: str | Path | None = None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> ViewReport:
    """Write a page of some samples of a store, with figures of all of them and the reject list.

    The page is one file that needs no network. Of more samples than `limit` some are drawn, spread
    over all, always the same.

    Args:
        path: The store: a folder, or a URL.
        out: The page. A page that is there is replaced.
        limit: How many samples.
        splits: Samples of these splits.
        classes: Samples of these classes, or with an object of one of them.
        keys: Samples of these keys. None takes any.
        rejects: Show what was not packed, up to `limit` of it, and no samples.
        against: The raw data that the store was built from: its pictures are shown beside the
            stored ones, and those of rejects where they can be read.
        root: Folder that the paths of a list of raw pictures are relative to.
        on_progress: Told how many more samples are done.

    Raises:
        ValueError: `limit` is below 1.
        BuildError: No sample is left, the raw data is not there, or something else is at `out`.
        StoreError: The store cannot be read, or has no such split, class or key.
        OSError: The page cannot be written.
    """
    out = Path(out)
    check_limit(limit)
    check_page_path(out)
    view = StoreView(
        path,
        splits=list(splits),
        classes=list(classes),
        keys=None if keys is None else list(keys),
        against=None if against is None else Path(against),
        root=None if root is None else Path(root),
    )
    chosen = [int(view.indices[at]) for at in spread(len(view.indices), limit).tolist()]
    if not chosen and not rejects:
        raise _nothing_left(view.store.path)
    cards: list[dict[str, Any]] = []
    if not rejects:
        draw = partial(view.card, bytes_max=card_bytes(len(chosen)))
        for card in map_threads(draw, chosen, _thread_count()):
            cards.append(card)
            on_progress(1)
    listed = view.rejects(limit if rejects else _REJECTS_BESIDE, card_bytes(limit))
    data = {
        **view.head(),
        "samples": cards,
        "rejects": {**listed, "alone": rejects},
        "classes": class_table(cards, view.manifest.schema, view.manifest.classes),
    }
    byte_count = write_page(out, data)
    if rejects:
        shown, total = len(listed["lines"]), listed["total"]
        return ViewReport(
            path=str(out), bytes=byte_count, shown_count=shown, total_count=total, what="rejects"
        )
    return _report(out, byte_count, cards, len(view.indices), "samples")


def view_raw(
    raw: str | Path,
    out: str | Path,
    *,
    source: SourceOptions | None = None,
    limit: int = LIMIT,
    keys: Iterable[str] | None = None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> ViewReport:
    """Write a page of raw data before it is built: what it is taken for, and some samples of it.

    Args:
        raw: The raw data.
        out: The page. A page that is there is replaced.
        source: How it is to be read, as for a build.
        limit: How many samples.
        keys: Samples of these keys. None takes any.
        on_progress: Told how many more samples are done.

    Raises:
        ValueError: `limit` is below 1.
        BuildError: No source reads it, nothing is left, or something else is at `out`.
        UnknownKeyError: It has no such key.
        OSError: The page cannot be written.
    """
    raw, out = Path(raw), Path(out)
    check_limit(limit)
    check_page_path(out)
    listed_keys = None if keys is None else list(keys)
    view = RawView(raw, source or SourceOptions(), keys=listed_keys)
    chosen = [int(view.indices[at]) for at in spread(len(view.indices), limit).tolist()]
    if not chosen:
        raise _nothing_left(raw)
    cards: list[dict[str, Any]] = []
    # Neighbours together: an archive that can only be read forward is opened once for all of them.
    bounds = [len(chosen) * at // _thread_count() for at in range(_thread_count() + 1)]
    parts = [chosen[first:end] for first, end in pairwise(bounds)]

    def draw_part(part: list[int]) -> list[dict[str, Any]]:
        return list(view.cards(part, card_bytes(len(chosen))))

    for drawn in map_threads(draw_part, parts, len(parts)):
        cards += drawn
        on_progress(len(drawn))
    data = {
        **view.head(cards),
        "samples": cards,
        "rejects": {**view.rejects(_REJECTS_BESIDE), "alone": False},
        "classes": class_table(cards, view.schema, view.scan.classes),
    }
    byte_count = write_page(out, data)
    # The first says which layout it was taken for, and why.
    return _report(out, byte_count, cards, len(view.indices), "pictures", view.scan.notes[:1])


def is_store(place: Place) -> bool:
    """Whether what is there is a store, whole or not, rather than raw data."""
    if isinstance(place, Url):
        return True
    try:
        with open(place / MANIFEST_NAME, "rb") as stream:
            if says_store(stream.read(MANIFEST_BYTES_MAX)):
                return True
    except OSError:
        pass
    is_begun = Path(f"{os.path.abspath(place)}{BUILDING_SUFFIX}").is_dir()
    is_named_so = place.suffix == ".lmdb" and not place.exists()
    return is_begun or is_named_so or any(place.glob("shard-*.lmdb"))


def card_bytes(count: int) -> int:
    """What the card of one of so many samples may take, in bytes of JSON."""
    return min(_CARD_BYTES_MAX, max(_CARD_BYTES_MIN, PAGE_BYTES // max(1, count)))


def _thread_count() -> int:
    """Samples at once: each may hold a whole picture in memory."""
    return min(core_count(), _THREADS_MAX)


def check_limit(limit: int) -> None:
    """See that something is asked for.

    Raises:
        ValueError: It is not.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1; got {limit!r}")


def _report(
    out: Path,
    byte_count: int,
    cards: Sequence[dict[str, Any]],
    total: int,
    what: str,
    notes: Iterable[str] = (),
) -> ViewReport:
    return ViewReport(
        path=str(out),
        bytes=byte_count,
        shown_count=len(cards),
        total_count=total,
        what=what,
        failed_count=sum("error" in card for card in cards),
        notes=tuple(notes),
    )


def _nothing_left(path: object) -> BuildError:
    return BuildError(f"{path}: nothing fits all that is asked for. Ask for less.")
