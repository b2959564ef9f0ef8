"""A shard gives back its samples, and a file that is not that shard is refused."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import lmdb
import msgspec
import numpy as np
import pytest
from numpy.lib import format as npy_format

from readers.store.errors import ChecksumError, CodecError, ShardError
from readers.store.layout import digest_from_key, key_from_index
from readers.store.manifest import ShardInfo
from readers.store.npy import npy_bytes, npy_view
from readers.store.record import RecordLayout, RecordReader, pack_record
from readers.store.schema import Field, Schema
from readers.store.shard import ShardWriter, check_against_lmdb, file_sha256
from readers.store.shard_reader import ShardReader, index_places, open_shard_file
from tests.readers.store.making import (
    FIXED,
    NUMBERS,
    ORIGINAL,
    VARIABLE,
    assert_same_value,
    change_database,
    open_plain,
    open_shard,
    original,
    pixels,
    sample_of,
    samples_of,
    write_shard,
)

SCHEMAS = {"numbers": NUMBERS, "fixed": FIXED, "variable": VARIABLE, "original": ORIGINAL}

each_schema = pytest.mark.parametrize("kind", SCHEMAS)


# Writing, and what an LMDB client finds.


@each_schema
@pytest.mark.parametrize("count", [1, 2, 57])
def test_samples_come_back_in_their_order(kind, count, tmp_path):
    """Each sample is found by its position and by its key, as it was given."""
    schema, path = SCHEMAS[kind], tmp_path / "shard-00000.lmdb"
    given = samples_of(schema, range(count))
    shard = open_shard(path, write_shard(path, schema, given), schema)
    reader = RecordReader(RecordLayout.of(schema))
    for at, (key, values) in enumerate(given):
        assert shard.find(key) == at
        shard.check_record(at)
        for name, value in reader.unpack(shard.record(at)).items():
            assert_same_value(schema[name], value, values[name])
    assert len(shard.offsets) == count
    for key in (b"", b"raw/", b"raw/000000.jpg/", given[0][0].upper()):
        assert shard.find(key) is None


@each_schema
def test_an_lmdb_client_finds_what_the_format_says(kind, tmp_path):
    """The three databases are there, with the keys and values of FORMAT.md, and nothing else."""
    schema, path = SCHEMAS[kind], tmp_path / "shard-00000.lmdb"
    given = samples_of(schema, range(30))
    info = write_shard(path, schema, given)
    layout = RecordLayout.of(schema)
    packed = [pack_record(layout, values) for _, values in given]
    records = [record for record, _ in packed]
    with open_plain(path, readonly=True) as env, env.begin() as names:
        assert [key for key, _ in names.cursor()] == [b"index", b"keys", b"samples"]
        tables = {}
        for name in (b"index", b"keys", b"samples"):
            with env.begin(db=env.open_db(name, create=False)) as transaction:
                tables[name] = dict(transaction.cursor())
    assert tables[b"samples"] == {struct.pack(">Q", at): r for at, r in enumerate(records)}
    assert tables[b"keys"] == {
        hashlib.blake2b(key, digest_size=16).digest(): struct.pack(">Q", at)
        for at, (key, _) in enumerate(given)
    }
    index = {name.decode(): _loaded(value) for name, value in tables[b"index"].items()}
    data = path.read_bytes()
    for at, record in enumerate(records):
        start = int(index["offset"][at])
        assert data[start : start + len(record)] == record
    assert index["offset"].dtype == "<u8"
    assert index["length"].dtype == index["crc32"].dtype == "<u4"
    assert index["length"].tolist() == [len(record) for record in records]
    assert index["crc32"].tolist() == [crc32(record) for record in records]
    columns = {item.name: item for item in layout.items if not item.name.endswith(".end")}
    assert set(index) == {
        "offset", "length", "crc32", "identity", *(f"column.{name}" for name in columns)
    }  # fmt: skip
    for at, item in enumerate(layout.items):
        if item.name in columns:
            column = index[f"column.{item.name}"]
            assert column.dtype == np.dtype(item.dtype).newbyteorder("<")
            assert column.tolist() == [header[at] for _, header in packed]
    # The identity, as FORMAT.md has it.
    plain = json.dumps(json.loads(json.dumps(schema.as_builtins())), sort_keys=True).encode()
    digest = hashlib.sha256(plain + index["length"].tobytes() + index["crc32"].tobytes())
    for key, position in sorted(tables[b"keys"].items()):
        digest.update(key + position)
    assert index["identity"].tobytes() == digest.digest()
    assert info == ShardInfo(
        file="shard-00000.lmdb",
        sample_count=30,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        identity=digest.hexdigest(),
        index=index_places(memoryview(data)),
    )
    assert 0 < sum(count for _, count in info.index_parts) <= len(data)


def _loaded(data: bytes) -> np.ndarray:
    """What numpy's own reader finds in the bytes of a `.npy` file."""
    import io

    stream = io.BytesIO(data)
    assert npy_format.read_magic(stream) == (1, 0)
    stream.seek(0)
    array = npy_format.read_array(stream, allow_pickle=False)
    assert stream.read() == b""
    return array


