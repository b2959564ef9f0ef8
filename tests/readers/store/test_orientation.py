"""A picture is turned as its EXIF block says to show it."""

from __future__ import annotations

import numpy as np
import pytest

from readers.store.pictures.orientation import turn_upright
from tests.readers.store.pictures import TURNS, noise


@pytest.mark.parametrize("channel_count", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turning_moves_pixels_and_keeps_channels(channel_count, dtype, orientation):
    """Every kind of array that a decoder returns can be turned."""
    pixels = noise(channel_count, dtype)
    turned = turn_upright(pixels, orientation)
    assert turned.dtype == dtype
    assert np.array_equal(turned, TURNS[orientation](pixels))
