"""What a process that we start does first: it leaves signals to its parent, and ends with it.

NOTE [ a child ends with its parent ]

A parent that is killed can end nobody, so each child sees to that itself. The kernel does it for it
(PR_SET_PDEATHSIG): then it ends even inside of native code that holds the interpreter lock. But the
kernel means the *thread* that started the child: when that ends, the child is killed, though the
process lives on. So this way is only for children whose starting thread stays as long as they do,
and for the others a thread of the child waits for the process itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
import time
from pathlib import Path

ORPHANED_STATUS = 1

_PR_SET_PDEATHSIG = 1
_LOOK_S = 1.0

_KEPT_DEFAULTS = frozenset(
    getattr(signal, name)
    for name in (
        # Those that end nobody: ignoring SIGCHLD would even change what waiting for children does.
        *("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGTSTP", "SIGTTIN", "SIGTTOU"),
        # Those that say that native code went wrong.
        *("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"),
    )
    if hasattr(signal, name)
)
"""Signals whose default is right for a child, whatever its parent does about them."""


def leave_signals_to_parent() -> None:
    """Undo what a forked child has inherited of its parent's handling of signals.

    A signal that the parent handles is for the parent: to save its state, say, when a scheduler
    sends SIGTERM or SIGUSR1 to all of its processes. Its handler must not run here as well; nor may
    this process end of the signal, as the parent may go on for a while. So it is ignored, as is
    Ctrl-C, which a terminal sends to all. Where the parent leaves a signal to its default, so does
    the child.
    """
    # An event loop of the parent would read in its own socket of signals that came here.
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        # What is not a function is the default, "ignored", or a handler of native code.
        if callable(signal.getsignal(number)):
            default = number in _KEPT_DEFAULTS
            signal.signal(number, signal.SIG_DFL if default else signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def end_with_parent(parent: int, *, by_kernel: bool, is_child: bool = True) -> None:
    """Have this process end as soon as its parent has, whatever it is doing then.

    See NOTE [ a child ends with its parent ].

    Args:
        parent: Process id of the parent.
        by_kernel: Whether the thread that starts this process lives as long as it.
        is_child: Whether this is a child of it in the kernel's eyes too; one that a fork server
            has started is not.
    """
    has_kernel = by_kernel and _end_with_starting_thread()
    if is_child and os.getppid() != parent:
        os._exit(ORPHANED_STATUS)  # It has ended before the kernel was asked.
    if not (has_kernel and is_child):
        threading.Thread(target=_wait_for_end, args=(parent,), name="parent", daemon=True).start()


def _end_with_starting_thread() -> bool:
    """Ask the kernel to kill this process at the end of the thread that started it."""
    with contextlib.suppress(OSError, AttributeError):  # Not every C library has it.
        return ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0  # type: ignore[no-any-return]
    return False


def _wait_for_end(parent: int) -> None:
    """End this process once another has ended."""
    try:
        poll = select.poll()
        poll.register(os.pidfd_open(parent), select.POLLIN)
        poll.poll()
    except ProcessLookupError:
        pass
    except (OSError, AttributeError):  # A kernel before 5.3, a sandbox, no descriptor left.
        while _is_running(parent):
            time.sleep(_LOOK_S)
    os._exit(ORPHANED_STATUS)


def _is_running(process: int) -> bool:
    """Whether a process is there, and more than an entry that nobody has taken note of yet."""
    try:
        text = Path(f"/proc/{process}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True  # It cannot be told now.
    return text.rpartition(b")")[2].split()[0] not in (b"Z", b"X")
