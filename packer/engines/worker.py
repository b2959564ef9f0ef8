"""A build worker: a process that makes one shard after the other, as it is told.

Its arguments are the folder of the workspace, and the descriptor and the place in it where it keeps
the position of the item that it is on, for when it dies. Line by line, as JSON, it is given shards
on stdin: {"scratch": folder, "number": ..., "lost": {position: why it is a reject}}; and tells on
stdout: {"done": items of this shard so far}, then {"finished": number} or {"failed": number,
"kind": ..., "message": ...}.
A process of its own rather than a fork: the caller may hold threads, torch or CUDA, and its main
module need not be safe to import twice. It ends with its stdin, and with whoever started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
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

from packer.engines.task import build_shard
from packer.errors import DamagedTaskError, RejectedItemError
from packer.files.sizes import picture_bytes_max
from packer.raw.containers import Containers
from packer.workspace.folder import Workspace
from readers.store.child_process import end_with_parent

_PROGRESS_S = 0.1
POSITION_BYTES = 8
NO_MEMORY_STATUS = 12
LOG_BYTES_MAX = 2**18

_OOM_SCORE = b"300"


def main(parent: int) -> None:
    """Work until stdin or the parent process ends."""
    # The thread that started it waits until all shards are made, and may ask the kernel therefore.
    end_with_parent(parent, by_kernel=True)
    workspace = Workspace(Path(sys.argv[1]))
    positions, place = int(sys.argv[2]), int(sys.argv[3])
    # A signal for the whole group reaches the driver too, which decides.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    faulthandler.enable()
    _volunteer()
    _use_one_thread()
    _keep_memory()
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    containers: Containers | None = None
    while True:
        order = orders.get()
        scratch, number = Path(order["scratch"]), order["number"]
        lost = {int(position): reason for position, reason in order["lost"].items()}
        try:
            # Not before the first order: a worker that is started ahead finds no plan yet.
            if containers is None:
                plan = workspace.read_task_plan()
                containers = Containers(plan.root, picture_bytes_max(plan.recipe["pixels_max"]))
            build_shard(workspace, number, scratch, _teller(positions, place), lost, containers)
            _tell(finished=number)
        except RejectedItemError as error:
            _tell(failed=number, kind="reject", message=str(error))
        except DamagedTaskError as error:
            _tell(failed=number, kind="damaged", message=str(error))
        except OSError as error:
            if error.errno is None:
                _tell(failed=number, kind="bug", message=traceback.format_exc())
            else:
                _tell(failed=number, kind="system", **_parts(error))
        except MemoryError:
            os._exit(NO_MEMORY_STATUS)  # As good as killed: the driver knows what to do.
        except Exception:  # The edge of the process: a bug is handed on whole.
            _tell(failed=number, kind="bug", message=traceback.format_exc())


def _listen(orders: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Queue what is asked for. The end of stdin is the end of the process, whatever it is doing."""
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(0)


def _teller(positions: int, place: int) -> Any:
    """A progress function that keeps the position, and speaks ten times a second at most."""
    last = time.monotonic()

    def tell(done: int) -> None:
        nonlocal last
        # The items before it are done, so it is on this one. A call of 1 us that cannot block.
        os.pwrite(positions, done.to_bytes(POSITION_BYTES, "little"), place)
        now = time.monotonic()
        if now - last >= _PROGRESS_S:
            last = now
            _tell(done=done)
            keep_log_short()

    tell(0)
    return tell


def _tell(**message: Any) -> None:
    try:
        os.write(1, (json.dumps(message) + "\n").encode())
    except BrokenPipeError:
        os._exit(1)  # Nobody listens any more.


def keep_log_short() -> None:
    """Let go of what was printed on stderr, which the driver keeps in memory, once it is long.

    Decoders may print a line for each of a million files; when a worker dies, the last few count.
    """
    if os.fstat(2).st_size > LOG_BYTES_MAX:
        os.ftruncate(2, 0)
        os.lseek(2, 0, os.SEEK_SET)


def _parts(error: OSError) -> dict[str, Any]:
    file = None if error.filename is None else os.fsdecode(error.filename)
    return {"errno": error.errno, "message": error.strerror, "file": file}


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 2**30


def _keep_memory() -> None:
    """Have glibc keep freed memory for the next image rather than give it back to the system.

    Else each picture is decoded into new pages, which the kernel has to clear: 0.4 of 2.9 ms an
    image.
    """
    with contextlib.suppress(OSError, AttributeError):  # Another C library.
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _use_one_thread() -> None:
    """The cores are shared out between processes already."""
    import cv2

    cv2.setNumThreads(1)


def _volunteer() -> None:
    """Be killed before the driver, and before other people's processes, when memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(_OOM_SCORE)
