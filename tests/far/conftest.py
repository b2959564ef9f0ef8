"""Stores on a file server that is far away: mounted on this machine, slow, counted, failing.

Tests that need such a mount skip where the machine cannot have one, and name what is missing.
"""

from __future__ import annotations

import gc
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from readers.store.codecs import OriginalImage
from readers.store.schema import Field, Schema
from scripts.far_mount import Far, FarMountUnavailableError, mounted
from tests.readers.conftest import KEY, publish, write_shards

SHARD_COUNT = 4
LABEL = Field(name="label", kind="scalar", dtype="int64")


class FarStore:
    """A store, seen near by and from afar.

    Attributes:
        near: Its folder on the local disk.
        far: The same through the mount.
        images: (sample, height, width, channel) uint8, or a list where sizes differ.
    """

    def __init__(self, near, far, images):
        self.near, self.far, self.images = near, far, images

    def __repr__(self):
        return f"FarStore({self.near.name})"

    def check(self, images, labels):
        """Each image, (channel, height, width), is the one that its label says."""
        for image, label in zip(images, labels, strict=True):
            expected = torch.from_numpy(self.images[int(label)]).permute(2, 0, 1)
            assert torch.equal(image, expected), f"sample {int(label)} is another"


def _write(folder, image, images, values):
    folder.mkdir()
    schema = Schema((KEY, image, LABEL))
    samples = [{"key": f"{at:05d}", "image": value, "label": at} for at, value in enumerate(values)]
    counts = [len(images) // SHARD_COUNT] * SHARD_COUNT
    publish(folder, schema, write_shards(folder, schema, samples, counts))
    return images


def raw_images(folder, count, height, width):
    """A store of pixels of one size."""
    noise = np.random.default_rng(height)
    images = noise.integers(0, 256, (count, height, width, 3), np.uint8)
    field = Field(name="image", kind="image", dtype="uint8", shape=(height, width, 3), codec="raw")
    return _write(folder, field, images, images)


def jpeg_images(folder, count):
    """A store of JPEG files of two sizes."""
    noise = np.random.default_rng(3)
    images, values = [], []
    for at in range(count):
        shape = (40 + 8 * (at % 2), 64, 3)
        small = noise.integers(0, 256, (5, 8, 3), np.uint8)
        pixels = cv2.resize(small, shape[1::-1], interpolation=cv2.INTER_CUBIC)
        data = cv2.imencode(".jpg", pixels)[1]
        values.append(OriginalImage(data.tobytes(), shape, "uint8", 1))
        images.append(np.ascontiguousarray(cv2.imdecode(data, cv2.IMREAD_COLOR)[..., ::-1]))
    field = Field(
        name="image",
        kind="image",
        dtype="uint8",
        shape=(None, None, 3),
        codec="original",
        mode="rgb",
    )
    return _write(folder, field, images, values)


@pytest.fixture(scope="session")
def _mount(tmp_path_factory):
    """The mount of all tests in this process, and what lies on it."""
    folder = tmp_path_factory.mktemp("far")
    near = folder / "near"
    near.mkdir()
    images = {
        "large.lmdb": raw_images(near / "large.lmdb", 64, 208, 200),
        "small.lmdb": raw_images(near / "small.lmdb", 1600, 32, 32),
        "jpeg.lmdb": jpeg_images(near / "jpeg.lmdb", 64),
    }
    try:
        with mounted(near, folder / "mount") as mount:
            yield mount, near, images
            gc.collect()  # Stores that errors of tests have kept.
    except FarMountUnavailableError as error:
        pytest.skip(f"no far file system can be mounted here: {error}")


@pytest.fixture
def far(_mount):
    """The far file system, as it should be: nothing slow, nothing failing, nothing counted."""
    mount = _mount[0]
    mount.set(Far())
    mount.reset()
    yield mount
    mount.set(Far())
    gc.collect()


def _far_store(mounted_, name):
    mount, near, images = mounted_
    return FarStore(near / name, Path(mount.path) / name, images[name])


@pytest.fixture
def large(_mount):
    """64 samples of 124,800 bytes of pixels, in four shards."""
    return _far_store(_mount, "large.lmdb")


@pytest.fixture
def small(_mount):
    """1,600 samples of 3,072 bytes of pixels, in four shards."""
    return _far_store(_mount, "small.lmdb")


@pytest.fixture
def jpegs(_mount):
    """64 samples that are JPEG files, in four shards."""
    return _far_store(_mount, "jpeg.lmdb")
