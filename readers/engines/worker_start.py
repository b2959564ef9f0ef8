"""Starting loader workers and threads: how, without half of it staying behind, and why not."""

from __future__ import annotations

import errno
import functools
import multiprocessing
import os
import resource
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, reduction, resource_tracker
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, TypeVar

_Result = TypeVar("_Result")

_PARTS_MAX = 10_000
"""Values looked at for one that cannot be sent: a dataset may hold millions."""


class WorkerStartError(RuntimeError):
    """Loader workers or threads could not be started. None of them is left."""


def check_start_method(method: str | None) -> None:
    """Raise ValueError for what is not a start method here. None is the program's own."""
    methods = multiprocessing.get_all_start_methods()
    if method is not None and method not in methods:
        raise ValueError(f"start_method must be one of {', '.join(methods)}; got {method!r}")


def start_method_now(asked: str | None) -> str:
    """The start method for workers that are started now.

    Args:
        asked: "fork", "spawn" or "forkserver". None: the program's; but a process that was itself
            spawned, as one beside CUDA has to be, does not fork.
    """
    if asked is not None:
        return asked
    # Asked without `allow_none`, multiprocessing would fix the method for the whole program.
    method = multiprocessing.get_start_method(allow_none=True)
    method = method or multiprocessing.get_all_start_methods()[0]
    own = getattr(multiprocessing.current_process(), "_start_method", None)
    return own if method == "fork" and own in ("spawn", "forkserver") else method


def is_being_imported_by_worker() -> bool:
    """Whether this is a loader worker that imports the main module of its program."""
    process = multiprocessing.current_process()
    return bool(getattr(process, "_inheriting", False)) and process.name.startswith("loader-worker")


@contextmanager
def calm_start(method: str) -> Iterator[frozenset[int] | None]:
    """A time in which workers may be started, with nothing coming between.

    A signal, such as Ctrl-C, waits until it is over, lest a process be started and then forgotten;
    but the second of its kind does not, in case that starting hangs. Workers begin with signals
    blocked, and so run no handler of this process. And the program's choice of a start method stays
    as it was, which multiprocessing makes for good when it is first used.

    Args:
        method: How workers are started.

    Yields:
        The signals that were blocked before, for workers to take over. None for a fork server: its
        children have nothing of this process.
    """
    is_chosen = multiprocessing.get_start_method(allow_none=True) is not None
    blocked = {"fork": signal.valid_signals(), "spawn": {signal.SIGINT}}.get(method, set())
    try:
        # Both are processes that live on, and must not begin with signals blocked; and when one
        # starts, it unblocks them here.
        if method != "fork":
            resource_tracker.ensure_running()
        if method == "forkserver":
            forkserver.ensure_running()
        with signals_held(blocked) as mask:
            yield None if method == "forkserver" else mask
    finally:
        if not is_chosen:
            multiprocessing.set_start_method(None, force=True)


@contextmanager
def signals_held(blocked: Iterable[int] = ()) -> Iterator[frozenset[int]]:
    """Have the program's handlers wait, and block some signals; yields those blocked before.

    Where a handler raises, what a call has just opened would be lost before it is stored.
    """
    held: list[int] = []
    handlers = _held_handlers(held)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield frozenset(mask)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in held:
            signal.raise_signal(number)


def _held_handlers(held: list[int]) -> dict[int, Any]:
    """Have signals that Python handles be noted in a list, once each; gives their handlers."""
    handlers: dict[int, Any] = {}
    if threading.current_thread() is not threading.main_thread():
        return handlers  # Python calls no handler in another thread.

    def hold(number: int, frame: Any) -> None:
        if number in held:
            held.remove(number)
            handlers[number](number, frame)
        else:
            held.append(number)

    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            handlers[number] = handler
            signal.signal(number, hold)
    return handlers


def in_lasting_thread(function: Callable[[], _Result], end: threading.Event) -> _Result:
    """Call a function in a thread that lives on until `end` is set, or the process ends.

    The kernel ends children with the thread that started them, see NOTE [ a child ends with its
    parent ]. The main thread of a process lasts, so there it is called right here.
    """
    if threading.get_native_id() == os.getpid():
        return function()
    done = threading.Event()
    functions, results = [function], list[_Result]()
    errors: list[BaseException] = []
    del function  # The thread must not keep alive what it belongs to.

    def run() -> None:
        try:
            results.append(functions.pop()())
        except BaseException as error:  # Raised again in the thread that asked.
            errors.append(error)
            end.set()
        finally:
            done.set()
        end.wait()

    threading.Thread(target=run, name="loader-start", daemon=True).start()
    done.wait()
    if errors:
        raise errors.pop()
    return results.pop()


def let_go_of_failed_start(error: BaseException) -> None:
    """Close what a start that failed has opened: the error itself would keep it open.

    What multiprocessing opens is closed with the objects that its traceback leads to; but for four
    pipes, of which nobody takes care when it cannot fork.
    """
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name == "_launch" and frame.f_globals["__name__"].endswith("popen_fork"):
            for name in ("parent_r", "child_w", "child_r", "parent_w"):
                if name in frame.f_locals:
                    os.close(frame.f_locals[name])
        trace = trace.tb_next
    traceback.clear_frames(error.__traceback__)


