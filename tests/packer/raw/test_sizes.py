"""What claims to be far larger than its kind is refused by its size, and never held in memory."""

from __future__ import annotations

import gzip
import io
import json
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
from PIL import Image

from packer.errors import SourceError
from packer.files.sizes import LOOKED_AT_BYTES, check_start, picture_bytes_max, size_problem
from packer.files.text import bounded_lines, read_bounded, read_text
from packer.recipe import Recipe
from packer.sources import SourceOptions, scan_source
from readers.store.errors import ImageError

MIB = 2**20

BUILD = """
import json, resource, sys
from packer import build
from packer.errors import BuildError
from packer.recipe import Recipe
from packer.sources import SourceOptions
raw, out, format_name = sys.argv[1:]
source = SourceOptions(format=format_name)
try:
    report = build(raw, out, Recipe(), source=source, worker_count=1, rejects_max="100%")
    lines = open(out + "/rejects.jsonl").read().splitlines()
    found = {json.loads(line)["path"]: json.loads(line)["reason"] for line in lines}
    count = report.sample_count
except BuildError as error:
    found, count = {"": str(error)}, 0
# Not its own ru_maxrss, which begins with that of the process that started it.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
peak = max(int(status["VmHWM"].split()[0]), workers) // 1024
print(json.dumps([peak, count, found]))
"""
"""A build in a process of its own, with one build worker: the MiB that either took at most, how
many samples there are, and the rejects by path."""

PEAK_MIB_MAX = 320
"""Python with NumPy, Pillow and OpenCV takes 60 to 100, a line of a list up to 190. Nothing here
may come near the gigabyte that each of these inputs claims to hold."""


def built(raw: Path, format_name: str) -> tuple[int, dict[str, str]]:
    """Samples and rejects of a build that stayed within its memory."""
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{BUILD}"]
    done = subprocess.run(
        [*command, str(raw), str(raw.with_name("out.lmdb")), format_name],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    peak, count, found = json.loads(done.stdout.splitlines()[-1])
    assert peak < PEAK_MIB_MAX
    return count, found


def png(number: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (24, 16), (number, 2, 3)).save(data, "PNG")
    return data.getvalue()


def zeros(mib: int) -> bytes:
    """Raw deflate of so many MiB of zeros, made in no time: a block that stands on its own."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * mib + packer.flush()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def with_chunk(kind: bytes, data: bytes, *, is_last: bool = False) -> bytes:
    """A picture of 24 x 16 pixels with one chunk more."""
    whole = png(5)
    at = len(whole) - 12 if is_last else 33
    return whole[:at] + chunk(kind, data) + whole[at:]


def write_zip(path: Path, declared: int, mib: int) -> None:
    """A zip of two pictures, and between them zeros that it says are so many bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = zeros(mib)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0.png", png(0))
        archive.writestr("1.png", body, zipfile.ZIP_STORED)
        archive.writestr("2.png", png(2))
    data = bytearray(path.read_bytes())
    for at in (data.index(b"1.png") - 30, data.rindex(b"1.png") - 46):
        method, size = (8, 22) if data[at : at + 4] == b"PK\x03\x04" else (10, 24)
        data[at + method] = zipfile.ZIP_DEFLATED
        data[at + size : at + size + 4] = struct.pack("<I", declared)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("declared", "mib", "reason"),
    [
        (1024 * MIB, 1024, "1,073,741,824 bytes, far more than a picture takes; expected at most"),
        (500 * MIB, 500, "not an image: the first 256 bytes are all zero"),
        (1000, 1024, "more than the 1,000 bytes that the archive says"),
        (500 * MIB, 1, "not an image"),
        (3_000_000_000, 1024, "3,000,000,000 bytes; expected at most"),
    ],
)
def test_a_member_of_a_zip_is_never_more_in_memory_than_a_picture(declared, mib, reason, tmp_path):
    """Refused by what the directory says, and by what comes out of it; the rest is packed."""
    write_zip(tmp_path / "raw" / "a.zip", declared, mib)
    count, found = built(tmp_path / "raw", "zip")
    assert count == 2
    (path,) = found
    assert path.startswith("a.zip, ")
    assert path.endswith("1.png")
    assert reason in found[path]


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("mib", [1024, 400])
def test_a_member_of_a_tar_is_never_more_in_memory_than_a_picture(mode, mib, tmp_path):
    """The same of tar shards, compressed or not, whose zeros are passed over piece by piece."""
    raw = tmp_path / "raw"
    raw.mkdir()
    head = tarfile.TarInfo("1.png")
    head.size = mib * MIB
    first, last = io.BytesIO(), io.BytesIO()
    for target, number in ((first, 0), (last, 2)):
        with tarfile.open(fileobj=target, mode="w") as archive:
            member = tarfile.TarInfo(f"{number}.png")
            member.size = len(png(number))
            archive.addfile(member, io.BytesIO(png(number)))
    start = first.getvalue()[: 512 + 512] + head.tobuf(tarfile.GNU_FORMAT)
    if mode == "w":
        with open(raw / "a.tar", "wb") as file:
            file.write(start)
            file.truncate(len(start) + head.size)  # A hole in the file.
            file.seek(0, 2)
            file.write(last.getvalue())
    else:
        # A file of gzip may hold several parts, one behind the other.
        crc = 0
        for _ in range(mib):
            crc = zlib.crc32(bytes(MIB), crc)
        part = gzip.compress(b"")[:10] + zeros(mib) + struct.pack("<II", crc, head.size)
        data = gzip.compress(start) + part + gzip.compress(last.getvalue())
        (raw / "a.tgz").write_bytes(data)
    count, found = built(raw, "tar")
    assert count == 2
    ((path, reason),) = found.items()
    assert path == f"a.{'tar' if mode == 'w' else 'tgz'}, a/1.png"
    assert ("far more than a picture" if mib == 1024 else "not an image") in reason


