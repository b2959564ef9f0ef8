"""`packer doctor`: what is found of a machine, a job and a store, and what is said about it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from packer.building.build import build
from packer.doctor import doctor, page_cache
from packer.doctor.check import Check
from packer.doctor.machine_checks import (
    check_cores,
    check_cuda,
    check_file_limit,
    check_load,
    check_memory,
    check_shared_memory,
    check_start_method,
    check_threads,
)
from packer.doctor.mount_checks import check_mount, check_mount_options
from packer.doctor.need import Need
from packer.doctor.raw import check_raw_files, gather_raw
from packer.doctor.store import SampleTimes, gather_store, is_store
from packer.doctor.store_checks import (
    check_page_cache,
    check_random_samples,
    check_single_sample,
    check_store,
    store_checks,
)
from packer.doctor.torch_facts import _PROGRAM, TorchFacts, TorchQuestion
from packer.recipe import Recipe
from packer.wording import count_text, size_text, time_text
from packer.workspace.folder import Workspace
from packer.workspace.lock import TargetLock
from readers import machine
from readers.loader.make import LoaderConfig
from readers.machine import (
    KEPT_BATCH_COUNT,
    FileLimit,
    Machine,
    Memory,
    PythonProcesses,
    Space,
    batches_ahead,
    mount_of,
)
from readers.store.manifest import read_manifest
from readers.store.reader import StoreReader
from readers.store.record import RecordReader

MIB, GIB = 2**20, 2**30

MACHINE_NAMES = [
    *("cores", "memory", "shared_memory", "file_limit", "threads", "start_method", "load", "cuda")
]
STORE_NAMES = [
    *("mount", "mount_options", "store", "reading", "single_sample", "random_samples", "storage"),
    *("epoch", "page_cache"),
]


@pytest.fixture(scope="module")
def here():
    """This machine, made comfortable: all passes until a test takes something away."""
    return replace(
        Machine.read(),
        cpu_count=8,
        affinity_count=8,
        cgroup_core_count=None,
        core_count=8,
        local_rank_count=1,
        load_average=0.5,
        memory=Memory(
            total_bytes=16 * GIB, available_bytes=8 * GIB, limit_bytes=None, used_bytes=0
        ),
        shared_memory=Space(8 * GIB, 8 * GIB),
        file_limit=FileLimit(1024, 4096, 10),
        python=PythonProcesses(0, 0),
        start_method="fork",
        thread_count=1,
        python_thread_names=(),
        omp_num_threads=None,
        nvidia_driver=None,
    )


TORCH = TorchFacts(
    torch_version="2.6.0",
    torch_thread_count=8,
    cv2_version="4.11.0",
    cv2_thread_count=8,
    thread_count=9,
)

NEED = Need(batch_size=64, worker_count=4)


def test_it_reckons_with_the_batches_that_a_loader_has_under_way():
    """What is ahead by default, and what the loop holds beside it."""
    config = LoaderConfig.tuned(4)
    assert NEED.prefetch_factor == config.prefetch_factor
    batches = batches_ahead(config.workers, config.prefetch_factor) + KEPT_BATCH_COUNT
    assert NEED.buffer_bytes == batches * NEED.batch_bytes


"""Batches of 64 samples of 150,528 bytes: 9.2 MiB; 4 loader workers with 2 each."""


def told(check):
    """Status, and everything a person reads."""
    return check.status, "\n".join(check.lines())


# --- Numbers in words -----------------------------------------------------------------------------


def test_sizes_times_and_counts_have_the_unit_that_suits_them():
    """As a person would write them."""
    sizes = [0, 1023, 1024, 64 * MIB, 1536 * MIB, 3 * 2**40]
    assert [size_text(size) for size in sizes] == [
        *("0 bytes", "1023 bytes", "1.0 KiB", "64.0 MiB", "1.5 GiB", "3.0 TiB")
    ]
    times = [0.00031, 0.0042, 1.5, 59, 3600 * 3]
    assert [time_text(s) for s in times] == ["310 us", "4.2 ms", "1.5 s", "59.0 s", "3.0 h"]
    assert [count_text(n, "core") for n in (0, 1, 12000)] == ["0 cores", "1 core", "12,000 cores"]
    assert count_text(2, "Python process") == "2 Python processes"


@pytest.mark.parametrize("name", ["batch_size", "prefetch_factor"])
def test_a_need_of_nothing_is_refused(name):
    """With the argument and its limit."""
    with pytest.raises(ValueError, match=f"{name} must be at least 1; got 0"):
        replace(NEED, **{name: 0})
    with pytest.raises(ValueError, match="worker_count must be at least 0; got -1"):
        replace(NEED, worker_count=-1)


def test_need_is_arithmetic():
    """Workers x prefetch x batch, for each rank; a tensor a sample where sizes differ."""
    need = Need(
        batch_size=16,
        worker_count=4,
        prefetch_factor=4,
        rank_count=2,
        sample_bytes=1000,
        fixed_count=3,
        variable_count=1,
    )
    assert need.batch_bytes == 16_000
    assert need.shared_bytes == 2 * 4 * 4 * 16_000
    assert need.buffer_bytes == 2 * (4 * 4 + 2) * 16_000
    assert need.descriptor_count == 64 + 4 * 4 + 18
    assert need.stock_descriptor_count == 64 + 4 * 8 + 16 * (3 + 16)
    assert replace(need, worker_count=0).shared_bytes == 0


# --- The machine ----------------------------------------------------------------------------------


def test_a_comfortable_machine_passes_everything(here):
    """No false alarm; every check says why it matters."""
    checks = [
        check_cores(here, NEED),
        check_memory(here, NEED),
        check_shared_memory(here, NEED),
        check_file_limit(here, NEED),
        check_threads(here, TORCH),
        check_start_method(here, TORCH),
        check_load(here),
        check_cuda(here, TORCH),
    ]
    assert [check.name for check in checks] == MACHINE_NAMES
    assert [(check.status, check.remedy) for check in checks] == [("pass", "")] * 8
    assert all(check.why.endswith(".") for check in checks)


def test_more_loader_workers_than_cores_are_a_warning(here):
    """The job's cores count, not the machine's, and all ranks together."""
    narrow = replace(here, affinity_count=4, core_count=4, cgroup_core_count=6.5)
    status, text = told(check_cores(narrow, NEED))
    assert status == "pass"
    assert "4 of 8 cores for this job; affinity allows 4; cgroup allows 6.5; 4 loader" in text
    status, text = told(check_cores(replace(narrow, local_rank_count=2), NEED))
    assert status == "warn"
    assert "2 training processes here" in text
    assert "8 loader workers on 4 cores" in text
    assert "workers=2" in text


def test_a_cgroup_limit_of_memory_is_held_against_the_buffers(here, tmp_path, monkeypatch):
    """From the files of a cgroup to the line: the job is killed at its limit, not the machine's."""
    need = 10 * NEED.batch_bytes  # 8 under way and 2 in use: 91.9 MiB.
    folder = tmp_path / "sys/fs/cgroup/job"
    folder.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n")
    (folder / "memory.current").write_text("1048576\n")
    monkeypatch.setattr(machine, "_ROOT", tmp_path)

    def with_limit(limit):
        (folder / "memory.max").write_text(f"{limit}\n")
        return told(check_memory(replace(here, memory=machine.memory()), NEED))

    status, text = with_limit(need + MIB - 1)
    assert status == "fail"
    assert "91.9 MiB free of 16.0 GiB; cgroup limit 92.9 MiB, 1.0 MiB of it in use" in text
    assert "need 91.9 MiB (4 loader workers x 2 batches), if a sample is 224 x 224 RGB" in text
    assert "docker run --memory" in text
    assert with_limit(need + MIB)[0] == "warn"
    assert with_limit(2 * need + MIB - 1)[0] == "warn"
    assert with_limit(2 * need + MIB)[0] == "pass"
    assert with_limit("max")[0] == "pass"


