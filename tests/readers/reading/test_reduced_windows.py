"""Crops of large JPEGs that are decoded at a part of their size are the crops all the same."""

from __future__ import annotations

import importlib.util
import io
import math
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from packer.pictures.prepare import prepare_image
from packer.recipe import Recipe
from readers.dataset import LMDBDataset
from readers.ops import (
    Letterbox,
    RandomAffine,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation90,
    Resize,
)
from readers.ops.image_plan import compile_ops
from readers.reading.buffers import take_plain
from readers.reading.filling import StoreFiller
from readers.reading.jpeg_window import load
from readers.reading.worked_images import ImageOps
from readers.stats import Watch
from readers.store.codecs import OriginalImage
from readers.store.pictures import decode
from readers.store.pictures.image_header import read_header
from readers.store.pictures.orientation import turn_upright, upright_size
from readers.store.schema import Field

SKIMAGE = importlib.util.find_spec("skimage")
LARGE = Path(__file__).resolve().parents[4] / "shared" / "data" / "photos-large"
PHOTOS = ("astronaut.png", "coffee.png", "chelsea.png", "rocket.jpg", "motorcycle_left.png")
SIDE = 40

IMAGE = Field(
    name="image", kind="image", dtype="uint8", shape=(None, None, 3), codec="mixed", mode="rgb"
)
BOXES = Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4))
MASK = Field(name="mask", kind="mask", dtype="uint8", shape=(None, None))


def photos():
    """Real photos, where they are, (height, width, 3) uint8."""
    if SKIMAGE is None:
        pytest.skip("scikit-image, whose photos this test reads, is not installed")
    folder = Path(SKIMAGE.submodule_search_locations[0]) / "data"
    return [np.asarray(Image.open(folder / name).convert("RGB")) for name in PHOTOS]


def drawn(height, width, seed=0):
    """A picture without fine detail, but with colours that change everywhere."""
    small = np.random.default_rng(seed).integers(0, 256, (7, 9, 3)).astype(np.uint8)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)


def jpeg(pixels, orientation=1, mode="RGB", **options):
    """The upright picture as a file that has to be turned by its orientation."""
    back = {6: 8, 8: 6}.get(orientation, orientation)
    stored = np.ascontiguousarray(turn_upright(pixels, back))
    stream = io.BytesIO()
    Image.fromarray(stored).convert(mode).save(stream, "JPEG", quality=95, **options)
    return OriginalImage(stream.getvalue(), pixels.shape, "uint8", orientation)


def batch_of(path, ops, count, *, in_worker=False, epoch=0, interpolation="linear"):
    """All samples of a store in one batch."""
    worked = ImageOps("image", compile_ops(ops, interpolation=interpolation), 3)
    filler = StoreFiller(LMDBDataset(path).view, worked)
    if in_worker:
        filler.enter_worker()
    return filler.fill(np.arange(count), epoch, take_plain, Watch())


def psnr(a, b):
    error = np.square(np.asarray(a, float) - np.asarray(b, float)).mean()
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


@pytest.fixture
def reduced_by(monkeypatch):
    """What the sides of each picture that is decoded whole are divided by, in turn."""
    found = []
    decode_image = decode.decode_image

    def watched(*args, reduction=1, **settings):
        found.append(reduction)
        return decode_image(*args, reduction=reduction, **settings)

    monkeypatch.setattr(decode, "decode_image", watched)
    return found


def nearness(path, ops, epoch=0):
    """PSNR of each reduced crop of a store to the same window with all pixels averaged."""
    whole = [sample["image"] for sample in LMDBDataset(path, image_as="numpy")]
    plan = compile_ops(ops)
    sizes = np.array([pixels.shape[:2] for pixels in whole])
    params = plan.draw(*sizes.T, 3, epoch, np.arange(len(whole)))
    batch = batch_of(path, ops, len(whole), epoch=epoch)["image"].permute(0, 2, 3, 1).numpy()
    found = []
    for at, pixels in enumerate(whole):
        if params.reductions[at] > 1:
            top, left, height, width = params.windows[at]
            window = pixels[top : top + height, left : left + width]
            exact = cv2.resize(window, plan.size[::-1], interpolation=cv2.INTER_AREA)
            found.append(psnr(batch[at], exact))
    return found


def test_a_crop_of_a_photo_is_as_near_to_exact_as_a_build_comes(tmp_path, write_store):
    """Of small photos at tiny sizes, which lose most: on average and at least."""
    pictures = photos()
    path = write_store(tmp_path / "s", [IMAGE], [{"image": jpeg(p)} for p in pictures])
    ours, of_build = [], []
    for side in (96, 64, 40, 24):
        ours += nearness(path, [Resize(side)])
        for picture in pictures:
            data = jpeg(picture).data
            fast, exact = (
                prepare_image(data, Recipe(size=side, fit="stretch", scaling=scaling)).pixels
                for scaling in ("fast", "exact")
            )
            of_build.append(psnr(fast, exact))
    assert len(ours) == len(of_build) == 20
    assert np.mean(ours) > np.mean(of_build)
    assert min(ours) >= min(of_build) - 0.1
    cropped = nearness(path, [RandomResizedCrop(32, scale=(0.3, 1))])
    assert len(cropped) == 5
    assert np.mean(cropped) > 42


