"""Numbers and lists as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from readers.store.wording import few_text

NAMED_MAX = 20
"""Classes, splits and the like that are named where they are counted, of each kind."""

_NAMES_SHOWN_MAX = 5

_ALIKE_MAX = 3
"""Rejects of one reason that have a line each."""


class Summarized:
    """What a command prints is what `print` shows of what its function in Python gives."""

    def summary(self) -> str:
        """What people want to see of it."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.summary()


def size_text(byte_count: float) -> str:
    """A size in bytes with the unit that suits it: "512 bytes", "64.0 MiB"."""
    if byte_count < 1024:
        return f"{byte_count:.0f} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        byte_count /= 1024
        if byte_count < 1024:
            return f"{byte_count:.1f} {unit}"
    return f"{byte_count / 1024:.1f} TiB"


def time_text(seconds: float) -> str:
    """A duration with the unit that suits it: "310 us", "4.2 ms", "1.5 s", "41 min", "3.0 h"."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 600:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def rate_text(per_s: float) -> str:
    """A rate above 0, in as many digits as say something: "1,512", "8.2", "0.04"."""
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.2g}"


def count_text(count: int, noun: str) -> str:
    """A count and what is counted: "1 core", "12,000 files"."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun}es" if noun.endswith(("s", "x")) else f"{noun}s"
    return f"{count:,} {plural}"


def names_text(names: Iterable[str], count: int | None = None) -> str:
    """The first few names, quoted, and how many more there are: "'a', 'b' and 7 more".

    Args:
        names: The names.
        count: How many there are in all, where `names` are only the first of them.
    """
    return few_text(list(names), _NAMES_SHOWN_MAX, repr, count=count)


def counts_text(counts: Mapping[str, int], most: int = NAMED_MAX) -> str:
    """The first few names and how often each was counted: "cat 12, dog 3 and 7 more"."""
    return few_text(list(counts.items()), most, lambda one: f"{one[0]} {one[1]:,}")


def reason_lines(rejects: Iterable[tuple[str, str]]) -> list[str]:
    """What was rejected and why: "12 x empty: 'a', 'b', 'c', 'd', 'e' and 7 more".

    A reason of a few has a line for each of them: "a: empty".

    Args:
        rejects: (name, reason) of each.
    """
    by_reason: dict[str, list[str]] = {}
    for name, reason in rejects:
        by_reason.setdefault(reason, []).append(name)
    lines = []
    for reason, names in by_reason.items():
        if len(names) > _ALIKE_MAX:
            lines.append(f"{len(names):,} x {reason}: {names_text(names)}")
        else:
            lines += [f"{name}: {reason}" for name in names]
    return lines


def cut_text(text: str, most: int) -> str:
    """A text of at most so many characters: "what is too lo..."."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def readable_path(path: bytes) -> str:
    r"""A path as one can print it anywhere: bytes that are not UTF-8 and controls as `\xe9`."""
    text = path.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
