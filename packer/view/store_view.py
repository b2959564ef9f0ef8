"""Samples of a store as cards, and what is said of the store as a whole."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.advice import gray_text, python_lines, sizes_text
from packer.stores.keys import KEY_FIELD
from packer.stores.selection import chosen_indices
from packer.view.beside import RawPictures
from packer.view.cards import failed_card, key_text, make_card
from packer.view.colours import colour_of, hex_of, ink_on
from packer.view.figures import store_figures
from packer.view.shapes import joined
from packer.wording import count_text, size_text
from readers.store.errors import StoreError
from readers.store.manifest import Manifest
from readers.store.place import Place
from readers.store.reader import StoreReader, open_store
from readers.store.record import RecordReader
from readers.store.rejects import RejectLine, read_rejects
from readers.store.schema import Field, Schema

_BESIDE_SHARE = 0.45
"""Of a card's bytes, what the raw picture beside the stored one takes."""

_REASONS_MAX = 200


class StoreView:
    """A store, and which of its samples are looked at.

    Args:
        path: Folder of the store, or its URL.
        splits: Samples of these splits; see `chosen_indices`.
        classes: Samples of these classes.
        keys: Samples of these keys.
        against: The raw data that it was built from, whose pictures are shown beside the stored.
        root: Folder that the paths of a list are relative to; see `SourceOptions`.

    Attributes:
        indices: Positions of the samples that are looked at, in rising order.

    Raises:
        StoreError: There is no store, or no such split, class or key.
        SourceError: There is no such raw data, or the store was made from none.
    """

    def __init__(
        self,
        path: str | Place,
        *,
        splits: Sequence[str] = (),
        classes: Sequence[str] = (),
        keys: Sequence[str] | None = None,
        against: Path | None = None,
        root: Path | None = None,
    ) -> None:
        self.path = path
        self.store: StoreReader = open_store(path)
        self._is_whole = not splits and not classes and keys is None
        self.indices: Sequence[int] | NDArray[np.int64]
        if self._is_whole:
            self.indices = range(self.store.manifest.sample_count)
        else:
            self.indices = chosen_indices(self.store, splits, classes, keys)
        self._reader = RecordReader(self.store.layout)
        self._raw = None if against is None else RawPictures(self.store, against, root)

    @property
    def manifest(self) -> Manifest:
        """The store's."""
        return self.store.manifest

    def card(self, index: int, bytes_max: int) -> dict[str, Any]:
        """The card of the sample at a position of the store, in about so many bytes of JSON."""
        schema = self.manifest.schema
        key = ""
        try:
            shard, position = self.store.locate(index)
            shard.check_record(position)
            values = self._reader.unpack(shard.record(position))
            key = values.get(KEY_FIELD, "")
            share = 1.0 if self._raw is None else 1 - _BESIDE_SHARE
            card = make_card(index, values, schema, int(bytes_max * share))
        except StoreError as error:
            return failed_card(index, self._key(index), str(error))
        if self._raw is not None:
            card["raw"] = self._raw.beside(key, int(bytes_max * _BESIDE_SHARE))
        return card

    def _key(self, index: int) -> str:
        """The key of a sample whose record cannot be read as a whole, if it can be."""
        try:
            shard, position = self.store.locate(index)
            reader = RecordReader(self.store.layout, [KEY_FIELD])
            return key_text(reader.unpack(shard.record(position))[KEY_FIELD])
        except (StoreError, KeyError):
            return f"sample {index}"

    def fits(self, index: int, *, text: str = "", class_name: str = "", split: str = "") -> bool:
        """Whether a sample has this in its key, and is of this class and split; each may be empty.

        A sample that cannot be read fits anything: it is shown with the reason.
        """
        schema = self.manifest.schema
        wanted = [
            field.name
            for field in schema.fields
            if (text and field.name == KEY_FIELD)
            or (class_name and field.name in ("label", "labels"))
            or (split and field.name == "split")
        ]
        if not wanted:
            return True
        try:
            shard, position = self.store.locate(index)
            values = RecordReader(self.store.layout, wanted).unpack(shard.record(position))
        except StoreError:
            return True
        if text and text.lower() not in key_text(values.get(KEY_FIELD, "")).lower():
            return False
        for name, asked in (("split", split), ("label", class_name), ("labels", class_name)):
            if asked and name in values and asked not in _names_of(values[name], schema[name]):
                return False
        return True

    def head(self) -> dict[str, Any]:
        """What the page says of the store as a whole."""
        manifest = self.manifest
        source = manifest.source
        chosen = "" if self._is_whole else f"{len(self.indices):,} chosen of "
        facts = [
            ["samples", f"{chosen}{manifest.sample_count:,}"],
            [
                "size",
                f"{size_text(manifest.shard_bytes)} in {count_text(len(manifest.shards), 'shard')}",
            ],
            ["source", key_text(source.format)],
            ["rejected", f"{source.reject_count:,} of {source.found_count:,} found"],
        ]
        if manifest.classes:
            facts.insert(1, ["classes", f"{len(manifest.classes):,}"])
        if source.annotations:
            facts.append(["annotations", _annotations(source.annotations)])
        notes, python = [*source.notes], []
        if "image" in manifest.schema and manifest.sample_count:
            notes += filter(None, (sizes_text(manifest), gray_text(manifest)))
            python = python_lines(str(self.path), manifest)
        return {
            "kind": "store",
            "title": key_text(self.store.path.name),
            "facts": facts,
            "total": len(self.indices),
            "splits": [key_text(name) for name in manifest.splits],
            "figures": store_figures(self.store),
            "means": _means(manifest),
            "notes": [key_text(note) for note in notes],
            "tables": [
                ["Recipe", [[n, _setting(v)] for n, v in manifest.recipe.items() if v is not None]],
                ["Fields", [[f.name, field_text(f)] for f in manifest.schema.fields]],
                ["Decided", [[n, key_text(v)] for n, v in source.choices.items()]],
                ["Asked of the source", [[n, _setting(v)] for n, v in source.options.items()]],
                ["Ignored files", [[key_text(n), f"{v:,}"] for n, v in source.ignored.items()]],
                ["Made with", [[n, key_text(v)] for n, v in manifest.versions.items()]],
            ],
            "code": [key_text(line) for line in python],
            **joined(manifest.schema, manifest.classes),
        }

    def rejects(self, limit: int, bytes_each: int) -> dict[str, Any]:
        """The reject list: all of it by reason, and the first of its lines.

        Args:
            limit: How many lines.
            bytes_each: What a raw picture may take, where there is raw data.
        """
        found = rejects_of(read_rejects(self.store.path), limit)
        if self._raw is not None:
            for line in found["lines"]:
                if not line["kind"]:
                    line["raw"] = self._raw.beside(line.pop("name"), bytes_each)
        for line in found["lines"]:
            line.pop("name", None)
        return found


