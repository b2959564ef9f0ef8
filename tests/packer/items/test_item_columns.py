"""Raw items that are made from columns are those that a list of them would hold."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.items.file_table import FileTable
from packer.items.item_columns import ChosenItems, FileItems, are_plain_files, byte_counts
from packer.items.raw_item import RawItem

CATS, DOGS = {"label": 0}, {"label": 1}

files = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=6),
        st.integers(0, 2**63 - 1),
        # A file system may have times before 1970, and after 2262.
        st.integers(-(2**63), 2**64 - 1),
    ),
    max_size=12,
)


def table_of(found: list[tuple[bytes, int, int]]) -> FileTable:
    table = FileTable()
    half = len(found) // 2
    for part in (found[:half], found[half:]):
        names, sizes, times = [list(column) for column in zip(*part, strict=True)] or ([], [], [])
        table.add(names, sizes, times)
    return table


@given(files, st.data())
def test_items_made_from_columns_are_those_of_a_list(found, data):
    """Each, all of them, slices and negative positions; also those that are chosen again."""
    cut = data.draw(st.integers(0, len(found)))
    items = FileItems(table_of(found))
    # Runs in an order that is not that of the table, one of no folder.
    items.add(b"dogs/old", cut, len(found), DOGS)
    items.add(b"", 0, cut, CATS)
    listed = [
        *(RawItem(b"dogs/old/" + n, b"dogs/old/" + n, s, t, DOGS) for n, s, t in found[cut:]),
        *(RawItem(n, n, s, t, CATS) for n, s, t in found[:cut]),
    ]
    check(items, listed)

    order = data.draw(st.permutations(range(len(listed))))
    chosen = ChosenItems(items, np.array(order, np.int64))
    listed = [listed[at] for at in order]
    check(chosen, listed)
    split = np.array([at % 2 for at in range(len(listed))], np.int32)
    kinds = [{"label": 7, "split": number} for number in (0, 1)]
    drawn = ChosenItems(chosen, np.arange(len(listed)), split, kinds)
    listed = [
        RawItem(i.key, i.path, i.byte_count, i.mtime_ns, kinds[at % 2])
        for at, i in enumerate(listed)
    ]
    check(drawn, listed)
    half = np.arange(0, len(listed), 2)
    check(ChosenItems(drawn, half), listed[::2])
    assert all(map(are_plain_files, (items, chosen, drawn)))
    assert not are_plain_files(listed)


def check(items, listed):
    assert list(items) == listed
    assert items == listed
    assert len(items) == len(listed)
    assert [items[at] for at in range(len(listed))] == listed
    for at in (slice(None), slice(1, -1), slice(3, 1), slice(None, None, -2)):
        assert items[at] == listed[at]
    assert byte_counts(items).tolist() == [item.byte_count for item in listed]
    if listed:
        assert items[-1] == listed[-1]
    with pytest.raises(IndexError):
        items[len(listed)]


def test_a_file_takes_few_bytes_beside_its_name():
    """A hundred million files fit one machine: 24 bytes each in the table, 12 where chosen."""
    count = 10_000
    names = [b"%08d.jpg" % n for n in range(count)]
    tracemalloc.start()
    try:
        items = FileItems(FileTable())
        for first in range(0, count, 1000):
            numbers = range(2**40 + first, 2**40 + first + 1000)
            items._table.add(names[first : first + 1000], numbers, numbers)
            items.add(b"%d" % first, first, first + 1000, CATS)
        in_table = tracemalloc.get_traced_memory()[0] / count
        chosen = ChosenItems(items, np.arange(count), np.zeros(count, np.int32), [DOGS])
        in_all = tracemalloc.get_traced_memory()[0] / count
        assert sum(1 for _ in chosen) == count
        at_most = tracemalloc.get_traced_memory()[1] / count
    finally:
        tracemalloc.stop()
    assert in_table < 12 + 24 + 6  # Lists that grow have some room ahead.
    assert in_all < in_table + 13
    assert at_most < in_all + 10
