"""make_loader gives torch's own DataLoader, with settings that fit and nothing to fall over."""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import threading
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, SequentialSampler, Subset, get_worker_info

import readers.loader.make
from readers.dataset import LMDBDataset
from readers.engines.processes import ProcessEngine
from readers.engines.threads import ThreadEngine
from readers.loader.make import LoaderConfig
from readers.ops import RandomFlip, RandomResizedCrop
from readers.reading.collate import collate
from readers.store.errors import ShardError
from readers.store.schema import Field


@pytest.fixture
def make_loader():
    """make_loader; what it made is closed in the end, and nothing is left of it."""
    made = []

    def make(*arguments, **settings):
        made.append(readers.loader.make.make_loader(*arguments, **settings))
        return made[-1]

    yield make
    for loader in made:
        loader.close()
    assert not multiprocessing.active_children()
    deadline = time.monotonic() + 10
    while any(thread.name.startswith("loader") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def dataset(shapes):
    """12 samples: key, image, label."""
    return LMDBDataset(shapes.path, returns=("key", "image", "label"))


def keys_of(loader):
    """The keys of each batch of an epoch."""
    return [batch[0] for batch in loader]


def flat(batches):
    return [key for batch in batches for key in batch]


def test_it_is_a_dataloader_of_torch(dataset, make_loader):
    """Whatever takes a DataLoader takes this."""
    loader = make_loader(dataset, 5, train=True, workers=0)
    assert isinstance(loader, DataLoader)
    assert loader.dataset is dataset
    assert loader.batch_size == 5


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("batch_size", "settings", "sizes"),
    [
        (5, {"train": True}, [5, 5]),
        (5, {"train": False}, [5, 5, 2]),
        (5, {"train": True, "drop_last": False}, [5, 5, 2]),
        (5, {"train": False, "drop_last": True}, [5, 5]),
        (6, {"train": True}, [6, 6]),
        (100, {"train": False}, [12]),
    ],
)
def test_training_drops_the_last_short_batch_and_evaluation_keeps_it(
    dataset, workers, batch_size, settings, sizes, make_loader
):
    """len(loader) says how many batches there are, and so many come."""
    loader = make_loader(dataset, batch_size, workers=workers, **settings)
    assert len(loader) == len(sizes)
    batches = keys_of(loader)
    assert [len(batch) for batch in batches] == sizes
    assert len(set(flat(batches))) == sum(sizes)


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_goes_in_the_order_of_the_dataset(dataset, same, workers, make_loader):
    """Each batch is the samples of the dataset that follow, joined."""
    loader = make_loader(dataset, 5, train=False, workers=workers)
    for _ in range(2):
        for number, batch in enumerate(loader):
            indices = range(number * 5, min(number * 5 + 5, 12))
            assert isinstance(batch, tuple)
            assert same(batch, collate([dataset[at] for at in indices]))
            assert batch[1].is_contiguous(memory_format=torch.channels_last)


def test_training_shuffles_anew_in_each_epoch_and_alike_for_a_seed(dataset, make_loader):
    """The order follows from the seed alone, however many workers read it."""
    epochs = {}
    for workers in (0, 2):
        loader = make_loader(dataset, 4, train=True, workers=workers, seed=3)
        epochs[workers] = [flat(keys_of(loader)) for _ in range(3)]
    assert epochs[0] == epochs[2]
    orders = [
        *epochs[0],
        flat(keys_of(make_loader(dataset, 4, train=True, workers=0, seed=4))),
        flat(keys_of(make_loader(dataset, 4, train=False, workers=0, seed=3))),
    ]
    assert len({tuple(order) for order in orders}) == 5
    assert len({frozenset(order) for order in orders}) == 1


