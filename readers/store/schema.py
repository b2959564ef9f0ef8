"""What a sample is made of."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
import numpy as np

from readers.store.errors import ManifestError

Kind = Literal[
    "image",
    "mask",
    "label",
    "boxes",
    "keypoints",
    "polygons",
    "scalar",
    "array",
    "text",
    "json",
    "bytes",
]
ImageCodec = Literal["raw", "original", "mixed", "png"]

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

OBJECT_NAMES = frozenset(
    (
        *("boxes", "labels", "masks", "keypoints", "corners"),
        *("area", "iscrowd", "difficult", "truncated", "attributes"),
    )
)
"""Fields with one entry for each object of an image, where a store has boxes."""

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
            (height, width, channel), masks (height, width), boxes (box, 4), keypoints
            (object, point, 2 or 3). Empty for single values and for polygons, text, json and bytes.
        codec: How pixels are stored: of an image "raw", "original" or "mixed"; of a mask "png", or
            None for its ids as they are. None for other kinds.
        mode: Colour of an image that is decoded when it is read. None for others.
        names: What the values 0, 1, 2, ... of a label, scalar or mask are called, or the points
            0, 1, 2, ... of keypoints, when they have names.
        ignore: Value of a mask's pixels that belong to no class and count for nothing.
    """

    name: str
    kind: Kind
    dtype: str | None = None
    shape: tuple[int | None, ...] = ()
    codec: ImageCodec | None = None
    mode: str | None = None
    names: tuple[str, ...] | None = None
    ignore: int | None = None

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            raise ManifestError(f"field {self.name!r}: {problem}")

    @property
    def is_fixed(self) -> bool:
        """Whether every sample's value takes the same number of bytes."""
        return self.holds_elements and None not in (*self.shape, self.dtype)

    @property
    def holds_elements(self) -> bool:
        """Whether a value is stored as its elements in C order, and nothing else."""
        return self.codec == "raw" or (self.kind in _OF_ELEMENTS and self.codec is None)

    @property
    def is_array(self) -> bool:
        """Whether a value is read as an array, however it is stored."""
        return self.kind == "image" or self.kind in _OF_ELEMENTS

    @property
    def is_scalar(self) -> bool:
        """Whether a value is one number, kept in the record's header and in the index."""
        return self.kind in ("label", "scalar") and not self.shape


_OF_ELEMENTS = frozenset(("label", "scalar", "array", "mask", "boxes", "keypoints"))
"""Kinds whose values are elements in C order and nothing else."""


def _problem(field: Field) -> str | None:
    """Why the field is not one of the format, or None when it is."""
    if not _NAME.fullmatch(field.name):
        return "a name is 1 to 64 lower-case letters, digits and underscores, a letter first"
    if field.dtype is not None and field.dtype not in ITEM_DTYPES:
        return f"dtype {field.dtype!r} is not one of {', '.join(ITEM_DTYPES)}"
    if len(field.shape) > 8 or any(s is not None and not 0 <= s <= SIDE_MAX for s in field.shape):
        return f"shape {field.shape} must have at most 8 axes, each in [0, 2**31)"
    if field.kind == "image":
        if field.codec not in ("raw", "original", "mixed") or len(field.shape) != 3:
            return (
                "an image has a codec of raw, original or mixed and a shape of "
                "(height, width, channel)"
            )
        if field.codec != "raw" and field.mode not in ("rgb", "gray", "rgba", "unchanged"):
            return (
                f"codec {field.codec} of an image needs a mode of rgb, gray, rgba or unchanged, "
                f"not {field.mode!r}"
            )
    elif field.mode is not None or field.codec not in _CODECS_OF.get(field.kind, (None,)):
        return "only an image has a codec or a mode, but for a mask, which may have codec png"
    problem = _shape_problem(field) or _names_problem(field)
    if problem is not None:
        return problem
    if field.is_fixed and field_bytes(field) > 2**40:
        return f"shape {field.shape} of {field.dtype} is more than 1 TiB"
    return None


def _shape_problem(field: Field) -> str | None:
    """Why dtype and shape do not fit the kind, or None when they do."""
    shape, dtype = field.shape, field.dtype
    if field.kind == "scalar" and (shape or dtype is None):
        return "a single value has a dtype and no shape"
    if field.kind == "label" and (shape not in ((), (None,)) or dtype is None):
        return "a label has a dtype, and no shape or, one for each object, (null)"
    if field.kind == "array" and (dtype is None or not shape):
        return "an array has a dtype and a shape"
    if field.kind == "mask" and (len(shape) != 2 or dtype not in _MASK_DTYPES):
        return f"a mask has a shape of (height, width) and a dtype of {', '.join(_MASK_DTYPES)}"
    if field.kind == "boxes" and (shape != (None, 4) or dtype != "float32"):
        return "boxes have a shape of (null, 4) and dtype float32"
    if field.kind == "keypoints" and (
        len(shape) != 3 or shape[0] is not None or shape[2] not in (2, 3) or dtype != "float32"
    ):
        return "keypoints have a shape of (null, points, 2 or 3) and dtype float32"
    if field.kind in ("polygons", "text", "json", "bytes") and (shape or dtype is not None):
        return f"{field.kind} has neither dtype nor shape"
    return None


_CODECS_OF: dict[str, tuple[str | None, ...]] = {"mask": (None, "png")}

_MASK_DTYPES = ("uint8", "int32")
"""Of the ids of a mask. Those that torch computes with: its uint16 knows no comparison."""


def _names_problem(field: Field) -> str | None:
    """Why names or the value to ignore do not fit the kind, or None when they do."""
    if field.names is not None:
        if field.kind not in ("label", "scalar", "mask", "keypoints"):
            return "only a label, a scalar, a mask or keypoints have names"
        if field.kind == "keypoints":
            if len(field.names) != field.shape[1]:
                return f"{len(field.names)} names for {field.shape[1]} points"
        elif np.dtype(field.dtype).kind not in "iu":
            return f"names need an integer dtype to count them, not {field.dtype}"
    if field.ignore is not None and (
        field.kind != "mask"
        or not np.iinfo(field.dtype or "").min <= field.ignore <= np.iinfo(field.dtype or "").max
    ):
        return "only a mask has a value to ignore, and one of its dtype"
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
                raise ManifestError(f"field {name!r} is listed twice in the schema")

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
