"""Numbers and lists as people read them."""

from __future__ import annotations

from collections.abc import Iterable

_NAMES_SHOWN_MAX = 5


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
    """A duration with the unit that suits it: "310 us", "4.2 ms", "1.5 s", "3.0 h"."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 3600:
        return f"{seconds:.1f} s"
    return f"{seconds / 3600:.1f} h"


def count_text(count: int, noun: str) -> str:
    """A count and what is counted: "1 core", "12,000 files"."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun}es" if noun.endswith(("s", "x")) else f"{noun}s"
    return f"{count:,} {plural}"


def names_text(names: Iterable[str]) -> str:
    """The first few names, quoted, and how many more there are: "'a', 'b' and 7 more"."""
    quoted = [repr(name) for name in names]
    more = len(quoted) - _NAMES_SHOWN_MAX
    return ", ".join(quoted[:_NAMES_SHOWN_MAX]) + (f" and {more:,} more" if more > 0 else "")


def readable_path(path: bytes) -> str:
    r"""A path as one can print it anywhere: bytes that are not UTF-8 and controls as `\xe9`."""
    text = path.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
