"""Each engine of the loader holds the laws of all of them."""

from __future__ import annotations

from readers.engines.processes import ProcessEngine
from readers.engines.threads import DirectEngine, ThreadEngine
from readers.reading.filling import MapFiller
from readers.stats import LoaderStats
from tests.readers.engines.engine_conformance import Engine, EngineConformance


class TestDirect(EngineConformance):
    """The loop itself."""

    ends_when_closed = False

    def make(self, filler: MapFiller, stats: LoaderStats) -> Engine:
        return DirectEngine(filler, stats=stats)


class TestDirectOfGroups(EngineConformance):
    """The loop itself, several batches by one call."""

    ends_when_closed = False

    def make(self, filler: MapFiller, stats: LoaderStats) -> Engine:
        return DirectEngine(filler, stats=stats, group_count=4)


class TestThreads(EngineConformance):
    """Threads of this process."""

    def make(self, filler: MapFiller, stats: LoaderStats) -> Engine:
        return ThreadEngine(filler, 2, 3, stats=stats, is_pinned=False)


class TestThreadsOfGroups(EngineConformance):
    """Threads that fill several batches by one call."""

    def make(self, filler: MapFiller, stats: LoaderStats) -> Engine:
        return ThreadEngine(filler, 2, 3, stats=stats, group_count=4, is_pinned=False)


class TestForkedProcesses(EngineConformance):
    """Processes that are copies of this one."""

    def make(self, filler: MapFiller, stats: LoaderStats) -> Engine:
        return ProcessEngine(filler, 2, 4, stats=stats, start_method="fork")
