"""Every kind of damage to a store is found and named."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import struct
import zlib

import pytest
from PIL import Image

from packer.building.build import build
from packer.errors import SourceError
from packer.recipe import Recipe
from packer.sources import SourceOptions
from packer.stores import lmdb_children
from packer.stores.subset import subset
from packer.stores.verify import verify
from readers.store.codecs import OriginalImage
from readers.store.errors import StoreError, StoreIncompleteError, StoreNotFoundError
from readers.store.manifest import SourceInfo, publish_manifest, read_manifest
from readers.store.pages import PageFile
from readers.store.reader import open_store
from readers.store.schema import Field, Schema
from tests.readers.store.making import make_manifest, write_shard


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
    """Have the manifest say something else, with the digest that it would have had."""
    tree = json.loads((path / "manifest.json").read_bytes())
    del tree["sha256"]
    change(tree)
    body = json.dumps(tree, indent=1).removesuffix("\n}")
    digest = hashlib.sha256(body.encode()).hexdigest()
    (path / "manifest.json").write_text(body + f',\n "sha256": "{digest}"\n}}\n')


def test_a_good_store_passes(store, shards):
    """With every sample counted, as it goes."""
    done = []
    report = verify(shards, on_progress=done.append)
    assert report.problems == []
    assert report.is_good
    assert (report.sample_count, report.shard_count) == (12, 4)
    assert done == [3, 3, 3, 3]
    assert report.summary() == f"{shards}: 12 samples in 4 shards: all good"
    report = verify(shards, level="full", workers=1)
    assert report.summary().endswith("all good, every field decoded")
    done.clear()
    report = verify(store, level="quick", on_progress=done.append)
    assert report.summary().endswith("index and sizes good; the samples were not read")
    assert done == [12]
    with pytest.raises(ValueError, match="level must be one of quick, records, full; got 'slow'"):
        verify(store, level="slow")


def test_a_changed_record_is_found_by_sample(copy):
    """The sample is named by its number in the store, and the file with both digests."""
    shard = open_store(copy).shard(2)
    flip(copy / "shard-00002.lmdb", int(shard.offsets[1]) + 1000)
    report = verify(copy)
    assert not report.is_good
    assert len(report.problems) == 2
    assert "shard-00002.lmdb: SHA-256 " in report.problems[0]
    place = f"{copy}/shard-00002.lmdb"
    (damaged,) = report.damaged
    assert (damaged.index, damaged.key, damaged.shard) == (7, "bee/3.png", place)
    assert damaged.position == 1
    assert report.problems[1] == damaged.line()
    assert damaged.line().startswith(
        f"sample 7, key 'bee/3.png': {place}, sample 1 of the shard: checksum "
    )
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
    for position in range(0, path.stat().st_size, 300_007):
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
        (more_rejects, "rejects.jsonl: 0 raw items, but the manifest says 1 rejects"),
    ]:
        change_manifest(copy, change)
        (problem,) = verify(copy, level="quick").problems
        assert problem.endswith(said)
        (copy / "manifest.json").write_bytes(whole)


def test_splits_are_held_against_their_samples(tmp_path, draw_tree):
    """Counts, names and order."""
    tree = draw_tree(tmp_path / "raw", ["train/a/1.png", "train/a/2.png", "val/a/1.png"])
    build(tree, tmp_path / "out.lmdb", worker_count=1)
    assert verify(tmp_path / "out.lmdb").is_good
    for splits in ({"train": 1, "val": 2}, {"val": 1, "train": 2}, {"train": 2, "test": 1}, {}):
        change_manifest(tmp_path / "out.lmdb", lambda tree, new=splits: tree.update(splits=new))
        (problem,) = verify(tmp_path / "out.lmdb", level="quick").problems
        assert f"splits {splits}, but the samples count {{'train': 2, 'val': 1}}" in problem


def test_every_flipped_byte_of_a_manifest_is_found(copy):
    """Also in what merely describes the build, which nothing else could tell."""
    whole = (copy / "manifest.json").read_bytes()
    for position in range(0, len(whole), 11):
        flip(copy / "manifest.json", position)
        with contextlib.suppress(StoreError):
            assert not verify(copy, level="quick").is_good, f"byte {position}"
        (copy / "manifest.json").write_bytes(whole)


def sign(path, number=0):
    """Have the manifest agree with a shard's file, as whoever crafts a store would."""

    def agree(tree):
        file = path / tree["shards"][number]["file"]
        tree["shards"][number]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        tree["shards"][number]["bytes"] = file.stat().st_size

    change_manifest(path, agree)


