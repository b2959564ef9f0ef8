"""Runs `packer` and, at a step of its build, a shell command: at_step.py STEP TURN COMMAND ARGS...

The command finds the driver's process id in $DRIVER, which leads a group of its own when the caller
starts it so, and those of its build workers in $WORKERS. Nothing of packer is changed but that its
steps are listened to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import packer.cli.build
from packer.building.build import Step, build
from packer.cli import main

name, turns, command = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def workers() -> str:
    children = f"/proc/self/task/{os.getpid()}/children"
    return Path(children).read_text().strip()


def listening_build(*arguments: Any, on_step: Any, **options: Any) -> Any:
    told = 0

    def listen(step: Step) -> None:
        nonlocal told
        on_step(step)
        told += step.name == name
        if step.name == name and told == turns:
            facts = {"DRIVER": str(os.getpid()), "WORKERS": workers()}
            # Not our pipes: a signal may end us before we know the child that it came from, and
            # who waits for the end of our output would wait for that child.
            subprocess.run(
                ["sh", "-ec", command],
                env={**os.environ, **facts},
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    return build(*arguments, on_step=listen, **options)


sys.argv[1:] = sys.argv[4:]
packer.cli.build.build = listening_build
main()
