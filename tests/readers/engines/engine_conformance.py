"""What every engine of the loader must hold, whoever fills its batches.

An engine's test class inherits `EngineConformance` and makes the engine.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from readers.reading.filling import MapFiller
from readers.stats import LoaderStats, Watch
from tests.processes import in_fork

ROW = 10_000
"""Numbers of a sample: more than engines copy rather than share."""


class Engine(Protocol):
    """The part of an engine that a loader uses."""

    def batches(
        self, parts: Any, epoch: int, numbers: Iterator[int] | None = None
    ) -> Iterator[Any]: ...

    def close(self) -> None: ...


class Rows(Dataset[torch.Tensor]):
    """Sample i is a tensor of i; some are slow, and one may be wrong."""

    def __init__(self, wrong: int = -1, slow_s: float = 0) -> None:
        self.wrong, self.slow_s = wrong, slow_s

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.slow_s and index % 4 == 0:
            time.sleep(self.slow_s)
        if index == self.wrong:
            raise ValueError("no such sample", index)
        return torch.full((ROW,), index, dtype=torch.int32)


class RowFiller(MapFiller):
    """Fills batches of rows into the memory that the engine gives."""

    def fill(self, indices: NDArray[np.int64], epoch: int, take: Any, watch: Watch) -> torch.Tensor:
        """One batch, (sample, number) int32."""
        batch: torch.Tensor = super().fill(indices, epoch, take, watch)
        memory: torch.Tensor = take(batch.nbytes).view(torch.int32).view(batch.shape)
        return memory.copy_(batch)


def parts_of(count: int, size: int = 1) -> list[NDArray[np.int64]]:
    """Indices of batches of a size; the last may be smaller."""
    return [np.arange(start, min(count, start + size)) for start in range(0, count, size)]


def values_of(batch: torch.Tensor) -> list[int]:
    """The indices that a batch is of, each of whose numbers must be the same."""
    assert (batch == batch[:, :1]).all()
    return batch[:, 0].tolist()


class EngineConformance:
    """Laws of an engine of the loader.

    Attributes:
        ends_when_closed: Whether an iteration that goes on is told that its engine was closed.
    """

    ends_when_closed = True

    def make(self, filler: MapFiller, stats: LoaderStats) -> Engine:
        """The engine, with two workers where it has any."""
        raise NotImplementedError

    @pytest.fixture
    def engine_of(self, left_in_shared_memory: Callable[[], list[Any]]) -> Iterator[Any]:
        """Makes engines over rows, which are closed in the end; nothing is left of them."""
        engines: list[Engine] = []

        def make(rows: Rows | None = None, stats: LoaderStats | None = None) -> Engine:
            filler = RowFiller(rows or Rows(), torch.stack)
            engines.append(self.make(filler, stats or LoaderStats("process", 2)))
            return engines[-1]

        yield make
        for engine in engines:
            engine.close()
            engine.close()
        deadline = time.monotonic() + 10
        while any(thread.name.startswith("loader") for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert not multiprocessing.active_children()
        assert left_in_shared_memory() == []

    @pytest.mark.parametrize("size", [1, 3, 40])
    def test_batches_come_whole_and_in_order(self, engine_of, size):
        """However long each takes; those of each epoch, the last smaller than the others."""
        engine, parts = engine_of(Rows(slow_s=0.005)), parts_of(31, size)
        for epoch in range(2):
            found = [values_of(batch) for batch in engine.batches(parts, epoch)]
            assert found == [part.tolist() for part in parts]

    def test_any_order_and_repetition_of_indices_is_kept(self, engine_of):
        """The order is the sampler's, not the engine's; parts may come from a generator."""
        wanted = [[5, 3, 5], [0], [9, 9], [2, 1, 0, 7]]
        parts = (np.array(part) for part in wanted)
        assert [values_of(batch) for batch in engine_of().batches(parts, 0)] == wanted

    def test_no_batches_are_none(self, engine_of):
        """And the engine goes on to the next epoch."""
        engine = engine_of()
        assert list(engine.batches([], 0)) == []
        assert [values_of(batch) for batch in engine.batches(parts_of(2), 1)] == [[0], [1]]

    def test_kept_batches_stay_as_they_are(self, engine_of):
        """Whole ones and views; while the loop goes on, over epochs, closed, and begun anew."""
        engine, kept = engine_of(), []
        for _ in range(2):
            for number, batch in enumerate(engine.batches(parts_of(24, 2), 0)):
                kept.append((number, batch[1:, 5:] if number % 2 else batch))
                del batch
        engine.close()
        list(engine.batches(parts_of(10, 2), 0))
        for number, batch in kept:
            expected = [2 * number + 1] if number % 2 else [2 * number, 2 * number + 1]
            assert values_of(batch) == expected

    def test_an_error_of_a_sample_is_raised_as_it_was(self, engine_of):
        """With its type and arguments, and the line that raised it; batches before it are right."""
        batches, found = engine_of(Rows(wrong=7)).batches(parts_of(20), 0), []

        def take() -> None:
            for batch in batches:
                found.append(values_of(batch))

        with pytest.raises(ValueError, match="no such sample") as caught:
            take()
        assert caught.value.args == ("no such sample", 7)
        text = "".join(traceback.format_exception(caught.value))
        assert 'raise ValueError("no such sample", index)' in text
        assert found == [[index] for index in range(len(found))]
        assert len(found) <= 7

    def test_after_an_error_the_next_loop_is_whole(self, engine_of):
        """Nothing of the one that failed gets into it, as often as it fails."""
        engine = engine_of(Rows(wrong=5))
        for _ in range(4):
            with pytest.raises(ValueError, match="no such sample"):
                list(engine.batches(parts_of(12), 0))
            assert [values_of(batch) for batch in engine.batches(parts_of(5), 0)] == [
                [index] for index in range(5)
            ]

    def test_a_loop_may_be_left_and_begun_anew(self, engine_of):
        """At any point, also before its first batch."""
        engine = engine_of()
        for count in range(5):
            batches = engine.batches(parts_of(30), 0)
            for _ in range(count):
                next(batches)
            batches.close()
        found = [values_of(batch) for batch in engine.batches(parts_of(30, 7), 1)]
        assert found == [part.tolist() for part in parts_of(30, 7)]

    def test_it_may_be_closed_twice_and_used_again(self, engine_of):
        """Before its first batch too; an iteration that goes on is told, where it cannot."""
        engine = engine_of()
        engine.close()
        batches = engine.batches(parts_of(9), 0)
        assert values_of(next(batches)) == [0]
        engine.close()
        engine.close()
        if self.ends_when_closed:
            with pytest.raises(RuntimeError, match="this iteration is over"):
                next(batches)
        assert [values_of(batch) for batch in engine.batches(parts_of(3), 0)] == [[0], [1], [2]]

    def test_a_forked_child_disturbs_nobody(self, engine_of):
        """It iterates by itself and closes what is its own; the loop of its parent goes on."""
        engine = engine_of(Rows(slow_s=0.002))
        batches = engine.batches(parts_of(30), 0)
        held = [next(batches) for _ in range(5)]

        def work() -> None:
            held.clear()
            if self.ends_when_closed:
                with pytest.raises(RuntimeError, match="forked child"):
                    next(batches)
            found = [values_of(batch) for batch in engine.batches(parts_of(10), 0)]
            assert found == [[index] for index in range(10)]
            engine.close()

        in_fork(work)
        in_fork(engine.close)
        in_fork(lambda: None)
        assert [values_of(batch) for batch in batches] == [[index] for index in range(5, 30)]
        assert [values_of(batch) for batch in held] == [[index] for index in range(5)]

    def test_time_that_fillers_take_is_told(self, engine_of):
        """All of it, wherever they run."""
        stats = LoaderStats("process", 2)
        for _ in engine_of(Rows(slow_s=0.02), stats).batches(parts_of(16), 0):
            pass
        assert stats.stages_s["transform"] >= 0.08