def limit_text(error: Exception, kind: Literal["process", "thread"]) -> str | None:
    """Which limit of the system an error comes from, and what to do; None when it is another."""
    code = error.errno if isinstance(error, OSError) else None
    if kind == "thread" and isinstance(error, RuntimeError):
        code = errno.EAGAIN  # "can't start new thread", for whatever reason.
    fewer = "use fewer workers: make_loader(..., workers=1), or none: workers=0"
    if code == errno.EAGAIN:
        return (
            "this user or container may have no more processes and threads "
            f"(ulimit -u: {_limit(resource.RLIMIT_NPROC)}{_container_limit()}). Raise the limit, "
            f"or {fewer}"
        )
    if code in (errno.EMFILE, errno.ENFILE):
        return (
            "this process may have no more files open "
            f"(ulimit -n: {_limit(resource.RLIMIT_NOFILE)}), of which each worker takes four and "
            f"each batch one. Raise it: ulimit -n 65536; or {fewer}"
        )
    if code == errno.ENOMEM or isinstance(error, MemoryError):
        return (
            "there is no memory left for it "
            f"(ulimit -v: {_limit(resource.RLIMIT_AS)}). Free some, or {fewer}"
        )
    return None


def _limit(number: int) -> str:
    soft = resource.getrlimit(number)[0]
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)


def _container_limit() -> str:
    """What the control group says of processes, where it is found in its usual place."""
    for name in ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"):
        try:
            return f"; pids.max: {Path(name).read_text().strip()}"
        except OSError:
            continue
    return ""


def start_problem(
    error: Exception, method: str, which: str, given: dict[str, Any]
) -> WorkerStartError | None:
    """The error to raise when a process could not be started; None when `error` says it best.

    Args:
        error: What was raised.
        method: How it was to be started.
        which: "loader worker 2 of 4".
        given: What it was to work with, by the names that the user knows.
    """
    limit = limit_text(error, "process")
    if limit is not None:
        return WorkerStartError(f"{which} could not be started: {error}. Cause: {limit}")
    if isinstance(error, AssertionError) and multiprocessing.current_process().daemon:
        return WorkerStartError(
            f"{which} could not be started: this is a daemonic process, which may have no "
            "children. Start it with daemon=False, or have threads of its own fill the batches: "
            "make_loader(..., engine='thread'), or workers=0"
        )
    if method == "fork":
        return None
    found = _unsendable(given)
    if found is not None:
        place, part, reason = found
        return WorkerStartError(
            f"{place}, {_shown(part)}, cannot be sent to loader workers, which are started by "
            f"{method!r} and so get everything pickled: {reason}. {_remedy(part)}, or "
            "start_method='fork'"
        )
    if isinstance(error, (EOFError, ConnectionError)):
        return WorkerStartError(
            f"{which} could not be started by {method!r}: the process that starts it has ended "
            f"({type(error).__name__}: {error}). What it printed says why"
        )
    return None


def unopened_problem(error: Exception, method: str) -> WorkerStartError:
    """The error to raise when a worker could not open what it was sent."""
    text = f"loader workers cannot load what they are to work with: {type(error).__name__}: {error}"
    if method == "fork":
        return WorkerStartError(text)
    return WorkerStartError(
        f"{text}. They are started by {method!r} and import it anew: define it with def at the top "
        "of a module (a file, and not a notebook or python -c), or start_method='fork'"
    )


def _shown(part: Any) -> str:
    if isinstance(part, FunctionType):
        code = part.__code__
        return f"{part.__qualname__} ({code.co_filename}, line {code.co_firstlineno})"
    return f"a {type(part).__module__}.{type(part).__qualname__}"


def _remedy(part: Any) -> str:
    if isinstance(part, (FunctionType, type)):
        return "Define it with def at the top of a module"
    return "Make it in the worker, when it is first used"


def _problem_of(value: Any) -> str | None:
    """Why a value cannot be pickled, or None."""
    try:
        reduction.ForkingPickler.dumps(value)
    except Exception as error:
        # Locks and queues of multiprocessing say this of a look from outside: they can be sent.
        if isinstance(error, RuntimeError) and "inheritance" in str(error):
            return None
        return f"{type(error).__name__}: {error}"
    return None


def _unsendable(given: dict[str, Any]) -> tuple[str, Any, str] | None:
    """The smallest part that cannot be pickled: its place, itself, and why."""
    found = None
    parts = list(given.items())
    seen: set[int] = set()  # Lest parts that hold each other lead round and round.
    while parts and len(seen) < _PARTS_MAX:
        place, value = parts.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        reason = _problem_of(value)
        if reason is not None:
            found = place, value, reason
            parts = _parts_of(place, value)
    return found


def _parts_of(place: str, value: Any) -> list[tuple[str, Any]]:
    """What a value is pickled by, with the place of each."""
    if isinstance(value, dict):
        return [(f"{place}[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"{place}[{at}]", part) for at, part in enumerate(value)]
    if isinstance(value, functools.partial):
        return [(f"{place}.func", value.func), *_parts_of(f"{place}.args", list(value.args))]
    if hasattr(value, "__self__") and hasattr(value, "__func__"):
        return [(f"{place}.__self__", value.__self__)]
    try:
        reduced = value.__reduce_ex__(2)
    except Exception:  # It says itself that it cannot be pickled.
        return []
    if isinstance(reduced, str):
        return []
    state = reduced[2] if len(reduced) > 2 else None
    states = state if isinstance(state, tuple) else (state,)
    attributes = {
        name: part for one in states if isinstance(one, dict) for name, part in one.items()
    }
    # Attributes of ours are named without the underscore that the user does not know.
    is_ours = type(value).__module__.startswith("readers.")
    return [
        (f"{place}.{str(name).lstrip('_') if is_ours else name}", part)
        for name, part in attributes.items()
    ]
