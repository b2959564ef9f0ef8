"""What LitData's chunks hold becomes a store through LitData's own reader."""

from __future__ import annotations


def test_optimized_chunks_are_built_as_a_dataset(run):
    """Pixel for pixel, in their order, with their labels; nothing of the format is ours to know."""
    (facts,) = run("with_litdata", 1)
    found = facts["rank"]
    assert (found["format"], found["sample_count"]) == ("dataset", 12)
    assert found["same"] == [True] * 12
