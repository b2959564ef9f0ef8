"""A progress bar that is there for people only."""

from __future__ import annotations

import io
import re
import sys
import threading
import time

import pytest

from packer.progress import Progress, Waiting


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


def test_a_log_has_a_line_now_and_then(monkeypatch):
    """With how far the work is; nothing where nothing was asked for."""
    log, quiet = io.StringIO(), io.StringIO()
    for stream, shows in ((log, True), (quiet, False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress(total=5000, done=1000, shows=shows, verb="built", interval_s=0) as bar:
            bar.reject(3)
            bar.add(1000)
    assert re.fullmatch(
        r"built 2,000 of 5,000 images, [0-9,.]+ images/s, 3 rejects, .* left\n", log.getvalue()
    )
    assert quiet.getvalue() == ""


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_a_wait_without_a_count_shows_life(monkeypatch, stream):
    """On a terminal one line, wiped at the end; in a log a line each time; then no more."""
    monkeypatch.setattr(sys, "stderr", stream)
    threads = threading.active_count()
    with Waiting("scanning", shows=True, interval_s=0.01) as waiting:
        waiting.count(12, 40_000)
        deadline = time.monotonic() + 60
        while "scanning: " not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert threading.active_count() == threads
    shown = stream.getvalue()
    assert re.search(r"scanning: 40,000 files, 12 folders, [0-9]+ s", shown)
    assert shown.endswith("\r" if stream.isatty() else " s\n")
    with Waiting("scanning", shows=False, interval_s=0):
        pass
    assert stream.getvalue() == shown


def test_a_notebook_draws_its_own_bar(monkeypatch):
    """Which tqdm chooses there; where it lacks widgets, the bar of a terminal is drawn."""
    cell = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr(sys, "stderr", cell)
    monkeypatch.delitem(sys.modules, "tqdm.auto", raising=False)
    with Progress(total=2, shows=True) as bar:
        bar.add(2)
    assert "tqdm.auto" in sys.modules
    assert "2/2" in cell.getvalue()
