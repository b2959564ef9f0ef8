"""Batches come in order and in their own types, ahead of their use, and let go of memory.

What only a GPU can show (streams, pinned memory) is in tests/gpu.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import types
import weakref
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, TensorDataset

from readers.augment import Augment, Normalize, RandomFlip, RandomResizedCrop
from readers.prefetch import DevicePrefetcher

ROOT = Path(__file__).resolve().parents[2]

Pair = namedtuple("Pair", ["image", "label"])


class Loader:
    """Batches 0, 1, ...: one tensor each. Keeps a log of what it was asked for."""

    def __init__(self, count, fail_at=None):
        self.count = count
        self.fail_at = fail_at
        self.log = []

    def __len__(self):
        return self.count

    def __iter__(self):
        self.log.append("start")
        try:
            for number in range(self.count):
                if number == self.fail_at:
                    raise OSError(f"batch {number} is broken")
                self.log.append(number)
                yield torch.tensor([number])
        finally:
            self.log.append("end")


def numbers(batches):
    return [batch.item() for batch in batches]


def only(batch, device="cpu", **settings):
    """What becomes of one batch."""
    (result,) = DevicePrefetcher([batch], device, **settings)
    return result


# --- order ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_every_batch_comes_once_and_in_order_in_each_epoch(count, depth):
    """As from the loader itself, whether it has more batches than are under way, or fewer."""
    prefetcher = DevicePrefetcher(Loader(count), "cpu", depth=depth)
    assert len(prefetcher) == count
    for _ in range(3):
        assert numbers(prefetcher) == list(range(count))


def test_batches_are_taken_depth_ahead_of_the_one_in_use():
    """While a batch is in use, `depth` more are under way, and no others."""
    loader = Loader(6)
    batches = iter(DevicePrefetcher(loader, "cpu", depth=2))
    assert next(batches).item() == 0
    assert loader.log == ["start", 0, 1, 2]
    assert next(batches).item() == 1
    assert loader.log == ["start", 0, 1, 2, 3]


@pytest.mark.parametrize("fail_at", [0, 1, 4])
def test_an_error_of_the_loader_comes_in_the_place_of_its_batch(fail_at):
    """The batches before it are handed out first; then it is raised, with its own traceback."""
    loader = Loader(6, fail_at)
    prefetcher = DevicePrefetcher(loader, "cpu", depth=3)
    seen = []
    with pytest.raises(OSError, match=f"batch {fail_at} is broken") as caught:
        seen.extend(batch.item() for batch in prefetcher)
    assert seen == list(range(fail_at))
    assert "__iter__" in [entry.name for entry in caught.traceback[-1:]]
    loader.fail_at = None
    assert numbers(prefetcher) == list(range(6))


def test_an_error_of_the_transform_comes_in_the_place_of_its_batch():
    """It is raised whole as well, and ends the epoch."""

    def reciprocal(batch):
        if batch.item() == 2:
            raise ZeroDivisionError("batch 2")
        return batch * 10

    batches = iter(DevicePrefetcher(Loader(6), "cpu", transform=reciprocal))
    assert [next(batches).item(), next(batches).item()] == [0, 10]
    with pytest.raises(ZeroDivisionError, match="batch 2"):
        next(batches)
    assert list(batches) == []


def test_an_error_when_an_epoch_begins_is_raised_at_once():
    """A loader that cannot start has no batches to hand out first."""

    class Broken:
        def __iter__(self):
            raise OSError("no store")

    with pytest.raises(OSError, match="no store"):
        next(iter(DevicePrefetcher(Broken(), "cpu")))


def test_an_interrupt_is_not_kept_back():
    """Ctrl-C in the loader ends the loop now, not some batches later."""

    def interrupted():
        yield torch.tensor([0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(iter(DevicePrefetcher(interrupted(), "cpu", depth=2)))


def test_breaking_off_ends_the_loaders_epoch_and_the_next_begins_anew():
    """Nothing of the epoch broken off is left: no batch, no running loader."""
    loader = Loader(6)
    prefetcher = DevicePrefetcher(loader, "cpu", depth=2)
    for batch in prefetcher:
        if batch.item() == 1:
            break
    assert loader.log == ["start", 0, 1, 2, 3, "end"]
    assert numbers(prefetcher) == list(range(6))


def test_two_epochs_may_run_at_once():
    """Each iteration has its own place, as those of a DataLoader have."""
    prefetcher = DevicePrefetcher(Loader(4), "cpu", depth=1)
    assert [(a.item(), b.item()) for a, b in zip(prefetcher, prefetcher, strict=True)] == [
        (number, number) for number in range(4)
    ]


def test_a_dataloader_with_workers_gives_what_it_gives_by_itself():
    """The stock DataLoader, with loader workers and a short last batch."""
    data = TensorDataset(torch.arange(22).view(11, 2), torch.arange(11))
    loader = DataLoader(data, batch_size=3, num_workers=1)
    prefetched = list(DevicePrefetcher(loader, "cpu"))
    assert len(prefetched) == len(DevicePrefetcher(loader, "cpu")) == 4
    for number, (values, labels) in enumerate(prefetched):
        assert labels.tolist() == list(range(11))[3 * number : 3 * number + 3]
        assert torch.equal(values[:, 0], 2 * labels)


def test_a_loader_without_a_length_has_none_here():
    """len() says why; iterating works all the same."""
    prefetcher = DevicePrefetcher((torch.tensor([n]) for n in range(3)), "cpu")
    with pytest.raises(TypeError, match="the loader, a generator, has no length"):
        len(prefetcher)
    assert numbers(prefetcher) == [0, 1, 2]


# --- memory ---------------------------------------------------------------------------------------


def test_a_batch_dies_when_the_user_drops_it():
    """No reference stays behind, so that a recycled buffer returns as early as it can."""
    alive = weakref.WeakSet()

    def batches():
        for number in range(5):
            batch = torch.full((3,), number)
            alive.add(batch)
            yield batch
            del batch

    iterator = iter(DevicePrefetcher(batches(), "cpu", depth=1))
    for number in range(4):
        batch = next(iterator)
        assert sorted(int(other[0]) for other in alive) == [number, number + 1]
        del batch
        assert [int(other[0]) for other in alive] == [number + 1]
    iterator.close()
    assert not alive


def test_an_error_keeps_nothing_of_the_epoch_alive():
    """Once it is dealt with, batches and the loader's iterator go, without a garbage collection.

    With the iterator go the loader workers of a DataLoader.
    """
    alive = weakref.WeakSet()

    def batches():
        for number in range(3):
            batch = torch.full((3,), number)
            alive.add(batch)
            yield batch
            del batch
        raise OSError("broken")

    class Loader:
        def __iter__(self):
            iterator = batches()
            alive.add(iterator)
            return iterator

    gc.collect()
    gc.disable()
    try:
        # Not pytest.raises, which itself would keep the error for a while.
        with suppress(OSError):
            for batch in DevicePrefetcher(Loader(), "cpu", depth=2):
                del batch
        assert not alive
    finally:
        gc.enable()


def test_on_a_cpu_a_batch_is_the_loaders_own():
    """Passed through: the same object, not a copy."""
    batch = {"image": torch.zeros(3), "label": [torch.ones(1), "text"]}
    assert only(batch) is batch


def test_on_a_cpu_nothing_of_cuda_is_called():
    """No CUDA context, which would cost memory and forbid forking; no warning either."""
    code = """
