"""A raw tree becomes a store: what it holds, that its bytes never differ, and what is refused."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from packer.building import begin
from packer.building.build import Step, build
from packer.errors import (
    BuildError,
    DiskError,
    RejectedItemError,
    SourceError,
    TargetExistsError,
    TooManyRejectsError,
)
from packer.recipe import Recipe
from packer.sources import SourceOptions
from packer.workspace.space import disk_named
from readers.machine import core_count
from readers.store.errors import ShardError, StoreIncompleteError, StoreNotFoundError
from readers.store.manifest import read_manifest
from readers.store.reader import open_store
from readers.store.record import RecordReader


def samples_of(path: Path) -> list[dict]:
    """Every sample of a store, all fields decoded."""
    found = open_store(path)
    reader = RecordReader(found.layout)
    return [
        reader.unpack(shard.record(position))
        for shard in found.shards()
        for position in range(len(shard.lengths))
    ]


def upright(path: Path, mode: str = "RGB") -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert(mode))


# --- What a store holds ---------------------------------------------------------------------------


def test_class_folders_are_stored_pixel_for_pixel(raw, store, class_names):
    """Order, keys, labels, sizes and pixels are those of the tree; Pillow decodes the same."""
    samples = samples_of(store)
    assert [sample["key"] for sample in samples] == class_names
    assert [sample["label"] for sample in samples] == [0] * 4 + [1] * 4 + [2] * 4
    for sample in samples:
        assert np.array_equal(sample["image"], upright(raw / sample["key"]))
        assert sample["original_size"].tolist() == [16, 24]
        assert sample["transform"].tolist() == [[1, 0, 0], [0, 1, 0]]
    manifest = read_manifest(store)
    assert manifest.classes == ("ant", "bee", "cat")
    assert manifest.statistics["class_counts"] == [4, 4, 4]
    assert sorted(p.name for p in store.iterdir()) == [
        "manifest.json",
        "rejects.jsonl",
        "shard-00000.lmdb",
        "update-cache",
    ]


def test_splits_are_stored_with_their_counts(tmp_path, draw_tree):
    """Labels are positions in the classes of all splits together."""
    names = ["train/a/1.png", "train/b/1.png", "train/b/2.png", "val/b/1.png"]
    report = build(draw_tree(tmp_path / "raw", names), tmp_path / "out.lmdb", worker_count=1)
    samples = samples_of(tmp_path / "out.lmdb")
    assert [(s["key"], s["split"], s["label"]) for s in samples] == [
        ("train/a/1.png", 0, 0),
        ("train/b/1.png", 0, 1),
        ("train/b/2.png", 0, 1),
        ("val/b/1.png", 1, 1),
    ]
    assert report.splits == read_manifest(tmp_path / "out.lmdb").splits == {"train": 3, "val": 1}
    assert report.classes == {"a": 1, "b": 3}


def test_a_flat_folder_is_stored_without_labels(tmp_path, draw_tree):
    """Names are ordered by their bytes, whatever their case or extension."""
    tree = draw_tree(tmp_path / "raw", ["b.png", "B.png", "a10.bmp", "a2.png"])
    report = build(tree, tmp_path / "out.lmdb", worker_count=1)
    samples = samples_of(tmp_path / "out.lmdb")
    assert [sample["key"] for sample in samples] == ["B.png", "a10.bmp", "a2.png", "b.png"]
    assert "label" not in samples[0]
    assert (report.format, report.classes, report.splits) == ("flat", {}, {})


def test_a_size_is_applied_with_its_transform(shards, raw):
    """The stored pixels are the resized ones, and the transform maps the file's grid onto them."""
    samples = samples_of(shards)
    assert len(samples) == 12
    for sample in samples:
        pixels = upright(raw / sample["key"])
        expected = cv2.resize(pixels, (320, 320), interpolation=cv2.INTER_LINEAR)
        assert np.array_equal(sample["image"], expected)
        assert sample["original_size"].tolist() == [16, 24]
        np.testing.assert_allclose(sample["transform"], [[320 / 24, 0, 0], [0, 20, 0]], rtol=1e-6)
    assert [info.sample_count for info in read_manifest(shards).shards] == [3, 3, 3, 3]


