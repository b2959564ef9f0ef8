"""One walk over a raw tree: its pictures by folder, and an account of everything else."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from packer.errors import SourceError
from packer.items.findings import Findings
from packer.items.raw_item import Ignored
from packer.sources.listing import FolderLister
from packer.wording import readable_path

# Content decides the decoder, not the name. HEIC and JPEG XL are pictures too, although not every
# installation decodes them: so they are rejected by name, and not passed over as "not a picture".
PICTURE_EXTENSIONS: frozenset[bytes] = frozenset(
    b".jpg .jpeg .jpe .jfif .mpo .png .ppm .pgm .pbm .pnm .bmp .tga .tif .tiff .webp .gif .avif "
    b".jp2 .heic .heif .jxl".split()
)
PICTURE_TYPES = " ".join(sorted(extension.decode() for extension in PICTURE_EXTENSIONS))
"""The extensions in one line, for messages."""

# Lower case. macOS archives, Windows folder settings and previews, Synology previews (which are
# pictures, in a folder named like the picture).
_LITTER = frozenset((b"thumbs.db", b"desktop.ini", b"__macosx", b"@eadir"))

HIDDEN = "hidden name"
LITTER = "left by a desktop or file server"
NOT_A_PICTURE = "not a picture"
NOT_REGULAR = "not a regular file"
LINK_LOOP = "link to a folder that holds it"


class Picture(NamedTuple):
    """A file that is named like a picture: path relative to the raw folder, bytes, nanoseconds."""

    path: bytes
    byte_count: int
    mtime_ns: int


@dataclass(slots=True)
class Folder:
    """What lies directly in one folder.

    Attributes:
        pictures: Sorted by name.
        annotation_files: Paths of files with an extension that was asked for, sorted.
        reject_count: Entries that could not be read, the folder itself among them.
        other_count: Files that are no pictures, without hidden ones and litter.
    """

    pictures: list[Picture] = field(default_factory=list)
    annotation_files: list[bytes] = field(default_factory=list)
    reject_count: int = 0
    other_count: int = 0


@dataclass(slots=True)
class Contents:
    """How much lies in a folder and all folders below it; see `Folder`."""

    picture_count: int = 0
    reject_count: int = 0
    other_count: int = 0

    @property
    def holds_pictures(self) -> bool:
        """Whether there is a picture, or something that might be one but could not be read."""
        return self.picture_count + self.reject_count > 0


@dataclass
class Tree:
    """A whole raw tree.

    Attributes:
        folders: Every folder that was entered, by its path relative to the raw folder, which
            itself is `b""`; parents before children, and siblings sorted by bytes.
        findings: Entries that could not be read are its rejects, and files that are no pictures
            ignored. The source goes on with it.
    """

    folders: dict[bytes, Folder] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)

    def contents(self, depth: int) -> dict[bytes, Contents]:
        """What each folder `depth` levels down holds, all that lies below it included."""
        found: dict[bytes, Contents] = {}
        for path, folder in self.folders.items():
            parts = path.split(b"/") if path else []
            if len(parts) >= depth:
                total = found.setdefault(b"/".join(parts[:depth]), Contents())
                total.picture_count += len(folder.pictures)
                total.reject_count += folder.reject_count
                total.other_count += folder.other_count
        return found


def is_picture_name(name: bytes) -> bool:
    """Whether the extension, whatever its case, is one of a picture."""
    return name[name.rfind(b".") :].lower() in PICTURE_EXTENSIONS


def skip_reason(name: bytes) -> str | None:
    """Why a file or folder of this name is never looked at, or None when it is."""
    if name.startswith(b"."):
        return HIDDEN
    return LITTER if name.lower() in _LITTER else None


_on_folder: ContextVar[Callable[[int, int], None]] = ContextVar("on_folder")


@contextlib.contextmanager
def walks_told(on_folder: Callable[[int, int], None]) -> Iterator[None]:
    """Within the context, tell behind each folder how far the walk is: (folders, files) so far.

    Sources walk as they see fit, several times as well; whoever shows progress need not know how.
    """
    token = _on_folder.set(on_folder)
    try:
        yield
    finally:
        _on_folder.reset(token)


def walk(raw: Path, annotation_extensions: tuple[bytes, ...] = ()) -> Tree:
    """Find every picture under a folder, following links, with one stat a picture.

    Nothing is left out in silence: what cannot be read is a reject with the reason, and what is no
    picture is counted by reason. A folder that is skipped for its name counts every file in it.

    Args:
        raw: The folder.
        annotation_extensions: In lower case, with the dot. Files of these are listed rather than
            counted as ignored: the source accounts for them, and adds those that it has no use
            for to the ignored files.

    Raises:
        SourceError: The folder itself cannot be listed.
    """
    tree = Tree()
    root = os.fsencode(raw)
    try:
        root_status = os.stat(root)
        os.scandir(root).close()
    except OSError as error:
        raise unreadable_folder(raw, error) from error
    # Folders still to be entered, with the identity of each folder above: a link may lead to any
    # place, twice as well (two classes may share a folder), but not to a folder that holds it.
    pending: list[tuple[bytes, tuple[tuple[int, int], ...]]] = [
        (b"", ((root_status.st_dev, root_status.st_ino),))
    ]
    on_folder, file_count = _on_folder.get(None), 0
    with FolderLister(root, wants_stat=True) as lister:
        while pending:
            path, above = pending.pop()
            children = _list_folder(root, path, lister, tree, annotation_extensions)
            if on_folder is not None:
                listed = tree.folders[path]
                file_count += len(listed.pictures) + listed.other_count
                on_folder(len(tree.folders), file_count)
            entered: list[tuple[bytes, tuple[tuple[int, int], ...]]] = []
            for child, status in children:
                identity = (status.st_dev, status.st_ino)
                if identity in above:
                    tree.findings.ignore(LINK_LOOP, [child])
                else:
                    entered.append((child, (*above, identity)))
            pending += reversed(entered)
            lister.ahead(path for path, _ in reversed(pending))
    return tree


def unreadable_folder(raw: Path, error: OSError) -> SourceError:
    """The error for a raw folder that cannot be listed."""
    return SourceError(
        f"{readable_path(os.fsencode(raw))}: the folder cannot be listed: {error.strerror}. "
        "Check its path and its permissions."
    )


def _list_folder(
    root: bytes,
    path: bytes,
    lister: FolderLister,
    tree: Tree,
    annotation_extensions: tuple[bytes, ...],
) -> list[tuple[bytes, os.stat_result]]:
    """Sort one folder's entries into the tree, and return its folders."""
    folder = tree.folders[path] = Folder()
    prefix = path + b"/" if path else b""
    children: list[tuple[bytes, os.stat_result]] = []
    try:
        entries = lister.entries(path)
    except OSError as error:
        folder.reject_count += 1
        tree.findings.refuse(path, f"the folder cannot be listed: {error.strerror}")
        return []
    for entry in entries:
        name = entry.name
        entry_path = prefix + name
        skipped = skip_reason(name)
        if skipped is not None:
            _ignore_all(entry, entry_path, skipped, tree.findings.ignored)
            continue
        is_picture = is_picture_name(name)
        try:
            if entry.is_dir():
                children.append((entry_path, entry.stat()))
            elif is_picture or entry.is_symlink():
                # This is the one stat a picture costs. A link is also followed to see that it
                # leads anywhere: a lost one may have been a folder of pictures.
                status = entry.stat()
                if not stat.S_ISREG(status.st_mode):
                    tree.findings.ignore(NOT_REGULAR, [entry_path])
                elif is_picture:
                    picture = Picture(entry_path, status.st_size, status.st_mtime_ns)
                    folder.pictures.append(picture)
                else:
                    _add_other(folder, entry_path, tree, annotation_extensions)
            elif entry.is_file():
                _add_other(folder, entry_path, tree, annotation_extensions)
            else:
                tree.findings.ignore(NOT_REGULAR, [entry_path])
        except OSError as error:
            folder.reject_count += 1
            reason = _unreadable_reason(os.path.join(root, entry_path), error)
            tree.findings.refuse(entry_path, reason)
    return children


