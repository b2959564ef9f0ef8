"""What a value of a map is, told from its bytes, and where the image in it lies."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from packer.files.bare_pixels import NPY_START_BYTES, PixelShape, npy_shape
from packer.files.datum import read_datum
from packer.files.lmdb_file import LmdbEntry, LmdbFile
from packer.files.safe_pickle import UnsafePickleError, load_pickle
from readers.store.pictures.signatures import START_BYTES, is_heic, signed_format, stranger_text

ValueKind = Literal["picture", "npy", "datum", "unread"]

_NUMPY = b"\x93NUMPY"
_PICKLE = re.compile(rb"\x80[\x02-\x05]|\(?[ld]p\d+\n|\(?c[\w.]+\n")
_ARROW = re.compile(rb".{0,40}\xff\xff\xff\xff.{4}\x10\0\0\0", re.DOTALL)
_ZIP = b"PK\x03\x04"
_PLAIN_BYTES_MAX = 2**24
"""A value that is not an image, and is read whole, has at most this many bytes."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an image lies, and what it is.

    Attributes:
        position: Where it begins in the file.
        byte_count: Its bytes.
        shape: How its pixels lie; None for a picture file.
        label: What is said beside it in the value itself, if anything.
    """

    position: int
    byte_count: int
    shape: PixelShape | None = None
    label: int | None = None


def kind_of(file: LmdbFile, entry: LmdbEntry) -> ValueKind:
    """What the value of an entry is, as far as it is read. Raises OSError."""
    start = file.value(entry, START_BYTES)
    if is_picture(start):
        return "picture"
    if start.startswith(_NUMPY):
        return "npy"
    try:
        read_datum(_reader(file, entry), entry.byte_count)
    except ValueError:
        return "unread"
    return "datum"


def is_picture(start: bytes) -> bool:
    """Whether a value begins like a picture file."""
    return signed_format(start) is not None or is_heic(start)


def unread_text(file: LmdbFile, entry: LmdbEntry) -> str:
    """What a value is that is not read, as a message says it after "its values are"."""
    start = file.value(entry, START_BYTES)
    if _PICKLE.match(start):
        return "pickles (pickle.dumps)"
    if start.startswith(_ZIP):
        return "zip archives, as torch.save and np.savez write them"
    if _ARROW.match(start):
        return "what pyarrow.serialize writes, by the look of them"
    if start and start[0] & 0xF0 == 0x90:
        return "msgpack lists, as tensorpack writes them, by the look of them"
    return f"neither pictures, arrays nor Caffe's Datum ({stranger_text(start)})"


def npy_place(file: LmdbFile, entry: LmdbEntry) -> Place:
    """Where the pixels of a `.npy` lie. Raises ValueError where they are not an image."""
    shape, begin = npy_shape(file.value(entry, NPY_START_BYTES), entry.byte_count)
    return Place(position=entry.position + begin, byte_count=shape.byte_count, shape=shape)


def datum_place(file: LmdbFile, entry: LmdbEntry) -> Place:
    """Where the image of a Datum lies, with its label. Raises ValueError where there is none."""
    datum = read_datum(_reader(file, entry), entry.byte_count)
    position = entry.position + datum.position
    if datum.has_floats:
        raise ValueError("a Datum of floats; expected pixels of uint8 or a picture file")
    if datum.is_encoded:
        return Place(position=position, byte_count=datum.byte_count, label=datum.label)
    size = f"{datum.height}x{datum.width} pixels of {datum.channels} channels"
    if datum.channels not in (1, 3) or not datum.byte_count:
        raise ValueError(f"a Datum of {size}; expected 1 or 3 channels")
    if not datum.fits:
        raise ValueError(f"a Datum of {size}, but with {datum.byte_count:,} bytes")
    shape = PixelShape(
        height=datum.height, width=datum.width, channels=datum.channels, order="bgr-planes"
    )
    return Place(position=position, byte_count=datum.byte_count, shape=shape, label=datum.label)


def _reader(file: LmdbFile, entry: LmdbEntry) -> Any:
    return lambda at, count: file.read(entry.position + at, min(count, entry.byte_count - at))


def plain_value(file: LmdbFile, entry: LmdbEntry) -> Any:
    """What a value says that is no image: text, a number, JSON or a pickle of plain data; or None.

    Of a pickle, nothing is run; see `packer.files.safe_pickle`.
    """
    if entry.byte_count > _PLAIN_BYTES_MAX:
        return None
    data = file.value(entry, _PLAIN_BYTES_MAX)
    if _PICKLE.match(data):
        try:
            return load_pickle(data)
        except UnsafePickleError:
            return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def sides_of(value: Any, data: bytes) -> tuple[int, ...] | None:
    """The sides that the value of a shape says: numbers in text, a list, or bare integers."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        numbers = list(value)
    elif isinstance(value, str) and re.fullmatch(r"[\s\d,x()\[\]]+", value):
        numbers = [int(number) for number in re.findall(r"\d{1,9}", value)]
    else:
        numbers = []
        for size in (8, 4):
            if len(data) in (2 * size, 3 * size):
                whole = [
                    int.from_bytes(data[n : n + size], "little") for n in range(0, len(data), size)
                ]
                if all(0 < side < 2**20 for side in whole):
                    numbers = whole
                    break
    if not all(isinstance(number, int) for number in numbers):
        return None
    sides = tuple(numbers)
    return sides[1:] if len(sides) == 4 else sides or None
