"""What a new user sees in the first hour, walked by `scripts/first_hour.py`."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "first_hour.py"


@pytest.fixture(scope="module")
def seen():
    """Step -> what was seen of it."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "--json", "--count", "40"],
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    (walk,) = json.loads(done.stdout)
    return {one["step"]: one for one in walk}


def test_nothing_that_goes_well_warns_or_shows_a_stack(seen):
    """Status 0, no warning of any library, no bar wider than a terminal."""
    for step, one in seen.items():
        if not step.startswith("mistake"):
            assert (one["status"], one["warnings"], one["tracebacks"]) == (0, 0, 0), one["text"]
            assert one["widest_bar"] <= 80, step


def test_a_build_is_watched_alike_on_a_terminal_and_in_a_log(seen):
    """The decisions come first, the counts and the lines to copy last; a log has no bar."""
    terminal, log = seen["build on a terminal"], seen["build into a log"]
    assert "40/40" in terminal["text"]
    assert "\r" not in log["text"]
    for one in (terminal, log):
        text = one["text"]
        assert text.index("imagefolder") < text.index("found 40 = 40 stored + 0 rejected")
        assert text.index("found 40") < text.index("from readers import")
        assert " 0 images/s" not in text


def test_help_fits_a_terminal(seen):
    """Of 80 columns: no line of it is broken by the terminal."""
    for step in ("help", "help of build"):
        assert seen[step]["widest"] <= 80


@pytest.mark.parametrize(
    ("step", "status", "said"),
    [
        ("RAW and OUT swapped", 1, "swapped"),
        ("OUT is there", 1, "--overwrite"),
        ("no such folder", 1, "No such file or directory"),
        ("option mistyped", 2, "--size"),
        ("fit without size", 2, "--fit 'crop' is about size"),
        ("info of raw data", 1, "packer build"),
    ],
)
def test_a_mistake_is_told_in_a_few_lines(seen, step, status, said):
    """What was found and what to do, without a stack."""
    one = seen[f"mistake: {step}"]
    assert (one["status"], one["tracebacks"]) == (status, 0), one["text"]
    assert said in one["text"]
    assert one["lines"] <= 12


def test_a_dataset_of_raw_data_says_what_to_do(seen):
    """The last line of the stack is the advice."""
    one = seen["mistake: raw data as a dataset"]
    assert one["status"] == 1
    assert "packer build" in one["text"].strip().splitlines()[-1]


def test_a_notebook_shows_a_bar_and_no_warning(seen):
    """Without `progress=True`, and without widgets, which are not installed here."""
    if any(importlib.util.find_spec(name) is None for name in ("nbclient", "ipykernel")):
        pytest.skip("needs nbclient and ipykernel")
    one = seen["build in a notebook"]
    assert "40/40" in one["text"]
    assert "found 40 = 40 stored" in one["text"]
