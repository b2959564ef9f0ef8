"""A look at the first levels of a raw folder: names, and whether there is a picture at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packer.sources.listing import FolderLister, is_folder, is_special
from packer.sources.walk import is_picture_name, skip_reason, unreadable_folder
from packer.wording import readable_path
from readers.store.wording import few_text

# What to look at. Names are read in full, since one annotation file among 100,000 pictures decides;
# only the number of folders and of opened files is limited.
LEVELS = 2
LEVEL1_FOLDERS_MAX = 200
LEVEL2_FOLDERS_MAX = 20
WRAPPERS_MAX = 4
DEEPER_FOLDERS_MAX = 200
NAMES_MAX = 200
HEAD_BYTES = 64 * 2**10


@dataclass
class Listing:
    """The names in one folder, each sorted by bytes, without hidden ones and litter."""

    path: bytes
    pictures: list[bytes] = field(default_factory=list)
    files: list[bytes] = field(default_factory=list)
    folders: list[bytes] = field(default_factory=list)

    def join(self, name: bytes) -> bytes:
        """Path of an entry, relative to the raw folder."""
        return self.path + b"/" + name if self.path else name


@dataclass
class Look:
    """The first levels of a raw folder.

    Attributes:
        root: The raw folder.
        listings: The folder itself first, then its folders, sorted, then theirs.
        unreadable: Paths of folders that could not be listed.
        has_pictures: Whether there is any picture, at any depth.
    """

    root: bytes
    listings: list[Listing]
    unreadable: list[bytes] = field(default_factory=list)
    has_pictures: bool = False

    def files(self, *extensions: bytes) -> list[bytes]:
        """Paths of files with one of the extensions, those of upper levels first."""
        return [
            listing.join(name)
            for listing in self.listings
            for name in listing.files
            if name.lower().endswith(extensions)
        ]

    def head(self, path: bytes) -> str:
        """The start of a file as text; empty when it cannot be read."""
        try:
            with open(os.path.join(self.root, path), "rb") as file:
                return file.read(HEAD_BYTES).decode("utf-8-sig", "replace")
        except OSError:
            return ""


def look_at(raw: Path) -> Look:
    """List the first levels of a folder.

    Raises:
        SourceError: The folder itself cannot be listed.
    """
    root = os.fsencode(raw)
    with FolderLister(root) as lister:
        try:
            look = Look(root, [_listing(lister, b"")])
        except OSError as error:
            raise unreadable_folder(raw, error) from error
        _look_below(look, lister)
    look.has_pictures = any(listing.pictures for listing in look.listings) or holds_pictures(root)
    return look


def look_at_file(raw: Path) -> Look:
    """A folder with nothing but the file that was given for the raw path."""
    return Look(os.fsencode(raw.parent), [Listing(b"", files=[os.fsencode(raw.name)])])


def _look_below(look: Look, lister: FolderLister) -> None:
    """Add the listings of the levels below the first."""
    level = look.listings[:]
    for depth in range(1, LEVELS + 1):
        maximum = LEVEL1_FOLDERS_MAX if depth == 1 else LEVEL2_FOLDERS_MAX
        below = []
        for listing in level:
            paths = list(map(listing.join, listing.folders[:maximum]))
            for at, path in enumerate(paths):
                lister.ahead(paths[at:])
                try:
                    below.append(_list_below(lister, path))
                except OSError:
                    look.unreadable.append(path)
        look.listings += below
        level = below


def holds_pictures(folder: bytes) -> bool:
    """Whether a picture lies in a folder or anywhere below; stops at the first."""
    seen = set()
    pending = [folder]
    while pending:
        path = pending.pop()
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            listing = list_folder(path, b"")
        except OSError:
            continue
        if listing.pictures:
            return True
        pending += [os.path.join(path, name) for name in reversed(listing.folders)]
    return False


def list_folder(root: bytes, path: bytes) -> Listing:
    """The names in one folder; raises OSError when it cannot be listed."""
    with FolderLister(root) as lister:
        return _listing(lister, path)


def _listing(lister: FolderLister, path: bytes) -> Listing:
    listing = Listing(path)
    for entry in lister.entries(path):
        name = entry.name
        if skip_reason(name) is not None:
            continue
        if is_folder(entry):
            listing.folders.append(name)
        elif is_special(entry):
            continue  # The walk names it, as it does a link in a circle.
        elif is_picture_name(name):
            listing.pictures.append(name)
        else:
            listing.files.append(name)
    return listing


def deeper(look: Look) -> list[Listing]:
    """Listings of folders below those that were looked at, level by level, a limited number."""
    listed = {b""}
    for listing in look.listings:
        parts = listing.path.split(b"/")
        listed.update(b"/".join(parts[: n + 1]) for n in range(len(parts)))
    pending = [x.join(n) for x in look.listings for n in x.folders if x.join(n) not in listed]
    found: list[Listing] = []
    for path in pending:  # Which grows.
        if len(found) == DEEPER_FOLDERS_MAX:
            break
        try:
            found.append(list_folder(look.root, path))
        except OSError:
            continue
        pending += map(found[-1].join, found[-1].folders)
    return found


def evenly(names: Sequence[bytes]) -> Sequence[bytes]:
    """At most `NAMES_MAX` of the names, from all parts of the list."""
    return names[:: max(1, -(-len(names) // NAMES_MAX))]


def _list_below(lister: FolderLister, path: bytes) -> Listing:
    """The listing of a folder, or of the first below that holds more than one other folder."""
    listing = _listing(lister, path)
    for _ in range(WRAPPERS_MAX):
        if listing.pictures or listing.files or len(listing.folders) != 1:
            break
        listing = _listing(lister, listing.join(listing.folders[0]))
    return listing


def shown_names(paths: Iterable[bytes], maximum: int = 3) -> str:
    """The first few paths in one line, and how many more there are."""
    return few_text(list(paths), maximum, readable_path)
