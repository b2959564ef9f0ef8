"""Real frameworks, one and two processes: in an environment of their own, .venv-frameworks."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from readers import LMDBDataset, make_loader
from readers.ops import RandomFlip, RandomResizedCrop
from readers.store.layout import shard_name
from readers.store.manifest import FormatVersion, Manifest, SourceInfo, publish_manifest
from readers.store.record import RecordLayout
from readers.store.schema import Field, Schema
from readers.store.shard import ShardWriter

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"

NEEDED = ("accelerate", "ignite", "lightning", "torchdata", "transformers")
COUNT = 50


def pytest_collection_modifyitems(items):
    """Where a framework is missing, its tests are for another environment than this."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return
    why = f"not installed here: {', '.join(missing)}. Run scripts/test, or scripts/setup frameworks"
    if Path(sys.prefix) == ROOT / ".venv-frameworks":
        raise pytest.UsageError(why)
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=why))


FIELDS = (
    Field(name="number", kind="scalar", dtype="int64"),
    Field(name="image", kind="image", dtype="uint8", shape=(8, 8, 3), codec="raw"),
)


def write_noise(folder):
    """A store of pictures of noise; the field `number` says which one it is."""
    folder.mkdir()
    schema = Schema(FIELDS)
    writer = ShardWriter(folder / shard_name(0), RecordLayout.of(schema))
    for number in range(COUNT):
        image = np.random.default_rng(number).integers(0, 256, (8, 8, 3)).astype(np.uint8)
        writer.add(b"%03d" % number, {"number": number, "image": image})
    source = SourceInfo(
        format="test", sha256="0" * 64, found_count=COUNT, reject_count=0, ignored={}
    )
    manifest = Manifest(
        format=FormatVersion(),
        schema=schema,
        classes=(),
        splits={},
        sample_count=COUNT,
        shards=(writer.seal(),),
        recipe={},
        source=source,
        statistics={},
        versions={},
    )
    publish_manifest(folder, manifest)


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """50 pictures of noise with their numbers."""
    path = tmp_path_factory.mktemp("stores") / "noise.lmdb"
    write_noise(path)
    return path


@pytest.fixture(scope="session")
def run(tmp_path_factory, store):
    """Runs a program on so many ranks: run(name, world_size, ...); what each rank wrote down.

    Where the program is not launched on them, it starts the ranks itself.
    """

    def run(name, world_size, *arguments, launches=True, timeout_s=280):
        folder = tmp_path_factory.mktemp(name)
        given = [str(PROGRAMS / f"{name}.py"), str(store), str(folder), *arguments]
        command = [sys.executable, *given]
        if world_size > 1 and launches:
            launcher = ["-m", "torch.distributed.run", "--standalone"]
            command = [sys.executable, *launcher, "--nproc-per-node", str(world_size), *given]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=env,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [
            {
                path.name.split("-")[0]: json.loads(path.read_text())
                for path in folder.glob(f"*-{rank}.json")
            }
            for rank in range(world_size)
        ]

    return run


class Reference:
    """What runs must have seen: the loader's own batches, in one process.

    Args:
        store: Of noise.
    """

    ops = (RandomResizedCrop(6), RandomFlip())

    def __init__(self, store):
        self.store = store

    @staticmethod
    def seen(batch):
        """A batch as numbers and digests of images."""
        digests = [hashlib.sha256(image.numpy().tobytes()).hexdigest()[:8] for image in batch[1]]
        return [list(row) for row in zip(batch[0].tolist(), digests, strict=True)]

    def epochs_of(self, count, **settings):
        """The batches of some epochs of a loader."""
        dataset = LMDBDataset(self.store, returns=("number", "image"))
        given = {"train": True, "ops": self.ops, "seed": 3, "workers": 0, **settings}
        loader = make_loader(dataset, **given)
        return [[self.seen(batch) for batch in loader] for _ in range(count)]

    def steps(self, size, epochs, **settings):
        """The samples of each step over all ranks, epoch by epoch."""
        return self.epochs_of(epochs, batch_size=size, **settings)

    @staticmethod
    def dealt_out(steps, rank, world_size):
        """The part of each step that a rank gets from accelerate: neighbours."""
        each = len(steps[0]) // world_size
        return [step[rank * each : (rank + 1) * each] for step in steps]

    @staticmethod
    def taken_in_turns(steps, rank, world_size):
        """The part of each step that a rank of ours takes: every so many-th sample."""
        return [step[rank::world_size] for step in steps]


@pytest.fixture(scope="session")
def reference(store):
    """What runs must have seen."""
    return Reference(store)