def test_a_small_shared_memory_is_a_warning_with_the_ways_out(here):
    """What is needed, how it comes about, what is free, and four ways out."""
    need = replace(NEED, batch_size=16, sample_bytes=786_432, prefetch_factor=4)
    small = replace(here, shared_memory=Space(64 * MIB, 64 * MIB))
    status, text = told(check_shared_memory(small, need))
    assert status == "warn"
    assert "64.0 MiB free of 64.0 MiB; a stock DataLoader needs 192.0 MiB (4 loader" in text
    assert "bus error" in text
    assert "docker run --shm-size=1g" in text
    assert "at most 1 loader worker;" in text
    room = replace(here, shared_memory=Space(GIB, need.shared_bytes))
    assert check_shared_memory(room, need).status == "pass"
    room = replace(here, shared_memory=Space(GIB, need.shared_bytes - 1))
    assert check_shared_memory(room, need).status == "warn"
    assert check_shared_memory(small, replace(need, worker_count=0)).status == "pass"
    assert "no /dev/shm" in told(check_shared_memory(replace(here, shared_memory=None), need))[1]


@pytest.mark.parametrize(
    ("soft", "hard", "status", "said"),
    [
        (138, 4096, "pass", "make_loader needs about 100, a stock DataLoader about 138"),
        (137, 4096, "warn", "ulimit -n 138"),
        (99, 4096, "fail", "ulimit -n 138"),
        (99, 120, "fail", "docker run --ulimit nofile"),
    ],
)
def test_the_file_limit_is_held_against_both_loaders(here, soft, hard, status, said):
    """fail: not even ours can run. The remedy without root is named where there is one."""
    need = replace(NEED, fixed_count=4)  # 10 open + 64 + 4 x 4 + 10, and 10 + 64 + 4 x 8 + 8 x 4.
    check = check_file_limit(replace(here, file_limit=FileLimit(soft, hard, 10)), need)
    assert check.status == status
    assert said in "\n".join(check.lines())


