"""Ways to keep photos for training, and to read them: what `bench_cold.py` compares.

    folder   a file each, in a stock DataLoader, as torchvision's ImageFolder reads them
    plain    one LMDB of a tutorial: opened in each loader worker, the kernel reads nothing ahead
    tar      tar files, each read from end to end, in a stock DataLoader
    ours     a store of this project, through make_loader
    stock    a store of this project in a stock DataLoader

All give random crops of 224 x 224, flipped half of the time, with labels.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import lmdb  # noqa: TID251 - Another way to read, beside the project's.
import numpy as np
import torch
from bench_loader import draw_photos
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from packer import Recipe, build
from readers import LMDBDataset, make_loader
from readers.ops import RandomFlip, RandomResizedCrop
from readers.orders.samplers import SequentialSampler, ShuffleSampler

FORMS = ("raw256", "jpg256", "original")
"""Pixels of short side 256, JPEG files of that side, the photos as they are."""

WAYS = ("folder", "plain", "tar", "ours", "stock")
ORDERS = ("shuffled", "ordered")

SIDE = 224
TAR_COUNT = 8
SHARD_BYTES = 32 * 2**20

Sample = tuple[torch.Tensor, int]


def make_data(folder: Path, count: int, forms: Sequence[str]) -> None:
    """Draw photos, and keep them in every way."""
    photos, small = folder / "original", folder / "jpg256"
    photos.mkdir(parents=True)
    draw_photos(photos, count)
    for path in sorted(photos.rglob("*.jpg")):
        target = small / path.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(target), _scaled(cv2.imread(str(path))), [cv2.IMWRITE_JPEG_QUALITY, 90])
    recipes = {
        "raw256": (photos, Recipe(size=256, shard_bytes_max=SHARD_BYTES)),
        "jpg256": (small, Recipe(image="original", shard_bytes_max=SHARD_BYTES)),
        "original": (photos, Recipe(image="original", shard_bytes_max=SHARD_BYTES)),
    }
    for form in forms:
        raw, recipe = recipes[form]
        build(raw, folder / f"ours-{form}", recipe, worker_count=2)
        _write_plain(folder / f"plain-{form}", raw, is_raw=form == "raw256")
    for raw in (photos, small):
        _write_tars(folder / f"tar-{raw.name}", raw)


def _scaled(pixels: Any) -> Any:
    share = 256 / min(pixels.shape[:2])
    return cv2.resize(pixels, None, fx=share, fy=share, interpolation=cv2.INTER_AREA)


def _write_plain(path: Path, raw: Path, *, is_raw: bool) -> None:
    """A number for each key; a file's bytes, or height, width and pixels."""
    with lmdb.open(str(path), map_size=2**36, subdir=False) as environment:
        for number, file in enumerate(sorted(raw.rglob("*.jpg"))):
            value = file.read_bytes()
            if is_raw:
                pixels = _scaled(cv2.imread(str(file)))
                value = np.array(pixels.shape[:2], np.int32).tobytes() + pixels.tobytes()
            with environment.begin(write=True) as transaction:
                transaction.put(b"%08d" % number, value)


def _write_tars(folder: Path, raw: Path) -> None:
    """The files in random order, so that reading in order is random already."""
    folder.mkdir()
    files = sorted(raw.rglob("*.jpg"))
    order = np.random.default_rng(0).permutation(len(files))
    for number in range(TAR_COUNT):
        with tarfile.open(folder / f"{number:02d}.tar", "w") as archive:
            for at in order[number::TAR_COUNT]:
                archive.add(files[at], files[at].relative_to(raw))


def augmented(pixels: Any, label: int) -> Sample:
    """A random part of a photo, scaled to one size and perhaps flipped."""
    height, width = pixels.shape[:2]
    side = max(8, int(min(height, width) * np.random.uniform(0.3, 1.0)))
    top, left = np.random.randint(height - side + 1), np.random.randint(width - side + 1)
    crop = cv2.resize(pixels[top : top + side, left : left + side], (SIDE, SIDE))
    if np.random.random() < 0.5:
        crop = cv2.flip(crop, 1)
    return torch.from_numpy(crop).permute(2, 0, 1), label


