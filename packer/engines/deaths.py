"""Build workers that died: on which raw item, how often, and what follows from it.

A death proves little: the kernel's out-of-memory killer takes any worker, and a decoder crashes on
one file. So a shard is tried again, and an item becomes a reject once two workers died on it.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import dataclass, field

from packer.engines.worker import NO_MEMORY_STATUS
from packer.errors import WorkerError
from packer.items.raw_item import RawItem
from packer.wording import readable_path
from packer.workspace.folder import Workspace

_DEATHS_PER_ITEM = 2

_ITEMLESS_DEATHS_MAX = 2
"""Of workers that were starting or writing: no item can be left out for those."""

_DEATHS_MAX = 100
"""Each costs a shard's work, so that past this a build would hardly move."""


@dataclass(frozen=True, kw_only=True)
class Death:
    """One build worker that died over a shard.

    Attributes:
        number: The shard.
        position: The item of the shard that it was on, or what is no position when it was on none.
        status: Its exit status; negative is a signal.
        said: The last lines that it, or a library in it, printed.
    """

    number: int
    position: int
    status: int
    said: list[str] = field(default_factory=list)

    @property
    def how(self) -> str:
        """What ended it: "signal 11: segmentation fault"."""
        if self.status == NO_MEMORY_STATUS:
            return "it ran out of memory"
        if self.status >= 0:
            return f"exit status {self.status}"
        if self.status == -signal.SIGKILL:
            return "signal 9: killed, perhaps by the out-of-memory killer"
        name = signal.strsignal(-self.status) or "unknown"
        return f"signal {-self.status}: {name.lower()}"


class Deaths:
    """The deaths of one build.

    Args:
        workspace: The build's workspace.
        again: When or where a shard is tried again, for people.
    """

    def __init__(self, workspace: Workspace, again: str = "at the end, on its own") -> None:
        self._workspace = workspace
        self._again = again
        self._count = 0
        self._itemless_count = 0
        self._by_item: Counter[tuple[int, int]] = Counter()
        self._lost: dict[int, dict[int, str]] = {}

    def lost_items(self, number: int) -> dict[int, str]:
        """Items of a shard that are not to be touched again: position -> reason of the reject."""
        return self._lost.get(number, {})

    def add(self, death: Death) -> str:
        """Count one more.

        Returns:
            What happened and what follows, for people.

        Raises:
            WorkerError: The build cannot go on.
        """
        item = self._item(death)
        on = f"working on {readable_path(item.path)}" if item else f"making shard {death.number}"
        text = f"a build worker died while {on} ({death.how})"
        self._count += 1
        if item is None:
            self._itemless_count += 1
            if self._itemless_count > _ITEMLESS_DEATHS_MAX:
                raise self._error(f"{text}, as did {_ITEMLESS_DEATHS_MAX} before it", death)
        if self._count >= _DEATHS_MAX:
            raise self._error(f"{text}, the {self._count}th of this build", death)
        if item is None:
            return f"{text}; the shard is tried again"
        place = (death.number, death.position)
        self._by_item[place] += 1
        if self._by_item[place] < _DEATHS_PER_ITEM:
            return f"{text}; shard {death.number} is tried again {self._again}"
        self._lost.setdefault(death.number, {})[death.position] = (
            f"a build worker died twice while working on it ({death.how})"
        )
        return f"{text}, for the second time: it becomes a reject"

    def _item(self, death: Death) -> RawItem | None:
        items = self._workspace.read_items(death.number)
        return items[death.position] if 0 <= death.position < len(items) else None

    def _error(self, text: str, death: Death) -> WorkerError:
        said = "".join(f"\n  {line}" for line in death.said)
        kept = ": finished shards are kept" if self._workspace.has_finished() else ""
        return WorkerError(
            f"{text}. Was it out of memory? Try fewer --workers; run the same command{kept}.{said}"
        )
