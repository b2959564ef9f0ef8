"""The index of a shard comes by few reads."""

from __future__ import annotations

import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from readers.store.window import Window


class Counted:
    """A file that counts how often it is asked."""

    def __init__(self, content):
        self.content = content
        self.asked = []

    def __len__(self):
        return len(self.content)

    def __getitem__(self, part):
        self.asked.append((part.start, part.stop))
        return memoryview(self.content)[part]


CONTENT = np.random.default_rng(3).integers(0, 256, 1_000_000, np.uint8).tobytes()
PLACE = st.integers(0, len(CONTENT) + 10)


@given(
    st.integers(0, len(CONTENT)),
    st.lists(st.tuples(PLACE, PLACE), max_size=20),
    st.lists(st.tuples(PLACE, st.integers(1, 300_000)), max_size=4),
)
def test_slices_are_those_of_the_file(size, places, parts):
    """Before and after it is closed, also empty ones and past the end, of any length of file."""
    content = CONTENT[:size]
    window = Window(Counted(content), parts)
    assert len(window) == size
    for start, stop in places:
        assert bytes(window[start:stop]) == content[start:stop]
    window.close()
    for start, stop in places:
        assert bytes(window[start:stop]) == content[start:stop]


def test_what_lies_near_is_read_once():
    """The first two pages by one read, all of the end by another; closed, each slice by its own."""
    file = Counted(CONTENT)
    window = Window(file)
    for start in (0, 4096, len(CONTENT) - 10, len(CONTENT) - 90_000, len(CONTENT) - 5000):
        window[start : start + 100]
    assert len(file.asked) == 2
    window.close()
    window[0:50]
    assert file.asked[2] == (0, 50)


def test_a_small_file_is_read_once():
    """All of it by one read."""
    file = Counted(CONTENT[:200_000])
    window = Window(file)
    for start in (0, 4096, 150_000, 199_900):
        assert bytes(window[start : start + 100]) == CONTENT[start : start + 100]
    assert file.asked == [(0, 200_000)]


class Slow(Counted):
    """A file of which both ends must be asked for before any of them comes."""

    def __init__(self, content):
        super().__init__(content)
        self.both = threading.Barrier(2)

    def __getitem__(self, part):
        self.both.wait(30)
        return super().__getitem__(part)


def test_both_ends_are_on_their_way_at_once():
    """They are one round trip, not two."""
    window = Window(Slow(CONTENT))
    assert bytes(window[8000:8192]) == CONTENT[8000:8192]
    assert bytes(window[-100:]) == CONTENT[-100:]


def test_parts_that_are_named_are_read_and_nothing_else():
    """All at once; what none of them has is read as it comes up."""
    file = Counted(CONTENT)
    window = Window(file, [(0, 4248), (500_000, 1000)])
    assert sorted(file.asked) == [(0, 4248), (500_000, 501_000)]
    assert bytes(window[4096:4248]) == CONTENT[4096:4248]
    assert bytes(window[500_100:501_000]) == CONTENT[500_100:501_000]
    assert len(file.asked) == 2
    assert bytes(window[500_100:501_001]) == CONTENT[500_100:501_001]
    assert len(file.asked) == 3
