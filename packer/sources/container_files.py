"""Files that hold many images: found under a raw path, with an account of what lies beside them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from packer.errors import SourceError
from packer.items.findings import Findings
from packer.items.raw_item import MEMBER_BYTES_MAX, RawFile
from packer.sources.listing import is_regular_file
from packer.sources.walk import NOT_A_PICTURE, Picture, skip_reason, walk
from packer.wording import names_text, readable_path
from readers.store.splits import canonical_split

BESIDE = "picture beside the files that hold pictures, not in one"


@dataclass
class ContainerFiles:
    """The files of a raw path that a source asked for, and all others.

    Attributes:
        root: Folder that their paths are relative to.
        files: Sorted by path.
        pictures: Picture files beside them.
        others: Paths of all other files, which are among the ignored, sorted.
        findings: Files and folders that cannot be read, and files of no use. The source goes on
            with it.
    """

    root: Path
    files: list[RawFile] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)

    def full_path(self, path: bytes) -> Path:
        """Path of one of the files as it can be opened."""
        return self.root / os.fsdecode(path)

    def ignore_pictures(self, used: Iterable[bytes] = ()) -> None:
        """Count the pictures beside the files that are not among the paths used."""
        taken = set(used)
        self.findings.ignore(BESIDE, (p.path for p in self.pictures if p.path not in taken))


def find_container_files(raw: Path, accepts: Callable[[bytes], bool]) -> ContainerFiles:
    """The files under a folder whose path is accepted, or the one file that `raw` is.

    Args:
        raw: Folder or file.
        accepts: Whether the source reads a file of this path, which is relative to the folder.

    Raises:
        SourceError: The folder cannot be listed or the file cannot be read.
    """
    if raw.is_file():
        found = ContainerFiles(raw.parent)
        _add(found, os.fsencode(raw.name))
        for reject in found.findings.rejects:
            raise SourceError(f"{reject.path}: {reject.reason}.")
        found.others = _files_beside(raw)
        return found
    # Every file that is not a picture is listed: some formats give their files no extension.
    tree = walk(raw, (b"",))
    found = ContainerFiles(raw, findings=tree.findings)
    for folder in tree.folders.values():
        found.pictures += folder.pictures
        for path in folder.annotation_files:
            if accepts(path):
                _add(found, path)
            else:
                found.findings.ignore(NOT_A_PICTURE, [path])
                found.others.append(path)
    found.others.sort()
    found.files.sort(key=lambda file: file.path)
    found.pictures.sort()
    return found


def _files_beside(raw: Path) -> list[bytes]:
    """Names of the files in the folder of a file, which nobody asked to have read or counted."""
    try:
        with os.scandir(os.fsencode(raw.parent)) as listing:
            names = [entry.name for entry in listing if is_regular_file(entry)]
    except OSError:
        return []
    return sorted(n for n in names if n != os.fsencode(raw.name) and skip_reason(n) is None)


def _add(found: ContainerFiles, path: bytes) -> None:
    try:
        status = os.stat(found.full_path(path))
    except OSError as error:
        found.findings.refuse(path, f"cannot be read: {error.strerror}")
        return
    if stat.S_ISREG(status.st_mode):
        found.files.append(RawFile(path, status.st_size, status.st_mtime_ns))


def member_parts(written: bytes) -> list[bytes]:
    """The folders and the name in the path of a member of an archive.

    Tools of Windows write backslashes between them.
    """
    return [part for part in written.replace(b"\\", b"/").split(b"/") if part not in (b"", b".")]


def member_problem(written: bytes, parts: list[bytes], byte_count: int) -> str:
    """Why a member of an archive is not taken, by its path and size alone; empty if it may be.

    Args:
        written: Its path as written.
        parts: The path's parts.
        byte_count: Its size, as the archive says.
    """
    if written[:1] in (b"/", b"\\") or re.match(rb"[A-Za-z]:[/\\]", written):
        return "an absolute path; expected a relative one"
    if b".." in parts:
        return "a path with '..'; expected one inside of the archive"
    if not parts or b"\0" in written:
        return "no name that a file can have"
    if byte_count > MEMBER_BYTES_MAX:
        return f"{byte_count:,} bytes; expected at most {MEMBER_BYTES_MAX:,}"
    return ""


def split_of_path(path: bytes) -> str | None:
    """The split that a file's name or one of its folders speaks of, as written, or None.

    Names outweigh folders. A name that speaks of two (`test-train.tar`) speaks of none.
    """
    for part in reversed(path.split(b"/")):
        words: list[str] = re.findall(r"[^\W\d_]+[0-9]*", part.decode("utf-8", "replace"))
        named = [word for word in words if canonical_split(word)]
        plain = [word.rstrip("0123456789") for word in words]
        named += [word for word in plain if canonical_split(word) and not named]
        if len(set(named)) == 1:
            return named[0]
        if named:
            return None
    return None


def splits_of_paths(paths: Iterable[bytes]) -> tuple[dict[bytes, str], list[str]]:
    """The split of each path, where every one speaks of a split; and a note where only some do."""
    found = {path: split_of_path(path) for path in paths}
    splits = {path: split for path, split in found.items() if split is not None}
    if len(splits) == len(found):
        return splits, []
    if splits:
        without = [readable_path(path) for path in found if path not in splits]
        return {}, [f"no splits: some files are named after one, but not {names_text(without)}"]
    return {}, []
