"""Who holds a target: one build at a time, seen by others on the same file system."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from packer.errors import BuildError, TargetBusyError
from packer.workspace.folder import Workspace
from readers.store.place import Place

_NAME = "lock"


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The process that a lock names.

    Attributes:
        host: Its machine; empty when the lock names none.
        pid: Its number there; empty when the lock names none.
    """

    host: str = ""
    pid: str = ""

    @property
    def is_here(self) -> bool:
        """Whether it is of this machine."""
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """Whether it runs on this machine now."""
        return self.is_here and Path("/proc", self.pid).exists()


def holder_of(workspace: Workspace) -> Holder:
    """Whoever the lock of a workspace names. It may have died since."""
    try:
        text = (workspace.folder / _NAME).read_text(errors="replace").strip()
    except OSError:
        return Holder()
    host, _, pid = text.removeprefix("host ").partition(", pid ")
    return Holder(host=host, pid=pid) if pid.isdecimal() else Holder()


class TargetLock:
    """Holds a workspace for one build at a time; the system lets go of it when the process dies.

    Args:
        workspace: The workspace, made when it is not there.
        target: For messages.

    Raises:
        TargetBusyError: Another build holds it.
    """

    def __init__(self, workspace: Workspace, target: Place) -> None:
        self._path = workspace.folder / _NAME
        while True:
            workspace.folder.mkdir(parents=True, exist_ok=True)
            try:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                continue  # The build that held it has just finished and removed the folder.
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.read(self._descriptor, 200).decode("ascii", "replace").strip()
                os.close(self._descriptor)
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise BuildError(
                        f"{self._path}: {error.strerror}. A build locks its target, so that no "
                        "other can write there, and this file system grants no lock. Build to "
                        "another one, and copy the finished store."
                    ) from error
                raise TargetBusyError(
                    f"{target}: another build is running ({holder or 'just started'}). "
                    "Wait for it to finish, or build to another path."
                ) from error
            if self._is_current():
                break
            os.close(self._descriptor)
        holder = f"host {socket.gethostname()}, pid {os.getpid()}\n"
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, holder.encode(), 0)
        except OSError as error:
            os.close(self._descriptor)
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def _is_current(self) -> bool:
        """Whether the locked file is still the one at its path: its holder may have removed it."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let go; of a workspace that was removed meanwhile, nothing is left.

        A client of NFS keeps a removed file under another name as long as somebody has it open.
        """
        os.close(self._descriptor)
        with contextlib.suppress(OSError):  # It is gone, or there is something in it.
            self._path.parent.rmdir()

    def __enter__(self) -> TargetLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
