"""Tar archives of samples, whole and hostile."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from packer.errors import SourceError
from packer.items.raw_item import Scan
from packer.raw.containers import Containers
from packer.sources.source import SourceOptions
from packer.sources.tar import scan
from readers.store.errors import ImageError
from readers.store.schema import Field

Members = Iterable[tuple[str, bytes | tarfile.TarInfo]]


def write_tar(path: Path, members: Members, mode: str = "w", **options: Any) -> Path:
    """A tar of members: names with their bytes, or with a header of their own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode, **options) as archive:
        for name, data in members:
            if isinstance(data, tarfile.TarInfo):
                archive.addfile(data)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return path


def of_kind(name: str, kind: bytes, target: str = "") -> tuple[str, tarfile.TarInfo]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return name, info


def keys(found: Scan) -> list[str]:
    return [item.key.decode() for item in found.items]


def reasons(found: Scan) -> dict[str, str]:
    return {reject.path: reject.reason for reject in found.rejects}


def contents(found: Scan) -> list[Any]:
    """The bytes of all images, read as a shard task reads them."""
    with closing(Containers(bytes(found.root))) as containers:
        return [containers.read(item) for item in found.items]


@pytest.mark.parametrize(("file_name", "mode"), [("a.tar", "w"), ("a.tgz", "w:gz")])
def test_members_of_a_name_up_to_its_first_dot_are_one_sample(tmp_path, file_name, mode):
    """`x/a.b.jpg` has key x/a; folders, spaces, ./ and long pax names change nothing."""
    long = "n" * 200
    path = write_tar(
        tmp_path / file_name,
        [
            ("./x/a b.v2.JPG", b"first"),
            ("./x/a b.cls", b"cat\n"),
            (f"x/é{long}.png", b"second"),
            (f"x/é{long}.cls", b"ant"),
        ],
        mode,
        format=tarfile.PAX_FORMAT,
    )
    found = scan(path, SourceOptions())
    assert keys(found) == ["a/x/a b.v2.JPG", f"a/x/é{long}.png"]
    assert contents(found) == [b"first", b"second"]
    assert [item.values for item in found.items] == [{"label": 1}, {"label": 0}]
    assert (found.classes, found.splits, found.rejects) == (("ant", "cat"), (), [])
    assert found.fields == (Field(name="label", kind="label", dtype="int64", names=found.classes),)
    assert found.items[0].byte_count == 5
    assert found.items[0].path == file_name.encode()


def test_suffixes_name_the_fields_and_archives_the_splits(tmp_path):
    """json is kept as it is, txt is text, numbers in cls are labels, and others are named."""
    for split, label in (("train", b"2"), ("val", b"0")):
        members = [
            ("7.cls", label),
            ("7.json", b'{"boxes": [[1, 2, 3, 4]]}'),
            ("7.npy", b"?"),
            ("7.png", split.encode()),
            ("7.txt", "déjà\n".encode()),
        ]
        write_tar(tmp_path / f"{split}-000000.tar", members)
    found = scan(tmp_path, SourceOptions())
    assert keys(found) == ["train-000000/7.png", "val-000000/7.png"]
    assert found.items[1].values == {
        "label": 0,
        "json": {"boxes": [[1, 2, 3, 4]]},
        "text": "déjà\n",
        "split": 1,
    }
    assert (found.splits, found.classes) == (("train", "val"), ("0", "1", "2"))
    assert [field.name for field in found.fields] == ["label", "json", "text", "split"]
    assert found.ignored.counts == {"tar member with .npy, which is not read": 2}
    notes = "\n".join(found.notes)
    assert "2 files ignored: tar member with .npy" in notes
    assert "json holds 'boxes', kept as written" in notes
    assert contents(found) == [b"train", b"val"]


def test_numbers_are_positions_among_given_classes(tmp_path):
    """--classes names the numbers; one that is none of them is rejected."""
    path = write_tar(
        tmp_path / "a.tar", [("a.jpg", b"a"), ("a.cls", b"1"), ("b.jpg", b"b"), ("b.cls", b"2")]
    )
    found = scan(path, SourceOptions(classes=("cat", "dog")))
    assert [item.values["label"] for item in found.items] == [1]
    assert reasons(found) == {"a.tar, sample b": "label '2' is not a number in [0, 2)"}


def test_a_number_written_like_a_name_makes_names_of_all(tmp_path):
    """007 is a name, so 7 beside it is one as well."""
    path = write_tar(
        tmp_path / "a.tar", [("a.jpg", b"a"), ("a.cls", b"007"), ("b.jpg", b"b"), ("b.cls", b"7")]
    )
    assert scan(path, SourceOptions()).classes == ("007", "7")