def _decoded(data: bytes) -> Any:
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)


class Augment:
    """`augmented`, as the transform of a dataset."""

    def __call__(self, sample: tuple[Any, int]) -> Sample:
        """A sample as the other ways give it."""
        return augmented(*sample)


class FolderImages(Dataset[Sample]):
    """A file each; which there are is found by walking, as ImageFolder does."""

    def __init__(self, root: Path) -> None:
        classes = sorted(path.name for path in root.iterdir() if path.is_dir())
        self._files = [
            (path, label)
            for label, name in enumerate(classes)
            for path in sorted((root / name).iterdir())
        ]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Sample:
        path, label = self._files[index]
        return augmented(_decoded(path.read_bytes()), label)


class PlainImages(Dataset[Sample]):
    """One LMDB, as tutorials have it."""

    def __init__(self, path: Path, *, is_raw: bool) -> None:
        self._path = str(path)
        self._is_raw = is_raw
        self._environment: Any = None
        environment = self._open()
        self._count = environment.stat()["entries"]
        environment.close()

    def _open(self) -> Any:
        settings = {"readonly": True, "lock": False, "readahead": False, "meminit": False}
        return lmdb.open(self._path, subdir=False, **settings)

    def __len__(self) -> int:
        return int(self._count)

    def __getitem__(self, index: int) -> Sample:
        if self._environment is None:
            self._environment = self._open()
        with self._environment.begin(buffers=True) as transaction:
            value = transaction.get(b"%08d" % index)
            if not self._is_raw:
                return augmented(_decoded(value), index % 10)
            height, width = np.frombuffer(value[:8], np.int32)
            pixels = np.frombuffer(value[8:], np.uint8).reshape(height, width, 3)
            return augmented(pixels, index % 10)


class TarImages(IterableDataset[Sample]):
    """Tar files from end to end, each by one loader worker."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._count = count

    def __iter__(self) -> Iterator[Sample]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        left = self._count // step
        for path in sorted(self._folder.iterdir())[first::step]:
            with open(path, "rb", 2**20) as file, tarfile.open(fileobj=file, mode="r|") as archive:
                for member in archive:
                    if not left:
                        return
                    content = archive.extractfile(member)
                    assert isinstance(content, io.BufferedReader)
                    yield augmented(_decoded(content.read()), int(member.name[6]))
                    left -= 1


def batches(
    way: str, form: str, order: str, data: Path, *, count: int, batch_size: int, workers: int
) -> Iterable[Any]:
    """So many samples of one way, in batches: everything from opening on is part of it."""
    raw = data / ("original" if form == "raw256" else form)
    if way == "tar":
        tars = TarImages(data / f"tar-{raw.name}", count)
        return DataLoader(tars, batch_size, num_workers=workers, drop_last=True)
    if way in ("ours", "stock"):
        settings: dict[str, Any] = {}
        if way == "stock":
            settings = {"image_as": "numpy", "transform": Augment()}
        store = LMDBDataset(data / f"ours-{form}", returns=("image", "label"), **settings)
        # Spread over the whole store, whatever the count.
        chosen = _chosen(len(store), count, order)
        store = store.select(chosen)
        sampler = ShuffleSampler(store) if order == "shuffled" else SequentialSampler(store)
        if way == "ours":
            ops = (RandomResizedCrop(SIDE), RandomFlip())
            return make_loader(
                store, batch_size, train=True, workers=workers, sampler=sampler, ops=ops
            )
        return DataLoader(store, batch_size, sampler=sampler, num_workers=workers, drop_last=True)
    images: Dataset[Sample]
    if way == "folder":
        images = FolderImages(raw)
    else:
        images = PlainImages(data / f"plain-{form}", is_raw=form == "raw256")
    indices = _chosen(len(images), count, order)
    if order == "shuffled":
        np.random.default_rng(1).shuffle(indices)
    return DataLoader(
        images, batch_size, sampler=indices.tolist(), num_workers=workers, drop_last=True
    )


def _chosen(total: int, count: int, order: str) -> Any:
    """Which samples: of all, at random; or the first ones."""
    if order == "ordered":
        return np.arange(min(total, count))
    return np.sort(np.random.default_rng(0).permutation(total)[:count])