def test_more_threads_than_cores_are_a_warning(here):
    """OpenCV and torch by name, each with its own setting."""
    few = replace(here, core_count=4, local_rank_count=2, omp_num_threads="8")
    status, text = told(check_threads(few, TORCH))
    assert status == "warn"
    assert "OMP_NUM_THREADS '8', OpenCV uses 8, torch uses 8; 4 cores" in text
    assert "OpenCV and torch" in text
    assert "OMP_NUM_THREADS=2" in text
    absent = TorchFacts(problem="ModuleNotFoundError: No module named 'torch'")
    assert check_threads(few, absent).status == "skip"


def test_python_threads_beside_a_fork_are_a_warning(here):
    """By name; other start methods copy no locks."""
    busy = replace(here, thread_count=3, python_thread_names=("logger", "queue"))
    status, text = told(check_start_method(busy, TORCH))
    assert status == "warn"
    assert "3 threads alive in this process, 2 Python threads" in text
    assert "(logger, queue)" in text
    assert "forkserver" in text
    assert check_start_method(replace(busy, start_method="spawn"), TORCH).status == "pass"


@pytest.mark.parametrize(
    ("load", "running", "status"),
    [(8.0, 7, "pass"), (8.1, 0, "warn"), (0.0, 8, "warn")],
)
def test_taken_cores_are_a_warning(here, load, running, status):
    """By the load of the machine, or by this user's own processes on the job's cores."""
    busy = replace(here, load_average=load, python=PythonProcesses(9, running))
    check = check_load(busy)
    assert check.status == status
    assert (
        f"9 other Python processes of yours on the cores of this job, {running} of" in check.figure
    )


@pytest.mark.parametrize(
    ("facts", "driver", "status", "said"),
    [
        ({}, None, "pass", "torch 2.6.0 (CPU only), NVIDIA driver not there"),
        ({}, "570.1", "warn", "built without CUDA"),
        ({"cuda_version": "12.4"}, "570.1", "warn", "docker run --gpus all"),
        ({"cuda_version": "12.4"}, None, "pass", "No CUDA here"),
        (
            {"cuda_version": "12.4", "devices": [("H200", 140 * GIB)]},
            "570.1",
            "pass",
            "torch 2.6.0 (CUDA 12.4), NVIDIA driver 570.1; 1 device: H200 140.0 GiB; pinning works",
        ),
        (
            {"cuda_version": "12.4", "devices": [("H200", GIB)], "cuda_problem": "out of memory"},
            "570.1",
            "fail",
            "H200 1.0 GiB; out of memory",
        ),
        ({"problem": "ModuleNotFoundError: torch"}, None, "skip", "pip install torch"),
    ],
)
def test_cuda_is_wanted_only_where_it_is(here, facts, driver, status, said):
    """A machine without a GPU is in order; a GPU that cannot be used is not."""
    values = {name: getattr(TORCH, name) for name in TORCH.__struct_fields__}
    check = check_cuda(replace(here, nvidia_driver=driver), TorchFacts(**{**values, **facts}))
    assert check.status == status
    assert said in "\n".join(check.lines())


# --- The child that imports torch -----------------------------------------------------------------


