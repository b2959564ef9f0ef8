"""The walk finds every picture once, and accounts for everything else."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import SourceError
from packer.sources.walk import is_picture_name, walk, walks_told
from packer.wording import readable_path


def write_files(root: Path, *names: str) -> Path:
    """Files of as many bytes as their name has letters; a name with a slash last is a folder."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(b"x" * len(name))
    return root


def found(root: Path) -> list[bytes]:
    return [p.path for folder in walk(root).folders.values() for p in folder.pictures]


def test_pictures_come_with_their_size_and_time_in_a_fixed_order(tmp_path):
    """Folders are met parents first and siblings by bytes, whatever order the disk has them in."""
    write_files(tmp_path, "b/2.png", "b/1.png", "a b/1.png", "a/z/1.png", "a/y.png", "0.png")
    os.utime(tmp_path / "b/1.png", ns=(1, 1_234_567_890_123_456_789))
    tree = walk(tmp_path)
    assert list(tree.folders) == [b"", b"a", b"a/z", b"a b", b"b"]
    assert tree.folders[b"b"].pictures == [
        (b"b/1.png", 7, 1_234_567_890_123_456_789),
        (b"b/2.png", 7, os.stat(tmp_path / "b/2.png").st_mtime_ns),
    ]
    assert not tree.findings.rejects
    assert tree.findings.ignored.total == 0


@pytest.mark.parametrize(
    "name",
    [
        "a.jpg",
        "A.JPG",
        "a.JpEg",
        "a.jfif",
        "a.tiff",
        "a.b.webp",
        "a.gif",
        "a.avif",
        "a.jp2",
        "a.HEIC",
    ],
)
def test_extensions_are_compared_without_case(name, tmp_path):
    """A camera's IMG.JPG is a picture, and so is one that not every installation can decode."""
    assert is_picture_name(name.encode())
    assert found(write_files(tmp_path, name)) == [name.encode()]


@pytest.mark.parametrize("name", ["jpg", "a.jpg.txt", "a.jpgx", "a", "a.", "a.npy"])
def test_other_names_are_no_pictures(name, tmp_path):
    """What is passed over is counted, and named."""
    tree = walk(write_files(tmp_path, name))
    assert tree.folders[b""].pictures == []
    assert tree.folders[b""].other_count == 1
    assert tree.findings.ignored.counts == {"not a picture": 1}
    assert tree.findings.ignored.examples == {"not a picture": [name]}


def test_litter_is_ignored_and_each_file_in_it_counted(tmp_path):
    """A skipped folder hides no files from the account: found = stored + rejected + ignored."""
    write_files(
        tmp_path,
        "a/1.png",
        "a/._1.png",
        "a/.hidden.jpg",
        "a/Thumbs.db",
        "a/desktop.ini",
        ".ipynb_checkpoints/1.png",
        ".ipynb_checkpoints/deep/2.png",
        "__MACOSX/a/1.png",
        "__MACOSX/a/._2.png",
        "a/@eaDir/1.png/thumb.jpg",
    )
    tree = walk(tmp_path)
    assert found(tmp_path) == [b"a/1.png"]
    assert tree.folders[b"a"].other_count == 0
    assert tree.findings.ignored.counts == {
        "hidden name": 4,
        "left by a desktop or file server": 5,
    }
    assert tree.findings.ignored.examples["hidden name"] == [
        ".ipynb_checkpoints/1.png",
        ".ipynb_checkpoints/deep/2.png",
        "a/._1.png",
        "a/.hidden.jpg",
    ]
    assert not tree.findings.rejects


def test_names_that_are_not_utf8_keep_their_bytes(tmp_path):
    """A Latin-1 name is found under its own bytes, and printed without a lone surrogate."""
    (tmp_path / os.fsdecode(b"caf\xe9.png")).write_bytes(b"x")
    (tmp_path / "猫.png").write_bytes(b"x")
    assert found(tmp_path) == [b"caf\xe9.png", "猫.png".encode()]
    assert readable_path(b"caf\xe9.png") == "caf\\xe9.png"
    assert readable_path("猫\n.png".encode()) == "猫\\n.png"


def test_links_to_files_and_folders_are_followed(tmp_path):
    """Two classes may share a folder, and a link counts with the size of what it leads to."""
    write_files(tmp_path, "pool/1.png", "raw/a/")
    (tmp_path / "raw/b").symlink_to(tmp_path / "pool")
    (tmp_path / "raw/c").symlink_to(tmp_path / "pool")
    (tmp_path / "raw/a/link.png").symlink_to(tmp_path / "pool/1.png")
    tree = walk(tmp_path / "raw")
    assert found(tmp_path / "raw") == [b"a/link.png", b"b/1.png", b"c/1.png"]
    assert tree.folders[b"a"].pictures[0].byte_count == len("pool/1.png")


def test_a_link_to_a_folder_that_holds_it_is_not_entered(tmp_path):
    """A circle of folders ends, and is counted."""
    write_files(tmp_path, "a/b/1.png")
    (tmp_path / "a/b/up").symlink_to(tmp_path / "a")
    (tmp_path / "a/here").symlink_to(".")
    tree = walk(tmp_path)
    assert found(tmp_path) == [b"a/b/1.png"]
    assert tree.findings.ignored.counts == {"link to a folder that holds it": 2}
    assert not tree.findings.rejects