def test_original_keeps_the_files_bytes(tmp_path, raw):
    """With image="original" the file itself is in the store, and decodes to the same pixels."""
    build(raw, tmp_path / "out.lmdb", Recipe(image="original"), worker_count=1)
    data = (tmp_path / "out.lmdb" / "shard-00000.lmdb").read_bytes()
    for sample in samples_of(tmp_path / "out.lmdb"):
        assert (raw / sample["key"]).read_bytes() in data
        assert np.array_equal(sample["image"], upright(raw / sample["key"]))


@pytest.mark.parametrize(("mode", "channel_count"), [("gray", 1), ("rgba", 4), ("unchanged", 3)])
def test_a_mode_decides_the_channels(tmp_path, draw_tree, mode, channel_count):
    """Gray, colour with alpha, and the file's own channels."""
    tree = draw_tree(tmp_path / "raw", ["1.png"])
    build(tree, tmp_path / "out.lmdb", Recipe(mode=mode), worker_count=1)
    (sample,) = samples_of(tmp_path / "out.lmdb")
    assert sample["image"].shape == (16, 24, channel_count)
    pixels = upright(tree / "1.png")
    if mode == "gray":
        difference = sample["image"][:, :, 0] - upright(tree / "1.png", "L").astype(int)
        assert np.abs(difference).max() <= 1
    else:
        assert np.array_equal(sample["image"][:, :, :3], pixels)
    if mode == "rgba":
        assert (sample["image"][:, :, 3] == 255).all()


def test_the_report_accounts_for_everything_found(tmp_path, draw_tree):
    """found = stored + rejected + ignored, in the report and in the manifest."""
    tree = draw_tree(tmp_path / "raw", ["a/1.png", "a/2.png", "b/1.png"])
    (tree / "b" / "bad.png").write_bytes(b"no picture")
    (tree / "notes.txt").write_text("notes")
    (tree / "a" / ".hidden.png").write_bytes(b"")
    report = build(tree, tmp_path / "out.lmdb", rejects_max=1, worker_count=1)
    assert (report.found_count, report.sample_count) == (6, 3)
    assert (report.reject_count, report.ignored_count) == (1, 2)
    assert sum(report.ignored.values()) == 2
    source = read_manifest(tmp_path / "out.lmdb").source
    assert (source.found_count, source.reject_count, source.ignored) == (6, 1, report.ignored)
    assert report.bytes == (tmp_path / "out.lmdb" / "shard-00000.lmdb").stat().st_size
    assert "found 6 = 3 stored + 1 rejected + 2 ignored" in report.summary()


# --- Same input, same bytes -----------------------------------------------------------------------


def test_bytes_do_not_depend_on_workers_place_or_order(
    tmp_path, raw, shards, many_shards, contents, draw_tree, class_names
):
    """Two workers, another place, and a copy of the tree made in reverse order: equal files."""
    copy = draw_tree(tmp_path / "copy", class_names[::-1])
    for number, (tree, worker_count) in enumerate([(raw, 2), (copy, 1)]):
        out = tmp_path / f"elsewhere {number}" / "store"
        build(tree, out, many_shards, worker_count=worker_count)
        assert contents(out) == contents(shards)


def test_nothing_in_a_store_names_a_place(store, shards, contents, tmp_path):
    """No file holds a path outside the raw folder, so that a store may be moved and published."""
    base = str(tmp_path.parent).encode()  # Where raw data and stores of this run lie.
    for path in (store, shards):
        assert not [name for name, data in contents(path).items() if base in data]


def test_scratch_on_another_file_system_gives_the_same_bytes(
    tmp_path, raw, shards, many_shards, contents
):
    """Shards are copied from there, and nothing is left behind."""
    scratch = Path("/dev/shm") / f"packer-test-{os.getpid()}"
    try:
        scratch.mkdir()
    except OSError as error:
        pytest.skip(f"/dev/shm cannot be written: {error}")
    try:
        if scratch.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("/dev/shm is the file system of the temporary folder")
        build(raw, tmp_path / "out.lmdb", many_shards, scratch=scratch, worker_count=2)
        assert list(scratch.iterdir()) == []
    finally:
        shutil.rmtree(scratch)
    assert contents(tmp_path / "out.lmdb") == contents(shards)
    assert list(tmp_path.iterdir()) == [tmp_path / "out.lmdb"]


