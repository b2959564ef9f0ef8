"""Orders that jump in files which only read forward: the same samples, each byte read once."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from packer.building.build import Step, build
from packer.building.spooling import spooled
from packer.engines.task import build_shard
from packer.errors import NoSpaceError
from packer.plan.shards import make_plan
from packer.raw.containers import Containers
from packer.recipe import Recipe
from packer.sources import SourceOptions, scan_source
from packer.stores import against
from packer.workspace.folder import Workspace
from packer.workspace.tasks import TaskPlan
from readers.store.layout import UPDATE_CACHE_NAME
from readers.store.manifest import read_manifest
from readers.store.reader import open_store
from readers.store.record import RecordReader

SHUFFLED = Recipe(size=320, fit="stretch", shard_bytes_max=2**20, shuffle=3)
IN_ORDER = Recipe(size=320, fit="stretch", shard_bytes_max=2**20)
"""Three samples fill a shard, so that 12 make 4."""

CHANGED = "the file changed while the build ran; run the build again when it is at rest"


def pictures(first: int, count: int) -> dict[str, bytes]:
    """PNG files of noise, some 30 KB each, by name."""
    found = {}
    for number in range(first, first + count):
        pixels = np.random.default_rng(number).integers(0, 256, (100, 100, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        found[f"{number:02}.png"] = file.getvalue()
    return found


def tar_of(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return archive.getvalue()


FIRST, SECOND = tar_of(pictures(0, 7)), tar_of(pictures(7, 5))


@pytest.fixture
def plain(tmp_path):
    """Two tar archives, a and b, of 7 and 5 pictures."""
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "a.tar").write_bytes(FIRST)
    (folder / "b.tar").write_bytes(SECOND)
    return folder


@pytest.fixture
def packed(tmp_path):
    """The same archives, compressed; the first in two members of gzip, cut after byte 100,000."""
    folder = tmp_path / "packed"
    folder.mkdir()
    first = gzip.compress(FIRST[:100_000], 1) + gzip.compress(FIRST[100_000:], 1)
    (folder / "a.tgz").write_bytes(first)
    (folder / "b.tgz").write_bytes(gzip.compress(SECOND, 1))
    return folder


@pytest.fixture
def parquet(tmp_path):
    """A Parquet file of 12 pictures in row groups of 4."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"bytes": data, "path": name} for name, data in pictures(0, 12).items()]
    folder = tmp_path / "parquet"
    folder.mkdir()
    table = pa.table({"image": pa.array(rows)})
    pq.write_table(table, folder / "a.parquet", row_group_size=4, use_dictionary=False)
    return folder


def begin(raw: Path, folder: Path, recipe: Recipe) -> tuple[Workspace, object]:
    """A planned build, as far as its tasks."""
    plan = make_plan(scan_source(raw, SourceOptions()), recipe)
    workspace = Workspace(folder / "out.lmdb.building")
    workspace.folder.mkdir()
    items = plan.scan.items
    workspace.begin([items[first:end] for first, end in plan.cuts], plan.facts())
    workspace.write_task_plan(
        TaskPlan(
            root=os.fsencode(plan.scan.root),
            schema=plan.schema.as_builtins(),
            recipe=plan.recipe.as_dict(),
            stops_at_reject=False,
        )
    )
    return workspace, plan