def test_a_shard_that_kills_lmdb_is_a_finding(copy):
    """Its tree of records leads out of the map. Readers never look there; LMDB does, and dies."""
    path = copy / "shard-00001.lmdb"
    data = bytearray(path.read_bytes())
    for meta in (0, 4096):
        struct.pack_into("<Q", data, meta + 16 + 24 + 96, 2**20)  # The last page, of 4 GiB.
    pages = PageFile(memoryview(bytes(data)))
    (tree,) = (at for name, at, _ in pages.entries(pages.main) if name == b"samples")
    struct.pack_into("<Q", data, tree + 40, 2**19)  # Its root.
    path.write_bytes(data)
    sign(copy, 1)
    report = verify(copy)
    (problem,) = report.problems
    assert problem.startswith(f"{path}: LMDB died of signal ")
    assert "reading it. Do not open it with LMDB." in problem
    assert verify(copy, level="quick").is_good


def test_a_child_that_does_not_answer_is_not_waited_for(store, monkeypatch):
    """A circle of pages would keep LMDB busy for ever."""
    monkeypatch.setattr(lmdb_children, "_LEAST_S", 0.0)
    monkeypatch.setattr(lmdb_children, "_BYTES_PER_S", math.inf)
    (problem,) = verify(store).problems
    assert problem.endswith("shard-00000.lmdb: LMDB did not come to an end with it in 0 s. Do not "
                            "open it.")  # fmt: skip


def test_an_index_that_contradicts_its_records_is_found_by_sample(copy):
    """A crafted label would be believed by every sampler, whatever the record says."""
    shard = open_store(copy).shard(1)
    path = copy / "shard-00001.lmdb"
    data = bytearray(path.read_bytes())
    labels = shard.columns["label"]
    at = data.index(labels.tobytes())
    changed = labels.copy()
    changed[2] = (labels[2] + 1) % 3
    data[at : at + labels.nbytes] = changed.tobytes()
    path.write_bytes(data)
    sign(copy, 1)
    report = verify(copy)
    (damaged,) = report.damaged
    assert (damaged.index, damaged.position, damaged.key) == (5, 2, "bee/1.png")
    assert damaged.reason == f"its record has label 1, the index says {changed[2]}"


def test_a_key_that_leads_to_another_sample_is_found_by_a_full_check(copy):
    """The look-up by key would give somebody else's pixels. Its checksum is as crafted."""
    store = open_store(copy)
    shard = store.shard(0)
    path = copy / "shard-00000.lmdb"
    data = bytearray(path.read_bytes())
    start, length = int(shard.offsets[1]), int(shard.lengths[1])
    record = bytes(data[start : start + length]).replace(b"ant/1.png", b"ant/0.png")
    data[start : start + length] = record
    checksums = shard.checksums.copy()
    checksums[1] = zlib.crc32(record)
    at = data.index(shard.checksums.tobytes())
    data[at : at + checksums.nbytes] = checksums.tobytes()
    path.write_bytes(data)
    sign(copy)
    report = verify(copy, level="full")
    (damaged,) = report.damaged
    assert damaged.reason == "its key 'ant/0.png' leads to sample 0 of the shard"
    assert (damaged.index, damaged.key) == (1, None)
    assert any("its identity is not that of" in problem for problem in report.problems)


