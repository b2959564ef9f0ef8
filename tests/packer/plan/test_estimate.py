"""Sizes that are told before a build are those after it, for each way of storing images."""

from __future__ import annotations

import io
import json

import cv2
import numpy as np
import pytest
from PIL import Image

from packer.building.build import build
from packer.errors import BuildError, NoSpaceError
from packer.plan.cost import estimate_costs, missing_space
from packer.plan.estimate import recipe_for_target
from packer.plan.shards import make_plan
from packer.recipe import Recipe
from packer.sources import SourceOptions, scan_source
from readers.store.manifest import read_manifest

COUNT = 150


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """JPEGs of many sizes and of much or little detail, in two classes. Not to be changed."""
    folder = tmp_path_factory.mktemp("photos") / "raw"
    for at in range(COUNT):
        rng = np.random.default_rng(at)
        height, width = (int(side) for side in rng.integers(120, 260, 2))
        grain = int(rng.integers(4, 40))
        small = rng.integers(0, 256, (height // grain + 2, width // grain + 2, 3), np.uint8)
        pixels = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
        path = folder / ("ant", "bee")[at % 2] / f"{at}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "JPEG", quality=int(rng.integers(70, 96)))
        path.write_bytes(stream.getvalue())
    return folder


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe(size=96),
        Recipe(image="jpeg", size=128, quality=60),
        Recipe(image="png", size=96),
        Recipe(image="webp", size=96),
        Recipe(image="original"),
        Recipe(image="smart", raw_below=90_000),
        Recipe(image="proportion", raw_share=0.3, size=128),
    ],
    ids=lambda recipe: f"{recipe.image}-{recipe.size}-{recipe.fit}-{recipe.max_side}",
)
def test_an_estimate_is_within_a_tenth_of_the_store(tmp_path, photos, recipe):
    """Of every policy, and the same each time."""
    scan = scan_source(photos, SourceOptions())
    plan = make_plan(scan, recipe)
    assert make_plan(scan, recipe).byte_count == plan.byte_count
    report = build(photos, tmp_path / "out.lmdb", recipe, worker_count=1)
    assert report.bytes == pytest.approx(plan.byte_count, rel=0.1)


@pytest.mark.parametrize(
    ("target", "image"),
    [(100_000_000, "raw"), (9_000_000, "proportion"), (1_200_000, "jpeg")],
)
def test_a_budget_is_kept_and_used(tmp_path, photos, target, image):
    """The recipe says what it led to; a build from that recipe is the same store."""
    out = tmp_path / "out.lmdb"
    report = build(photos, out, Recipe(size=128, target_bytes=target), worker_count=1)
    assert report.bytes <= target
    recipe = read_manifest(out).recipe
    assert (recipe["image"], recipe["target_bytes"]) == (image, None)
    if image == "proportion":
        assert report.bytes > 0.85 * target
        assert 0 < recipe["raw_share"] < 1
        assert recipe["quality"] == 90
    if image == "jpeg":
        assert recipe["quality"] < 90
    again = build(photos, tmp_path / "again.lmdb", Recipe(**recipe), worker_count=1)
    assert again.content_sha256 == report.content_sha256


def test_a_budget_that_nothing_fits_is_refused(photos):
    """Before a pixel is stored, with what would help."""
    scan = scan_source(photos, SourceOptions())
    with pytest.raises(BuildError, match=r"even JPEG of quality 30 takes about .*--max-side"):
        make_plan(scan, Recipe(size=128, target_bytes=100_000))


def test_a_budget_takes_the_best_of_the_dial():
    """Raw where it fits; else as much of it as fits; else the best quality that fits."""
    sizes = {"raw": 1000, 90: 300, 80: 200, 70: 150, 60: 120, 50: 110, 40: 105, 30: 100}

    def size(recipe):
        if recipe.image == "proportion":
            return sizes[90] + recipe.raw_share * (1000 - sizes[90])
        return sizes[recipe.quality or recipe.image]

    def chosen(target, **settings):
        found = recipe_for_target(None, Recipe(target_bytes=target, **settings), size)
        assert found.target_bytes is None
        return found.image, found.raw_share, found.quality

    assert chosen(1031) == ("raw", None, None)
    assert chosen(1000) == ("proportion", 0.957, 90)
    assert chosen(312) == ("proportion", 0.003, 90)
    assert chosen(309) == ("jpeg", None, 80)
    assert chosen(104) == ("jpeg", None, 30)
    assert chosen(800, quality=90) == ("proportion", 0.68, 90)
    assert recipe_for_target(None, Recipe(size=8), size) == Recipe(size=8)


@pytest.mark.slow
def test_a_plan_says_what_each_policy_costs(tmp_path, photos):
    """Sizes as the estimates, all that the settings allow, and one that is recommended."""
    costs = estimate_costs(photos, tmp_path / "out.lmdb", Recipe(size=96))
    found = {each.image: each for each in costs.policies}
    assert list(found) == ["raw", "jpeg", "png", "webp", "smart", "proportion"]
    scan = scan_source(photos, SourceOptions())
    for name, each in found.items():
        assert each.bytes == make_plan(scan, Recipe(size=96, image=name)).byte_count
        assert each.build_s > 0
        assert each.images_per_s_per_core > 0
        assert each.fits_disk
        assert each.fits_memory
    assert found["raw"].images_per_s_per_core > found["jpeg"].images_per_s_per_core
    assert costs.recommended == "raw"
    assert "fits into memory" in costs.reason
    assert (costs.image_count, costs.target) == (COUNT, str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    whole = {each.image for each in estimate_costs(photos, tmp_path / "o").policies}
    assert "original" in whole


def test_plan_prints_a_table_or_json(tmp_path, photos, packer):
    """With a budget, what it leads to is in the table and recommended."""
    done = packer("plan", photos, tmp_path / "out.lmdb", "--size", "96")
    assert done.returncode == 0, done.stderr
    for text in ("--image raw: it fits into memory", "jpeg, q90", "proportion, 50% raw, q90"):
        assert text in done.stdout
    done = packer("plan", photos, tmp_path / "o", "--size", "128", "--target-size", "9MB", "--json")
    found = json.loads(done.stdout)
    assert found["recommended"] == "proportion"
    assert found["policies"][-1]["bytes"] <= 9_000_000
    assert found["policies"][-1]["raw_share"] not in (None, 0.5)
    assert packer("plan", photos, "--quality", "80").returncode == 2


def test_a_store_without_room_is_refused_before_it_is_begun(tmp_path, photos, monkeypatch):
    """By the same figures, with what would make it fit."""
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr("packer.plan.cost.shutil.disk_usage", lambda path: usage)
    assert missing_space(952_380, tmp_path / "out.lmdb") is None
    with pytest.raises(NoSpaceError, match=r"1,000,000 free.*--target-size 952380 chooses"):
        build(photos, tmp_path / "out.lmdb", Recipe())
    costs = estimate_costs(photos, tmp_path / "out.lmdb", Recipe(size=256))
    assert costs.recommended is None or not costs.policies[0].fits_disk
    assert "NO ROOM" in costs.summary()


def test_a_folder_that_cannot_be_written_is_named(photos, monkeypatch, tmp_path):
    """The probe needs a place; OUT may name another."""

    def refused(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("packer.plan.cost.tempfile.NamedTemporaryFile", refused)
    with pytest.raises(BuildError, match=r"cannot be written to .*Permission denied.*as OUT"):
        estimate_costs(photos, tmp_path / "out.lmdb")
