"""Stored values as a dataset shows them: tensors, arrays or pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from readers.reading.samples import Sample
from readers.reading.view import ImageAs
from readers.store.reader import StoreReader
from readers.store.samples import Samples
from readers.store.schema import Field, Schema


class Shows:
    """Makes of stored fields of a sample what the caller wants of them.

    Args:
        schema: The store's schema.
        names: The fields.
        image_as: What images are.

    Attributes:
        changes: The fields whose value is changed, and how.
    """

    def __init__(self, schema: Schema, names: Sequence[str], image_as: ImageAs) -> None:
        # What can be known from the schema is worked out once, here.
        shows = [(name, _show_of(schema[name], image_as)) for name in names]
        self.changes = [(name, show) for name, show in shows if show is not None]

    def __call__(self, sample: Sample) -> Sample:
        """The same dict, with its values changed."""
        for name, show in self.changes:
            sample[name] = show(sample[name])
        return sample


class SampleReader:
    """Takes fields of samples, as the caller wants them.

    Attributes:
        store: The store.
        fixed_bytes: See `Samples`.
        at: Gives the fields of the sample at a position in the store: the per-sample path. Raises
            ShardError when a shard or record is missing or damaged; the message names the sample.
        of: Gives the same out of bytes that are at hand; see `Samples.of`.
        tuples: Gives what gives tuples in place of dicts; see `Samples.tuples`.
    """

    def __init__(self, store: StoreReader, names: Sequence[str], image_as: ImageAs) -> None:
        changes = Shows(store.manifest.schema, names, image_as).changes
        samples = Samples(store, names, shows=dict(changes))
        self.store = store
        self.fixed_bytes = samples.fixed_bytes
        self.at, self.of, self.tuples = samples.quickest, samples.of, samples.tuples


def _show_of(field: Field, image_as: ImageAs) -> Callable[[Any], Any] | None:
    """What turns a field's stored value into the caller's; None when they are the same."""
    if field.kind == "scalar" and field.names is not None:
        return field.names.__getitem__
    if field.is_scalar or not field.is_array:
        return None
    if field.kind == "image" and image_as == "pil":
        return pil_image
    if image_as == "numpy":
        return None
    return _image_tensor if field.kind == "image" else torch.from_numpy


def _image_tensor(pixels: NDArray[Any]) -> torch.Tensor:
    # Turned before: torch takes four times as long for it.
    return torch.from_numpy(pixels.transpose(2, 0, 1))


def images_shown(pixels: torch.Tensor, image_as: ImageAs) -> Any:
    """The images of a batch, (sample, height, width, channel), as the caller wants them."""
    if image_as == "numpy":
        return pixels
    if image_as == "pil":
        return [pil_image(image) for image in pixels.numpy()]
    return pixels.permute(0, 3, 1, 2)


def pil_image(pixels: NDArray[Any]) -> Any:
    """(height, width, channel) pixels as a Pillow image.

    Raises:
        ValueError: Pillow has no mode for them.
    """
    from PIL import Image

    try:
        return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"image_as='pil': Pillow has no mode for {pixels.shape[2]} channels of "
            f"{pixels.dtype}; take 'tensor' or 'numpy'"
        ) from error
