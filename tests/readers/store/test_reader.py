"""An opened store finds its samples, opens what is asked for, and is shared by all its users."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from readers.store.errors import ShardError, StoreIncompleteError, StoreNotFoundError
from readers.store.layout import shard_name
from readers.store.manifest import publish_manifest
from readers.store.reader import StoreReader, open_store
from readers.store.record import RecordReader
from tests.readers.store.making import (
    FIXED,
    VARIABLE,
    assert_same_value,
    make_manifest,
    sample_of,
    samples_of,
    write_shard,
    write_store,
)

COUNTS = (7, 1, 12, 5)


@pytest.fixture
def path(tmp_path) -> Path:
    return write_store(tmp_path / "out.lmdb", VARIABLE, COUNTS)


def mapped_shards(path: Path) -> list[int]:
    """Numbers of the shards of a store that this process has mapped, whatever it is called now."""
    inodes = {os.stat(path / shard_name(n)).st_ino: n for n in range(len(COUNTS))}
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        *_, inode = line.split(maxsplit=5)[:5]
        if int(inode) in inodes and line.rstrip().endswith(".lmdb"):
            found.append(inodes[int(inode)])
    return sorted(found)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_each_sample_is_found_in_its_shard(path):
    """Positions count on over the shards, in the manifest's order."""
    store = open_store(path)
    reader = RecordReader(store.layout)
    assert store.first_samples.tolist() == [0, 7, 8, 20, 25]
    for at in range(sum(COUNTS)):
        key, values = sample_of(VARIABLE, at)
        shard, position = store.locate(at)
        number = sum(at >= first for first in (7, 8, 20))
        assert shard is store.shard(number)
        assert shard.path == path / shard_name(number)
        assert position == at - (0, 7, 8, 20)[number]
        assert store.find(key) == at
        for name, value in reader.unpack(shard.record(position)).items():
            assert_same_value(VARIABLE[name], value, values[name])
    assert store.find(b"raw/000025.jpg") is None
    assert [shard.path.name for shard in store.shards()] == [shard_name(n) for n in range(4)]


@pytest.mark.parametrize("counts", [COUNTS, (25,)])
def test_starts_of_many_records_are_those_of_each(counts, tmp_path):
    """One gather copies from these places: they are exact, in any order and with repeats."""
    store = open_store(write_store(tmp_path / "out.lmdb", VARIABLE, counts))
    rng = np.random.default_rng(1)
    for indices in (
        np.arange(25),
        rng.permutation(25),
        rng.integers(0, 25, 300),
        np.array([24]),
        np.array([7, 6, 8, 19, 20]),
        np.array([], np.int64),
    ):
        located = store.located(indices)
        records, lengths = located.records(), located.lengths()
        part = located.within(np.arange(len(indices)) % 3, 5)
        pieces, inner = store.bytes.fetch([records, part])
        assert pieces.starts.dtype == lengths.dtype == np.int64
        assert pieces.starts.shape == lengths.shape == indices.shape
        for at, index in enumerate(indices.tolist()):
            shard, position = store.locate(index)
            record, start = shard.record(position), int(pieces.starts[at])
            assert pieces.memory[start : start + lengths[at]].tobytes() == bytes(record)
            start = int(inner.starts[at])
            expected = bytes(record[at % 3 : at % 3 + 5])
            assert inner.memory[start : start + 5].tobytes() == expected
            number = int(store.first_samples.searchsorted(index, side="right")) - 1
            assert records.shards[at] == number
            assert records.offsets[at] == shard.offsets[position]


def test_shards_are_opened_when_they_are_asked_for(path):
    """A process that reads some samples maps their shards and no others."""
    store = open_store(path)
    assert mapped_shards(path) == []
    store.locate(7)
    assert mapped_shards(path) == [1]
    store.located(np.array([21, 24])).records()
    assert mapped_shards(path) == [1, 3]
    store.find(sample_of(VARIABLE, 9)[0])
    assert mapped_shards(path) == [0, 1, 2, 3]