def flip(path: Path, position: int, count: int = 2) -> None:
    """Damage a file in a way that neither its size nor its time tells."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(position)
        data = file.read(count)
        file.seek(position)
        file.write(bytes(byte ^ 0xFF for byte in data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def rejects_of(store: Path) -> dict[str, tuple[str, str]]:
    lines = map(json.loads, (store / "rejects.jsonl").read_text().splitlines())
    return {line["key"]: (line["path"], line["reason"]) for line in lines}


def stored_keys(store: Path) -> list[str]:
    found = open_store(store)
    reader = RecordReader(found.layout)
    return [
        reader.unpack(shard.record(at))["key"]
        for shard in found.shards()
        for at in range(len(shard.lengths))
    ]


# --- The same samples -----------------------------------------------------------------------------


@pytest.mark.parametrize("worker_count", [1, 2])
def test_shuffled_samples_are_those_of_plain_archives(
    tmp_path, plain, packed, contents, worker_count
):
    """Shard for shard, byte for byte, for any number of build workers; nothing is left behind."""
    build(plain, tmp_path / "plain.lmdb", SHUFFLED, worker_count=1)
    build(packed, tmp_path / "packed.lmdb", SHUFFLED, worker_count=worker_count)
    ours, theirs = contents(tmp_path / "packed.lmdb"), contents(tmp_path / "plain.lmdb")
    names = [f"shard-{number:05d}.lmdb" for number in range(4)]
    assert [ours[name] for name in names] == [theirs[name] for name in names]
    keys = stored_keys(tmp_path / "packed.lmdb")
    assert keys != sorted(keys)
    assert len(set(keys)) == 12
    assert sorted(os.listdir(tmp_path)) == ["packed", "packed.lmdb", "plain", "plain.lmdb"]


@pytest.mark.parametrize("is_packed", [True, False])
def test_bare_pixels_of_an_idx_file_are_kept_as_they_are(tmp_path, unpacked, is_packed):
    """A compressed file is unpacked once; one that is not is read where it lies."""
    pixels = np.random.default_rng(0).integers(0, 256, (500, 28, 28), dtype=np.uint8)
    data = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in pixels.shape)
    data += pixels.tobytes()
    raw = tmp_path / "raw"
    raw.mkdir()
    path = raw / "train-images-idx3-ubyte"
    path.write_bytes(gzip.compress(data) if is_packed else data)
    workspace, plan = begin(raw, tmp_path, Recipe(shuffle=1, mode="gray"))
    numbers = [int(item.member.position) for item in plan.scan.items]
    assert numbers != sorted(numbers)
    unpacked.clear()
    with spooled(workspace, plan, range(len(plan.cuts)), None, lambda text: None):
        assert sum(unpacked) == is_packed * len(data)
        unpacked.clear()
        containers = Containers(os.fsencode(raw))
        for number, item in zip(numbers, workspace.read_items(0), strict=True):
            assert item.member.container == ("spool" if is_packed else "idx")
            assert np.array_equal(containers.read(item)[:, :, 0], pixels[number])
        containers.close()
    assert unpacked == []


def test_the_copy_can_be_made_on_a_disk_of_its_own(tmp_path, packed, contents):
    """The store is the same, and the folder is left empty."""
    build(packed, tmp_path / "a.lmdb", SHUFFLED, worker_count=1)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    seen = []

    def look(step):
        if step is Step.SHARD_FINISHED:
            seen.extend(name for name in os.listdir(scratch) if name.endswith(".members"))

    build(packed, tmp_path / "b.lmdb", SHUFFLED, worker_count=1, scratch=scratch, on_step=look)
    assert contents(tmp_path / "a.lmdb") == contents(tmp_path / "b.lmdb")
    assert len(seen) == 4
    assert os.listdir(scratch) == []


# --- What it costs --------------------------------------------------------------------------------


def test_a_jumping_order_unpacks_each_archive_once(tmp_path, packed, unpacked):
    """The tasks unpack nothing at all, whatever their order."""
    workspace, plan = begin(packed, tmp_path, SHUFFLED)
    unpacked.clear()
    notices = []
    with spooled(workspace, plan, range(4), None, notices.append):
        ends = [
            max(i.member.position + i.byte_count for i in plan.scan.items if i.path == path)
            for path in (b"a.tgz", b"b.tgz")
        ]
        assert sum(ends) <= sum(unpacked) <= len(FIRST) + len(SECOND)
        unpacked.clear()
        reports = [build_shard(workspace, number, workspace.scratch) for number in range(4)]
    assert unpacked == []
    assert [report.shard.sample_count for report in reports] == [3, 3, 3, 3]
    (notice,) = notices
    assert "'a.tgz', 'b.tgz' can only be read forward" in notice
    assert "12 images of 3" in notice


def test_a_shuffled_store_is_held_against_archives_that_are_unpacked_once(
    tmp_path, packed, unpacked, monkeypatch
):
    """By each thread, however many samples are compared at a time and whatever their order."""
    build(packed, tmp_path / "out.lmdb", SHUFFLED, worker_count=1)
    monkeypatch.setattr(against, "_ITEMS_AT_ONCE", 2)
    unpacked.clear()
    scan_source(packed, SourceOptions())
    scanned = sum(unpacked)
    unpacked.clear()
    store = open_store(tmp_path / "out.lmdb")
    comparison = against.compare_with_raw(store, packed)
    assert comparison.problems() == []
    assert 0 < sum(unpacked) - scanned <= len(FIRST) + len(SECOND)


def test_an_archive_that_is_left_and_come_back_to_is_copied(tmp_path, packed, unpacked):
    """One file is open at a time, so the way to the next image would be unpacked once more."""
    scan = scan_source(packed, SourceOptions())
    first, second = scan.items[:7], scan.items[7:]
    for order, copied in (
        ([*first[:2], *second, *first[2:]], {b"a.tgz"}),
        ([*second, *first], set()),
        ([*first, second[0], *second[2:]], set()),
        ([*first, second[1], second[0], *second[2:]], {b"b.tgz"}),
    ):
        plan = make_plan(dataclasses.replace(scan, items=order), IN_ORDER)
        workspace = Workspace(tmp_path / "out.lmdb.building")
        workspace.folder.mkdir(exist_ok=True)
        numbers = range(len(plan.cuts))
        workspace.begin([order[first:end] for first, end in plan.cuts], plan.facts())
        with spooled(workspace, plan, numbers, None, lambda text: None):
            items = [item for number in numbers for item in workspace.read_items(number)]
        assert {item.path for item in items if item.member.container == "spool"} == copied


@pytest.mark.parametrize("source", ["packed", "parquet"])
def test_in_the_order_of_the_raw_data_nothing_is_copied(tmp_path, source, request):
    """Nor where an archive that can be read at any place is shuffled."""
    workspace, plan = begin(request.getfixturevalue(source), tmp_path, IN_ORDER)
    before = workspace.read_items(2)
    notices = []
    with spooled(workspace, plan, range(4), None, notices.append):
        assert workspace.read_items(2) == before
    assert notices == []


def test_a_plain_archive_is_read_where_it_lies(tmp_path, plain):
    """It gives any image at once, so a copy would be for nothing."""
    workspace, plan = begin(plain, tmp_path, SHUFFLED)
    notices = []
    with spooled(workspace, plan, range(4), None, notices.append):
        assert {item.member.container for item in workspace.read_items(0)} == {"range"}
    assert notices == []


def test_rows_of_parquet_are_read_from_the_copy(tmp_path, parquet):
    """A row group is read once, and the tasks can do without the file's content."""
    workspace, plan = begin(parquet, tmp_path, SHUFFLED)
    with spooled(workspace, plan, range(4), None, lambda text: None):
        flip(parquet / "a.parquet", 4, 100_000)
        reports = [build_shard(workspace, number, workspace.scratch) for number in range(4)]
    assert [report.rejects for report in reports] == [[]] * 4


