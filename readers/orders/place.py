"""Where a loader or sampler is: in which epoch, and how far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STATE_VERSION = 1


@dataclass(eq=False)
class Run:
    """One iteration.

    Attributes:
        epoch: Its number.
        position: How far it is in the order of all ranks, in samples that were handed out.
    """

    epoch: int
    position: int


class Place:
    """Counts epochs: each iteration is the next one, unless another is asked for."""

    def __init__(self) -> None:
        self._next = Run(0, 0)
        self._run: Run | None = None

    @property
    def now(self) -> tuple[int, int]:
        """Epoch and position of the iteration under way, or of the one to come."""
        run = self._run or self._next
        return run.epoch, run.position

    @property
    def next_epoch(self) -> int:
        """The epoch of the iteration to come."""
        return self._next.epoch

    def begin(self) -> Run:
        """A new iteration begins. Its position is to be kept up by who hands out samples."""
        self._run = self._next
        self._next = Run(self._run.epoch + 1, 0)
        return self._run

    def begin_at_end(self, end: int) -> Run | None:
        """A new iteration, if it is one that was resumed at the end of its epoch.

        NOTE [ iterators of StatefulDataLoader ]
        It makes iterators of a sampler that it does not use, so an epoch is begun with its first
        sample. And one who joins samples to batches asks for more before the last batch is handed
        on: so the end of an iteration does not end the epoch, and a state taken at the last batch
        goes on with nothing. But of a loader that had finished its epoch, it drops that empty
        iterator unused: it counts from when it is made.
        """
        return self.begin() if self._next.position >= end > 0 else None

    def end(self, run: Run) -> None:
        """An iteration has come to its end; one that was broken off has not."""
        if self._run is run:
            self._run = None

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be of this epoch: from where it was resumed, if it was.

        Raises:
            ValueError: The epoch is negative.
        """
        if epoch < 0:
            raise ValueError(f"epoch must be at least 0; got {epoch!r}")
        if epoch != self._next.epoch:
            self.go_to(epoch, 0)

    def go_to(self, epoch: int, position: int) -> None:
        """Have the next iteration begin here."""
        self._next = Run(epoch, position)
        self._run = None

    def state_dict(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        """The place, and what it is a place in."""
        epoch, position = self.now
        return {"version": STATE_VERSION, "epoch": epoch, "position": position, **identity}

    def load_state_dict(self, state: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
        """Have the next iteration begin where a state was taken.

        Raises:
            ValueError: The state is of another order, seed or dataset, or is no state at all.
        """
        expected = {"version": STATE_VERSION, **identity}
        for name in ("version", "epoch", "position", *identity):
            if name not in state:
                raise ValueError(
                    f"the state has no {name!r}: it has {', '.join(map(repr, state)) or 'nothing'}."
                    " Give what state_dict() of a loader or sampler of the same kind returned"
                )
            if name in expected and state[name] != expected[name]:
                raise ValueError(
                    f"the state was taken with {name} {state[name]!r}; here it is "
                    f"{expected[name]!r}, so its place means nothing. Make the loader or sampler "
                    "as it was made then, or begin anew"
                )
        self.go_to(int(state["epoch"]), int(state["position"]))
