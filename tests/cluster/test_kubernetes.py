"""The Jobs of Kubernetes in `examples/cluster`: what its API takes, and what their pods run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packer.conftest import CLASS_NAMES, draw_tree

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "cluster"
NAMES = ("plan", "work", "publish")
PART_COUNT = 64


def job(name: str) -> dict[str, Any]:
    found = yaml.safe_load((EXAMPLES / f"kubernetes-{name}.yaml").read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_job_is_what_kubernetes_expects(name):
    """By the schemas of an old release and of the newest, which take no other names."""
    validator = pytest.importorskip("kubernetes_validate")
    versions = validator.utils.all_versions()
    for version in (versions[0], versions[-1]):
        validator.validate(job(name), version, strict=True)
    wrong = job(name)
    wrong["spec"]["completion"] = 64
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, versions[-1], strict=True)


def test_pods_of_all_indices_cover_all_parts():
    """Parts count from 1, and there are as many as indices."""
    spec = job("work")["spec"]
    assert (spec["completions"], spec["completionMode"]) == (PART_COUNT, "Indexed")
    assert f'--part "$((JOB_COMPLETION_INDEX + 1))/{PART_COUNT}"' in command("work")[-1]


def test_what_the_pods_run_makes_a_store(tmp_path):
    """Plan, the first and the last pod, publish: with the paths of this machine."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "packer").write_text(f'#!/bin/sh\nexec {sys.executable} -m packer "$@"\n')
    (programs / "packer").chmod(0o755)
    (tmp_path / "scratch").mkdir()
    draw_tree(tmp_path / "raw", CLASS_NAMES)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": os.fspath(EXAMPLES.parents[1]),
        "HOSTNAME": "packer-work-0-abcde",
    }
    for name, index in (("plan", 0), ("work", 0), ("work", PART_COUNT - 1), ("publish", 0)):
        words = [
            word.replace("/data", os.fspath(tmp_path)).replace(" /scratch", f" {tmp_path}/scratch")
            for word in command(name)
        ]
        words = [f"{tmp_path}/scratch" if word == "/scratch" else word for word in words]
        done = subprocess.run(
            words,
            env={**environment, "JOB_COMPLETION_INDEX": str(index)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.lmdb" / "manifest.json").exists()


def command(name: str) -> list[str]:
    [container] = job(name)["spec"]["template"]["spec"]["containers"]
    found = container["command"]
    assert isinstance(found, list)
    return found
