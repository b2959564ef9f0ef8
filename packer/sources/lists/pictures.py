"""Where the files are that a list names: beside the list, or under the root."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from packer.items.raw_item import RawFile
from packer.slow_storage import THREAD_COUNT, Pace
from packer.sources.pairing import composed, split_path, stem_of
from packer.sources.source import SourceOptions
from packer.sources.walk import Picture, is_picture_name
from packer.threads import map_threads
from packer.wording import readable_path
from readers.store.wording import few_text


class Listed(NamedTuple):
    """What a path in a list leads to.

    Attributes:
        key: Relative to the raw folder or root, whichever it was found under.
        file: The file; None when there is none to take.
        problem: Why there is none; empty when there is one.
    """

    key: bytes
    file: RawFile | None
    problem: str = ""


class ListedFiles:
    """Finds the files that lists name, and remembers which they were.

    A path is looked for as it is written: beside its list first, then in the given folders inside
    of the raw folder, then under the root. Where there is no such file, one is taken whose name
    differs only in Unicode form, or, for a name without the extension of a picture, the one
    picture that has the name without its own.

    Args:
        raw: The raw folder. Keys of what lies in it are relative to it.
        root: Where files are that do not lie beside the list; their keys are relative to it.
        inside: Further folders, relative to the raw folder, as are keys of what lies in them.
        known: Pictures of the raw folder by path, as far as they have been found already.
    """

    def __init__(
        self,
        raw: Path,
        root: Path | None,
        inside: Sequence[bytes] = (),
        known: Mapping[bytes, Picture] | None = None,
    ) -> None:
        self._raw = os.fsencode(raw)
        self._root = self._raw if root is None else os.fsencode(root)
        self._inside = inside
        self._known = known or {}
        self._listings: dict[bytes, _FolderNames] = {}
        self._bases_of: dict[bytes, list[tuple[bytes, bytes]]] = {}
        self._allowed = [self._raw] if root is None else [self._raw, self._root]
        self._real_folders = [os.path.realpath(folder) for folder in self._allowed]
        self._pace = Pace()
        self._asked: dict[bytes, os.stat_result | OSError] = {}
        self.taken: set[bytes] = set()
        """Absolute paths of all files that were found."""

    @property
    def root(self) -> Path:
        """Folder that the found paths are relative to."""
        return Path(os.fsdecode(self._root))

    def key(self, written: str, folder: bytes) -> bytes:
        """Key of a path of a list in `folder`, relative to the raw folder, as it is written."""
        return _join(folder, key_of(written, [base for base, _ in self._bases(folder)]))

    def find(self, written: str, folder: bytes) -> Listed:
        """The file of a path of a list that lies in `folder`, relative to the raw folder."""
        bases = self._bases(folder)
        key = key_of(written, [base for base, _ in bases])
        if not key:
            return Listed(b"", None, "the path is empty")
        if b"\0" in key:
            return Listed(key, None, "the path holds a zero byte")
        for find in (self._at, self._alike):
            for base, prefix in bases:
                found = find(key, base, prefix)
                if found is not None:
                    return found
        looked = " and ".join(readable_path(base) for base, _ in bases)
        hint = "; if it lies elsewhere, give --root" if self._root == self._raw else ""
        return Listed(
            _join(folder, key), None, f"{readable_path(key)} not found; looked in {looked}{hint}"
        )

    def ahead(self, written: Iterable[str], folder: bytes) -> None:
        """Look for what will be asked of `find` next, by threads where the file server is slow."""
        if not self._pace.is_slow:
            return
        bases = [base for base, _ in self._bases(folder)]
        found = map_threads(lambda path: self._looked_for(path, bases), set(written), THREAD_COUNT)
        self._asked = {full: status for statuses in found for full, status in statuses}

    def _looked_for(
        self, written: str, bases: Sequence[bytes]
    ) -> list[tuple[bytes, os.stat_result | OSError]]:
        """What the system says of each place of a path, up to where a file is."""
        key = key_of(written, bases)
        asked: list[tuple[bytes, os.stat_result | OSError]] = []
        if not key or b"\0" in key:
            return asked
        for base in bases:
            full = os.path.join(base, key)
            if self._is_known(full):
                break
            try:
                asked.append((full, os.stat(full)))
                break
            except OSError as error:
                asked.append((full, error))
        return asked

    def _is_known(self, full: bytes) -> bool:
        """Whether a path is that of a picture that the raw folder is known to hold."""
        inside = self._raw + b"/"
        return full.startswith(inside) and full[len(inside) :] in self._known

    def _status(self, full: bytes) -> os.stat_result:
        status = self._asked.get(full)
        if isinstance(status, OSError):
            raise status
        if status is None:
            started = time.monotonic()
            try:
                status = os.stat(full)
            finally:
                self._pace.add(time.monotonic() - started)
        return status

    def _bases(self, folder: bytes) -> list[tuple[bytes, bytes]]:
        """Folders to look in, each with what comes before the path in a key."""
        if folder not in self._bases_of:
            bases = [
                (os.path.join(self._raw, inner) if inner else self._raw, inner)
                for inner in (folder, *self._inside)
            ]
            if self._root != self._raw:
                bases.append((self._root, b""))
            self._bases_of[folder] = bases
        return self._bases_of[folder]

    def _at(self, key: bytes, base: bytes, prefix: bytes) -> Listed | None:
        """The file at just this path, or why it cannot be taken; None when there is none."""
        full = os.path.join(base, key)
        key = _join(prefix, key)
        known = self._known.get(key)
        if known is not None and full == os.path.join(self._raw, key):
            return self._listed(key, full, known.byte_count, known.mtime_ns)
        try:
            status = self._status(full)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return Listed(key, None, f"{readable_path(key)} cannot be read: {error.strerror}")
        if not stat.S_ISREG(status.st_mode):
            return Listed(key, None, f"{readable_path(key)} is not a regular file")
        if key.startswith(b"/") or b".." in key.split(b"/"):
            real = os.path.realpath(full)
            holders = [n for n, f in enumerate(self._real_folders) if real.startswith(f + b"/")]
            if not holders:
                return Listed(
                    key,
                    None,
                    f"{readable_path(key)} lies outside of "
                    f"{' and '.join(map(readable_path, self._real_folders))}; expected a file "
                    "inside. Give a folder that holds all pictures as --root",
                )
            key = os.path.relpath(real, self._real_folders[holders[0]])
            full = os.path.join(self._allowed[holders[0]], key)
        return self._listed(key, full, status.st_size, status.st_mtime_ns)

    def _listed(self, key: bytes, full: bytes, byte_count: int, mtime_ns: int) -> Listed:
        absolute = os.path.abspath(full)
        self.taken.add(absolute)
        # Items are relative to the root where one is given: that is where the pictures are. The
        # few that lie beside the list instead then get a full path.
        path = key if absolute == os.path.abspath(os.path.join(self._root, key)) else absolute
        return Listed(key, RawFile(path, byte_count, mtime_ns))

    def _alike(self, key: bytes, base: bytes, prefix: bytes) -> Listed | None:
        """The file whose name is nearly this one; None when there is none."""
        if key.startswith(b"/"):
            return None
        inner, name = split_path(key)
        folder = os.path.join(base, inner)
        if folder not in self._listings:
            self._listings[folder] = _folder_names(folder)
        names = self._listings[folder]
        alike = names.by_name.get(composed(name), [])
        if not alike and not is_picture_name(name):
            alike = names.by_stem.get(composed(name), [])
        if len(alike) > 1:
            shown = few_text([_join(inner, other) for other in alike], 5, readable_path)
            return Listed(
                _join(prefix, key),
                None,
                f"several pictures fit {readable_path(key)}: {shown}; expected one. Rename one of "
                "them",
            )
        return self._at(_join(inner, alike[0]), base, prefix) if alike else None


def picture_folders(list_path: Path, options: SourceOptions) -> list[bytes]:
    """Where the pictures of a list are looked for: beside it, then under the root."""
    folders = [list_path.parent] if options.root is None else [list_path.parent, options.root]
    return [os.fsencode(folder) for folder in folders]


def is_there(written: str, bases: Sequence[bytes]) -> bool:
    """Whether a path of a list leads to a file in one of these folders."""
    first, *others = (Path(os.fsdecode(base)) for base in bases)
    return ListedFiles(first, others[0] if others else None).find(written, b"").file is not None


def key_of(path: str, bases: Sequence[bytes]) -> bytes:
    """Bytes of a path as written; one from Windows gets slashes, unless a file is called that."""
    key = posix_form(path.strip()).encode("utf-8", "surrogateescape")
    if b"\\" not in key or b"\0" in key:
        return key
    if any(os.path.lexists(os.path.join(base, key)) for base in bases):
        return key
    return posix_form(path.strip().replace("\\", "/")).encode("utf-8", "surrogateescape")


def posix_form(path: str) -> str:
    """A path without `.` parts and doubled slashes; `..` stays, since links may lie before it."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(parts)


class _FolderNames(NamedTuple):
    """Names of the pictures in a folder, in Unicode's composed form: whole, without extension."""

    by_name: dict[bytes, list[bytes]]
    by_stem: dict[bytes, list[bytes]]


def _folder_names(folder: bytes) -> _FolderNames:
    names = _FolderNames({}, {})
    try:
        found = sorted(os.listdir(folder))
    except OSError:
        return names
    for name in found:
        if is_picture_name(name):
            names.by_name.setdefault(composed(name), []).append(name)
            names.by_stem.setdefault(composed(stem_of(name)), []).append(name)
    return names


def _join(folder: bytes, name: bytes) -> bytes:
    if not folder or name.startswith(b"/"):
        return name
    return folder + b"/" + name