def test_a_scratch_folder_must_be_there(tmp_path, raw):
    """It is not made: a mistyped mount point would fill the wrong disk."""
    with pytest.raises(BuildError, match="no such folder"):
        build(raw, tmp_path / "out.lmdb", scratch=tmp_path / "none")


# --- Where a store may go -------------------------------------------------------------------------


def test_missing_parent_folders_are_made(tmp_path, raw, store, contents):
    """As `mkdir -p` does; hours of work must not end at a missing folder."""
    out = tmp_path / "not" / "there" / "yet" / "out.lmdb"
    build(raw, out, worker_count=1)
    assert contents(out) == contents(store)


def test_an_empty_folder_is_filled(tmp_path, raw, store, contents):
    """As `mktemp -d` or a job's own folder leaves it."""
    (tmp_path / "out").mkdir()
    build(raw, tmp_path / "out", worker_count=1)
    assert contents(tmp_path / "out") == contents(store)


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_store_is_never_touched(tmp_path, raw, overwrite):
    """A file, a folder of the user's, one with another program's manifest.json."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.json").write_text('{"format": "web app"}')
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for name in ("file", "folder", "web"):
        with pytest.raises(TargetExistsError, match="is not a store, so it is left alone"):
            build(raw, tmp_path / name, overwrite=overwrite)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_swapped_arguments_are_asked_about(tmp_path, raw, store):
    """A target that is not a store, and raw data that is one or is not there."""
    for given, found in ((store, "is a store"), (tmp_path / "new.lmdb", "is not there")):
        with pytest.raises(TargetExistsError, match=f"{found}: are RAW and OUT swapped"):
            build(given, raw)
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(TargetExistsError) as caught:
        build(raw, tmp_path / "notes")
    assert "are RAW and OUT swapped" not in str(caught.value)


@pytest.mark.parametrize("out", ["/proc/out.lmdb", "file/out.lmdb"])
def test_nothing_is_said_to_be_kept_where_no_shard_was_made(tmp_path, raw, out):
    """There is no folder to make them in, so the same command would begin anew."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DiskError, match=r"run the same command\.$"):
        build(raw, tmp_path / out)


def test_who_may_not_write_at_the_target_is_told_where(tmp_path):
    """With the folder that is meant, and of shards only where one is finished."""
    error = PermissionError(errno.EACCES, "Permission denied", "/data/out.lmdb.building")
    texts = []
    for has_finished in (True, False):
        with (
            pytest.raises(DiskError) as caught,
            disk_named(Path("/data/out.lmdb"), lambda has=has_finished: has),
        ):
            raise error
        texts.append(str(caught.value))
    assert texts[1].endswith("have that allowed for /data; then run the same command.")
    assert texts[0] == texts[1][:-1] + ": finished shards are kept."


def test_overwrite_does_not_remove_what_lies_beside_a_store(tmp_path, raw, store):
    """A folder of a store in which somebody keeps results is not thrown away with it."""
    shutil.copytree(store, tmp_path / "out.lmdb")
    (tmp_path / "out.lmdb" / "weights.pt").write_text("weeks of work")
    with pytest.raises(TargetExistsError, match=r"'weights\.pt', which --overwrite would remove"):
        build(raw, tmp_path / "out.lmdb", overwrite=True)
    assert (tmp_path / "out.lmdb" / "weights.pt").exists()


def test_a_store_is_not_replaced_unasked(tmp_path, raw, store, contents):
    """The second run of a command says that the store is there."""
    shutil.copytree(store, tmp_path / "out.lmdb")
    with pytest.raises(TargetExistsError, match=r"a store is there already.*--overwrite"):
        build(raw, tmp_path / "out.lmdb")
    assert contents(tmp_path / "out.lmdb") == contents(store)
    assert list(tmp_path.iterdir()) == [tmp_path / "out.lmdb"]


def test_a_store_is_not_built_among_its_raw_data(tmp_path, draw_tree):
    """The next build would count its files; also through a symbolic link."""
    tree = draw_tree(tmp_path / "raw", ["1.png"])
    (tmp_path / "link").symlink_to(tree)
    for out in (tree / "out.lmdb", tree / "deep" / "out.lmdb", tmp_path / "link" / "out.lmdb"):
        with pytest.raises(BuildError, match="inside the raw folder"):
            build(tree, out)
    assert [path.name for path in tree.iterdir()] == ["1.png"]


