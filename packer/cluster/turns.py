"""Which shards a node makes, in which order: its own, then what nobody has, then what is not done.

No node waits for another. Each takes its part first; whoever is through with that takes shards that
nobody has begun, and then makes those once more that others have begun and not finished: they may
be slow, or dead. So a node that is ten times slower than the rest costs one shard's time.
"""

from __future__ import annotations

from collections.abc import Iterator

from packer.errors import RejectedItemError
from packer.workspace.folder import Workspace
from packer.workspace.nodes import Claims, NodeFile
from packer.workspace.tasks import TaskPlan


class Turns:
    """The numbers of the shards that this process is to make, one by one as it asks for them.

    Args:
        workspace: Of the build.
        plan: What its tasks have in common.
        part: (which, of how many): the part that it begins with, from 1; None has none of its own.
        node: What this process says of itself.
        claims: Whom the others have taken what for.

    Attributes:
        is_over: Whether there was nothing more to take.
    """

    def __init__(
        self,
        workspace: Workspace,
        plan: TaskPlan,
        part: tuple[int, int] | None,
        node: NodeFile,
        claims: Claims,
    ) -> None:
        self._workspace = workspace
        self._plan = plan
        self._part = part
        self._node = node
        self._claims = claims
        self.is_over = False

    def __iter__(self) -> Iterator[int]:
        for number in self._numbers():
            if self._plan.stops_at_reject:
                self._check_stopped()
            self._node.begin(number)
            yield number
        self.is_over = True

    def _numbers(self) -> Iterator[int]:
        count = self._plan.shard_count
        # Files that can only be read forward are read on by whoever has begun: so parts are runs.
        for number in part_of(count, self._part):
            if not self._workspace.has_report(number) and self._claims.take_first(number):
                yield number
        self._workspace.look_anew()
        for number in self._others(self._workspace.reported() | self._claims.claimed()):
            if not self._workspace.has_report(number) and self._claims.take_first(number):
                yield number
        self._workspace.look_anew()
        for number in self._others(self._workspace.reported()):
            if not self._workspace.has_report(number) and self._claims.help_with(number):
                yield number

    def _others(self, done: set[int]) -> list[int]:
        """All shards but some, backwards from a place of this process's own.

        Those whose parts they are go forwards, and other helpers begin at other places.
        """
        count = self._plan.shard_count
        start = sum(self._node.id.encode()) * 2_654_435_761 % max(1, count)
        numbers = [(start - step) % count for step in range(count)]
        return [number for number in numbers if number not in done]

    def _check_stopped(self) -> None:
        reason = self._workspace.stop_reason()
        if reason is not None:
            raise RejectedItemError(f"Another node met a reject: {reason}")


def part_of(count: int, part: tuple[int, int] | None) -> range:
    """The shards of a part, (which, of how many) from 1: runs that differ by one at most."""
    if part is None:
        return range(0)
    which, parts = part
    return range(count * (which - 1) // parts, count * which // parts)
