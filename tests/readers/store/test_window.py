"""The index of a shard comes by few reads."""

from __future__ import annotations

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


@given(st.integers(0, len(CONTENT)), st.lists(st.tuples(PLACE, PLACE), max_size=20))
def test_slices_are_those_of_the_file(size, places):
    """Before and after it is closed, also empty ones and past the end, of any length of file."""
    content = CONTENT[:size]
    window = Window(Counted(content))
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
