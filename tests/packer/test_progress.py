"""A progress bar that is there for people only."""

from __future__ import annotations

import io
import sys

import pytest

from packer.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "shows", "is_drawn"),
    [(Terminal(), True, True), (Terminal(), False, False), (io.StringIO(), True, False)],
    ids=["terminal", "not asked for", "file"],
)
def test_a_bar_is_drawn_on_a_terminal_alone(monkeypatch, stream, shows, is_drawn):
    """A log file is not filled with bars; a library call draws nothing unasked."""
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress(total=10, done=4, shows=shows) as bar:
        bar.add(6)
    assert bool(stream.getvalue()) == is_drawn
    if is_drawn:
        assert "10/10" in stream.getvalue()
        assert "images/s" in stream.getvalue()
