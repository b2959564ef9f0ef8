"""Disks, file servers and limits that fail under a build: faults that are really injected.

Each gives one clear line and exit status 1, or a build that does without; nothing is lost; and once
the fault is gone, the same command ends with the bytes of an undisturbed build.
"""

from __future__ import annotations

import io
import os
import re
import resource
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from packer.workspace.folder import Workspace
from readers.store.errors import ImageError
from readers.store.pictures.decode import decode_image
from readers.store.pictures.image_header import read_header

READS = "read,pread64,readv,preadv,preadv2"
WRITES = "write,pwrite64,writev,pwritev"
SYNCS = "fsync,fdatasync,msync"
RENAMES = "rename,renameat,renameat2"


# --- A disk that becomes full ---------------------------------------------------------------------


@pytest.mark.parametrize("place", ["target", "scratch"])
def test_a_disk_that_becomes_full_is_told(
    builder, whole, mounting, check_one_line, contents_of, tmp_path, place
):
    """Somebody else's file takes the last block; once there is room, the build goes on."""
    small = builder.out.parent if place == "target" else builder.scratch
    options = () if place == "target" else ("--scratch", builder.scratch)
    once = f"[ -e {tmp_path}/filled ] && exit"
    fill = f"{once}; touch {tmp_path}/filled; head -c 99M /dev/zero > {small}/film.mkv 2>&- || true"
    script = f"""
        mount -t tmpfs -o size=6m none {small}
        "$@" > {tmp_path}/said 2> {tmp_path}/errors || echo $? > {tmp_path}/status
        ls {builder.scratch} > {tmp_path}/left
        rm {small}/film.mkv
        "$@"
        ls -A {builder.scratch} {builder.out.parent}
        cp -r {builder.out} {tmp_path}/copy.lmdb
    """
    done = builder.run(
        *options,
        "--workers",
        "1",
        step="SHARD_FINISHED",
        command=fill,
        before=mounting(script + "exit"),
    )
    first = type(done)(
        int((tmp_path / "status").read_text()),
        (tmp_path / "said").read_text(),
        (tmp_path / "errors").read_text(),
        tmp_path,
    )
    check_one_line(
        first,
        f"{builder.out}: ",
        "shard-0000",
        "No space left on device",
        "takes about 3,",
        "the same command: finished shards are kept",
    )
    assert (done.status, done.errors) == (0, "")
    assert "1 shard kept" in done.said
    assert (tmp_path / "left").read_text().split() == ["film.mkv"] * (place == "scratch")
    assert contents_of(tmp_path / "copy.lmdb") == whole
    listed = done.said[done.said.index(f"{builder.scratch}:") :].split()
    assert listed == [f"{builder.scratch}:", f"{builder.out.parent}:", "out.lmdb"]


# --- System calls that fail -----------------------------------------------------------------------


FAULTS = {
    "lock": ("flock", "{work}/lock", "error=ENOLCK", "this file system grants no lock"),
    "lock written": (WRITES, "{work}/lock", "error=EIO", "lock: Input/output error"),
    "plan": (WRITES, "{work}/plan.json.partial", "error=ENOSPC", "No space left on device"),
    "shard written": (
        WRITES,
        "{work}/scratch/shard-00001.lmdb",
        "error=EIO:when=3+",
        "shard-00001",
    ),
    "shard synced": (SYNCS, "{work}/scratch/shard-00001.lmdb", "error=EIO", "Input/output error"),
    "shard read": (READS, "{work}/scratch/shard-00002.lmdb", "error=EIO:when=2+", "shard 2: Input"),
    "shard placed": (
        RENAMES,
        "{work}/scratch/shard-00001.lmdb {work}/store/shard-00001.lmdb.partial",
        "error=EROFS",
        "Read-only file system",
    ),
    "report": (SYNCS, "{work}/reports", "error=EDQUOT", "Disk quota exceeded"),
    "manifest": (SYNCS, "{work}/store/manifest.json.partial", "error=EIO", "Input/output error"),
    "publish": (RENAMES, "{work}/store", "error=ESTALE", "Stale file handle"),
    "clean-up": ("unlink,unlinkat", "{work}/task-plan", "error=EIO:when=2+", "Input/output error"),
}


@pytest.mark.parametrize(("calls", "path", "how", "word"), FAULTS.values(), ids=FAULTS)
def test_a_disk_that_fails_is_told(
    builder, whole, strace, check_one_line, is_whole, calls, path, how, word
):
    """Wherever a build writes: the line names the store, the file and what the system said."""
    work = Workspace.of(builder.out).folder
    places = [Path(place) for place in path.format(work=work).split()]
    done = builder.run("--workers", "2", before=strace(calls, places, how))
    check_one_line(done, str(builder.out), word)
    builder.check_gone()
    assert is_whole(builder.out) == ("unlink" in calls)
    builder.finish(whole)


def test_a_raw_file_that_cannot_be_read_is_named_and_tried_again(
    builder, whole, strace, contents_of
):
    """It is a reject; the next run reads it again, and makes no other shard anew."""
    broken = strace(READS, [builder.raw / "bee" / "0.png"], "error=EIO")
    done = builder.run(before=broken)
    assert done.status == 1
    assert "  bee/0.png: cannot be read: Input/output error\n" in done.errors
    assert "1 of 12 raw items rejected" in done.errors
    assert "are tried again by the same command" in done.errors
    assert "3 shards kept" in builder.finish(whole).said


