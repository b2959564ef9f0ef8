"""A record of one store -> the record of another: bytes are copied, nothing is encoded again.

What may change on the way are numbers that stand for names (labels, splits, ids of masks), and the
key, which may get a prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.stores.keys import KEY_FIELD
from readers.store.codecs import little
from readers.store.errors import CodecError
from readers.store.record import RECORD_BYTES_MAX, RecordLayout
from readers.store.schema import Field, field_bytes


@dataclass(frozen=True)
class Rewritten:
    """A record as it goes into another store.

    Attributes:
        record: Its bytes.
        header: The values of its header's items.
    """

    record: bytes
    header: list[Any]


class Rewriter:
    """Rewrites records of one layout.

    Args:
        layout: Of the store that the records come from. Theirs, in the store that they go to, has
            other names at most.
        tables: By field, the new number of each of its names, int64. A field that is not in it
            keeps its numbers.
        names: By field, its names in the store that the records go to.
        prefix: What every key is to begin with.
    """

    def __init__(
        self,
        layout: RecordLayout,
        tables: Mapping[str, NDArray[np.int64]] | None = None,
        names: Mapping[str, Sequence[str]] | None = None,
        prefix: bytes = b"",
    ) -> None:
        self._layout = layout
        self._tables = dict(tables or {})
        self._name_counts = {name: len(values) for name, values in (names or {}).items()}
        self._prefix = prefix
        self._place = {item.name: at for at, item in enumerate(layout.items)}
        self._ends = [self._place[f"{name}.end"] for name in layout.variable_fields]
        self.changes_nothing = not self._tables and not prefix

    def rewrite(self, record: memoryview) -> Rewritten:
        """The record with its numbers and its key changed.

        Raises:
            CodecError: The bytes are no record of the layout, or hold a number without a name.
        """
        layout = self._layout
        if len(record) < layout.variable_start:
            raise CodecError(
                f"the record has {len(record)} bytes, expected at least {layout.variable_start}"
            )
        header = list(layout.header.unpack_from(record))
        bounds = [layout.variable_start, *(header[at] for at in self._ends)]
        if bounds[-1] != len(record) or any(a > b for a, b in pairwise(bounds)):
            raise CodecError(f"fields end at {bounds}, expected to rise to {len(record)}")
        if self.changes_nothing:
            return Rewritten(bytes(record), header)
        fixed = bytearray(record[layout.header.size : layout.variable_start])
        payloads: dict[str, bytes | memoryview] = {
            name: record[first:end]
            for name, (first, end) in zip(layout.variable_fields, pairwise(bounds), strict=True)
        }
        for name, table in self._tables.items():
            field = layout.schema[name]
            if field.is_scalar:
                at = self._place[name]
                header[at] = int(self._renumbered(field, np.array([header[at]]), table)[0])
            elif field.is_fixed:
                start = layout.fixed_offsets[name] - layout.header.size
                part = slice(start, start + field_bytes(field))
                fixed[part] = self._renumbered_bytes(field, fixed[part], table)
            else:
                payloads[name] = self._renumbered_bytes(field, payloads[name], table)
        if self._prefix:
            payloads[KEY_FIELD] = self._prefix + bytes(payloads[KEY_FIELD])
        end = layout.variable_start
        for at, payload in zip(self._ends, payloads.values(), strict=True):
            end += len(payload)
            header[at] = end
        if end > RECORD_BYTES_MAX:
            raise CodecError(f"the record would be {end} bytes; at most {RECORD_BYTES_MAX}")
        # The header's padding and the gaps between fixed fields are zeros, as the format has them.
        return Rewritten(b"".join([layout.header.pack(*header), fixed, *payloads.values()]), header)

    def _renumbered_bytes(
        self, field: Field, payload: bytes | bytearray | memoryview, table: NDArray[np.int64]
    ) -> bytes:
        kind = little(field.dtype or "")
        if len(payload) % kind.itemsize:
            raise CodecError(f"field {field.name!r}: {len(payload)} bytes of {field.dtype}")
        values = np.frombuffer(payload, kind)
        return self._renumbered(field, values, table).astype(kind).tobytes()

    def _renumbered(
        self, field: Field, values: NDArray[Any], table: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Numbers put through a table. Those of a mask may be of no name, and then stay."""
        numbers = values.astype(np.int64)
        is_known = (numbers >= 0) & (numbers < len(table))
        is_lost = ~is_known
        if field.kind == "mask":
            # ... unless the other store has a name of that number.
            is_lost &= (numbers >= 0) & (numbers < self._name_counts[field.name])
            if field.ignore is not None:
                is_lost &= numbers != field.ignore
        if is_lost.any():
            raise CodecError(
                f"field {field.name!r}: {numbers[is_lost][0]} has no name, expected "
                f"[0, {len(table)}); it would be taken for another's"
            )
        return np.where(is_known, table[np.where(is_known, numbers, 0)], numbers)