@each_schema
def test_the_same_samples_give_the_same_bytes(kind, tmp_path):
    """Digests are compared between machines, so nothing of the time or the place may get in."""
    schema, contents = SCHEMAS[kind], []
    for name, before in (("a", None), ("b/c", b"no LMDB file"), ("d", b"")):
        path = tmp_path / name / "shard-00000.lmdb"
        path.parent.mkdir(parents=True)
        if before is not None:
            path.write_bytes(before)
        info = write_shard(path, schema, samples_of(schema, range(40)))
        contents.append((path.read_bytes(), info))
    assert contents[0] == contents[1] == contents[2]


def test_what_was_on_the_path_before_is_gone(tmp_path):
    """A build that was killed leaves half a shard; its samples must not come back."""
    path, clean = tmp_path / "shard-00000.lmdb", tmp_path / "shard-clean.lmdb"
    write_shard(path, VARIABLE, samples_of(VARIABLE, range(500)))
    write_shard(path, FIXED, samples_of(FIXED, range(3)))
    write_shard(clean, FIXED, samples_of(FIXED, range(3)))
    assert path.read_bytes() == clean.read_bytes()


def test_the_order_of_samples_is_part_of_the_bytes(tmp_path):
    """Two shards of the same samples in another order are two shards."""
    given = samples_of(FIXED, range(4))
    a = write_shard(tmp_path / "shard-a.lmdb", FIXED, given)
    b = write_shard(tmp_path / "shard-b.lmdb", FIXED, given[::-1])
    assert a.identity != b.identity
    assert a.sha256 != b.sha256


