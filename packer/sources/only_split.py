"""One split of what a source found, for `--split`."""

from __future__ import annotations

import difflib
from dataclasses import replace

import msgspec

from packer.errors import SourceError
from packer.sources.items import Ignored, RawItem, Scan
from packer.sources.splits import split_field
from packer.sources.walk import readable_path
from packer.wording import names_text
from readers.store.splits import canonical_split

OTHER_SPLIT = "of another split than --split asks for"


def only_split(scan: Scan, wanted: str) -> Scan:
    """The items of one split; the others are ignored, by reason.

    Args:
        scan: Of all splits.
        wanted: A split's name in the raw data; or train, val or test, for all that mean it.

    Raises:
        SourceError: There is no such split.
    """
    chosen = [name for name in scan.splits if name == wanted] or [
        name for name in scan.splits if canonical_split(name) == canonical_split(wanted) is not None
    ]
    if not chosen:
        close = difflib.get_close_matches(wanted, scan.splits, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        found = names_text(scan.splits) or "no splits"
        raise SourceError(f"split {wanted!r} was asked for, but the raw data has {found}.{hint}")
    numbers = {scan.splits.index(name): chosen.index(name) for name in chosen}
    items: list[RawItem] = []
    ignored = Ignored(
        dict(scan.ignored.counts), {k: list(v) for k, v in scan.ignored.examples.items()}
    )
    # Items share their dicts, and a million new ones would take more memory than all the rest.
    made: dict[int, dict[str, object]] = {}
    for item in scan.items:
        number = numbers.get(item.values.get("split", -1))
        if number is None:
            ignored.add(OTHER_SPLIT, readable_path(item.path))
            continue
        values = made.setdefault(id(item.values), {**item.values, "split": number})
        items.append(msgspec.structs.replace(item, values=values))
    fields = tuple(
        split_field(tuple(chosen)) if field.name == "split" else field for field in scan.fields
    )
    return replace(scan, items=items, splits=tuple(chosen), fields=fields, ignored=ignored)
