"""Cases from public bug reports: broken inputs, and scenarios of building and reading.

Each test is named after its case. What must hold is in the case's own folder, in case.json, and is
checked as it stands there: nothing is rounded, left out or forgiven.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import json
import os
import pickle
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader

from packer.cli import cli
from readers import LMDBDataset
from readers.machine import core_count
from readers.store.errors import (
    ShardError,
    StoreIncompleteError,
    StoreNotFoundError,
)
from readers.store.layout import UPDATE_CACHE_NAME
from readers.store.manifest import read_manifest
from tests.command import run_packer

# The cases say how many loader workers there are, whatever the cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

WAIT_S = 60.0

PACKER = [
    sys.executable,
    "-c",
    f"import sys; sys.path[:] = {sys.path!r}; from packer.cli import main; main()",
]


@dataclass
class Case:
    """One case: its folder, and what it expects."""

    folder: Path
    expect: dict[str, Any]

    @property
    def raw(self) -> Path:
        return self.folder / "raw"


@pytest.fixture
def case(request: pytest.FixtureRequest, cases: Path) -> Case:
    """The case that a test is about, by its parameter or its name: test_s_lr_01_... is S-LR-01."""
    if hasattr(request, "param"):
        name = request.param
    else:
        name = "-".join(request.node.originalname.split("_")[1:4]).upper()
    folder = cases / name
    return Case(folder, json.loads((folder / "case.json").read_bytes())["expect"])


def packer(*arguments: str | os.PathLike[str]) -> Any:
    """Run `packer` in this process; the workers of a build are processes of their own."""
    done = run_packer(*quietly(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def packer_apart(*arguments: str | os.PathLike[str], **options: Any) -> Any:
    """Run `packer` in a process of its own."""
    options = {"capture_output": True, "text": True, "timeout": WAIT_S, "check": False, **options}
    return subprocess.run([*PACKER, *map(os.fspath, quietly(arguments))], **options)


def quietly(arguments: Sequence[str | os.PathLike[str]]) -> Sequence[str | os.PathLike[str]]:
    """The same, with errors alone on stderr where a build says what it decided."""
    return (*arguments, "--quiet") if arguments[0] == "build" else arguments


def built(raw: Path, out: Path, *options: str) -> Path:
    """Build a store that is only to be read."""
    done = packer("build", raw, out, *options)
    assert done.exit_code == 0, done.stderr
    return out


def contents(path: Path) -> dict[str, bytes]:
    return {
        entry.name: entry.read_bytes()
        for entry in path.iterdir()
        if entry.name != UPDATE_CACHE_NAME
    }


def check_nothing_opens(path: Path) -> None:
    with pytest.raises((StoreNotFoundError, StoreIncompleteError)):
        LMDBDataset(path)


# --- Images and folders ---------------------------------------------------------------------------

CASE_IDS = [f"S-IMG-0{n}" for n in range(1, 9)] + [f"S-DIR-0{n}" for n in range(1, 6)]


def source_of(case: Case) -> tuple[Path, Path, list[str | Path]]:
    """RAW, the folder that keys are relative to, and further arguments."""
    if case.expect["kind"] == "manifest":
        root = case.folder / case.expect["root"]
        return case.folder / case.expect["manifest"], root, ["--root", root]
    return case.raw, case.raw, []


def key_of(case: Case, path: str) -> str:
    return os.path.relpath(case.folder / path, source_of(case)[1])


def check_sample(case: Case, dataset: LMDBDataset, index: int, expected: dict[str, Any]) -> None:
    """Hold one stored sample against what the case says of it."""
    sample = dataset[index]
    pixels = sample["image"]
    assert sample["key"] == key_of(case, expected["path"])
    assert dataset.index_of(sample["key"]) == index
    known = {"path", "ok", "shape", "dtype", "sha256", "probes", "cls", "native"}
    assert set(expected) <= known, "the case expects something that is not checked here"
    assert expected["ok"] is True
    if "shape" in expected:
        assert list(pixels.shape) == expected["shape"]
    assert pixels.dtype.name == expected.get("dtype", "uint8")
    if "sha256" in expected:
        assert hashlib.sha256(pixels.tobytes()).hexdigest() == expected["sha256"]
    for x, y, colour, tolerance in expected.get("probes", []):
        difference = np.abs(pixels[y, x].astype(int) - colour)
        assert difference.max() <= tolerance, (expected["path"], x, y)
    if "cls" in expected:
        assert dataset.classes[sample["label"]] == expected["cls"]


@pytest.mark.parametrize("case", CASE_IDS, indirect=True)
def test_pictures_and_folders(case, tmp_path):
    """Every sample, class, order, reject and ignored file of the case, as its case.json says."""
    expect = case.expect
    raw, _, options = source_of(case)
    rejects = [key_of(case, item["path"]) for item in expect.get("reject", [])]
    out = tmp_path / "out.lmdb"
    if rejects:
        # As it stands: refused, every problem named, nothing that opens is left.
        done = packer("build", raw, out, *options)
        assert done.exit_code == 1
        assert done.stdout == ""
        for key in rejects:
            assert f"  {key}: " in done.stderr
        assert f"{len(rejects)} of {len(rejects) + len(expect['samples'])} raw items" in done.stderr
        check_nothing_opens(out)
        options = [*options, "--max-rejects", str(len(rejects))]
    done = packer("build", raw, out, *options, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    report = json.loads(done.stdout)

    samples, ignored = expect["samples"], expect.get("ignored", [])
    assert expect.get("length", len(samples)) == len(samples)
    counts = ["found_count", "sample_count", "reject_count", "ignored_count"]
    total = len(samples) + len(rejects) + len(ignored)
    assert [report[name] for name in counts] == [total, len(samples), len(rejects), len(ignored)]
    assert sum(report["ignored"].values()) == len(ignored)
    listed = [json.loads(line) for line in (out / "rejects.jsonl").read_text().splitlines()]
    assert sorted(line["key"] for line in listed) == sorted(rejects)
    assert all(line["reason"] for line in listed)

    dataset = LMDBDataset(out, image_as="numpy")
    assert len(dataset) == len(samples)
    if "classes" in expect:
        assert dataset.classes == expect["classes"]
    if expect["kind"] != "manifest":  # Which is in the order of its list.
        samples = sorted(samples, key=lambda sample: os.fsencode(sample["path"]))
    for index, expected in enumerate(samples):
        check_sample(case, dataset, index, expected)
    assert packer("verify", out).exit_code == 0


def reasons(raw: Path, out: Path, *options: str) -> dict[str, str]:
    """Why each reject of a build was one, by key."""
    built(raw, out, "--max-rejects", "100%", *options)
    lines = (out / "rejects.jsonl").read_text().splitlines()
    return {json.loads(line)["key"]: json.loads(line)["reason"] for line in lines}


def test_s_img_02_cut_file_is_never_stored(case, tmp_path):
    """Nor with its own bytes kept: only decoding shows that they are not all there."""
    for policy in ("raw", "original"):
        out = tmp_path / policy
        found = reasons(case.raw, out, "--image", policy)
        assert list(found) == ["a/cut.jpg"]
        assert len(LMDBDataset(out)) == 1


def test_s_img_04_an_empty_file_is_called_empty(case, tmp_path):
    """So that it can be told from a picture under another name."""
    found = reasons(case.raw, tmp_path / "out.lmdb")
    assert list(found) == ["x/zero.jpg"]
    assert "empty" in found["x/zero.jpg"]


def test_s_img_05_native_depth_is_kept_where_it_is_asked_for(case, tmp_path):
    """--mode unchanged keeps uint16 values exactly, and gray pictures gray."""
    out = built(case.raw, tmp_path / "out.lmdb", "--mode", "unchanged")
    dataset = LMDBDataset(out, image_as="numpy")
    deep = dataset[dataset.index_of("scan/deep.png")]["image"]
    (expected,) = [s["native"] for s in case.expect["samples"] if "native" in s]
    assert (deep.dtype.name, deep.shape) == ("uint16", (8, 24, 1))
    assert [deep[4, x, 0] for x in (1, 5, 9, 13, 17, 21)] == expected
    assert dataset[dataset.index_of("scan/grey8.png")]["image"].shape == (8, 24, 1)
    assert dataset[dataset.index_of("scan/colour.png")]["image"].shape == (8, 24, 3)


def test_s_img_05_gray_has_three_equal_channels_by_default(case, tmp_path):
    """Of 8 and of 16 bits."""
    dataset = LMDBDataset(built(case.raw, tmp_path / "out.lmdb"), image_as="numpy")
    for name in ("deep", "grey8"):
        pixels = dataset[dataset.index_of(f"scan/{name}.png")]["image"]
        assert (pixels == pixels[:, :, :1]).all()


def test_s_img_06_both_encodings_give_one_picture_without_a_warning(case, tmp_path):
    """Palette with transparency and RGBA: equal arrays; a process of its own is silent."""
    done = packer_apart("build", case.raw, tmp_path / "out.lmdb")
    assert (done.returncode, done.stderr) == (0, "")
    dataset = LMDBDataset(tmp_path / "out.lmdb", image_as="numpy")
    first, second = (dataset[index]["image"] for index in range(2))
    assert np.array_equal(first, second)
    assert [230, 60, 200] in first.reshape(-1, 3).tolist()


def test_s_img_07_a_claim_is_rejected_from_its_header(case, tmp_path):
    """Name, claimed size and limit are told; no memory is spent; the limit is an option."""
    running = subprocess.Popen(
        [*PACKER, "build", "--quiet", str(case.raw), str(tmp_path / "1.lmdb")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stderr is not None
    said = running.stderr.read().decode()
    # Of the process and of all that it waited for: its build workers.
    _, status, usage = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    running.communicate()
    assert running.returncode == 1
    (line,) = [line for line in said.splitlines() if "claim.png" in line]
    assert "60000x60000" in line
    assert str(2**28) in line
    assert usage.ru_maxrss * 1024 < 2**30

    found = reasons(case.raw, tmp_path / "2.lmdb", "--max-pixels", "4096")
    assert list(found) == ["big/claim.png"]
    assert "4096" in found["big/claim.png"]
    done = packer("build", case.raw, tmp_path / "3.lmdb", "--max-pixels", "4095")
    assert done.exit_code == 1
    assert "big/fine.png: 64x64" in done.stderr


def test_s_img_08_further_frames_are_counted(case, tmp_path):
    """The summary names the file and how many of its pictures are not stored."""
    done = packer("build", case.raw, tmp_path / "out.lmdb")
    (line,) = [line for line in done.stdout.splitlines() if "more than one picture" in line]
    assert "cam/drone.jpg (1)" in line


def test_s_dir_03_odd_names_come_back_byte_for_byte(case, tmp_path):
    """From the key, in another process that prints it, and from the command line."""
    done = packer_apart("build", case.raw, tmp_path / "out.lmdb")
    assert (done.returncode, done.stderr) == (0, "")
    dataset = LMDBDataset(tmp_path / "out.lmdb")
    keys = [dataset[index]["key"] for index in range(len(dataset))]
    files = {os.path.join(b"m", name) for name in os.listdir(os.fsencode(case.raw / "m"))}
    assert {os.fsencode(key) for key in keys} == files
    odd = b"m/caf\xe9.png"
    done = packer_apart("get", tmp_path / "out.lmdb", os.fsdecode(odd))
    assert os.fsencode(json.loads(done.stdout)["key"]) == odd


def test_s_dir_05_a_listed_file_that_is_not_there_is_named_with_its_line(case, tmp_path):
    """The list is the truth about what should be there."""
    folder = shutil.copytree(case.folder, tmp_path / "case")
    (folder / "imgs" / "12.png").unlink()
    done = packer("build", folder / "list.csv", tmp_path / "o", "--root", folder / "imgs")
    assert done.exit_code == 1
    assert "list.csv, line 4: 12.png not found" in done.stderr
    check_nothing_opens(tmp_path / "o")


# --- Writing --------------------------------------------------------------------------------------


def number_of(key: str) -> int:
    return int(Path(key).stem)


def check_numbered(pixels: Any, number: int) -> None:
    """The pictures of the scenarios show their numbers: red and green are its two digits."""
    pixels = np.asarray(pixels)
    if pixels.shape[0] == 3:
        pixels = pixels.transpose(1, 2, 0)
    assert pixels.dtype == np.uint8
    assert (pixels[:, :, 0] == number % 256).all()
    assert (pixels[:, :, 1] == number // 256).all()


def check_all_numbered(dataset: LMDBDataset, length: int) -> None:
    assert len(dataset) == length
    seen = []
    for index in range(length):
        sample = dataset[index]
        check_numbered(sample["image"], number_of(sample["key"]))
        seen.append(number_of(sample["key"]))
    assert seen == list(range(length))


def check_all_as_drawn(dataset: LMDBDataset, raw: Path, length: int) -> None:
    """Every picture of a folder is there once, with the pixels of its file."""
    keys = []
    for index in range(len(dataset)):
        sample = dataset[index]
        with Image.open(raw / sample["key"]) as image:
            assert np.array_equal(sample["image"].numpy().transpose(1, 2, 0), np.asarray(image))
        keys.append(sample["key"])
    assert len(keys) == length
    assert keys == [f"all/{name}" for name in sorted(os.listdir(raw / "all"))]


def test_s_lw_01_the_map_grows_by_itself(case, tmp_path):
    """All 120 samples, each once and right, far past the size that the map begins with."""
    out = built(case.raw, tmp_path / "out.lmdb", "--workers", "2")
    check_all_as_drawn(LMDBDataset(out), case.raw, case.expect["length"])
    dataset = LMDBDataset(out, image_as="numpy")
    for expected in case.expect["samples"]:
        check_sample(case, dataset, dataset.index_of(key_of(case, expected["path"])), expected)


def test_s_lw_02_a_killed_build_is_refused_and_finished_later(case, tmp_path):
    """Killed with its whole group, three times, each further on; then the command ends well."""
    settings = ["--size", "160", "--fit", "stretch", "--shard-size", "1MiB", "--workers", "2"]
    whole = built(case.raw, tmp_path / "whole.lmdb", *settings)
    shard_count = len(read_manifest(whole).shards)
    assert shard_count > 25
    out = tmp_path / "out.lmdb"
    reports = tmp_path / "out.lmdb.building" / "reports"

    def finished() -> int:
        return sum(name.isdigit() for name in os.listdir(reports)) if reports.exists() else 0

    arguments = [*PACKER, "build", "--quiet", str(case.raw), str(out), *settings]
    before = 0
    for enough in (1, 8, 16):
        running = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        deadline = time.monotonic() + WAIT_S
        while finished() < enough:
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.001)
        os.killpg(running.pid, signal.SIGKILL)
        assert running.wait(WAIT_S) == -signal.SIGKILL
        running.communicate()
        check_nothing_opens(out)
        assert before < finished() < shard_count
        before = finished()
    done = packer_apart("build", case.raw, out, *settings, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["kept_shard_count"] == before
    assert contents(out) == contents(whole)
    assert len(LMDBDataset(out)) == case.expect["length"]
    assert sorted(os.listdir(tmp_path)) == ["out.lmdb", "whole.lmdb"]


def check_full_disk_is_told(done: Any, out: Path, *words: str) -> None:
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"Error: {out}: ")
    for word in words:
        assert word in done.stderr
    check_nothing_opens(out)


def test_s_lw_03_a_limit_on_file_sizes_is_told(case, tmp_path):
    """One line: destination, need, and the limit. No signal; the input is untouched."""
    before = {path: path.stat().st_mtime_ns for path in case.raw.rglob("*")}

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096 * 1024, 4096 * 1024))

    out = tmp_path / "out.lmdb"
    done = packer_apart("build", case.raw, out, preexec_fn=limit)
    check_full_disk_is_told(done, out, "File too large", "ulimit -f", "takes about 16,0")
    assert {path: path.stat().st_mtime_ns for path in case.raw.rglob("*")} == before


def test_s_lw_03_a_full_disk_is_told(case, tmp_path):
    """One line: destination, need, and what is free. The input is untouched."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", small]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    before = {path: path.stat().st_mtime_ns for path in case.raw.rglob("*")}
    try:
        done = packer_apart("build", case.raw, small / "out.lmdb")
        check_full_disk_is_told(done, small / "out.lmdb", "will take about 16,8", "4,19", "free")
        # Where the estimate cannot help: the disk that shards are written on first.
        out = tmp_path / "out.lmdb"
        done = packer_apart("build", case.raw, out, "--scratch", small)
        check_full_disk_is_told(done, out, str(small), "No space left on device", "takes about")
        assert os.listdir(small) == []
    finally:
        subprocess.run(["umount", small], check=True)
    assert {path: path.stat().st_mtime_ns for path in case.raw.rglob("*")} == before


