"""What people see of long work: a bar on a terminal or in a notebook, lines in a log."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tqdm import tqdm

from packer.wording import count_text, rate_text, time_text

LOG_INTERVAL_S = 30.0
"""Seconds between lines in a log, which is kept and read later."""

_FIRST_S = 0.5
"""Seconds until a terminal shows that work without a count is going on."""


def is_notebook() -> bool:
    """Whether stderr is the output of a notebook's cell, which shows a bar as a terminal does."""
    return type(sys.stderr).__module__.startswith("ipykernel.")


def is_wanted(progress: bool | None) -> bool:
    """Whether to show how far work is: as the caller says, or else in a notebook alone."""
    return is_notebook() if progress is None else progress


def _bar_class() -> Any:
    """Of a notebook its own, which is loaded there alone: it takes a while."""
    if not is_notebook():
        return tqdm
    with warnings.catch_warnings():
        # Without widgets it draws text, which does as well, and warns of it.
        warnings.simplefilter("ignore")
        return importlib.import_module("tqdm.auto").tqdm


def say(lines: Iterable[str]) -> None:
    """Lines on stderr that a log has at once, whatever comes later."""
    for line in lines:
        sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Progress:
    """A bar that counts images; where nobody can see one, a line now and then.

    Args:
        total: Images in all.
        done: Images that are done already; they do not count in the rate.
        shows: Whether to show anything at all.
        unit: What is counted.
        verb: What is done to them, as a line in a log begins.
        interval_s: Seconds between lines.
    """

    def __init__(
        self,
        *,
        total: int,
        done: int = 0,
        shows: bool,
        unit: str = "images",
        verb: str = "done",
        interval_s: float = LOG_INTERVAL_S,
    ) -> None:
        self._shows = shows
        self._is_drawn = shows and (sys.stderr.isatty() or is_notebook())
        self._total, self._first, self._done = total, done, done
        self._unit, self._verb, self._interval_s = unit, verb, interval_s
        self._started = self._told = time.monotonic()
        self._reject_count = 0
        self._bar = _bar_class()(
            total=total,
            initial=done,
            unit=f" {unit}",
            disable=not self._is_drawn,
            file=sys.stderr,
            smoothing=0.1,
            dynamic_ncols=True,
        )

    def add(self, count: int) -> None:
        """So many more are done."""
        self._bar.update(count)
        self._done += count
        now = time.monotonic()
        if self._shows and not self._is_drawn and now - self._told >= self._interval_s:
            self._told = now
            self.say(self._line(now - self._started))

    def reject(self, count: int) -> None:
        """So many more were rejected."""
        self._reject_count += count
        if self._reject_count:
            self._bar.set_postfix_str(count_text(self._reject_count, "reject"), refresh=False)

    def say(self, text: str) -> None:
        """A line above the bar, also where none is drawn: it is part of a job's log."""
        if self._shows:
            self._bar.write(text, file=sys.stderr)
            sys.stderr.flush()

    def _line(self, seconds: float) -> str:
        if not self._total:
            return f"{self._verb} {self._done:,} {self._unit}"
        text = f"{self._verb} {self._done:,} of {self._total:,} {self._unit}"
        rate = (self._done - self._first) / max(seconds, 1e-9)
        rejected = f", {count_text(self._reject_count, 'reject')}" if self._reject_count else ""
        if rate <= 0:
            return text + rejected
        left = time_text((self._total - self._done) / rate)
        return f"{text}, {rate_text(rate)} {self._unit}/s{rejected}, {left} left"

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


@contextlib.contextmanager
def counting(
    total: int,
    on_progress: Callable[[int], None],
    *,
    progress: bool | None,
    unit: str = "samples",
) -> Iterator[Callable[[int], None]]:
    """What is to be told how many more are done: it tells the caller's function, and a bar.

    Args:
        total: How many there are in all.
        on_progress: The caller's.
        progress: See `is_wanted`.
        unit: What is counted.
    """
    with Progress(total=total, shows=is_wanted(progress), unit=unit) as bar:

        def tell(count: int) -> None:
            bar.add(count)
            on_progress(count)

        yield tell


class Waiting:
    """Shows that work goes on whose end cannot be told, such as a walk over folders.

    A terminal shows for how long, from half a second on, and what was counted; a log has a line
    every 30 seconds.

    Args:
        text: What goes on: "scanning".
        shows: Whether to show anything at all.
        interval_s: Seconds between lines in a log.
    """

    def __init__(self, text: str, *, shows: bool, interval_s: float = LOG_INTERVAL_S) -> None:
        self._text, self._count_text = text, ""
        self._is_drawn = sys.stderr.isatty() or is_notebook()
        self._interval_s = _FIRST_S if self._is_drawn else interval_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True) if shows else None

    def count(self, folders: int, files: int) -> None:
        """So much was met so far."""
        self._count_text = f"{count_text(files, 'file')}, {count_text(folders, 'folder')}, "

    def _tell(self) -> None:
        started = time.monotonic()
        width = 0
        while not self._is_over.wait(self._interval_s):
            line = f"{self._text}: {self._count_text}{time.monotonic() - started:.0f} s"
            width = max(width, len(line))
            sys.stderr.write(f"\r{line:<{width}}" if self._is_drawn else f"{line}\n")
            sys.stderr.flush()
        if width and self._is_drawn:
            sys.stderr.write("\r" + " " * width + "\r")
            sys.stderr.flush()

    def __enter__(self) -> Waiting:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
