"""Tar archives as WebDataset reads them: `train-000000.tar` with `1.jpg`, `1.cls`, `1.json`.

`cls` is the number of the class, `txt` a store's text, and `json` all else that is known of a
sample. A store of such archives gives the same members again, in folders called like the archives.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from packer.stores.export.files import ExportFiles
from packer.stores.export.job import Job
from packer.stores.export.outlines import coco_outline
from packer.stores.export.parts import Part, PartReport
from packer.stores.export.samples import Sample
from packer.wording import names_text, readable_path
from readers.store.shapes.polygons import Polygons

_JSON, _TEXT = "json", "text"
_NOT_IN_JSON = ("key", "image", "label", "split", "original_size", "transform", _TEXT)


class FormatWriter:
    """Writes archives; see `packer.stores.export.writer.Writer`."""

    names_by: Literal["stem"] = "stem"
    holds_many = True

    def __init__(self, job: Job) -> None:
        self._job = job
        fields = job.schema.fields
        self._has_text = any(f.name == _TEXT and f.kind == "text" for f in fields)
        inner = [
            f.name
            for f in fields
            if f.name not in _NOT_IN_JSON and f.kind not in ("image", "mask", "bytes")
        ]
        # What a member .json was when the store was built.
        self._is_whole = inner == [_JSON] and job.schema[_JSON].kind == "json"
        self._inner = tuple(inner)
        self.carried = frozenset((*inner, "label", *([_TEXT] if self._has_text else [])))
        self.reads = tuple(self.carried & set(job.schema.names))
        self.changes: dict[str, str] = {}
        self._splits = job.split_files
        self.notes = self._told()

    def stems(self, stem: bytes, split: str, label: int | None) -> Sequence[bytes]:
        """As the key says. The first dot of a name ends it there, and is written otherwise."""
        folder, slash, name = stem.rpartition(b"/")
        return [folder + slash + name.replace(b".", b"_")]

    def write(self, part: Part, samples: Iterable[Sample], out: ExportFiles) -> None:
        """Write an archive."""
        name = self._splits[part.split] if part.split else b"data"
        path = b"%s-%06d.tar" % (name, part.at)
        with tarfile.open(out.path(path), "w", format=tarfile.PAX_FORMAT) as archive:
            for sample in samples:
                for member, data in self._members(sample):
                    info = tarfile.TarInfo(member.decode())
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
        out.add(path)

    def _members(self, sample: Sample) -> Iterator[tuple[bytes, bytes]]:
        stem = sample.path[: sample.path.rfind(b".")]
        yield sample.path, sample.picture.data
        if sample.label is not None:
            yield stem + b".cls", b"%d" % sample.label
        if self._is_whole:
            yield stem + b".json", msgspec.json.encode(sample.values[_JSON])
        elif self._inner:
            said = {"key": readable_path(sample.key)}
            said |= {name: plain(sample.values[name]) for name in self._inner}
            yield stem + b".json", msgspec.json.encode(said)
        if self._has_text:
            yield stem + b".txt", sample.values[_TEXT].encode("utf-8", "replace")

    def finish(self, out: ExportFiles, reports: Iterable[PartReport]) -> None:
        """Write the names of the classes."""
        if self._job.classes:
            lines = (f"{name}\n".encode() for name in self._job.classes)
            out.write_parts("classes.txt", lines)

    def _told(self) -> list[str]:
        notes = []
        if self._job.classes:
            notes.append("classes are numbers; their names are in classes.txt, for --classes")
        if self._inner and not self._is_whole:
            notes.append(f"in the member .json of each sample: {names_text(self._inner)}")
        return notes


def plain(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, outlines as COCO writes them."""
    if isinstance(value, Polygons):
        return [coco_outline(outline, value.height, value.width) for outline in value]
    if isinstance(value, np.ndarray):
        # The shortest decimals that are read back as the same numbers.
        if value.dtype == np.float32:
            return _short(value)
        return value.tolist()
    return value


def _short(values: Any) -> Any:
    if values.ndim == 0:
        return float(str(values[()]))
    return (
        [_short(inner) for inner in values] if values.ndim > 1 else [float(str(v)) for v in values]
    )
