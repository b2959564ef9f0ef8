"""What a seed is used for stands in one table, and no number serves two ends."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from readers.chance import streams
from readers.chance.random_state import uniforms
from readers.chance.streams import SPANS, Numbers, Purpose, Span
from readers.ops.table import COLOR_ROWS, MOVE_ROWS, SIZE_ROWS


def test_no_two_spans_share_a_position():
    """Each use has numbers of its own, and each span that has a name is in the table."""
    for one, other in combinations(SPANS.values(), 2):
        assert one.first + one.count <= other.first or other.first + other.count <= one.first
    named = {name for name, value in vars(streams).items() if isinstance(value, Span)}
    assert {id(vars(streams)[name]) for name in named} == {id(span) for span in SPANS.values()}


def test_every_op_has_spans_of_its_own():
    """No two ops read the same numbers, and the table says whose each is."""
    rows = {**SIZE_ROWS, **MOVE_ROWS, **COLOR_ROWS}
    used = [(span, kind.__name__) for kind, row in rows.items() for span in row.spans]
    assert len({span for span, _ in used}) == len(used) == len(SPANS)
    names = {span: name.partition(":")[0] for name, span in SPANS.items()}
    for span, name in used:
        assert names[span] == name


def test_positions_and_purposes_never_change():
    """A seed means the same in every release."""
    positions = {name: (span.first, span.count) for name, span in SPANS.items()}
    assert list(positions.values()) == [
        (0, 2), (2, 1), (3, 1), (4, 20), (24, 1), (26, 6), (32, 4),
    ]  # fmt: skip
    assert [purpose.value for purpose in Purpose] == [0, 16, 17, 18, 32, 33, 48, 49, 64, 65]


@pytest.mark.parametrize(
    "spans", [[Span(2, 1)], [Span(0, 2), Span(4, 20)], [Span(33, 2), Span(7, 3)]]
)
def test_numbers_are_those_of_their_positions(spans):
    """Whichever spans are asked for beside one."""
    numbers = Numbers(spans, 7, 3, [5, 0, 2**40])
    whole = uniforms(7, 3, [5, 0, 2**40], 40)
    for span in spans:
        assert np.array_equal(numbers[span], whole[:, span.first : span.first + span.count])


def test_no_numbers_still_check_their_arguments():
    """A seed out of range is refused also where nothing is random."""
    with pytest.raises(ValueError, match="seed must be in"):
        Numbers([], -1, 0, [0])
