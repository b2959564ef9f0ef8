"""What is placed in a slot is found there by every process that maps it."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from readers.engines.slots import Slot, SlotReader, SlotWriter, discard_unused

DTYPES = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.bool,
]

SHAPES = [(), (0,), (1,), (7,), (0, 3), (2, 3, 5), (3, 2, 4, 5)]


def read_back(slot, byte_count, *found):
    """The values at places, as another process sees them: by a mapping of its own."""
    reader = reader_of(Slot(os.dup(slot.descriptor)), byte_count)
    return [reader.at(place) for place in found]


def reader_of(slot, byte_count, on_release=lambda: None, **settings):
    """What takes tensors out of a slot."""
    return SlotReader(slot.memory(byte_count), on_release, **settings)


def of(dtype, *shape):
    """A tensor of some shape, no two of its first bytes alike."""
    count = int(np.prod(shape))
    numbers = torch.arange(count) % 2 if dtype is torch.bool else torch.arange(count) % 100
    return numbers.to(dtype).view(shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_element_type_and_shape_cross(dtype):
    """Side by side in one slot, each equal to what was placed, and at a multiple of 64."""
    writer = SlotWriter(slot := Slot.make())
    values = [of(dtype, *shape) for shape in SHAPES]
    places = [writer.place(value) for value in values]
    assert all(place.start % 64 == 0 for place in places)
    for value, found in zip(values, read_back(slot, writer.byte_count, *places), strict=True):
        assert found.dtype == value.dtype
        assert found.shape == value.shape
        bits = torch.uint8 if value.ndim else dtype  # Not every element type can be compared.
        assert torch.equal(found.view(bits), value.view(bits))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64"])
def test_arrays_cross_as_arrays(dtype):
    """Also those that torch would not take: read-only, upside down, in Fortran's order."""
    writer = SlotWriter(slot := Slot.make())
    numbers = np.arange(24).reshape(4, 6)
    plain = (numbers % 2 if dtype == "bool" else numbers).astype(dtype)
    frozen = plain.copy()
    frozen.setflags(write=False)
    values = [plain, frozen, plain[::-1, ::-2], np.asfortranarray(plain), plain[1:1], plain[2, 3:4]]
    values.append(np.array(plain[3, 5]))  # Without axes.
    places = [writer.place(value) for value in values]
    for value, found in zip(values, read_back(slot, writer.byte_count, *places), strict=True):
        assert type(found) is np.ndarray
        assert found.dtype == value.dtype
        assert found.shape == value.shape
        assert found.tobytes() == value.tobytes()


STRIDED = {
    "channels-last": lambda: of(torch.uint8, 2, 4, 5, 3).permute(0, 3, 1, 2),
    "image": lambda: of(torch.uint8, 4, 5, 3).permute(2, 0, 1),
    "transposed": lambda: of(torch.float32, 4, 6).T,
    "every other": lambda: of(torch.int32, 10, 6)[::2, 1::3],
    "repeated": lambda: of(torch.int16, 5, 1).expand(5, 4),
}


@pytest.mark.parametrize("make", STRIDED.values(), ids=STRIDED)
def test_strides_are_those_that_a_copy_has(make):
    """An image stays channels-last in memory; holes and repetitions are not carried along."""
    writer, value = SlotWriter(slot := Slot.make()), make()
    place = writer.place(value)
    (found,) = read_back(slot, writer.byte_count, place)
    assert torch.equal(found, value)
    assert found.stride() == value.clone().stride()


@pytest.mark.parametrize("make", STRIDED.values(), ids=STRIDED)
def test_what_lies_in_the_slot_is_not_copied(make):
    """Filled in place, with whatever strides it has there."""
    writer = SlotWriter(slot := Slot.make())
    writer.take(100)
    expected = make()
    base = expected if expected._base is None else expected._base
    taken = writer.take(base.nbytes)
    filled = taken.view(base.dtype).view(base.shape).copy_(base)
    start = filled.storage_offset() + expected.storage_offset()
    value = torch.as_strided(filled, expected.shape, expected.stride(), start)
    before = writer.byte_count
    place = writer.place(value)
    assert writer.byte_count == before
    assert place.strides == expected.stride()
    assert torch.equal(read_back(slot, before, place)[0], expected)


def test_a_slot_that_grows_keeps_what_was_placed():
    """In the middle of a batch: what was taken and placed before is there in the end, and more."""
    writer = SlotWriter(slot := Slot.make())
    taken = [writer.take(size).fill_(number) for number, size in enumerate((10, 5000, 3, 100_000))]
    places = [writer.place(value) for value in taken]
    places += [writer.place(of(torch.int64, 20_000) + number) for number in range(4)]
    taken[0].fill_(99)  # After the slot has grown, through the mapping from before.
    found = read_back(slot, writer.byte_count, *places)
    sizes = [(99, 10), (1, 5000), (2, 3), (3, 100_000)]
    assert [set(part.tolist()) for part in found[:4]] == [{number} for number, _ in sizes]
    assert [len(part) for part in found[:4]] == [size for _, size in sizes]
    for number, part in enumerate(found[4:]):
        assert torch.equal(part, of(torch.int64, 20_000) + number)


