"""What the machine gives a job is read from the system's own files and calls."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from readers import machine


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A tree of the system's files for this test, in place of the machine's."""
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    return tmp_path


def write(root, files):
    """Files by path, with their text."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture
def four_cores(monkeypatch):
    """This process may use CPUs 0 to 3."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})


V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/cpu"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 4),
        ({"proc/self/cgroup": "0::/\n"}, 4),
        ({"proc/self/cgroup": "0::/\n", f"{V2}/cpu.max": "max 100000\n"}, 4),
        ({"proc/self/cgroup": "0::/\n", f"{V2}/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", f"{V2}/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", f"{V2}/cpu.max": "900000 100000\n"}, 4),
        # The tightest of all levels counts: a job's limit may lie above or below the process's own.
        (
            {
                "proc/self/cgroup": "0::/job/step/task\n",
                f"{V2}/job/cpu.max": "200000 100000\n",
                f"{V2}/job/step/cpu.max": "max 100000\n",
                f"{V2}/job/step/task/cpu.max": "300000 100000\n",
            },
            2,
        ),
        # In a container the path is the host's, and only the root is there.
        (
            {
                "proc/self/cgroup": "0::/docker/0123abc\n",
                f"{V2}/cpu.max": "300000 100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/slurm/job/step\n0::/\n",
                f"{V1}/slurm/job/cpu.cfs_quota_us": "200000\n",
                f"{V1}/slurm/job/cpu.cfs_period_us": "100000\n",
                f"{V1}/slurm/job/step/cpu.cfs_quota_us": "-1\n",
                f"{V1}/slurm/job/step/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/job/step\n",
                f"{V1}/job/cpu.cfs_quota_us": "100000\n",
                f"{V1}/job/cpu.cfs_period_us": "100000\n",
                f"{V1}/job/step/cpu.cfs_quota_us": "300000\n",
                f"{V1}/job/step/cpu.cfs_period_us": "100000\n",
            },
            1,
        ),
        (
            {
                "proc/self/cgroup": "2:cpuacct:/\n1:cpu:/gone\n",
                f"{V1}/cpu.cfs_quota_us": "150000\n",
                f"{V1}/cpu.cfs_period_us": "50000\n",
            },
            3,
        ),
        ({"proc/self/cgroup": "1:cpu:/\n", f"{V1}/cpu.cfs_quota_us": "-1\n"}, 4),
        ({"proc/self/cgroup": "nonsense\n1:cpu\n", f"{V2}/cpu.max": "100000 100000\n"}, 4),
        ({"proc/self/cgroup": "0::/a:b\n", f"{V2}/a:b/cpu.max": "100000 100000\n"}, 1),
    ],
)
def test_cores_are_those_of_affinity_and_cgroup(root, four_cores, files, expected):
    """Neither the machine's cores nor those of the affinity help a job that has no time on them."""
    write(root, files)
    assert machine.core_count() == expected


def test_the_threads_of_a_core_count_once(root, four_cores):
    """Two CPUs of one core decode no faster than one and a quarter."""
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    write(root, {topology.format(cpu): f"{cpu % 2},{cpu % 2 + 2}\n" for cpu in range(4)})
    assert machine.core_count() == 4
    assert machine.physical_core_count() == 2
    write(root, {"proc/self/cgroup": "0::/\n", f"{V2}/cpu.max": "100000 100000\n"})
    assert machine.physical_core_count() == 1


def test_without_a_topology_threads_count_as_cores(root, four_cores):
    """Containers and other machines may not say."""
    assert machine.physical_core_count() == 4


def test_affinity_is_that_of_this_process(run_python):
    """A job bound to one core, as by taskset or Slurm, has one, whatever the machine has."""
    code = (
        "import os, json\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from readers.machine import core_count, physical_core_count\n"
        "print(json.dumps([core_count(), physical_core_count()]))"
    )
    assert run_python(code) == [1, 1]