# --- What is wrong with the raw data --------------------------------------------------------------


@pytest.mark.parametrize("source", ["packed", "parquet"])
def test_damage_makes_the_same_rejects_as_in_order(tmp_path, source, request):
    """Same keys, paths and reasons; all else is stored."""
    raw = request.getfixturevalue(source)
    file = raw / ("a.tgz" if source == "packed" else "a.parquet")
    if source == "packed":
        position = len(gzip.compress(FIRST[:100_000], 1))
    else:
        import pyarrow.parquet as pq

        position = pq.ParquetFile(file).metadata.row_group(1).column(0).data_page_offset

    found = []
    for name, recipe in (("order", IN_ORDER), ("shuffled", SHUFFLED)):
        out = tmp_path / f"{name}.lmdb"

        def damage(step):
            if step is Step.PLANNED:
                flip(file, position)

        build(raw, out, recipe, worker_count=1, rejects_max="100%", on_step=damage)
        flip(file, position)
        found.append(rejects_of(out))
        assert len(stored_keys(out)) + len(found[-1]) == 12
    assert found[0] == found[1]
    if source == "packed":
        assert sorted(found[0]) == [f"a/0{number}.png" for number in range(3, 7)]
        assert {reason for _, reason in found[0].values()} == {
            "the compressed file is damaged: Not a gzipped file (b'\\xe0t')"
        }
    else:
        assert sorted(found[0]) == [f"a/0000{number}" for number in range(4, 8)]
        assert all("cannot be read: " in reason for _, reason in found[0].values())


