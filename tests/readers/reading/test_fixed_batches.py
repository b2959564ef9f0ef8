"""Batches of fields of one size: the same values as ever, and next to nothing but their copy."""

from __future__ import annotations

import sys
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch

from readers import make_loader
from readers.dataset import LMDBDataset
from readers.reading.batch_reader import BatchReader
from readers.reading.buffers import take_plain
from readers.reading.filling import StoreFiller
from readers.stats import Watch
from readers.store import sample_table
from readers.store.errors import ShardError
from readers.store.sample_table import SampleTable
from readers.store.schema import Field

FIELDS = [
    Field(name="image", kind="image", dtype="uint8", shape=(4, 5, 3), codec="raw"),
    Field(name="depth", kind="array", dtype="float32", shape=(2, 3)),
    Field(name="label", kind="label", dtype="int16"),
    Field(name="flag", kind="scalar", dtype="bool"),
    Field(name="side", kind="scalar", dtype="uint8", names=("left", "right")),
]
COUNT = 400


def drawn(count):
    """Samples whose values tell which they are."""
    generator = np.random.default_rng(count)
    return [
        {
            "image": generator.integers(0, 256, (4, 5, 3), dtype=np.uint8),
            "depth": generator.normal(size=(2, 3)).astype(np.float32),
            "label": at,
            "flag": at % 3 == 0,
            "side": at % 2,
        }
        for at in range(count)
    ]


@pytest.fixture(scope="module")
def stores(tmp_path_factory, request):
    """The same samples in one shard, and in forty."""
    write = request.getfixturevalue("write_store")
    folder = tmp_path_factory.mktemp("fixed")
    one = write(folder / "one", FIELDS, drawn(COUNT))
    return one, write(folder / "many", FIELDS, drawn(COUNT), [10] * 40)


def is_same(column, values):
    """Whether a field of a batch is the same as that of single samples, types included."""
    if isinstance(column, list):
        return column == values
    if column.ndim == 1:
        return column.tolist() == values
    return torch.equal(column, torch.stack([torch.as_tensor(value) for value in values]))


@pytest.mark.parametrize("image_as", ["tensor", "numpy"])
def test_batches_have_the_values_of_single_samples(stores, image_as):
    """In any order, repeated, across shards; of a part of the samples; with few fields or all."""
    order = np.random.default_rng(0).integers(0, 150, 64)
    for path in stores:
        for names in (None, ["label"], ["depth", "side"], ["image"]):
            dataset = LMDBDataset(path, fields=names, image_as=image_as)
            for part in (dataset, dataset.select(np.arange(COUNT)[::-2])):
                reader = BatchReader(part.view)
                assert reader._fixed_batches is not None
                for indices in (order, order[:1], np.array([0, 149])):
                    batch = reader.read(indices).collated()
                    singles = [part[at] for at in indices.tolist()]
                    assert list(batch) == list(singles[0])
                    for name, column in batch.items():
                        assert is_same(column, [sample[name] for sample in singles]), name


def test_a_store_of_more_samples_than_the_table_takes_is_read_as_well(stores, monkeypatch):
    """Then the index of each shard serves, and no other batch comes of it."""
    order = np.random.default_rng(1).permutation(COUNT)
    found = BatchReader(LMDBDataset(stores[1]).view).read(order).collated()
    monkeypatch.setattr(sample_table, "SAMPLES_MAX", COUNT - 1)
    reader = BatchReader(LMDBDataset(stores[1]).view)
    assert reader._fixed_batches is None
    for name, column in reader.read(order).collated().items():
        assert is_same(column, found[name].tolist() if name in ("label", "flag") else found[name])


def test_a_missing_shard_is_met_where_it_is_asked_for(tmp_path, write_store):
    """Shards are opened as their samples come: one that is gone is no error of others."""
    folder = write_store(tmp_path / "s", FIELDS, drawn(30), [10, 10, 10])
    (folder / "shard-00001.lmdb").unlink()
    reader = BatchReader(LMDBDataset(folder, checks_files=False).view)
    for _ in range(2):
        batch = reader.read(np.array([29, 0, 9, 20])).collated()
        assert batch["label"].tolist() == [29, 0, 9, 20]
        with pytest.raises(ShardError, match=r"shard-00001\.lmdb"):
            reader.read(np.array([0, 10]))


