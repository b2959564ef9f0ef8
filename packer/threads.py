"""Jobs of this process at once, where the work lets go of the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


def map_threads(
    function: Callable[[_Job], _Result],
    jobs: Iterable[_Job],
    thread_count: int,
    on_stop: Callable[[], None] = lambda: None,
) -> Iterator[_Result]:
    """The results of a function for each job, in the order of the jobs.

    Args:
        function: What to do; it runs in several threads.
        jobs: What to do it with.
        thread_count: Jobs at once.
        on_stop: Called when no more results are wanted: an error, or Ctrl-C. It is to end the jobs
            that run, which are waited for.

    Raises:
        Exception: The first that a job raised. Jobs that have not begun then never do.
    """
    pool = ThreadPoolExecutor(thread_count)
    try:
        yield from pool.map(function, jobs)
    except BaseException:
        on_stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