def test_a_raw_file_that_changes_after_the_copy_is_noticed(tmp_path, packed):
    """The check is of the raw file, whatever is read instead of it; so for one that goes away."""
    workspace, plan = begin(packed, tmp_path, SHUFFLED)
    with spooled(workspace, plan, range(4), None, lambda text: None):
        os.utime(packed / "a.tgz", ns=(1, 1))
        (packed / "b.tgz").unlink()
        reports = [build_shard(workspace, number, workspace.scratch) for number in range(4)]
    found = {reject.key[:1]: reject.reason for r in reports for reject in r.rejects}
    assert found == {b"a": CHANGED, b"b": "cannot be read: No such file or directory"}
    assert sum(len(report.rejects) for report in reports) == 12


def test_a_file_that_cannot_be_read_when_it_is_to_be_copied_is_left_to_the_tasks(tmp_path, packed):
    """It may be past by then; if not, they say so, and all else is stored."""
    workspace, plan = begin(packed, tmp_path, SHUFFLED)
    (packed / "b.tgz").rename(tmp_path / "b.tgz")
    with spooled(workspace, plan, range(4), None, lambda text: None):
        first = build_shard(workspace, 0, workspace.scratch)
        (tmp_path / "b.tgz").rename(packed / "b.tgz")
        others = [build_shard(workspace, number, workspace.scratch) for number in (1, 2, 3)]
    reasons = {reject.key[:1]: reject.reason for reject in first.rejects}
    assert reasons == {b"b": "cannot be read: No such file or directory"}
    assert first.may_pass
    assert [report.rejects for report in others] == [[]] * 3


# --- Builds that stop -----------------------------------------------------------------------------