def test_a_sampler_takes_the_place_of_the_order(dataset, make_loader):
    """What it yields is read, shuffled by nobody; only the short batch depends on `train`."""
    order = [7, 0, 11, 7, 3]
    loader = make_loader(dataset, 2, train=True, workers=0, sampler=order)
    assert keys_of(loader) == [[dataset.key_of(at) for at in part] for part in ([7, 0], [11, 7])]
    loader = make_loader(dataset, 8, train=False, workers=0, sampler=SequentialSampler(dataset))
    assert flat(keys_of(loader)) == [dataset.key_of(at) for at in range(12)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 13}, r"12 samples are fewer than one batch of 13.*drop_last=False"),
        ({"batch_size": 3, "sampler": [1, 2]}, "2 samples are fewer than one batch of 3"),
        ({"batch_size": 3, "sampler": []}, "there is no sample to load"),
        ({"batch_size": 0}, "batch_size must be at least 1; got 0"),
        ({"batch_size": 4, "workers": -1}, "workers must be at least 0; got -1"),
    ],
)
def test_what_would_load_nothing_is_an_error_at_once(dataset, settings, message, make_loader):
    """An epoch of no batches would pass for training; the message has the numbers."""
    with pytest.raises(ValueError, match=message):
        make_loader(dataset, train=True, **{"workers": 0, **settings})


@pytest.mark.parametrize("train", [True, False])
def test_an_empty_dataset_is_an_error_that_names_it(dataset, train, make_loader):
    """An empty split or filter is a mistake that is found before the first epoch."""
    with pytest.raises(ValueError, match=r"shapes.lmdb'\): 0 samples of key.*no sample to load"):
        make_loader(dataset.select([]), 1, train=train, workers=0)
    assert len(make_loader(dataset.select([1]), 4, train=False, workers=0)) == 1


@pytest.mark.parametrize(
    ("batch_size", "train", "text"),
    [
        (
            5,
            True,
            "training ready: 2 batches of 5, the last 2 samples of an epoch dropped; "
            "0 loader workers",
        ),
        (
            5,
            False,
            "evaluation ready: 3 batches of 5, the last of 2; 0 loader workers",
        ),
        (
            4,
            True,
            "training ready: 3 batches of 4; 0 loader workers",
        ),
        (
            100,
            False,
            "evaluation ready: 1 batches of 100, the last of 12; 0 loader workers",
        ),
    ],
)
def test_its_first_line_of_log_says_how_many_batches_there_are(
    dataset, caplog, monkeypatch, batch_size, train, text, make_loader
):
    """Who reads the log of a run sees what an epoch was."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with caplog.at_level(logging.INFO, "readers.loader"):
        make_loader(dataset, batch_size, train=train, workers=0)
    why = " (key differ in size between samples)"
    assert [record.getMessage() for record in caplog.records] == [text + why]


@pytest.mark.parametrize("count", [0, 1, 7])
def test_settings_follow_from_the_workers(monkeypatch, count):
    """As many as fit the machine unless others are asked for; without any, nothing is ahead."""
    monkeypatch.setattr(readers.loader.make, "loader_worker_count", lambda: count)
    for config in (LoaderConfig.tuned(), LoaderConfig.tuned(count)):
        assert config.workers == count
        assert config.prefetch_factor == (2 if count else None)
        assert config.persistent_workers == (count > 0)
        assert config.pin_memory == torch.cuda.is_available()


def test_workers_follow_from_this_machine(shapes, run_python):
    """On one core of eight ranks there is nothing to share out: this process loads."""
    code = """
import json, os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from readers import LMDBDataset, make_loader
dataset, found = LMDBDataset(sys.argv[1], returns=("label",)), []
for rank_count in ("1", "8"):
    os.environ["LOCAL_WORLD_SIZE"] = rank_count
    loader = make_loader(dataset, 4, train=False)
    found.append([loader.num_workers, [batch[0].tolist() for batch in loader]])