@pytest.mark.parametrize(
    ("text", "expected"), [("8", 8), ("1", 1), ("0", 1), ("", 1), ("-2", 1), ("x", 1), ("²", 1)]
)
def test_ranks_are_what_the_launcher_says(monkeypatch, text, expected):
    """torchrun sets LOCAL_WORLD_SIZE; nonsense counts as one process."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", text)
    assert machine.local_rank_count() == expected


def test_without_a_launcher_there_is_one_rank(monkeypatch):
    """A plain script is the only training process."""
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert machine.local_rank_count() == 1


def test_mounts_of_this_machine_are_found():
    """/proc is always a mount of its own; what does not exist lies where its parent does."""
    found = machine.mount_of(Path("/proc/self"))
    assert (found.folder, found.type) == (Path("/proc"), "proc")
    assert not found.is_network
    missing = machine.mount_of(Path("/proc/not/there/yet"))
    assert (missing.folder, missing.type) == (Path("/proc"), "proc")
    if Path("/dev/shm").is_mount():
        found = machine.mount_of(Path("/dev/shm"))
        assert (found.folder, found.type) == (Path("/dev/shm"), "tmpfs")
        assert found.options[0] in ("rw", "ro")


MOUNTS = rb"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /data rw - nfs4 server:/export rw,vers=4.2
24 22 0:6 / /data\040of\040\303\251\134040 rw,nosuid master:3 - fuse.sshfs me@host:/ rw,user_id=0
25 22 0:7 / /\377\011x ro - xfs /dev/sdb ro
26 23 0:8 / /data/fast rw - xfs /dev/sdc rw
27 22 0:9 / /twice rw - ext4 /dev/sdd rw
28 22 0:9 / /twice rw - lustre 1@tcp:/fs rw,flock
short line
"""


@pytest.mark.parametrize(
    ("path", "folder", "kind", "is_network"),
    [
        ("/home/x", "/", "ext4", False),
        ("/data", "/data", "nfs4", True),
        ("/data/a/b", "/data", "nfs4", True),
        ("/data/fast/a", "/data/fast", "xfs", False),
        ("/data/faster", "/data", "nfs4", True),
        # A blank, a letter outside ASCII, and a backslash that is not an escape.
        ("/data of é\\040/x", "/data of é\\040", "fuse.sshfs", True),
        (os.fsdecode(b"/\xff\tx/y"), os.fsdecode(b"/\xff\tx"), "xfs", False),
        # The last mount on a place hides the others.
        ("/twice/x", "/twice", "lustre", True),
    ],
)
def test_a_path_lies_on_the_innermost_mount(root, path, folder, kind, is_network):
    """Names of mount points may hold anything; the kernel writes some of it as escapes."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_bytes(MOUNTS)
    found = machine.mount_of(Path(path))
    assert (found.folder, found.type, found.is_network) == (Path(folder), kind, is_network)


@pytest.mark.parametrize(
    ("kinds", "is_network"),
    [
        ("nfs nfs4 lustre gpfs beegfs ceph cifs smb3 9p afs glusterfs wekafs panfs orangefs", True),
        ("fuse fuse.sshfs fuse.s3fs fuse.gcsfuse fuse.juicefs fuse.JuiceFS:disk fuse.rclone", True),
        ("fuse.mount-s3 fuse.ceph-fuse fuse.glusterfs fuse.goofys fuse.blobfuse2 fuse.cvmfs", True),
        ("fuse.far fuseblk virtiofs dvs pvfs2 cvfs vboxsf", True),
        ("ext4 xfs btrfs zfs tmpfs ramfs overlay f2fs ext3 bcachefs erofs squashfs vfat", False),
    ],
)
def test_each_kind_of_file_system_is_known(root, kinds, is_network):
    """Those of clusters, clouds and virtual machines are read by reads; local ones are mapped."""
    (root / "proc/self").mkdir(parents=True)
    for kind in kinds.split():
        line = f"22 1 0:5 / /data rw - {kind} somewhere rw\n"
        (root / "proc/self/mountinfo").write_text(line)
        found = machine.mount_of(Path("/data/store.lmdb"))
        assert (found.type, found.is_network) == (kind, is_network)


def test_options_are_those_of_the_mount_and_of_the_file_system(root):
    """Both say how a path behaves."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_bytes(MOUNTS)
    options = machine.mount_of(Path("/data of é\\040")).options
    assert options == ("rw", "nosuid", "rw", "user_id=0")


def test_a_machine_without_proc_is_no_error(root):
    """Then nothing is known of any mount, and no cgroup limits."""
    found = machine.mount_of(Path("/somewhere"))
    assert (found.folder, found.type, found.is_network) == (Path("/"), "unknown", False)
    assert machine.core_count() == len(os.sched_getaffinity(0))