def test_nothing_is_made_when_there_is_nothing_to_pack(tmp_path):
    """An empty folder and a missing one leave no trace beside the target."""
    (tmp_path / "raw").mkdir()
    for name in ("raw", "missing"):
        with pytest.raises(SourceError):
            build(tmp_path / name, tmp_path / "a" / "out.lmdb")
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_overwrite_swaps_under_the_eyes_of_a_reader(tmp_path, raw, store, contents, draw_tree):
    """Who has the old store open goes on reading it; of the old files nothing is left."""
    out = tmp_path / "out.lmdb"
    tree = draw_tree(tmp_path / "old", ["z/1.png", "z/2.png"])
    build(tree, out, worker_count=1)
    old = open_store(out)
    shard, reader = old.shard(0), RecordReader(old.layout)
    build(raw, out, overwrite=True, worker_count=1)
    assert contents(out) == contents(store)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "out.lmdb"]
    for position, name in enumerate(["z/1.png", "z/2.png"]):
        sample = reader.unpack(shard.record(position))
        assert sample["key"] == name
        assert np.array_equal(sample["image"], upright(tree / name))
    assert len(samples_of(out)) == 12


def test_a_reader_of_a_replaced_store_never_mixes_the_two(
    tmp_path, raw, many_shards, shards, draw_tree, class_names
):
    """A shard that it had not opened before the swap is another's now, and is refused."""
    out = tmp_path / "out.lmdb"
    shutil.copytree(shards, out)
    old = open_store(out)
    old.shard(0)
    tree = draw_tree(tmp_path / "new", [f"x{name}" for name in class_names])
    build(tree, out, many_shards, overwrite=True, worker_count=1)
    with pytest.raises(ShardError, match="it is another shard, or of another build"):
        old.shard(1)