print(json.dumps(found))
"""
    labels = [[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]]
    assert run_python(code, shapes.path) == [[1, labels], [0, labels]]


def collated_with_facts(samples):
    """A batch, and for each of its tensors: is it in shared memory already, and in how much."""
    batch = collate(samples)
    assert get_worker_info() is not None
    facts = [(value.is_shared(), value.untyped_storage().nbytes()) for value in batch]
    return batch, torch.tensor(facts)


def test_batches_are_made_in_the_memory_that_crosses(tmp_path, write_store, same):
    """A worker gathers large fields into shared memory: they are not copied again on the way."""
    fields = [
        Field(name="image", kind="image", dtype="uint8", shape=(64, 50, 3), codec="raw"),
        Field(name="transform", kind="array", dtype="float32", shape=(2, 3)),
    ]
    samples = [
        {"image": np.full((64, 50, 3), at, np.uint8), "transform": np.full((2, 3), at, np.float32)}
        for at in range(12)
    ]
    path = write_store(tmp_path / "s", fields, samples)
    dataset = LMDBDataset(path, returns=("image", "transform"))
    loader = DataLoader(dataset, 6, num_workers=1, collate_fn=collated_with_facts)
    for number, (batch, facts) in enumerate(loader):
        assert facts.tolist() == [[1, 6 * 9600], [0, 6 * 24]]
        assert all(value.is_shared() for value in batch)
        assert same(batch, collate([dataset[number * 6 + at] for at in range(6)]))


def test_a_loop_may_be_left_and_begun_again(dataset, make_loader):
    """After a break the next epoch is whole, by the same workers."""
    loader = make_loader(dataset, 2, train=False, workers=2)
    expected = [dataset.key_of(at) for at in range(12)]
    for batch in loader:
        assert batch[0] == expected[:2]
        break
    pids = sorted(worker.process.pid for worker in loader.engine._workers)
    assert flat(keys_of(loader)) == expected
    for number, batch in enumerate(loader):
        if number == 3:
            assert batch[0] == expected[6:8]
            break
    assert flat(keys_of(loader)) == expected
    assert sorted(worker.process.pid for worker in loader.engine._workers) == pids


class RandomNumber:
    """A transform that draws one number of torch's and one of numpy's."""

    def __call__(self, sample):
        return torch.randint(2**30, ()), np.random.randint(2**30)


def test_random_numbers_of_workers_follow_from_the_seed(shapes, make_loader):
    """An augmentation that draws is the same in a second run, and another one for each sample."""
    dataset = LMDBDataset(shapes.path, fields=["key"], transform=RandomNumber())

    def draws(seed):
        loader = make_loader(dataset, 3, train=True, workers=2, seed=seed)
        return [torch.stack(batch).tolist() for _ in range(2) for batch in loader]

    first = draws(1)
    assert first == draws(1)
    assert first != draws(2)
    for row in (0, 1):
        assert len({number for batch in first for number in batch[row]}) == 24


def truncate(folder):
    shard = folder / "shard-00007.lmdb"
    os.truncate(shard, shard.stat().st_size // 2)


def swap(folder):
    first, second = folder / "shard-00007.lmdb", folder / "shard-00003.lmdb"
    assert first.stat().st_size == second.stat().st_size
    aside = folder / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def remove(folder):
    (folder / "shard-00007.lmdb").unlink()


DAMAGES = [
    (truncate, "bytes, expected"),
    (swap, "identity .* it is another shard"),
    (remove, "No such file"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_a_broken_shard_is_an_error_when_it_is_reached(
    ten_shards, copy_store, damage, reason, make_loader
):
    """What comes before it can be read; then the error names the file."""
    path = copy_store(ten_shards)
    damage(path)
    dataset = LMDBDataset(path, checks_files=False).select(range(10, 20))
    batches = iter(make_loader(dataset, 2, train=False, workers=0))
    assert next(batches)["key"] == ["010", "011"]
    assert next(batches)["key"] == ["012", "013"]
    with pytest.raises(ShardError, match=rf"{path}/shard-00007.lmdb: .*{reason}"):
        next(batches)


def test_errors_of_workers_arrive_as_exceptions(ten_shards, copy_store, run_python):
    """None of them ends a worker with a signal: each names the file, or the sample it is about."""
    paths = [copy_store(ten_shards, damage.__name__) for damage, _ in DAMAGES]
    for path, (damage, _) in zip(paths, DAMAGES, strict=True):
        damage(path)
    code = """
import json, os, sys
from readers import LMDBDataset, make_loader

def fail_on_odd(sample):
    if sample["label"] % 2:
        raise KeyError("no such thing")
    return sample["key"]

def error_of(dataset):
    try:
        list(make_loader(dataset, 2, train=False, workers=1, engine="process"))
    except Exception as error:
        return [type(error).__name__, str(error)]

