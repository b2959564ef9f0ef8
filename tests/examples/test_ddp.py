"""`examples/ddp.py` on two ranks, killed in mid-epoch and started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import pytest
import torch

from tests.examples.conftest import EXAMPLES, ROOT
from tests.packer.conftest import processes_with

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this torch has no torch.distributed"
)

TRAIN_COUNT, VAL_COUNT = 80, 20
WAIT_S = 240


@pytest.fixture
def start(photo_store, tmp_path):
    """Starts the example on two ranks; all that is left of them is killed in the end."""
    checkpoint, seen = tmp_path / "checkpoint.pt", tmp_path / "seen"
    seen.mkdir()

    def start_ranks(epoch_count):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", "2", EXAMPLES / "ddp.py", photo_store, checkpoint]
        return subprocess.Popen(
            [*map(str, command), "--epochs", str(epoch_count), "--seen", str(seen)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    start_ranks.seen = seen
    start_ranks.kill = lambda: kill(str(checkpoint))
    yield start_ranks
    start_ranks.kill()


def kill(argument):
    """End all processes that were given it: the launcher, and ranks in sessions of their own."""
    deadline = time.monotonic() + WAIT_S
    while pids := processes_with(argument):
        assert time.monotonic() < deadline
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def noted(folder):
    """(rank, step) -> (epoch, keys) of each step; one that came twice was twice the same."""
    found = {}
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            epoch, step, keys = line.split(" ", 2)
            at = path.stem, int(step)
            assert found.setdefault(at, (int(epoch), keys)) == (int(epoch), keys)
    return found


def test_a_killed_training_goes_on_and_evaluation_counts_each_sample(start):
    """Steps behind the last checkpoint come again as they were; each sample once in each epoch."""
    killed, deadline = start(10**6), time.monotonic() + WAIT_S
    while not any(step >= 8 for _, step in noted(start.seen)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    start.kill()
    said = killed.communicate(timeout=WAIT_S)[0]
    before = noted(start.seen)
    epoch_count = max(epoch for epoch, _ in before.values()) + 2
    resumed = start(epoch_count)
    said_later = resumed.communicate(timeout=WAIT_S)[0]
    assert resumed.returncode == 0, said_later
    assert "epoch 0: " not in said_later
    after = noted(start.seen)
    assert len(after) == 2 * epoch_count * TRAIN_COUNT // 16
    counts = Counter((epoch, key) for epoch, keys in after.values() for key in keys.split())
    assert len(counts) == TRAIN_COUNT * epoch_count
    assert set(counts.values()) == {1}
    assert set(re.findall(r"of (\d+) right", said + said_later)) == {str(VAL_COUNT)}
