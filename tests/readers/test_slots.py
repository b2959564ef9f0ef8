"""What is placed in a slot is found there by every process that maps it."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from readers.slots import Slot, SlotWriter, tensor_at

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
    data = Slot(os.dup(slot.descriptor)).memory(byte_count).tensor()
    return [tensor_at(data, place) for place in found]


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
    place = writer.place(of(torch.int32, 1000))
    found = tensor_at(slot.memory(writer.byte_count).tensor(), place)[3:900]
    del slot, writer
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert found.tolist() == [number % 100 for number in range(3, 900)]


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