def test_a_shard_is_opened_once_however_many_threads_ask_at_once(path, monkeypatch):
    """To map a file again where another thread reads it would end the process."""
    opened = []
    really_open = StoreReader._open

    def open_slowly(self: StoreReader, number: int) -> object:
        opened.append(number)
        time.sleep(0.01)
        return really_open(self, number)

    monkeypatch.setattr(StoreReader, "_open", open_slowly)
    for _ in range(5):
        store = StoreReader(path, open_store(path).manifest)
        barrier = threading.Barrier(8)

        def ask(store: StoreReader = store, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(10)
            store.located(np.arange(25)).records()

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(opened) == [0, 1, 2, 3]
        opened.clear()


def test_a_column_of_many_samples_is_that_of_each(path):
    """One look-up over all shards, also where a short index array has no aligned place."""
    store = open_store(path)
    indices = np.array([24, 0, 7, 7, 8, 19, 20, 3])
    for name in [item.name for item in store.layout.columns]:
        expected = []
        for index in indices.tolist():
            shard, position = store.locate(index)
            expected.append(shard.columns[name][position])
        found = store.located(indices).column(name)
        assert found.dtype == expected[0].dtype
        assert found.tolist() == [value.item() for value in expected]
    with pytest.raises(KeyError):
        store.located(indices).column("absent")


def test_a_store_costs_no_descriptors_and_goes_with_its_last_user(path):
    """Training opens many stores; none of them may hold files open or stay mapped."""
    before = descriptors()
    store = open_store(path)
    list(store.shards())
    assert descriptors() == before
    assert mapped_shards(path) == [0, 1, 2, 3]
    record = store.locate(3)[0].record(3)
    kept = bytes(record)
    del store
    gc.collect()
    assert bytes(record) == kept  # Who has bytes of a shard is a user of it.
    assert mapped_shards(path) == [0, 1, 2, 3]
    del record
    gc.collect()
    assert mapped_shards(path) == []
    assert descriptors() == before


def test_all_users_share_one_handle_whatever_path_leads_to_it(path, tmp_path, monkeypatch):
    """Several datasets of a process, over one store, map it once."""
    store = open_store(path)
    link = tmp_path / "link.lmdb"
    link.symlink_to(path)
    monkeypatch.chdir(tmp_path)
    for other in (path, str(path), "out.lmdb", "./out.lmdb", "link.lmdb", link, f"{path}/", Path()):
        if other == Path():
            monkeypatch.chdir(path)
        assert open_store(other) is store
    copy = shutil.copytree(path, tmp_path / "copy.lmdb")
    assert open_store(copy) is not store


def test_a_relative_path_goes_on_meaning_the_same_folder(path, tmp_path, monkeypatch):
    """A process may change its folder before it opens a shard for the first time."""
    monkeypatch.chdir(tmp_path)
    store = open_store("out.lmdb")
    assert store.path == path
    monkeypatch.chdir("/")
    assert store.shard(2).find(sample_of(VARIABLE, 9)[0]) == 1


def test_a_link_that_is_set_to_another_store_does_not_mix_them(path, tmp_path):
    """`current.lmdb` is switched to a new build while a job is reading the old one."""
    new = write_store(tmp_path / "new.lmdb", FIXED, (3, 4))
    link = tmp_path / "current.lmdb"
    link.symlink_to(path)
    store = open_store(link)
    store.shard(0)
    link.unlink()
    link.symlink_to(new)
    assert store.shard(2).find(sample_of(VARIABLE, 9)[0]) == 1
    assert open_store(link) is not store
    assert open_store(link).manifest.sample_count == 7


def test_a_store_that_took_the_place_of_another_is_another(path):
    """A path is not an identity: what is there now counts, and old users keep what they have."""
    old = open_store(path)
    lengths = old.shard(0).lengths.tolist()
    os.rename(path, path.with_name("old.lmdb"))
    write_store(path, FIXED, (3, 4))
    new = open_store(path)
    assert new is not old
    assert new.manifest.sample_count == 7
    assert new.find(sample_of(FIXED, 6)[0]) == 6
    assert old.shard(0).lengths.tolist() == lengths


def test_a_store_opened_again_after_its_last_user_is_a_new_handle(path):
    """Nothing keeps a store open but its users."""
    first = open_store(path)
    first.shard(0)
    address = id(first)
    del first
    gc.collect()
    assert mapped_shards(path) == []
    second = open_store(path)
    assert second.shard(0).find(sample_of(VARIABLE, 3)[0]) == 3
    assert address  # The new one may have the old one's address; it must have its own maps.
    assert mapped_shards(path) == [0]


def test_a_broken_shard_is_an_error_of_that_shard_alone(path):
    """The rest of the store can be read, and asking again gives the same answer."""
    os.truncate(path / shard_name(2), 4096)
    store = open_store(path, checks_files=False)
    before = descriptors()
    for _ in range(2):
        with pytest.raises(ShardError, match=f"^{path / shard_name(2)}: 4096 bytes, expected"):
            store.locate(10)
        with pytest.raises(ShardError, match=shard_name(2)):
            store.located(np.array([0, 10])).records()
        with pytest.raises(ShardError, match=shard_name(2)):
            store.find(b"absent")
    assert descriptors() == before
    assert store.find(sample_of(VARIABLE, 3)[0]) == 3
    assert store.located(np.array([24, 0])).lengths().shape == (2,)


def test_a_store_that_is_not_all_there_is_refused_when_it_is_opened(path):
    """The error says which shards, how many of how many, and what to do; a whole one is opened."""
    open_store(path)
    (path / shard_name(0)).unlink()
    os.truncate(path / shard_name(1), 8192)
    (path / shard_name(3)).rename(path / "aside")
    (path / shard_name(3)).symlink_to("aside")
    with pytest.raises(ShardError) as caught:
        open_store(path)
    assert str(caught.value).startswith(
        f"{path}: 3 of 4 shards are not there as the manifest says: "
        f"{path / shard_name(0)}: missing; {path / shard_name(1)}: 8192 bytes, expected "
    )
    link = f"{path / shard_name(3)}: a symbolic link. Is the store still being copied?"
    assert link in str(caught.value)
    assert str(caught.value).endswith(f"packer verify {path}")
    assert caught.value.path == path / shard_name(0)


def test_opening_looks_once_at_each_shard_or_not_at_all(path, monkeypatch):
    """One stat a shard, which a user of thousands on a slow mount can leave out."""
    looked: list[str] = []
    lstat = os.lstat

    def counted(name: os.PathLike[str], **options: object) -> os.stat_result:
        if Path(name).name.startswith("shard"):  # A path is resolved by looks at its folders.
            looked.append(Path(name).name)
        return lstat(name)

    monkeypatch.setattr("readers.store.shard_files.os.lstat", counted)
    open_store(path)
    assert looked == [shard_name(n) for n in range(len(COUNTS))]
    looked.clear()
    open_store(path, checks_files=False)
    assert looked == []


def test_shards_that_changed_places_are_refused(tmp_path):
    """Of two equally long shards under each other's name, neither is read."""
    path = write_store(tmp_path / "out.lmdb", FIXED, (9, 9))
    a, b = path / shard_name(0), path / shard_name(1)
    assert a.stat().st_size == b.stat().st_size
    a.rename(path / "aside")
    b.rename(a)
    (path / "aside").rename(b)
    for number in (0, 1):
        with pytest.raises(ShardError, match=f"^{path / shard_name(number)}: identity "):
            open_store(path).shard(number)


def test_a_size_beyond_all_addresses_is_an_error_of_that_shard(tmp_path):
    """A crafted manifest claims any size; it must not look as if this machine were too small."""
    path = tmp_path / "out.lmdb"
    path.mkdir()
    info = write_shard(path / shard_name(0), FIXED, samples_of(FIXED, range(3)))
    crafted = msgspec.structs.replace(info, bytes=2**47)
    publish_manifest(path, make_manifest(FIXED, [crafted]))
    with pytest.raises(ShardError, match=rf"{shard_name(0)}: {info.bytes} bytes, expected {2**47}"):
        open_store(path)


def test_a_folder_that_is_no_store_is_refused(tmp_path):
    """The manifest's errors come out as they are."""
    with pytest.raises(StoreNotFoundError):
        open_store(tmp_path / "absent")
    with pytest.raises(StoreIncompleteError):
        open_store(tmp_path)


def test_a_store_without_samples_can_be_opened(tmp_path):
    """It finds nothing, and says so without an error."""
    publish_manifest(tmp_path, make_manifest(VARIABLE, []))
    store = open_store(tmp_path)
    assert store.find(b"key") is None
    assert store.located(np.array([], np.int64)).lengths().tolist() == []
    assert list(store.shards()) == []


def read_in_child(path: Path, inherited: StoreReader | None) -> list[object]:
    """What a child process finds: bytes of records by the inherited handle and by its own."""
    store = inherited or open_store(path)
    assert inherited is None or open_store(path) is inherited
    return [bytes(store.locate(at)[0].record(store.locate(at)[1])) for at in range(sum(COUNTS))]


def _send(pipe, path: Path, inherited: StoreReader | None) -> None:
    pipe.send(read_in_child(path, inherited))


@pytest.mark.parametrize("opened", [[], [0], [0, 1, 2, 3]])
def test_a_forked_child_goes_on_with_the_handle_of_its_parent(opened, path):
    """Loader workers are forked from a process that has the store open, in part or in whole."""
    store = open_store(path)
    for number in opened:
        store.shard(number)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_send, args=(theirs, path, store))
    child.start()
    assert ours.poll(60)
    found = ours.recv()
    child.join(60)
    assert child.exitcode == 0
    assert mapped_shards(path) == opened
    assert found == read_in_child(path, store)


def test_a_shard_may_have_any_plain_name(tmp_path):
    """The manifest says which files there are, in which order."""
    path = tmp_path / "out.lmdb"
    path.mkdir()
    shards = [
        write_shard(path / f"shard-{name}.lmdb", FIXED, samples_of(FIXED, numbers))
        for name, numbers in (("z", range(3)), ("a-1", range(3, 5)))
    ]
    publish_manifest(path, make_manifest(FIXED, shards))
    store = open_store(path)
    assert [store.find(sample_of(FIXED, at)[0]) for at in range(6)] == [0, 1, 2, 3, 4, None]