import torch
from readers.prefetch import DevicePrefetcher

def refuse(*args, **kwargs):
    raise AssertionError("CUDA was called")

for name in ("Stream", "Event", "stream", "current_stream", "is_available", "init", "_lazy_init"):
    setattr(torch.cuda, name, refuse)
torch.Tensor.pin_memory = torch.Tensor.is_pinned = refuse
batches = list(DevicePrefetcher([(torch.tensor([1]), {"a": torch.tensor([2])})] * 4, "cpu"))
assert len(batches) == 4 and batches[3][1]["a"].item() == 2
assert not torch.cuda.is_initialized()
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, timeout=120, check=True)


# --- containers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    image: torch.Tensor
    name: str
    count: int = field(init=False, default=3)


class Marked(list):
    """A list with something of its own."""

    mark = None


class Grid(tuple):
    """A tuple that cannot be made of its parts alone."""

    __slots__ = ()

    def __new__(cls, parts, width):
        return super().__new__(cls, parts)


class Table(Mapping):
    """A mapping that cannot be made of its parts alone."""

    def __init__(self, parts, title):
        self.parts = parts

    def __getitem__(self, key):
        return self.parts[key]

    def __iter__(self):
        return iter(self.parts)

    def __len__(self):
        return len(self.parts)


def test_containers_keep_their_types_when_tensors_move():
    """Nested, each container is of its own type, with what else it holds; those given are left.

    The "meta" device stands for any: it is everywhere, and its tensors are not on the CPU.
    """
    marked = Marked([torch.zeros(2), 1.5])
    marked.mark = "mark"
    batch = {
        "pair": Pair(torch.zeros(2), [torch.zeros(1), (torch.zeros(1),)]),
        "ordered": OrderedDict(b=torch.zeros(1), a=torch.zeros(2)),
        "default": defaultdict(list, {"a": torch.zeros(1)}),
        "user": UserDict({"a": torch.zeros(1)}),
        "proxy": types.MappingProxyType({"a": torch.zeros(1)}),
        "sample": Sample(torch.zeros(1), "s"),
        "marked": marked,
        "grid": Grid([torch.zeros(1)], width=1),
        "table": Table({"a": torch.zeros(1)}, title="t"),
        "size": torch.Size([3, 4]),
    }
    moved = only(batch, "meta")
    for name in ("pair", "ordered", "default", "user", "proxy", "sample", "marked", "size"):
        assert type(moved[name]) is type(batch[name]), name
    assert moved["pair"].image.is_meta
    assert moved["pair"].label[0].is_meta
    assert type(moved["pair"].label[1]) is tuple
    assert moved["pair"].label[1][0].is_meta
    assert list(moved["ordered"]) == ["b", "a"]
    assert moved["default"]["new"] == []
    for name in ("ordered", "default", "user", "proxy"):
        assert moved[name]["a"].is_meta, name
    assert moved["sample"].image.is_meta
    assert (moved["sample"].name, moved["sample"].count) == ("s", 3)
    assert (moved["marked"][0].is_meta, moved["marked"][1], moved["marked"].mark) == (
        True,
        1.5,
        "mark",
    )
    assert type(moved["grid"]) is tuple
    assert moved["grid"][0].is_meta
    assert type(moved["table"]) is dict
    assert moved["table"]["a"].is_meta
    assert moved["size"] == torch.Size([3, 4])
    left = [batch["pair"].image, batch["ordered"]["a"], batch["sample"].image, marked[0]]
    assert not any(tensor.is_meta for tensor in left)