def test_the_child_says_what_torch_and_opencv_say():
    """The versions and thread counts that this process sees; torch is not loaded here for it."""
    import cv2
    import torch

    with TorchQuestion() as question:
        facts = question.answer()
    assert facts.problem is None
    assert facts.torch_version == str(torch.__version__)
    assert facts.cv2_version == cv2.__version__
    assert facts.cuda_version == torch.version.cuda
    assert bool(facts.devices) == torch.cuda.is_available()
    assert facts.thread_count >= 1


@pytest.mark.parametrize(
    ("program", "said"),
    [
        # What `import torch` raises where it is not installed.
        (f"import sys; sys.modules['torch'] = None\n{_PROGRAM}", "ModuleNotFoundError: "),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was ended by signal 11"),
        ("raise SystemExit('libcudart is broken')", "left with status 1: libcudart is broken"),
        ("import time; time.sleep(60)", "did not end within"),
        ("print('torch says hello')", "printed what is not an answer"),
        ("", "printed what is not an answer"),
    ],
)
def test_a_child_without_an_answer_is_a_finding(program, said):
    """Torch may be missing, crash, hang, or print; none of these ends the checklist."""
    hangs = "sleep" in program
    with TorchQuestion(0.3 if hangs else 60, program) as question:
        facts = question.answer()
    assert said in facts.problem
    assert ("cv2_version" in program) == (facts.cv2_version is not None)


# --- Mounts ---------------------------------------------------------------------------------------

MOUNTS = """22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:5 / /slow rw,relatime - nfs4 nas:/a rw,vers=4.2,rsize=32768,soft,noac,sync
24 22 0:6 / /good rw,noatime - nfs4 nas:/b rw,vers=4.2,rsize=1048576,hard,actimeo=600,nconnect=8
25 22 0:7 / /plain rw - nfs4 nas:/c rw,vers=4.1,rsize=131072,hard
26 22 0:8 / /zero rw - nfs nas:/d rw,vers=3,acregmin=0,acregmax=0,lookupcache=none
27 22 0:9 / /fuse rw - fuse.sshfs me@nas:/ rw,user_id=0
28 22 0:10 / /ram rw - tmpfs tmpfs rw,size=65536k
29 22 0:11 / /layer rw,strictatime - overlay overlay rw,lowerdir=/a
30 22 0:12 / /smb rw - cifs //nas/e rw,cache=none,rsize=4194304,soft
"""


@pytest.fixture
def mounts(tmp_path, monkeypatch):
    """Finds the mount of a path in `MOUNTS`."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTS)
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    return lambda path: mount_of(Path(path))


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/home/x", "pass", "/home/x lies on ext4, mounted at /"),
        ("/good/x", "warn", "crosses the net"),
        ("/fuse/x", "warn", "passes through a FUSE process"),
        ("/ram/x", "pass", "counts as memory of the job"),
        ("/layer/x", "pass", "gone with the container"),
    ],
)
def test_the_type_of_a_mount_is_judged(mounts, path, status, said):
    """Network and FUSE mounts are slow while cold; each path has its own way out."""
    check = check_mount(Path(path), mounts(path), is_store=True)
    assert check.status == status
    assert said in "\n".join(check.lines())
    assert ("cp -r STORE" in check.remedy) == (status == "warn")
    raw = check_mount(Path(path), mounts(path), is_store=False)
    assert (raw.status, f"packer build {path} OUT" == raw.remedy) == (status, status == "warn")


def test_options_that_multiply_calls_are_named_each_with_its_remedy(mounts):
    """As a server's administrator sets them, one by one."""
    status, text = told(check_mount_options(mounts("/slow/x")))
    assert status == "warn"
    for said in ("noac: no attribute is remembered", "actimeo=60", "sync: every write"):
        assert said in text
    for said in ("rsize=32768: at most 32.0 KiB", "rsize=1048576", "soft: a server", "hard"):
        assert said in text
    assert "rw,relatime,vers=4.2,rsize=32768,soft,noac,sync" in text


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/home", "pass", "rw,relatime"),
        ("/good", "pass", "nconnect=8"),
        ("/plain", "pass", "With nconnect=8 several"),
        ("/zero", "warn", "actimeo=0: no attribute is remembered"),
        ("/zero", "warn", "lookupcache=all"),
        ("/layer", "warn", "remount with noatime"),
        ("/smb", "warn", "nothing is kept in the page cache"),
    ],
)
def test_good_options_are_left_alone(mounts, path, status, said):
    """Only what multiplies calls, or makes reads fail, is a warning."""
    check = check_mount_options(mounts(path))
    assert check.status == status
    assert said in "\n".join(check.lines())
    if path == "/smb":
        assert "soft:" not in check.why  # For CIFS it is the usual, and does not end reads.


