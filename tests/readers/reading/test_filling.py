"""A batch is filled where the caller says, and it is known what is worked on."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from readers.dataset import LMDBDataset
from readers.ops import CenterCrop, RandomFlip, RandomResizedCrop
from readers.ops.image_plan import compile_ops
from readers.reading.collate import collate
from readers.reading.filling import MapFiller, StoreFiller
from readers.reading.worked_images import ImageOps
from readers.stats import Watch
from readers.store.schema import Field


class Memory:
    """Hands out pieces of memory of its own, and says whether a tensor lies in them."""

    def __init__(self):
        self.pieces = []

    def take(self, byte_count):
        self.pieces.append(torch.full((byte_count,), 0xA5, dtype=torch.uint8))
        return self.pieces[-1]

    def holds(self, tensor):
        starts = [tensor.data_ptr() - piece.data_ptr() for piece in self.pieces]
        return any(
            0 <= start < len(piece) for start, piece in zip(starts, self.pieces, strict=True)
        )


class Noted(Watch):
    """A watch that keeps the indices it was told of."""

    def __init__(self):
        super().__init__()
        self.indices = []

    def sample(self, index):
        self.indices.append(index)


@pytest.fixture
def view(shapes):
    return LMDBDataset(shapes.path).view


@pytest.fixture(scope="module")
def large(tmp_path_factory, write_store):
    """12 samples whose images are large enough to lie where the caller says."""
    fields = [
        Field(name="image", kind="image", dtype="uint8", shape=(80, 90, 3), codec="raw"),
        Field(name="depth", kind="array", dtype="float32", shape=(80, 90)),
        Field(name="transform", kind="array", dtype="float32", shape=(2, 3)),
        Field(name="label", kind="label", dtype="int64", names=("a", "b")),
        Field(name="key", kind="text"),
    ]
    noise = np.random.default_rng(3)
    samples = [
        {
            "image": noise.integers(0, 256, (80, 90, 3), np.uint8),
            "depth": noise.random((80, 90), np.float32),
            "transform": noise.random((2, 3), np.float32),
            "label": at % 2,
            "key": f"{at}",
        }
        for at in range(12)
    ]
    return write_store(tmp_path_factory.mktemp("stores") / "large.lmdb", fields, samples, (5, 7))


def test_large_fields_lie_in_the_callers_memory(large, same):
    """In a piece of its own each; small ones and texts do not lie there."""
    dataset, memory, indices = LMDBDataset(large), Memory(), np.array([7, 0, 11, 7])
    batch = StoreFiller(dataset.view).fill(indices, 0, memory.take, Watch())
    assert same(batch, collate([dataset[at] for at in indices.tolist()]))
    assert [len(piece) for piece in memory.pieces] == [4 * 80 * 90 * 3, 4 * 80 * 90 * 4]
    for name, piece in zip(("image", "depth"), memory.pieces, strict=True):
        assert batch[name].data_ptr() == piece.data_ptr()
    for name in ("transform", "label"):
        assert not memory.holds(batch[name])


@pytest.mark.parametrize("ops", [False, True])
def test_a_group_is_the_same_batches(large, same, ops):
    """Filled by one call, each is what it would be alone, with storages that end where it ends."""
    chosen = ImageOps("image", compile_ops([RandomResizedCrop(70)]), 3) if ops else None
    view = LMDBDataset(large).view
    parts = [np.array([3, 1]), np.array([5]), np.array([0, 2, 11]), np.array([], np.int64)]
    memory = Memory()
    found = StoreFiller(view, chosen).fill_group(parts, 0, memory.take, Watch())
    alone = [StoreFiller(view, chosen).fill(part, 0, Memory().take, Watch()) for part in parts]
    assert same(found, alone)
    assert len(memory.pieces) == 2
    for batch, part in zip(found, parts, strict=True):
        assert len(part) == 0 or memory.holds(batch["depth"])
        assert batch["depth"].untyped_storage().nbytes() == batch["depth"].nbytes
        assert batch["image"].untyped_storage().nbytes() == batch["image"].nbytes
        assert batch["label"].untyped_storage().nbytes() == 8 * len(part)
        assert batch["transform"].untyped_storage().nbytes() == 24 * len(part)


def test_worked_images_are_written_into_the_callers_memory(view):
    """Once, in place; and the watch knows which image is in work."""
    ops = ImageOps("image", compile_ops([RandomResizedCrop(5), RandomFlip()]), 3)
    memory, watch = Memory(), Noted()
    batch = StoreFiller(view, ops).fill(np.array([9, 2, 4]), 1, memory.take, watch)
    assert batch["image"].shape == (3, 3, 5, 5)
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    assert memory.holds(batch["image"])
    assert watch.indices[:1] in ([9], [])
    assert watch.stages["transform"] > 0


def test_ragged_samples_are_named_to_the_watch(every_kind):
    """When native code crashes, the last one named is the one to look at."""
    watch = Noted()
    filler = StoreFiller(LMDBDataset(every_kind.path, fields=["photo"]).view)
    filler.fill(np.array([4, 9]), 0, Memory().take, watch)
    assert watch.indices == [4, 9]
    assert watch.stages["decode"] > 0


def test_a_filler_crosses_to_a_worker_small_and_works_there(view, same):
    """Opened or not, it takes a few hundred bytes, and opens the store again."""
    filler = StoreFiller(view, ImageOps("image", compile_ops([RandomResizedCrop(5)]), 3))
    indices = np.arange(4)
    expected = filler.fill(indices, 0, Memory().take, Watch())
    copy = pickle.loads(pickle.dumps(filler))
    assert len(pickle.dumps(filler)) < 2000
    copy.enter_worker()
    assert same(copy.fill(indices, 0, Memory().take, Watch()), expected)


def test_windows_are_decoded_in_workers_alone(every_kind):
    """See NOTE [ errors of libjpeg ]: the main process must not be ended by a file."""
    view = LMDBDataset(every_kind.path, fields=["photo"]).view
    filler = StoreFiller(view, ImageOps("photo", compile_ops([RandomResizedCrop(5)]), 3))
    filler.fill(np.arange(4), 0, Memory().take, Watch())
    assert filler._opened().images.windows is None


def test_samples_of_any_dataset_are_taken_one_by_one(same):
    """By plain integers, in order, and joined by what the user gave."""
    asked = []

    class Asked:
        def __getitem__(self, index):
            assert type(index) is int
            asked.append(index)
            return index * 10

    watch = Noted()
    filler = MapFiller(Asked(), collate_fn=tuple)
    filler.enter_worker()
    parts = [np.array([3, 1]), np.array([2])]
    assert filler.fill_group(parts, 0, Memory().take, watch) == [(30, 10), (20,)]
    assert asked == watch.indices == [3, 1, 2]
    assert watch.stages["transform"] > 0
    assert watch.stages["collate"] > 0


class Asked:
    """The bytes of a store, with what was asked of them."""

    def __init__(self, record_bytes):
        self._bytes = record_bytes
        self.requests = []

    def __getattr__(self, name):
        return getattr(self._bytes, name)

    def fetch(self, wanted):
        self.requests.append(wanted)
        return self._bytes.fetch(wanted)


@pytest.fixture
def asked(monkeypatch):
    """Gives what is asked of the bytes of a view's store."""

    def watch(view):
        record_bytes = Asked(view.store.bytes)
        monkeypatch.setattr(view.store, "bytes", record_bytes)
        return record_bytes.requests

    return watch