def test_samples_that_are_not_whole_are_rejected_by_name(tmp_path):
    """A part missing, apart, twice or broken rejects its sample with the reason, and no other."""
    members = [
        ("apart.jpg", b"1"),
        ("good.jpg", b"2"),
        ("good.json", b"[1]"),
        ("apart.json", b"{}"),
        ("broken.jpg", b"3"),
        ("broken.json", b"{"),
        ("large.jpg", b"3"),
        ("large.json", json.dumps(2**70).encode()),
        ("lonely.json", b"{}"),
        ("missing.jpg", b"4"),
        ("two.a.jpg", b"5"),
        ("two.b.png", b"6"),
        ("two.json", b"{}"),
    ]
    found = scan(write_tar(tmp_path / "s.tar", members), SourceOptions())
    assert keys(found) == ["s/good.jpg"]
    found_reasons = reasons(found)
    assert sorted(found_reasons) == [
        f"s.tar, sample {key}" for key in ("apart", "broken", "large", "lonely", "missing", "two")
    ]
    apart = found_reasons["s.tar, sample apart"]
    assert "at byte 512 and again at byte 3,584" in apart
    assert "Sort the archive by name" in apart
    assert ".json member cannot be read" in found_reasons["s.tar, sample broken"]
    assert ".json member cannot be read" in found_reasons["s.tar, sample large"]
    assert found_reasons["s.tar, sample lonely"] == "no picture among its members: .json"
    assert found_reasons["s.tar, sample missing"] == "no .json member, which other samples have"
    assert "two pictures: two.a.jpg and two.b.png" in found_reasons["s.tar, sample two"]


def test_hostile_members_are_rejected_and_nothing_is_written(tmp_path):
    """Absolute names, .., links, devices and sparse files are named; the rest is read."""
    members: list[tuple[str, bytes | tarfile.TarInfo]] = [
        ("/etc/a.jpg", b"1"),
        ("../b.jpg", b"2"),
        of_kind("c.jpg", tarfile.SYMTYPE, "/etc/passwd"),
        of_kind("e.jpg", tarfile.FIFOTYPE),
        of_kind("f.jpg", tarfile.GNUTYPE_SPARSE),
        ("._good.jpg", b"3"),
        ("good.jpg", b"good"),
    ]
    path = write_tar(tmp_path / "raw" / "h.tar", members, format=tarfile.GNU_FORMAT)
    found = scan(path, SourceOptions())
    assert keys(found) == ["h/good.jpg"]
    assert contents(found) == [b"good"]
    found_reasons = reasons(found)
    assert "an absolute path" in found_reasons["h.tar, sample /etc/a"]
    assert "a path with '..'" in found_reasons["h.tar, sample ../b"]
    link = found_reasons["h.tar, sample c"]
    assert link.startswith(
        "c.jpg: a link to '/etc/passwd', outside of the archive; expected a file"
    )
    assert "tar --dereference --hard-dereference" in link
    assert found_reasons["h.tar, sample e"] == "e.jpg: not a regular file"
    assert "a sparse file" in found_reasons["h.tar, sample f"]
    assert len(found_reasons) == 5
    assert found.ignored.counts == {"hidden name": 1}
    assert [entry.name for entry in tmp_path.rglob("*")] == ["raw", "h.tar"]


@pytest.mark.parametrize(("file_name", "mode"), [("l.tar", "w"), ("l.tgz", "w:gz")])
def test_links_have_the_bytes_of_what_they_lead_to(tmp_path, file_name, mode):
    """Hard and symbolic links in an archive are pictures and labels like others, in any order."""
    members: list[tuple[str, bytes | tarfile.TarInfo]] = [
        ("a/0.jpg", b"first"),
        ("a/0.cls", b"cat"),
        of_kind("a/1.jpg", tarfile.LNKTYPE, "a/0.jpg"),
        ("a/1.cls", b"dog"),
        of_kind("a/2.jpg", tarfile.SYMTYPE, "../b/./4.jpg"),
        of_kind("a/2.cls", tarfile.LNKTYPE, "./a/1.cls"),
        of_kind("a/3.jpg", tarfile.SYMTYPE, "2.jpg"),
        of_kind("a/3.cls", tarfile.SYMTYPE, "0.cls"),
        ("b/4.jpg", b"other"),
        ("b/4.cls", b"cat"),
        of_kind("latest", tarfile.SYMTYPE, "b"),
    ]
    found = scan(write_tar(tmp_path / file_name, members), SourceOptions())
    assert keys(found) == [*(f"l/a/{n}.jpg" for n in range(4)), "l/b/4.jpg"]
    assert contents(found) == [b"first", b"first", b"other", b"other", b"other"]
    assert [found.classes[item.values["label"]] for item in found.items] == [
        "cat",
        "dog",
        "dog",
        "cat",
        "cat",
    ]
    assert found.items[1].byte_count == 5
    assert found.rejects == []
    assert found.ignored.counts == {"tar member with no suffix, which is not read": 1}


