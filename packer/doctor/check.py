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