def packer_forked(go: int, log: Path, *arguments: str | os.PathLike[str]) -> int:
    """Fork a process that runs `packer` as soon as `go` can be read. Its process id."""
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.read(go, 1)
        cli.main([os.fspath(a) for a in arguments], prog_name="packer")
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 71
    finally:
        sys.stderr.flush()
        os._exit(status)


def test_s_lw_04_of_two_builds_at_once_one_wins(case, tmp_path):
    """Ten times: one whole store; the other build ends with a plain word, never a traceback."""
    whole = contents(built(case.raw, tmp_path / "whole.lmdb", "--workers", "1"))
    check_all_numbered(LMDBDataset(tmp_path / "whole.lmdb"), case.expect["length"])
    for turn in range(10):
        out = tmp_path / f"{turn}.lmdb"
        logs = [tmp_path / f"{turn}-{number}.log" for number in range(2)]
        ready, go = os.pipe()
        arguments = ("build", case.raw, out, "--workers", "1", "--quiet")
        children = [packer_forked(ready, log, *arguments) for log in logs]
        os.write(go, b"!!")
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        os.close(ready)
        os.close(go)
        assert sorted(statuses) == [0, 1]
        said = logs[statuses.index(1)].read_text()
        assert said.startswith(f"Error: {out}: another build ")
        assert said.count("\n") == 1
        assert contents(out) == whole
    assert not list(tmp_path.glob("*.building"))