@pytest.mark.skipif(not LARGE.is_dir(), reason="the collected real data is not there")
def test_a_crop_of_a_large_photo_is_within_what_a_build_states(tmp_path, write_store):
    """At the size of training: 47 dB on average, and 42 at least."""
    files = [path.read_bytes() for path in sorted(LARGE.glob("*.jpg"))]
    samples = []
    for data in files:
        header = read_header(data, pixels_max=10**8)
        size = (header.height, header.width, 3)
        samples.append({"image": OriginalImage(data, size, "uint8", header.orientation)})
    path = write_store(tmp_path / "s", [IMAGE], samples)
    found = [psnr for epoch in range(3) for psnr in nearness(path, [RandomResizedCrop(224)], epoch)]
    assert len(found) == 3 * len(files)
    assert np.mean(found) > 47
    assert min(found) > 42


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_that_has_to_be_turned_is_reduced_in_its_place(
    tmp_path, write_store, orientation, reduced_by
):
    """Its padding is then at another side: each of the eight ways, of sides that do not divide."""
    pictures = [drawn(611, 815, 1), drawn(805, 603, 2), drawn(400, 397, 3)]
    samples = [{"image": jpeg(p, orientation)} for p in pictures]
    path = write_store(tmp_path / "s", [IMAGE], samples)
    assert upright_size(*pictures[0].shape[:2], 1) == (611, 815)
    found = batch_of(path, [RandomResizedCrop(SIDE, scale=(0.6, 1))], 3)["image"]
    assert min(reduced_by) > 1
    exact = batch_of(path, [RandomResizedCrop(SIDE, scale=(0.6, 1), scaling="exact")], 3)["image"]
    assert reduced_by[3:] == [1, 1, 1]
    for a, b in zip(found, exact, strict=True):
        assert psnr(a, b) > 40


@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"progressive": True}])
def test_a_worker_decodes_the_window_alone_and_finds_the_same(
    tmp_path, write_store, options, reduced_by
):
    """By libjpeg's own calls as by OpenCV's, to the bit."""
    if load() is None:
        pytest.skip("Pillow brings no libjpeg that can be used here")
    pictures = [drawn(330 + 37 * at, 701 - 29 * at, at) for at in range(12)]
    samples = [{"image": jpeg(p, **options)} for p in pictures]
    path = write_store(tmp_path / "s", [IMAGE], samples)
    ops = [RandomResizedCrop((20, 30)), RandomFlip()]
    whole = batch_of(path, ops, 12)["image"]
    assert {2, 4} <= set(reduced_by)
    reduced_by.clear()
    in_worker = batch_of(path, ops, 12, in_worker=True)["image"]
    assert torch.equal(in_worker, whole)
    # Whole pictures are those alone on which the decoder was tried.
    assert reduced_by == [1, 8, 4, 2] * 3


@pytest.mark.parametrize(
    "others",
    [[RandomFlip(1.0)], [RandomRotation90(turns=(1,))], [RandomAffine((30, 30), scale=(0.7, 0.7))]],
    ids=["flipped", "turned", "warped"],
)
def test_what_follows_the_crop_follows_a_reduced_one(tmp_path, write_store, others):
    """Flipped, turned and warped like the window of all pixels."""
    path = write_store(tmp_path / "s", [IMAGE], [{"image": jpeg(drawn(640, 900))}])
    for op in (RandomResizedCrop, Letterbox):
        fast, exact = (
            batch_of(path, [op(SIDE, scaling=scaling), *others], 1, interpolation="area")["image"]
            for scaling in ("fast", "exact")
        )
        assert psnr(fast, exact) > 36


def test_boxes_and_masks_are_the_same_however_the_image_is_scaled(tmp_path, write_store):
    """They know nothing of it."""
    ids = (np.add.outer(np.arange(611), np.arange(815)) // 9 % 250).astype(np.uint8)
    sample = {
        "image": jpeg(drawn(611, 815)),
        "boxes": np.array([[100, 50, 400, 300]], np.float32),
        "mask": ids,
    }
    path = write_store(tmp_path / "s", [IMAGE, BOXES, MASK], [sample])
    fast, exact = (
        batch_of(path, [RandomResizedCrop(SIDE, scaling=scaling), RandomFlip()], 1)
        for scaling in ("fast", "exact")
    )
    assert not torch.equal(fast["image"], exact["image"])
    assert torch.equal(fast["mask"], exact["mask"])
    assert torch.equal(fast["boxes"][0], exact["boxes"][0])


@pytest.mark.parametrize("in_worker", [False, True])
def test_what_is_no_plain_jpeg_is_read_whole_or_as_it_can_be(tmp_path, write_store, in_worker):
    """Gray and CMYK JPEGs, PNG, and pixels, in one batch."""
    if in_worker and load() is None:
        pytest.skip("Pillow brings no libjpeg that can be used here")
    picture = drawn(500, 600)
    png = io.BytesIO()
    Image.fromarray(picture).save(png, "PNG")
    samples = [
        {"image": jpeg(picture, mode="L")},
        {"image": jpeg(picture, mode="CMYK")},
        {"image": OriginalImage(png.getvalue(), picture.shape, "uint8", 1)},
        {"image": picture},
    ]
    path = write_store(tmp_path / "s", [IMAGE], samples)
    ops = [RandomResizedCrop(SIDE, scale=(0.9, 1))]
    fast = batch_of(path, ops, 4, in_worker=in_worker)["image"]
    exact = batch_of(path, [RandomResizedCrop(SIDE, scale=(0.9, 1), scaling="exact")], 4)["image"]
    assert torch.equal(fast[1:], exact[1:])
    assert psnr(fast[0], exact[0]) > 40