def test_damaged_pictures_are_found_by_decoding_alone(tmp_path, raw):
    """A picture that was broken when it was stored has a right checksum."""
    schema = Schema((
        Field(name="key", kind="text"),
        Field(name="image", kind="image", dtype="uint8", shape=(None, None, 3), codec="original",
              mode="rgb"),
    ))  # fmt: skip
    file = (raw / "ant/0.png").read_bytes()
    made = [
        (key.encode(), {"key": key, "image": OriginalImage(data, (16, 24, 3), "uint8", 1)})
        for key, data in (("good", file), ("bad", file[:200]))
    ]
    folder = tmp_path / "out.lmdb"
    folder.mkdir()
    shard = write_shard(folder / "shard-00000.lmdb", schema, made)
    publish_manifest(folder, make_manifest(schema, [shard], classes=(), source=SourceInfo(
        format="flat", sha256="0" * 64, found_count=2, reject_count=0, ignored={})))  # fmt: skip
    (folder / "rejects.jsonl").write_bytes(b"")
    assert verify(folder).is_good
    (damaged,) = verify(folder, level="full").damaged
    assert (damaged.index, damaged.key) == (1, "bad")
    assert damaged.reason.startswith("field 'image': ")


@pytest.mark.parametrize("make", ["gone", "link", "pipe", "long"])
def test_a_reject_list_that_is_none_is_refused_at_once(make, copy, tmp_path):
    """A link would lead out of the store, a pipe keep us waiting, an endless line take memory."""
    path = copy / "rejects.jsonl"
    path.unlink()
    if make == "link":
        path.symlink_to("/dev/zero")
    elif make == "pipe":
        os.mkfifo(path)
    elif make == "long":
        with open(path, "wb") as stream:
            stream.truncate(2**32)
    (problem,) = verify(copy, level="quick").problems
    assert problem.startswith(f"{path}: ")
    assert {
        "gone": "No such file or directory", "link": "Too many levels of symbolic links",
        "pipe": "it is not a plain file", "long": "a line of over 1048576 bytes",
    }[make] in problem  # fmt: skip


# Against the raw data.


@pytest.fixture
def mine(tmp_path, draw_tree):
    """A raw tree of four pictures, and its store."""
    raw = draw_tree(tmp_path / "raw", ["ant/1.png", "ant/2.png", "bee/1.png", "bee/2.png"])
    (raw / "bee/3.png").write_bytes(b"no picture")
    build(raw, tmp_path / "out", Recipe(size=8, fit="crop"), worker_count=1, rejects_max=1)
    return raw, tmp_path / "out"


def test_a_store_matches_what_it_was_built_from(mine):
    """Also what could not be packed then, and cannot be now."""
    raw, out = mine
    done = []
    report = verify(out, against=raw, on_progress=done.append)
    assert report.problems == []
    assert report.summary().endswith(f"all good; it matches {raw}")
    assert sum(done) == 2 * 4
    assert verify(out, level="quick", against=raw).is_good


@pytest.mark.parametrize(
    "choice",
    [
        {"limit": 3},
        {"include": ("ant/*",)},
        {"exclude": ("*1.png",)},
        {"splits": (("train", 0.5), ("val", 0.5)), "stratify": True},
        {"shuffle": 7},
    ],
    ids=lambda choice: next(iter(choice)),
)
def test_a_store_of_chosen_items_matches_what_it_was_chosen_from(tmp_path, draw_tree, choice):
    """What its recipe left out is not missing, and its order is not the raw data's."""
    names = [f"{name}/{number}.png" for name in ("ant", "bee") for number in range(4)]
    raw, out = draw_tree(tmp_path / "raw", names), tmp_path / "out"
    build(raw, out, Recipe(size=8, fit="crop", **choice), worker_count=1)
    assert verify(out, against=raw).problems == []
    assert verify(out, level="quick", against=raw).problems == []
    if "limit" not in choice:
        draw_tree(raw, ["ant/2new.png"])
        assert verify(out, against=raw).added == ["ant/2new.png"]


