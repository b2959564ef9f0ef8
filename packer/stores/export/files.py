"""The files of an export while it is written, and an account of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from packer.stores.export.parts import PartReport
from readers.store.manifest import write_synced


class ExportFiles:
    """Takes the files of one part.

    Args:
        root: Folder of the export.

    Attributes:
        report: What was written and lost so far.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.fsencode(root)
        self._folders: set[bytes] = set()
        self._pieces: dict[str, list[bytes]] = {}
        self.report = PartReport()

    def path(self, path: bytes) -> bytes:
        """Where a file is to be written, in a folder that is there.

        Args:
            path: Relative to the export.
        """
        folder, _, _ = path.rpartition(b"/")
        self.folder(folder)
        return os.path.join(self._root, path)

    def folder(self, path: bytes) -> None:
        """Make a folder."""
        if path not in self._folders:
            os.makedirs(os.path.join(self._root, path), exist_ok=True)
            self._folders.add(path)

    def write(self, path: bytes, data: bytes) -> None:
        """Write a file."""
        with open(self.path(path), "wb") as stream:
            stream.write(data)
        self.report.files.append((path, len(data)))

    def add(self, path: bytes) -> None:
        """Take note of a file that was written at `path`."""
        self.report.files.append((path, os.path.getsize(os.path.join(self._root, path))))

    def write_parts(self, path: str, data: Iterable[bytes]) -> None:
        """Write a file whose bytes come in parts, and make it last."""
        write_synced(Path(os.fsdecode(self.path(os.fsencode(path)))), data)

    def lose(self, what: str, count: int = 1) -> None:
        """Count what the layout cannot carry."""
        if count:
            self.report.lost[what] = self.report.lost.get(what, 0) + count

    def keep(self, name: str, data: bytes) -> None:
        """Keep a part of a file that is put together at the end."""
        self._pieces.setdefault(name, []).append(data)

    def done(self, sample_count: int) -> PartReport:
        """The report of a part of so many samples, all of whose files are written."""
        self.report.sample_count = sample_count
        self.report.pieces = {name: b"".join(data) for name, data in self._pieces.items()}
        return self.report


def is_there(root: Path, report: PartReport) -> bool:
    """Whether the files of a part are all there, as large as they were written.

    After a power cut, names may be there without their bytes.
    """
    folder = os.fsencode(root)
    try:
        return all(os.path.getsize(os.path.join(folder, p)) == size for p, size in report.files)
    except FileNotFoundError:
        return False
