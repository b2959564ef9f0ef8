"""COCO's panoptic files: what the values of a mask mean, and the mask as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.errors import BuildError
from packer.pictures.forms import encoded
from packer.sources.coco.panoptic import PANOPTIC_FIELD, SEGMENT_ID
from packer.stores.export.job import Job

NAME = PANOPTIC_FIELD.name
_VALUES_END = 2**24


def is_panoptic(job: Job) -> bool:
    """Whether a store has masks of segments, and objects that say what these are."""
    field = job.field(NAME)
    is_mask = field is not None and (field.kind, field.dtype) == ("mask", PANOPTIC_FIELD.dtype)
    return is_mask and {"labels", "attributes"} <= job.object_names


def segment_id(attributes: dict[str, Any]) -> int | None:
    """The value of an object's pixels in the mask; None where it does not say."""
    found = attributes.get(SEGMENT_ID)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def mask_file(ids: NDArray[np.int32]) -> bytes:
    """A PNG in RGB, where a value is R + 256 G + 65536 B; ids: (height, width).

    Raises:
        BuildError: A value does not fit.
    """
    if ids.min(initial=0) < 0 or ids.max(initial=0) >= _VALUES_END:
        raise BuildError(
            f"a panoptic mask has values from {ids.min()} to {ids.max()}; COCO's have [0, 2^24). "
            "Give another --as"
        )
    colors = np.stack([ids & 255, ids >> 8 & 255, ids >> 16 & 255], axis=-1).astype(np.uint8)
    return encoded(colors, "png", None, "rgb")
