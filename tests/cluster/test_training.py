"""`examples/cluster/train.sbatch` and `train.py` as they are, on two nodes of a real Slurm."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from packer.building.build import build
from packer.recipe import Recipe
from tests.cluster.conftest import Slurm, wait_until
from tests.packer.conftest import draw_tree, processes_with
from tests.packer.engines.test_dask_engine import parent_of

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "cluster"
SAMPLE_COUNT, BATCH_SIZE, RANK_COUNT, EPOCH_COUNT = 160, 2, 2, 2


def noted(seen: Path) -> list[tuple[int, int, int, str]]:
    """What the ranks have noted: (epoch, position over all ranks, rank, keys) of each step."""
    found = []
    for path in sorted(seen.iterdir()):
        rank = int(path.stem.removeprefix("rank-"))
        for line in path.read_text().splitlines():
            epoch, position, keys = line.split(" ", 2)
            found.append((int(epoch), int(position), rank, keys))
    return found


@contextmanager
def frozen(checkpoint: Path) -> Iterator[list[int]]:
    """The ranks, which do nothing within the context; a signal of Slurm wakes them as well."""
    found = {}
    for pid in processes_with(os.fspath(checkpoint)):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"python"):
                found[pid] = parent_of(pid)
    ranks = [pid for pid, parent in found.items() if parent not in found]  # Not loader workers.
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    yield ranks
    for pid in ranks:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def is_pending(pid: int, number: signal.Signals) -> bool:
    """Whether a signal waits for a process to go on."""
    found = re.search(r"ShdPnd:\t(\w+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return bool(int(found[1], 16) & 1 << number - 1)


def test_a_training_that_is_requeued_in_mid_epoch_sees_each_sample_once(
    slurm: Slurm, tmp_path: Path
) -> None:
    """Stopped as at its time limit, then requeued without notice: what the model has seen is all.

    After the first, the job queues itself again, and no step comes twice. After the second, steps
    behind the last checkpoint may come again, as they were.
    """
    names = [f"{name}/{number:02d}.png" for name in ("ant", "bee") for number in range(80)]
    raw = draw_tree(tmp_path / "raw", names)
    store, checkpoint = tmp_path / "out.lmdb", tmp_path / "checkpoint.pt"
    build(raw, store, Recipe(size=16, fit="stretch"), worker_count=1)
    seen, log = tmp_path / "seen", tmp_path / "train.log"
    seen.mkdir()
    job = slurm.run(
        *("sbatch", "--parsable", "--cpus-per-task=1", f"--output={log}"),
        *(EXAMPLES / "train.sbatch", EXAMPLES / "train.py", store, checkpoint),
        *("--epochs", str(EPOCH_COUNT), "--batch-size", str(BATCH_SIZE), "--every", "5"),
        *("--step-seconds", "0.05", "--seen", seen),
    ).stdout.strip()
    try:
        wait_until(lambda: len(noted(seen)) >= 6, "some steps")
        with frozen(checkpoint) as ranks:
            assert len(ranks) == RANK_COUNT
            slurm.run("scancel", "--signal=USR1", job)
            for pid in ranks:
                wait_until(lambda pid=pid: is_pending(pid, signal.SIGUSR1), "the signal")
        wait_until(lambda: not processes_with(os.fspath(checkpoint)), "the first run to end")
        first = noted(seen)
        assert checkpoint.exists()
        assert max(first)[0] == 0
        assert 0 < max(first)[1] < SAMPLE_COUNT
        wait_until(lambda: len(noted(seen)) >= len(first) + 6, "steps of the second run")
        with frozen(checkpoint) as ranks:
            assert len(ranks) == RANK_COUNT
            slurm.run("scontrol", "requeue", job)
        assert slurm.wait_until_ended(job) == "COMPLETED", log.read_text()
    finally:
        slurm.run("scancel", "--full", job, check=False)
    assert "Restarts=2" in slurm.run("scontrol", "show", "job", job).stdout
    steps = noted(seen)
    once = set(steps)
    assert len({step[:3] for step in once}) == len(once)
    assert all(steps.count(step) == 1 for step in first)
    counts = Counter((epoch, key) for epoch, _, _, keys in once for key in keys.split())
    assert counts == Counter((epoch, name) for epoch in range(EPOCH_COUNT) for name in names)
    said = log.read_text()
    assert [said.count(f"rank {rank}: done") for rank in range(RANK_COUNT)] == [1, 1]
