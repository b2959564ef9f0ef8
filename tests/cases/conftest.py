"""Inputs of the cases, made once a session by the script that lies beside the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MAKE_CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "make_cases.py"


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder for each case: its inputs and its case.json. Not to be changed."""
    if not MAKE_CASES.exists():
        pytest.skip(f"the cases are not here: {MAKE_CASES} makes their inputs")
    folder = tmp_path_factory.mktemp("cases")
    subprocess.run(
        [sys.executable, MAKE_CASES, folder], check=True, capture_output=True, timeout=120
    )
    return folder
