"""One walk over a raw tree: its pictures by folder, and an account of everything else."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from packer.errors import SourceError
from packer.items.file_table import FileTable
from packer.items.findings import Findings
from packer.items.raw_item import Ignored
from packer.sources.listing import FolderLister, Status
from packer.sources.pictures import Picture as Picture  # Which sources know as the walk's.
from packer.sources.pictures import Pictures
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
_AT_ONCE = 4096
"""Pictures of a folder that are moved into the table at a time."""

LINK_LOOP = "link to a folder that holds it"


@dataclass(slots=True)
class Folder:
    """What lies directly in one folder.

    Attributes:
        pictures: Sorted by name.
        annotation_files: Paths of files with an extension that was asked for, sorted.
        reject_count: Entries that could not be read, the folder itself among them.
        other_count: Files that are no pictures, without hidden ones and litter.
    """

    pictures: Pictures
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
        table: Their pictures, as columns.
        findings: Entries that could not be read are its rejects, and files that are no pictures
            ignored. The source goes on with it.
    """

    folders: dict[bytes, Folder] = field(default_factory=dict)
    table: FileTable = field(default_factory=FileTable)
    findings: Findings = field(default_factory=Findings)

    def runs(self) -> Iterator[tuple[bytes, int, int]]:
        """The pictures in the order of their paths: (folder, first row, row behind the last).

        That of folders alone does not do: `a-b/1.png` comes before `a/1.png`, and `a/b/1.png`
        between `a/a.png` and `a/c.png`.
        """
        holding = sorted(
            (path + b"/" if path else b"", path, folder.pictures)
            for path, folder in self.folders.items()
            if folder.pictures
        )
        # Folders around the current one, of whose pictures some are still to come.
        around: list[tuple[bytes, bytes, int, int]] = []
        for prefix, path, pictures in holding:
            while around and not prefix.startswith(around[-1][0]):
                yield from _unless_empty(*around.pop()[1:])
            if around:
                outer, outer_path, row, end = around.pop()
                below = prefix[len(outer) :]
                cut = bisect_left(range(end), below, row, end, key=self.table.name)
                yield from _unless_empty(outer_path, row, cut)
                around.append((outer, outer_path, cut, end))
            around.append((prefix, path, pictures.first, pictures.end))
        while around:
            yield from _unless_empty(*around.pop()[1:])

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


def _unless_empty(path: bytes, first: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    if first < end:
        yield path, first, end


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
    with FolderLister(root, wants_status=_is_asked) as lister:
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
    first = len(tree.table)
    folder = tree.folders[path] = Folder(Pictures(tree.table, path, first, first))
    prefix = path + b"/" if path else b""
    children: list[tuple[bytes, os.stat_result]] = []
    try:
        listed = lister.listed(path)
    except OSError as error:
        folder.reject_count += 1
        tree.findings.refuse(path, f"the folder cannot be listed: {error.strerror}")
        return []
    # What is named like a picture is asked for its status at once: the one stat that it costs.
    others: list[tuple[bytes, os.DirEntry[bytes] | Status]] = []
    names: list[bytes] = []
    byte_counts: list[int] = []
    times: list[int] = []
    is_regular = stat.S_ISREG
    remaining = iter(listed.names)
    for statuses in lister.statuses(path, listed):
        for status, name in zip(statuses, remaining, strict=False):
            if isinstance(status, os.stat_result) and is_regular(status.st_mode):
                names.append(name)
                byte_counts.append(status.st_size)
                times.append(status.st_mtime_ns)
            else:
                others.append((name, status))
        if len(names) >= _AT_ONCE:
            tree.table.add(names, byte_counts, times)
            names, byte_counts, times = [], [], []
    tree.table.add(names, byte_counts, times)
    folder.pictures.end = len(tree.table)
    others += [(entry.name, entry) for entry in listed.entries]
    for name, other in sorted(others, key=itemgetter(0)):
        entry_path = prefix + name
        try:
            if isinstance(other, OSError):
                raise other
            if isinstance(other, os.stat_result):
                if stat.S_ISDIR(other.st_mode):
                    children.append((entry_path, other))
                else:
                    tree.findings.ignore(NOT_REGULAR, [entry_path])
                continue
            skipped = skip_reason(name)
            if skipped is not None:
                _ignore_all(other, entry_path, skipped, tree.findings.ignored)
            elif other.is_dir():
                children.append((entry_path, other.stat()))
            # A link is also followed to see that it leads anywhere: a lost one may have been a
            # folder of pictures.
            elif stat.S_ISREG(other.stat().st_mode) if other.is_symlink() else other.is_file():
                _add_other(folder, entry_path, tree, annotation_extensions)
            else:
                tree.findings.ignore(NOT_REGULAR, [entry_path])
        except OSError as error:
            folder.reject_count += 1
            reason = _unreadable_reason(os.path.join(root, entry_path), error)
            tree.findings.refuse(entry_path, reason)
    return children


def _is_asked(name: bytes) -> bool:
    """Whether a name is that of a picture which is not skipped."""
    # What a desktop leaves has no extension of a picture.
    return name[name.rfind(b".") :].lower() in PICTURE_EXTENSIONS and not name.startswith(b".")


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