@pytest.mark.parametrize(
    ("count", "side"),
    [(11, 2300), (4000, 64), (9000, 26)],
    ids=["values of 5 MB", "values of 12 KB", "values that fit no leaf by some bytes"],
)
def test_the_map_grows_by_itself(count, side, tmp_path):
    """Nobody meets MDB_MAP_FULL, and the file is no longer than it must be."""
    schema = Schema((Field(name="a", kind="array", dtype="uint8", shape=(side, side, 3)),))
    path = tmp_path / "shard-00000.lmdb"
    writer = ShardWriter(path, RecordLayout.of(schema))
    value = pixels(side, side)
    for at in range(count):
        value[0, 0, 0] = at % 251
        writer.add(b"%d" % at, {"a": value})
    info = writer.seal()
    shard = open_shard(path, info, schema)
    for at in (0, 1, count // 2, count - 1):
        shard.check_record(at)
        assert shard.record(at)[0] == at % 251
    pages_each = -(-(side * side * 3 + 16) // 4096)
    assert info.bytes < count * (pages_each * 4096 + 150) + 2**20


@pytest.mark.slow
def test_many_tiny_records_of_one_shard(tmp_path):
    """200,000 records of some bytes: the trees are deep, and every offset is right."""
    path, count = tmp_path / "shard-00000.lmdb", 200_000
    writer = ShardWriter(path, RecordLayout.of(NUMBERS))
    for at in range(count):
        writer.add(b"%d" % at, {"label": at % 2, "weight": at})
    info = writer.seal()
    shard = open_shard(path, info, NUMBERS)
    data = np.fromfile(path, np.uint8)
    records = np.lib.stride_tricks.as_strided(data, (len(data) - 15, 16), (1, 1))[shard.offsets]
    assert np.array_equal(records[:, :8].copy().view("<i8")[:, 0], np.arange(count) % 2)
    assert np.array_equal(records[:, 8:12].copy().view("<f4")[:, 0], np.arange(count, dtype="f4"))
    assert shard.columns["weight"].tolist() == list(range(count))
    assert not shard.columns["weight"].flags.owndata  # A view into the file, not a copy.
    assert [shard.find(b"%d" % at) for at in (0, 77_777, count - 1)] == [0, 77_777, count - 1]
    assert info.bytes < 60 * 2**20
    check_against_lmdb(path, shard)


def test_the_disk_is_told_of_what_was_written_while_more_is_made(tmp_path, monkeypatch):
    """All but the last pieces of a shard are on their way before the sync at its end."""
    told = []
    fadvise = os.posix_fadvise

    def listening(descriptor, start, length, advice):
        told.append((start, length))
        return fadvise(descriptor, start, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", listening)
    schema = Schema((Field(name="a", kind="array", dtype="uint8", shape=(2**20,)),))
    path = tmp_path / "shard-00000.lmdb"
    writer = ShardWriter(path, RecordLayout.of(schema))
    for at in range(30):
        writer.add(b"%d" % at, {"a": np.full(2**20, at, np.uint8)})
    ends = [start + length for start, length in told]
    assert [start for start, _ in told] == [0, *ends[:-1]]
    assert ends[-1] >= 26 * 2**20
    shard = open_shard(path, writer.seal(), schema)
    assert [shard.record(at)[0] for at in range(30)] == list(range(30))


@pytest.mark.parametrize("ending", ["seal", "abort"])
def test_a_writer_leaves_no_descriptor_open(ending, tmp_path):
    """A build worker makes thousands of shards."""
    before = os.listdir("/proc/self/fd")
    writer = ShardWriter(tmp_path / "shard-00000.lmdb", RecordLayout.of(NUMBERS))
    writer.add(b"a", {"label": 0, "weight": 1})
    getattr(writer, ending)()
    assert os.listdir("/proc/self/fd") == before


def test_two_samples_of_one_key_are_refused(tmp_path):
    """A key must lead to one sample."""
    writer = ShardWriter(tmp_path / "shard-00000.lmdb", RecordLayout.of(NUMBERS))
    for at, key in enumerate((b"a", b"b", b"c", b"b")):
        writer.add(key, {"label": 0, "weight": at})
    with pytest.raises(CodecError, match="samples 1 and 3 of the shard have the same key"):
        writer.seal()
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_a_sample_that_does_not_fit_is_not_in_the_shard(tmp_path):
    """A build goes on behind a reject; positions stay without gaps."""
    path = tmp_path / "shard-00000.lmdb"
    writer = ShardWriter(path, RecordLayout.of(NUMBERS))
    writer.add(b"a", {"label": 0, "weight": 1})
    with pytest.raises(CodecError, match="field 'label'"):
        writer.add(b"b", {"label": 7, "weight": 2})
    assert writer.sample_count == 1
    writer.add(b"c", {"label": 1, "weight": 3})
    shard = open_shard(path, writer.seal(), NUMBERS)
    assert shard.columns["weight"].tolist() == [1, 3]
    assert [shard.find(key) for key in (b"a", b"b", b"c")] == [0, None, 1]


def test_an_unfinished_shard_is_no_shard(tmp_path):
    """What was not sealed has no index, and `abort` leaves nothing behind."""
    path = tmp_path / "shard-00000.lmdb"
    info = write_shard(tmp_path / "shard-other.lmdb", FIXED, samples_of(FIXED, range(3)))
    writer = ShardWriter(path, RecordLayout.of(FIXED))
    for key, values in samples_of(FIXED, range(3)):
        writer.add(key, values)
    with pytest.raises(ShardError, match=r"no array 'identity' in its index|too few"):
        open_shard(path, info, FIXED)
    writer.abort()
    assert not path.exists()


@pytest.mark.parametrize("name", ["absent/shard-00000.lmdb", "folder"])
def test_a_path_that_cannot_be_written_is_an_os_error(name, tmp_path):
    """The path is named, with the system's own reason."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=name) as caught:
        ShardWriter(tmp_path / name, RecordLayout.of(FIXED))
    assert caught.value.errno in (errno.ENOENT, errno.EISDIR, errno.EPERM)


# Disks and limits.

FILL = """
import sys
from pathlib import Path
import numpy as np
from readers.store.record import RecordLayout
from readers.store.schema import Field, Schema
from readers.store.shard import ShardWriter
schema = Schema((Field(name="a", kind="array", dtype="uint8", shape=(int(sys.argv[2]),)),))
writer = ShardWriter(Path(sys.argv[1]), RecordLayout.of(schema))
try:
    for at in range(int(sys.argv[3])):
        writer.add(b"%d" % at, {"a": np.zeros(int(sys.argv[2]), np.uint8)})
    writer.seal()
except OSError as error:
    print(error.errno, error)
writer.abort()
print("removed" if not Path(sys.argv[1]).exists() else "still there")
"""

FILLS = pytest.mark.parametrize(
    ("size", "count"), [(2**20, 40), (16, 50_000), (2**21, 2)], ids=["batch", "keys", "seal"]
)


# The file system is seen by the child alone and gone with it, however the test ends.
ON_A_SMALL_DISK = """
mount -t tmpfs -o size=3m tmpfs "$1" || exit 77
shift
exec "$@"
"""


@FILLS
def test_a_full_disk_is_an_os_error_that_says_so(size, count, tmp_path):
    """Wherever space runs out, no signal and no half-written shard: ENOSPC with the path."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here to mount a small file system with")
    path = tmp_path / "shard-00000.lmdb"
    unshare = ["unshare", "--mount", "--map-root-user", "sh", "-c", ON_A_SMALL_DISK, "sh", tmp_path]
    done = subprocess.run(
        [*unshare, sys.executable, "-c", FILL, path, str(size), str(count)],
        capture_output=True,
        text=True,
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"may not mount a small file system here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first.startswith(f"{errno.ENOSPC} [Errno {errno.ENOSPC}] No space left on device")
    assert str(path) in first
    assert last == "removed"
    assert list(tmp_path.iterdir()) == []


@FILLS
def test_a_limit_on_file_size_is_an_os_error_that_says_so(size, count, tmp_path):
    """Some clusters have one (`ulimit -f`); a build must not die of SIGXFSZ."""
    path = tmp_path / "shard-00000.lmdb"
    done = subprocess.run(
        [sys.executable, "-c", FILL, path, str(size), str(count)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3 * 2**20, 3 * 2**20)),
    )
    assert done.returncode == 0, (done.stderr, signal.Signals(-done.returncode))
    first, last = done.stdout.splitlines()
    assert first.startswith(f"{errno.EFBIG} [Errno {errno.EFBIG}] File too large")
    assert str(path) in first
    assert last == "removed"


# Files that are not the manifest's.


@pytest.fixture
def shard(tmp_path) -> tuple[Path, ShardInfo]:
    path = tmp_path / "shard-00000.lmdb"
    return path, write_shard(path, VARIABLE, samples_of(VARIABLE, range(20)))


def open_from_disk(path: Path, info: ShardInfo, schema: Schema = VARIABLE) -> ShardReader:
    """As a store opens it: the file's size first, then what it says."""
    os.close(open_shard_file(path, info))
    return open_shard(path, info, schema)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_a_shard_of_another_size_is_refused(shard):
    """A copy that broke off, or a file that something was added to: found and expected sizes."""
    path, info = shard
    for size in (0, 1, 4096, info.bytes - 4096, info.bytes - 1, info.bytes + 1):
        os.truncate(path, size)
        before = descriptors()
        with pytest.raises(ShardError, match=f"^{path}: {size} bytes, expected {info.bytes}") as e:
            open_from_disk(path, info)
        assert descriptors() == before
        assert (e.value.path, e.value.position) == (path, None)


def test_a_shard_that_is_not_there_is_named(shard):
    """Which file, how long it should be, and what to do."""
    path, info = shard
    path.unlink()
    with pytest.raises(ShardError, match=f"^{path}: No such file.* of {info.bytes} bytes. Copy"):
        open_from_disk(path, info)


def test_a_symbolic_link_is_not_followed(shard, tmp_path):
    """A store from a stranger must not lead to files outside of it."""
    path, info = shard
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ShardError, match=f"^{path}: is a symbolic link; expected a file"):
        open_from_disk(path, info)


@pytest.mark.parametrize(
    ("make", "kind"),
    [(os.mkdir, "a folder"), (os.mkfifo, "a pipe or device")],
    ids=["folder", "pipe"],
)
def test_what_is_no_plain_file_is_refused_at_once(make, kind, shard):
    """Opening a pipe must not wait for a writer, and the message must not speak of sizes."""
    path, info = shard
    path.unlink()
    make(path)
    before = descriptors()
    with pytest.raises(ShardError, match=f"^{path}: is {kind}; expected a file of {info.bytes}"):
        open_from_disk(path, info)
    assert descriptors() == before


def test_a_shard_that_may_not_be_read_is_named(shard, as_nobody):
    """Permissions of a shared store are a common mistake."""
    path, info = shard
    path.chmod(0)
    with as_nobody, pytest.raises(ShardError, match=f"^{path}: Permission denied; expected"):
        open_shard_file(path, info)


def test_another_shard_of_the_same_size_is_refused(shard, tmp_path):
    """Two shards of a store are often equally long; swapping them must be noticed."""
    path, info = shard
    other = write_shard(tmp_path / "shard-other.lmdb", VARIABLE, samples_of(VARIABLE, range(1, 21)))
    os.replace(tmp_path / "shard-other.lmdb", path)
    found, expected = other.identity[:16], info.identity[:16]
    with pytest.raises(ShardError, match=f"^{path}: identity {found}..., expected {expected}..."):
        open_from_disk(path, msgspec.structs.replace(info, bytes=other.bytes))


def test_a_shard_of_another_schema_is_refused(tmp_path):
    """The same lengths and checksums under other fields are not the same samples."""
    other = Schema((NUMBERS["weight"], NUMBERS["label"]))
    path = tmp_path / "shard-00000.lmdb"
    given = samples_of(NUMBERS, range(5))
    assert (
        write_shard(path, other, given).identity
        != write_shard(tmp_path / "shard-b.lmdb", NUMBERS, given).identity
    )


@pytest.mark.parametrize("data", [b"", b"x", bytes(4096), bytes(65536), b"\xff" * 65536])
def test_a_file_of_something_else_is_refused(data, shard):
    """Whatever a file holds, opening it is an error that names it."""
    path, info = shard
    path.write_bytes(data)
    with pytest.raises(ShardError, match=f"^{path}: .*The file was damaged or replaced"):
        open_shard(path, info, VARIABLE)


# Crafted shards: made by LMDB, of the size and identity that their manifest says.


def crafted(
    shard: tuple[Path, ShardInfo], name: str, change: np.ndarray | bytes | None
) -> ShardInfo:
    value = npy_bytes(change) if isinstance(change, np.ndarray) else change
    return change_database(*shard, b"index", {name.encode(): value})


def changed(array: np.ndarray, at: int, value: int) -> np.ndarray:
    array = array.copy()
    array[at] = value
    return array


SPANS = [
    ("offset", "the end of the file", r"sample 3 of the shard at \d+ with \d+ bytes"),
    ("offset", 2**40, r"sample 3 of the shard at 1099511627776 with"),
    ("offset", 2**63, r"sample 3 of the shard at 9223372036854775808 with"),
    ("offset", 2**64 - 1, r"sample 3 of the shard at 18446744073709551615 with"),
    ("offset", 2**64 - 100, r"sample 3 of the shard at 18446744073709551516 with"),
    ("length", 0, r"sample 3 of the shard .* with 0 bytes, expected at least 40 bytes inside"),
    ("length", 39, r"sample 3 of the shard .* with 39 bytes, expected at least 40 bytes inside"),
    ("length", 2**32 - 1, r"sample 3 of the shard .* with 4294967295 bytes, expected"),
    ("column.label", 2, r"sample 3 of the shard, field 'label': 2, expected \[0, 2\)"),
    ("column.label", -1, r"sample 3 of the shard, field 'label': -1, expected \[0, 2\)"),
    ("column.image.dtype", 99, r"sample 3 .*'image', element type: 99, expected \[0, 12\)"),
    ("column.image.dtype", 12, r"sample 3 .*'image', element type: 12, expected \[0, 12\)"),
    ("column.image.height", 2**32 - 1, r"sample 3 .*'image': \d+ bytes of elements in a record"),
    ("column.image.width", 2**31, r"sample 3 .*'image': \d+ bytes of elements in a record"),
    ("column.boxes.0", 2**32 - 1, r"sample 3 .*'boxes': 68719476720 bytes of elements in a rec"),
]


@pytest.mark.parametrize(("name", "value", "reason"), SPANS)
def test_an_index_that_leads_astray_is_refused(name, value, reason, shard):
    """One gather copies by offsets and sides without looking, so they are looked at here."""
    path, info = shard
    reader = open_shard(path, info, VARIABLE)
    arrays = {
        "offset": reader.offsets,
        "length": reader.lengths,
        **{f"column.{name}": array for name, array in reader.columns.items()},
    }
    if value == "the end of the file":
        value = info.bytes + 2**15 - int(reader.lengths[3]) + 1
    info = crafted(shard, name, changed(arrays[name], 3, value))
    assert info.bytes <= 2**16 + 2**15
    with pytest.raises(ShardError, match=f"^{path}: {reason}"):
        open_from_disk(path, info)


def test_a_record_may_end_where_its_file_ends_and_not_behind_it(shard):
    """The limit is exact on both sides."""
    path, info = shard
    reader = open_shard(path, info, VARIABLE)
    for _ in range(6):  # LMDB uses freed pages again: the file is soon as long as it will be.
        probe = crafted(shard, "offset", reader.offsets)
    last = probe.bytes - int(reader.lengths[3])
    info = crafted(shard, "offset", changed(reader.offsets, 3, last))
    assert info.bytes == probe.bytes
    open_from_disk(path, info)
    info = crafted(shard, "offset", changed(reader.offsets, 3, last + 1))
    assert info.bytes == probe.bytes
    with pytest.raises(ShardError, match="sample 3 of the shard at"):
        open_from_disk(path, info)


@pytest.mark.parametrize("value", [23, 25, 2**32 - 1])
def test_records_of_fixed_fields_alone_have_one_length(value, tmp_path):
    """A longer record than its fields need is as wrong as a shorter one."""
    schema = Schema((FIXED["label"], Field(name="a", kind="array", dtype="uint8", shape=(16,))))
    path = tmp_path / "shard-00000.lmdb"
    samples = [(b"%d" % at, {"label": 0, "a": np.zeros(16, np.uint8)}) for at in range(5)]
    info = write_shard(path, schema, samples)
    lengths = open_shard(path, info, schema).lengths
    assert lengths.tolist() == [24] * 5
    info = crafted((path, info), "length", changed(lengths, 4, value))
    with pytest.raises(ShardError, match=f"sample 4 of the shard at .* with {value} bytes"):
        open_from_disk(path, info, schema)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("column.image.orientation", 0, r"'image', orientation: 0, expected \[1, 9\)"),
        ("column.image.orientation", 9, r"'image', orientation: 9, expected \[1, 9\)"),
    ],
)
def test_an_orientation_out_of_range_is_refused(name, value, reason, tmp_path):
    """EXIF knows eight."""
    path = tmp_path / "shard-00000.lmdb"
    shard = path, write_shard(path, ORIGINAL, samples_of(ORIGINAL, range(10)))
    column = open_shard(*shard, ORIGINAL).columns["image.orientation"]
    info = crafted(shard, name, changed(column, 3, value))
    with pytest.raises(ShardError, match=f"^{path}: sample 3 of the shard, field {reason}"):
        open_from_disk(path, info, ORIGINAL)


