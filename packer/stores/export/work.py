"""Makes the parts of an export, in threads, each unless a call before has made it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from packer.errors import BuildError
from packer.stores.export.files import ExportFiles, is_there
from packer.stores.export.job import Job
from packer.stores.export.parts import Part, PartReport
from packer.stores.export.samples import Sample, SampleReader
from packer.stores.export.writer import Writer
from packer.workspace.folder import Workspace
from packer.workspace.place import write_apart


class PartReports(Iterable[PartReport]):
    """The reports of all parts, read anew each time: together they may be large."""

    def __init__(self, workspace: Workspace, count: int) -> None:
        self._workspace, self._count = workspace, count

    def __iter__(self) -> Iterator[PartReport]:
        for number in range(self._count):
            report = _read_report(self._workspace, number)
            assert report is not None
            yield report


def _report_path(workspace: Workspace, number: int) -> Path:
    return workspace.folder / "reports" / f"{number:05d}"


def _read_report(workspace: Workspace, number: int) -> PartReport | None:
    try:
        data = _report_path(workspace, number).read_bytes()
        return msgspec.msgpack.decode(data, type=PartReport)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


class ExportWork:
    """Makes parts. Several threads may use it, each for a part of its own."""

    def __init__(
        self,
        workspace: Workspace,
        job: Job,
        writer: Writer,
        on_progress: Callable[[int], None],
    ) -> None:
        self._workspace = workspace
        self._samples = SampleReader(job, writer)
        self._writer = writer
        self._on_progress = on_progress
        self._is_stopped = threading.Event()

    def stop(self) -> None:
        """Have the parts that are being made given up."""
        self._is_stopped.set()

    def make(self, part: Part) -> None:
        """Make a part, unless it is there already."""
        done = _read_report(self._workspace, part.number)
        if done is not None and is_there(self._workspace.store, done):
            self._on_progress(done.sample_count)
            return
        out = ExportFiles(self._workspace.store)
        samples = self._samples.read(part, out)
        self._writer.write(part, (self._told(sample) for sample in samples), out)
        report = msgspec.msgpack.encode(out.done(len(part.rows)))
        write_apart(_report_path(self._workspace, part.number), report)

    def _told(self, sample: Sample) -> Sample:
        if self._is_stopped.is_set():
            raise BuildError("stopped")  # Nobody asks for the result any more.
        self._on_progress(1)
        return sample
