"""However images and masks are stored, a dataset and a loader give the same of them."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from readers.dataset import LMDBDataset
from readers.loader.make import make_loader
from readers.ops import (
    ColorJitter,
    Letterbox,
    Pad,
    RandomAffine,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation90,
)
from readers.reading.jpeg_window import load
from readers.store.codecs import OriginalImage
from readers.store.schema import Field

COUNT = 20


def picture(at):
    """(height, width, 3) uint8 of a size of its own."""
    small = np.random.default_rng(at).integers(60, 200, (5, 6, 3)).astype(np.uint8)
    return cv2.resize(small, (40 + at % 5 * 7, 36 + at % 3 * 9))


def file_of(at, format, **options):
    stream, pixels = io.BytesIO(), picture(at)
    Image.fromarray(pixels).save(stream, format, **options)
    return OriginalImage(stream.getvalue(), pixels.shape, "uint8", 1)


def ids(at, dtype):
    """A mask of the picture's size."""
    height, width = picture(at).shape[:2]
    mask = np.add.outer(np.arange(height), np.arange(width) * 3) + at
    return (mask % 250 if dtype == "uint8" else mask * 5003).astype(dtype)


IMAGE = {"name": "image", "kind": "image", "dtype": "uint8", "shape": (None, None, 3)}


@pytest.fixture(scope="module")
def stores(tmp_path_factory, write_store):
    """The same pictures as pixels and as lossless files, with masks as ids and as PNG."""
    folder = tmp_path_factory.mktemp("forms")
    kinds = {
        "raw": ("raw", None, picture),
        "png": ("original", "rgb", lambda at: file_of(at, "PNG")),
        "webp": ("original", "rgb", lambda at: file_of(at, "WEBP", lossless=True)),
        "mixed": ("mixed", "rgb", lambda at: picture(at) if at % 2 else file_of(at, "PNG")),
    }
    paths = {}
    for name, (codec, mode, make) in kinds.items():
        mask_codec = None if name == "raw" else "png"
        fields = [
            Field(**IMAGE, codec=codec, mode=mode),
            Field(name="mask", kind="mask", dtype="uint8", shape=(None, None), codec=mask_codec),
            Field(name="parts", kind="mask", dtype="int32", shape=(None, None), codec=mask_codec),
        ]
        samples = [
            {"image": make(at), "mask": ids(at, "uint8"), "parts": ids(at, "int32")}
            for at in range(COUNT)
        ]
        paths[name] = write_store(folder / name, fields, samples, (9, 11))
    return paths


@pytest.mark.parametrize("kind", ["png", "webp", "mixed"])
def test_a_lossless_form_is_read_as_the_pixels_are(stores, kind):
    """Sample by sample, as tensors that a caller may write to."""
    raw, other = LMDBDataset(stores["raw"]), LMDBDataset(stores[kind])
    for at in range(COUNT):
        expected, found = raw[at], other[at]
        for name in ("image", "mask", "parts"):
            assert found[name].dtype == expected[name].dtype
            assert found[name].shape == expected[name].shape
            assert torch.equal(found[name], expected[name])
        assert np.array_equal(found["image"].permute(1, 2, 0).numpy(), picture(at))
        assert np.array_equal(found["parts"].numpy(), ids(at, "int32"))
        found["image"][0, 0, 0] ^= 255  # The store is mapped read-only.
        found["mask"][0, 0] ^= 255
    assert torch.equal(other[3]["image"], raw[3]["image"])


@pytest.mark.parametrize("kind", ["png", "webp", "mixed"])
@pytest.mark.parametrize(("engine", "workers"), [("thread", 1), ("process", 1)])
@pytest.mark.parametrize(
    "ops",
    [
        (RandomResizedCrop(24), RandomFlip()),
        (RandomResizedCrop(24), RandomRotation90(), RandomAffine(30), ColorJitter(0.5), Pad(2)),
    ],
    ids=["upright", "turned"],
)
def test_a_loader_works_on_every_form_alike(stores, kind, engine, workers, ops):
    """Images and masks after operations: the same batches as from pixels."""
    settings = {"train": True, "seed": 3, "drop_last": False, "engine": engine, "workers": workers}
    found = []
    for name in ("raw", kind):
        loader = make_loader(LMDBDataset(stores[name]), 6, ops=ops, **settings)
        found.append([{k: v.clone() for k, v in batch.items()} for batch in loader])
        loader.close()
    assert len(found[0]) == 4
    for expected, batch in zip(*found, strict=True):
        for name in ("image", "mask", "parts"):
            assert torch.equal(batch[name], expected[name])


def test_only_the_window_of_a_jpeg_is_decoded_whoever_made_it(tmp_path, write_store, monkeypatch):
    """JPEGs that a build encoded are read as fast as those it kept, also beside pixels."""
    if load() is None:
        pytest.skip("Pillow brings no libjpeg that can be used here")
    from readers.ops.image_plan import compile_ops
    from readers.reading.buffers import take_plain
    from readers.reading.filling import StoreFiller
    from readers.reading.jpeg_window import WindowDecoder
    from readers.reading.worked_images import ImageOps
    from readers.stats import Watch

    fields = [Field(**IMAGE, codec="mixed", mode="rgb")]
    samples = [
        {"image": picture(at) if at % 4 == 0 else file_of(at, "JPEG")} for at in range(COUNT)
    ]
    path = write_store(tmp_path / "s", fields, samples, (COUNT,))
    windows = []
    decode = WindowDecoder.decode
    monkeypatch.setattr(
        WindowDecoder, "decode", lambda self, *rest: windows.append(1) or decode(self, *rest)
    )
    ops = ImageOps("image", compile_ops([RandomResizedCrop(16)]), 3)
    whole = StoreFiller(LMDBDataset(path).view, ops).fill(np.arange(COUNT), 0, take_plain, Watch())
    filler = StoreFiller(LMDBDataset(path).view, ops)
    filler.enter_worker()
    filler._opened()  # Its decoder is tried out on pictures of its own.
    windows.clear()
    batch = filler.fill(np.arange(COUNT), 0, take_plain, Watch())
    assert len(windows) == 15
    assert torch.equal(batch["image"], whole["image"])


def test_a_letterbox_of_files_is_that_of_their_pixels(stores):
    """An operation that takes the whole picture."""
    found = []
    for name in ("raw", "mixed", "png"):
        dataset = LMDBDataset(stores[name], fields=["image"])
        loader = make_loader(dataset, 5, train=False, ops=(Letterbox(48),), workers=0)
        found.append(torch.cat([batch["image"].clone() for batch in loader]))
        loader.close()
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
