"""One split of what a source found, for `--split`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from packer.errors import SourceError
from packer.items.item_columns import ChosenItems, ItemsWithSplits
from packer.items.raw_item import Ignored, Reject, Scan
from packer.sources.splits import ordered_splits, split_field
from packer.wording import names_text, readable_path
from readers.store.splits import canonical_split
from readers.store.wording import did_you_mean

OTHER_SPLIT = "of another split than --split asks for"


def is_other_split(split: str | None, wanted: str | None) -> bool:
    """Whether what is of a split has no part in what `--split` asks for.

    What is damaged there is no reason to stop.

    Args:
        split: As the raw data calls it; None or empty where it has none.
        wanted: Value of `--split`; None takes all.
    """
    if not split or wanted is None or split == wanted:
        return False
    meaning = canonical_split(split)
    return meaning is None or meaning != canonical_split(wanted)


def only_split(scan: Scan, wanted: str) -> Scan:
    """The items of one split and what was rejected of it; all else is ignored, by reason.

    A reject is of the split that its source says, or that of its item, or that its folders are
    named after. One of which nothing tells the split stays a reject.

    Args:
        scan: Of all splits.
        wanted: A split's name in the raw data; or train, val or test, for all that mean it.

    Raises:
        SourceError: There is no such split.
    """
    everything = (*scan.rejects, *scan.annotation_rejects)
    # A split of which nothing could be packed is known by its rejects alone.
    told = {reject.split for reject in everything if reject.split} - set(scan.splits)
    if scan.items and not scan.splits:
        told = set()  # The source knows of some, and not of all: then there are none.
    chosen = _meant(wanted, scan.splits) or _meant(wanted, ordered_splits(told))
    if not chosen:
        known = ordered_splits((*scan.splits, *told))
        hint = did_you_mean(wanted, known)
        found = names_text(known) or "no splits"
        raise SourceError(f"split {wanted!r} was asked for, but the raw data has {found}.{hint}")
    ignored = Ignored(
        dict(scan.ignored.counts), {k: list(v) for k, v in scan.ignored.examples.items()}
    )
    items = _items_of(scan, chosen, ignored)
    asked = {reject.key for reject in everything if not reject.split}
    split_of_key = {
        item.key: scan.splits[item.values["split"]]
        for item in (scan.items if asked else ())
        if item.key in asked and "split" in item.values
    }
    names = {*scan.splits, *told}

    def is_other(reject: Reject) -> bool:
        split = reject.split or split_of_key.get(reject.key)
        splits = [split] if split else _splits_in_path(reject, names)
        return bool(splits) and not any(_is_among(split, chosen, wanted) for split in splits)

    rejects = []
    for reject in scan.rejects:
        if is_other(reject):
            ignored.add(OTHER_SPLIT, reject.path)
        else:
            rejects.append(reject)
    fields = tuple(split_field(chosen) if field.name == "split" else field for field in scan.fields)
    return replace(
        scan,
        items=items,
        splits=chosen,
        fields=fields,
        rejects=rejects,
        # Those of an item that is left out are no more counted than the objects that were kept.
        annotation_rejects=[each for each in scan.annotation_rejects if not is_other(each)],
        ignored=ignored,
    )


def _meant(wanted: str, splits: Sequence[str]) -> tuple[str, ...]:
    """The split of a name, or else all of its meaning."""
    if wanted in splits:
        return (wanted,)
    meaning = canonical_split(wanted)
    return tuple(split for split in splits if canonical_split(split) == meaning is not None)


def _is_among(split: str, chosen: Sequence[str], wanted: str) -> bool:
    """Whether a split is one of the chosen, or means the same where they were chosen by that."""
    return split in chosen or (wanted not in chosen and not is_other_split(split, wanted))


def _items_of(scan: Scan, chosen: Sequence[str], ignored: Ignored) -> ChosenItems:
    """The items of the chosen splits, numbered by them."""
    numbers = {scan.splits.index(name): n for n, name in enumerate(chosen) if name in scan.splits}
    items = ItemsWithSplits(scan.items)
    for at, item in enumerate(scan.items):
        number = numbers.get(item.values.get("split", -1))
        if number is None:
            ignored.add(OTHER_SPLIT, readable_path(item.path))
            continue
        items.add(at, item.values, number)
    return items.chosen()


def _splits_in_path(reject: Reject, names: Iterable[str]) -> list[str]:
    """Splits that the folders of a reject, or its own name, are called after."""
    key = readable_path(reject.key) if reject.key else reject.path.split(", ", 1)[0]
    parts = key.split("/")
    known = set(names)
    return [part for part in parts if part in known or canonical_split(part) is not None]