def test_s_lw_05_worker_count_and_listing_order_change_nothing(case, tmp_path):
    """1, 2 and 4 workers, and a copy of the folder made in reverse order: the same bytes."""
    copy_of = tmp_path / "copy" / "all"
    copy_of.mkdir(parents=True)
    for name in sorted(os.listdir(case.raw / "all"), reverse=True):
        shutil.copy(case.raw / "all" / name, copy_of / name)
    many_shards = ("--size", "320", "--fit", "stretch", "--shard-size", "1MiB")
    digests = set()
    stores = []
    for number, (raw, workers, settings) in enumerate(
        [
            (case.raw, "1", ()),
            (case.raw, "2", ()),
            (case.raw, "4", ()),
            (tmp_path / "copy", "2", ()),
            (case.raw, "1", many_shards),
            (case.raw, "4", many_shards),
        ]
    ):
        out = tmp_path / f"{number}.lmdb"
        done = packer("build", raw, out, "--workers", workers, *settings, "--json")
        assert done.exit_code == 0
        digests.add(json.loads(done.stdout)["content_sha256"])
        stores.append(contents(out))
    assert all(store == stores[0] for store in stores[:4])
    assert stores[4] == stores[5]
    assert len(stores[4]) == 10 + 2
    assert len(digests) == 2
    dataset = LMDBDataset(tmp_path / "3.lmdb", image_as="numpy")
    keys = [dataset[index]["key"] for index in range(len(dataset))]
    assert keys == [f"all/{name}" for name in case.expect["order"]]
    by_key = {key_of(case, sample["path"]): sample for sample in case.expect["samples"]}
    for index, key in enumerate(keys):
        check_sample(case, dataset, index, by_key[key])