def test_what_is_no_tensor_stays_as_it_is():
    """Texts, numbers, arrays, pictures' paths and classes are the user's own, the same objects."""
    parts = ["text", b"bytes", 3, None, np.arange(3), Path("a.jpg"), torch.float16, torch.Tensor]
    moved = only(parts, "meta")
    assert all(after is before for after, before in zip(moved, parts, strict=True))


def test_objects_that_can_move_do_so_by_themselves():
    """An object with `to` is not taken apart, even when it is a container, nor pinned in vain."""

    class Boxes:
        def __init__(self, device="cpu"):
            self.device = device
            self.calls = []

        def pin_memory(self):
            raise AssertionError("pinned for a device that needs it not")

        def to(self, device, non_blocking=False):
            return Boxes((str(device), non_blocking))

    class Target(dict[str, Any]):
        def to(self, device):
            self["device"] = str(device)

    boxes, target = Boxes(), Target(image=torch.zeros(1))
    packed = pack_sequence([torch.zeros(2), torch.zeros(1)])
    moved = only((boxes, target, packed), "meta")
    assert isinstance(moved[0], Boxes)
    assert moved[0].device == ("meta", True)
    assert moved[1] is target  # Its method changed it and returned nothing.
    assert target["device"] == "meta"
    assert isinstance(moved[2], PackedSequence)
    assert moved[2].data.is_meta
    assert only((boxes,), "cpu")[0] is boxes


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_tensor_that_is_on_a_device_already_is_an_error_naming_it(device):
    """Loader workers must not use the device; the message says which field did, and what to do."""
    batch = {"image": torch.zeros(1), "boxes": [torch.zeros(1), torch.zeros(1, device="meta")]}
    with pytest.raises(ValueError, match=r"batch\['boxes'\]\[1\] of the loader .* on meta, exp"):
        only(batch, device)


