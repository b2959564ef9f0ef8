"""A progress bar on stderr: images, images/s and time left; quiet when nobody watches."""

from __future__ import annotations

import sys

from tqdm import tqdm


class Progress:
    """A bar that counts images.

    Args:
        total: Images in all.
        done: Images that are done already; they do not count in the rate.
        shows: Whether to draw at all. A stderr that is not a terminal stays quiet in any case.
        unit: What is counted.
    """

    def __init__(self, *, total: int, done: int = 0, shows: bool, unit: str = "images") -> None:
        self._shows = shows
        self._bar = tqdm(
            total=total,
            initial=done,
            unit=f" {unit}",
            disable=not (shows and sys.stderr.isatty()),
            file=sys.stderr,
            smoothing=0.1,
            dynamic_ncols=True,
        )

    def add(self, count: int) -> None:
        """So many more are done."""
        self._bar.update(count)

    def say(self, text: str) -> None:
        """A line above the bar, also where stderr is not a terminal: it is part of a job's log."""
        if self._shows:
            self._bar.write(text, file=sys.stderr)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