def rejects_of(lines: Iterable[RejectLine], limit: int) -> dict[str, Any]:
    """A reject list as the page shows it. Each line has its key as `name`, as it is written."""
    reasons: dict[tuple[str, str], int] = {}
    shown: list[dict[str, Any]] = []
    total = other = 0
    for line in lines:
        total += 1
        kind = (line.kind, key_text(line.reason))
        if kind in reasons or len(reasons) < _REASONS_MAX:
            reasons[kind] = reasons.get(kind, 0) + 1
        else:
            other += 1
        if len(shown) < limit:
            where, why = key_text(line.path), key_text(line.reason)
            kind_text = f"{line.kind} {line.part}".strip()
            shown.append({"name": line.key, "path": where, "reason": why, "kind": kind_text})
    most = sorted(reasons.items(), key=lambda one: -one[1])
    return {
        "total": total,
        "reasons": [[kind or "picture", why, count] for (kind, why), count in most],
        "other": other,
        "lines": shown,
    }


def class_table(
    cards: Iterable[dict[str, Any]], schema: Schema, names: Sequence[str]
) -> dict[int, list[str]]:
    """Name, colour and ink of each class that these cards have, by its number."""
    field = next((schema[name] for name in ("label", "labels") if name in schema), None)
    names = (field.names if field is not None else None) or names
    numbers: set[int] = set()
    for card in cards:
        if "label" in card:
            numbers.add(card["label"])
        numbers.update(one["c"] for one in card.get("objects", ()) if "c" in one)
    table = {}
    for number in sorted(numbers):
        colour = colour_of(number)
        name = key_text(names[number]) if 0 <= number < len(names) else str(number)
        table[number] = [name, hex_of(colour), ink_on(colour)]
    return table


def _names_of(value: Any, field: Field) -> set[str]:
    """What the numbers of a label, of labels or of a split are called on the page."""
    names = field.names or ()
    numbers = np.atleast_1d(np.asarray(value)).tolist()
    return {key_text(names[n]) if 0 <= n < len(names) else str(n) for n in numbers}


def _annotations(counts: dict[str, int]) -> str:
    text = f"{counts.get('stored', 0):,} of {counts.get('found', 0):,} found"
    lost = counts.get("rejected", 0)
    return f"{text}, {lost:,} rejected" if lost else text


def _means(manifest: Manifest) -> dict[str, Any]:
    """Mean and deviation of each channel; the manifest may be a stranger's."""
    mean, deviation = (manifest.statistics.get(f"channel_{name}") for name in ("mean", "std"))
    if not (isinstance(mean, list) and isinstance(deviation, list)):
        return {}
    numbers = [*mean, *deviation]
    is_sound = all(isinstance(one, float | int) and math.isfinite(one) for one in numbers)
    if not is_sound or not mean or len(mean) != len(deviation):
        return {}
    return {"mean": mean, "std": deviation}


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def field_text(field: Field) -> str:
    """Kind, type and shape of a field in a few words."""
    sides = ", ".join("any" if side is None else str(side) for side in field.shape)
    parts = [field.kind, field.dtype or "", f"({sides})" if sides else "", field.codec or ""]
    return " ".join(filter(None, parts))
