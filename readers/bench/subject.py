"""What is measured: what training takes of a store, and the raw folder beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from readers.bench.raw_folder import RawFolder, stock_loader
from readers.bench.report import Setting
from readers.dataset import LMDBDataset
from readers.loader.make import make_loader
from readers.ops.operations import Letterbox, RandomResizedCrop
from readers.reading.even_sizes import likely_shape

_TARGETS = (("label",), ("boxes", "labels"), ("labels",), ("caption",), ("captions",))
"""What training takes beside image and masks: the first of which the store has all."""

_CROP_SIDE = 224
_LETTERBOX_SIDE = 640
_Op = RandomResizedCrop | Letterbox


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is measured.

    Attributes:
        dataset: Of what training takes.
        ops: Operations on its images.
        folder: The raw pictures, if they are to be read as well.
    """

    dataset: LMDBDataset[Any]
    ops: tuple[_Op, ...]
    folder: RawFolder | None

    @classmethod
    def of(cls, dataset: LMDBDataset[Any], raw: str | None, crop: int | None) -> Subject:
        """With the operations that training needs, and the raw pictures at the same size.

        Raises:
            ValueError: There is nothing to measure.
        """
        if not len(dataset):
            raise ValueError(
                f"{dataset.view.path}: there is no sample in this store, so nothing to measure"
            )
        ops = _operations(dataset, crop)
        folder = None if raw is None else _raw_folder(raw, dataset, ops)
        return cls(dataset=dataset, ops=ops, folder=folder)

    def work(self) -> str:
        """The operations, in words."""
        return ", ".join(f"{type(op).__name__} {_shown(op.size)}" for op in self.ops)

    def make(self, setting: Setting) -> Any:
        """A loader with these settings."""
        if setting.engine == "stock":
            assert self.folder is not None
            return stock_loader(self.folder, setting.batch_size, setting.workers)
        return make_loader(
            self.dataset,
            setting.batch_size,
            train=True,
            ops=self.ops,
            engine=setting.engine,
            workers=setting.workers,
            prefetch_factor=setting.prefetch_factor,
        )


def names_taken(dataset: LMDBDataset[Any]) -> tuple[str, ...]:
    """The fields that training takes, in order."""
    schema = dataset.schema
    if "image" not in schema.names:
        return tuple(schema.names)
    masks = tuple(one.name for one in schema.fields if one.kind == "mask")
    targets = next((wanted for wanted in _TARGETS if set(wanted) <= set(schema.names)), ())
    return ("image", *masks, *targets)


def _operations(dataset: LMDBDataset[Any], crop: int | None) -> tuple[_Op, ...]:
    if "image" not in dataset.view.fields:
        if crop is not None:
            raise ValueError(f"{dataset.view.path}: there is no field image; leave crop out")
        return ()
    if crop is not None:
        return (RandomResizedCrop(crop),)
    image = dataset.schema["image"]
    has_one_kind = image.dtype is not None and None not in (image.shape or ())[2:]
    if not has_one_kind or likely_shape(dataset.view.store, image) is not None:
        return ()
    if "boxes" in dataset.schema.names:
        return (Letterbox(_LETTERBOX_SIDE),)
    return (RandomResizedCrop(_CROP_SIDE),)


def _raw_folder(raw: str, dataset: LMDBDataset[Any], ops: tuple[_Op, ...]) -> RawFolder:
    """The raw pictures, at the size that those of the store have in a batch."""
    size = (_CROP_SIDE, _CROP_SIDE)
    if ops:
        size = ops[0].size if isinstance(ops[0].size, tuple) else (ops[0].size, ops[0].size)
    elif "image" in dataset.view.fields:
        shape = likely_shape(dataset.view.store, dataset.schema["image"])
        size = size if shape is None else (shape[0], shape[1])
    is_cropped = any(isinstance(op, RandomResizedCrop) for op in ops)
    return RawFolder(raw, size, is_cropped=is_cropped)


def _shown(size: int | tuple[int, int]) -> str:
    """Sides as the command line calls them."""
    height, width = size if isinstance(size, tuple) else (size, size)
    return f"{width}x{height}"