MIXED = Schema(
    (
        Field(
            name="image",
            kind="image",
            dtype="uint8",
            shape=(None, None, 3),
            codec="mixed",
            mode="rgb",
        ),
    )
)


def test_mixed_images_are_held_against_what_each_of_them_is(tmp_path):
    """Pixels must be in their record; the sides of a file's picture say nothing of its bytes."""
    path = tmp_path / "shard-00000.lmdb"
    samples = [
        (b"%d" % at, {"image": pixels(4, 5) if at % 2 else original(40, 50, 1)}) for at in range(6)
    ]
    shard = path, write_shard(path, MIXED, samples)
    columns = open_shard(*shard, MIXED).columns
    assert columns["image.orientation"].tolist() == [1, 0, 1, 0, 1, 0]
    assert columns["image.height"].tolist() == [40, 4, 40, 4, 40, 4]
    info = crafted(shard, "column.image.height", changed(columns["image.height"], 2, 2**31))
    open_from_disk(path, info, MIXED)
    info = crafted(shard, "column.image.height", changed(columns["image.height"], 3, 4000))
    with pytest.raises(ShardError, match=r"sample 3 .*'image': 60000 bytes of elements in a rec"):
        open_from_disk(path, info, MIXED)
    crafted(shard, "column.image.height", columns["image.height"])
    info = crafted(shard, "column.image.orientation", changed(columns["image.orientation"], 3, 9))
    with pytest.raises(ShardError, match=r"'image', orientation: 9, expected \[0, 9\)"):
        open_from_disk(path, info, MIXED)


