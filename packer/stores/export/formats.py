"""The layouts that a store can be exported to, a row each.

A new one is a module and a row here.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Literal

from packer.stores.export.job import Job
from packer.stores.export.writer import Writer
from readers.store.wording import did_you_mean

FormatName = Literal["folder", "coco", "yolo", "voc", "tar", "parquet"]


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """One layout.

    Attributes:
        module: Has the class `FormatWriter`, a `Writer`; it is loaded when it is asked for.
        text: What it is, as `--as` explains it.
    """

    module: str
    text: str


EXPORT_FORMATS: dict[FormatName, ExportFormat] = {
    "folder": ExportFormat(
        module="packer.stores.export.folder", text="a folder a class, as ImageFolder reads it"
    ),
    "coco": ExportFormat(
        module="packer.stores.export.coco", text="COCO's JSON of objects, or of captions"
    ),
    "yolo": ExportFormat(
        module="packer.stores.export.yolo", text="a data.yaml and a text file a picture"
    ),
    "voc": ExportFormat(
        module="packer.stores.export.voc", text="Pascal VOC: an XML file a picture"
    ),
    "tar": ExportFormat(module="packer.stores.export.tar", text="WebDataset's tar archives"),
    "parquet": ExportFormat(
        module="packer.stores.export.parquet", text="tables as Hugging Face has them"
    ),
}
"""Every layout, in the order of `--help`."""


def make_writer(name: str, job: Job) -> Writer:
    """The writer of a layout.

    Raises:
        ValueError: There is no layout of this name.
        BuildError: The store has nothing that the layout is for.
    """
    if name not in EXPORT_FORMATS:
        known, hint = ", ".join(EXPORT_FORMATS), did_you_mean(name, EXPORT_FORMATS)
        raise ValueError(f"as_ must be one of {known}; got {name!r}.{hint}")
    row = EXPORT_FORMATS[name]
    writer: Writer = importlib.import_module(row.module).FormatWriter(job)
    return writer
