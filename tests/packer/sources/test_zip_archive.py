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

from packer.errors import SourceError
from packer.items.raw_item import Scan
from packer.raw.containers import Containers
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


def test_given_classes_decide_and_others_are_left_out(tmp_path):
    """A folder that is none of --classes is not a class; its pictures are counted."""
    path = write_zip(tmp_path / "z.zip", [("cat/1.jpg", b"1"), ("dog/2.jpg", b"2")])
    found = scan(path, SourceOptions(classes=("dog", "cow")))
    assert [(item.key, item.values) for item in found.items] == [(b"z/dog/2.jpg", {"label": 0})]
    assert found.ignored.counts == {"of a class that --classes does not name": 1}


def test_pictures_beside_class_folders_are_counted(tmp_path):
    """As on a disk: they have no label, and cost the others none."""
    members = [("cat/1.jpg", b"1"), ("dog/2.jpg", b"2"), ("3.jpg", b"3")]
    found = scan(write_zip(tmp_path / "z.zip", members), SourceOptions())
    assert keys(found) == ["z/cat/1.jpg", "z/dog/2.jpg"]
    assert found.ignored.counts == {"unlabelled: lies beside class folders": 1}
    assert found.notes == ["1 picture not packed, unlabelled: lies beside class folders: 'z/3.jpg'"]


@pytest.mark.parametrize("other", ["annotations.json", "labels/1.txt", "masks/1.png"])
def test_annotations_in_an_archive_are_not_dropped_in_silence(tmp_path, other):
    """They stop an automatic choice; --format zip takes the pictures, with a note."""
    path = write_zip(tmp_path / "z.zip", [("images/1.jpg", b"1"), (other, b"?")])
    with pytest.raises(SourceError, match="Unpack it and give the folder, or give --format zip"):
        scan(path, SourceOptions())
    found = scan(path, SourceOptions(format="zip"))
    assert "unpack the archive to have them read" in found.notes[0]


def named(written: str) -> zipfile.ZipInfo:
    """A member whose name is left as it is written."""
    info = zipfile.ZipInfo("x")
    info.filename = written
    return info


def test_backslashes_stand_between_folders(tmp_path):
    """An archive from Windows has the pictures and classes of one with slashes; .. is refused."""
    found = []
    for folder, separator in (("back", "\\"), ("slash", "/")):
        names = ("cat/", "cat/0.jpg", "dog/1.jpg", "cat/./2.jpg", "../x.jpg", "C:/y.jpg")
        members = [(named(f"set/{name}"[4 * (name[0] in ".C") :]), b"7") for name in names]
        for info, _ in members:
            info.filename = info.filename.replace("/", separator)
        (tmp_path / folder).mkdir()
        write_zip(tmp_path / folder / "a.zip", members)
        found.append(scan(tmp_path / folder, SourceOptions()))
    back, slash = found
    expected = ["a/set/cat/0.jpg", "a/set/cat/2.jpg", "a/set/dog/1.jpg"]
    assert keys(back) == keys(slash) == expected
    assert back.classes == slash.classes == ("cat", "dog")
    assert [i.values for i in back.items] == [i.values for i in slash.items]
    assert [reject.reason for reject in back.rejects] == [r.reason for r in slash.rejects]
    assert sorted(reason[:16] for reason in reasons(back).values()) == [
        "a path with '..'",
        "an absolute path",
    ]


