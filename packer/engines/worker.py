"""A build worker: a process that makes one shard after the other, as it is told.

Its arguments are the folders of the workspace and of the scratch. Line by line, it is given numbers
of shards on stdin, and tells on stdout, as JSON: {"done": items of this shard so far}, then
{"finished": number} or {"failed": number, "kind": ..., "message": ...}.
A process of its own rather than a fork: the caller may hold threads, torch or CUDA, and its main
module need not be safe to import twice. It ends with its stdin, and so with whoever started it.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from packer.errors import RejectedItemError
from packer.task import build_shard
from packer.workspace import Workspace

_PROGRESS_S = 0.1
NO_SPACE = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def main() -> None:
    """Work until stdin ends."""
    workspace, scratch = Workspace(Path(sys.argv[1])), Path(sys.argv[2])
    # A signal for the whole group reaches the driver too, which decides.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    _use_one_thread()
    numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(numbers,), daemon=True).start()
    while True:
        number = numbers.get()
        try:
            build_shard(workspace, number, scratch, _teller())
            _tell(finished=number)
        except RejectedItemError as error:
            _tell(failed=number, kind="reject", message=str(error))
        except OSError as error:
            if error.errno in NO_SPACE:
                _tell(failed=number, kind="space", **_parts(error))
            else:
                _tell(failed=number, kind="system", message=str(error))
        except Exception:  # The edge of the process: a bug is handed on whole.
            _tell(failed=number, kind="bug", message=traceback.format_exc())


def _listen(numbers: queue.SimpleQueue[int]) -> None:
    """Queue what is asked for. The end of stdin is the end of the process, whatever it is doing."""
    for line in sys.stdin:
        numbers.put(int(line))
    os._exit(0)


def _teller() -> Any:
    """A progress function that speaks ten times a second at most."""
    last = time.monotonic()

    def tell(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PROGRESS_S:
            last = now
            _tell(done=done)

    return tell


def _tell(**message: Any) -> None:
    try:
        os.write(1, (json.dumps(message) + "\n").encode())
    except BrokenPipeError:
        os._exit(1)  # Nobody listens any more.


def _parts(error: OSError) -> dict[str, Any]:
    file = None if error.filename is None else os.fsdecode(error.filename)
    return {"errno": error.errno, "message": error.strerror, "file": file}


def _use_one_thread() -> None:
    """The cores are shared out between processes already."""
    import cv2

    cv2.setNumThreads(1)
