"""The lines that `docs/clusters.md` gives for schedulers, run as it says them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from packer.workspace.nodes import read_nodes
from tests.packer.cluster.conftest import WAIT_S

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "clusters.md").read_text()
LINES = dict(re.findall(r"^\| (\S[^|]*) \| [^|]+ \| `(packer work .*)` \|$", TEXT, re.MULTILINE))
FIRST = {"PBS_ARRAY_INDEX": "1", "LSB_JOBINDEX": "1", "SGE_TASK_ID": "1"}
FIRST_COMPLETION_INDEX = "0"


@pytest.fixture
def run(tmp_path, packer_command, planned):
    """Runs a line of shell with this `packer`; returns the parts that nodes began with."""
    programs = tmp_path / "bin"
    programs.mkdir()
    script = f'#!/bin/sh\nexec {shlex.join(packer_command)} "$@"\n'
    (programs / "packer").write_text(script)
    (programs / "packer").chmod(0o755)

    def in_shell(line: str, **variables: str) -> list[str]:
        path = f"{programs}:{os.environ['PATH']}"
        environment = {**os.environ, **variables, "PATH": path, "OUT": str(planned.out)}
        subprocess.run(["sh", "-c", line], env=environment, timeout=WAIT_S, check=True)
        return [node.facts.part for node in read_nodes(planned.workspace)]

    return in_shell


def test_each_scheduler_begins_with_the_first_part(run):
    """Whatever its variable is called, and wherever it counts from; the last too."""
    assert len(LINES) == 4
    for line in LINES.values():
        (variable,) = {name for name in (*FIRST, "JOB_COMPLETION_INDEX") if name in line}
        parts = run(line, **{variable: FIRST.get(variable, FIRST_COMPLETION_INDEX)})
        assert set(parts) == {"1/64"}
    assert len(parts) == 4
