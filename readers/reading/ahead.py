"""Batches that will be asked for soon: their samples are found and their bytes read in advance.

    engine: expect(4) expect(5) expect(6)        take(4)
                |                                   |
                v   one after the other             v
    a thread: prepare(4), announce; prepare(5), ... its bytes are there, or on their way

It is advice: what was not prepared yet is prepared by the one who takes it, and a batch that nobody
takes is dropped. How much is kept is up to the store's bytes; past it, this waits until a batch was
taken.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from readers.reading.request import Request
from readers.store.read_threads import read_threads
from readers.store.record_bytes import RecordBytes

COUNT = 4
"""Batches that it is good to know of. Of 64 images of 270 kB, this is 70 MB; by then 256 reads wait
behind those under way, so that the end of one batch does not leave the server idle."""


class Prepared(Protocol):
    """A batch whose samples were found."""

    @property
    def request(self) -> Request:
        """What it needs of its records."""


P = TypeVar("P", bound=Prepared)


class _Coming(Generic[P]):
    """A batch to come. `prepared` or `error` is there when `is_done` is set."""

    def __init__(self, indices: NDArray[np.int64], epoch: int) -> None:
        self.indices = indices
        self.epoch = epoch
        self.is_begun = False
        self.is_done = threading.Event()
        self.is_announced = False
        self.prepared: P | None = None
        self.error: Exception | None = None

    def is_of(self, indices: NDArray[np.int64], epoch: int) -> bool:
        return self.epoch == epoch and np.array_equal(self.indices, indices)


class Ahead(Generic[P]):
    """Prepares batches in the background, in the order in which they will be asked for.

    Args:
        prepare: Finds the samples of a batch, given their indices and the epoch.
        record_bytes: Where their bytes are read.
    """

    def __init__(
        self, prepare: Callable[[NDArray[np.int64], int], P], record_bytes: RecordBytes
    ) -> None:
        self._prepare = prepare
        self._bytes = record_bytes
        self._forget()

    def _forget(self) -> None:
        """Be as one that was never used."""
        self._lock = threading.Lock()
        self._coming: list[_Coming[P]] = []
        self._is_working = False
        self._threads: ThreadPoolExecutor | None = None
        self._owner = os.getpid()

    def expect(self, indices: NDArray[np.int64], epoch: int) -> None:
        """This batch will be asked for, after all that were expected before."""
        if self._owner != os.getpid():
            self._forget()  # A forked child has not the thread that worked on them.
        with self._lock:
            self._coming.append(_Coming(indices, epoch))
        self._go_on()

    def take(self, indices: NDArray[np.int64], epoch: int) -> P | None:
        """A batch that was expected, with its bytes, if they were on their way. It is not any more.

        Returns:
            None: it was not expected, or is not begun.

        Raises:
            StoreError: Its samples cannot be found, or read.
        """
        if self._owner != os.getpid():
            return None
        with self._lock:
            found = next((one for one in self._coming if one.is_of(indices, epoch)), None)
            if found is None:
                return None
            self._coming.remove(found)
        if not found.is_begun:
            return None
        found.is_done.wait()
        if found.error is not None:
            try:
                raise found.error
            finally:
                found.error = None
        prepared = found.prepared
        if prepared is not None and prepared.request.is_announced:
            prepared.request.fetch(self._bytes)
        self._go_on()  # There may be room for more.
        return prepared

    def drop(self) -> None:
        """Nothing that was expected will be asked for."""
        if self._owner == os.getpid():
            with self._lock:
                self._coming = []

    def _next(self) -> _Coming[P] | None:
        """The first whose bytes are not on their way."""
        return next((one for one in self._coming if not one.is_announced and not one.error), None)

    def _go_on(self) -> None:
        with self._lock:
            if self._is_working or self._next() is None:
                return
            if self._threads is None:
                self._threads = read_threads()
            try:
                self._threads.submit(self._work)
            except RuntimeError:  # The process is ending.
                return
            self._is_working = True

    def _work(self) -> None:
        """Prepare one after the other, as long as there is room."""
        has_room = True
        while True:
            with self._lock:
                coming = self._next() if has_room else None
                if coming is None:
                    self._is_working = False
                    return
                coming.is_begun = True
                coming.is_done.clear()
            try:
                if coming.prepared is None:
                    coming.prepared = self._prepare(coming.indices, coming.epoch)
                has_room = coming.prepared.request.announce(self._bytes)
                coming.is_announced = has_room
            except Exception as error:  # The edge of a thread: whoever takes the batch raises it.
                coming.error = error
            finally:
                coming.is_done.set()
