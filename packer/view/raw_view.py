"""Raw data as a build would read it: what the layout is taken for, and some samples, not stored."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packer.errors import SourceError
from packer.items.raw_item import Reject
from packer.pictures.sample_maker import SampleMaker
from packer.plan.shards import make_schema
from packer.raw.files import RawFileError
from packer.recipe import Recipe
from packer.sources import SourceOptions, scan_source
from packer.sources.detection.detect import examine
from packer.stores.keys import key_bytes
from packer.view.cards import failed_card, key_text, make_card
from packer.view.figures import any_of, counted, named_counts
from packer.view.shapes import joined
from packer.view.store_view import field_text, rejects_of
from packer.wording import names_text
from readers.store.errors import CodecError, ImageError, UnknownKeyError
from readers.store.rejects import RejectLine
from readers.store.schema import Schema

_NAMED_MAX = 400
"""Classes that are listed."""


class RawView:
    """Raw data, and which of its items are looked at.

    Args:
        raw: The raw data.
        source: How it is to be read.
        keys: Items of these keys. None takes any.

    Attributes:
        scan: What the source found.
        schema: The fields of its samples.
        indices: Positions of the items that are looked at, in rising order.

    Raises:
        SourceError: No source reads it.
        UnknownKeyError: No item has one of the keys.
    """

    def __init__(
        self,
        raw: Path,
        source: SourceOptions,
        *,
        keys: Sequence[str] | None = None,
    ) -> None:
        self.raw = raw
        self._source = source
        self._recipe = Recipe()
        self.scan = scan_source(raw, source)
        self.schema: Schema = make_schema(self.scan, self._recipe)
        self._root = os.fsencode(os.path.abspath(self.scan.root))
        self.indices: Sequence[int] = range(len(self.scan.items))
        if keys is not None:
            self.indices = self._of_keys(keys)

    def _of_keys(self, wanted: Sequence[str]) -> list[int]:
        places = {item.key: at for at, item in enumerate(self.scan.items)}
        unknown = [key for key in wanted if key_bytes(key) not in places]
        if unknown:
            raise UnknownKeyError(
                f"{self.raw}: no picture has the key {names_text(unknown)} ({len(unknown):,} of "
                f"{len(wanted):,}). A key is the path relative to the raw folder, with / between "
                "folders."
            )
        return sorted({places[key_bytes(key)] for key in wanted})

    def cards(self, indices: Sequence[int], bytes_max: int) -> Iterator[dict[str, Any]]:
        """The cards of items by position, made as a build makes samples, at the pictures' size."""
        with SampleMaker(self._root, self.schema, self._recipe, self.scan.mask_colors) as maker:
            for index in indices:
                item = self.scan.items[index]
                try:
                    made = maker.make(item)
                    card = make_card(index, made.values, self.schema, bytes_max)
                except (ImageError, CodecError, RawFileError) as error:
                    yield failed_card(index, key_text(item.key), str(error))
                    continue
                lost = [*made.objects.rejects, *((p, why) for p, _, why in made.objects.lost_parts)]
                if lost:
                    card["rejects"] = [[key_text(place), why] for place, why in lost]
                yield card

    def head(self, cards: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What the page says of the raw data as a whole.

        Args:
            cards: Those that are drawn, of which there are histograms.
        """
        scan = self.scan
        rejected = len(scan.rejects)
        facts = [
            ["pictures", f"{len(scan.items):,}"],
            ["read as", scan.format],
            ["rejected so far", f"{rejected:,}, and {len(scan.annotation_rejects):,} annotations"],
            ["ignored files", f"{scan.ignored.total:,}"],
        ]
        if scan.classes:
            facts.insert(1, ["classes", f"{len(scan.classes):,}"])
        ignored = [
            [reason, f"{count:,}: {', '.join(scan.ignored.examples.get(reason, ()))}"]
            for reason, count in scan.ignored.counts.items()
        ]
        return {
            "kind": "raw",
            "title": key_text(os.fsencode(self.raw.name or self.raw)),
            "facts": [[name, key_text(text)] for name, text in facts],
            "total": len(self.indices),
            "splits": [key_text(name) for name in scan.splits],
            "figures": self._figures(cards),
            "means": {},
            "notes": [key_text(note) for note in scan.notes],
            "tables": [
                ["Fields", [[f.name, field_text(f)] for f in self.schema.fields]],
                ["Decided", [[n, key_text(v)] for n, v in scan.choices.items()]],
                ["Asked of the source", [[n, key_text(str(v))] for n, v in scan.options.items()]],
                [
                    "Classes",
                    [[str(n), key_text(name)] for n, name in enumerate(scan.classes[:400])],
                ],
                ["Ignored files", [[key_text(n), key_text(text)] for n, text in ignored]],
            ],
            "evidence": self._evidence(),
            "code": [],
            **joined(self.schema, scan.classes),
        }

    def _evidence(self) -> str:
        """Why this layout and no other, as `packer detect` says it."""
        try:
            return key_text(examine(self.raw, self._source).summary())
        except SourceError as error:
            return key_text(str(error))

    def _figures(self, cards: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        whole = [card for card in cards if "error" not in card]
        note = f"Of the {len(whole):,} that are drawn."
        figures = [
            counted("Long side in pixels", [max(c["w"], c["h"]) for c in whole], "side"),
            counted("Width to height", [c["w"] / c["h"] for c in whole], "shape"),
        ]
        if any(field.name in ("boxes", "labels") for field in self.schema.fields):
            figures.append(counted("Objects in a picture", [c["n"] for c in whole], "objects"))
        names = self.scan.classes
        counts: dict[str, int] = {}
        for card in whole:
            mine = [card["label"]] if "label" in card else []
            for number in (*mine, *(o["c"] for o in card.get("objects", ()) if "c" in o)):
                if 0 <= number < len(names):
                    counts[names[number]] = counts.get(names[number], 0) + 1
        classes = named_counts("Classes", counts)
        for figure in figures:
            figure.note = note
        if classes is not None:
            classes.note = classes.note or note
            figures.insert(0, classes)
        return [figure.as_dict() for figure in figures if any_of(figure)]

    def rejects(self, limit: int) -> dict[str, Any]:
        """What the source has refused so far; pictures that cannot be decoded are not known yet."""
        kinds = ((self.scan.rejects, ""), (self.scan.annotation_rejects, "annotation"))
        found = rejects_of((_line(one, kind) for rejects, kind in kinds for one in rejects), limit)
        for line in found["lines"]:
            line.pop("name")
        return found


def _line(reject: Reject, kind: str) -> RejectLine:
    return RejectLine(
        key=key_text(reject.key),
        path=reject.path,
        reason=reject.reason,
        kind="part" if reject.part else kind,
        part=reject.part,
    )
