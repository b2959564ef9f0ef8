"""`scripts/setup` takes what is there, says what it will install, and does it once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "tiny"
version = "1"
dependencies = ["torch", "numpy"]

[project.optional-dependencies]
demo = ["click"]

[tool.setuptools]
py-modules = ["tiny"]
"""


@pytest.fixture
def checkout(tmp_path):
    """A small project with the script: its dependencies are those that this Python has."""
    pytest.importorskip("setuptools")
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup", folder / "scripts")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "tiny.py").write_text("")
    # Releases that are not there: what is there must win.
    pins = "torch==0.1\nnumpy==1.0\nleft==3 ; python_version > '3'\nsetuptools>=77\n"
    (folder / "constraints.txt").write_text(f"# Pins\n{pins}")
    return folder


def set_up(checkout, *options, settings=()):
    """Run the script, with these settings of pip."""
    return subprocess.run(
        ["env", f"PYTHON={sys.executable}", *settings, "scripts/setup", *options],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_a_torch_that_is_there_is_taken(checkout):
    """Also that of a virtual environment; nothing of it is downloaded, and the second call ends at
    once, also without the option."""
    done = set_up(checkout, "--system-site-packages", "demo")
    if "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("needs an index that has setuptools")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "well below 1 GiB beside torch " in done.stdout
    pinned = (checkout / ".venv" / "constraints.txt").read_text()
    assert "torch==0.1" not in pinned
    assert "left==3 ; python_version > '3'\n" in pinned
    program = "import tiny, torch, numpy; print(torch.__file__, numpy.__file__)"
    python = checkout / ".venv" / "bin" / "python"
    found = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    assert str(checkout) not in found.stdout
    again = set_up(checkout, "demo")
    assert (again.returncode, again.stdout) == (0, "Set-up: .venv is up to date.\n")


def test_what_will_be_installed_is_said_before(checkout):
    """How much of the disk it takes, and how it takes less; where it fails, why."""
    nowhere = ["PIP_NO_INDEX=1", "PIP_FIND_LINKS="]
    done = set_up(checkout, "demo", settings=nowhere)
    assert done.returncode == 1
    assert "1 to 7 GiB on disk" in done.stdout
    assert "--cpu" in done.stdout
    assert "The installation failed" in done.stderr
    done = set_up(checkout, "--cpu", "demo", settings=nowhere)
    assert "about 1 GiB on disk, with a torch for the CPU" in done.stdout
    done = set_up(checkout, "--gpu", "demo")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there are --cpu and --system-site-packages" in done.stderr
