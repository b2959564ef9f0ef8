"""How fast a store is read on this machine, with which settings, and what bounds it.

In: a store, maybe the raw folder that it was made of. Out: a `BenchReport`, with a text, a chart
and the best settings for `make_loader(tuned=)`. Called by users, and by `packer bench` in a process
of its own.
"""

from __future__ import annotations

from readers.bench.report import BenchReport
from readers.bench.run import bench

__all__ = ["BenchReport", "bench"]