def test_a_sample_of_links_that_lead_nowhere_is_rejected_once(tmp_path):
    """A sample whose picture cannot be had is one reject with that reason, not one a member."""
    members: list[tuple[str, bytes | tarfile.TarInfo]] = [
        ("0.jpg", b"0"),
        ("0.cls", b"1"),
        of_kind("1.jpg", tarfile.LNKTYPE, "gone.jpg"),
        ("1.cls", b"1"),
        of_kind("2.jpg", tarfile.SYMTYPE, "../../2.jpg"),
        ("2.cls", b"1"),
        of_kind("3.jpg", tarfile.SYMTYPE, "3.png"),
        of_kind("3.cls", tarfile.SYMTYPE, "3.jpg"),
        of_kind("4.jpg", tarfile.SYMTYPE, "./4.jpg"),
        ("4.cls", b"1"),
        ("5.jpg", b"5"),
        of_kind("5.cls", tarfile.CHRTYPE),
        ("../6.jpg", b"6"),
        ("../6.cls", b"6"),
    ]
    found = scan(write_tar(tmp_path / "l.tar", members), SourceOptions())
    assert keys(found) == ["l/0.jpg"]
    found_reasons = reasons(found)
    assert sorted(found_reasons) == [f"l.tar, sample {n}" for n in ("../6", *"12345")]
    assert len(found.rejects) == len(found_reasons)
    assert "'gone.jpg', which is not in the archive" in found_reasons["l.tar, sample 1"]
    assert "outside of the archive" in found_reasons["l.tar, sample 2"]
    assert "'4.jpg', which leads back to itself" in found_reasons["l.tar, sample 4"]
    assert found_reasons["l.tar, sample 5"] == "5.cls: not a regular file"
    assert not any("no picture" in reason for reason in found_reasons.values())


def test_backslashes_stand_between_folders(tmp_path):
    """A tar from Windows has the samples of one with slashes, and .. is refused all the same."""
    for folder, separator in (("back", "\\"), ("slash", "/")):
        names = [separator.join(("set", name)) for name in ("0.jpg", "0.cls", "1.jpg", "1.cls")]
        (tmp_path / folder).mkdir()
        members = [(name, b"7") for name in (*names, separator.join(("..", "x.jpg")))]
        write_tar(tmp_path / folder / "a.tar", members)
    back, slash = (scan(tmp_path / folder, SourceOptions()) for folder in ("back", "slash"))
    assert keys(back) == keys(slash) == ["a/set/0.jpg", "a/set/1.jpg"]
    assert reasons(back).keys() == reasons(slash).keys() == {"a.tar, sample ../x"}


def test_an_archive_in_an_archive_is_not_passed_over(tmp_path):
    """Whoever has pictures in an archive inside of one is told, unless --format says to go on."""
    path = write_tar(tmp_path / "a.tar", [("0.jpg", b"0"), ("more.zip", b"PK")])
    with pytest.raises(SourceError, match=r"hold archives \('a.tar, member more.zip'\)"):
        scan(path, SourceOptions())
    assert keys(scan(path, SourceOptions(format="tar"))) == ["a/0.jpg"]


@pytest.mark.parametrize("has_labels", [False, True])
def test_a_list_beside_an_archive_without_labels_is_not_dropped(tmp_path, has_labels):
    """captions.csv about the samples stops the build, but where the archive has its own."""
    more = [("0.cls", b"1")] if has_labels else []
    write_tar(tmp_path / "a.tar", [("0.jpg", b"0"), *more])
    (tmp_path / "captions.csv").write_text("key,caption\n0,a dog\n")
    (tmp_path / "stats.json").write_text('{"count": 1}')
    if has_labels:
        assert any("captions.csv" in note for note in scan(tmp_path, SourceOptions()).notes)
        return
    with pytest.raises(SourceError, match=r"'a.tar' holds the pictures that 'captions.csv' is"):
        scan(tmp_path, SourceOptions())