def test_sides_that_are_the_same_for_all_cannot_overflow_the_check(tmp_path):
    """Sides multiply beyond 64 bits; the check must not wrap around to a small number."""
    free = Schema((Field(name="a", kind="array", dtype="uint8", shape=(None,) * 4),))
    path = tmp_path / "shard-00000.lmdb"
    info = write_shard(path, free, [(b"k", {"a": np.zeros((1, 1, 1, 1), np.uint8)})])
    sides = (2**31 - 1, None, 2**31 - 1, 4)
    schema = Schema((Field(name="a", kind="array", dtype="uint8", shape=sides),))
    with pytest.raises(ShardError, match=r"'a': 1844674405\d+ bytes of elements"):
        open_from_disk(path, info, schema)


NAMES = ["offset", "length", "crc32", "column.label", "column.image.height", "identity"]


@pytest.mark.parametrize("name", NAMES)
def test_an_index_array_that_is_missing_is_named(name, shard):
    """A shard of an earlier draft, or one that was tampered with."""
    info = crafted(shard, name, None)
    with pytest.raises(ShardError, match=f"^{shard[0]}: no array '{name}' in its index"):
        open_from_disk(shard[0], info)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["fewer", "more", "dtype", "order", "axes", "cut", "empty", "v2"])
def test_an_index_array_of_another_form_is_named(name, how, shard):
    """Only the one form that the manifest's sample count calls for is taken."""
    path, info = shard
    with open_plain(path, readonly=True) as env:
        index = env.open_db(b"index", create=False)
        with env.begin(db=index) as transaction:
            data = transaction.get(name.encode())
    array = _loaded(data)
    forms = {
        "fewer": lambda: npy_bytes(array[1:]),
        "more": lambda: npy_bytes(np.append(array, array[:1])),
        "dtype": lambda: npy_bytes(array.astype("f8")),
        "order": lambda: data.replace(b"<", b">").replace(b"|", b">"),
        "axes": lambda: data.replace(b"20,", b"20,1").replace(b"32,", b"32,1"),
        "cut": lambda: data[:-1],
        "empty": lambda: b"",
        "v2": lambda: data.replace(b"NUMPY\x01", b"NUMPY\x02"),
    }
    value = forms[how]()
    assert value != data
    info = change_database(path, info, b"index", {name.encode(): value})
    with pytest.raises(ShardError, match=rf"^{path}: index array '{name}': {len(value)} bytes"):
        open_from_disk(path, info)