# --- Reading --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stores(cases, tmp_path_factory):
    """A function: the store of a case's raw/all, built once. Not to be changed."""
    folder = tmp_path_factory.mktemp("stores")

    def store(name: str) -> Path:
        out = folder / name
        return out if out.exists() else built(cases / name / "raw", out, "--workers", "1")

    return store


def check_batches(loader: DataLoader, length: int, repeated: int = 1) -> None:
    """A pass returns all numbered pictures, each as often as it should."""
    seen = []
    for batch in loader:
        for key, pixels in zip(batch["key"], batch["image"], strict=True):
            check_numbered(pixels, number_of(key))
            seen.append(number_of(key))
    assert sorted(seen) == sorted(list(range(length)) * repeated)


def loader_of(dataset: Any, workers: int, context: str | None = "fork") -> DataLoader:
    """The stock DataLoader, with a limit on every wait."""
    return DataLoader(
        dataset,
        batch_size=8,
        num_workers=workers,
        multiprocessing_context=context if workers else None,
        timeout=WAIT_S if workers else 0,
    )


def test_s_lr_01_the_parent_reads_before_its_workers(case, stores):
    """Two passes of 4 forked workers, with reads of the parent before, between and after."""
    out, length = stores("S-LR-01"), case.expect["length"]
    dataset = LMDBDataset(out, fields=["image", "key"])
    assert len(dataset) == length
    check_numbered(dataset[0]["image"], 0)
    loader = loader_of(dataset, 4)
    check_batches(loader, length)
    check_numbered(dataset[1]["image"], 1)
    check_batches(loader, length)
    dataset.close()
    dataset = LMDBDataset(out, fields=["image", "key"])
    check_numbered(dataset[2]["image"], 2)
    check_batches(loader_of(dataset, 0), length)
    check_batches(loader_of(dataset, 4), length)


