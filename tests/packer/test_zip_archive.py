"""Zip archives of pictures, whole and hostile."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from packer.containers import Containers
from packer.errors import SourceError
from packer.sources.items import Scan
from packer.sources.source import SourceOptions
from packer.sources.zip_archive import scan
from readers.store.errors import ImageError


def write_zip(
    path: Path, members: Iterable[tuple[str | zipfile.ZipInfo, bytes]], **options: Any
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def keys(found: Scan) -> list[str]:
    return [item.key.decode() for item in found.items]


def reasons(found: Scan) -> dict[str, str]:
    return {reject.path: reject.reason for reject in found.rejects}


def contents(found: Scan) -> list[Any]:
    with closing(Containers(bytes(found.root))) as containers:
        return [containers.read(item) for item in found.items]


class Unseekable(io.RawIOBase):
    """A target that zipfile cannot seek in, so that checksums follow the data."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb")  # noqa: SIM115  # Closed below.

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def close(self) -> None:
        self._file.close()
        super().close()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_members_are_read_in_place(tmp_path, method, is_streamed):
    """Stored or deflated, with the checksum before or behind the data, the bytes are the same."""
    members = [("b.jpg", bytes(range(256)) * 9), ("é.PNG", b""), ("a.jpg", b"aaa" * 5000)]
    path = tmp_path / "z.zip"
    if is_streamed:
        with Unseekable(path) as target, zipfile.ZipFile(target, "w", method) as archive:
            for name, data in members:
                archive.writestr(name, data)
    else:
        write_zip(path, members, compression=method)
    found = scan(path, SourceOptions())
    assert keys(found) == ["z/a.jpg", "z/b.jpg", "z/é.PNG"]
    assert contents(found) == [b"aaa" * 5000, bytes(range(256)) * 9, b""]
    assert [item.byte_count for item in found.items] == [15_000, 2304, 0]
    assert (found.classes, found.splits, found.fields, found.rejects) == ((), (), (), [])


def test_folders_are_classes_below_splits_and_wrappers_are_passed_over(tmp_path):
    """data/train/cat/1.jpg is of split train and class cat, whatever data is."""
    members = [
        ("data/", b""),
        ("data/train/dog/1.jpg", b"1"),
        ("data/train/cat/2.jpg", b"2"),
        ("data/val/cat/deep/3.jpg", b"3"),
        ("__MACOSX/data/train/cat/._2.jpg", b"?"),
        ("data/README.txt", b"?"),
    ]
    found = scan(write_zip(tmp_path / "z.zip", members), SourceOptions())
    assert (found.classes, found.splits) == (("cat", "dog"), ("train", "val"))
    assert [item.values for item in found.items] == [
        {"label": 0, "split": 0},
        {"label": 1, "split": 0},
        {"label": 0, "split": 1},
    ]
    assert keys(found)[0] == "z/data/train/cat/2.jpg"
    assert found.ignored.counts == {"left by a desktop or file server": 1, "not a picture": 1}


def test_a_split_around_everything_is_no_wrapper(tmp_path):
    """An archive of one split alone keeps its split; names of archives count without folders."""
    found = scan(
        write_zip(tmp_path / "a" / "z.zip", [("train/x/1.jpg", b"1"), ("train/y/2.jpg", b"2")]),
        SourceOptions(),
    )
    assert (found.classes, found.splits) == (("x", "y"), ("train",))
    write_zip(tmp_path / "b" / "test.zip", [("1.jpg", b"1")])
    write_zip(tmp_path / "b" / "train.zip", [("in/1.jpg", b"1")])
    found = scan(tmp_path / "b", SourceOptions())
    assert [item.values for item in found.items] == [{"split": 1}, {"split": 0}]
    assert found.splits == ("train", "test")


def test_given_classes_decide_and_others_are_rejected(tmp_path):
    """A folder that is none of --classes is no class."""
    path = write_zip(tmp_path / "z.zip", [("cat/1.jpg", b"1"), ("dog/2.jpg", b"2")])
    found = scan(path, SourceOptions(classes=("dog", "cow")))
    assert [(item.key, item.values) for item in found.items] == [(b"z/dog/2.jpg", {"label": 0})]
    assert reasons(found) == {"z/cat/1.jpg": "class 'cat' is not one of --classes"}


def test_pictures_beside_class_folders_make_all_unlabelled(tmp_path):
    """Nothing is left out, and a note says why there are no labels."""
    members = [("cat/1.jpg", b"1"), ("dog/2.jpg", b"2"), ("3.jpg", b"3")]
    found = scan(write_zip(tmp_path / "z.zip", members), SourceOptions())
    assert len(found.items) == 3
    assert found.fields == ()
    assert "1 picture of 3 lie in no class folder" in found.notes[0]


