"""A raw item -> the values of its sample: image, masks and objects, on one grid of pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from packer.files.masks import read_mask
from packer.files.sizes import picture_bytes_max
from packer.items.annotations import unpack_annotations
from packer.items.raw_item import RawFile, RawItem
from packer.pictures.mask_grid import place_mask
from packer.pictures.objects import PlacedObjects, place_objects
from packer.pictures.prepare import Prepared, prepare_image, prepare_pixels
from packer.raw.containers import Containers
from packer.raw.files import RawFileError
from packer.raw.read_ahead import Files, image_file, read_files
from packer.recipe import Recipe
from packer.wording import readable_path
from readers.store.codecs import OriginalImage
from readers.store.errors import ImageError
from readers.store.schema import Schema


@dataclass
class MadeSample:
    """What is stored of one item.

    Attributes:
        values: Of all fields, by name.
        objects: Its annotated objects.
        image: The image, and where it came from.
    """

    values: dict[str, Any]
    objects: PlacedObjects
    image: Prepared


class SampleMaker:
    """Makes samples of raw items; keeps a file that holds many of them open meanwhile.

    Args:
        root: Folder that the items' paths are relative to.
        schema: The store's schema.
        recipe: The settings.
        mask_colors: Colour of each value of the masks, where their files hold colours.
        containers: Reads items of files that hold many. It is left open for the next shard, unless
            an error ends this one. None opens and closes its own.
    """

    def __init__(
        self,
        root: bytes,
        schema: Schema,
        recipe: Recipe,
        mask_colors: tuple[tuple[int, int, int], ...],
        containers: Containers | None = None,
    ) -> None:
        self._root = root
        self._schema = schema
        self._recipe = recipe
        self._mask_colors = mask_colors
        self._lists = {
            field.name: field.dtype
            for field in schema.fields
            if field.kind in ("label", "array") and field.shape
        }
        self._is_kept_open = containers is not None
        self._bytes_max = picture_bytes_max(recipe.pixels_max)
        self._containers = containers or Containers(root, self._bytes_max)

    def __enter__(self) -> SampleMaker:
        self._containers.close_if_changed()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or not self._is_kept_open:
            self._containers.close()

    def make(self, item: RawItem, files: Files | None = None) -> MadeSample:
        """The sample of one item.

        Args:
            item: The item.
            files: What was read of its files. None reads them now.

        Raises:
            ImageError: A picture of it cannot be decoded, or its annotations are not about it.
            RawFileError: A file of it cannot be read, or is not the one that the plan saw.
        """
        recipe = self._recipe
        if files is None:
            files = read_files(self._root, item, self._bytes_max)
        prepared = self._prepared(item, files)
        image: Any = prepared.image
        if isinstance(image, bytes):
            image = OriginalImage(image, prepared.size, prepared.dtype, prepared.orientation)
        values: dict[str, Any] = {
            "key": item.key,
            "image": image,
            "original_size": np.array(prepared.original_size, np.int32),
            "transform": prepared.transform,
        }
        objects = PlacedObjects({})
        if item.annotations:
            objects = place_objects(
                unpack_annotations(item.annotations),
                prepared,
                self._schema.fields,
                clips_boxes=recipe.clip_boxes,
            )
            values.update(objects.values)
        for name, file in item.masks.items():
            field = self._schema[name]
            try:
                ids = read_mask(_data(files, file), self._mask_colors, field, recipe.pixels_max)
                values[name] = place_mask(ids, prepared.plan, prepared.turn, field.ignore or 0)
            except ImageError as error:
                raise ImageError(f"mask {readable_path(file.path)}: {error}") from error
            except RawFileError as error:
                reason = f"mask {readable_path(file.path)}: {error}"
                raise RawFileError(reason, may_pass=error.may_pass) from error
        values.update(item.values)
        for name, dtype in self._lists.items():
            if name in item.values:
                values[name] = np.array(item.values[name], dtype)
        return MadeSample(values, objects, prepared)

    def _prepared(self, item: RawItem, files: Files) -> Prepared:
        if item.member is None:
            return prepare_image(_data(files, image_file(item)), self._recipe, item.key)
        found = self._containers.read(item)
        if isinstance(found, bytes):
            return prepare_image(found, self._recipe, item.key)
        return prepare_pixels(found, self._recipe, item.key)


def _data(files: Files, file: RawFile) -> bytes:
    data = files[file]
    if isinstance(data, RawFileError):
        raise data
    return data