# --- Rejects --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory, draw_tree, class_names):
    """The tree of `raw` with one empty and one cut file more."""
    tree = draw_tree(tmp_path_factory.mktemp("spoilt") / "raw", class_names)
    (tree / "ant" / "empty.png").write_bytes(b"")
    whole = (tree / "bee" / "0.png").read_bytes()
    (tree / "bee" / "cut.png").write_bytes(whole[: len(whole) // 2])
    return tree


def test_rejects_are_named_counted_and_listed(tmp_path, spoilt, class_names):
    """The store has the rest; its list says which file was left out and why."""
    report = build(spoilt, tmp_path / "out.lmdb", rejects_max=2, worker_count=1)
    assert (report.found_count, report.sample_count, report.reject_count) == (14, 12, 2)
    lines = (tmp_path / "out.lmdb" / "rejects.jsonl").read_text().splitlines()
    rejects = [json.loads(line) for line in lines]
    assert [(r["key"], r["path"]) for r in rejects] == [
        (n, n) for n in ("ant/empty.png", "bee/cut.png")
    ]
    assert report.rejects == [f"{r['path']}: {r['reason']}" for r in rejects]
    assert f"  {report.rejects[1]}" in report.summary().splitlines()
    assert "empty" in rejects[0]["reason"]
    assert rejects[1]["reason"] not in ("", rejects[0]["reason"])
    assert [sample["key"] for sample in samples_of(tmp_path / "out.lmdb")] == class_names


@pytest.mark.parametrize("limit", [0, 1, "0%", "14%"])
def test_too_many_rejects_publish_nothing(tmp_path, spoilt, limit):
    """Every reject is named at once; accepting them afterwards keeps the work."""
    out = tmp_path / "out.lmdb"
    with pytest.raises(TooManyRejectsError) as caught:
        build(spoilt, out, rejects_max=limit, worker_count=1)
    text = str(caught.value)
    assert "ant/empty.png: " in text
    assert "bee/cut.png: " in text
    assert "2 of 14 raw items rejected" in text
    with pytest.raises(StoreIncompleteError):
        read_manifest(out)
    report = build(spoilt, out, rejects_max="15%", worker_count=1)
    assert (report.kept_shard_count, report.reject_count) == (1, 2)


def test_fail_stops_at_the_first_reject(tmp_path, spoilt):
    """The item is named, and nothing can be opened."""
    with pytest.raises(RejectedItemError, match=r"^ant/empty\.png: .*empty"):
        build(spoilt, tmp_path / "out.lmdb", on_error="fail", rejects_max="100%")
    with pytest.raises(StoreIncompleteError):
        read_manifest(tmp_path / "out.lmdb")


def test_fail_stops_before_any_work_where_the_source_rejects(tmp_path, draw_tree):
    """A link that leads nowhere is known before the first pixel is read."""
    tree = draw_tree(tmp_path / "raw", ["1.png"])
    (tree / "2.png").symlink_to("nowhere")
    with pytest.raises(RejectedItemError, match=r"^2\.png: the link leads nowhere"):
        build(tree, tmp_path / "out.lmdb", on_error="fail")
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_a_store_of_rejects_alone_is_not_published(tmp_path):
    """Whatever the bound: there is nothing to read in it."""
    (tmp_path / "raw").mkdir()
    for name in ("1.png", "2.png"):
        (tmp_path / "raw" / name).write_bytes(b"")
    with pytest.raises(
        TooManyRejectsError, match=r"all 2 raw items were rejected.*\n.*1\.png.*\n.*2\.png"
    ):
        build(tmp_path / "raw", tmp_path / "out.lmdb", rejects_max="100%", worker_count=1)
    with pytest.raises(StoreIncompleteError):
        read_manifest(tmp_path / "out.lmdb")


def test_a_forgotten_root_can_be_added_to_the_same_command(tmp_path, draw_tree):
    """A build that found nothing to store is nothing to go on with, and in nobody's way."""
    draw_tree(tmp_path / "imgs", ["1.png", "2.png"])
    (tmp_path / "list.csv").write_text("path,label\n1.png,a\n2.png,b\n")
    with pytest.raises(TooManyRejectsError, match=r"list\.csv, line 2: 1\.png not found"):
        build(tmp_path / "list.csv", tmp_path / "out.lmdb")
    options = SourceOptions(root=tmp_path / "imgs")
    build(tmp_path / "list.csv", tmp_path / "out.lmdb", source=options, worker_count=1)
    samples = samples_of(tmp_path / "out.lmdb")
    assert [(sample["key"], sample["label"]) for sample in samples] == [("1.png", 0), ("2.png", 1)]


def test_a_shard_of_rejects_alone_is_left_out(tmp_path, raw, many_shards, draw_tree, class_names):
    """The others keep their names and order, and the store is whole."""
    tree = draw_tree(tmp_path / "raw", class_names)
    for name in class_names[3:6]:
        (tree / name).write_bytes(b"spoilt")
    report = build(tree, tmp_path / "out.lmdb", many_shards, rejects_max=3, worker_count=1)
    assert (report.shard_count, report.sample_count, report.reject_count) == (3, 9, 3)
    manifest = read_manifest(tmp_path / "out.lmdb")
    assert [info.file for info in manifest.shards] == [
        "shard-00000.lmdb",
        "shard-00002.lmdb",
        "shard-00003.lmdb",
    ]
    keys = [sample["key"] for sample in samples_of(tmp_path / "out.lmdb")]
    assert keys == class_names[:3] + class_names[6:]


def test_raw_files_that_change_under_the_build_are_rejected(tmp_path, draw_tree, class_names):
    """Grown, rewritten, gone, turned into a folder: named with the reason, the rest is stored."""
    tree = draw_tree(tmp_path / "raw", class_names)

    def interfere(step):
        if step is Step.PLANNED:
            with open(tree / "ant/0.png", "ab") as stream:
                stream.write(b"more")
            os.utime(tree / "ant/1.png", ns=(0, 0))
            (tree / "ant/2.png").unlink()
            (tree / "ant/3.png").unlink()
            (tree / "ant/3.png").mkdir()

    report = build(tree, tmp_path / "out.lmdb", rejects_max=4, worker_count=1, on_step=interfere)
    assert (report.found_count, report.sample_count, report.reject_count) == (12, 8, 4)
    lines = (tmp_path / "out.lmdb" / "rejects.jsonl").read_text().splitlines()
    reasons = {json.loads(line)["key"]: json.loads(line)["reason"] for line in lines}
    assert "changed while the build ran" in reasons["ant/0.png"]
    assert "changed while the build ran" in reasons["ant/1.png"]
    assert reasons["ant/2.png"] == "cannot be read: No such file or directory"
    assert reasons["ant/3.png"] == "cannot be read: Is a directory"


# --- Build workers --------------------------------------------------------------------------------


def child_processes() -> list[int]:
    children = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    return [int(pid) for pid in Path(children).read_text().split()]


def test_a_killed_worker_is_reported_and_replaced(tmp_path, raw, many_shards, shards, contents):
    """As the kernel does when memory runs out: the store is the same, and says nothing of it."""
    out = tmp_path / "out.lmdb"
    others = child_processes()
    killed = []

    def kill_worker(step):
        if step is Step.SHARD_FINISHED and not killed:
            killed.extend(set(child_processes()) - set(others))
            for pid in killed:
                os.kill(pid, 9)

    report = build(raw, out, many_shards, worker_count=1, on_step=kill_worker)
    assert len(killed) == 1
    assert set(child_processes()) == set(others)
    assert contents(out) == contents(shards)
    # It may have died before it was given its next shard; then there is nothing to tell.
    for note in report.notes[len(read_manifest(out).source.notes) :]:
        assert "a build worker died while" in note
        assert "tried again" in note


def test_a_signal_to_a_worker_alone_is_not_its_end(tmp_path, raw, many_shards, shards, contents):
    """One for the whole group reaches the driver too, which decides, and says so."""
    others = child_processes()

    def disturb(step):
        if step is Step.SHARD_FINISHED:
            for pid in set(child_processes()) - set(others):
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGINT)

    build(raw, tmp_path / "out.lmdb", many_shards, worker_count=1, on_step=disturb)
    assert contents(tmp_path / "out.lmdb") == contents(shards)


def test_what_a_worker_prints_takes_no_memory_to_speak_of():
    """Libraries may print about every file; the last lines are there when the worker dies."""
    code = (
        "import os; from packer.engines.worker import LOG_BYTES_MAX, keep_log_short\n"
        "os.write(2, b'x' * LOG_BYTES_MAX); keep_log_short()\n"
        "assert os.fstat(2).st_size == LOG_BYTES_MAX\n"
        "os.write(2, b'y'); keep_log_short(); os.write(2, b'the last line')\n"
    )
    log = os.memfd_create("log")
    try:
        subprocess.run([sys.executable, "-c", code], stderr=log, check=True, timeout=60)
        assert os.pread(log, 100, 0) == b"the last line"
    finally:
        os.close(log)


def test_the_first_worker_starts_while_the_raw_data_are_looked_through(tmp_path, raw):
    """It is there once the plan is; where nothing comes of the build, it is gone again."""
    seen = []

    def count(step):
        if step is Step.LOCKED:
            seen.append(len(child_processes()))

    before = len(child_processes())
    build(raw, tmp_path / "out.lmdb", worker_count=1, on_step=count)
    assert seen == [before + 1]
    (tmp_path / "nothing").mkdir()
    with pytest.raises(SourceError):
        build(tmp_path / "nothing", tmp_path / "other.lmdb")
    assert len(child_processes()) == before


def test_no_more_workers_than_shards_are_started(tmp_path, raw):
    """Ten cores are no reason to start ten interpreters for one shard."""
    seen = []

    def count(step):
        if step is Step.SHARD_FINISHED:
            seen.append(len(child_processes()))

    before = len(child_processes())
    report = build(raw, tmp_path / "out.lmdb", worker_count=10, on_step=count)
    assert seen == [before + 1]
    assert report.worker_count == 10


def test_workers_do_not_import_from_the_current_folder(tmp_path, raw, packer):
    """A user's own `readers`, `queue.py` or `numpy.py` there must not stand in for the real one."""
    for name in ("readers", "packer"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "queue.py").write_text("raise SystemExit('the wrong one')")
    done = packer("build", raw, "out.lmdb", "-q", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_default_workers_are_the_cores_of_this_job(tmp_path, raw, monkeypatch):
    """Not those of the machine; shared between the ranks of a job, and at least one."""
    allowed = os.sched_getaffinity(0)
    core_total = core_count()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    report = build(raw, tmp_path / "1.lmdb")
    assert report.worker_count == max(1, core_total // 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")
    assert build(raw, tmp_path / "2.lmdb").worker_count == 1
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    os.sched_setaffinity(0, {min(allowed)})
    try:
        report = build(raw, tmp_path / "3.lmdb")
    finally:
        os.sched_setaffinity(0, allowed)
    assert report.worker_count == 1
    assert "with 1 build worker" in report.summary()


# --- Arguments, steps, the moment of publishing ---------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"workers": 0}, {"on_error": "ignore"}, {"max_rejects": "many"}, {"max_rejects": -1}],
)
def test_arguments_out_of_range_are_refused_before_any_work(tmp_path, raw, options):
    """With the argument's name and the value given."""
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"^{name} .*{value}"):
        build(raw, tmp_path / "out.lmdb", **options)
    assert list(tmp_path.iterdir()) == []


def test_steps_come_in_order_and_the_store_with_published(tmp_path, raw, many_shards):
    """Each is told once, a shard's for each shard; until the last but one there is no store."""
    out = tmp_path / "out.lmdb"
    steps, is_there = [], []

    def note(step):
        steps.append(step)
        try:
            read_manifest(out)
            is_there.append(step)
        except StoreIncompleteError:
            pass

    with pytest.raises(StoreNotFoundError):
        read_manifest(out)
    build(raw, out, many_shards, worker_count=1, on_step=note)
    assert steps == [
        Step.LOCKED,
        Step.PLANNED,
        *[Step.SHARD_FINISHED] * 4,
        Step.SHARDS_FINISHED,
        Step.MANIFEST_WRITTEN,
        Step.PUBLISHED,
        Step.CLEANED,
    ]
    assert is_there == [Step.PUBLISHED, Step.CLEANED]


def test_a_store_that_appears_meanwhile_is_not_replaced(
    tmp_path, raw, store, contents, monkeypatch
):
    """Of two builds started together, the one that looks longer finds the other's store."""
    out = tmp_path / "out.lmdb"
    scan_source = begin.scan_source

    def scan_slowly(*arguments):
        shutil.copytree(store, out)
        return scan_source(*arguments)

    monkeypatch.setattr(begin, "scan_source", scan_slowly)
    with pytest.raises(TargetExistsError, match=r"another build .* has just finished this store"):
        build(raw, out)
    assert contents(out) == contents(store)
    assert list(tmp_path.iterdir()) == [out]


def test_the_lines_of_python_are_about_what_the_store_has(tmp_path, draw_tree, raw):
    """What training takes of it: labels, boxes and labels, or images alone."""
    labelled = build(raw, tmp_path / "labelled.lmdb", worker_count=1)
    assert "returns=('image', 'label'))" in labelled.summary()
    assert "batch_size=12, train=True)" in labelled.summary()
    flat = build(draw_tree(tmp_path / "flat", ["1.png"]), tmp_path / "flat.lmdb", worker_count=1)
    assert f"dataset = LMDBDataset({str(tmp_path / 'flat.lmdb')!r})" in flat.summary()
    tree = draw_tree(tmp_path / "voc", ["1.png"])
    box = "<xmin>2</xmin><ymin>3</ymin><xmax>9</xmax><ymax>8</ymax>"
    (tree / "1.xml").write_text(
        f"<annotation><object><name>ant</name><bndbox>{box}</bndbox></object></annotation>"
    )
    boxes = build(tree, tmp_path / "boxes.lmdb", worker_count=1)
    assert "images, targets = detection_targets(batch, first_label=1)" in boxes.summary()
    assert "1 class: ant 1" in boxes.summary()


def test_settings_are_given_by_name(tmp_path, raw, contents):
    """As on the command line; a name that is none proposes the nearest."""
    given = build(raw, tmp_path / "a.lmdb", size=20, fit="crop", workers=1, max_rejects=0)
    build(raw, tmp_path / "b.lmdb", Recipe(size=20, fit="crop"), worker_count=1, rejects_max=0)
    assert contents(tmp_path / "a.lmdb") == contents(tmp_path / "b.lmdb")
    assert given.worker_count == 1
    with pytest.raises(TypeError, match=r"no argument 'sizes'.* Did you mean 'size'\?"):
        build(raw, tmp_path / "c.lmdb", sizes=20)
    with pytest.raises(ValueError, match="size and a recipe were given"):
        build(raw, tmp_path / "c.lmdb", Recipe(), size=20)
    with pytest.raises(ValueError, match="workers and worker_count are one setting"):
        build(raw, tmp_path / "c.lmdb", workers=1, worker_count=1)
    assert not (tmp_path / "c.lmdb").exists()