@pytest.mark.parametrize("other", ["annotations.json", "labels/1.txt", "masks/1.png"])
def test_annotations_in_an_archive_are_not_dropped_in_silence(tmp_path, other):
    """They stop an automatic choice; --format zip takes the pictures, with a note."""
    path = write_zip(tmp_path / "z.zip", [("images/1.jpg", b"1"), (other, b"?")])
    with pytest.raises(SourceError, match="Unpack it and give the folder, or give --format zip"):
        scan(path, SourceOptions())
    found = scan(path, SourceOptions(format="zip"))
    assert "unpack the archive to have them read" in found.notes[0]


def test_hostile_members_are_rejected_by_name(tmp_path):
    """Paths that leave the archive, links, passwords, other methods, twins and giants are named."""
    link = zipfile.ZipInfo("link.jpg")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    bzip2 = zipfile.ZipInfo("bzip2.jpg")
    bzip2.compress_type = zipfile.ZIP_BZIP2
    members = [
        ("../up.jpg", b"1"),
        ("/top.jpg", b"2"),
        (link, b"/etc/passwd"),
        (bzip2, b"3"),
        ("good.jpg", b"good"),
        ("./good.jpg", b"twin"),
        ("giant.jpg", b"4"),
        ("secret.jpg", b"5"),
    ]
    path = write_zip(tmp_path / "z.zip", members)
    data = bytearray(path.read_bytes())
    giant = data.rindex(b"giant.jpg") - 46
    data[giant + 24 : giant + 28] = (2**31).to_bytes(4, "little")
    data[data.rindex(b"secret.jpg") - 46 + 8] |= 1
    path.write_bytes(data)
    found = scan(path, SourceOptions())
    assert keys(found) == ["z/good.jpg"]
    assert contents(found) == [b"good"]
    found_reasons = reasons(found)
    assert len(found_reasons) == 7
    assert "'..'" in found_reasons["z.zip, member ../up.jpg"]
    assert "absolute path" in found_reasons["z.zip, member /top.jpg"]
    assert found_reasons["z.zip, member link.jpg"] == "a link; expected a file"
    assert "method 12 of zip" in found_reasons["z.zip, member bzip2.jpg"]
    assert "two members of this name" in found_reasons["z.zip, member ./good.jpg"]
    assert "2,147,483,648 bytes" in found_reasons["z.zip, member giant.jpg"]
    assert "encrypted" in found_reasons["z.zip, member secret.jpg"]


def test_a_file_that_is_no_zip_is_rejected_and_others_are_read(tmp_path):
    """One damaged archive does not take the others with it."""
    write_zip(tmp_path / "b.zip", [("1.jpg", b"1")])
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 and no directory")
    found = scan(tmp_path, SourceOptions())
    assert keys(found) == ["b/1.jpg"]
    assert "directory cannot be read" in reasons(found)["a.zip"]


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        (zipfile.ZIP_STORED, (40, b"X"), "checksum"),
        (zipfile.ZIP_DEFLATED, (40, b"\xff\xff\xff"), "zip member is damaged"),
        (zipfile.ZIP_STORED, (0, b"XX"), "no member begins at byte 0"),
        (zipfile.ZIP_STORED, (8, b"\x09"), "method 9 of zip"),
    ],
)
def test_a_damaged_member_is_an_image_error(tmp_path, method, change, message):
    """A changed byte is found by the checksum or the decompressor, and named."""
    path = write_zip(
        tmp_path / "z.zip", [("1.jpg", bytes(range(256)) + b"1" * 999)], compression=method
    )
    data = bytearray(path.read_bytes())
    position, new = change
    data[position : position + len(new)] = new
    path.write_bytes(data)
    with pytest.raises(ImageError, match=message):
        contents(scan(path, SourceOptions()))


def test_a_bomb_is_not_unpacked_beyond_what_the_directory_says(tmp_path):
    """A member that inflates to more than it declares is damaged, and takes no memory."""
    path = write_zip(
        tmp_path / "z.zip", [("1.jpg", bytes(10**6))], compression=zipfile.ZIP_DEFLATED
    )
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"1.jpg") - 46
    data[entry + 24 : entry + 28] = (1000).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(ImageError, match="more than the 1,000 bytes that the archive says"):
        contents(scan(path, SourceOptions()))
