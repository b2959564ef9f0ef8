"""Reads the samples of a store for an export: values, the picture's file, and its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from packer.stores.export.job import Job
from packer.stores.export.losses import RENAMED, TURNED, count_lost, lost_fields
from packer.stores.export.names import Names, stem_and_extension
from packer.stores.export.pictures import Picture, StoredPictures
from packer.stores.keys import KEY_FIELD, key_bytes, key_reader
from packer.wording import readable_path
from readers.store.errors import CodecError, ImageError, ShardError
from readers.store.record import RecordReader

if TYPE_CHECKING:
    from packer.stores.export.files import ExportFiles
    from packer.stores.export.parts import Part
    from packer.stores.export.writer import Writer

KEYS_PIECE = "keys"
"""Lines of the list of pictures whose files are called otherwise than their keys."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample, as a layout takes it.

    Attributes:
        index: Position in the store.
        key: As stored.
        path: Of its picture's file in the export.
        split: Name of its split; empty where the store has none.
        label: Its class; None where pictures have none.
        picture: Its picture.
        values: Its other fields, by name.
    """

    index: int
    key: bytes
    path: bytes
    split: str
    label: int | None
    picture: Picture
    values: dict[str, Any]


class SampleReader:
    """Reads samples of a job as a writer wants them. Several threads may use it.

    Args:
        job: What is exported.
        writer: Says which fields, and where pictures are to lie.

    Raises:
        SchemaMismatchError: Samples have no image or no key.
        StoreError: A sample is damaged.
    """

    def __init__(self, job: Job, writer: Writer) -> None:
        self._job = job
        self._writer = writer
        self._pictures = StoredPictures(job)
        self._keys = key_reader(job.store)
        self._lost = lost_fields(job, writer)
        masks = {field.name for field in job.schema.fields if field.kind in ("mask", "image")}
        wanted = {KEY_FIELD, *writer.reads, *(name for name in self._lost if name not in masks)}
        self._reader = RecordReader(
            job.store.layout, [name for name in job.schema.names if name in wanted]
        )
        self._names = None
        if writer.names_by != "key":
            self._names = Names(len(job.indices), self._wishes)

    def _record(self, row: int) -> memoryview:
        shard, position = self._job.store.locate(int(self._job.indices[row]))
        return shard.record(position)

    def _wishes(self, row: int) -> tuple[list[bytes], bytes]:
        """Where the picture of a sample is to lie, and its extension where that tells it apart."""
        record = self._record(row)
        key = key_bytes(self._keys.unpack(record)[KEY_FIELD])
        stem, own = stem_and_extension(key)
        stems = self._stems(stem, row)
        by_path = self._writer.names_by == "path"
        return stems, self._pictures.extension(record, own) if by_path else b""

    def _stems(self, stem: bytes, row: int) -> list[bytes]:
        return list(self._writer.stems(stem, self._split(row), self._label(row)))

    def _label(self, row: int) -> int | None:
        labels = self._job.labels
        return None if labels is None else int(labels[row])

    def _split(self, row: int) -> str:
        splits = self._job.splits
        return splits[int(self._job.split_numbers[row])] if splits else ""

    def read(self, part: Part, out: ExportFiles) -> Iterator[Sample]:
        """The samples of a part, in order; what is lost of them is counted.

        Raises:
            ShardError: A sample is damaged, or no image file can hold its pixels.
        """
        for row in part.rows.tolist():
            index = int(self._job.indices[row])
            shard, position = self._job.store.locate(index)
            shard.check_record(position)
            record = shard.record(position)
            try:
                values = self._reader.unpack(record)
                picture = self._pictures.read(record)
            except (CodecError, ImageError) as error:
                raise ShardError.at(shard.path, str(error), position) from error
            key = key_bytes(values[KEY_FIELD])
            path = self._path(row, key, record)
            if path != key:
                out.lose(RENAMED)
                line = {"path": path.decode(), "key": readable_path(key)}
                out.keep(KEYS_PIECE, msgspec.json.encode(line) + b"\n")
            if picture.is_turned:
                out.lose(TURNED)
            for name in self._lost:
                out.lose(name, count_lost(self._job.schema[name], values.get(name)))
            split, label = self._split(row), self._label(row)
            yield Sample(index, key, path, split, label, picture, values)

    def _path(self, row: int, key: bytes, record: memoryview) -> bytes:
        if self._names is None:
            return key
        stem, own = stem_and_extension(key)
        place = self._names[row]
        if place is None:
            place = self._stems(stem, row)[0]
        return place + self._pictures.extension(record, own)
