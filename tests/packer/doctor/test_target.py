"""A build target is tried as a build would use it, and what fails there is named."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from packer.doctor import doctor
from packer.doctor.target import _START, TargetFacts, check_target, gather_target, try_target


def test_a_good_folder_passes_and_nothing_stays(tmp_path):
    """All steps work, room is told, and the folder is as it was."""
    facts = gather_target(tmp_path / "new/deeper/out.lmdb")
    assert facts.problem is None
    assert (facts.folder, facts.step) == (tmp_path, "")
    assert list(facts.seconds) == [
        *("make a folder", "lock", "write", "sync", "rename", "sync the folder", "look again"),
        "remove",
    ]
    assert facts.free_bytes > 0
    check = check_target(tmp_path / "out.lmdb", facts)
    assert "lock, write, rename work" in check.figure
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_may_not_be_written_fails(tmp_path):
    """With the step, the reason and what to do; from `doctor` as well."""
    target = Path("/proc/out.lmdb")  # Not even root makes folders there.
    report = doctor(target=target)
    found = {check.name: check for check in report.checks}["build_target"]
    assert found.status == "fail"
    assert "cannot make a folder" in found.figure
    assert not report.is_good


def test_a_full_disk_is_told_as_its_step(tmp_path):
    """A limit on sizes of files, as of a quota: writing is what fails, and all is removed."""
    said: list[str] = []
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            try_target(tmp_path, said.append)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert said[-1] == "write"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_hangs_is_given_up(tmp_path, monkeypatch):
    """A dead file server never answers: after a while the step that hangs is named."""
    hanging = _START.replace(
        "from packer", "import fcntl, time; fcntl.flock = lambda *_: time.sleep(60); from packer"
    )
    monkeypatch.setattr("packer.doctor.target._START", hanging)
    facts = gather_target(tmp_path / "out.lmdb", timeout_s=3)
    assert facts.step == "lock"
    check = check_target(tmp_path / "out.lmdb", facts)
    assert (check.status, "cannot lock: no answer within 3 s" in check.figure) == ("fail", True)
    assert "nolock" in check.remedy


def test_few_files_left_and_slow_syncs_are_told():
    """A nearly full table of inodes, and a sync that takes a second, change the advice."""
    facts = TargetFacts(Path(os.sep), seconds={"sync": 0.01}, free_bytes=1, free_file_count=100)
    assert "inodes" in check_target(Path("out.lmdb"), facts).why
    facts = TargetFacts(Path(os.sep), seconds={"sync": 4.0}, free_bytes=1)
    assert "--shard-size" in check_target(Path("out.lmdb"), facts).remedy
