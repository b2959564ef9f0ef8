"""What maps the shard tasks of a build, wherever they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeAlias

OnProgress: TypeAlias = Callable[[int, int | None], None]
"""Told (items done since the last call, number of a finished shard or None). The count is negative
where items were counted that have to be done again. (0, None) says that time goes by: whoever
listens hears something every few seconds, and may raise to end it all."""

OnNotice: TypeAlias = Callable[[str], None]
"""Told in one line of what happened to this run and not to the store: a worker that died."""


class Engine(Protocol):
    """Has the shards of one workspace made. Leaving its context ends all that it started.

    A shard task (`packer.engines.task.build_shard`) is a function of the workspace alone: its bytes
    do not depend on which engine maps it, on which machine, or on how often.

    Attributes:
        worker_count: Build workers at once, as far as it is known.
    """

    worker_count: int

    def start_ahead(self) -> None:
        """Get ready while the raw data is still looked through. What fails is told by `map`."""
        ...

    def map(
        self,
        numbers: Iterable[int],
        scratch: Path,
        on_progress: OnProgress,
        on_notice: OnNotice,
    ) -> None:
        """Have shards made until all are, or one cannot be. Called once.

        Args:
            numbers: The shards to make. The next one is asked for when there is somebody to make
                it: others may have made it by then.
            scratch: Folder on this machine to write them in, where they are made here.
            on_progress: Told of items and shards that are done.
            on_notice: Told of what went wrong and was mended.

        Raises:
            RejectedItemError: An item was rejected, and the build stops at the first.
            OSError: A disk is full, or a limit on file sizes was reached; nothing can be started.
            DamagedTaskError: The file of a task is not as it was written.
            WorkerError: A task met a bug, or too many workers died.
        """
        ...

    def stop(self) -> None:
        """End everything, whatever it is doing."""
        ...

    def __enter__(self) -> Engine: ...

    def __exit__(self, *_: object) -> None: ...