def test_threads_that_begin_at_once_have_right_batches(stores):
    """Each finds the table as another is filling it."""
    orders = [np.random.default_rng(at).integers(0, COUNT, 50) for at in range(64)]
    for _ in range(5):
        dataset = LMDBDataset(stores[1], fields=["image", "label"])
        reader = BatchReader(dataset.view)
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda order, by=reader: by.read(order).collated(), orders))
        for order, batch in zip(orders, found, strict=True):
            assert batch["label"].tolist() == order.tolist()
        dataset.close()


def test_a_shard_that_is_half_taken_in_is_not_taken_for_whole(stores):
    """Where one thread has written the first of a shard's numbers, another reads no zeros."""
    store = LMDBDataset(stores[1]).view.store
    whole, halfway = SampleTable(store, ["label"]), SampleTable(store, ["label"])
    positions = np.arange(COUNT)
    expected = whole.starts(positions)
    halfway._starts[::10] = expected[::10]
    assert halfway.starts(positions).tolist() == expected.tolist()
    assert halfway.columns["label"].tolist() == positions.tolist()


def test_numbers_that_were_read_before_the_table_was_whole_are_read_again(stores):
    """Where another thread takes in the last shard between this one's look and its question."""
    table = SampleTable(LMDBDataset(stores[1]).view.store, ["label"])
    positions = np.arange(COUNT)

    class Overtaken:
        """Starts that another thread fills right after they were first read."""

        def take(self, wanted):
            found = starts.take(wanted)
            table._starts = starts
            table.starts(positions)
            return found

    starts, table._starts = table._starts, Overtaken()
    assert table.starts(positions).all()


def test_the_store_goes_with_its_last_reader(stores):
    """Nothing that is worked out for a view keeps the store mapped, not even for a moment."""
    dataset = LMDBDataset(stores[0])
    store = weakref.ref(dataset.view.store)
    dataset.__getitems__([3, 4])
    dataset.close()
    assert store() is None


def calls(function):
    """How many functions it calls: Python's, and native ones."""
    counts = {"call": 0, "c_call": 0}

    def count(_frame, event, _argument):
        if event in counts:
            counts[event] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return counts["call"], counts["c_call"]


def filled(path, size):
    """A function that fills a batch of a size as engines do; it has done so for a while."""
    filler = StoreFiller(LMDBDataset(path, returns=("image", "label")).view)
    orders = [np.random.default_rng(at).integers(0, COUNT, size) for at in range(2)]
    orders += [np.arange(COUNT)]

    def fill():
        return filler.fill(orders[0], 0, take_plain, Watch())

    for order in orders * 20:  # Until all shards are known, and known to be cached.
        filler.fill(order, 0, take_plain, Watch())
    return fill


def test_a_batch_takes_few_calls_however_many_samples_and_shards(stores):
    """What does not change between batches is not worked out again: calls are counted, not time."""
    counted = {calls(filled(path, size)) for path in stores for size in (1, 20, 400)}
    assert len(counted) == 1
    ((python_count, native_count),) = counted
    assert python_count <= 18
    assert native_count <= 24


def test_a_single_sample_takes_few_calls_however_many_shards(stores):
    """What does not change between samples is not worked out again: calls are counted, not time."""
    for form, python_max, native_max in (("returns", 3, 7), ("fields", 4, 6)):
        for path in stores:
            dataset = LMDBDataset(path, **{form: ("image", "label")})
            for at in range(COUNT):
                dataset[at]
            counted = {calls(partial(dataset.__getitem__, at)) for at in range(COUNT)}
            assert len(counted) == 1
            ((python_count, native_count),) = counted
            assert python_count <= python_max
            assert native_count <= native_max