def test_a_batch_of_many_pieces_makes_few_mappings():
    """A slot grows by shares of itself, not by every piece."""
    writer = SlotWriter(slot := Slot.make())
    values = [torch.full((5000 + number,), number, dtype=torch.int16) for number in range(500)]
    places = [writer.place(value) for value in values]
    assert len(writer._memories) < 40
    for value, found in zip(values, read_back(slot, writer.byte_count, *places), strict=True):
        assert torch.equal(found, value)


def test_the_next_batch_begins_at_the_front():
    """A slot is as large as the largest batch that it ever held, a quarter more at most."""
    slot = Slot.make()
    for count in (10_000, 50, 60_000, 1, 60_000):
        writer = SlotWriter(slot)
        place = writer.place(of(torch.uint8, count))
        assert place.start == 0
        assert writer.byte_count == count
        assert torch.equal(read_back(slot, count, place)[0], of(torch.uint8, count))
    assert 60_000 <= os.fstat(slot.descriptor).st_size <= 75_000 + 4096


def test_an_empty_batch_can_be_placed():
    """A batch may consist of texts alone, or of tensors without elements."""
    writer = SlotWriter(slot := Slot.make())
    assert writer.take(0).shape == (0,)
    place = writer.place(torch.empty(0, 4, dtype=torch.float32))
    (found,) = read_back(slot, writer.byte_count, place)
    assert found.shape == (0, 4)
    assert found.dtype == torch.float32


def test_a_tensor_outlives_its_slot():
    """The memory is there until the last tensor over it is gone; the descriptor goes before."""
    slot = Slot.make()
    descriptor = slot.descriptor
    writer = SlotWriter(slot)
    place = writer.place(of(torch.int32, 10_000))
    found = reader_of(slot, writer.byte_count).at(place)[3:9000]
    del slot, writer
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert found.tolist() == [number % 100 for number in range(3, 9000)]


SIZED = {"small": 16, "large": 100_000}


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("make", STRIDED.values(), ids=STRIDED)
@pytest.mark.parametrize("count", SIZED.values(), ids=SIZED)
def test_each_tensor_has_a_storage_that_ends_where_it_ends(make, count, copies):
    """Also a channels-last image, or an array: what is saved of it is itself alone."""
    writer = SlotWriter(slot := Slot.make())
    value = torch.cat([make()] * (count // 16))
    places = [writer.place(part) for part in (of(torch.int64, 3000), value, value.numpy())]
    reader = reader_of(slot, writer.byte_count, copies=copies)
    _, found, array = map(reader.at, places)
    assert torch.equal(found, value)
    assert np.array_equal(array, value.numpy())
    for one in (found, torch.from_numpy(array)):
        assert one.untyped_storage().nbytes() == value.nbytes
        assert one.storage_offset() == 0


def test_a_slot_is_free_when_its_large_tensors_are_gone():
    """Small ones do not hold it, nor do copies; a view of a large one does."""
    writer, released = SlotWriter(slot := Slot.make()), []
    small, large = writer.place(of(torch.int64, 64)), writer.place(of(torch.int32, 100_000))
    for settings, place, holds in (
        ({}, small, False),
        ({}, large, True),
        ({"copies": True}, large, False),
    ):
        reader = reader_of(slot, writer.byte_count, lambda: released.append(1), **settings)
        found = reader.at(place)[5:9]
        del reader
        assert (released == []) is holds
        assert found.tolist() == [5, 6, 7, 8]
        del found
        assert released == [1]
        released.clear()


def test_pages_of_a_large_tensor_that_is_gone_are_given_back():
    """A user may keep the masks of a batch and let go of its images; neither side moves."""
    writer = SlotWriter(slot := Slot.make())
    values = [of(torch.int32, 500_000) + number for number in range(3)] + [of(torch.uint8, 20_000)]
    places = [writer.place(value) for value in values]
    memory = slot.memory(writer.byte_count)
    reader = reader_of(slot, writer.byte_count)
    first, second, third, fourth = map(reader.at, places)
    windows = reader.windows
    del reader, first, third
    before = os.fstat(slot.descriptor).st_blocks * 512
    discard_unused(memory, windows)
    left = os.fstat(slot.descriptor).st_blocks * 512
    assert before - left >= 2 * 2_000_000 - 4 * 4096
    assert torch.equal(second, values[1])
    assert torch.equal(fourth, values[3])
    assert len(windows) == 2
    discard_unused(memory, windows)
    assert os.fstat(slot.descriptor).st_blocks * 512 == left


def test_discarded_pages_are_given_back():
    """Pages of a slot that is not in use are the system's again; it can be filled anew."""
    slot = Slot.make()
    memory = slot.memory(2**22)
    memory.tensor().fill_(1)
    assert os.fstat(slot.descriptor).st_blocks * 512 >= 2**22
    memory.discard()
    assert os.fstat(slot.descriptor).st_blocks == 0
    assert int(memory.tensor().max()) == 0
    memory.tensor().fill_(2)
    assert int(memory.tensor().min()) == 2


def test_nothing_has_a_name_in_a_file_system(left_in_shared_memory):
    """However the processes end, nothing is left behind in /dev/shm."""
    slot = Slot.make()
    slot.memory(2**20).tensor().fill_(1)
    assert left_in_shared_memory() == []
    assert os.readlink(f"/proc/self/fd/{slot.descriptor}") == "/memfd:lmdb-packer-batch (deleted)"
    assert not os.get_inheritable(slot.descriptor)
