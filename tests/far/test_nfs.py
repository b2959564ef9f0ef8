"""Reading over the NFS of a real kernel, in a guest system, where a machine can run one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.far.conftest import raw_images

ROOT = Path(__file__).resolve().parents[2]
NFS_RUN = ROOT.parent / "shared" / "cluster" / "nfs-run"
PROGRAMS = ("linux.uml", "rpc.nfsd", "mount.nfs", "tc")


def missing():
    """What this machine lacks for such a guest, or None."""
    if not NFS_RUN.exists():
        return f"{NFS_RUN}, which starts a guest system"
    found = [
        name
        for name in PROGRAMS
        if shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin") is None
    ]
    return f"the programs {', '.join(found)}" if found else None


@pytest.mark.slow
def test_a_store_on_nfs_is_read_by_one_request_a_sample(tmp_path):
    """Right samples, also after the server was away; a shard that was replaced is an error."""
    if (what := missing()) is not None:
        pytest.skip(f"no NFS can be mounted here, for want of {what}")
    seed = tmp_path / "seed"
    seed.mkdir()
    np.save(seed / "large.npy", raw_images(seed / "large.lmdb", 64, 208, 200))
    program = [sys.executable, "-m", "tests.far.nfs_program"]
    done = subprocess.run(
        [NFS_RUN, "--delay", "1", "--seed", seed, "--limit", "250", "--", *program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["mount"], found["access"]) == ("nfs4", "read")
    assert found["shuffled"]["is_same"]
    assert found["shuffled"]["reads"] <= 32
    assert found["shuffled"]["names"] <= 8
    assert found["away"]
    assert found["mapped"]
    assert "shard-00001.lmdb: is another file than the one" in found["replaced"]
