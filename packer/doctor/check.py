"""One line of the checklist, and how its numbers are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["pass", "warn", "fail", "skip"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: Lower-case words with underscores; stays the same between releases.
        status: pass; warn: training works, but is slow or may die; fail: it cannot work as it is;
            skip: it could not be looked at here.
        figure: What was found, with what was held against it.
        why: Why it matters.
        remedy: The command or setting that mends it. Empty when there is nothing to mend.
    """

    name: str
    status: Status
    figure: str
    why: str
    remedy: str = ""

    def lines(self) -> list[str]:
        """The check for a person."""
        lines = [f"{self.status}  {self.name.replace('_', ' '):<15} {self.figure}"]
        lines.append(f"      {self.why}")
        if self.remedy:
            lines.append(f"      Do: {self.remedy}")
        return lines


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
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {plural}"