def test_a_link_that_leads_nowhere_is_a_reject(tmp_path):
    """A lost picture, and a lost link that may have been a folder, are named with the target."""
    write_files(tmp_path, "a/1.png")
    (tmp_path / "a/2.png").symlink_to("gone.png")
    (tmp_path / "cats").symlink_to("/nowhere/cats")
    (tmp_path / "round.png").symlink_to("round.png")
    tree = walk(tmp_path)
    assert [(r.key, r.path, r.reason) for r in tree.findings.rejects] == [
        (b"cats", "cats", "the link leads nowhere: /nowhere/cats"),
        (b"round.png", "round.png", "cannot be read: Too many levels of symbolic links"),
        (b"a/2.png", "a/2.png", "the link leads nowhere: gone.png"),
    ]
    assert tree.folders[b"a"].reject_count == 1
    assert found(tmp_path) == [b"a/1.png"]


def test_what_is_no_regular_file_is_ignored(tmp_path):
    """Opening a named pipe would wait for ever, even one called like a picture."""
    os.mkfifo(tmp_path / "pipe.jpg")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(tmp_path, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{folder}/s.png")  # A socket's own path ends at 108 bytes.
        finally:
            os.close(folder)
        tree = walk(tmp_path)
    assert found(tmp_path) == []
    assert tree.findings.ignored.counts == {"not a regular file": 3}


def test_a_folder_that_cannot_be_read_is_a_reject(tmp_path):
    """A folder past the longest possible path is named with the reason; the rest is found."""
    write_files(tmp_path, "a/1.png")
    name = "d" * 250
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(17):  # 17 * 251 bytes: more than the 4096 of PATH_MAX.
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    tree = walk(tmp_path)
    assert found(tmp_path) == [b"a/1.png"]
    assert len(tree.findings.rejects) == 1
    assert tree.findings.rejects[0].key.startswith(name.encode() + b"/" + name.encode())
    assert tree.findings.rejects[0].reason.endswith("File name too long")


def test_a_forbidden_folder_is_a_reject(tmp_path, monkeypatch):
    """Missing permission is said, and hides no other folder."""
    write_files(tmp_path, "a/1.png", "b/1.png")
    (tmp_path / "a").chmod(0)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # The folders above may be root's own.
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)  # Root reads every folder.
        tree = walk(Path())
    finally:
        os.seteuid(user)
        (tmp_path / "a").chmod(0o755)
    assert [(r.key, r.path, r.reason) for r in tree.findings.rejects] == [
        (b"a", "a", "the folder cannot be listed: Permission denied")
    ]
    assert tree.folders[b"a"].reject_count == 1
    assert [p.path for p in tree.folders[b"b"].pictures] == [b"b/1.png"]


def test_contents_add_up_all_that_lies_below(tmp_path):
    """What a class holds is what its folder and all folders in it hold."""
    write_files(tmp_path, "a/1.png", "a/x/y/2.png", "a/x/n.txt", "b/", "0.png")
    contents = walk(tmp_path).contents(1)
    assert {k: (c.picture_count, c.other_count) for k, c in contents.items()} == {
        b"a": (2, 1),
        b"b": (0, 0),
    }
    assert contents[b"a"].holds_pictures
    assert not contents[b"b"].holds_pictures
    assert set(walk(tmp_path).contents(2)) == {b"a/x"}


def test_a_raw_path_that_is_no_folder_is_an_error(tmp_path):
    """The walk of a file says what is wrong with the path."""
    write_files(tmp_path, "a.txt")
    with pytest.raises(SourceError, match=r"a\.txt: the folder cannot be listed: Not a directory"):
        walk(tmp_path / "a.txt")


@given(
    st.sets(
        st.lists(st.sampled_from(["a", "b", "a-b", "a.b", "b.c"]), min_size=1, max_size=4).map(
            tuple
        ),
        max_size=8,
    ),
    st.sets(st.sampled_from("01")),
)
def test_runs_are_in_the_order_of_paths(folders, names):
    """The order of a store is that of its keys, whatever lies around and inside of what."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for parts in (*folders, ()):
            for name in ("a.jpg", "b.jpg", *(f"a-b{name}.jpg" for name in names)):
                write_files(root, "/".join((*parts, name)))
        tree = walk(root)
    runs = list(tree.runs())
    paths = [
        (folder + b"/" if folder else b"") + tree.table.name(row)
        for folder, first, end in runs
        for row in range(first, end)
    ]
    assert paths == sorted(p.path for f in tree.folders.values() for p in f.pictures)
    assert all(first < end for _, first, end in runs)


def test_whoever_waits_is_told_how_far_the_walk_is(tmp_path, draw_tree):
    """Behind each folder, with what was met so far; without the context nobody is."""
    tree = draw_tree(tmp_path / "raw", ["a/1.png", "a/2.png", "b/3.png"])
    (tree / "b" / "notes").write_text("")
    told = []
    with walks_told(lambda *counts: told.append(counts)):
        walk(tree)
    walk(tree)
    assert told == [(1, 0), (2, 2), (3, 4)]