def test_a_killed_build_goes_on_and_leaves_nothing(tmp_path, packed, contents):
    """Finished shards are kept; the copy that was left is found, rebuilt and removed."""
    build(packed, tmp_path / "whole.lmdb", SHUFFLED, worker_count=1)
    code = f"""
import os, sys
sys.path[:] = {sys.path!r}
from packer.building.build import Step, build
from packer.recipe import Recipe
def die(step):
    if step is Step.SHARD_FINISHED:
        os._exit(9)
build({str(packed)!r}, {str(tmp_path / "out.lmdb")!r}, Recipe(**{SHUFFLED.as_dict()!r}),
      worker_count=1, on_step=die)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 9
    assert [name for name in os.listdir(tmp_path) if name.endswith(".members")]
    report = build(packed, tmp_path / "out.lmdb", SHUFFLED, worker_count=1)
    assert report.kept_shard_count >= 1
    assert contents(tmp_path / "out.lmdb") == contents(tmp_path / "whole.lmdb")
    assert sorted(os.listdir(tmp_path)) == ["out.lmdb", "packed", "whole.lmdb"]


def test_a_copy_that_was_left_goes_though_none_is_needed_any_more(tmp_path, packed):
    """All shards were finished when the build was killed."""
    left = []

    def leave(step):
        if step is Step.SHARD_FINISHED:
            left[:] = tmp_path.glob(".packer-*.members")
        if step is Step.SHARDS_FINISHED:
            raise KeyboardInterrupt

    out = tmp_path / "out.lmdb"
    with pytest.raises(KeyboardInterrupt):
        build(packed, out, SHUFFLED, worker_count=1, on_step=leave)
    assert sorted(os.listdir(tmp_path)) == ["out.lmdb.building", "packed"]
    (folder,) = left
    folder.mkdir()
    (folder / "images").write_bytes(b"left by a build that was killed")
    assert build(packed, out, SHUFFLED, worker_count=1).kept_shard_count == 4
    assert sorted(os.listdir(tmp_path)) == ["out.lmdb", "packed"]


@pytest.mark.parametrize("where", ["scratch", "beside"])
def test_no_room_for_the_copy_is_told_before_the_build_is_begun(
    tmp_path, packed, monkeypatch, where
):
    """What takes it, how much, how much there is, and what to do; the store's own share counts."""
    scratch = tmp_path / "scratch" if where == "scratch" else None
    base = scratch or tmp_path
    base.mkdir(exist_ok=True)
    real = shutil.disk_usage
    free = 4_000_000  # Enough for the store of 3.7 MB or for the copy of 0.36 MB; not for both.

    def usage(path):
        found = real(path)
        return found._replace(free=free) if Path(path) == base else found

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(NoSpaceError) as caught:
        build(packed, tmp_path / "out.lmdb", SHUFFLED, worker_count=1, scratch=scratch)
    text = str(caught.value)
    assert text.startswith(f"{base}: 'a.tgz', 'b.tgz' can only be read forward")
    for part in ("beside 3,", "4,000,000 free", "--scratch", "leave out --shuffle"):
        assert part in text
    assert not os.path.exists(tmp_path / "out.lmdb.building")
    build(packed, tmp_path / "out.lmdb", IN_ORDER, worker_count=1, scratch=scratch)


def test_an_update_knows_the_raw_files_and_not_the_copy(tmp_path, packed):
    """Nothing is to do where nothing changed; of one archive that did, its shards are rebuilt."""
    out = tmp_path / "out.lmdb"
    build(packed, out, SHUFFLED, worker_count=1)
    cache = (out / UPDATE_CACHE_NAME).read_bytes()
    assert b"spool" not in cache
    assert b".members" not in cache
    report = build(packed, out, SHUFFLED, worker_count=1, update=True)
    assert report.kept_shard_count == 4
    more = tar_of({**pictures(7, 5), "99.png": b"no picture"})
    (packed / "b.tgz").write_bytes(gzip.compress(more, 1))
    build(packed, out, SHUFFLED, worker_count=1, update=True, rejects_max=1)
    assert list(rejects_of(out)) == ["b/99.png"]
    assert read_manifest(out).sample_count == 12
    build(packed, tmp_path / "fresh.lmdb", SHUFFLED, worker_count=1, rejects_max=1)
    assert stored_keys(out) == stored_keys(tmp_path / "fresh.lmdb")


def test_what_is_read_from_a_copy_is_what_the_file_gives(tmp_path, packed):
    """One after the other, in the order of the store."""
    workspace, plan = begin(packed, tmp_path, SHUFFLED)
    raw = Containers(os.fsencode(packed))
    expected = [raw.read(item) for item in plan.scan.items]
    raw.close()
    with spooled(workspace, plan, range(4), None, lambda text: None):
        copied = Containers(os.fsencode(packed))
        items = [item for number in range(4) for item in workspace.read_items(number)]
        assert [copied.read(item) for item in items] == expected
        # A file of which a part could not be copied is read in both ways.
        for item, raw_item, data in zip(items, plan.scan.items, expected, strict=True):
            assert copied.read(item) == copied.read(raw_item) == data
        copied.close()
    assert [(i.key, i.path, i.byte_count, i.mtime_ns) for i in items] == [
        (i.key, i.path, i.byte_count, i.mtime_ns) for i in plan.scan.items
    ]
