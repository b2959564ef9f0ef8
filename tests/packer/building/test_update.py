"""An update makes few shards anew, and gives the samples of a fresh build."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from packer.building.build import build
from packer.building.update import UpdateCache, array_start
from packer.errors import TargetExistsError
from packer.recipe import Recipe
from packer.report import BuildReport
from readers import LMDBDataset
from readers.store.layout import UPDATE_CACHE_NAME
from readers.store.manifest import read_manifest
from tests.packer.conftest import MANY_SHARDS, draw_tree, picture

NAMES = [f"{name}/{number:02d}.png" for name in ("ant", "bee", "cat") for number in range(4)]
"""Twelve pictures: four shards of three under MANY_SHARDS."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return draw_tree(tmp_path / "raw", NAMES)


def redraw(path: Path, name: str) -> None:
    """Other pixels at a path, with the next time of change."""
    Image.fromarray(picture(name)).save(path)
    later(path)


def later(path: Path, seconds: int = 10) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + seconds * 10**9))


def made(tree: Path, out: Path, recipe: Recipe = MANY_SHARDS, **settings: Any) -> BuildReport:
    return build(tree, out, recipe, worker_count=1, **settings)


def samples_of(path: Path) -> list[tuple[str, str, int]]:
    """Key, digest of the pixels and label of every sample, in order."""
    found = []
    dataset = LMDBDataset(path, image_as="numpy")
    for at in range(len(dataset)):
        sample = dataset[at]
        digest = hashlib.sha256(sample["image"].tobytes()).hexdigest()
        found.append((sample["key"], digest, sample["label"]))
    return found


def files_of(out: Path) -> dict[str, int]:
    """Inode of each shard, by name: the same file stays, whatever its folder."""
    return {path.name: path.stat().st_ino for path in out.glob("shard-*.lmdb")}


def check_equals_fresh(tree: Path, out: Path, tmp_path: Path, **settings: Any) -> None:
    """As if it had been built of what the raw data is now."""
    fresh = tmp_path / "fresh.lmdb"
    made(tree, fresh, **settings)
    assert samples_of(out) == samples_of(fresh)
    one, other = read_manifest(out), read_manifest(fresh)
    for name in ("classes", "splits", "sample_count", "recipe", "schema", "statistics"):
        assert getattr(one, name) == getattr(other, name)
    assert one.source == other.source
    assert (out / "rejects.jsonl").read_bytes() == (fresh / "rejects.jsonl").read_bytes()
    shutil.rmtree(fresh)


def test_an_update_of_nothing_does_nothing(tree, tmp_path):
    """Not a file is written anew."""
    out = tmp_path / "out.lmdb"
    made(tree, out)
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    report = made(tree, out, update=True)
    assert report.kept_shard_count == report.shard_count == 4
    assert any("0 added, 0 changed, 0 removed" in note for note in report.notes)
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_an_update_where_nothing_is_is_a_build(tree, tmp_path):
    """The same command serves the first time and every other time."""
    report = made(tree, tmp_path / "out.lmdb", update=True)
    assert (report.kept_shard_count, report.sample_count) == (0, 12)


def test_a_changed_picture_costs_its_shard(tree, tmp_path):
    """The others are the same files as before; the new one has a name of its own."""
    out = tmp_path / "out.lmdb"
    made(tree, out)
    before = files_of(out)
    redraw(tree / "bee/01.png", "other")
    report = made(tree, out, update=True)
    after = files_of(out)
    assert report.kept_shard_count == 3
    assert len(before.keys() - after.keys()) == len(after.keys() - before.keys()) == 1
    assert all(before[name] == after[name] for name in before.keys() & after.keys())
    assert sorted(after)[-1] == "shard-00004.lmdb"
    check_equals_fresh(tree, out, tmp_path)


def test_pictures_that_come_and_go(tree, tmp_path):
    """They join the shard of the picture before them; an emptied shard goes."""
    out = tmp_path / "out.lmdb"
    made(tree, out)
    draw_tree(tree, ["ant/01b.png", "cat/99.png"])
    report = made(tree, out, update=True)
    assert report.kept_shard_count == 2
    check_equals_fresh(tree, out, tmp_path)
    for name in NAMES[3:6]:
        (tree / name).unlink()
    report = made(tree, out, update=True)
    assert (report.kept_shard_count, report.shard_count) == (3, 3)
    assert any("3 removed" in note for note in report.notes)
    check_equals_fresh(tree, out, tmp_path)


def test_a_touched_file_is_read_and_kept(tree, tmp_path):
    """Another time of change, the same content: nothing is rebuilt, and the time is learnt."""
    out = tmp_path / "out.lmdb"
    made(tree, out)
    before = files_of(out)
    later(tree / "ant/00.png")
    assert made(tree, out, update=True).kept_shard_count == 4
    assert files_of(out) == before
    check_equals_fresh(tree, out, tmp_path)


def test_content_behind_an_old_time_is_found_when_all_is_read(tree, tmp_path):
    """Size and time alike: the quick look cannot see it, `rehash` can."""
    out = tmp_path / "out.lmdb"
    # BMP files of one size, whatever they show.
    for name in NAMES:
        path = (tree / name).with_suffix(".bmp")
        Image.fromarray(picture(name)).save(path)
        (tree / name).unlink()
    made(tree, out)
    path = tree / "cat/02.bmp"
    status = path.stat()
    Image.fromarray(picture("other")).save(path)
    assert path.stat().st_size == status.st_size
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert made(tree, out, update=True).kept_shard_count == 4
    assert made(tree, out, update=True, rehash=True).kept_shard_count == 3
    check_equals_fresh(tree, out, tmp_path)


