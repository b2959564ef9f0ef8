"""Which workers a Dask cluster has during a build, and which of them cannot do its work.

All that are there are asked before work begins, and each that comes later when it comes: whether it
sees what the driver sees, may write there, and has its libraries.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from distributed import Client

from packer.engines.dask_task import check_worker, versions
from packer.errors import NodeError
from packer.workspace.folder import Workspace

LOOK_S = 2.0
"""How often to see which workers there are."""


class DaskWorkers:
    """The workers of a cluster during one build.

    Args:
        client: Of the cluster.
        workspace: The build's workspace.
        token: See `check_worker`.
    """

    def __init__(self, client: Client, workspace: Workspace, token: str) -> None:
        self._client, self._workspace, self._token = client, workspace, token
        self.expected = versions()
        """What workers must have; see `check_worker`."""
        self._looked = 0.0
        self._fit: set[str] = set()
        self._had_fit = False
        self._unfit: dict[str, str] = {}
        self._threads: dict[str, int] = {}
        self.thread_count_max = 0
        """The most threads that there were at a time."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._threads)

    @property
    def thread_count(self) -> int:
        """Their threads, when they were looked at last."""
        return sum(self._threads.values())

    def check(self) -> None:
        """See that all that are there can do the work.

        Raises:
            NodeError: One cannot.
        """
        for text in self.look(at_once=True):
            raise NodeError(text)

    def look(self, *, at_once: bool = False) -> list[str]:
        """See which there are, now and then; those that came and cannot do the work, with reasons.

        Args:
            at_once: Look now, however short ago that was done.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_S and self._threads and not at_once:
            return []
        self._threads = dict(self._client.nthreads())
        self.thread_count_max = max(self.thread_count_max, self.thread_count)
        there = self._threads.keys()
        self._fit &= there  # An address may be given to another worker.
        self._unfit = {a: reason for a, reason in self._unfit.items() if a in there}
        new = there - self._fit - self._unfit.keys()
        found = self._ask(new) if new else []
        self._had_fit = self._had_fit or bool(self._fit)
        self._looked = time.monotonic()
        return found

    def leave_out(self, address: str, reason: str) -> str | None:
        """Take note of a worker that cannot do the work; the text that says so, the first time."""
        if address in self._unfit:
            return None
        self._fit.discard(address)
        self._unfit[address] = reason
        return f"Dask worker {address} {reason}"

    def others(self, but: str) -> list[str] | None:
        """Where a shard is to be made, when some are to be avoided: an address, and the unfit."""
        avoided = {*self._unfit, but} & self._threads.keys()
        others = [address for address in self._threads if address not in avoided]
        return others if avoided and others else None

    def are_gone(self, addresses: Collection[str]) -> bool:
        """Whether none of some workers was there, when they were looked at last."""
        return self._threads.keys().isdisjoint(addresses)

    def check_any(self) -> None:
        """See that one can do the work, if there are any and none has been there that could.

        Raises:
            NodeError: None can.
        """
        if self.are_all_unfit and not self._had_fit:
            address = min(self._threads)
            raise NodeError(f"Dask worker {address} {self._unfit[address]}")

    @property
    def are_all_unfit(self) -> bool:
        """Whether there are some, and none that can do the work."""
        return bool(self._threads) and self._threads.keys() <= self._unfit.keys()

    @property
    def has_unfit(self) -> bool:
        """Whether there is one that cannot do the work."""
        return bool(self._unfit)

    def _ask(self, addresses: set[str]) -> list[str]:
        answers = self._client.run(
            check_worker,
            *(str(self._workspace.folder), self._token, self.expected),
            workers=sorted(addresses),
            on_error="return",
        )
        texts = []
        for address, answer in answers.items():
            if isinstance(answer, NodeError):
                reason = f"on {answer}"
            elif isinstance(answer, OSError):
                continue  # It went away, or does not answer yet, and is asked the next time.
            elif isinstance(answer, BaseException):
                reason = (
                    f"cannot run packer: {type(answer).__name__}: {answer}. "
                    "Install lmdb-packer there as it is here."
                )
            else:
                self._fit.add(address)
                continue
            text = self.leave_out(address, reason)
            texts += [text] if text else []
        return texts
