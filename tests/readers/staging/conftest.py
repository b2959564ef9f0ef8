"""A store of several shards, caches, and programs that stage in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from readers.staging.cache_folder import CacheFolder
from readers.staging.settings import CacheSettings
from readers.staging.stager import Stager
from readers.store.manifest import read_manifest
from readers.store.schema import Field
from tests.readers.conftest import KEY, Stored

FIELDS = [
    KEY,
    Field(name="image", kind="image", dtype="uint8", shape=(64, 64, 3), codec="raw"),
    Field(name="label", kind="label", dtype="int64", names=("a", "b")),
    Field(name="caption", kind="text"),
]
SHARD_COUNT = 6
SAMPLE_COUNT = 8 * SHARD_COUNT


def samples_of(seed: int) -> list[dict[str, Any]]:
    """Samples of several fields, one of them without a fixed size; no two alike."""
    noise = np.random.default_rng(seed)
    return [
        {
            "key": f"{at:03d}",
            "image": noise.integers(0, 256, (64, 64, 3)).astype(np.uint8),
            "label": at % 2,
            "caption": f"{seed} " * (at % 5),
        }
        for at in range(SAMPLE_COUNT)
    ]


@pytest.fixture(scope="session")
def make_far(tmp_path_factory, write_store) -> Callable[[int], Stored]:
    """Writes a store of six shards of about 176 kB; of each seed it is another."""

    def make(seed: int) -> Stored:
        samples = samples_of(seed)
        path = tmp_path_factory.mktemp("far") / "out.lmdb"
        write_store(path, FIELDS, samples, [8] * SHARD_COUNT, ("a", "b"))
        return Stored(path, samples)

    return make


@pytest.fixture(scope="session")
def far(make_far) -> Stored:
    """Such a store."""
    return make_far(1)


@pytest.fixture
def cache(tmp_path) -> CacheFolder:
    """A cache that is not there yet."""
    return CacheFolder(tmp_path / "local")


@pytest.fixture
def stager_of(cache):
    """Makes what copies a store into the cache."""

    def make(path: Path, **settings: Any) -> Stager:
        sources = {name: settings.pop(name) for name in ("open_source",) if name in settings}
        chosen = CacheSettings(folder=str(cache.path.parent), **settings)
        return Stager(path, read_manifest(path), chosen, **sources)

    return make


@pytest.fixture(scope="session")
def until():
    """Waits until something is so."""

    def wait(condition: Callable[[], Any], limit_s: float = 60) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, "it did not come to be"
            time.sleep(0.01)

    return wait