def make_files(raw: Path) -> None:
    (raw / "0.png").write_bytes(png(0))
    for name, byte_count in (("1.png", 3 * 2**30), ("2.jpg", 400 * MIB)):
        with open(raw / name, "wb") as file:
            file.truncate(byte_count)


def make_chunks(raw: Path) -> None:
    (raw / "0.png").write_bytes(png(0))
    packed = zlib.compress(b"")[:2] + zeros(1024)
    for name, kind, head in (
        ("iccp", b"iCCP", b"x\0\0"),
        ("ztxt", b"zTXt", b"x\0\0"),
        ("itxt", b"iTXt", b"x\0\1\0\0\0"),
        ("exif", b"zTXt", b"Raw profile type exif\0\0"),
    ):
        (raw / f"{name}.png").write_bytes(with_chunk(kind, head + packed))
    size = bytearray(png(0)[:33])
    size[16:24] = struct.pack(">II", 60_000, 60_000)
    size[29:33] = struct.pack(">I", zlib.crc32(bytes(size[12:29])))
    (raw / "pixels.png").write_bytes(bytes(size) + chunk(b"IDAT", packed) + png(0)[-12:])


def make_masks(raw: Path) -> None:
    for folder in ("images", "masks"):
        (raw / folder).mkdir()
        (raw / folder / "0.png").write_bytes(png(0))
        Image.new("L", (24, 16), 1).save(raw / folder / "1.png")
        Image.new("L", (24, 16), 1).save(raw / folder / "0.png")
    with open(raw / "masks" / "1.png", "wb") as file:
        file.truncate(2**31)


