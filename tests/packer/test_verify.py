"""Every kind of damage to a store is found and named."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from packer.verify import verify
from readers.store.errors import StoreError, StoreIncompleteError, StoreNotFoundError
from readers.store.reader import open_store


@pytest.fixture
def copy(tmp_path, shards):
    """A copy of the store of four shards, to be damaged."""
    return shutil.copytree(shards, tmp_path / "out.lmdb")


def flip(path, position):
    """Change one bit of one byte."""
    with open(path, "r+b") as stream:
        stream.seek(position)
        byte = stream.read(1)[0]
        stream.seek(position)
        stream.write(bytes([byte ^ 0x10]))


def change_manifest(path, change):
    tree = json.loads((path / "manifest.json").read_bytes())
    change(tree)
    (path / "manifest.json").write_text(json.dumps(tree, indent=1) + "\n")


def test_a_good_store_passes(store, shards):
    """With every sample counted, as it goes."""
    done = []
    report = verify(shards, on_progress=done.append)
    assert report.problems == []
    assert report.is_good
    assert (report.sample_count, report.shard_count) == (12, 4)
    assert done == [3, 3, 3, 3]
    assert report.summary() == f"{shards}: 12 samples in 4 shards: all good"
    assert verify(store).is_good


def test_a_changed_record_is_found_by_sample(copy):
    """The sample is named by its number in the store, and the file with both digests."""
    shard = open_store(copy).shard(2)
    flip(copy / "shard-00002.lmdb", int(shard.offsets[1]) + 1000)
    report = verify(copy)
    assert not report.is_good
    assert len(report.problems) == 2
    assert "shard-00002.lmdb: SHA-256 " in report.problems[0]
    assert report.problems[1].startswith("sample 7: ")
    assert "checksum" in report.problems[1]
    assert report.summary().endswith("12 samples in 4 shards: 2 problems")


def test_a_changed_index_is_found(copy):
    """A label that is still a class, and an offset that leads elsewhere in the file."""
    shard = open_store(copy).shard(0)
    data = (copy / "shard-00000.lmdb").read_bytes()
    for array in (shard.columns["label"], shard.offsets):
        at = data.index(array.tobytes())
        shutil.copy(copy / "shard-00001.lmdb", copy / "spare")
        changed = bytearray(data)
        changed[at] ^= 1
        (copy / "shard-00000.lmdb").write_bytes(changed)
        report = verify(copy)
        assert any("shard-00000.lmdb" in problem for problem in report.problems)
        assert not any("shard-00001.lmdb" in problem for problem in report.problems)


def test_any_changed_byte_of_a_shard_is_found(copy):
    """Also in pages that nobody reads: the file is not the one that was published."""
    path = copy / "shard-00001.lmdb"
    for position in range(0, path.stat().st_size, 60_013):
        flip(path, position)
        assert any("shard-00001.lmdb" in problem for problem in verify(copy).problems), position
        flip(path, position)
    assert verify(copy).is_good


def test_files_cut_short_or_gone_are_found_and_the_rest_is_checked(copy):
    """One line for each, with what to do; the shards that follow are still looked at."""
    os.truncate(copy / "shard-00000.lmdb", 8192)
    (copy / "shard-00001.lmdb").unlink()
    flip(copy / "shard-00003.lmdb", 500_000)
    problems = verify(copy).problems
    assert "shard-00000.lmdb: 8192 bytes, expected 9" in problems[0]
    assert "shard-00001.lmdb: No such file or directory; expected a file of 9" in problems[1]
    assert "shard-00003.lmdb: SHA-256" in problems[2]


def test_swapped_shards_of_one_size_are_found(copy):
    """Each is whole in itself, and not the one that the manifest means."""
    first, second = copy / "shard-00001.lmdb", copy / "shard-00002.lmdb"
    assert first.stat().st_size == second.stat().st_size
    first.rename(copy / "aside")
    second.rename(first)
    (copy / "aside").rename(second)
    problems = verify(copy).problems
    assert len(problems) == 2
    for number, problem in enumerate(problems, 1):
        assert f"shard-0000{number}.lmdb: identity" in problem


def test_a_manifest_that_contradicts_its_shards_is_found(copy):
    """Counts of classes and of all that was found, and the names of the classes."""

    def more_of_a_class(tree):
        tree["statistics"]["class_counts"] = [4, 4, 5]

    def another_name(tree):
        tree["classes"][0] = "anz"

    def less_found(tree):
        tree["source"]["found_count"] = 11

    def more_rejects(tree):
        tree["source"] |= {"found_count": 13, "reject_count": 1}

    whole = (copy / "manifest.json").read_bytes()
    for change, said in [
        (more_of_a_class, "class_counts [4, 4, 5], but the labels count [4, 4, 4]"),
        (another_name, "its classes are not the names of the field 'label'"),
        (less_found, "found_count 11, but 12 are accounted for"),
        (more_rejects, "rejects.jsonl: 0 lines, but the manifest says 1 rejects"),
    ]:
        change_manifest(copy, change)
        (problem,) = verify(copy).problems
        assert problem.endswith(said)
        (copy / "manifest.json").write_bytes(whole)
    (copy / "rejects.jsonl").unlink()
    (problem,) = verify(copy).problems
    assert "rejects.jsonl: No such file or directory" in problem


def test_splits_are_held_against_their_samples(tmp_path, draw_tree):
    """Counts, names and order."""
    from packer.build import build

    tree = draw_tree(tmp_path / "raw", ["train/a/1.png", "train/a/2.png", "val/a/1.png"])
    build(tree, tmp_path / "out.lmdb", worker_count=1)
    assert verify(tmp_path / "out.lmdb").is_good
    for splits in ({"train": 1, "val": 2}, {"val": 1, "train": 2}, {"train": 2, "test": 1}, {}):
        change_manifest(tmp_path / "out.lmdb", lambda tree, new=splits: tree.update(splits=new))
        (problem,) = verify(tmp_path / "out.lmdb").problems
        assert f"splits {splits}, but the samples count {{'train': 2, 'val': 1}}" in problem


def test_flipped_bytes_of_a_manifest_are_found_unless_in_a_mere_description(copy):
    """Form, schema, shards, counts, classes; what describes the build is held against nothing."""
    whole = (copy / "manifest.json").read_bytes()
    described = ("recipe", "versions", "source", "statistics")
    missed = 0
    for position in range(0, len(whole), 11):
        flip(copy / "manifest.json", position)
        try:
            is_found = not verify(copy).is_good
        except StoreError:
            is_found = True
        if not is_found:
            missed += 1
            before, after = (json.loads(data) for data in (whole, _manifest(copy)))
            for tree in (before, after):
                for name in described:
                    tree.pop(name, None)
                tree["format"].pop("minor", None)
            assert before == after, f"byte {position}"
        (copy / "manifest.json").write_bytes(whole)
    assert 0 < missed < len(whole) / 22


def _manifest(path):
    return (path / "manifest.json").read_bytes()


def test_what_is_no_store_is_an_error(tmp_path, copy):
    """There is nothing to verify: neither good nor bad."""
    with pytest.raises(StoreNotFoundError):
        verify(tmp_path / "none")
    (copy / "manifest.json").unlink()
    with pytest.raises(StoreIncompleteError):
        verify(copy)
