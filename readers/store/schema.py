"""What a sample is made of."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
import numpy as np

from readers.store.errors import ManifestError

Kind = Literal["image", "label", "scalar", "array", "text", "json", "bytes"]
ImageCodec = Literal["raw", "original"]

ITEM_DTYPES = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
)
"""Names of the element types of the format. A per-sample dtype is stored as its position here."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
SIDE_MAX = 2**31 - 1
"""Largest extent of an axis."""


class Field(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A named, typed part of a sample.

    Attributes:
        name: Lower-case letters, digits and underscores.
        kind: What it means, which decides how it is stored; see FORMAT.md.
        dtype: Element type, a name of `ITEM_DTYPES`. None: each sample has its own (images), or
            the kind has no elements (text, json, bytes).
        shape: Extent of each axis; None for one that each sample has its own of. Images are
            (height, width, channel). Empty for single values and for text, json and bytes.
        codec: How an image's pixels are stored. None for other kinds.
        mode: Colour of an image that is decoded when it is read. None for others.
        names: What the values 0, 1, 2, ... of a scalar are called, when they have names.
    """

    name: str
    kind: Kind
    dtype: str | None = None
    shape: tuple[int | None, ...] = ()
    codec: ImageCodec | None = None
    mode: str | None = None
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            raise ManifestError(f"field {self.name!r}: {problem}")

    @property
    def is_fixed(self) -> bool:
        """Whether every sample's value takes the same number of bytes."""
        if self.kind in ("label", "scalar", "array"):
            return None not in self.shape
        return (
            self.kind == "image" and self.codec == "raw" and None not in (*self.shape, self.dtype)
        )

    @property
    def is_scalar(self) -> bool:
        """Whether a value is one number, kept in the record's header and in the index."""
        return self.kind in ("label", "scalar")


def _problem(field: Field) -> str | None:
    """Why the field is not one of the format, or None when it is."""
    if not _NAME.fullmatch(field.name):
        return "a name is 1 to 64 lower-case letters, digits and underscores, a letter first"
    if field.dtype is not None and field.dtype not in ITEM_DTYPES:
        return f"dtype {field.dtype!r} is not one of {', '.join(ITEM_DTYPES)}"
    if len(field.shape) > 8 or any(s is not None and not 0 <= s <= SIDE_MAX for s in field.shape):
        return f"shape {field.shape} must have at most 8 axes, each in [0, 2**31)"
    if field.kind == "image":
        if field.codec is None or len(field.shape) != 3:
            return "an image has a codec and a shape of (height, width, channel)"
        if field.codec == "original" and field.mode not in ("rgb", "gray", "rgba", "unchanged"):
            return (
                f"an original image has a mode of rgb, gray, rgba or unchanged, not {field.mode!r}"
            )
    elif field.codec is not None or field.mode is not None:
        return "only an image has a codec or a mode"
    if field.kind in ("label", "scalar") and (field.shape or field.dtype is None):
        return "a single value has a dtype and no shape"
    if field.kind == "array" and (field.dtype is None or not field.shape):
        return "an array has a dtype and a shape"
    if field.kind in ("text", "json", "bytes") and (field.shape or field.dtype is not None):
        return f"{field.kind} has neither dtype nor shape"
    if field.names is not None:
        if not field.is_scalar:
            return "only a label or a scalar has names"
        if np.dtype(field.dtype).kind not in "iu":
            return f"names need an integer dtype to count them, not {field.dtype}"
    if field.is_fixed and field_bytes(field) > 2**40:
        return f"shape {field.shape} of {field.dtype} is more than 1 TiB"
    return None


def field_bytes(field: Field) -> int:
    """Bytes of one value of a field whose size is fixed."""
    assert field.is_fixed
    count = 1
    for side in field.shape:
        count *= side or 0
    return count * np.dtype(field.dtype).itemsize


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All fields of a store, in the order in which a record holds them."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        if not names or len(names) > 1000:
            raise ManifestError(f"a schema has 1 to 1000 fields; found {len(names)}")
        for name in names:
            if names.count(name) > 1:
                raise ManifestError(f"field {name!r} stands twice in the schema")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all fields, in order."""
        return tuple(field.name for field in self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    def as_builtins(self) -> Any:
        """The schema as lists, dicts, texts and numbers, as the manifest keeps it."""
        return msgspec.to_builtins(self)
