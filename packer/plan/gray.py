"""Whether the images of a build are gray: told before the work, as colour takes three times it."""

from __future__ import annotations

from packer.items.raw_item import Scan
from packer.plan.sampling import Sampled, SampleSize, sample_of
from packer.recipe import Recipe
from packer.wording import count_text
from readers.store.errors import ImageError
from readers.store.pictures.image_header import read_header

_LOOKED_AT = SampleSize(16, 2**26)

_GRAY_MODES = ("1", "L", "LA", "I", "I;16")
"""What Pillow calls pictures without colour."""

_GRAY_CONTAINER = "idx"
"""It holds gray images alone."""


def gray_ahead_text(scan: Scan, recipe: Recipe) -> str:
    """That images are gray and would be stored in colour, with the option; empty where not.

    A few files are looked at, evenly spaced: whoever has others among them is told how many.
    """
    if recipe.mode != "rgb" or not scan.items:
        return ""
    if all(item.member and item.member.container == _GRAY_CONTAINER for item in scan.items):
        found = "the images are gray"
    else:
        looked_at = sample_of(scan, _LOOKED_AT)
        if not looked_at or not all(_is_gray(one, recipe) for one in looked_at):
            return ""
        found = f"all images looked at are gray ({count_text(len(looked_at), 'file')})"
    return (
        f"{found} and will be stored in three channels; --mode gray stores one, and pixels then "
        "take a third of the room"
    )


def _is_gray(sampled: Sampled, recipe: Recipe) -> bool:
    if not isinstance(sampled.data, bytes):
        return bool(sampled.data.shape[2] == 1)
    try:
        return read_header(sampled.data, pixels_max=recipe.pixels_max).mode in _GRAY_MODES
    except ImageError:
        return False