def test_names_are_utf_8_where_they_read_as_such(tmp_path):
    """Tools of macOS write UTF-8 without declaring it; other names are of code page 437."""
    members = [(named("ein/gr\u00fcn.jpg"), b"1"), (named("zwei/2.jpg"), b"2")]
    path = write_zip(tmp_path / "a.zip", members)
    data = path.read_bytes()
    assert data.count("gr\u00fcn".encode()) == 2
    for start in (data.index(b"PK\x01\x02") + 8, 6):  # The flags of the first member.
        data = data[:start] + b"\0\0" + data[start + 2 :]
    path.write_bytes(data)
    assert keys(scan(path, SourceOptions())) == ["a/ein/gr\u00fcn.jpg", "a/zwei/2.jpg"]
    path.write_bytes(data.replace("gr\u00fcn".encode(), b"gr\x81nn"))
    assert keys(scan(path, SourceOptions())) == ["a/ein/gr\u00fcnn.jpg", "a/zwei/2.jpg"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metadata.jsonl", '{"file_name": "0.jpg", "text": "t"}\n'),
        ("train.csv", "image,label\nset/0.jpg,a\n"),
        ("train.tsv", "id\tlabel\n0\ta\n1\tb\n"),
        ("list.txt", "0.jpg a\n"),
        ("sub/labels/0.txt", "0 0.5 0.5 0.2 0.2\n"),
        ("instances.json", '{"images": [], "annotations": [], "categories": []}'),
        ("0.xml", "<annotation><object/></annotation>"),
        ("data.yaml", "names: [a]\ntrain: images/train\n"),
        ("labels.mat", "?"),
    ],
)
def test_a_list_beside_the_archive_is_not_dropped_in_silence(tmp_path, name, text):
    """What is about the pictures stops an automatic choice; --format zip leaves it with a note."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    path = write_zip(tmp_path / "images.zip", [("set/0.jpg", b"1"), ("set/1.jpg", b"2")])
    message = f"'images.zip' holds the pictures that '{name}' is about.*Unpack the archive"
    with pytest.raises(SourceError, match=message):
        scan(tmp_path, SourceOptions())
    if "/" not in name:
        with pytest.raises(SourceError, match=message):
            scan(path, SourceOptions())
    found = scan(tmp_path, SourceOptions(format="zip"))
    assert len(found.items) == 2
    assert f"not read: '{name}', about the pictures in 'images.zip'" in found.notes[0]


def test_files_beside_that_are_about_something_else_are_named(tmp_path):
    """A table that names none of the pictures, and prose, stop nothing."""
    write_zip(tmp_path / "images.zip", [("cat/a.jpg", b"1"), ("dog/b.jpg", b"2")])
    for name, text in (("log.csv", "epoch,loss\n1,2\n"), ("README.txt", "a.jpg"), ("x.pdf", "")):
        (tmp_path / name).write_text(text)
    found = scan(tmp_path, SourceOptions())
    assert found.notes == ["not read: 'log.csv'"]
    assert found.ignored.counts == {"not a picture": 3}


def test_an_archive_of_masks_is_one_of_no_pictures(tmp_path):
    """images.zip and masks.zip are as two folders of a raw tree, and not pictures of two kinds."""
    write_zip(tmp_path / "images.zip", [("0.jpg", b"1")])
    write_zip(tmp_path / "masks.zip", [("0.png", b"2")])
    with pytest.raises(SourceError, match=r"folders of masks or labels \('masks.zip'\)"):
        scan(tmp_path, SourceOptions())


def test_an_archive_in_an_archive_is_not_passed_over(tmp_path):
    """Whoever has pictures in an archive inside of one is told, unless --format says to go on."""
    path = write_zip(tmp_path / "a.zip", [("0.jpg", b"0"), ("train.tar.gz", b"?")])
    with pytest.raises(SourceError, match=r"hold archives \('a.zip, member train.tar.gz'\)"):
        scan(path, SourceOptions())
    assert keys(scan(path, SourceOptions(format="zip"))) == ["a/0.jpg"]


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
    assert found_reasons["z.zip, member link.jpg"].startswith("a link; expected a file. Make")
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


def test_a_link_in_a_circle_beside_an_archive_hides_no_list(tmp_path):
    """The other files of its folder are still looked into."""
    (tmp_path / "a").symlink_to("a")
    (tmp_path / "train.csv").write_text("image,label\nset/0.jpg,a\n")
    path = write_zip(tmp_path / "images.zip", [("set/0.jpg", b"1")])
    with pytest.raises(SourceError, match=r"'images\.zip' holds the pictures that 'train"):
        scan(path, SourceOptions())
