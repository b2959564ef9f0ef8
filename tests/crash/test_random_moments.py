"""Builds that are killed at random moments; scripts/crash_soak.py does it for hours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KILL_COUNT = 10


def test_no_random_moment_is_a_bad_one():
    """The driver, a build worker or all at once: every law of the soak holds after every kill."""
    soak = [sys.executable, str(ROOT / "scripts" / "crash_soak.py"), "--json", "--seed", "1"]
    done = subprocess.run(
        [*soak, "--kills", str(KILL_COUNT), "--pictures", "24"],
        capture_output=True,
        text=True,
        timeout=240,
        env={"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert figures["kill_count"] >= KILL_COUNT
    assert figures["builds"] >= 1
