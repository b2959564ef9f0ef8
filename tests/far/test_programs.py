"""The programs that soak and measure reading from afar come to their end, in small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(program, *arguments):
    """What a program of scripts/ prints."""
    done = subprocess.run(
        [sys.executable, f"scripts/{program}", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("far")
def test_a_soak_checks_every_sample():
    """An epoch by each engine, with one call in 20 failing."""
    arguments = ("--batches", 24, "--samples", 256, "--every", 20, "--json")
    figures = json.loads(run("soak_far.py", *arguments))
    assert figures["sample_count"] == 3 * 256
    assert figures["epochs"] == {"thread": 1, "process": 1, "stock": 1}
    assert figures["fault_count"] >= 5


@pytest.mark.slow
@pytest.mark.usefixtures("far")
def test_the_benchmark_counts_what_each_way_asks_for(tmp_path):
    """An open and a read at least for each file of a folder. A chart is drawn as well."""
    rows_path, chart = tmp_path / "rows.json", tmp_path / "chart.svg"
    text = run(
        "bench_cold.py",
        *("--images", 32, "--batch", 8, "--rounds", 1, "--seconds", 0.1, "--delays", 0),
        *("--forms", "jpg256", "--ways", "folder,tar,ours", "--orders", "ordered"),
        *("--json", rows_path, "--chart", chart),
    )
    rows = {row["way"]: row for row in json.loads(rows_path.read_text())}
    assert list(rows) == ["folder", "tar", "ours"]
    assert rows["folder"]["reads"] >= 1
    assert rows["folder"]["names"] >= rows["folder"]["sample_count"]
    assert rows["ours"]["kilobytes"] > 0
    assert all(way in text and way in chart.read_text() for way in rows)


@pytest.mark.slow
@pytest.mark.usefixtures("far")
def test_the_benchmark_of_staging_ends_without_the_network():
    """Each way is read for an epoch; copied before, no shard is asked for."""
    text = run("bench_staging.py", "--images", 64, "--delay", 0, "--epochs", 1)
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert {"far", "staging", "staged", "packer", "plain"} <= lines.keys()
    assert int(lines["far"][5]) > 10
    assert int(lines["staged"][5]) <= 4
    assert int(lines["staged"][8]) > 1