@pytest.mark.parametrize(
    ("database", "reason"),
    [
        (b"samples", "LMDB cannot read it: .*NOTFOUND"),
        (b"keys", "no database 'keys'"),
        (b"index", "no database 'index'"),
    ],
)
def test_a_database_that_is_missing_is_named(database, reason, shard):
    """Readers need `keys` and `index`; `samples` is for LMDB clients, and for verifying."""
    path, info = shard
    with open_plain(path, map_size=2**24) as env, env.begin(write=True) as transaction:
        transaction.drop(env.open_db(database, transaction), delete=True)
    info = msgspec.structs.replace(info, bytes=path.stat().st_size)
    with pytest.raises(ShardError, match=f"^{path}: {reason}"):
        check_against_lmdb(path, open_from_disk(path, info))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (key_from_index(20), r"key at position 20, expected \[0, 20\)"),
        (b"\xff" * 8, r"key at position 18446744073709551615, expected \[0, 20\)"),
        (b"\0" * 7, "a key's position in 7 bytes, expected 8"),
        (b"\0" * 9000, "a key's position in 9000 bytes, expected 8"),
        (b"", "a key's position in 0 bytes, expected 8"),
    ],
)
def test_a_key_that_leads_nowhere_is_an_error(value, reason, shard):
    """Looking up a key must never give a position that is none."""
    path, info = shard
    key = sample_of(VARIABLE, 3)[0]
    info = change_database(path, info, b"keys", {digest_from_key(key): value})
    reader = open_from_disk(path, info)
    with pytest.raises(ShardError, match=f"^{path}: {reason}"):
        reader.find(key)
    assert reader.find(sample_of(VARIABLE, 4)[0]) == 4


