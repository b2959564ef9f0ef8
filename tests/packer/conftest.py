"""Small trees of drawn images, stores built of them, and the `packer` command, for these tests."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer.building.build import build
from packer.recipe import Recipe
from readers.store.layout import UPDATE_CACHE_NAME

SIZE = (24, 16)  # Width and height of a drawn picture.

CLASS_NAMES = [f"{name}/{number}.png" for name in ("ant", "bee", "cat") for number in range(4)]

MANY_SHARDS = Recipe(size=320, fit="stretch", shard_bytes_max=2**20)
"""A picture takes 307,200 bytes, so that three fill a shard: 12 pictures make 4 shards."""


def picture(name: str) -> np.ndarray[Any, Any]:
    """The pixels that are drawn for a name: noise, (height, width, 3) uint8, RGB."""
    rng = np.random.default_rng(zlib.crc32(name.encode("utf-8", "surrogateescape")))
    return rng.integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)


def draw_tree(root: Path, names: Sequence[str]) -> Path:
    """A picture at each relative path under `root`, written in the order of the names."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(name)).save(path)
    return root


@pytest.fixture(name="picture", scope="session")
def _picture() -> Callable[[str], np.ndarray[Any, Any]]:
    return picture


@pytest.fixture(name="draw_tree", scope="session")
def _draw_tree() -> Callable[[Path, Sequence[str]], Path]:
    return draw_tree


@pytest.fixture(name="class_names", scope="session")
def _class_names() -> list[str]:
    return CLASS_NAMES


@pytest.fixture(name="many_shards", scope="session")
def _many_shards() -> Recipe:
    return MANY_SHARDS


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures in three class folders. Not to be changed."""
    return draw_tree(tmp_path_factory.mktemp("classes") / "raw", CLASS_NAMES)


@pytest.fixture(scope="session")
def store(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of `raw` in one shard. Not to be changed."""
    out = tmp_path_factory.mktemp("store") / "out.lmdb"
    build(raw, out, worker_count=1)
    return out


@pytest.fixture(scope="session")
def shards(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of `raw` in four shards of equal size. Not to be changed."""
    out = tmp_path_factory.mktemp("shards") / "out.lmdb"
    build(raw, out, MANY_SHARDS, worker_count=1)
    return out


@pytest.fixture(scope="session")
def contents() -> Callable[[Path], dict[str, bytes]]:
    """All files of a store, by name, but for the one that is no part of it."""
    return lambda path: {
        entry.name: entry.read_bytes()
        for entry in path.iterdir()
        if entry.name != UPDATE_CACHE_NAME
    }


@pytest.fixture(scope="session")
def packer_command() -> list[str]:
    """The start of a command line that runs `packer` in a process of its own, as imported here."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from packer.cli import main; main()"
    return [sys.executable, "-c", code]


@pytest.fixture(scope="session")
def packer(packer_command: list[str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `packer` with arguments, and returns its exit status, stdout and stderr."""

    def run(*arguments: str | os.PathLike[str], **options: Any) -> Any:
        options = {"capture_output": True, "text": True, "timeout": 60, "check": False, **options}
        return subprocess.run([*packer_command, *map(os.fspath, arguments)], **options)

    return run


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of bytes that gzip files gave in this process, one for each read."""
    counts: list[int] = []
    read1 = gzip.GzipFile.read1

    def counted(self: gzip.GzipFile, size: int = -1) -> bytes:
        data = read1(self, size)
        counts.append(len(data))
        return data

    monkeypatch.setattr(gzip.GzipFile, "read1", counted)
    return counts


def processes_with(text: str) -> list[int]:
    """Processes, but this one, whose command line holds a text."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(text) in line:
                found.append(int(folder.name))
    return found


@pytest.fixture(name="processes_with", scope="session")
def _processes_with() -> Callable[[str], list[int]]:
    return processes_with