# --- transform ------------------------------------------------------------------------------------


def test_a_transform_takes_the_whole_batch_on_the_device():
    """A function gets what the loader gave, moved, and its result is handed out."""
    result = only((torch.zeros(2), "x"), "meta", transform=lambda batch: [batch[0].device.type])
    assert result == ["meta"]


def test_transforms_by_field_leave_the_other_fields_and_the_type():
    """For a dict or dataclass by name, a tuple by position, a named tuple by either."""

    def doubled(tensor):
        return tensor * 2

    one, two = torch.tensor([1]), torch.tensor([2])
    batch = {"image": one, "label": two}
    result = only(batch, transform={"image": doubled})
    assert (result["image"].item(), result["label"]) == (2, two)
    assert batch["image"] is one
    assert only((one, two), transform={1: doubled}) == (one, torch.tensor([4]))
    assert only([one, two], transform={0: doubled, 1: doubled}) == [two, torch.tensor([4])]
    for name in ("label", 1):
        result = only(Pair(one, two), transform={name: doubled})
        assert type(result) is Pair
        assert (result.image, result.label.item()) == (one, 4)
    sample = only(Sample(one, "s"), transform={"image": doubled})
    assert (type(sample), sample.image.item(), sample.name) == (Sample, 2, "s")


def test_a_field_that_is_not_there_is_named():
    """A mistyped field is an error, not a batch left as it was."""
    one = torch.tensor([1])
    with pytest.raises(ValueError, match=r"the field 'images', but a batch has 'image', 'label'"):
        only({"image": one, "label": one}, transform={"images": torch.neg})
    with pytest.raises(ValueError, match=r"the field 2, but a batch has 0, 1"):
        only((one, one), transform={2: torch.neg})
    with pytest.raises(ValueError, match=r"by field, but a batch is a Tensor, expected a dict"):
        only(one, transform={0: torch.neg})


def test_augmented_batches_are_those_of_the_augmentation_alone():
    """Prefetched ahead, every batch has the boxes and flips that it has without prefetching."""

    def augment():
        generator = torch.Generator().manual_seed(5)
        return Augment(
            RandomResizedCrop(8, generator=generator),
            RandomFlip(generator=generator),
            Normalize(0.5, 0.25),
        )

    batches = [
        {"image": torch.randint(0, 256, (3, 3, 12, 10), dtype=torch.uint8), "label": torch.ones(3)}
        for _ in range(5)
    ]
    alone = augment()
    expected = [alone(batch["image"]) for batch in batches]
    results = list(DevicePrefetcher(batches, "cpu", transform={"image": augment()}))
    for result, images in zip(results, expected, strict=True):
        assert torch.equal(result["image"], images)


# --- settings -------------------------------------------------------------------------------------


def test_a_depth_of_none_is_refused():
    """Without a batch under way there is nothing to overlap."""
    with pytest.raises(ValueError, match="depth must be at least 1; got 0"):
        DevicePrefetcher([], "cpu", depth=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a CUDA device")
def test_a_device_that_is_not_there_is_refused_when_the_prefetcher_is_made():
    """The message says what was asked for, and what runs here."""
    with pytest.raises(ValueError, match=r"device='cuda:0', but torch finds no CUDA device.*'cpu'"):
        DevicePrefetcher([], "cuda:0")