# Verifying.


def test_any_changed_byte_of_a_record_is_found(tmp_path):
    """Every byte counts: header, padding, pixels and the last one."""
    path = tmp_path / "shard-00000.lmdb"
    info = write_shard(path, VARIABLE, samples_of(VARIABLE, range(3)))
    data = np.fromfile(path, np.uint8)
    reader = ShardReader(path, memoryview(data), info, RecordLayout.of(VARIABLE))
    for at in range(3):
        reader.check_record(at)
        start, length = int(reader.offsets[at]), int(reader.lengths[at])
        for byte in range(start, start + length):
            data[byte] ^= 1 << (byte % 8)
            with pytest.raises(ChecksumError) as caught:
                reader.check_record(at)
            data[byte] ^= 1 << (byte % 8)
        reader.check_record(at)
    assert str(caught.value).startswith(f"{path}, sample 2 of the shard: checksum ")
    assert f"expected {int(reader.checksums[2]):08x}" in str(caught.value)
    assert caught.value.position == 2


@each_schema
def test_an_honest_shard_agrees_with_lmdb(kind, tmp_path):
    """Offsets, lengths, order and keys are LMDB's own."""
    schema, path = SCHEMAS[kind], tmp_path / "shard-00000.lmdb"
    info = write_shard(path, schema, samples_of(schema, range(33)))
    check_against_lmdb(path, open_shard(path, info, schema))


def test_an_index_that_tells_another_story_than_lmdb_is_found(shard):
    """Records that are not those of `samples` pass every check of an opening."""
    path, info = shard
    reader = open_shard(path, info, VARIABLE)
    swapped = reader.offsets.copy()
    swapped[[3, 5]] = swapped[[5, 3]]
    lengths = reader.lengths.copy()
    lengths[[3, 5]] = lengths[[5, 3]]
    info = change_database(
        path, info, b"index", {b"offset": npy_bytes(swapped), b"length": npy_bytes(lengths)}
    )
    reader = open_from_disk(path, info)
    with pytest.raises(ShardError, match="sample 3 of the shard: LMDB finds another record"):
        check_against_lmdb(path, reader)