def test_s_lr_02_a_read_dataset_travels(case, stores):
    """By pickle, small; by deepcopy; to spawned workers. The original goes on."""
    dataset = LMDBDataset(stores("S-LR-02"), fields=["image", "key"])
    check_numbered(dataset[0]["image"], 0)
    data = pickle.dumps(dataset)
    assert len(data) < 65_536
    check_numbered(pickle.loads(data)[5]["image"], 5)
    check_numbered(copy.deepcopy(dataset)[6]["image"], 6)
    check_batches(loader_of(dataset, 2, "spawn"), case.expect["length"])
    check_numbered(dataset[7]["image"], 7)


def mapped_files(folder: Path) -> list[str]:
    """Files of a folder that this process has mapped, one entry for each map."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = [line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6]
    return [path for path in paths if path.startswith(f"{folder}/")]


def test_s_lr_03_two_views_of_one_store(case, stores, tmp_path):
    """One by a symbolic link. They share a handle, which lives as long as its last user."""
    gc.collect()
    out, length = stores("S-LR-03"), case.expect["length"]
    (tmp_path / "link").symlink_to(out)
    a = LMDBDataset(out, fields=["image", "key"])
    b = LMDBDataset(tmp_path / "link", fields=["image", "key"])
    check_numbered(a[0]["image"], 0)
    check_numbered(b[1]["image"], 1)
    assert len(mapped_files(out)) == 1
    del b
    gc.collect()
    check_numbered(a[2]["image"], 2)
    b = LMDBDataset(tmp_path / "link", fields=["image", "key"])
    check_batches(loader_of(ConcatDataset([a, b]), 2), length, repeated=2)
    check_numbered(b[3]["image"], 3)
    check_numbered(a[4]["image"], 4)
    assert len(mapped_files(out)) == 1
    del a, b
    gc.collect()
    assert mapped_files(out) == []


def listing(path: Path) -> dict[str, tuple[int, int, int, int]]:
    """Names, sizes, times and permissions of a folder and its files."""
    found = {entry.name: entry.stat() for entry in path.iterdir()} | {".": path.stat()}
    return {n: (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_mode) for n, s in found.items()}


def test_s_lr_04_more_readers_than_a_reader_table_has(case, stores):
    """140 processes hold the store and read at the same time; no lock file appears or is needed."""
    out, length = stores("S-LR-04"), case.expect["length"]
    before = listing(out)
    count = 140
    have_read, may_go_on = os.pipe(), os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            status = 70
            try:
                dataset = LMDBDataset(out)
                check_numbered(dataset[number % length]["image"], number % length)
                os.write(have_read[1], b"!")
                os.read(may_go_on[0], 1)
                check_numbered(dataset[number % length]["image"], number % length)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    # All of them have the store open before any goes on.
    ready = 0
    while ready < count:
        ready += len(os.read(have_read[0], count))
    os.write(may_go_on[1], b"!" * count)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    for descriptor in (*have_read, *may_go_on):
        os.close(descriptor)
    assert statuses == [0] * count
    assert listing(out) == before
    assert not [name for name in before if "lock" in name]


def test_s_lr_05_a_store_that_cannot_be_written(case, stores):
    """Another user reads it without a right to write; names, sizes and times stay as they are."""
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        warm, out = stores("S-LR-05"), folder / "out.lmdb"
        shutil.copytree(warm, out)
        for path in (*out.iterdir(), out):
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222 | 0o444)
        out.chmod(0o555)
        before = listing(out)
        assert not [name for name in before if "lock" in name]
        child = os.fork()
        if child == 0:
            status = 70
            try:
                # What Python imports on first use may lie where the other user cannot read.
                check_all_numbered(LMDBDataset(warm), case.expect["length"])
                if os.getuid() == 0:
                    os.setgroups([])
                    os.setgid(65534)
                    os.setuid(65534)
                    assert not os.access(out, os.W_OK)
                check_all_numbered(LMDBDataset(out), case.expect["length"])
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert listing(out) == before
        out.chmod(0o755)


def test_s_lr_06_samples_outlive_their_store(case, stores):
    """Kept samples stay as they were, may be written to, and the store is not altered."""
    out, length = stores("S-LR-06"), case.expect["length"]
    before = contents(out)
    dataset = LMDBDataset(out)
    kept = [dataset[index] for index in range(20)]
    for index in range(20, length):
        check_numbered(dataset[index]["image"], index)
    dataset.close()
    del dataset
    gc.collect()
    assert mapped_files(out) == []
    for index, sample in enumerate(kept):
        check_numbered(sample["image"], index)
    kept[3]["image"] += 1
    assert (kept[3]["image"][0] == 4).all()
    for index in (2, 4):
        check_numbered(kept[index]["image"], index)
    assert contents(out) == before
    # Warnings are errors in these tests; torch warns of memory that may not be written.
    pixels = LMDBDataset(out, image_as="numpy")[3]["image"]
    assert pixels.flags.writeable
    torch.from_numpy(pixels).add_(1)
    check_numbered(LMDBDataset(out)[3]["image"], 3)


def test_s_lr_07_a_shard_cut_short_is_an_error(case, stores, tmp_path):
    """It names the file and both sizes, in the main process and in workers. Never a signal."""
    out = Path(shutil.copytree(stores("S-LR-07"), tmp_path / "out.lmdb"))
    largest = max(out.iterdir(), key=lambda path: path.stat().st_size)
    size = largest.stat().st_size
    os.truncate(largest, size // 2)
    said = rf"{largest}: {size // 2} bytes, expected {size}\."
    with pytest.raises(ShardError, match=said):
        LMDBDataset(out)
    unchecked = LMDBDataset(out, checks_files=False)
    with pytest.raises(ShardError, match=said):
        unchecked[0]
    for workers in (0, 2):
        # torch hands a worker's error on by its text.
        with pytest.raises((ShardError, RuntimeError), match=said):
            list(loader_of(unchecked, workers))
    child = os.fork()
    if child == 0:
        status = 70
        try:
            list(loader_of(unchecked, 0))
        except ShardError:
            status = 3
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert "cut short" in packer("verify", out).stdout


ONE_PASS = f"""
import sys
sys.path[:] = {sys.path!r}
from torch.utils.data import DataLoader, RandomSampler
from readers import LMDBDataset