def make_labels(raw: Path) -> None:
    (raw / "images").mkdir()
    (raw / "labels").mkdir()
    (raw / "classes.txt").write_text("a\n")
    for number in range(2):
        (raw / "images" / f"{number}.png").write_bytes(png(number))
        (raw / "labels" / f"{number}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    with open(raw / "labels" / "1.txt", "r+b") as file:
        file.truncate(2**31)


def make_xml(raw: Path) -> None:
    text = "<annotation><object><name>a</name><bndbox><xmin>1</xmin><ymin>2</ymin>"
    text += "<xmax>9</xmax><ymax>8</ymax></bndbox></object></annotation>"
    for number in range(2):
        (raw / f"{number}.png").write_bytes(png(number))
        (raw / f"{number}.xml").write_text(text)
    with open(raw / "1.xml", "r+b") as file:
        file.truncate(2**31)


def make_jsonl(raw: Path) -> None:
    (raw / "0.png").write_bytes(png(0))
    with open(raw / "list.jsonl", "wb") as file:
        file.write(b'{"file_name": "0.png", "label": "a"}\n')
        file.truncate(300 * MIB)


@pytest.mark.parametrize(
    ("make", "format_name", "reasons"),
    [
        (
            make_files,
            "flat",
            {"1.png": "3,221,225,472 bytes, far more than a picture", "2.jpg": "not an image"},
        ),
        (
            make_chunks,
            "flat",
            {"pixels.png": "60000x60000 pixels is over the limit"},
        ),
        (make_masks, "mask-pairs", {"images/1.png": "mask masks/1.png: 2,147,483,648 bytes"}),
        (make_labels, "yolo", {"images/1.png": "labels/1.txt has 2,147,483,648 bytes, far more"}),
        (make_xml, "voc", {"1.xml": "2,147,483,648 bytes of XML, expected at most 16,777,216"}),
        (make_jsonl, "jsonl", {"list.jsonl, line 2": "over 67,108,864 bytes"}),
    ],
    ids=["files", "chunks", "masks", "labels", "xml", "jsonl"],
)
def test_a_file_is_never_more_in_memory_than_its_kind_has(make, format_name, reasons, tmp_path):
    """Pictures, what is compressed in them, masks, labels and lists: the bad ones are rejects."""
    raw = tmp_path / "raw"
    raw.mkdir()
    make(raw)
    count, found = built(raw, format_name)
    # Chunks that say nothing about the pixels are passed over, so their pictures are stored.
    assert count == (5 if make is make_chunks else 1)
    assert found.keys() == reasons.keys()
    for path, reason in reasons.items():
        assert reason in found[path]


def write_sparse(path: Path, start: bytes, byte_count: int) -> None:
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(byte_count)


@pytest.mark.parametrize(
    ("name", "start", "byte_count", "format_name", "message"),
    [
        ("list.csv", b"path,label\n0.png,a\n", 2**31, "csv", "a line of over 67,108,864 char"),
        ("data.yaml", b"names: [a]\ntrain: .\n", 2**31, "yolo", "2,147,483,648 bytes, far more"),
        ("a.json", b'{"images": [], "annotations": []}', 2**31, "coco", "takes at most 1,073,74"),
        ("b.json", b'{"images": [], "annotations": []}', 2**35, "coco", "34,359,738,368 bytes, f"),
        ("wider_face_x_bbx_gt.txt", b"0.png\n", 2**31, "wider", "2,147,483,648 bytes, far more"),
    ],
)
def test_a_file_about_all_pictures_is_refused_by_its_size(
    name, start, byte_count, format_name, message, tmp_path
):
    """The message has the size and the limit; the file is not read first."""
    (tmp_path / "0.png").write_bytes(png(0))
    write_sparse(tmp_path / name, start, byte_count)
    with pytest.raises(SourceError, match=message):
        scan_source(tmp_path, SourceOptions(format=format_name))


def test_a_parquet_file_of_a_bomb_is_refused_unread(tmp_path):
    """What a row group says that it holds is believed no further than pictures can be packed."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    images = pa.array([png(0), bytes(300 * MIB)], pa.binary())
    table = pa.table({"image": pa.StructArray.from_arrays([images], ["bytes"])})
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1, **options)
    found = scan_source(tmp_path, SourceOptions(format="hf"))
    assert len(found.items) == 1
    assert "images of 314,57" in found.rejects[0].reason


def test_limits_follow_the_pixels_that_are_allowed():
    """Raising --max-pixels raises the size of files with it, and lowering it stops at 64 MiB."""
    assert picture_bytes_max(Recipe.pixels_max) == 2**29
    assert picture_bytes_max(2**30) == 2**31
    assert picture_bytes_max(1) == 2**26
    assert size_problem(2**29, 2**29) is None
    assert "536,870,913 bytes" in str(size_problem(2**29 + 1, 2**29))


@pytest.mark.parametrize(
    ("start", "is_picture"),
    [
        (b"\xff\xd8\xff\xe0", True),
        (b"II*\0", True),
        (b"MM\0+", True),
        (b"P6\n9 9", True),
        (b"\xff\x0a", True),
        (b"\0\0\0\x20ftypheic", True),
        (b"\0" * 256, False),
        (b"PK\x03\x04", False),
    ],
)
def test_a_large_file_must_begin_like_a_picture(start, is_picture):
    """Small ones are left to the decoders, and TGA has no signature to go by."""
    check_start(start, LOOKED_AT_BYTES, b"a.png")
    check_start(start, 2**28, b"a.TGA")
    if is_picture:
        check_start(start, 2**28, b"a.png")
        return
    with pytest.raises(ImageError, match=r"not an image: .* of its 268,435,456 bytes no more were"):
        check_start(start, 2**28, b"a.png")


def test_text_is_read_up_to_a_limit(tmp_path):
    """A file that is larger, or a device that never ends, is an error before it is in memory."""
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bounded(tmp_path / "a", 5) == b"12345"
    with pytest.raises(ValueError, match=r"5 bytes, far more .* expected at most 4"):
        read_bounded(tmp_path / "a", 4)
    (tmp_path / "endless").symlink_to("/dev/zero")
    with pytest.raises(SourceError, match="endless: 16,777,217 bytes, far more"):
        read_text(tmp_path / "endless")


def test_lines_that_are_too_long_are_passed_over():
    """The others keep their numbers, and the file its end."""

    def lines(data: bytes) -> list[bytes | None]:
        return list(bounded_lines(io.BytesIO(data), 4))

    assert lines(b"abc\nabcdefg\nd\n") == [b"abc\n", None, b"d\n"]
    assert lines(b"abcdefghi") == [None]
    assert lines(b"abcd") == [b"abcd"]
    assert lines(b"") == []