def test_a_batch_asks_once_for_what_it_needs(large, asked):
    """The bytes of its fields of fixed size and no others; nothing for what the index has."""
    indices = np.array([7, 0, 11])
    for names, sizes in (
        (["image", "transform", "label"], [3 * 21_600, 3 * 24]),
        (["label"], []),
    ):
        view = LMDBDataset(large, fields=names).view
        requests = asked(view)
        StoreFiller(view).fill(indices, 0, Memory().take, Watch())
        ((*wanted,),) = requests
        assert [part.byte_count for part in wanted] == sizes


def test_of_pixels_that_are_cropped_the_rows_of_the_window_are_asked_for(large, asked):
    """Over a network, the rest of the image would be read in vain."""
    view = LMDBDataset(large, fields=["image"]).view
    requests = asked(view)
    ops = ImageOps("image", compile_ops([CenterCrop((10, 90))]), 3)
    batch = StoreFiller(view, ops).fill(np.array([4, 2]), 0, Memory().take, Watch())
    ((part,),) = requests
    assert part.byte_count == 2 * 10 * 90 * 3
    dataset = LMDBDataset(large)
    for image, index in zip(batch["image"], (4, 2), strict=True):
        assert torch.equal(image, dataset[index]["image"][:, 35:45])


def test_records_that_are_needed_whole_are_asked_for_once(every_kind, asked):
    """Though fields of fixed size lie in them, and images are decoded out of them."""
    names = ["photo", "key", "gray", "int16_array"]
    view = LMDBDataset(every_kind.path, fields=names).view
    requests = asked(view)
    ops = ImageOps("photo", compile_ops([RandomResizedCrop(5)]), 3)
    StoreFiller(view, ops).fill(np.array([4, 9, 4]), 0, Memory().take, Watch())
    ((part,),) = requests
    assert part.byte_count == view.store.located(np.array([4, 9, 4])).lengths().sum()