def test_damage_is_reported_and_what_comes_before_it_kept(tmp_path):
    """tarfile takes a broken header for the end of the archive; it must not pass for one."""
    whole = write_tar(tmp_path / "a.tar", [("a.jpg", b"a"), ("b.jpg", b"b"), ("c.jpg", b"c")])
    data = bytearray(whole.read_bytes())
    data[2048:2060] = b"not a header"
    whole.write_bytes(data)
    found = scan(whole, SourceOptions())
    assert keys(found) == ["a/a.jpg"]
    assert "damaged after byte 1,536: no header" in reasons(found)["a.tar"]
    assert "what follows was not read" in reasons(found)["a.tar"]
    # The sample before the damage may have lost members, and is not taken for whole.
    assert "a.tar, sample b" in reasons(found)


@pytest.mark.parametrize("is_gzip", [False, True])
def test_a_cut_archive_is_reported(tmp_path, is_gzip):
    """The end of a file within a member or a compressed stream is damage."""
    members = [(f"{n}.jpg", bytes(range(256)) * 8 * n) for n in range(1, 5)]
    path = write_tar(tmp_path / "a.tar", members)
    data = path.read_bytes()[: 512 + 2048 + 512 + 5000]
    if is_gzip:
        data = gzip.compress(path.read_bytes())[:-60]
    path.write_bytes(data)
    found = scan(path, SourceOptions())
    assert "a.tar" in reasons(found)
    assert keys(found)[:1] == ["a/1.jpg"]


def test_a_header_that_claims_gigabytes_is_refused_unread(tmp_path):
    """A name or pax header is read into memory by tarfile; it must not take what it asks for."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 2**33
    path = tmp_path / "a.tgz"
    path.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(10_000)))
    found = scan(path, SourceOptions())
    assert found.items == []
    assert "a header of 8,589,934,592 bytes" in reasons(found)["a.tgz"]


def test_a_member_that_claims_more_than_the_file_is_damage(tmp_path):
    """A size is believed only as far as the file goes."""
    info = tarfile.TarInfo("a.jpg")
    info.size = 2**40
    path = tmp_path / "a.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    found = scan(path, SourceOptions())
    assert found.items == []
    assert "but the file ends at byte 2,560" in reasons(found)["a.tar"]


def test_archives_of_different_parts_are_refused_by_name(tmp_path):
    """No sample of both could be whole, so the user must choose."""
    write_tar(tmp_path / "a.tar", [("a.jpg", b"a"), ("a.json", b"{}")])
    write_tar(tmp_path / "b.tar", [("a.jpg", b"a"), ("a.cls", b"1")])
    with pytest.raises(SourceError, match=r"with \.cls are in 'b\.tar' and not in 'a\.tar';"):
        scan(tmp_path, SourceOptions())


def test_archives_of_one_stem_keep_their_samples_apart(tmp_path):
    """a.tar and a.tgz may hold the same names; bz2 is refused by name; a picture beside ignored."""
    write_tar(tmp_path / "a.tar", [("a.jpg", b"1")])
    write_tar(tmp_path / "a.tgz", [("a.jpg", b"2")], "w:gz")
    write_tar(tmp_path / "b.tar.bz2", [("a.jpg", b"3")], "w:bz2")
    (tmp_path / "x.jpg").write_bytes(b"x")
    (tmp_path / "x.pdf").write_bytes(b"x")
    found = scan(tmp_path, SourceOptions())
    assert keys(found) == ["a.tar/a.jpg", "a.tgz/a.jpg"]
    assert contents(found) == [b"1", b"2"]
    assert "compressed in another way than gzip" in reasons(found)["b.tar.bz2"]
    assert sorted(found.ignored.counts.values()) == [1, 1]


def test_a_file_that_changed_after_the_scan_is_not_read(tmp_path):
    """The bytes at a place of another file would be stored as the image."""
    path = write_tar(tmp_path / "a.tar", [("a.jpg", b"1")])
    found = scan(path, SourceOptions())
    write_tar(path, [("a.jpg", b"1"), ("b.jpg", b"2" * 20_000)])
    with pytest.raises(ImageError, match="changed while the build ran"):
        contents(found)


def test_a_compressed_archive_can_be_read_backward(tmp_path):
    """Going back starts over; the bytes are the same."""
    members = [(f"{n}.jpg", bytes([n]) * (1000 + n)) for n in range(20)]
    found = scan(write_tar(tmp_path / "a.tgz", members, "w:gz"), SourceOptions())
    with closing(Containers(bytes(found.root))) as containers:
        backward = [containers.read(item) for item in reversed(found.items)]
    assert backward == [data for _, data in reversed(members)]


def test_no_archive_is_an_error_that_says_what_was_looked_for(tmp_path):
    """A folder without archives is not of this layout."""
    with pytest.raises(SourceError, match=r"no tar archive found; looked for \.tar"):
        scan(tmp_path, SourceOptions())