def test_a_step_of_a_loop_without_workers_takes_few_calls(stores):
    """From the order to the batch in the user's hands: by itself, and as one of several."""
    dataset = LMDBDataset(stores[1], returns=("image", "label"))
    loader = make_loader(dataset, 8, train=False, workers=0)
    assert loader.engine._group_count == 32
    for group_count, python_max, native_max in ((1, 26, 40), (32, 14, 24)):
        loader.engine._group_count = group_count
        for _ in range(2):
            list(loader)
        batches = iter(loader)
        for _ in range(32):
            next(batches)
        counted = [calls(partial(next, batches)) for _ in range(50 - 32)]
        python_count, native_count = np.mean(counted, axis=0)
        assert python_count <= python_max
        assert native_count <= native_max


class Noting(np.ndarray):
    """Bytes that note which of them are asked for one by one."""

    taken: list[np.ndarray]

    def take(self, places):
        self.taken.append(places)
        return np.asarray(self).take(places)


@pytest.mark.parametrize(("side", "size", "is_looked_up"), [(32, 9, True), (4, 9, False)])
def test_pages_of_records_that_are_cached_are_looked_up_before_the_copy(
    tmp_path, write_store, side, size, is_looked_up
):
    """One byte of each record of a batch, where the copy of a record is long enough to gain."""
    image = Field(name="image", kind="image", dtype="uint8", shape=(side, side, 3), codec="raw")
    samples = [{"image": np.full((side, side, 3), at, np.uint8)} for at in range(20)]
    view = LMDBDataset(write_store(tmp_path / "s", [image], samples, (7, 13))).view
    memory = view.store.bytes.memory.view(Noting)
    memory.taken = []
    view.store.bytes.memory = memory
    filler, order = StoreFiller(view), np.random.default_rng(1).permutation(20)[:size]
    for _ in range(100):
        batch = filler.fill(order, 0, take_plain, Watch())
        assert batch["image"][:, 0, 0, 0].tolist() == order.tolist()
    looked_up = memory.taken[-1:]
    assert bool(looked_up) == is_looked_up
    for places in looked_up:
        assert np.asarray(memory)[places].tolist() == order.tolist()


def test_batches_that_are_filled_together_are_those_that_come_one_by_one(stores):
    """In order, the last smaller; and a state taken in mid-group goes on with the next batch."""
    dataset = LMDBDataset(stores[1])
    loader = make_loader(dataset, 7, train=True, workers=0, drop_last=False)
    together = [batch["label"].tolist() for batch in loader]
    loader.engine._group_count = 1
    loader.set_epoch(0)
    one_by_one, states = [], []
    for batch in loader:
        one_by_one.append(batch["label"].tolist())
        states.append(loader.state_dict())
    assert together == one_by_one
    again = make_loader(dataset, 7, train=True, workers=0, drop_last=False)
    again.load_state_dict(states[4])
    first, *_, last = again
    assert (first["label"].tolist(), last["label"].tolist()) == (together[5], together[-1])
    batches = iter(make_loader(dataset, 7, train=True, workers=0, drop_last=False))
    kept = [next(batches) for _ in range(3)]
    for batch, label in zip(kept, together, strict=False):
        assert batch["label"].tolist() == label
        assert batch["label"].untyped_storage().nbytes() == 2 * 7


def test_a_loop_without_workers_keeps_its_memory_between_epochs(tmp_path, write_store):
    """Fresh memory takes longer than to fill it; closing the loader lets go of it."""
    fields = [Field(name="image", kind="image", dtype="uint8", shape=(64, 64, 3), codec="raw")]
    samples = [{"image": np.full((64, 64, 3), at, np.uint8)} for at in range(40)]
    dataset = LMDBDataset(write_store(tmp_path / "s", fields, samples))
    loader = make_loader(dataset, 10, train=False, workers=0)
    for _ in range(3):
        assert sum(len(batch["image"]) for batch in loader) == 40
    assert sum(pool.made_count for pool in loader.engine._pools.values()) <= 2
    loader.close()
    assert not loader.engine._pools


def test_a_batch_takes_little_memory_beside_its_own(stores):
    """A few numbers a sample: where it is and where it begins, for the time of the call."""
    fill = filled(stores[1], COUNT)
    tracemalloc.start()
    try:
        fill()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        batch = fill()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del batch
    assert peak - before <= 48 * COUNT + 8192
    assert after - before <= 8 * COUNT + 4096