def test_raw_items_that_were_added_removed_or_changed_are_named(mine, draw_tree, picture):
    """Content decides: a file of another name, another content, and one that can be packed now."""
    raw, out = mine
    Image.fromarray(picture("x")).save(raw / "bee/3.png")
    draw_tree(raw, ["ant/3.png"])
    (raw / "ant/1.png").unlink()
    data = bytearray((raw / "bee/2.png").read_bytes())
    (raw / "bee/2.png").write_bytes(data[:100])
    before = (raw / "ant/2.png").stat()
    Image.fromarray(picture("other")).save(raw / "ant/2.png")
    os.utime(raw / "ant/2.png", ns=(before.st_atime_ns, before.st_mtime_ns))
    report = verify(out, against=raw)
    assert report.added == ["ant/3.png", "bee/3.png"]
    assert report.removed == ["ant/1.png"]
    assert report.changed.keys() == {"ant/2.png", "bee/2.png"}
    assert report.changed["ant/2.png"] == "another image"
    assert report.changed["bee/2.png"].startswith("it could not be packed any more: ")
    assert len(report.problems) == 5
    assert f"added in {raw}: 'ant/3.png' is not in the store" in report.problems
    assert report.as_dict()["changed"] == report.changed
    assert report.damaged == []
    quick = verify(out, level="quick", against=raw)
    assert (quick.added, quick.removed) == (["ant/3.png"], ["ant/1.png"])


def test_a_quick_look_at_the_raw_data_tells_that_a_size_changed(mine, picture):
    """Names and sizes are what a scan knows."""
    raw, out = mine
    Image.fromarray(picture("x")[:4]).save(raw / "bee/2.png")
    (problem,) = verify(out, level="quick", against=raw).problems
    assert problem.startswith(f"{raw}: sizes of files, their order, labels or annotations are not")


def test_a_class_that_changed_its_number_alone_is_no_change_of_samples(mine, draw_tree):
    """Labels are compared by name; that the class list is another one is said once."""
    raw, out = mine
    draw_tree(raw, ["aardvark/1.png"])
    report = verify(out, against=raw)
    assert report.added == ["aardvark/1.png"]
    assert report.changed == {}
    assert any("the field 'label' would be " in problem for problem in report.problems)


def test_the_options_of_the_build_are_used_again(tmp_path, draw_tree):
    """The manifest records them; the folder of a list has to be given where it was not its own."""
    names = ["a/1.png", "a/2.png", "b/1.png"]
    root = draw_tree(tmp_path / "pictures", names)
    (tmp_path / "list.csv").write_text("path,label\na/1.png,0\na/2.png,1\nb/1.png,1\n")
    options = SourceOptions(format="csv", root=root, classes=("x", "y", "z"), label_is_index=True)
    build(tmp_path / "list.csv", tmp_path / "out", source=options, worker_count=1)
    found = read_manifest(tmp_path / "out").source.options
    assert found == {"classes": ["x", "y", "z"], "label_is_index": True}
    report = verify(tmp_path / "out", against=tmp_path / "list.csv", root=root)
    assert report.problems == []


def test_what_was_made_of_no_raw_data_is_not_held_against_any(shards, raw, tmp_path):
    """A subset comes from a store."""
    subset(shards, tmp_path / "out", limit=2)
    with pytest.raises(SourceError, match="made by 'subset', which reads no raw folder or list"):
        verify(tmp_path / "out", against=raw)


def test_the_command_says_all_that_is_wrong(copy, packer, raw):
    """Exit status 1, problems on stdout, the report as JSON."""
    good = packer("verify", copy, "--full", "--against", raw, "--workers", "1")
    assert (good.returncode, good.stderr) == (0, "")
    assert f"all good, every field decoded; it matches {raw}" in good.stdout
    flip(copy / "shard-00002.lmdb", int(open_store(copy).shard(2).offsets[1]) + 1000)
    bad = packer("verify", copy, "--json")
    assert (bad.returncode, bad.stderr) == (1, "")
    (damaged,) = json.loads(bad.stdout)["damaged"]
    assert (damaged["index"], damaged["key"]) == (7, "bee/3.png")
    assert packer("verify", copy, "--quick").returncode == 0
    assert packer("verify", copy, "--quick", "--full").returncode == 2
    assert packer("verify", copy, "--root", raw).returncode == 2


def test_what_is_no_store_is_an_error(tmp_path, copy):
    """There is nothing to verify: neither good nor bad."""
    with pytest.raises(StoreNotFoundError):
        verify(tmp_path / "none")
    (copy / "manifest.json").unlink()
    with pytest.raises(StoreIncompleteError):
        verify(copy)