datasets = [LMDBDataset(path, checks_files=False) for path in sys.argv[2:]]
found = [error_of(dataset.select(range(10, 20))) for dataset in datasets]
found.append(error_of(LMDBDataset(sys.argv[1], transform=fail_on_odd).select([4, 2, 8, 7])))
print(json.dumps(found))
"""
    *broken, failed = run_python(code, ten_shards, *paths)
    for path, (kind, message), (_, reason) in zip(paths, broken, DAMAGES, strict=True):
        assert kind == "ShardError"
        assert re.search(rf"^{path}/shard-00007.lmdb: .*{reason}", message)
    kind, message = failed
    assert kind == "TransformError"
    assert f"{ten_shards}, sample 3 ('007'): the transform raised KeyError: " in message


def test_images_of_many_sizes_do_not_use_up_the_descriptors(tmp_path, write_store, run_python):
    """They cross in one piece of memory a batch; one each would be 64 descriptors a batch."""
    noise = np.random.default_rng(1)
    fields = [Field(name="image", kind="image", dtype="uint8", shape=(None, None, 3), codec="raw")]
    samples = [
        {"image": noise.integers(0, 256, (1 + at % 9, 2 + at % 7, 3)).astype(np.uint8)}
        for at in range(512)
    ]
    path = write_store(tmp_path / "s", fields, samples)
    code = """
import json, resource, sys
import torch
from readers import LMDBDataset, make_loader
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
dataset = LMDBDataset(sys.argv[1])
batches = list(make_loader(dataset, 64, train=False, workers=2))
images = [image for batch in batches for image in batch["image"]]
assert len(images) == 512
for at, image in enumerate(images):
    assert torch.equal(image, dataset[at]["image"])
    assert image.stride() == dataset[at]["image"].stride()
    image.add_(at)
for at, image in enumerate(images):
    assert torch.equal(image, dataset[at]["image"].add_(at))
print(json.dumps(True))
"""
    assert run_python(code, path)


def test_many_shards_do_not_use_up_the_descriptors(many_shards, run_python):
    """A mapped shard costs none: 300 of them are read by two workers that may have 128 open."""
    code = """
import json, os, resource, sys
from readers import LMDBDataset, make_loader
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
dataset = LMDBDataset(sys.argv[1], returns=("key", "label"))
loader = make_loader(dataset, 50, train=False, workers=2)
fds = lambda pid: len(os.listdir(f"/proc/{pid}/fd"))
keys, labels, counts = [], [], []
for epoch in range(2):
    for key, label in loader:
        keys += key
        labels += label.tolist()
        del label
    counts.append([fds(pid) for pid in ("self", *(w.process.pid for w in loader.engine._workers))])
assert keys == [f"{at:03d}" for at in range(600)] * 2
assert labels == [at % 10 for at in range(600)] * 2
before = fds("self")
assert [dataset[at][0] for at in range(600)] == keys[:600]
print(json.dumps([*counts[1], fds("self") - before]))
"""
    *counts, growth = run_python(code, many_shards)
    assert growth == 0
    assert max(counts) < 64


def test_stores_are_read_from_a_medium_that_nobody_may_write(shapes, run_python):
    """Not by the owner's own right: as another user, on files without a write bit; nothing appears
    or changes."""
    if os.getuid() != 0:
        pytest.skip("only root may become another user")
    code = """