# --- Page cache -----------------------------------------------------------------------------------


@pytest.fixture
def on_disk(tmp_path):
    """A folder whose files have a disk behind the page cache."""
    if mount_of(tmp_path).type in ("tmpfs", "ramfs", "overlay"):
        pytest.skip(f"{tmp_path} lies on {mount_of(tmp_path).type}: pages do not leave the cache")
    return tmp_path


def write_synced(path, byte_count):
    with open(path, "wb") as stream:
        stream.write(os.urandom(byte_count))
        stream.flush()
        os.fsync(stream.fileno())
    return path


def test_what_is_cached_is_counted_by_pages(on_disk):
    """Nothing after it was forgotten, all after it was read, a half when a half was forgotten."""
    half = 2 * MIB
    first, second = (write_synced(on_disk / name, 2 * half) for name in "ab")
    with open(first, "rb") as stream:
        descriptor = stream.fileno()
        page_cache.forget(descriptor, 0, 2 * half)
        assert page_cache.resident_bytes(descriptor, 0, 2 * half) == 0
        found = page_cache.residency([first, second], timeout_s=10)
        assert found == page_cache.Residency(4 * half, 2 * half, 4 * half)
        assert len(stream.read()) == 2 * half
        assert page_cache.resident_bytes(descriptor, 0, 2 * half) == 2 * half
        page_cache.forget(descriptor, half + 5000, 3)
        assert page_cache.resident_bytes(descriptor, 0, 2 * half) == half
        assert page_cache.resident_bytes(descriptor, half, 100) == 0
        assert page_cache.resident_bytes(descriptor, 0, 100) == 100


def test_residency_of_files_of_others_is_not_made_up():
    """For them the kernel says that all is there; we say that we do not know."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    code = (
        "import os, sys\n"
        "sys.path[:] = sys.argv[2:]\n"
        "from pathlib import Path\n"
        "from packer.doctor.page_cache import residency\n"
        "os.setuid(65534)\n"
        "print(residency([Path(sys.argv[1])], timeout_s=1))"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "file")
        file.write_bytes(bytes(8192))
        os.chmod(folder, 0o755)
        file.chmod(0o644)
        done = subprocess.run(
            [sys.executable, "-c", code, file, *sys.path],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.stdout, done.stderr) == ("None\n", "")


# --- Stores ---------------------------------------------------------------------------------------


def test_a_good_store_passes(store, here):
    """Its counts and sizes, and times of samples that were really read."""
    facts = gather_store(store)
    shards = read_manifest(store).shards
    assert facts.problem is None
    assert (facts.sample_count, facts.shard_count, facts.seen_count) == (12, 1, 1)
    assert facts.total_bytes == facts.residency.total_bytes == shards[0].bytes
    assert facts.times.random_count == 200
    assert 200 * 1152 < facts.times.random_bytes < 200 * 1300  # 24 x 16 RGB and some numbers.
    assert 0 < facts.times.slowest_s <= facts.times.random_s
    checks = store_checks(facts, here.memory)
    assert [check.name for check in checks] == STORE_NAMES[2:]
    assert (checks[0].status, checks[-1].status) == ("pass", "pass")
    assert "12 samples" in checks[0].figure
    assert f"packer verify {store}" in checks[0].why


def test_samples_are_read_cold(on_disk, raw, many_shards):
    """A record's pages leave the page cache before its first reading, and the store is unmapped."""
    out = on_disk / "out.lmdb"
    build(raw, out, many_shards, worker_count=1)
    assert gather_store(out).times.is_cold
    # All of a small store is mapped with its index, so it has to be unmapped before.
    build(raw, on_disk / "small.lmdb", worker_count=1)
    assert gather_store(on_disk / "small.lmdb").times.is_cold
    # Pages that somebody has mapped cannot leave it; then the figure does not claim to be cold.
    store = StoreReader(out, read_manifest(out))
    for shard in store.shards():
        assert sum(shard.record(0)[::1024]) + sum(shard.record(1)[::1024]) >= 0
        assert sum(shard.record(2)[::1024]) >= 0
    facts = gather_store(out)
    assert not facts.times.is_cold
    assert "would not leave the page cache" in check_single_sample(facts.times).figure


