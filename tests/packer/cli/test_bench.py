"""The command that measures a store on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree

from readers.dataset import LMDBDataset
from readers.loader.make import make_loader
from tests.command import run_packer

QUICK = ("--seconds", "0.4", "--batch-size", "4", "-j", "1")


def test_it_prints_writes_and_draws(store, raw, tmp_path, monkeypatch):
    """JSON on stdout alone, settings that a loader of the store takes, and a chart that is XML.

    A module called readers in the current folder is not taken for ours.
    """
    (tmp_path / "readers.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    outputs = ("-o", "tuned.json", "--chart", "chart.svg")
    done = run_packer("bench", store, raw, *QUICK, "--step-ms", "5", *outputs, "--json")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["best"] in facts["tried"]
    assert facts["raw"]["setting"]["engine"] == "stock"
    assert facts["step"]["needed_images_per_s"] == 800
    assert facts["sample_count"] == 12
    assert "make_loader(..., tuned='tuned.json')" in done.stderr
    assert ElementTree.parse(tmp_path / "chart.svg").getroot().tag.endswith("svg")
    with LMDBDataset(store) as dataset:
        loader = make_loader(dataset, 4, train=True, tuned=tmp_path / "tuned.json")
        assert loader.config.workers == facts["best"]["setting"]["workers"] == 1


def test_it_prints_a_table_and_says_nothing_else_when_quiet(store):
    """Without --json it is for people."""
    done = run_packer("bench", store, *QUICK, "--quiet")
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    assert "12 samples, batches of 4" in done.stdout
    assert "1 thread" in done.stdout


def test_errors_are_told_as_those_of_any_command(store, tmp_path):
    """What is no store and what has no pictures: one message, status 1; a missing folder: usage."""
    done = run_packer("bench", tmp_path / "none.lmdb", *QUICK)
    assert done.exit_code == 1
    assert "none.lmdb" in done.stderr
    assert "Traceback" not in done.stderr
    done = run_packer("bench", store, tmp_path, *QUICK)
    assert done.exit_code == 1
    assert "there is no picture" in done.stderr
    done = run_packer("bench", store, "-o", tmp_path / "none" / "tuned.json")
    assert done.exit_code == 2
    assert "there is no folder" in done.stderr


def test_a_stopped_bench_leaves_no_process(store, tmp_path, packer_command, processes_with):
    """Its child ends with it, and the child's loader workers with that."""
    name = str(tmp_path / "tuned.json")
    command = [*packer_command, "bench", os.fspath(store), "-o", name, "--seconds", "60"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as bench:
        deadline = time.monotonic() + 60
        while len(processes_with(name)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        bench.send_signal(signal.SIGTERM)
        bench.communicate(timeout=60)
    assert bench.returncode == 143
    deadline = time.monotonic() + 30
    while processes_with(name):
        assert time.monotonic() < deadline
        time.sleep(0.05)
