"""Type checkers know what the functions of `packer` take; pyright also those of `readers`."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readers.test_types import MISTAKEN, USERS

ROOT = Path(__file__).parents[2]

BUILDS = """
from typing_extensions import assert_type

import packer
from packer import BuildReport, RejectSummary, Recipe, SourceOptions

report = packer.build("raw", "out.lmdb", size=(224, 320), fit="crop", workers=2, progress=True)
assert_type(report, BuildReport)
assert_type(packer.rejects("out.lmdb"), RejectSummary)
packer.build("raw", "out.lmdb", Recipe(size=224), source=SourceOptions(format="voc"))
packer.merge(["a", "b"], "c", workers=2, progress=True)
"""

MISTAKEN_BUILDS = """
import packer
from packer import Recipe, SourceOptions

packer.build("raw")
Recipe(sise=3)
Recipe(size="224")
SourceOptions(task="classify")
packer.merge(["a", "b"], "c", worker_count=2)
"""


def with_mypy(path):
    """Numbers of the lines in which mypy finds something wrong."""
    command = ["-m", "mypy", "--strict", "--hide-error-context", str(path)]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,  # Where scripts/check has left what it knows of torch.
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {int(line) for line in re.findall(r"program\.py:(\d+): error: ", done.stdout)}


def with_pyright(path):
    """The same of pyright, by the package that brings it along with what it runs on."""
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)]}
    (path.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "."],
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}


CHECKERS = {"mypy": with_mypy, "basedpyright": with_pyright}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "wrong"),
    [(BUILDS, []), (MISTAKEN_BUILDS, [4, 5, 6, 7, 8]), (USERS, []), (MISTAKEN, [4, 5, 6, 7, 8, 9])],
    ids=["builds", "mistaken builds", "reads", "mistaken reads"],
)
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_finds_a_users_mistakes_and_nothing_else(checker, program, wrong, tmp_path):
    """Each in its line: before hours of work are begun with them."""
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"needs {checker}")
    if checker == "mypy" and program in (USERS, MISTAKEN):
        pytest.skip("tests/readers/test_types.py looks at this one with mypy")
    path = tmp_path / "program.py"
    path.write_text(program.lstrip())
    assert sorted(CHECKERS[checker](path)) == wrong
