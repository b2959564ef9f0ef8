"""What torch and OpenCV say of this machine, asked in a process of its own.

The build side does not load torch: it takes seconds, and a machine that only builds need not have
it. The child is started first and does its work beside the other checks.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import msgspec

_TIMEOUT_S = 30.0
"""A first import from a cold network disk takes this long; a driver that hangs takes for ever."""

# The current folder is taken off the path: nothing that lies there by chance is to be imported.
_PROGRAM = """
import sys
sys.path[:] = [part for part in sys.path if part]
import json, os
try:  # It ends with its parent, even within the import of a driver that hangs: PR_SET_PDEATHSIG.
    import ctypes, signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
except (OSError, AttributeError):
    pass
facts = {}
try:
    import cv2
    facts["cv2_version"], facts["cv2_thread_count"] = cv2.__version__, cv2.getNumThreads()
except ImportError:
    pass
try:
    import torch
except ImportError as error:
    facts["problem"] = f"{type(error).__name__}: {error}"
else:
    facts["torch_version"] = torch.__version__
    facts["torch_thread_count"] = torch.get_num_threads()
    facts["cuda_version"] = torch.version.cuda
    try:
        if torch.cuda.is_available():
            for number in range(torch.cuda.device_count()):
                found = torch.cuda.get_device_properties(number)
                facts.setdefault("devices", []).append([found.name, found.total_memory])
            torch.empty(2**20, dtype=torch.uint8, pin_memory=True)
    except RuntimeError as error:
        facts["cuda_problem"] = str(error).splitlines()[0]
facts["thread_count"] = len(os.listdir("/proc/self/task"))
print(json.dumps(facts))
"""


class TorchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the child found.

    Attributes:
        problem: Why nothing is known of torch, in words; None when it is.
        torch_version: Its version.
        torch_thread_count: Threads that each of its operations may use.
        cuda_version: CUDA that this torch was built for, or None.
        devices: (name, memory in bytes) of each CUDA device.
        cuda_problem: What CUDA said when a device was asked or memory pinned; None when it worked.
        cv2_version: Version of OpenCV, or None without it.
        cv2_thread_count: Threads that OpenCV uses for one call.
        thread_count: Threads that a process has once both are imported.
    """

    problem: str | None = None
    torch_version: str = ""
    torch_thread_count: int = 0
    cuda_version: str | None = None
    devices: list[tuple[str, int]] = []
    cuda_problem: str | None = None
    cv2_version: str | None = None
    cv2_thread_count: int = 0
    thread_count: int = 0


@dataclass
class TorchQuestion:
    """A child process that is finding out; a context manager that ends it in any case.

    Attributes:
        timeout_s: How long to wait for its answer.
        program: What it runs.
    """

    timeout_s: float = _TIMEOUT_S
    program: str = _PROGRAM

    def __enter__(self) -> TorchQuestion:
        self._child = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", self.program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        with self._child:  # Closes its pipes and waits for it.
            pass

    def answer(self) -> TorchFacts:
        """What it found. A child that crashes or hangs is a finding too."""
        try:
            output, errors = self._child.communicate(timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            return TorchFacts(problem=f"`import torch` did not end within {self.timeout_s:.0f} s")
        status = self._child.returncode
        if status:
            said: list[Any] = errors.decode("utf-8", "replace").strip().splitlines()
            last = f": {said[-1]}" if said else ""
            how = f"was ended by signal {-status}" if status < 0 else f"left with status {status}"
            return TorchFacts(problem=f"`import torch` {how}{last}")
        try:
            return msgspec.json.decode(output.splitlines()[-1], type=TorchFacts)
        except (IndexError, msgspec.DecodeError, UnicodeDecodeError) as error:
            return TorchFacts(problem=f"`import torch` printed what is not an answer ({error})")
