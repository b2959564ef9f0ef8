"""Settings of a build, checked once."""

from __future__ import annotations

import pytest

from packer.recipe import Recipe


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, r"size must be in \[1, 65536\) pixels; got 0"),
        ({"size": 65_536}, r"size must be in \[1, 65536\) pixels; got 65536"),
        ({"fit": "fill"}, "fit must be one of short, long, letterbox, stretch, crop; got 'fill'"),
        ({"image": "jpg"}, "image must be one of raw, original; got 'jpg'"),
        ({"mode": "bgr"}, "mode must be one of rgb, gray, rgba, unchanged; got 'bgr'"),
        ({"size": 8, "image": "original"}, "size=8 changes the pixels, but image='original'"),
        ({"shard_bytes_max": 2**20 - 1}, r"shard_bytes_max must be at least 1048576 \(1MiB\)"),
        ({"pixels_max": 0}, "pixels_max must be at least 1; got 0"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(settings, message):
    """With its name, its limits and the value given."""
    with pytest.raises(ValueError, match=f"^{message}"):
        Recipe(**settings)


def test_the_limits_themselves_are_allowed():
    """Smallest and largest values; and the defaults keep every pixel of every image."""
    Recipe(size=1, shard_bytes_max=2**20, pixels_max=1)
    Recipe(size=65_535)
    assert Recipe().as_dict() == {
        "size": None,
        "fit": "short",
        "image": "raw",
        "mode": "rgb",
        "shard_bytes_max": 2**30,
        "pixels_max": 2**28,
    }
