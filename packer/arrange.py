"""Which of the items that a source found are stored, in which split and in which order.

All of it follows from the items' keys: the same images are chosen, and go to the same split, on
every machine and however many others there are. Nothing is left out in silence: what is, is
ignored for a reason that the report counts.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from typing import Any

import msgspec

from packer.errors import SourceError
from packer.forms import drawn
from packer.recipe import Recipe
from packer.sources.items import Ignored, RawItem, Scan
from packer.sources.splits import split_field
from packer.sources.walk import readable_path
from packer.wording import names_text

NOT_INCLUDED = "matches no --include"
EXCLUDED = "matches --exclude"
OVER_LIMIT = "beyond --limit"


def arranged(scan: Scan, recipe: Recipe) -> Scan:
    """The items of a scan as a recipe wants them: chosen, split, ordered.

    Args:
        scan: What the source found.
        recipe: Of the build.

    Raises:
        SourceError: Nothing is left; the raw data has splits of its own already, or no label to
            stratify by.
    """
    if recipe.include or recipe.exclude:
        scan = _chosen(scan, _matcher(recipe))
    if recipe.stratify and not any(f.name == "label" and f.is_scalar for f in scan.fields):
        raise SourceError(
            "stratify was asked for, but the images have no label each. Leave it out: drawing by "
            "keys keeps every kind of image near its share."
        )
    if recipe.limit is not None and recipe.limit < len(scan.items):
        kept = _limited(scan.items, recipe.limit, stratify=recipe.stratify)
        scan = _chosen(scan, lambda key: None if key in kept else OVER_LIMIT)
    if recipe.splits:
        scan = _split(scan, recipe.splits, stratify=recipe.stratify)
    if recipe.shuffle is not None:
        purpose = b"shuffle %d" % recipe.shuffle
        # The key itself settles what two equal draws would leave open.
        items = sorted(scan.items, key=lambda item: (drawn(purpose, item.key), item.key))
        scan = dataclasses.replace(scan, items=items)
    return scan


def _matcher(recipe: Recipe) -> Callable[[bytes], str | None]:
    """Tells of a key why its item is left out, or None."""
    include, exclude = _pattern(recipe.include), _pattern(recipe.exclude)

    def reason(key: bytes) -> str | None:
        text = key.decode("utf-8", "surrogateescape")
        if include is not None and not include.fullmatch(text):
            return NOT_INCLUDED
        return EXCLUDED if exclude is not None and exclude.fullmatch(text) else None

    return reason


def _pattern(globs: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(translate, globs))) if globs else None


def _chosen(scan: Scan, reason: Callable[[bytes], str | None]) -> Scan:
    """The items for which there is no reason to leave them out; rejects of others go with them."""
    ignored = Ignored(
        dict(scan.ignored.counts), {k: list(v) for k, v in scan.ignored.examples.items()}
    )
    items = []
    for item in scan.items:
        why = reason(item.key)
        if why is None:
            items.append(item)
        else:
            ignored.add(why, readable_path(item.path))
    rejects = []
    for reject in scan.rejects:
        why = reason(reject.key) if reject.key else None
        if why is None or why == OVER_LIMIT:
            rejects.append(reject)
        else:
            ignored.add(why, reject.path)
    if not items:
        raise SourceError(
            f"{scan.root}: none of {len(scan.items):,} images is left. Patterns of --include and "
            "--exclude are held against the whole path below the raw folder, such as 'train/*'."
        )
    kept = {item.key for item in items}
    annotations = [r for r in scan.annotation_rejects if not r.key or r.key in kept]
    return dataclasses.replace(
        scan, items=items, rejects=rejects, annotation_rejects=annotations, ignored=ignored
    )


def _limited(items: Iterable[RawItem], limit: int, *, stratify: bool) -> set[bytes]:
    """Keys of the `limit` items that are drawn first, of each class its share if stratified."""
    groups = _by_class(items) if stratify else {0: [item.key for item in items]}
    ranked = []
    for keys in groups.values():
        keys.sort(key=lambda key: (drawn(b"limit", key), key))
        # Place in the class, in the middle of its step: classes take turns by their shares.
        count = len(keys)
        ranked += [((at + 0.5) / count, drawn(b"limit", key), key) for at, key in enumerate(keys)]
    ranked.sort()
    return {key for _, _, key in ranked[:limit]}


def _by_class(items: Iterable[RawItem]) -> dict[Any, list[bytes]]:
    groups: dict[Any, list[bytes]] = defaultdict(list)
    for item in items:
        groups[item.values["label"]].append(item.key)
    return groups


def _split(scan: Scan, splits: Sequence[tuple[str, float]], *, stratify: bool) -> Scan:
    """The items with a split each, drawn by their keys."""
    found = {item.values.get("split") for item in scan.items} - {None}
    if len(found) > 1:
        raise SourceError(
            f"splits were asked for, but the raw data has its own: {names_text(scan.splits)}. "
            f"Leave "
            "--splits out, or take one of them with --split and split that."
        )
    places = {item.key: drawn(b"split", item.key) for item in scan.items}
    if stratify:
        # Exact in each class, at the price that a few images move when others are added.
        for keys in _by_class(scan.items).values():
            keys.sort(key=lambda key: (places[key], key))
            places.update({key: (at + 0.5) / len(keys) for at, key in enumerate(keys)})
    ends, end = [], 0.0
    for _, share in splits:
        end += share
        ends.append(end)
    names = tuple(name for name, _ in splits)
    # Items share their dicts, and a million new ones would take more memory than all the rest.
    made: dict[tuple[int, int], dict[str, Any]] = {}
    items = []
    for item in scan.items:
        number = next((n for n, end in enumerate(ends) if places[item.key] < end), len(ends) - 1)
        values = made.setdefault((id(item.values), number), {**item.values, "split": number})
        items.append(msgspec.structs.replace(item, values=values))
    field = split_field(names)
    fields = [field if one.name == "split" else one for one in scan.fields]
    if all(one.name != "split" for one in scan.fields):
        fields.append(field)
    return dataclasses.replace(scan, items=items, splits=names, fields=tuple(fields))
