"""Processes that tests start: their signals, their end, and work in a forked child."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path


def heed_keys() -> None:
    r"""For `preexec_fn`: a shell that runs the suite in its background has it ignore ^C and ^\."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def is_gone(pid: int) -> bool:
    """Whether a process has ended: it is no more, or waits for its parent to take note."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(claim: Callable[[], object], timeout_s: float) -> float:
    """Seconds until a claim came true; fails when it does not."""
    start = time.monotonic()
    while not claim():
        assert time.monotonic() - start < timeout_s, "it did not come true in time"
        time.sleep(0.02)
    return time.monotonic() - start


def in_fork(work: Callable[[], object]) -> None:
    """Run `work` in a forked child, and see that it ends well."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
