"""What the manifest says of all samples is what they are."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import Image

from packer.building.build import build
from packer.pictures.statistics import EDGES, PixelCounter, Tally, statistics
from packer.recipe import Recipe
from readers.store.manifest import read_manifest
from readers.store.reader import open_store
from readers.store.record import RecordReader


def tally_of(*images):
    tally = Tally()
    counter = PixelCounter(tally)
    for image in images:
        counter.add(image, image.shape[:2])
    counter.flush()
    return tally


def test_means_and_deviations_are_those_of_the_pixels():
    """Of two shards as of one, with white as 1, each image counting alike."""
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (9, 7, 3), np.uint8), rng.integers(0, 99, (20, 30, 3), np.uint8)]
    expected = [image.reshape(-1, 3) / 255 for image in images]
    means = np.mean([image.mean(axis=0) for image in expected], axis=0)
    squares = np.mean([(image**2).mean(axis=0) for image in expected], axis=0)
    for parts in ([tally_of(*images)], [tally_of(images[0]), tally_of(images[1])]):
        found = statistics(parts)
        assert found["channel_mean"] == pytest.approx(means, abs=2e-6)
        assert found["channel_std"] == pytest.approx(np.sqrt(squares - means**2), abs=2e-6)


def test_16_bits_are_counted_in_parts_of_their_own_white():
    """A constant image of half white has a mean of one half and no deviation."""
    found = statistics([tally_of(np.full((4, 4, 1), 32768, np.uint16))])
    assert found["channel_mean"] == [pytest.approx(0.500008, abs=1e-6)]
    assert found["channel_std"] == [0.0]


def test_many_images_add_up_as_one_after_the_other():
    """Of several shapes by turns, deep or not: to the last bit of the sums."""
    rng = np.random.default_rng(3)
    for dtype, white in ((np.uint8, 255), (np.uint16, 65535)):
        shapes = [(8, 8, 3)] * 300 + [(28, 28, 3), (60, 90, 3)] * 40 + [(1, 1, 3)] * 3
        images = [rng.integers(0, white + 1, shape).astype(dtype) for shape in shapes]
        one_by_one = Tally()
        for image in images:
            assert one_by_one.count(image, image.shape[:2])
            mean, deviation = (found[:, 0] for found in cv2.meanStdDev(image))
            square = (mean**2 + deviation**2) / white**2
            one_by_one.add_means((mean / white)[:, None], square[:, None])
        together = tally_of(*images)
        assert together.image_count == one_by_one.image_count == len(images)
        assert (together.sums, together.square_sums) == (one_by_one.sums, one_by_one.square_sums)


def test_images_that_differ_in_channels_have_no_mean():
    """A number that means nothing is worse than none; sizes are counted all the same."""
    gray, color = np.zeros((40, 4, 1), np.uint8), np.zeros((4, 4, 3), np.uint8)
    for parts in ([tally_of(gray, color)], [tally_of(gray), tally_of(color)]):
        found = statistics(parts)
        assert "channel_mean" not in found
        assert sum(found["sizes"]["stored"]) == 2
    assert statistics([Tally()])["sizes"]["stored"] == [0] * len(EDGES)
    assert statistics([]) == {}


def test_long_sides_are_counted_from_edge_to_edge():
    """An edge itself belongs to what is above it; the last has no end."""
    sides = [1, 31, 32, 255, 256, 8191, 8192, 9000]
    tally = Tally()
    for side in sides:
        tally.count(np.zeros((1, 8, 1), np.uint8), (side, 1))
    found = dict(zip(EDGES, tally.original, strict=True))
    assert {edge: n for edge, n in found.items() if n} == {
        0: 2,
        32: 1,
        192: 1,
        256: 1,
        4096: 1,
        8192: 2,
    }
    assert tally.stored[0] == len(sides)


def test_a_large_image_counts_by_some_of_its_rows():
    """Evenly spaced, so that a picture of two halves is counted as such."""
    image = np.zeros((2000, 500, 3), np.uint8)
    image[1000:] = 200
    found = statistics([tally_of(image)])
    assert found["channel_mean"] == pytest.approx([100 / 255] * 3, abs=0.004)


@pytest.mark.parametrize("recipe", [Recipe(), Recipe(size=8, fit="crop", image="png")])
def test_a_store_holds_the_statistics_of_its_pixels(tmp_path, raw, recipe):
    """However many shards and workers there were, and however they are stored."""
    out = tmp_path / "out.lmdb"
    build(raw, out, recipe, worker_count=1)
    store = open_store(out)
    reader = RecordReader(store.layout, ["image"])
    shard = next(store.shards())
    images = [reader.unpack(shard.record(at))["image"] / 255 for at in range(12)]
    pixels = np.concatenate([image.reshape(-1, 3) for image in images])
    found = read_manifest(out).statistics
    assert found["channel_mean"] == pytest.approx(pixels.mean(axis=0), abs=2e-6)
    assert found["channel_std"] == pytest.approx(pixels.std(axis=0), abs=2e-6)
    assert found["class_counts"] == [4, 4, 4]
    assert found["sizes"]["original"][0] == found["sizes"]["stored"][0] == 12


def test_only_decoded_pixels_count_for_original_files(tmp_path):
    """A file that is kept is counted as it will be read: upright, converted."""
    (tmp_path / "raw").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20), (255, 0, 51)).save(tmp_path / "raw/1.png", exif=exif)
    build(tmp_path / "raw", tmp_path / "o.lmdb", Recipe(image="original"), worker_count=1)
    found = read_manifest(tmp_path / "o.lmdb").statistics
    assert found["channel_mean"] == [1.0, 0.0, 0.2]
    assert found["channel_std"] == [0.0, 0.0, 0.0]
    assert found["sizes"]["stored"][1] == 1
