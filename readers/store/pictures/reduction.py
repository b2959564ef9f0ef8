"""JPEGs at a half, a quarter or an eighth of their size: by how much, and which pixels those are.

A decoder of JPEG can leave out the finest frequencies of each block of 8 x 8 pixels, which costs
less than to compute and then average them. A pixel of the result stands for `factor` x `factor`
pixels of the file's grid, exactly; the last ones of a row and a column may reach beyond the
picture, whose sides are rounded up:

    file's grid   0       8       16      24  27          27 pixels, factor 8
    reduced       [   0   |   1   |   2   |   3   ]        4 pixels
"""

from __future__ import annotations

REDUCTIONS = (8, 4, 2)
"""By how much JPEG's decoder can divide both sides."""

REDUCED_MARGIN = 1.5
"""How many times the wanted size a reduced picture has at least. At 1 it is within 44.5 dB, here
within 47.1, at 2 within 51.4, and one half of the reductions are gone."""


def reduced_side(side: int, factor: int) -> int:
    """Pixels of a reduced picture along a side."""
    return -(-side // factor)


def reduced_starts(size: tuple[int, int], orientation: int, factor: int) -> tuple[int, int]:
    """Where a reduced picture that was turned upright begins, in pixels of the upright picture.

    What reaches beyond the picture lies at the end of the file's grid. Turned, that may be in front
    of the picture: then it begins at less than 0.

    Args:
        size: (height, width) of the upright picture.
        orientation: EXIF orientation of the file, in [1, 9).
        factor: By which its sides were divided.

    Returns:
        Of rows and of columns.
    """
    height, width = size
    top = -(-height % factor) if orientation in (3, 4, 7, 8) else 0
    left = -(-width % factor) if orientation in (2, 3, 6, 7) else 0
    return top, left
