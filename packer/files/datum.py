"""Caffe's Datum, a protobuf message: one image, its label, and how it is stored.

    1 channels   2 height   3 width   int32
    4 data       the pixels, plane by plane, row by row; or the bytes of a picture file
    5 label      int32
    6 float_data repeated float, in place of data
    7 encoded    bool: data is a picture file

A message is fields one after the other: a number (field << 3 | type), then a number, or a length
and as many bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TYPE_OF = {1: (_VARINT,), 2: (_VARINT,), 3: (_VARINT,), 4: (_BYTES,), 5: (_VARINT,)} | {
    6: (_BYTES, _FIXED32),
    7: (_VARINT,),
}
_TAG_BYTES_MAX = 24
"""A tag and a number or length take at most this much."""

_NUMBERS_MAX = 64
"""Fields of one message, but for floats."""


@dataclass(frozen=True, kw_only=True)
class Datum:
    """What a message says; the pixels are left where they are.

    Attributes:
        channels: Planes; 0 where it does not say.
        height: Rows.
        width: Columns.
        position: Where `data` begins in the message.
        byte_count: Bytes of `data`.
        label: None where it has none.
        has_floats: Whether there are floats.
        is_encoded: Whether `data` is a picture file.
    """

    channels: int = 0
    height: int = 0
    width: int = 0
    position: int = 0
    byte_count: int = 0
    label: int | None = None
    has_floats: bool = False
    is_encoded: bool = False

    @property
    def fits(self) -> bool:
        """Whether the pixels are as many bytes as its size says."""
        return self.byte_count == self.channels * self.height * self.width


def read_datum(read: Callable[[int, int], bytes], byte_count: int) -> Datum:
    """Read a message.

    Args:
        read: Gives bytes of the message: from where, and how many at most.
        byte_count: Size of the message.

    Raises:
        ValueError: It is not a Datum.
    """
    found: dict[int, int] = {}
    data = (0, 0)
    at = 0
    for _ in range(_NUMBERS_MAX):
        if at == byte_count:
            break
        head = read(at, min(_TAG_BYTES_MAX, byte_count - at))
        tag, used = _varint(head, 0)
        field, kind = tag >> 3, tag & 7
        if kind not in _TYPE_OF.get(field, ()):
            raise ValueError(f"field {field} of type {kind} at byte {at}")
        if kind == _FIXED32:
            found[field] = 1
            return _datum(found, data)  # Floats, as many as there are pixels.
        value, used = _varint(head, used)
        at += used
        if kind == _BYTES:
            if field == 4:
                data = at, value
            found[field] = 1
            at += value
        else:
            found[field] = value
        if at > byte_count:
            raise ValueError(f"field {field} leaves the message of {byte_count} bytes")
    if at != byte_count or not (found.keys() & {4, 6}):
        raise ValueError("no pixels")
    return _datum(found, data)


def _datum(found: dict[int, int], data: tuple[int, int]) -> Datum:
    label = found.get(5)
    if label is not None and label >= 2**63:
        label -= 2**64  # Numbers below 0 are written in 64 bits.
    return Datum(
        channels=found.get(1, 0),
        height=found.get(2, 0),
        width=found.get(3, 0),
        position=data[0],
        byte_count=data[1],
        label=label,
        has_floats=6 in found,
        is_encoded=bool(found.get(7, 0)),
    )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(number, place behind it): 7 bits a byte, the lowest first."""
    value = 0
    for shift in range(0, 70, 7):
        if at == len(data):
            raise ValueError("a number that has no end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than 64 bits")
