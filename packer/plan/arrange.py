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
from dataclasses import dataclass
from fnmatch import translate
from typing import Any

import msgspec

from packer.errors import SourceError
from packer.items.raw_item import Ignored, RawItem, Reject, Scan
from packer.pictures.forms import drawn
from packer.recipe import Recipe
from packer.sources.pairing import stem_of
from packer.sources.splits import split_field
from packer.sources.walk import is_picture_name
from packer.wording import names_text, readable_path

NOT_INCLUDED = "matches no --include"
EXCLUDED = "matches --exclude"
OVER_LIMIT = "beyond --limit"

_NAMES = "utf-8", "surrogateescape"


def arranged(scan: Scan, recipe: Recipe) -> Scan:
    """The items of a scan as a recipe wants them: chosen, split, ordered.

    Args:
        scan: What the source found.
        recipe: The build's recipe.

    Raises:
        SourceError: Nothing is left; the raw data has splits of its own already, no label to
            stratify by, or no boxes to clip.
    """
    if recipe.include or recipe.exclude:
        patterns = _Patterns(include=_pattern(recipe.include), exclude=_pattern(recipe.exclude))
        scan = _chosen(scan, patterns.of_item, patterns.of_reject)
    if recipe.stratify and not any(f.name == "label" and f.is_scalar for f in scan.fields):
        raise SourceError(
            "stratify was asked for, but the images have no label each. Leave it out: drawing by "
            "keys keeps every kind of image near its share."
        )
    if recipe.clip_boxes and scan.items and not any(f.name == "boxes" for f in scan.fields):
        found = ", ".join(field.name for field in scan.fields) or "pictures alone"
        raise SourceError(
            f"clip_boxes was asked for, but the data, read as {scan.format}, has no boxes: it "
            f"gives {found}. Leave it out, or check the path and --format."
        )
    if recipe.limit is not None and recipe.limit < len(scan.items):
        kept = _limited(scan.items, recipe.limit, stratify=recipe.stratify)
        scan = _chosen(scan, lambda key: None if key in kept else OVER_LIMIT, lambda reject: None)
    if recipe.splits:
        scan = _split(scan, recipe.splits, stratify=recipe.stratify)
    if recipe.shuffle is not None:
        purpose = b"shuffle %d" % recipe.shuffle
        # The key itself settles what two equal draws would leave open.
        items = sorted(scan.items, key=lambda item: (drawn(purpose, item.key), item.key))
        scan = dataclasses.replace(scan, items=items)
    return scan


@dataclass(frozen=True, kw_only=True)
class _Patterns:
    """What a recipe says of keys.

    Attributes:
        include: None takes all.
        exclude: None leaves out none.
    """

    include: re.Pattern[str] | None
    exclude: re.Pattern[str] | None

    def of_item(self, key: bytes) -> str | None:
        """Why an item is left out, or None."""
        return self._reason([key.decode("utf-8", "surrogateescape")])

    def of_reject(self, reject: Reject) -> str | None:
        """Why a reject is left out, or None.

        What could not be found or read may have less of a key than its items would have had: a
        folder or an archive stands for all in it, and a name in a list for one in the folder of
        its split.
        """
        # `val/Annotations/2.xml` has no key and is a path; `list.csv, line 3` says nothing of one.
        text = reject.key.decode("utf-8", "surrogateescape")
        if not text and ", " not in reject.path:
            text = reject.path
        names = [text, f"{text}/"] if text else []
        name = text.encode(*_NAMES)
        if name and not is_picture_name(name):
            names.append(f"{stem_of(name).decode(*_NAMES)}/")
        if reject.split and reject.split not in text.split("/"):
            names.append(f"{reject.split}/{text}")
        return self._reason(names, is_known=bool(text))

    def _reason(self, names: Sequence[str], *, is_known: bool = True) -> str | None:
        if is_known and self.include is not None and not any(map(self.include.fullmatch, names)):
            return NOT_INCLUDED
        is_excluded = self.exclude is not None and any(map(self.exclude.fullmatch, names))
        return EXCLUDED if is_excluded else None


def _pattern(globs: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(translate, globs))) if globs else None


def _chosen(
    scan: Scan,
    reason: Callable[[bytes], str | None],
    reject_reason: Callable[[Reject], str | None],
) -> Scan:
    """The items and rejects for which there is no reason to leave them out.

    Rejected annotations go with their item.
    """
    ignored = Ignored(
        dict(scan.ignored.counts), {k: list(v) for k, v in scan.ignored.examples.items()}
    )
    items = []
    left_out: set[bytes] = set()
    for item in scan.items:
        why = reason(item.key)
        if why is None:
            items.append(item)
        else:
            left_out.add(item.key)
            ignored.add(why, readable_path(item.path))
    rejects = []
    for reject in scan.rejects:
        why = reject_reason(reject)
        if why is None:
            rejects.append(reject)
        else:
            ignored.add(why, reject.path)
    if scan.items and not items:
        raise SourceError(
            f"{scan.root}: none of {len(scan.items):,} images is left. Patterns of --include and "
            "--exclude are held against the whole path below the raw folder, such as 'train/*'."
        )
    annotations = [
        reject
        for reject in scan.annotation_rejects
        if reject.key not in left_out and reject_reason(reject) is None
    ]
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
