"""What is exported: a store, and which of its samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.stores.export.names import safe_names
from readers.store.reader import StoreReader
from readers.store.record import RecordReader
from readers.store.schema import OBJECT_NAMES, Field, Schema
from readers.store.splits import canonical_split


@dataclass(frozen=True, eq=False)
class Job:
    """What is exported.

    Attributes:
        store: The store.
        indices: Positions of the samples, int64, in their order.
        shard_bytes_max: Size of an archive or table; see `packer.export`.
    """

    store: StoreReader
    indices: NDArray[np.int64]
    shard_bytes_max: int

    @property
    def schema(self) -> Schema:
        """The fields of a sample."""
        return self.store.manifest.schema

    def field(self, name: str) -> Field | None:
        """A field of the store, or None."""
        return next((field for field in self.schema.fields if field.name == name), None)

    @cached_property
    def object_names(self) -> frozenset[str]:
        """Fields with one entry for each object of a picture."""
        return OBJECT_NAMES & set(self.schema.names) if "boxes" in self.schema else frozenset()

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels of objects, or else of pictures; numbers where they have none."""
        field = self.field("labels") or self.field("label")
        if field is None or field.kind != "label":
            return ()
        return field.names or self.store.manifest.classes or self._numbers(field.name)

    def _numbers(self, name: str) -> tuple[str, ...]:
        """Names for the labels of a store that has none."""
        reader = RecordReader(self.store.layout, [name])
        places = map(self.store.locate, self.indices.tolist())
        labels = (reader.unpack(shard.record(position))[name] for shard, position in places)
        most = max((int(np.max(found, initial=-1)) for found in labels), default=-1)
        return tuple(map(str, range(most + 1)))

    @cached_property
    def picture_classes(self) -> tuple[str, ...]:
        """Names of the labels of pictures; empty where they have none."""
        field = self.field("label")
        if self.labels is None or field is None:
            return ()
        return field.names or self.store.manifest.classes

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits; empty where the store has none."""
        field = self.field("split")
        return (field.names or ()) if field is not None and field.is_scalar else ()

    @cached_property
    def split_files(self) -> dict[str, bytes]:
        """What a file or folder of each split is called."""
        return dict(zip(self.splits, safe_names(self.splits), strict=True))

    @cached_property
    def filled_splits(self) -> tuple[str, ...]:
        """Splits that have a sample."""
        filled = set(np.unique(self.split_numbers).tolist())
        return tuple(name for at, name in enumerate(self.splits) if at in filled)

    @property
    def odd_splits(self) -> tuple[str, ...]:
        """Splits whose names mean none of train, val and test to a reader."""
        return tuple(name for name in self.splits if canonical_split(name) is None)

    @cached_property
    def split_numbers(self) -> NDArray[np.int64]:
        """The split of each sample, by position in `splits`; 0 where there are none."""
        if not self.splits:
            return np.zeros(len(self.indices), np.int64)
        return self.store.located(self.indices).column("split").astype(np.int64)

    @cached_property
    def labels(self) -> NDArray[np.int64] | None:
        """The class of each sample; None where pictures have none."""
        field = self.field("label")
        if field is None or not field.is_scalar:
            return None
        return self.store.located(self.indices).column("label").astype(np.int64)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each record, which are about those of its picture."""
        return self.store.located(self.indices).lengths()

    def choice(self, name: str) -> list[str]:
        """What the build decided, as a list; empty where it had nothing to decide."""
        said: Any = self.store.manifest.source.choices.get(name)
        return said.split(",") if isinstance(said, str) and said else []