def test_rejects_are_tried_again_when_asked_for(tree, tmp_path):
    """An unchanged reject stays one without being read; it is known by its file."""
    out = tmp_path / "out.lmdb"
    (tree / "bee/02.png").write_bytes(b"no picture")
    made(tree, out, rejects_max=1)
    assert made(tree, out, update=True, rejects_max=1).kept_shard_count == 4
    report = made(tree, out, update=True, rejects_max=1, retry_rejects=True)
    assert report.kept_shard_count == 3
    assert report.reject_count == 1
    redraw(tree / "bee/02.png", "bee/02.png")
    assert made(tree, out, update=True).reject_count == 0
    check_equals_fresh(tree, out, tmp_path)


def test_other_settings_make_all_anew_and_say_why(tree, tmp_path):
    """A shard of another size would not fit; a class more shifts the names."""
    out = tmp_path / "out.lmdb"
    made(tree, out)
    smaller = Recipe(size=300, fit="stretch", shard_bytes_max=2**20)
    report = made(tree, out, smaller, update=True)
    assert report.kept_shard_count == 0
    assert any("size was 320 and is 300" in note for note in report.notes)
    draw_tree(tree, ["dog/00.png"])
    report = made(tree, out, smaller, update=True)
    assert report.kept_shard_count == 0
    assert any("the schema changed" in note for note in report.notes)
    check_equals_fresh(tree, out, tmp_path, recipe=smaller)


def test_without_the_cache_all_is_made_anew(tree, tmp_path):
    """A copy may have left it out; the store is whole without it."""
    out = tmp_path / "out.lmdb"
    made(tree, out)
    (out / UPDATE_CACHE_NAME).unlink()
    assert samples_of(out)
    report = made(tree, out, update=True)
    assert report.kept_shard_count == 0
    assert any("no update-cache" in note for note in report.notes)
    (out / UPDATE_CACHE_NAME).write_bytes(b"\x93junk")
    assert made(tree, out, update=True).kept_shard_count == 0


def test_a_reader_of_the_old_store_goes_on(tree, tmp_path):
    """What it has open stays mapped, and shards that stay can be opened under their names."""
    out = tmp_path / "out.lmdb"
    made(tree, out)
    expected = samples_of(out)
    reader = LMDBDataset(out, image_as="numpy")
    assert [reader[at]["key"] for at in range(12)] == [key for key, _, _ in expected]
    redraw(tree / "bee/01.png", "other")
    made(tree, out, update=True)
    for at, (key, digest, _) in enumerate(expected):
        sample = reader[at]
        assert sample["key"] == key
        assert hashlib.sha256(sample["image"].tobytes()).hexdigest() == digest


def test_an_interrupted_update_leaves_the_store_and_goes_on(tree, tmp_path):
    """Stopped in the middle, the old store is there whole; the same command finishes."""
    out = tmp_path / "out.lmdb"
    made(tree, out)
    old = samples_of(out)
    redraw(tree / "ant/01.png", "other")
    redraw(tree / "cat/01.png", "another")

    class StopError(Exception):
        pass

    def stop(step: Any) -> None:
        if step.name == "SHARD_FINISHED":
            raise StopError

    with pytest.raises(StopError):
        made(tree, out, update=True, on_step=stop)
    assert samples_of(out) == old
    with pytest.raises(TargetExistsError):
        made(tree, out)
    report = made(tree, out, update=True)
    assert report.kept_shard_count >= 3
    check_equals_fresh(tree, out, tmp_path)
    assert not out.with_name("out.lmdb.building").exists()


def test_update_and_overwrite_are_two_things(tree, tmp_path):
    """One keeps what it can, the other nothing."""
    with pytest.raises(ValueError, match="update and overwrite"):
        made(tree, tmp_path / "out.lmdb", update=True, overwrite=True)


def test_the_command_line_says_what_an_update_did(tree, tmp_path, packer):
    """One line on what changed, in the summary and in the JSON; wrong uses are refused."""
    out = tmp_path / "out.lmdb"
    build_it = ("build", tree, out, "--size", "320", "--fit", "stretch", "--shard-size", "1MiB")
    assert packer(*build_it).returncode == 0
    redraw(tree / "bee/01.png", "other")
    done = packer(*build_it, "--update")
    assert done.returncode == 0, done.stderr
    assert "update: 0 added, 1 changed, 0 removed; 1 shard rebuilt, 3 kept" in done.stdout
    assert packer(*build_it, "--update", "--overwrite").returncode == 2
    assert packer(*build_it, "--rehash").returncode == 2


def test_a_shard_that_grows_is_cut(tree, tmp_path):
    """Pictures that always join the same shard must not make it a store of one."""
    out = tmp_path / "out.lmdb"
    made(tree, out)
    draw_tree(tree, [f"ant/00_{number}.png" for number in range(9)])
    report = made(tree, out, update=True)
    assert report.kept_shard_count == 3
    assert report.shard_count == 7
    check_equals_fresh(tree, out, tmp_path)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 2**16 - 1, 2**16, 2**17])
def test_the_cache_is_written_in_parts_as_one_array(count):
    """A store of any number of shards has one that the next update can read."""
    assert array_start(count) + count * b"\x07" == msgspec.msgpack.encode([7] * count)


def test_the_parts_of_the_cache_are_what_it_would_be_as_a_whole(tmp_path):
    """To the byte: it is written shard by shard, and read at once."""
    build(draw_tree(tmp_path / "raw", NAMES), tmp_path / "out.lmdb", MANY_SHARDS, worker_count=1)
    data = (tmp_path / "out.lmdb" / UPDATE_CACHE_NAME).read_bytes()
    cache = msgspec.msgpack.decode(data, type=UpdateCache)
    assert len(cache.shards) > 1
    assert msgspec.msgpack.encode(cache) == data