def main(out, count):
    dataset = LMDBDataset(out, fields=["image", "label"])
    sampler = RandomSampler(dataset, num_samples=count)
    loader = DataLoader(
        dataset, count // 8, sampler=sampler, num_workers=2, multiprocessing_context="fork"
    )
    print(sum(len(batch["image"]) for batch in loader))

main(sys.argv[1], int(sys.argv[2]))
"""


def calls_of_a_pass(out: Path, count: int, folder: Path) -> tuple[int, int, int]:
    """(openat, mmap, those of the store's files) calls of a shuffled pass with 2 workers."""
    # A log for each process (-ff), where no call is split by one of another process.
    logs = folder / f"strace-{count}"
    strace = ["strace", "-ff", "-y", "-qq", "-o", logs, "-e", "trace=openat,mmap"]
    program = [sys.executable, "-c", ONE_PASS, out, str(count)]
    done = subprocess.run(
        [*strace, *program], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    files = list(folder.glob(f"{logs.name}.*"))
    if done.returncode and not files:
        pytest.skip(f"strace cannot be used here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{count}\n"
    lines = [line for file in files for line in file.read_text().splitlines()]
    opens = sum(line.startswith("openat(") for line in lines)
    maps = sum(line.startswith("mmap(") for line in lines)
    return opens, maps, sum(str(out) in line for line in lines)


def test_s_lr_08_opens_and_maps_do_not_grow_with_the_samples(case, stores, tmp_path):
    """A pass over 800 samples makes as many as one over 400, in as many batches."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    out = stores("S-LR-08")
    assert case.expect["length"] == 800
    half = calls_of_a_pass(out, 400, tmp_path)
    whole = calls_of_a_pass(out, 800, tmp_path)
    # What of them is the store's own is exactly the same; the rest is torch's and Python's.
    assert whole[2] == half[2]
    assert abs(whole[0] - half[0]) <= 8
    assert abs(whole[1] - half[1]) <= 40


def test_s_lr_08_making_a_dataset_touches_no_record(stores):
    """Not even a shard is opened for len(); shuffled reading asks for no read-ahead."""
    gc.collect()
    out = stores("S-LR-08")
    dataset = LMDBDataset(out)
    assert len(dataset) == 800
    assert mapped_files(out) == []
    check_numbered(dataset[799]["image"], 799 % 256 + 256 * (799 // 256))
    lines = Path("/proc/self/smaps").read_text().splitlines()
    (start,) = [at for at, line in enumerate(lines) if f"{out}/" in line]
    flags = next(line for line in lines[start:] if line.startswith("VmFlags:")).split()
    assert "rr" in flags  # MADV_RANDOM: proc(5).


# --- Memory, command line, cluster ----------------------------------------------------------------


def test_s_mem_02_descriptors_do_not_grow_with_the_files(case, tmp_path):
    """(a): a build of 1500 pictures under a limit of 128 open files."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    done = packer_apart("build", case.raw, tmp_path / "out.lmdb", preexec_fn=limit)
    assert (done.returncode, done.stderr) == (0, "")
    check_all_numbered(LMDBDataset(tmp_path / "out.lmdb"), case.expect["length"])


@pytest.mark.parametrize("name", ["empty", "textonly", "does_not_exist"])
def test_s_cli_01_nothing_to_build_from(case, tmp_path, name):
    """One line that names the path and the picture types looked for; no output is left."""
    assert name in case.expect["fails"]
    done = packer("build", case.folder / name, tmp_path / "out.lmdb")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert str(case.folder / name) in done.stderr
    assert all(kind in done.stderr for kind in (".jpg", ".png", ".webp"))
    assert os.listdir(tmp_path) == []


def test_s_cli_01_an_empty_class_keeps_its_number(case, tmp_path):
    """One sample, both classes in the list, and a word on the empty one."""
    done = packer("build", case.folder / "holes", tmp_path / "out.lmdb")
    assert (done.exit_code, done.stderr) == (0, "")
    (line,) = [line for line in done.stdout.splitlines() if "kept in the list of classes" in line]
    assert "'b'" in line
    dataset = LMDBDataset(tmp_path / "out.lmdb", image_as="numpy")
    assert dataset.classes == case.expect["classes"]
    assert len(dataset) == 1
    (expected,) = case.expect["samples"]
    sample = dataset[0]
    assert sample["key"] == "a/1.png"
    assert dataset.classes[sample["label"]] == expected["cls"]
    assert list(sample["image"].shape) == expected["shape"]
    assert hashlib.sha256(sample["image"].tobytes()).hexdigest() == expected["sha256"]


def test_s_cli_02_corrected_labels_replace_the_old_ones(case, tmp_path):
    """Refused without --overwrite; with it swapped, and a reader of the old store goes on.

    Size and time of the corrected file are those of the old one, as the case has it.
    """
    raw, out = tmp_path / "raw", tmp_path / "out.lmdb"
    shutil.copytree(case.folder / "v1", raw)
    label = Path("labels/1.txt")
    corrected = (case.folder / "v2" / label).read_bytes()
    assert corrected != (raw / label).read_bytes()
    assert len(corrected) == (raw / label).stat().st_size
    built(raw, out)
    old, first = contents(out), LMDBDataset(out)
    boxes = [sample["expect_boxes"] for sample in case.expect["samples"]]
    assert first[0]["boxes"].tolist() == pytest.approx(np.array(boxes[0]), abs=0.01)
    status = (raw / label).stat()
    (raw / label).write_bytes(corrected)
    os.utime(raw / label, ns=(status.st_atime_ns, status.st_mtime_ns))
    done = packer("build", raw, out)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {out}: a store is there already.")
    assert contents(out) == old
    built(raw, out, "--overwrite")
    built(raw, tmp_path / "fresh.lmdb")
    assert contents(out) == contents(tmp_path / "fresh.lmdb")
    for dataset, expected in ((first, boxes[0]), (LMDBDataset(out), boxes[1])):
        assert dataset[0]["boxes"].tolist() == pytest.approx(np.array(expected), abs=0.01)
    assert not list(tmp_path.glob("*.building"))


def test_s_clu_01_no_more_workers_than_the_job_may_use(case, tmp_path):
    """By affinity and by ranks of the job; an explicit number is obeyed; the summary says it."""
    first = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", first, *PACKER, "build", str(case.raw), str(tmp_path / "1.lmdb")]
    if shutil.which("taskset") is None:
        pytest.skip("taskset is not installed")
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert "with 1 build worker" in done.stdout
    for ranks in ("4", "1000"):
        environment = {**os.environ, "LOCAL_WORLD_SIZE": ranks}
        out = tmp_path / f"ranks {ranks}"
        done = packer_apart("build", case.raw, out, "--json", env=environment)
        assert json.loads(done.stdout)["worker_count"] == max(1, core_count() // int(ranks))
    done = packer("build", case.raw, tmp_path / "3.lmdb", "--workers", "3")
    assert "with 3 build workers" in done.stdout
    for path in tmp_path.iterdir():
        check_all_numbered(LMDBDataset(path), case.expect["length"])


def test_s_clu_02_a_store_does_not_swell_when_it_is_copied(case, stores, tmp_path):
    """No holes, no absolute path: it takes what it holds, and is read wherever it lies."""
    out, length = stores("S-CLU-02"), case.expect["length"]
    pixel_bytes = case.expect["pixel_bytes"]
    for path in out.iterdir():
        found = path.stat()
        block = os.statvfs(path).f_frsize
        # Equal but for the rest of the last block, which a small file does not fill.
        assert found.st_size <= found.st_blocks * 512 <= -(-found.st_size // block) * block
    apparent = sum(path.stat().st_size for path in out.iterdir())
    assert pixel_bytes <= apparent <= pixel_bytes * 1.1 + 2**20

    original = tmp_path / "original"
    shutil.copytree(out, original)
    subprocess.run(["cp", "-r", original, tmp_path / "cp"], check=True)
    (tmp_path / "tar").mkdir()
    subprocess.run(f"tar -C {original} -c . | tar -C {tmp_path / 'tar'} -x", shell=True, check=True)
    copies = ["cp", "tar"]
    if shutil.which("rsync") is not None:
        subprocess.run(["rsync", "-a", f"{original}/", tmp_path / "rsync"], check=True)
        copies.append("rsync")
    shutil.rmtree(original)
    for name in copies:
        assert sum(path.stat().st_size for path in (tmp_path / name).iterdir()) == apparent
        check_all_as_drawn(LMDBDataset(tmp_path / name), case.raw, length)
        assert packer("verify", tmp_path / name).exit_code == 0