def test_samples_and_keys_that_lmdb_has_otherwise_are_found(shard):
    """One sample more, a gap, a key more, two keys for one sample."""
    path, info = shard
    whole = path.read_bytes()
    key = digest_from_key(sample_of(VARIABLE, 4)[0])
    for database, changes, reason in (
        (b"samples", {key_from_index(20): b"x"}, "21 samples by LMDB, expected 20"),
        (b"samples", {key_from_index(19): None}, "19 samples by LMDB, expected 20"),
        (
            b"samples",
            {key_from_index(19): None, key_from_index(99): b"x"},
            "sample 19 of the shard: LMDB finds another record",
        ),
        (b"samples", {key_from_index(19): b"x"}, "sample 19 of the shard: LMDB finds another"),
        (b"keys", {b"k" * 16: key_from_index(1)}, "21 keys by LMDB, expected 20"),
        (b"keys", {key: key_from_index(5)}, "the keys do not lead to every sample once"),
        (b"keys", {key: b"\0"}, "the keys do not lead to every sample once"),
    ):
        path.write_bytes(whole)
        altered = change_database(path, info, database, changes)
        with pytest.raises(ShardError, match=reason):
            check_against_lmdb(path, open_from_disk(path, altered))


def test_a_schema_that_was_changed_after_the_build_is_found(shard):
    """A manifest that calls cats dogs passes every check of an opening."""
    path, info = shard
    for label in (
        Field(name="label", kind="label", dtype="int64", names=("dog", "cat")),
        Field(name="label", kind="scalar", dtype="int64", names=("cat", "dog")),
    ):
        fields = [label if field.name == "label" else field for field in VARIABLE.fields]
        reader = open_from_disk(path, info, Schema(tuple(fields)))
        with pytest.raises(ShardError, match=f"^{path}: its identity is not that of the manifest"):
            check_against_lmdb(path, reader)


def test_keys_and_checksums_that_were_changed_after_the_build_are_found(shard):
    """The identity is of all that the index says, so a shard cannot be altered under it."""
    path, info = shard
    whole = path.read_bytes()
    reader = open_shard(path, info, VARIABLE)
    keys = [digest_from_key(sample_of(VARIABLE, at)[0]) for at in (4, 5)]
    swapped = {keys[0]: key_from_index(5), keys[1]: key_from_index(4)}
    checksums = {b"crc32": npy_bytes(changed(reader.checksums, 3, 0))}
    for database, changes in ((b"keys", swapped), (b"index", checksums)):
        path.write_bytes(whole)
        altered = change_database(path, info, database, changes)
        with pytest.raises(ShardError, match=f"^{path}: its identity is not that of the manifest"):
            check_against_lmdb(path, open_from_disk(path, altered))


def test_what_lmdb_cannot_open_is_an_error_of_the_shard(shard):
    """LMDB's own exceptions do not come out."""
    path, info = shard
    reader = open_shard(path, info, VARIABLE)
    path.write_bytes(bytes(info.bytes))
    with pytest.raises(ShardError, match="LMDB cannot read it") as caught:
        check_against_lmdb(path, reader)
    assert isinstance(caught.value.__cause__, lmdb.Error)


def test_the_digest_of_a_file_is_sha256(tmp_path):
    """As `sha256sum` prints it."""
    for size in (0, 1, 2**20, 2**20 + 1, 3 * 2**20):
        data = pixels(1, 1).tobytes() * (size // 3) + b"x" * (size % 3)
        (tmp_path / "file").write_bytes(data)
        assert file_sha256(tmp_path / "file") == hashlib.sha256(data).hexdigest()


# The arrays of an index.


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "uint32", "int64", "float16"])
@pytest.mark.parametrize("count", [0, 1, 9, 10, 100, 12345])
def test_arrays_are_what_numpy_writes(dtype, count):
    """Any tool reads `.npy`; these bytes are its own."""
    array = np.arange(count).astype(dtype)
    data = npy_bytes(array)
    assert np.array_equal(_loaded(data), array)
    assert _loaded(data).dtype == array.dtype
    found = npy_view(memoryview(data), dtype, count)
    assert np.array_equal(found, array)
    assert found.flags.aligned
    odd = memoryview(b"\0" + data)[1:]
    moved = npy_view(odd, dtype, count)
    assert np.array_equal(moved, array)
    assert moved.flags.aligned  # Whatever place LMDB had for it.
    for wrong in (count - 1, count + 1, 10 * count + 5):
        with pytest.raises(CodecError):
            npy_view(memoryview(data), dtype, wrong)


def test_errors_of_shards_cross_processes_whole():
    """Loader workers send them to the training process."""
    import pickle

    for kind in (ShardError, ChecksumError):
        for position in (None, 7):
            error = kind.at(Path("a/shard-00000.lmdb"), "found this, expected that", position)
            copy = pickle.loads(pickle.dumps(error))
            assert type(copy) is kind
            assert (str(copy), copy.path, copy.position) == (str(error), error.path, position)
