"""Parquet files as Hugging Face's data sets of images are: `data/train-00000-of-00002.parquet`.

    image      struct of bytes and path; the path is the key
    label      number of the class, whose names stand in the file's own description
    objects    struct of lists: bbox (x, y, width, height), category, area, iscrowd, ...
    mask       of classes: a PNG of gray, whose values are the classes
    ...        the other fields, a column each

`datasets.load_dataset("parquet", data_dir=...)` reads them with their features.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from packer.files.arrow import load_pyarrow
from packer.pictures.forms import encoded
from packer.stores.export.files import ExportFiles
from packer.stores.export.job import Job
from packer.stores.export.parts import Part, PartReport
from packer.stores.export.samples import Sample
from packer.stores.export.turned import short_numbers
from packer.wording import readable_path
from readers.store.schema import Field

_ROWS_MAX = 100
"""Rows of a group, as Hugging Face writes them where there are pictures: a reader decodes few."""

_GROUP_BYTES_MAX = 2**26

_OBJECTS = ("boxes", "labels", "area", "iscrowd", "difficult", "truncated", "keypoints", "corners")
_NAME_OF = {"boxes": "bbox", "labels": "category"}
"""How the convention calls what our fields hold."""


@dataclass(frozen=True)
class _Column:
    """A column of the table.

    Attributes:
        name: Of the column.
        type: For pyarrow.
        feature: For datasets.
    """

    name: str
    type: Any
    feature: Any


class FormatWriter:
    """Writes tables; see `packer.stores.export.writer.Writer`.

    Raises:
        SourceError: pyarrow is not installed.
    """

    names_by: Literal["key"] = "key"
    holds_many = True

    def __init__(self, job: Job) -> None:
        self._job = job
        self._arrow = load_pyarrow()
        self._parquet = load_pyarrow("pyarrow.parquet")
        self._objects = [name for name in _OBJECTS if name in job.object_names]
        self._others = [f for f in job.schema.fields if self._is_column(f)]
        names = [field.name for field in self._others]
        self.carried = frozenset((*self._objects, *names))
        self.reads = (*self._objects, *names)
        self.changes: dict[str, str] = {}
        as_text = [field.name for field in self._others if field.kind == "json"]
        self.notes = [f"written as JSON text: {', '.join(as_text)}"] if as_text else []
        self._columns = list(self._make_columns())
        self._schema = self._make_schema()

    def stems(self, stem: bytes, split: str, label: int | None) -> Sequence[bytes]:
        """Pictures have no files of their own."""
        return [stem]

    def _is_column(self, field: Field) -> bool:
        if field.name in ("key", "image", "split", "original_size", "transform"):
            return False
        if field.name in self._job.object_names:
            return False
        if field.kind == "mask":
            return field.dtype == "uint8"
        is_list = field.kind in ("label", "array") and len(field.shape) == 1
        return field.is_scalar or is_list or field.kind in ("text", "json", "bytes")

    def _make_columns(self) -> Iterable[_Column]:
        arrow = self._arrow
        yield _Column("image", self._picture_type(), {"_type": "Image"})
        if self._objects:
            for side in ("width", "height"):
                yield _Column(side, arrow.int64(), _value("int64"))
            types, features = [], {}
            for name in self._objects:
                column = self._object_column(name)
                types.append((column.name, arrow.list_(column.type)))
                features[column.name] = _list(column.feature)
            yield _Column("objects", arrow.struct(types), features)
        for field in self._others:
            yield self._column(field)

    def _picture_type(self) -> Any:
        return self._arrow.struct([("bytes", self._arrow.binary()), ("path", self._arrow.string())])

    def _object_column(self, name: str) -> _Column:
        arrow = self._arrow
        called = _NAME_OF.get(name, name)
        if name == "boxes":
            return _Column(called, arrow.list_(arrow.float64()), _list(_value("float64")))
        if name == "labels":
            return _Column(called, arrow.int64(), self._label_feature("int64", self._job.classes))
        if name in ("keypoints", "corners"):
            return _Column(called, arrow.list_(arrow.float32()), _list(_value("float32")))
        dtype = self._job.schema[name].dtype or ""
        return _Column(called, self._type(dtype), _value(dtype))

    def _column(self, field: Field) -> _Column:
        arrow = self._arrow
        if field.kind in ("text", "json"):
            return _Column(field.name, arrow.string(), _value("string"))
        if field.kind == "mask":
            return _Column(field.name, self._picture_type(), {"_type": "Image"})
        if field.kind == "bytes":
            return _Column(field.name, arrow.binary(), _value("binary"))
        dtype = field.dtype or ""
        names = field.names
        if field.kind == "label" and not names:
            names = self._job.store.manifest.classes
        feature = self._label_feature(dtype, names or ())
        kind = arrow.int64() if names else self._type(dtype)
        if field.is_scalar:
            return _Column(field.name, kind, feature)
        return _Column(field.name, arrow.list_(kind), _list(feature))

    def _type(self, dtype: str) -> Any:
        return self._arrow.from_numpy_dtype(np.dtype(dtype))

    def _label_feature(self, dtype: str, names: Sequence[str]) -> Any:
        return {"names": list(names), "_type": "ClassLabel"} if names else _value(dtype)

    def _make_schema(self) -> Any:
        features = {column.name: column.feature for column in self._columns}
        about = json.dumps({"info": {"features": features}})
        fields = [(column.name, column.type) for column in self._columns]
        return self._arrow.schema(fields, metadata={"huggingface": about})

    def write(self, part: Part, samples: Iterable[Sample], out: ExportFiles) -> None:
        """Write a table."""
        split = re.sub(r"[^\w.]", "_", part.split) or "data"
        path = f"data/{split}-{part.at:05d}-of-{part.of:05d}.parquet".encode()
        place = os.fsdecode(out.path(path))
        rows: list[dict[str, Any]] = []
        size = 0
        with self._parquet.ParquetWriter(place, self._schema) as table:
            for sample in samples:
                rows.append(self._row(sample))
                size += len(sample.picture.data)
                if len(rows) >= _ROWS_MAX or size >= _GROUP_BYTES_MAX:
                    table.write_table(self._arrow.Table.from_pylist(rows, self._schema))
                    rows, size = [], 0
            if rows:
                table.write_table(self._arrow.Table.from_pylist(rows, self._schema))
        out.add(path)

    def _row(self, sample: Sample) -> dict[str, Any]:
        path = readable_path(sample.key)
        row: dict[str, Any] = {"image": {"bytes": sample.picture.data, "path": path}}
        if self._objects:
            row |= {"width": sample.picture.width, "height": sample.picture.height}
            row["objects"] = {
                _NAME_OF.get(name, name): _object_values(name, sample.values[name])
                for name in self._objects
            }
        for field in self._others:
            value = sample.values[field.name]
            if field.kind == "json":
                value = msgspec.json.encode(value).decode()
            elif field.kind == "text":
                value = value.encode("utf-8", "replace").decode()
            elif field.kind == "mask":
                value = {"bytes": encoded(value[..., None], "png", None, "unchanged")}
            row[field.name] = value.tolist() if isinstance(value, np.ndarray) else value
        return row

    def finish(self, out: ExportFiles, reports: Iterable[PartReport]) -> None:
        """Nothing: each table says all of itself."""


def _object_values(name: str, values: NDArray[Any]) -> Any:
    if name == "boxes":
        numbers = iter(short_numbers(values))
        boxes = zip(numbers, numbers, numbers, numbers, strict=True)
        return [[x0, y0, x1 - x0, y1 - y0] for x0, y0, x1, y1 in boxes]
    if name in ("keypoints", "corners"):
        return [points.reshape(-1).tolist() for points in values]
    return values.tolist()


def _value(dtype: str) -> Any:
    return {"dtype": dtype, "_type": "Value"}


def _list(feature: Any) -> Any:
    return {"feature": feature, "_type": "Sequence"}
