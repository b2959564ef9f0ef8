"""A file system that behaves as a file server far away: slow, counted, at times failing.

    python scripts/far_server.py SOURCE MOUNTPOINT [--cache-s 3] [--read-bytes-max N]

shows SOURCE, read-only, at MOUNTPOINT: a FUSE file system that answers each call after a delay, as
if it had crossed a network. `far_mount.py` starts it, and speaks with it in lines of JSON: requests
come on stdin, each is answered by a line on stdout. It ends, unmounted, with its stdin.

As on NFS, what is known of names and sizes holds for `--cache-s`, a file's pages are kept until it
is opened again, and a file that was replaced or removed is stale (ESTALE) to those who have the old
one open.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import mfusepy

THREAD_COUNT = 128
"""Calls that are answered at once: as many as a Linux client of NFS has under way with nconnect=2.
FUSE has 10 threads of its own accord, and 12 reads of the kernel's reading ahead."""

SILENT_S_MAX = 60.0
"""A call that waits for a server that is away fails then, so that whoever made it can be ended."""

DELAYS = {"open": "open_ms", "stat": "stat_ms", "list": "list_ms", "read": "read_ms"}


class Behaviour:
    """What each call meets: it is counted, takes its time, and fails if it is its turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_back = threading.Event()
        self._is_back.set()
        self.maps = True
        self._delays_s: dict[str, float] = {}
        self._faults: list[dict[str, Any]] = []
        self._away_error = 0
        self.reset()

    def reset(self) -> None:
        """Count from now on."""
        with self._lock:
            self._calls: Counter[str] = Counter()
            self._paths: dict[str, Counter[str]] = {}
            self._in_flight = self._in_flight_max = self._read_bytes = self._fault_count = 0

    def set(self, settings: dict[str, Any]) -> None:
        """Behave in this way from now on: the fields of `far_mount.Far`."""
        with self._lock:
            self._delays_s = {call: settings[name] / 1000 for call, name in DELAYS.items()}
            self._faults = [
                dict(fault, seen=-fault["after"], done=0) for fault in settings["faults"]
            ]
            self.maps = settings["maps"]
            away = settings["away"]
            self._away_error = getattr(errno, away) if away not in ("", "silent") else 0
        if away == "silent":
            self._is_back.clear()
        else:
            self._is_back.set()

    def counts(self) -> dict[str, Any]:
        """What was counted, by the names of `far_mount.Counts`."""
        with self._lock:
            return {
                "calls": dict(self._calls),
                "paths": {call: dict(found) for call, found in self._paths.items()},
                "read_bytes": self._read_bytes,
                "fault_count": self._fault_count,
                "in_flight_max": self._in_flight_max,
            }

    def add_bytes(self, count: int) -> None:
        """So many were read."""
        with self._lock:
            self._read_bytes += count

    @contextmanager
    def call(self, name: str, path: str) -> Iterator[None]:
        """One call, from its arrival to its answer.

        Raises:
            OSError: It fails, as it was told to.
        """
        with self._lock:
            self._calls[name] += 1
            self._paths.setdefault(name, Counter())[path] += 1
            self._in_flight += 1
            self._in_flight_max = max(self._in_flight_max, self._in_flight)
            error = self._away_error or self._fault(name, path)
            self._fault_count += bool(error)
            delay_s = self._delays_s.get(name, 0.0)
        try:
            if not self._is_back.wait(SILENT_S_MAX):
                error = errno.ETIMEDOUT
            if delay_s:
                time.sleep(delay_s)
            if error:
                raise OSError(error, os.strerror(error))
            yield
        finally:
            with self._lock:
                self._in_flight -= 1

    def _fault(self, name: str, path: str) -> int:
        """The number of the error that this call gets, or 0."""
        found = 0
        for fault in self._faults:
            if fault["call"] != name or not fnmatch(path, fault["match"]):
                continue
            fault["seen"] += 1
            is_due = fault["seen"] > 0 and fault["seen"] % fault["every"] == 0
            if is_due and (fault["times"] is None or fault["done"] < fault["times"]):
                fault["done"] += 1
                found = found or getattr(errno, fault["error"])
        return found


class FarFiles:
    """The calls of FUSE, by the names that mfusepy asks for. Handles are descriptors of SOURCE."""

    use_ns = True

    def __init__(self, source: Path, behaviour: Behaviour, read_bytes_max: int) -> None:
        self._source = str(source)
        self._behaviour = behaviour
        self._read_bytes_max = read_bytes_max

    def init_with_config(self, connection: Any, config: Any) -> None:
        """The kernel has mounted it."""
        connection.max_read = self._read_bytes_max  # Also an option of the mount; both are needed.
        connection.max_background = connection.congestion_threshold = THREAD_COUNT
        answer({"is_mounted": True})

    def destroy(self, path: str) -> None:
        """Nothing is left to do."""

    def getattr(self, path: str, handle: Any = None) -> dict[str, int]:
        """Facts of a file or folder."""
        with self._behaviour.call("stat", path):
            found = os.lstat(self._source + path) if handle is None else os.fstat(handle.fh)
            names = ("mode", "ino", "nlink", "uid", "gid", "size", "blocks")
            facts = {f"st_{name}": getattr(found, f"st_{name}") for name in names}
            times = ("atime", "mtime", "ctime")
            return facts | {f"st_{name}": getattr(found, f"st_{name}_ns") for name in times}

    def readdir(self, path: str, handle: int) -> list[tuple[str, dict[str, int], int]]:
        """Names in a folder, each with its inode and kind."""
        with self._behaviour.call("list", path):
            folder = self._source + path
            found = [(name, os.lstat(f"{folder}/{name}")) for name in (".", "..")]
            with os.scandir(folder) as entries:
                found += [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
            return [
                (name, {"st_ino": facts.st_ino, "st_mode": facts.st_mode}, 0)
                for name, facts in found
            ]

    def readlink(self, path: str) -> str:
        """Where a link leads to."""
        with self._behaviour.call("stat", path):
            return os.readlink(self._source + path)

    def open(self, path: str, handle: Any) -> int:
        """Open a file for reading."""
        with self._behaviour.call("open", path):
            if handle.flags & (os.O_WRONLY | os.O_RDWR):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            handle.fh = os.open(self._source + path, os.O_RDONLY)
            # What is read past the page cache cannot be mapped: ENODEV, as on some file systems.
            handle.direct_io = not self._behaviour.maps
            handle.keep_cache = False
            return 0

    def read(self, path: str, size: int, offset: int, handle: Any) -> bytes:
        """Bytes of a file."""
        with self._behaviour.call("read", path):
            if not os.fstat(handle.fh).st_nlink:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            found = os.pread(handle.fh, size, offset)
            self._behaviour.add_bytes(len(found))
            return found

    def release(self, path: str, handle: Any) -> int:
        """The last user of a handle has closed it."""
        os.close(handle.fh)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        """Room on the file system."""
        found = os.statvfs(self._source + path)
        names = ("bavail", "bfree", "blocks", "bsize", "favail", "ffree", "files", "frsize")
        return {f"f_{name}": getattr(found, f"f_{name}") for name in names}


def answer(value: dict[str, Any]) -> None:
    """One line to whoever started this."""
    print(json.dumps(value), flush=True)


def listen(behaviour: Behaviour) -> None:
    """Do what the lines on stdin ask for, until they end; then have FUSE unmount and return."""
    for line in sys.stdin:
        request = json.loads(line)
        if "settings" in request:
            behaviour.set(request["settings"])
            answer({})
        elif "reset" in request:
            behaviour.reset()
            answer({})
        elif "counts" in request:
            answer(behaviour.counts())
        else:
            break
    behaviour.set({**dict.fromkeys(DELAYS.values(), 0), "faults": [], "maps": True, "away": ""})
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("mountpoint", type=Path)
    parser.add_argument("--cache-s", type=float, default=3.0, help="life of names and sizes")
    parser.add_argument("--read-bytes-max", type=int, default=2**17, help="bytes of a request")
    options = parser.parse_args()
    behaviour = Behaviour()
    threading.Thread(target=listen, args=(behaviour,), daemon=True).start()
    settings: dict[str, Any] = {
        "fsname": "far",
        "subtype": "far",
        "ro": True,
        "raw_fi": True,
        "foreground": True,
        "use_ino": True,
        "attr_timeout": options.cache_s,
        "entry_timeout": options.cache_s,
        "max_read": options.read_bytes_max,
    }
    if (mfusepy.fuse_version_major, mfusepy.fuse_version_minor) >= (3, 12):
        settings |= {"max_threads": THREAD_COUNT, "max_idle_threads": THREAD_COUNT}
    files = FarFiles(options.source.resolve(), behaviour, options.read_bytes_max)
    mfusepy.FUSE(files, str(options.mountpoint), **settings)


if __name__ == "__main__":
    main()
