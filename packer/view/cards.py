"""One sample -> its card: all that the page shows of it, as texts, numbers and small pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from packer.view.colours import hex_of, ink_on
from packer.view.pictures import mask_colour, mask_uri, picture_uri
from packer.view.shapes import drawn_objects, object_count
from packer.wording import cut_text, readable_path
from readers.store.errors import ImageError
from readers.store.schema import Field, Schema
from readers.store.shapes.polygons import Polygons

_MASK_SIDE = 480
_TEXT_MAX = 1_200
_NAME_MAX = 4_000
_ELEMENTS_MAX = 48
_LEGEND_MAX = 40

_SHAPES_SHARE = 0.35
"""Of a card's bytes, what its outlines may take; the picture has what they leave."""

_BASE64 = 4 / 3

_PICTURE_BYTES_MIN = 3_000


def make_card(
    index: int, values: Mapping[str, Any], schema: Schema, bytes_max: int
) -> dict[str, Any]:
    """The card of a sample.

    Args:
        index: Its position in the store, or among the raw items.
        values: Its fields by name, as they are read.
        schema: Its fields.
        bytes_max: What the card may take as JSON, about.
    """
    card: dict[str, Any] = {
        "i": index,
        "key": key_text(values.get("key", index)),
        "fields": [
            [field.name, _kind_text(field), value_text(values[field.name], field)]
            for field in schema.fields
            if field.name in values and field.name != "key"
        ],
    }
    for name in ("label", "split"):
        if name in schema and schema[name].is_scalar and name in values:
            card[name] = int(values[name])
    height, width = _size_of(values, schema)
    card["w"], card["h"] = width, height
    left = bytes_max - len(json.dumps(card))
    card["n"] = object_count(values, schema)
    objects, lost = drawn_objects(values, schema, (height, width), int(left * _SHAPES_SHARE))
    if objects:
        card["objects"] = objects
    if lost:
        card["lost"] = lost
    masks = [
        _mask(field, values[field.name])
        for field in schema.fields
        if field.kind == "mask" and field.name in values
    ]
    if masks:
        card["masks"] = masks
    left -= len(json.dumps([objects, masks]))
    pictures = [field for field in schema.fields if field.kind == "image" and field.name in values]
    for number, field in enumerate(pictures):
        share = max(_PICTURE_BYTES_MIN, int(left / len(pictures) / _BASE64))
        picture = _picture(values[field.name], share)
        if number == 0:
            card.update(picture)
        else:
            card.setdefault("more", []).append({"name": field.name, **picture})
    return card


def failed_card(index: int, key: str, reason: str) -> dict[str, Any]:
    """The card of a sample that cannot be shown, and why."""
    return {"i": index, "key": key, "w": 4, "h": 3, "n": 0, "fields": [], "error": reason}


def key_text(key: Any) -> str:
    """A text of a store as it can be shown anywhere: bytes that are not UTF-8 become escapes."""
    if isinstance(key, str):
        key = key.encode("utf-8", "surrogateescape" if _is_of_names(key) else "backslashreplace")
    return cut_text(readable_path(key) if isinstance(key, bytes) else str(key), _NAME_MAX)


def _is_of_names(text: str) -> bool:
    """Whether a text has no surrogates but those that stand for bytes of a name."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def value_text(value: Any, field: Field) -> str:
    """A field's value for people to read; of a large one its size, and its first elements."""
    if field.names is not None and field.is_scalar:
        number = int(value)
        name = field.names[number] if 0 <= number < len(field.names) else "?"
        return f"{key_text(name)} ({number})"
    if field.kind in ("image", "mask") and isinstance(value, np.ndarray):
        return f"{value.dtype}, {' x '.join(map(str, value.shape))}"
    if isinstance(value, Polygons):
        return f"outlines of {len(value):,} on {value.width} x {value.height}"
    if isinstance(value, np.ndarray):
        shown = " ".join(f"{element:.6g}" for element in value.reshape(-1)[:_ELEMENTS_MAX].tolist())
        more = " ..." if value.size > _ELEMENTS_MAX else ""
        return f"[{shown}{more}]  {value.dtype}, {' x '.join(map(str, value.shape))}"
    if isinstance(value, bytes) and field.kind == "bytes":
        return f"{len(value):,} bytes"
    if isinstance(value, str | bytes):
        return cut_text(key_text(value), _TEXT_MAX)
    if isinstance(value, float):
        return f"{value:.9g}"
    return cut_text(json.dumps(value, default=str, ensure_ascii=False), _TEXT_MAX)


def _kind_text(field: Field) -> str:
    return f"{field.kind} {field.codec}" if field.codec else str(field.kind)


def _size_of(values: Mapping[str, Any], schema: Schema) -> tuple[int, int]:
    """(height, width) that coordinates are on: of the first picture."""
    for field in schema.fields:
        value = values.get(field.name)
        if field.kind in ("image", "mask") and isinstance(value, np.ndarray) and value.size:
            return int(value.shape[0]), int(value.shape[1])
    return 1, 1


def _picture(pixels: Any, bytes_max: int) -> dict[str, Any]:
    try:
        uri, note = picture_uri(pixels, bytes_max)
    except ImageError as error:
        return {"error": str(error)}
    picture: dict[str, Any] = {"pic": uri}
    if note:
        picture["note"] = note
    if pixels.shape[2] in (2, 4):
        picture["clear"] = True
    return picture


def _mask(field: Field, ids: Any) -> dict[str, Any]:
    uri, shares = mask_uri(ids, field.ignore, _MASK_SIDE)
    names = field.names or ()
    legend = []
    for number, share in shares[:_LEGEND_MAX]:
        name = key_text(names[number]) if 0 <= number < len(names) else ""
        if number == field.ignore:
            name = name or "counts for nothing"
        colour = mask_colour(number)
        legend.append([number, name, hex_of(colour), ink_on(colour), round(share, 4)])
    return {"name": field.name, "pic": uri, "legend": legend, "ids": len(shares)}