import json, os, pathlib, shutil, sys, tempfile
import readers.dataset, readers.loader.make, readers.store.pictures.decode, cv2, PIL.Image
from readers import LMDBDataset, make_loader
# Python itself may be closed to others, so all that is needed is loaded before.
list(make_loader(LMDBDataset(sys.argv[1]), 4, train=True, workers=0))
# pytest's own folders are closed to other users.
with tempfile.TemporaryDirectory() as root:
    os.chmod(root, 0o755)
    store = pathlib.Path(shutil.copytree(sys.argv[1], root + "/s"))
    for path in (*store.iterdir(), store):
        path.chmod(0o555 if path.is_dir() else 0o444)
    facts = lambda: sorted((p.name, p.stat().st_mtime_ns, p.read_bytes()) for p in store.iterdir())
    before, child = facts(), os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            assert not os.access(store, os.W_OK)
            assert not os.access(store / "shard-00000.lmdb", os.W_OK)
            dataset = LMDBDataset(store)
            assert len([dataset[at] for at in range(12)]) == 12
            assert dataset.index_of(dataset.key_of(7)) == 7
            assert dataset.columns["label"].sum() == 12
            assert len(list(make_loader(dataset, 4, train=True, workers=0))) == 3
        except BaseException:
            import traceback
            print(json.dumps(traceback.format_exc()), flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    print(json.dumps([status, facts() == before]))
"""
    assert run_python(code, shapes.path) == [0, True]


def kept(sample):
    return sample


@pytest.mark.parametrize(
    ("fields", "settings", "engine", "why"),
    [
        (["image", "label"], {}, "thread", "all fields have a fixed size, so a batch is one copy"),
        (["image", "key"], {}, "process", "key differ in size between samples"),
        (["image"], {"ops": [RandomResizedCrop(4)]}, "process", "operations on images, one by one"),
        (["label"], {"collate_fn": list}, "process", "samples go through Python one by one"),
        (["label"], {"transform": kept}, "process", "samples go through Python one by one"),
        (["label"], {"engine": "process"}, "process", "as asked for"),
        (["image", "key"], {"engine": "thread"}, "thread", "as asked for"),
    ],
)
def test_the_engine_is_the_one_that_fits_and_the_log_says_why(
    shapes, make_loader, caplog, fields, settings, engine, why
):
    """Threads where a batch is one native call, processes where Python looks at each sample."""
    dataset = LMDBDataset(shapes.path, fields=fields, transform=settings.pop("transform", None))
    with caplog.at_level(logging.INFO, "readers.loader"):
        loader = make_loader(dataset, 4, train=True, workers=1, **settings)
    kind = {"thread": ThreadEngine, "process": ProcessEngine}[engine]
    assert type(loader.engine) is kind
    word = {"thread": "threads", "process": "workers"}[engine]
    (record,) = caplog.records
    assert record.getMessage().endswith(f"1 loader {word} ({why})")
    assert loader.stats()["engine"] == engine
    assert len(list(loader)) == 3


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("engine", ["thread", "process"])
def test_a_batch_sampler_says_what_is_in_each_batch(dataset, make_loader, engine, workers):
    """Batches of any size, in its order, each time it is asked; from the end when negative."""
    batches = [[3], [5, 5, 0], [11, -1], torch.tensor([2, 1])]
    loader = make_loader(dataset, train=True, workers=workers, engine=engine, batch_sampler=batches)
    assert len(loader) == 4
    expected = [[dataset.key_of(int(at)) for at in batch] for batch in batches]
    assert [keys_of(loader), keys_of(loader)] == [expected, expected]


@pytest.mark.parametrize(("sampler", "wrong"), [([0, 12], 12), ([-13, 1], -13)])
def test_a_sampler_that_leaves_the_dataset_is_an_error(dataset, make_loader, sampler, wrong):
    """It was made for another dataset; what lies beyond this one is not read."""
    loader = make_loader(dataset, 2, train=False, workers=0, sampler=sampler)
    with pytest.raises(IndexError, match=rf"yields {wrong} for .*shapes.*, expected \[0, 12\)"):
        list(loader)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 2, "batch_sampler": [[1]]}, "takes the place of batch_size and sampler"),
        ({"sampler": [1], "batch_sampler": [[1]]}, "takes the place of batch_size and sampler"),
        ({}, "batch_size must be at least 1; got None"),
        ({"batch_size": 2, "engine": "gpu"}, "engine must be one of auto, thread, process; got 'g"),
    ],
)
def test_arguments_that_do_not_go_together_are_an_error(dataset, make_loader, settings, message):
    """At once, with what is wrong."""
    with pytest.raises(ValueError, match=message):
        make_loader(dataset, train=True, workers=0, **settings)


def test_ops_need_images_that_they_can_work_on(shapes, every_kind, make_loader):
    """What cannot be carried out is said before the first epoch, with what to do instead."""
    ops = [RandomResizedCrop(4)]

    def refused(dataset, message, **settings):
        with pytest.raises(ValueError, match=message):
            make_loader(dataset, 2, train=True, workers=0, ops=ops, **settings)

    refused(LMDBDataset(shapes.path, fields=["label"]), r"one image among the fields; got \[\]")
    refused(LMDBDataset(every_kind.path, fields=["gray", "sized"]), r"got \['gray', 'sized'\]")
    refused(
        LMDBDataset(every_kind.path, fields=["free"]), "'free' has its own channels.*--mode rgb"
    )
    refused(LMDBDataset(shapes.path, image_as="pil"), "image_as='tensor' or 'numpy'")
    refused(LMDBDataset(shapes.path, transform=kept), "an LMDBDataset without a transform")
    refused(
        Subset(LMDBDataset(shapes.path, transform=kept), [1, 2]),
        r"got one with a transform.*dataset.transform = None",
    )
    refused(Subset([1, 2, 3], [1, 2]), r"got Subset of list.*dataset.select\(subset.indices\)")
    refused(LMDBDataset(shapes.path), "with our collate", collate_fn=list)


def test_images_of_one_size_need_no_op_that_fixes_it(shapes, every_kind, make_loader):
    """Then a flip alone will do; images of many sizes are refused, and it is said why."""
    dataset = LMDBDataset(shapes.path, fields=["image"])
    settings = {"train": False, "workers": 0, "ops": [RandomFlip(1.0)]}
    (plain,) = make_loader(dataset, len(dataset), train=False, workers=0)
    (flipped,) = make_loader(dataset, len(dataset), **settings)
    assert torch.equal(flipped["image"], plain["image"].flip(3))
    with pytest.raises(
        ValueError, match=r"must begin with the one that fixes the size, .* one size"
    ):
        make_loader(LMDBDataset(every_kind.path, fields=["sized"]), 2, **settings)


def test_set_epoch_says_which_epoch_comes_next(dataset, make_loader):
    """A run that is resumed goes on in the order of the epoch that it was in."""
    loader = make_loader(dataset, 4, train=True, workers=0)
    epochs = [keys_of(loader) for _ in range(4)]
    loader.set_epoch(2)
    assert [keys_of(loader), keys_of(loader)] == epochs[2:]
    assert len({str(epoch) for epoch in epochs}) == 4
    with pytest.raises(ValueError, match="epoch must be at least 0; got -1"):
        loader.set_epoch(-1)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_may_be_anything(dataset, make_loader, workers):
    """Each is handed over, and none of them ends the loop."""
    for batch in (None, 7, torch.tensor(2.5), "text", [], {}):

        def answer(_samples, batch=batch):
            return batch

        loader = make_loader(
            dataset, 4, train=False, workers=workers, engine="thread", collate_fn=answer
        )
        assert list(loader) == [batch] * 3


@pytest.mark.parametrize("engine", ["thread", "process"])
@pytest.mark.parametrize("workers", [0, 2])
def test_its_totals_add_up(shapes, make_loader, engine, workers):
    """Batches, samples and bytes over all epochs, and a line that says so."""
    dataset = LMDBDataset(shapes.path, returns=("image", "label"))
    loader = make_loader(dataset, 5, train=False, workers=workers, engine=engine)
    assert loader.stats()["verdict"] == "nothing was loaded yet"
    assert len([0 for _ in range(3) for _ in loader]) == 9
    facts = loader.stats()
    assert (facts["batch_count"], facts["sample_count"]) == (9, 36)
    assert facts["byte_count"] == 36 * (4 * 6 * 3 + 8)
    assert (facts["engine"], facts["worker_count"]) == (engine, workers)
    assert facts["waiting_s"] > 0
    assert facts["consuming_s"] > 0
    assert facts["stages_s"]["read"] > 0
    assert facts["stages_s"]["decode"] == facts["stages_s"]["transform"] == 0
    assert str(loader).startswith(f"36 samples in 9 batches by the {engine} engine: ")
    assert str(loader).endswith(facts["verdict"])


def test_a_dataloader_of_torch_takes_the_dataset_too(dataset, same):
    """With our collate or torch's own, with workers or without, the samples are the same."""
    expected = [collate([dataset[at] for at in range(start, start + 4)]) for start in (0, 4, 8)]
    for workers in (0, 1):
        for batch, wanted in zip(
            DataLoader(dataset, 4, num_workers=workers, collate_fn=collate), expected, strict=True
        ):
            assert same(batch, wanted)
        for batch, wanted in zip(
            DataLoader(dataset, 4, num_workers=workers), expected, strict=True
        ):
            assert list(batch[0]) == wanted[0]
            assert torch.equal(batch[1], wanted[1])
