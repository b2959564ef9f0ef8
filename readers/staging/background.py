"""Staging while training goes on: in a thread of the process that made the dataset.

That process lives as long as the job does; loader workers end with an epoch. The thread waits for
the network and the disk nearly all the time, and hashes without the interpreter lock.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence

from readers.staging.settings import CacheSettings
from readers.staging.stager import Stager, StagingReport
from readers.store.errors import StoreError
from readers.store.manifest import Manifest, identity_of
from readers.store.place import Place

_log = logging.getLogger("readers.staging")

_RETRY_S = 60.0
"""Until shards that could not be read are tried again."""

_END_S = 5.0
"""A thread that is told to end does so between two pieces; a server that is gone may hold it."""


class BackgroundStaging:
    """A thread that copies the shards of a store into a cache. It ends with this object.

    Args:
        stager: Copies them.
    """

    def __init__(self, stager: Stager) -> None:
        self._stager = stager
        stop = threading.Event()
        # It does not know this object, which ends it when nobody uses it any more.
        self._thread = threading.Thread(
            target=_work, args=(stager, stop), name="staging", daemon=True
        )
        self._thread.start()
        self._ended = weakref.finalize(self, _end, os.getpid(), stop, self._thread)

    def expect(self, order: Callable[[], Sequence[int]]) -> None:
        """Have those shards copied first that are needed first.

        Args:
            order: Says so, whenever it is asked: numbers of shards. It must not keep this object.
        """
        self._stager.order = order

    def report(self) -> StagingReport:
        """What is there now, and what went wrong so far."""
        return self._stager.report()

    def close(self) -> None:
        """End it; what is copied stays."""
        self._ended()


def stage_in_background(
    path: Place, manifest: Manifest, settings: CacheSettings
) -> BackgroundStaging:
    """The thread that stages a store in this process: the one that there is, or a new one.

    Whoever wants it to go on keeps what is returned.
    """
    key = identity_of(manifest), settings
    with _starting:
        running = _running.get(key)
        if running is None:
            stager = Stager(path, manifest, settings)
            running = _running[key] = BackgroundStaging(stager)
            # As the last that was registered, and so the first that runs: before the finalizers
            # that close files under the thread's hands.
            atexit.unregister(_end_all)
            atexit.register(_end_all)
        return running


def _work(stager: Stager, stop: threading.Event) -> None:
    told: set[str] = set()
    while not stop.is_set():
        try:
            report = stager.run(stop)
        except StoreError as error:
            _log.warning("%s Training reads on from where the store is.", error)
            return
        except OSError as error:
            where = error.filename or stager.folder.path
            _log.warning("%s: %s. Staging ends; training reads on.", where, error.strerror)
            return
        for problem in report.problems:
            if problem not in told:
                told.add(problem)
                _log.warning("%s", problem)
        if report.is_whole:
            _log.info(
                "%s: all %d shards are there, %d bytes",
                stager.folder.path,
                report.shard_count,
                report.bytes,
            )
        if not report.may_pass:
            return
        stop.wait(_RETRY_S)


def _end(pid: int, stop: threading.Event, thread: threading.Thread) -> None:
    if os.getpid() != pid:
        return  # Of a forked child: its parent's thread may have held what this would take.
    stop.set()
    if thread is not threading.current_thread():
        thread.join(_END_S)


def _end_all() -> None:
    """The process ends."""
    for running in list(_running.values()):
        running.close()


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _starting
    _starting = threading.Lock()
    _running.clear()


_running: weakref.WeakValueDictionary[tuple[bytes, CacheSettings], BackgroundStaging] = (
    weakref.WeakValueDictionary()
)
_starting = threading.Lock()
os.register_at_fork(after_in_child=_forget)