@pytest.mark.parametrize("image", ["raw", "original"])
def test_the_mean_size_of_a_sample_is_that_of_its_decoded_arrays(tmp_path, image):
    """Pictures of all sizes, decoded or not: a batch holds pixels, whatever the store holds."""
    folder = tmp_path / "raw"
    (folder / "a").mkdir(parents=True)
    for number, size in enumerate([(10, 20), (30, 40), (7, 5)]):
        Image.new("RGB", size, (number, 2, 3)).save(folder / "a" / f"{number}.png")
    out = tmp_path / "out.lmdb"
    build(folder, out, Recipe(image=image), worker_count=1)
    store = StoreReader(out, read_manifest(out))
    reader, total, names = RecordReader(store.layout), 0, set()
    for position in range(3):
        for name, value in reader.unpack(store.shard(0).record(position)).items():
            if store.manifest.schema[name].kind not in ("text", "json", "bytes"):
                total += np.asarray(value).nbytes
                names.add(name)
    facts = gather_store(out)
    assert facts.sample_bytes == round(total / 3)
    need = facts.need(NEED)
    assert (need.sample_bytes, need.sample_is_assumed) == (facts.sample_bytes, False)
    assert (need.fixed_count, need.variable_count) == (len(names) - 1, 1)


def test_a_truncated_shard_fails_before_anything_is_read(draw_tree, many_shards, tmp_path, here):
    """Also one that no sample is taken from: the file, both sizes, and what names every problem."""
    tree, out = draw_tree(tmp_path / "raw", [f"{at:02d}.png" for at in range(16)]), tmp_path / "o"
    build(tree, out, many_shards, worker_count=1)
    shards = read_manifest(out).shards
    assert len(shards) == 6
    for info in reversed(shards):
        os.truncate(out / info.file, 4096)
        (check,) = store_checks(gather_store(out), here.memory)
        status, text = told(check)
        assert status == "fail"
        assert f"{out / info.file}: 4096 bytes, expected {info.bytes}" in text
        assert f"packer verify {out}" in text