def test_a_raw_tree_that_goes_away_and_comes_back_costs_nothing(own_builder, whole):
    """As an unmounted disk does: every file is named, and the finished shards are kept."""
    raw = own_builder.raw
    away = f"[ -e {raw} ] && mv {raw} {raw}.away"
    done = own_builder.run("--workers", "1", step="SHARD_FINISHED", command=away)
    assert done.status == 1
    alike = re.search(r"([0-9]+) x cannot be read: No such file or directory: ", done.errors)
    assert alike is not None
    assert int(alike[1]) >= 6
    os.rename(f"{raw}.away", raw)
    done = own_builder.finish(whole)
    assert "shard kept" in done.said or "shards kept" in done.said


# --- Limits and mounts ----------------------------------------------------------------------------


def files_limited(count: int):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def test_a_small_limit_on_open_files_is_enough(builder, whole):
    """64, with a worker for each shard."""
    done = builder.run("--workers", "4", preexec_fn=files_limited(64))
    assert (done.status, done.errors) == (0, "")
    builder.check_whole(whole)


def test_workers_that_cannot_be_started_are_done_without(builder, whole):
    """The limit on open files lets one build worker be started, and a second not."""
    done = builder.run("--workers", "4", preexec_fn=files_limited(14))
    assert done.status == 0, done.errors
    expected = "build workers could be started (Too many open files); the build goes on with them"
    assert expected in done.errors
    assert done.errors.count("\n") == 1
    builder.check_whole(whole)


def test_a_picture_that_memory_does_not_suffice_for_is_not_called_damaged():
    """The reason is memory; who has more of it may try again."""
    stream = io.BytesIO()
    Image.new("P", (6000, 6000)).save(stream, "PNG")  # As RGB it takes 108 MB.
    data = stream.getvalue()
    header = read_header(data, pixels_max=2**28)
    assert decode_image(data, "rgb", header).shape == (6000, 6000, 3)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + 64 * 2**20
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            decode_image(data, "rgb", header)
        except ImageError as error:
            is_told = str(error) == "not enough memory to decode this PNG file"
            status = 0 if is_told and isinstance(error.__cause__, MemoryError) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_shared_memory_is_not_needed(builder, whole, mounting):
    """A container's /dev/shm may hold 1 MB."""
    done = builder.run(before=mounting("mount -t tmpfs -o size=1m none /dev/shm"))
    assert (done.status, done.errors) == (0, "")
    builder.check_whole(whole)


def read_only(path: Path) -> str:
    return f"mount --bind {path} {path}; mount -o remount,bind,ro {path}"


def test_raw_data_on_a_read_only_mount_are_packed(builder, whole, mounting):
    """Nothing is written there: no lock, no cache."""
    done = builder.run(before=mounting(read_only(builder.raw)))
    assert (done.status, done.errors) == (0, "")
    builder.check_whole(whole)


@pytest.mark.parametrize("place", ["target", "scratch"])
def test_a_read_only_mount_is_told(builder, whole, mounting, check_one_line, place):
    """Before any work, with the path."""
    path = builder.out.parent if place == "target" else builder.scratch
    script = mounting(read_only(path))
    done = builder.run("--scratch", builder.scratch, before=script)
    check_one_line(done, str(path), "Read-only file system")
    builder.finish(whole, "--scratch", builder.scratch)


# --- Others ---------------------------------------------------------------------------------------


def test_a_second_build_is_told_host_and_process_of_the_first(builder, whole, tmp_path):
    """It ends with one line, and the first goes on undisturbed."""
    second = [sys.executable, str(Path(__file__).with_name("at_step.py")), "", "1", ""]
    second += ["build", str(builder.raw), str(builder.out), "-q"]
    command = f"{shlex.join(second)} 2> {tmp_path}/errors || echo $? $DRIVER > {tmp_path}/status"
    done = builder.run(step="PLANNED", command=command)
    assert (done.status, done.errors) == (0, "")
    builder.check_whole(whole)
    status, driver = (tmp_path / "status").read_text().split()
    assert status == "1"
    assert (tmp_path / "errors").read_text() == (
        f"Error: {builder.out}: another build is running (host {socket.gethostname()}, pid "
        f"{driver}). Wait for it to finish, or build to another path.\n"
    )


@pytest.mark.parametrize("date", ["2100-01-01", "1960-01-01"])
def test_times_that_the_clock_does_not_explain_change_nothing(
    own_builder, second_builder, contents_of, date
):
    """Raw files, and files of an unfinished build, from the future or from before 1970."""
    subprocess.run(["find", own_builder.raw, "-exec", "touch", "-d", date, "{}", "+"], check=True)
    assert second_builder.run().status == 0
    expected = contents_of(second_builder.out)
    work = Workspace.of(own_builder.out).folder
    command = f"find {work} -exec touch -d {date} {{}} +; kill -KILL $DRIVER"
    own_builder.run("--workers", "1", step="SHARD_FINISHED", turn=2, command=command)
    own_builder.check_gone()
    done = own_builder.finish(expected)
    assert "2 shards kept" in done.said