def _add_other(
    folder: Folder, path: bytes, tree: Tree, annotation_extensions: tuple[bytes, ...]
) -> None:
    """Sort in a file that is not a picture."""
    folder.other_count += 1
    if annotation_extensions and path.lower().endswith(annotation_extensions):
        folder.annotation_files.append(path)
    else:
        tree.findings.ignore(NOT_A_PICTURE, [path])


def _entry_name(entry: os.DirEntry[bytes]) -> bytes:
    return entry.name


def _unreadable_reason(path: bytes, error: OSError) -> str:
    if error.errno != errno.ENOENT:
        return f"cannot be read: {error.strerror}"
    try:
        target = os.readlink(path)
    except OSError:
        return "vanished while its folder was being read"
    return f"the link leads nowhere: {readable_path(target)}"


def _ignore_all(entry: os.DirEntry[bytes], path: bytes, reason: str, ignored: Ignored) -> None:
    """Count a skipped file, or every file of a skipped folder; its links are not followed."""
    pending = [(entry, path)]
    while pending:
        entry, path = pending.pop()
        if not entry.is_dir(follow_symlinks=False):
            ignored.add(reason, readable_path(path))
            continue
        try:
            with os.scandir(entry.path) as listing:
                children = sorted(listing, key=_entry_name, reverse=True)
        except OSError:
            ignored.add(reason, readable_path(path))
            continue
        pending += [(child, path + b"/" + child.name) for child in children]
