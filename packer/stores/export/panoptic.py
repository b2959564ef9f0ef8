"""COCO's panoptic files: what the values of a mask mean, and the mask as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.sources.coco.panoptic import PANOPTIC_FIELD, SEGMENT_ID
from packer.stores.export.job import Job
from readers.store.codecs import codec_of
from readers.store.schema import Field

NAME = PANOPTIC_FIELD.name
_PNG = Field(name=NAME, kind="mask", dtype="int32", shape=(None, None), codec="png")


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
    """A PNG in RGB, where a value is R + 256 G + 65536 B, as stores have it; ids: (height, width).

    Raises:
        CodecError: A value does not fit.
    """
    _, data = codec_of(_PNG).encode(_PNG, ids)
    return bytes(data)
