"""Reads stores that were damaged or crafted at random: nothing worse than an error may come.

    python scripts/fuzz_store.py --bytes 1000000
    python scripts/fuzz_store.py --seed 7 --case 1234     # one case again, with its traceback

Manifests, indices, records and LMDB's pages of small stores are changed, some bytes at a time or by
their structure (numbers that count, point or measure become other ones that a reader might trust).
Half of the changed stores have a manifest that agrees with the change, as a crafted one would.

Every reading happens in a forked child with a limit on its memory and a limit of time. What counts
as a failure: a signal, an end by memory, no end, an exception that is no `StoreError`, a sample
beyond its file, and, where the change was mere damage, a value that is not the one that was written
although its checksum is right.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from packer.stores.sample_compare import differing_fields
from packer.stores.verify import verify
from readers.store.errors import ChecksumError, StoreError
from readers.store.layout import (
    FORMAT_MAJOR,
    FORMAT_MINOR,
    MANIFEST_NAME,
    REJECTS_NAME,
    shard_name,
)
from readers.store.manifest import (
    FormatVersion,
    Manifest,
    SourceInfo,
    digest_problem,
    publish_manifest,
)
from readers.store.pages import PageFile
from readers.store.reader import StoreReader, open_store
from readers.store.record import RecordLayout, RecordReader
from readers.store.samples import Samples
from readers.store.schema import Field, Schema
from readers.store.shapes.polygons import Polygons
from readers.store.shard import ShardWriter

GOLDEN = (
    Path(__file__).resolve().parents[1]
    / "tests"
    / "golden"
    / f"v{FORMAT_MAJOR}.{FORMAT_MINOR}"
    / "store.lmdb"
)
"""A store of every kind of field."""

CASES_AT_ONCE = 200
"""Cases of one child: a fork costs as much as some cases."""

CASE_S = 20.0
"""Time for one case, some thousand times what one takes."""

MEMORY_BYTES = 2**30
"""Memory that a child may take beside what it was forked with. The stores have less than 1 MiB."""

VERIFY_SHARE = 1 / 400
"""Share of the cases that `packer verify` reads as well: it starts a process for each."""

_SAMPLES_READ_MAX = 24
_MASK_PIXELS_MAX = 2**22

_NUMBERS = (0, 1, 2, 3, 7, 8, 15, 16, 17, 127, 128, 255, 256, 4095, 4096, 4097, 32767, 65535)
_LARGE = (2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48, 2**63 - 1, 2**63, 2**64 - 1)
_ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**47, 2**63, 2**70, 1e308),
    *("", "..", "/etc/passwd", "a" * 99, "\udcff", "shard-00001.lmdb", "0" * 64),
    *([], {}, [[]], [None], {"a": {}}),
    *("raw", "original", "uint8", "float64", "image", "label", "polygons"),
)


@dataclass
class Totals:
    """What a run has done.

    Attributes:
        case_count: Stores read.
        byte_count: Bytes of them that were changed.
        refused_count: Those of them that did not open.
        sample_error_count: Samples that were refused, of the others.
        sample_count: Samples that were read.
        verify_count: Stores that `verify` looked at.
        memory_bytes: Most memory that a child took beside what it was forked with.
        slowest_s: The longest that a case took.
        failures: What was worse than an error, with the case that shows it.
    """

    case_count: int = 0
    byte_count: int = 0
    refused_count: int = 0
    sample_error_count: int = 0
    sample_count: int = 0
    verify_count: int = 0
    memory_bytes: int = 0
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """For a person."""
        yield f"{self.case_count:,} stores, {self.byte_count:,} changed bytes"
        yield f"{self.refused_count:,} did not open, with a StoreError"
        yield f"{self.sample_count:,} samples read, {self.sample_error_count:,} refused"
        yield f"{self.verify_count:,} verified"
        yield f"at most {self.memory_bytes / 2**20:.0f} MiB of memory and {self.slowest_s:.2f} s"
        yield f"{len(self.failures)} failures"
        yield from self.failures[:50]


# --- the stores -----------------------------------------------------------------------------------


@dataclass
class Base:
    """A good store, to be changed.

    Attributes:
        files: Its files by name.
        values: The values of its samples, by shard.
        keys: Some keys that it has.
    """

    files: dict[str, bytes]
    values: list[list[dict[str, Any]]]
    keys: list[bytes]

    @classmethod
    def of(cls, folder: Path) -> Base:
        """The store in a folder."""
        store = open_store(folder)
        reader = RecordReader(store.layout)
        values = [
            [reader.unpack(shard.record(at)) for at in range(len(shard.offsets))]
            for shard in store.shards()
        ]
        keys = [str(v["key"]).encode("utf-8", "surrogateescape") for part in values for v in part]
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        return cls(files, values, keys[:: max(1, len(keys) // 8)])


def make_bases(folder: Path) -> list[Base]:
    """A store of every kind of field, one of deep trees, and one of records of one length."""
    numbers = Schema(
        (
            Field(name="key", kind="text"),
            Field(name="label", kind="label", dtype="int64", names=("cat", "dog")),
        )
    )
    fixed = Schema(
        (
            Field(name="key", kind="array", dtype="uint8", shape=(8,)),
            Field(name="image", kind="image", dtype="uint8", shape=(16, 16, 3), codec="raw"),
            Field(name="label", kind="label", dtype="int64", names=("cat", "dog")),
        )
    )
    _write(folder / "many", numbers, [{"key": f"{n:06}", "label": n % 2} for n in range(1500)])
    rng = np.random.default_rng(0)
    _write(
        folder / "fixed",
        fixed,
        [
            {
                "key": np.frombuffer(b"%08d" % n, np.uint8),
                "image": rng.integers(0, 256, (16, 16, 3), np.uint8),
                "label": n % 2,
            }
            for n in range(12)
        ],
    )
    return [Base.of(path) for path in (GOLDEN, folder / "many", folder / "fixed")]


def _write(folder: Path, schema: Schema, values: list[dict[str, Any]]) -> None:
    folder.mkdir()
    writer = ShardWriter(folder / shard_name(0), RecordLayout.of(schema))
    for number, each in enumerate(values):
        writer.add(b"%06d" % number, each)
    shard = writer.seal()
    (folder / REJECTS_NAME).write_bytes(b"")
    source = SourceInfo(
        format="flat", sha256="0" * 64, found_count=len(values), reject_count=0, ignored={}
    )
    publish_manifest(
        folder,
        Manifest(
            format=FormatVersion(),
            schema=schema,
            classes=("cat", "dog"),
            splits={},
            sample_count=len(values),
            shards=(shard,),
            recipe={},
            source=source,
            statistics={},
            versions={},
        ),
    )


# --- changes --------------------------------------------------------------------------------------


@dataclass
class Case:
    """A changed store.

    Attributes:
        base: What it was.
        files: What it is.
        is_crafted: Whether its manifest agrees with the change.
        is_manifest: Whether it is the manifest that was changed.
    """

    base: Base
    files: dict[str, bytes]
    is_crafted: bool
    is_manifest: bool

    @property
    def changed_count(self) -> int:
        """Bytes that are not what they were."""
        if self.is_manifest:
            return _inserted_count(self.base.files[MANIFEST_NAME], self.files[MANIFEST_NAME])
        shards = [name for name in self.files if name != MANIFEST_NAME]
        return sum(_changed_count(self.base.files[name], self.files[name]) for name in shards)


def _changed_count(before: bytes, after: bytes) -> int:
    """Bytes of a shard that are others than before, where they are, or behind its end."""
    common = min(len(before), len(after))
    a, b = (np.frombuffer(data, np.uint8, common) for data in (before, after))
    return int(np.count_nonzero(a != b)) + len(after) - common


def _inserted_count(before: bytes, after: bytes) -> int:
    """Bytes of a text that stand between the start and the end that it has kept."""
    start = _same_count(before, after)
    end = _same_count(before[:start:-1], after[:start:-1])
    return max(1, len(after) - start - end)


def _same_count(a: bytes, b: bytes) -> int:
    """Bytes at the start that are the same."""
    common = min(len(a), len(b))
    ours, theirs = (np.frombuffer(data, np.uint8, common) for data in (a, b))
    differing = np.flatnonzero(ours != theirs)
    return int(differing[0]) if len(differing) else common


def make_case(bases: list[Base], seed: int, number: int) -> Case:
    """The case of a number: the same for the same seed."""
    rng = random.Random(f"{seed}/{number}")
    base = rng.choice(bases)
    files = dict(base.files)
    if rng.random() < 0.2:
        change = rng.choice((_changed_bytes, _changed_bytes, _changed_tree, _changed_tree))
        files[MANIFEST_NAME] = change(files[MANIFEST_NAME], rng)
        return Case(base, files, is_crafted=False, is_manifest=True)
    name = rng.choice([name for name in files if name.endswith(".lmdb")])
    data = bytearray(files[name])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(_SHARD_CHANGES)(data, rng)
    files[name] = bytes(data)
    is_crafted = rng.random() < 0.5
    if is_crafted:
        files[MANIFEST_NAME] = _agreeing(files, name)
    return Case(base, files, is_crafted=is_crafted, is_manifest=False)


def _agreeing(files: dict[str, bytes], name: str) -> bytes:
    """A manifest that agrees with a changed shard: its size, and what it says of itself."""
    tree = json.loads(files[MANIFEST_NAME])
    for shard in tree["shards"]:
        if shard["file"] == name:
            shard["bytes"] = len(files[name])
            with contextlib.suppress(StoreError, KeyError):  # It does not open in any case.
                start, size = _index_of(files[name])[b"identity"]
                shard["identity"] = files[name][start + size - 32 : start + size].hex()
    return json.dumps(tree).encode()


def _index_of(data: bytes) -> dict[bytes, tuple[int, int]]:
    pages = PageFile(memoryview(data))
    entries = pages.entries(pages.database(b"index"))
    return {key: (start, size) for key, start, size in entries}


def _changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, put in, taken out, said twice or cut off."""
    at = rng.randrange(len(data))
    count = rng.choice((1, 1, 2, 8, 60))
    kind = rng.randrange(6)
    if kind == 0:
        return data[:at] + rng.randbytes(count) + data[at + count :]
    if kind == 1:
        return data[:at] + data[at + count :]
    if kind == 2:
        return data[:at] + rng.choice((b"[", b"{", b'"', b"9", b"-", b"e9", b"\\ud800")) + data[at:]
    if kind == 3:
        return data[:at] + data[at : at + count] + data[at:]
    if kind == 4:
        return data[:at]
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _changed_tree(data: bytes, rng: random.Random) -> bytes:
    """One value of the manifest becomes another one, goes, or is listed twice."""
    tree = json.loads(data)
    places = list(_places(tree))
    counts = [(holder, key) for holder, key in places if type(holder[key]) is int]
    for _ in range(rng.choice((1, 1, 2))):
        holder, key = rng.choice(places)
        # A change before may have taken the place away.
        with contextlib.suppress(KeyError, IndexError, ValueError):
            kind = rng.randrange(5)
            if kind == 0:
                del holder[key]
            elif kind == 1 and isinstance(holder, list):
                holder.insert(key, holder[key])
            elif kind == 2:
                other, place = rng.choice(places)
                holder[key] = json.loads(json.dumps(other[place]))
            elif kind == 3:
                holder, key = rng.choice(counts)
                holder[key] = rng.choice((*_NUMBERS, *_LARGE, 2**47))
            else:
                holder[key] = rng.choice(_ODD)
    return json.dumps(tree, indent=1).encode() + b"\n"


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in entries:
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _put(data: bytearray, at: int, size: int, rng: random.Random) -> None:
    """Put a number of so many bytes that a reader might trust."""
    if not 0 <= at <= len(data) - size:
        return
    old = int.from_bytes(data[at : at + size], "little")
    file = (len(data), len(data) // 4096, len(data) // 4096 - 1)
    near = (old + 1, old - 1, old + 8, old - 8, old * 2, old ^ 1 << rng.randrange(8 * size))
    value = rng.choice((*rng.sample(_NUMBERS, 4), *rng.sample(_LARGE, 4), *file, *near))
    data[at : at + size] = (value % 2 ** (8 * size)).to_bytes(size, "little")


def _change_any(data: bytearray, rng: random.Random) -> None:
    """Random bytes anywhere."""
    at, count = rng.randrange(len(data)), rng.choice((1, 1, 4, 16, 64, 400))
    count = min(count, len(data) - at)
    data[at : at + count] = rng.randbytes(count)


def _change_page(data: bytearray, rng: random.Random) -> None:
    """A page of noise or zeros, or another page in its place."""
    count = len(data) // 4096
    at, other = 4096 * rng.randrange(count), 4096 * rng.randrange(count)
    kind = rng.randrange(4)
    if kind == 0:
        data[at : at + 4096] = rng.randbytes(4096)
    elif kind == 1:
        data[at : at + 4096] = bytes(4096)
    else:
        data[at : at + 4096] = data[other : other + 4096]


def _change_meta(data: bytearray, rng: random.Random) -> None:
    """A number of the two meta pages."""
    page = rng.choice((0, 4096, 4096))
    at, size = rng.choice(
        ((16, 4), (20, 4), (32, 8), (40, 4), (44, 2), (46, 2), (80, 8), (88, 4), (94, 2),
         (96, 8), (120, 8), (128, 8), (136, 8), (144, 8))
    )  # fmt: skip
    _put(data, page + at, size, rng)


def _change_header(data: bytearray, rng: random.Random) -> None:
    """A number of a page's header, or an offset of a node."""
    page = 4096 * rng.randrange(len(data) // 4096)
    at, size = rng.choice(((0, 8), (10, 2), (10, 2), (12, 2), (12, 4), (14, 2), (16, 2), (18, 2)))
    _put(data, page + at, size, rng)


def _change_node(data: bytearray, rng: random.Random) -> None:
    """A number of a node, the page of a long value, or a database's description."""
    page = 4096 * rng.randrange(2, max(3, len(data) // 4096))
    if page + 4096 > len(data):
        return
    lower = struct.unpack_from("<H", data, page + 12)[0]
    count = min(max(0, (lower - 16) // 2), 2000)
    if not count:
        return
    node = page + struct.unpack_from("<H", data, page + 16 + 2 * rng.randrange(count))[0]
    if node + 8 > len(data):
        return
    key_size = struct.unpack_from("<H", data, node + 6)[0]
    value = node + 8 + key_size
    at, size = rng.choice(
        ((node, 2), (node + 2, 2), (node, 4), (node + 4, 2), (node + 6, 2), (node + 8, 8),
         (value, 8), (value, 4), (value + 40, 8), (value + 6, 2), (value + 32, 8))
    )  # fmt: skip
    _put(data, at, size, rng)


def _change_index(data: bytearray, rng: random.Random) -> None:
    """An element of an array of the index, or its header."""
    try:
        start, size = rng.choice(list(_index_of(bytes(data)).values()))
    except (StoreError, IndexError):
        return
    at = start + rng.choice((rng.randrange(max(1, size)), rng.randrange(min(size, 128) or 1)))
    _put(data, at // 8 * 8 + start % 8 if rng.random() < 0.5 else at, rng.choice((1, 4, 8)), rng)


def _change_record(data: bytearray, rng: random.Random) -> None:
    """A number of a record: of its header, of outlines, of a picture's first bytes."""
    try:
        index = _index_of(bytes(data))
        (first, size), (lengths, _) = index[b"offset"], index[b"length"]
        count = (size - 128) // 8
        number = rng.randrange(count)
        start = struct.unpack_from("<Q", data, first + 128 + 8 * number)[0]
        length = struct.unpack_from("<I", data, lengths + 128 + 4 * number)[0]
    except (StoreError, KeyError, ValueError, struct.error):
        return
    if start + length > len(data) or not length:
        return
    at = rng.choice((rng.randrange(min(length, 200)), rng.randrange(length)))
    _put(data, start + at // 4 * 4 if rng.random() < 0.5 else start + at,
         rng.choice((1, 2, 4, 4, 8)), rng)  # fmt: skip


def _change_length(data: bytearray, rng: random.Random) -> None:
    """The file cut short, or longer."""
    if rng.random() < 0.5:
        del data[rng.choice((rng.randrange(len(data)), 4096 * rng.randrange(len(data) // 4096))) :]
        data += b"\0" * (not data)
    else:
        data += rng.randbytes(rng.choice((1, 100, 4096)))
    data += b"\0" * max(0, 8192 - len(data))  # So that further changes find pages.


_SHARD_CHANGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(_change_any, _change_page, _change_meta, _change_length),
    *(_change_header, _change_node, _change_index, _change_record) * 3,
)


# --- reading --------------------------------------------------------------------------------------


@dataclass
class Reading:
    """What a case came to.

    Attributes:
        is_refused: Whether the store did not open.
        sample_count: Samples that were read.
        sample_error_count: Samples that were refused.
        verify_count: Whether it was verified.
    """

    is_refused: bool = False
    sample_count: int = 0
    sample_error_count: int = 0
    verify_count: int = 0


def read_case(case: Case, folder: Path, rng: random.Random) -> Reading:
    """Write a changed store, and read all of it.

    Raises:
        AssertionError: Something was read that is not what it should be.
        Exception: Anything that a reader lets through, and should not.
    """
    folder.mkdir()
    try:
        for name, data in case.files.items():
            (folder / name).write_bytes(data)
        reading = Reading()
        try:
            store = open_store(folder)
            if case.is_manifest and case.files[MANIFEST_NAME] != case.base.files[MANIFEST_NAME]:
                # Whatever it says now, a check finds that it is not what was written.
                assert digest_problem(case.files[MANIFEST_NAME]) is not None
            for shard in store.shards():
                _read_shard(store, shard.path.name, case, rng, reading)
            for key in (*rng.sample(case.base.keys, min(4, len(case.base.keys))), b"", b"none"):
                found = store.find(key)
                assert found is None or 0 <= found < store.manifest.sample_count
        except StoreError:
            reading.is_refused = True
        if rng.random() < VERIFY_SHARE:
            reading.verify_count = 1
            try:
                report = verify(folder, level=rng.choice(("quick", "records", "full")))
                is_damaged = case.files != case.base.files and not case.is_crafted
                # Without reading the samples, their damage cannot be told.
                if is_damaged and (case.is_manifest or report.level != "quick"):
                    assert not report.is_good
            except StoreError:
                pass
        return reading
    finally:
        shutil.rmtree(folder)


def _read_shard(
    store: StoreReader, name: str, case: Case, rng: random.Random, reading: Reading
) -> None:
    """Read columns and samples of a shard that has opened."""
    number = [info.file for info in store.manifest.shards].index(name)
    shard = store.shard(number)
    count = len(shard.offsets)
    first = int(store.first_samples[number])
    located = store.located(np.arange(first, first + count))
    records, lengths = located.records(), located.lengths()
    # What a gather goes by: it checks nothing any more.
    assert (records.offsets >= 0).all()
    assert (records.offsets + lengths <= store.manifest.shards[number].bytes).all()
    assert (lengths >= store.layout.variable_start).all()
    (pieces,) = store.bytes.fetch([records])
    assert len(pieces.starts) == count
    for column in store.layout.columns:
        assert len(located.column(column.name)) == count
    reader, samples = RecordReader(store.layout), Samples(store)
    # Mere damage: what is read with a right checksum is what was written.
    written = None if case.is_crafted or case.is_manifest else case.base.values[number]
    for position in sorted(rng.sample(range(count), min(count, _SAMPLES_READ_MAX))):
        try:
            values = reader.unpack(shard.record(position))
            reading.sample_count += 1
            for value in values.values():
                _use(value)
            schema = store.manifest.schema
            assert not differing_fields(samples[first + position], values, schema, schema)
            if written is not None:
                shard.check_record(position)
                assert not differing_fields(values, written[position], schema, schema)
        except ChecksumError:
            reading.sample_error_count += 1
        except StoreError:
            reading.sample_error_count += 1


def _use(value: Any) -> None:
    """Touch all of a value, as training would."""
    if isinstance(value, np.ndarray):
        value.tobytes()
    elif isinstance(value, Polygons):
        if len(value) * value.height * value.width > _MASK_PIXELS_MAX:
            return
        with contextlib.suppress(ValueError):  # A point that is not finite: it says so.
            value.to_masks()


# --- children -------------------------------------------------------------------------------------


def fuzz(
    *,
    seed: int,
    byte_count: int,
    limit_s: float,
    folder: Path,
    on_failure: Callable[[str], None] = lambda text: None,
) -> Totals:
    """Read changed stores until enough bytes were changed, or the time is over.

    Args:
        seed: Decides all cases.
        byte_count: Bytes to change in all.
        limit_s: Time for it.
        folder: An empty folder to work in.
        on_failure: Told of each failure at once.
    """
    bases = make_bases(folder)
    totals = Totals()
    end, number = time.monotonic() + limit_s, 0
    while totals.byte_count < byte_count and time.monotonic() < end:
        number = _run_child(bases, seed, number, folder, totals, on_failure)
    return totals


def _run_child(
    bases: list[Base],
    seed: int,
    first: int,
    folder: Path,
    totals: Totals,
    on_failure: Callable[[str], None],
) -> int:
    """Have a child read some cases. The number of the case to go on with."""
    output, child_output = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(output)
        status = 1
        try:
            _child(bases, seed, first, folder, child_output)
            status = 0
        finally:
            os._exit(status)
    os.close(child_output)
    number, problem = first, None
    with open(output, "rb", buffering=0) as stream:
        while True:
            if not select.select([stream], [], [], CASE_S)[0]:
                problem = f"no end in {CASE_S} s"
                os.kill(child, signal.SIGKILL)
                break
            # A line is short, so that it comes in one piece.
            lines = stream.read(2**20)
            if not lines:
                break
            while not lines.endswith(b"\n"):
                more = stream.read(2**20)
                if not more:
                    break
                lines += more
            for line in lines.splitlines():
                told = json.loads(line)
                number = told["case"] + 1
                _count(told, totals, seed, on_failure)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if problem is None and status != 0:
        problem = f"signal {-status}" if status < 0 else f"status {status}"
    if problem is not None:
        text = f"--seed {seed} --case {number}: {problem}"
        totals.failures.append(text)
        on_failure(text)
        number += 1
        for left in folder.glob("case-*"):
            shutil.rmtree(left)
    return number


def _count(
    told: dict[str, Any], totals: Totals, seed: int, on_failure: Callable[[str], None]
) -> None:
    totals.case_count += 1
    totals.byte_count += told["bytes"]
    totals.refused_count += told["is_refused"]
    totals.sample_count += told["sample_count"]
    totals.sample_error_count += told["sample_error_count"]
    totals.verify_count += told["verify_count"]
    totals.memory_bytes = max(totals.memory_bytes, told["memory"])
    totals.slowest_s = max(totals.slowest_s, told["seconds"])
    if told["failure"]:
        text = f"--seed {seed} --case {told['case']}: {told['failure']}"
        totals.failures.append(text)
        on_failure(text)


def _child(bases: list[Base], seed: int, first: int, folder: Path, output: int) -> None:
    """Read some cases, and tell of each."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # What decoders say of damaged pictures.
    before = _memory_bytes("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (before + MEMORY_BYTES,) * 2)
    resident = _memory_bytes("VmHWM")
    for number in range(first, first + CASES_AT_ONCE):
        began, failure = time.monotonic(), None
        reading, changed = Reading(), 0
        try:
            case = make_case(bases, seed, number)
            changed = case.changed_count
            rng = random.Random(f"{seed}/{number}/read")
            reading = read_case(case, folder / f"case-{os.getpid()}", rng)
        except Exception:  # Whatever it is, it is what we look for.
            failure = traceback.format_exc()[-1500:]
        told = {
            "case": number,
            "bytes": changed,
            "seconds": time.monotonic() - began,
            "memory": _memory_bytes("VmHWM") - resident,
            "failure": failure,
            **dataclasses.asdict(reading),
        }
        os.write(output, json.dumps(told).encode() + b"\n")


def _memory_bytes(name: str) -> int:
    """A size of this process, by its name in /proc."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


def main() -> None:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bytes", type=int, default=10**6, help="bytes to change in all")
    parser.add_argument("--seconds", type=float, default=900, help="and at most so long")
    parser.add_argument("--seed", type=int, help="decides all cases; without, one is drawn")
    parser.add_argument("--case", type=int, help="read this case alone, here, with its traceback")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.case is not None:
            case = make_case(make_bases(folder), seed, options.case)
            rng = random.Random(f"{seed}/{options.case}/read")
            print(read_case(case, folder / "case", rng))
            return
        began = time.monotonic()
        totals = fuzz(
            seed=seed,
            byte_count=options.bytes,
            limit_s=options.seconds,
            folder=folder,
            on_failure=lambda text: print(text, file=sys.stderr, flush=True),
        )
        print("\n".join(totals.lines()))
        print(f"{time.monotonic() - began:.0f} s")
    sys.exit(1 if totals.failures else 0)


if __name__ == "__main__":
    main()
