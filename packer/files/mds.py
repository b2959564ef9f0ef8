"""A shard of MosaicML Streaming (MDS): samples of named columns, one after the other.

What a file holds, in this order:

    count     u32: samples
    offsets   u32 for each sample and one more: where it begins; the last is where all end
    config    JSON: the columns' names, encodings, and sizes (null where each sample has its own)
    samples   u32 for each column without a size: its bytes in this sample; then the columns
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from packer.files.bare_pixels import PixelShape, pixel_shape
from packer.files.blocks import FileBlocks
from packer.files.start import pointer_reason
from readers.store.pictures.signatures import START_BYTES

_CONFIG_BYTES_MAX = 2**20
_PIL_HEADER = struct.Struct("<III")
_PIL_CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}
_ARRAY_DTYPES = {8: "uint8"}
"""Only pixels are read; the other codes are of wider numbers."""


class MdsError(ValueError):
    """The file is not a shard that can be read. The text is why."""


@dataclass(frozen=True)
class MdsColumn:
    """A column.

    Attributes:
        name: As its writer called it.
        encoding: What it holds, with arguments behind a colon: "jpeg", "int", "ndarray:uint8".
        size: Bytes in each sample; None where each has its own.
    """

    name: str
    encoding: str
    size: int | None

    @property
    def kind(self) -> str:
        """The encoding without arguments."""
        return self.encoding.partition(":")[0]


class Cell(NamedTuple):
    """A value: where it begins in the file, and its bytes."""

    position: int
    byte_count: int


class MdsShard:
    """The samples of a shard.

    Args:
        path: The file.

    Attributes:
        columns: In their order.
        sample_count: How many samples it has.

    Raises:
        MdsError: It is not such a file, or damaged.
        OSError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._file = FileBlocks(path)
        try:
            self._offsets = self._read_offsets()
            self.sample_count = len(self._offsets) - 1
            self.columns = self._read_columns()
        except BaseException:
            self.close()
            raise
        self._own_sized = sum(column.size is None for column in self.columns)

    def _read_offsets(self) -> NDArray[np.int64]:
        file = self._file
        count = int.from_bytes(file[:4], "little")
        begin = 4 + 4 * (count + 1)
        if len(file) < begin:
            raise MdsError(
                pointer_reason(bytes(file[:START_BYTES]))
                or f"{len(file):,} bytes are too few for {count:,} samples"
            )
        offsets = np.frombuffer(bytes(file[4:begin]), "<u4").astype(np.int64)
        if offsets[0] < begin or offsets[-1] > len(file) or np.any(np.diff(offsets) < 0):
            raise MdsError(f"cut short or damaged: its samples leave its {len(file):,} bytes")
        self._config_at = begin
        return offsets

    def _read_columns(self) -> tuple[MdsColumn, ...]:
        end = int(self._offsets[0])
        if end - self._config_at > _CONFIG_BYTES_MAX:
            raise MdsError(f"{end - self._config_at:,} bytes of settings")
        try:
            config = json.loads(bytes(self._file[self._config_at : end]))
            columns = tuple(
                MdsColumn(str(name), str(encoding), size or None)
                for name, encoding, size in zip(
                    config["column_names"],
                    config["column_encodings"],
                    config["column_sizes"],
                    strict=True,
                )
            )
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise MdsError(f"no columns in its settings: {error}") from error
        if not all(c.size is None or (isinstance(c.size, int) and c.size > 0) for c in columns):
            raise MdsError("columns of sizes that are not numbers")
        return columns

    def cells(self, number: int) -> list[Cell]:
        """The values of a sample, by column. Raises ValueError where they leave it."""
        begin, end = int(self._offsets[number]), int(self._offsets[number + 1])
        at = begin + 4 * self._own_sized
        if at > end:
            raise ValueError(f"{end - begin} bytes are too few for the sample")
        own = iter(struct.unpack(f"<{self._own_sized}I", self._file[begin:at]))
        found = []
        for column in self.columns:
            size = next(own) if column.size is None else column.size
            found.append(Cell(at, size))
            at += size
        if at != end:
            raise ValueError(f"its columns take {at - begin} bytes, and it has {end - begin}")
        return found

    def read(self, cell: Cell, bytes_max: int | None = None) -> bytes:
        """The bytes of a value, or its first ones."""
        byte_count = cell.byte_count if bytes_max is None else min(bytes_max, cell.byte_count)
        return bytes(self._file[cell.position : cell.position + byte_count])

    def pixels(self, column: MdsColumn, cell: Cell) -> tuple[PixelShape, int]:
        """How the pixels of a "pil" or "ndarray" lie, and where they begin in the file.

        Raises:
            ValueError: They are not pixels of uint8.
        """
        shape, header_bytes = self._shape(column, cell)
        if header_bytes + shape.byte_count != cell.byte_count:
            raise ValueError(f"{cell.byte_count:,} bytes of {column.encoding}: {shape.text}")
        return shape, cell.position + header_bytes

    def _shape(self, column: MdsColumn, cell: Cell) -> tuple[PixelShape, int]:
        start = self.read(cell, 2**10)
        try:
            if column.kind == "pil":
                width, height, length = _PIL_HEADER.unpack_from(start)
                begin = _PIL_HEADER.size + length
                mode = start[_PIL_HEADER.size : begin].decode("ascii", "replace")
                if mode not in _PIL_CHANNELS:
                    raise ValueError(f"a picture of mode {mode!r:.20}; expected L, RGB or RGBA")
                shape = pixel_shape((height, width, _PIL_CHANNELS[mode]))
                return shape, begin
            return _array_shape(column, start)
        except (struct.error, IndexError) as error:
            raise ValueError("too few bytes for pixels") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _array_shape(column: MdsColumn, start: bytes) -> tuple[PixelShape, int]:
    """Of an array, whose type and shape are in the encoding or before its values."""
    _, dtype, sides_text = [*column.encoding.split(":"), "", ""][:3]
    at = 0
    if not dtype:
        dtype, at = _ARRAY_DTYPES.get(start[0], "other numbers"), 1
    if dtype != "uint8":
        raise ValueError(f"an array of {dtype}; expected uint8")
    if sides_text:
        return pixel_shape(tuple(int(side) for side in sides_text.split(","))), at
    axes, width = start[at] >> 2, 2 ** (start[at] & 3)
    at += 1
    sides = tuple(
        int.from_bytes(start[n : n + width], "little") for n in range(at, at + axes * width, width)
    )
    return pixel_shape(sides), at + axes * width
