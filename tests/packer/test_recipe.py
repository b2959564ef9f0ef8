"""Settings of a build, checked once."""

from __future__ import annotations

import json

import numpy as np
import pytest

from packer.recipe import Recipe


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, r"size must be in \[1, 65536\) pixels; got 0"),
        ({"size": 65_536}, r"size must be in \[1, 65536\) pixels; got 65536"),
        ({"fit": "fill"}, "fit must be one of short, long, letterbox, stretch, crop; got 'fill'"),
        (
            {"image": "jpg"},
            "image must be one of raw, jpeg, png, webp, original, smart, proportion; got 'jpg'",
        ),
        ({"scaling": "nice"}, "scaling must be one of fast, exact; got 'nice'"),
        ({"max_side": 0}, r"max_side must be in \[1, 65536\) pixels; got 0"),
        ({"size": 8, "max_side": 7}, "max_side=7 is below size=8"),
        ({"size": (0, 8), "fit": "crop"}, r"size must be in \[1, 65536\) pixels; got \(0, 8\)"),
        (
            {"size": (1, 2, 3)},
            r"size must be a side in pixels, or \(height, width\); got \(1, 2",
        ),
        ({"size": "224"}, r"size must be a side in pixels, or \(height, width\); got '224'"),
        (
            {"size": (8, 9)},
            r"size=\(8, 9\) is a rectangle, which fit='short' cannot bring images",
        ),
        ({"size": (8, 9), "fit": "long"}, r"size=\(8, 9\) is a rectangle.*give fit='crop'"),
        ({"size": (8, 9), "fit": "crop", "max_side": 8}, r"max_side=8 is below size=\(8, 9\)"),
        ({"max_side": 8, "image": "original"}, "max_side=8 changes the pixels, but image='orig"),
        ({"quality": 80}, "quality=80 is of no use with image='raw'; it is for jpeg, webp, smart"),
        ({"image": "png", "quality": 80}, "quality=80 is of no use with image='png'"),
        ({"image": "jpeg", "quality": 0}, r"quality must be in \[1, 100\]; got 0"),
        ({"image": "webp", "quality": 101}, r"quality must be in \[1, 100\]; got 101"),
        ({"image": "smart", "raw_share": 0.5}, "raw_share=0.5 is of no use with image='smart'"),
        ({"image": "proportion", "raw_share": 1.5}, r"raw_share must be in \[0, 1\]; got 1.5"),
        ({"image": "jpeg", "raw_below": 5}, "raw_below=5 is of no use with image='jpeg'"),
        ({"image": "smart", "raw_below": -1}, "raw_below must be at least 0; got -1"),
        ({"image": "jpeg", "mode": "rgba"}, "mode='rgba' needs a kind of file with alpha"),
        ({"image": "smart", "mode": "rgba"}, "mode='rgba' needs a kind of file with alpha"),
        ({"target_bytes": 10**9, "image": "jpeg"}, "target_bytes chooses image and raw_share"),
        ({"limit": 0}, "limit must be at least 1; got 0"),
        ({"shuffle": -1}, r"shuffle must be in \[0, 2\*\*64\); got -1"),
        ({"shuffle": 2**64}, r"shuffle must be in \[0, 2\*\*64\)"),
        ({"stratify": True}, "stratify=True is about splits or limit"),
        (
            {"splits": (("a", 0.5), ("b", 0.4))},
            "splits must be different names with shares above 0",
        ),
        ({"splits": (("a", 0.5), ("a", 0.5))}, "splits must be different names"),
        ({"splits": (("a", 1.0), ("b", 0.0))}, "splits must be different names"),
        ({"splits": (("", 1.0),)}, "splits must be different names"),
        ({"target_bytes": 0}, "target_bytes must be at least 1; got 0"),
        ({"target_bytes": 10**9, "mode": "rgba"}, "mode='rgba' needs a kind of file with alpha"),
        ({"mode": "bgr"}, "mode must be one of rgb, gray, rgba, unchanged; got 'bgr'"),
        ({"size": 8, "image": "original"}, "size=8 changes the pixels, but image='original'"),
        ({"shard_bytes_max": 2**20 - 1}, r"shard_bytes_max must be at least 1048576 \(1MiB\)"),
        ({"pixels_max": 0}, "pixels_max must be at least 1; got 0"),
        ({"fit": "crop"}, "fit='crop' is about size; give that as well, or drop the fit"),
        ({"scaling": "exact"}, "scaling='exact' is about size or max_side; give one of them"),
        ({"stratify": True}, "stratify=True is about splits or limit; give one of them"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(settings, message):
    """With its name, its limits and the value given."""
    with pytest.raises(ValueError, match=f"^{message}"):
        Recipe(**settings)


def test_the_recipe_of_an_older_store_is_taken_as_it_is():
    """It may name a fit that never was, which changed nothing; what is not known is refused."""
    old = {**Recipe().as_dict(), "fit": "crop", "scaling": "exact"}
    assert Recipe.of_manifest(old) == Recipe()
    assert Recipe.of_manifest({**old, "size": 8}) == Recipe(size=8, fit="crop", scaling="exact")
    with pytest.raises(TypeError, match="sharpen"):
        Recipe.of_manifest({**old, "sharpen": 1})


def test_the_limits_themselves_are_allowed():
    """Smallest and largest values; and the defaults keep every pixel of every image."""
    Recipe(size=1, shard_bytes_max=2**20, pixels_max=1)
    Recipe(size=65_535)
    Recipe(size=8, max_side=8)
    Recipe(size=(8, 65_535), fit="stretch")
    Recipe(image="proportion", raw_share=0)
    Recipe(image="proportion", raw_share=1, quality=1)
    Recipe(image="smart", raw_below=0, quality=100)
    assert Recipe().as_dict() == {
        "size": None,
        "fit": "short",
        "max_side": None,
        "scaling": "fast",
        "image": "raw",
        "quality": None,
        "raw_share": None,
        "raw_below": None,
        "target_bytes": None,
        "mode": "rgb",
        "shard_bytes_max": 2**30,
        "pixels_max": 2**28,
        "clip_boxes": False,
        "include": [],
        "exclude": [],
        "limit": None,
        "splits": [],
        "stratify": False,
        "shuffle": None,
    }


def test_a_rectangle_is_height_and_width_and_a_square_its_side():
    """As torchvision has it; the manifest keeps a list, of which the same recipe is made again."""
    recipe = Recipe(size=(224, 320), fit="crop")
    assert (recipe.size, recipe.stored_size) == ((224, 320), (224, 320))
    assert recipe.as_dict()["size"] == [224, 320]
    assert Recipe(**json.loads(json.dumps(recipe.as_dict()))) == recipe
    assert Recipe(size=(224, 224)) == Recipe(size=224) == Recipe(size=np.int64(224))
    assert type(Recipe(size=np.int64(224)).size) is int
    assert Recipe(size=224).stored_size is None
    assert Recipe(size=224, fit="letterbox").stored_size == (224, 224)


def test_a_setting_that_is_of_use_has_its_default():
    """The manifest says what was done, not that nothing was said; and a recipe is made of it
    again."""
    assert (Recipe(image="jpeg").quality, Recipe(image="webp").quality) == (90, 90)
    assert (Recipe(image="smart").raw_below, Recipe(image="proportion").raw_share) == (2**18, 0.5)
    assert Recipe(target_bytes=10**9).quality == 90
    for image in ("raw", "jpeg", "png", "webp", "original", "smart", "proportion"):
        recipe = Recipe(image=image)
        assert Recipe(**recipe.as_dict()) == recipe
    chosen = Recipe(
        splits=(("a", 0.5), ("b", 0.5)), include=("x*",), exclude=("y",), limit=3, stratify=True
    )
    assert Recipe(**json.loads(json.dumps(chosen.as_dict()))) == chosen