def test_a_sample_that_cannot_be_decoded_fails(raw, tmp_path):
    """Its shard and position; the times of the others would say nothing."""
    out = tmp_path / "out.lmdb"
    build(raw, out, Recipe(image="original"), worker_count=1)
    shard = StoreReader(out, read_manifest(out)).shard(0)
    places = [(int(shard.offsets[at]), int(shard.lengths[at])) for at in range(12)]
    with open(out / "shard-00000.lmdb", "r+b") as stream:
        for offset, length in places:
            stream.seek(offset + length // 2)
            stream.write(bytes(length // 2))
    facts = gather_store(out)
    assert "shard-00000.lmdb, sample " in facts.problem
    assert "field 'image'" in facts.problem
    assert check_store(facts).status == "fail"


STOP = """
import os, sys
sys.path[:] = {path!r}
from packer.building.build import Step, build
from packer.recipe import Recipe
def stop(step):
    if step is Step.SHARD_FINISHED:
        os._exit(9)
build({raw!r}, {out!r}, Recipe(size=320, fit="stretch", shard_bytes_max=2**20), worker_count=1,
      on_step=stop)
"""


def test_an_unfinished_build_fails_with_the_command_that_goes_on(raw, tmp_path, packer):
    """Named by its target or by its own folder; while the build runs, waiting is the remedy."""
    out = tmp_path / "out.lmdb"
    code = STOP.format(path=sys.path, raw=str(raw), out=str(out))
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 9
    for path in (out, tmp_path / "out.lmdb.building"):
        assert is_store(path)
        status, text = told(check_store(gather_store(path)))
        assert status == "fail"
        assert f"{out}: its build did not finish, 1 of 4 shards finished" in text
        assert f"packer build RAW {out}" in text
    with TargetLock(Workspace.of(out), out):
        status, text = told(check_store(gather_store(out)))
        assert status == "fail"
        assert f"a build is at work (pid {os.getpid()}), 1 of 4 shards" in text
        assert "wait for it" in text
    (tmp_path / "out.lmdb.building/lock").write_text("host elsewhere.example, pid 1\n")
    text = told(check_store(gather_store(out)))[1]
    assert "its build did not finish, or is at work still (host elsewhere.example, pid 1)" in text
    done = packer("doctor", out)
    assert (done.returncode, done.stderr) == (1, "")
    assert "fail  store" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 fail, ")


def test_a_copy_without_its_manifest_is_no_raw_folder(store, tmp_path):
    """It has shards, so it was to be a store."""
    out = shutil.copytree(store, tmp_path / "out.lmdb")
    (out / "manifest.json").unlink()
    assert is_store(out)
    check = check_store(gather_store(out))
    assert (check.status, "no manifest.json in it" in check.figure) == ("fail", True)
    assert f"copy the store again, or build it: packer build RAW {out}" == check.remedy


TIMES = SampleTimes(
    cold_s=0.0999,
    is_cold=True,
    warm_s=0.0002,
    random_count=200,
    random_s=0.04,
    random_bytes=30_000_000,
    slowest_s=0.003,
)


def test_a_slow_sample_is_a_warning():
    """100 ms is the limit: a slow disk is not mended as slow decoding is."""
    assert told(check_single_sample(TIMES))[0] == "pass"
    assert "cold 99.9 ms, warm 200 us; limit 100 ms" in check_single_sample(TIMES).figure
    status, text = told(check_single_sample(replace(TIMES, cold_s=0.1)))
    assert (status, "cp -r STORE" in text) == ("warn", True)
    status, text = told(check_single_sample(replace(TIMES, cold_s=0.2, warm_s=0.1)))
    assert (status, "--image raw" in text) == ("warn", True)


def test_slow_random_access_is_a_warning():
    """Samples and bytes a second, over the time they took."""
    check = check_random_samples(TIMES)
    figure = "200 random samples: 5,000/s, 750 MB/s, slowest 3.0 ms"
    assert (check.status, check.figure) == ("pass", figure)
    assert check_random_samples(replace(TIMES, random_s=2.0)).status == "pass"
    assert check_random_samples(replace(TIMES, random_s=2.01)).status == "warn"


def test_a_store_larger_than_memory_is_a_warning(store, here):
    """Unless it is cached already; what nobody may know is no reason to warn."""
    facts = gather_store(store)
    half = with_cached(facts, 0.5)
    whole = with_cached(facts, 1.0)
    little = replace(here.memory, available_bytes=facts.total_bytes - 1)
    enough = replace(here.memory, available_bytes=facts.total_bytes)
    assert check_page_cache(half, little).status == "warn"
    assert check_page_cache(half, enough).status == "pass"
    assert check_page_cache(half, enough).figure.startswith("50% cached; ")
    assert check_page_cache(whole, little).status == "pass"
    unknown = replace(facts, residency=None)
    assert check_page_cache(unknown, enough).status == "skip"
    assert check_page_cache(unknown, little).status == "warn"


def with_cached(facts, share):
    """Facts of a store of which a share is cached."""
    total = facts.total_bytes
    return replace(facts, residency=page_cache.Residency(total, int(total * share), total))


# --- Raw folders ----------------------------------------------------------------------------------


def test_a_raw_folder_is_counted_and_some_files_are_read(raw, draw_tree, tmp_path, mounts):
    """Pictures only; three calls a file, and one for each folder where nothing is remembered."""
    tree = draw_tree(tmp_path / "raw", [f"{name}/{at}.png" for name in "ab" for at in range(40)])
    (tree / "notes.txt").write_text("no picture")
    (tree / ".cache").mkdir()
    (tree / ".cache/1.png").write_bytes(b"hidden")
    (tree / "again").symlink_to(tree)
    local = mounts("/home")
    facts = gather_raw(tree, local)
    assert (facts.file_count, facts.is_whole, facts.read_count) == (80, True, 50)
    assert facts.mean_bytes == pytest.approx(
        np.mean([p.stat().st_size for p in tree.glob("a/*")]), 0.1
    )
    assert facts.depth == len(tree.parts) - 1 + 1
    facts = replace(facts, depth=2.0, stat_s=0.0001, read_s=0.001)
    check = check_raw_files(facts, local)
    assert check.status == "pass"
    assert "80 files; 50 read: stat 100 us, open and read 1.0 ms" in check.figure
    assert "an epoch: 240 metadata calls, 80.0 ms in one process" in check.figure
    check = check_raw_files(facts, mounts("/slow"))
    assert (check.status, check.remedy) == ("warn", f"packer build {tree} OUT")
    assert "an epoch: 400 metadata calls" in check.figure
    assert check_raw_files(replace(facts, read_s=0.006), local).status == "warn"
    part = check_raw_files(replace(facts, is_whole=False), local).figure
    assert part.startswith("at least 80 files; ")


def test_files_that_cannot_be_read_are_named(tmp_path, mounts):
    """The first of them with its reason; an empty folder has nothing to build from."""
    (tmp_path / "raw").mkdir()
    check = check_raw_files(gather_raw(tmp_path / "raw", mounts("/")), mounts("/"))
    assert (check.status, "no pictures found" in check.figure) == ("fail", True)
    (tmp_path / "raw/1.png").symlink_to("nowhere.png")
    facts = gather_raw(tmp_path / "raw", mounts("/"))
    status, text = told(check_raw_files(facts, mounts("/")))
    assert status == "warn"
    assert f"{tmp_path / 'raw/1.png'}: No such file or directory" in text


# --- The command ----------------------------------------------------------------------------------


def test_the_command_sees_the_limits_of_its_job(store, packer):
    """One core, four ranks and 80 descriptors: what the scheduler gave, as JSON, and status 1."""

    def limit():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))

    done = packer(
        *("doctor", store, "--json", "--workers", "3", "--batch-size", "10"),
        preexec_fn=limit,
        env={**os.environ, "LOCAL_WORLD_SIZE": "4"},
    )
    assert (done.returncode, done.stderr) == (1, "")
    report = json.loads(done.stdout)
    assert [check["name"] for check in report["checks"]] == [*MACHINE_NAMES, *STORE_NAMES]
    checks = {check["name"]: check for check in report["checks"]}
    assert (report["is_good"], report["path"], report["batch_size"]) == (False, str(store), 10)
    assert checks["cores"]["status"] == "warn"
    assert f"1 of {os.cpu_count()} core" in checks["cores"]["figure"]
    assert "12 loader workers on 1 core" in checks["cores"]["why"]
    assert checks["file_limit"]["status"] == "fail"
    assert checks["file_limit"]["figure"].startswith("80 (may be raised to 80)")
    assert (report["machine"]["core_count"], report["machine"]["local_rank_count"]) == (1, 4)
    assert checks["store"]["status"] == "pass"
    # 24 x 16 RGB; label 8 bytes, original_size 8, transform 24.
    assert "4 ranks x 3 loader workers x 2 batches of " in checks["shared_memory"]["figure"]
    assert "224" not in checks["memory"]["figure"]


def test_a_container_with_64_mb_of_shared_memory_is_warned_of(tmp_path, packer_command, draw_tree):
    """Before a loader worker dies of a bare bus error: need, room and remedy, on real mounts."""
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no mount namespace can be made here: {probe.stderr.strip()}")
    raw = draw_tree(tmp_path / "raw", [f"{at:02d}.png" for at in range(16)])
    out = tmp_path / "out.lmdb"
    build(raw, out, Recipe(size=512, fit="stretch"), worker_count=1)
    settings = ("--batch-size", "16", "--workers", "4", "--prefetch", "4")
    script = 'mount -t tmpfs -o size=64m none /dev/shm && exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *packer_command, "doctor", str(out), *settings],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (line,) = [line for line in done.stdout.splitlines() if " shared memory " in line]
    assert line.startswith("warn  shared memory   64.0 MiB free of 64.0 MiB; a stock DataLoader ")
    assert "needs 192.0 MiB (4 loader workers x 4 batches of 12.0 MiB)" in line
    assert "Do: docker run --shm-size=1g" in done.stdout
    assert "for batches of 16, 4 loader workers, 4 batches ahead" in done.stdout


def test_without_a_path_the_machine_alone_is_looked_at(tmp_path):
    """From Python in one call, with this machine's own numbers; nothing at a path is a failure."""
    report = doctor()
    assert [check.name for check in report.checks] == MACHINE_NAMES
    assert report.path is None
    assert report.worker_count == machine.loader_worker_count()
    assert report.machine.cpu_count == os.cpu_count()
    assert report.is_good == all(check.status != "fail" for check in report.checks)
    missing = replace(report, checks=[*report.checks, Check("path", "fail", "none", "Why.", "do")])
    assert not missing.is_good
    assert missing.summary().splitlines()[-4:-1] == [
        "fail  path            none",
        "      Why.",
        "      Do: do",
    ]
