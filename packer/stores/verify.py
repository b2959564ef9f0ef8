"""Is a store what was written? Digests, checksums, LMDB's own answers, fields, the raw data."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from packer.progress import counting
from packer.stores.against import compare_with_raw
from packer.stores.keys import KEY_FIELD, key_bytes
from packer.stores.lmdb_children import LmdbChildren
from packer.threads import map_threads
from packer.wording import Summarized, count_text
from readers.machine import core_count
from readers.store.codecs import little
from readers.store.errors import StoreError
from readers.store.layout import MANIFEST_NAME, REJECTS_NAME
from readers.store.manifest import digest_problem, read_manifest_bytes
from readers.store.place import Place, Url
from readers.store.reader import StoreReader, open_store
from readers.store.record import RecordLayout, RecordReader
from readers.store.record_bytes import Wanted
from readers.store.rejects import item_count, read_rejects
from readers.store.shard import file_sha256
from readers.store.shard_reader import ShardReader

Level = Literal["quick", "records", "full"]

_SAMPLES_AT_ONCE = 1024
"""Samples that a thread takes: enough to hide what handing over costs, little beside a shard."""

_FAR_SAMPLES_AT_ONCE = 64
_FAR_BYTES_AT_ONCE = 64 * 2**20
"""The same of a store at a URL, and bytes of a file there: they take memory of their own."""

_LINES_SHOWN_MAX = 1000


@dataclass(frozen=True, kw_only=True)
class DamagedSample:
    """One sample that is not what was written.

    Attributes:
        index: Its position in the store.
        key: Its text key; None when that cannot be told any more.
        shard: Name of its shard's file.
        position: Its position in the shard.
        reason: What is wrong.
    """

    index: int
    key: str | None
    shard: str
    position: int
    reason: str

    def line(self) -> str:
        """For a person."""
        name = f"sample {self.index}" + (f", key {self.key!r}" if self.key is not None else "")
        return f"{name}: {self.shard}, sample {self.position} of the shard: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class VerifyReport(Summarized):
    """What was looked at, and everything that is wrong.

    Attributes:
        path: The store.
        level: How closely it was looked at.
        sample_count: Samples that the store says it has.
        shard_count: Shards likewise.
        problems: A line for each thing that is wrong; empty for a good store.
        damaged: The samples among them.
        raw: The raw data that it was held against, if it was.
        added: Keys of raw items that are not in the store.
        removed: Keys of samples whose raw items are gone.
        changed: Key of a sample -> how its raw item is another than it was.
        notes: What to know in reading this.
    """

    path: str
    level: Level
    sample_count: int
    shard_count: int
    problems: list[str]
    damaged: list[DamagedSample] = field(default_factory=list)
    raw: str | None = None
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """The report by name, as `--json` prints it."""
        return {**asdict(self), "is_good": self.is_good}

    def summary(self) -> str:
        """The problems, or one line that says there are none."""
        samples = count_text(self.sample_count, "sample")
        what = f"{self.path}: {samples} in {count_text(self.shard_count, 'shard')}"
        if self.is_good:
            looked = {
                "quick": "index and sizes good; the samples were not read",
                "records": "all good",
                "full": "all good, every field decoded",
            }[self.level]
            return "\n".join([*self.notes, f"{what}: {looked}" + self._raw_text()])
        lines = self.problems[:_LINES_SHOWN_MAX]
        if len(self.problems) > _LINES_SHOWN_MAX:
            lines.append(f"and {len(self.problems) - _LINES_SHOWN_MAX:,} more; --json has them all")
        problems = count_text(len(self.problems), "problem")
        return "\n".join([*self.notes, *lines, f"{what}: {problems}"])

    def _raw_text(self) -> str:
        return "" if self.raw is None else f"; it matches {self.raw}"


def verify(
    path: str | Place,
    *,
    level: Level = "records",
    against: str | Path | None = None,
    root: Path | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> VerifyReport:
    """Check a store, and name everything that is wrong with it.

    The files are never given to LMDB in this process, which a crafted one would end.

    Of a store at a URL every byte is read once, where all is well: each record is looked at only
    where the digest of its shard is wrong, or under "full". LMDB, which needs files, is not asked.

    Args:
        path: The store: a folder, or a URL.
        level: "quick" reads manifest and index: the manifest's digest, sizes, identities and ranges
            of numbers. "records" also reads every byte: the digest of each file, the checksum of
            each record, and the index against the records and against LMDB's own look-ups. "full"
            also decodes every field of every sample, and looks every key up.
        against: Raw data that the store is to match; see `packer.stores.against`. Under "quick"
            it is scanned, else each item is prepared again.
        root: Folder that the paths are relative to, where the raw data is a list that was built
            with one.
        workers: Threads. None takes the cores of this job.
        progress: Say on stderr how far the work is: a bar on a terminal or in a notebook, else a
            line every 30 s. None does so in a notebook alone.
        on_progress: Told how many more samples are done; of raw data likewise.

    Raises:
        ValueError: An argument is out of its range.
        StoreError: There is no store, or its manifest cannot be read.
        SourceError: The raw data is not there or of no known layout.
    """
    if level not in get_args(Level):
        raise ValueError(f"level must be one of {', '.join(get_args(Level))}; got {level!r}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers!r}")
    store = open_store(path, checks_files=False)  # Each that is missing is a finding.
    total = store.manifest.sample_count * (1 if against is None else 2)
    with counting(total, on_progress, progress=progress) as told:
        one_at_a_time, threads = _one_at_a_time(told), workers or core_count()
        report, is_readable = _checked(store, str(path), level, threads, one_at_a_time)
        if against is None:
            return report
        if not is_readable:
            text = f"{against}: not compared, because not all shards can be opened"
            report.problems.append(text)
            return report
        return _held_against(store, report, against, root, threads, one_at_a_time)


def _checked(
    store: StoreReader,
    path: str,
    level: Level,
    threads: int,
    on_progress: Callable[[int], None],
) -> tuple[VerifyReport, bool]:
    """What is wrong with a store in itself, and whether all its shards can be opened."""
    manifest = store.manifest
    problems = list(_digest_problems(store))
    damaged: list[DamagedSample] = []

    unusable = dict(enumerate(map_threads(_opening(store), _numbers(store), threads)))
    if level == "quick":
        problems += [problem for problem in unusable.values() if problem is not None]
        on_progress(manifest.sample_count)
    else:
        with LmdbChildren(store) as children:
            check = _Check(store, level, children, unusable, on_progress)
            for jobs in (_jobs(store, level), _second_jobs(check)):
                for found, samples in map_threads(check.run, jobs, threads, children.stop):
                    problems += [*found, *(sample.line() for sample in samples)]
                    damaged += samples
    problems += _count_problems(store, is_readable=not any(unusable.values()))
    report = VerifyReport(
        path=path,
        level=level,
        sample_count=manifest.sample_count,
        shard_count=len(manifest.shards),
        problems=problems,
        damaged=damaged,
    )
    return report, not any(unusable.values())


def _held_against(
    store: StoreReader,
    report: VerifyReport,
    raw: str | Path,
    root: Path | None,
    threads: int,
    on_progress: Callable[[int], None],
) -> VerifyReport:
    comparison = compare_with_raw(
        store,
        raw,
        root=root,
        reads_content=report.level != "quick",
        thread_count=threads,
        on_progress=on_progress,
    )
    return VerifyReport(
        path=report.path,
        level=report.level,
        sample_count=report.sample_count,
        shard_count=report.shard_count,
        problems=[*report.problems, *comparison.problems()],
        damaged=report.damaged,
        raw=comparison.raw,
        added=comparison.added,
        removed=comparison.removed,
        changed=comparison.changed,
        notes=comparison.notes,
    )


def _one_at_a_time(on_progress: Callable[[int], None]) -> Callable[[int], None]:
    """A progress function that several threads may call."""
    lock = threading.Lock()

    def tell(count: int) -> None:
        with lock:
            on_progress(count)

    return tell


def _numbers(store: StoreReader) -> range:
    return range(len(store.manifest.shards))


def _digest_problems(store: StoreReader) -> Iterator[str]:
    """Whether the manifest's file is the one that was written."""
    place = store.path / MANIFEST_NAME
    problem = digest_problem(read_manifest_bytes(store.path))
    if problem is not None:
        yield f"{place}: {problem}. It was changed after it was written; copy the store again."


def _opening(store: StoreReader) -> Callable[[int], str | None]:
    """A function that opens a shard and says why it cannot be."""

    def problem(number: int) -> str | None:
        try:
            store.shard(number)
        except StoreError as error:
            return str(error)
        return None

    return problem


@dataclass(frozen=True)
class _Job:
    """What a thread does at a time.

    Attributes:
        number: The shard.
        part: "file" for its digest, "lmdb" for LMDB's look-ups, or positions of samples.
    """

    number: int
    part: Literal["file", "lmdb"] | range


def _is_far(store: StoreReader) -> bool:
    return isinstance(store.path, Url)


def _jobs(store: StoreReader, level: Level) -> Iterator[_Job]:
    for number in _numbers(store):
        yield _Job(number, "file")
        if not _is_far(store):
            yield _Job(number, "lmdb")
        if level == "full" or not _is_far(store):
            yield from _record_jobs(store, number)


def _second_jobs(check: _Check) -> Iterator[_Job]:
    """Of a store at a URL, records of the shards whose digest was wrong."""
    for number in sorted(check.suspects):
        yield from _record_jobs(check.store, number)


def _record_jobs(store: StoreReader, number: int) -> Iterator[_Job]:
    count = store.manifest.shards[number].sample_count
    step = _FAR_SAMPLES_AT_ONCE if _is_far(store) else _SAMPLES_AT_ONCE
    for first in range(0, count, step):
        yield _Job(number, range(first, min(first + step, count)))


class _Check:
    """Does the jobs of a check that reads the shards. Several threads may use it.

    Attributes:
        store: The store.
        suspects: Shards at a URL whose digest was wrong, and whose records are yet to be read.
    """

    def __init__(
        self,
        store: StoreReader,
        level: Level,
        children: LmdbChildren,
        unusable: dict[int, str | None],
        on_progress: Callable[[int], None],
    ) -> None:
        self.store = store
        self.suspects: set[int] = set()
        self._waits_for_digests = _is_far(store) and level != "full"
        self._decodes = level == "full"
        self._children = children
        self._unusable = unusable
        self._on_progress = on_progress
        self._headers = _header_dtype(store.layout)
        self._reader = RecordReader(store.layout)
        schema = store.manifest.schema
        has_key = KEY_FIELD in schema and schema[KEY_FIELD].kind == "text"
        self._key_reader = RecordReader(store.layout, [KEY_FIELD]) if has_key else None

    def run(self, job: _Job) -> tuple[list[str], list[DamagedSample]]:
        """What is wrong with a shard, and with samples of it."""
        problem = self._unusable[job.number]
        if problem is not None:
            if isinstance(job.part, range):
                self._on_progress(len(job.part))
            elif self._waits_for_digests:
                self._on_progress(self.store.manifest.shards[job.number].sample_count)
            return [problem] if job.part == "file" else [], []
        if job.part == "file":
            wrong = self._file_problem(job.number)
            if self._waits_for_digests and job.number not in self.suspects:
                self._on_progress(self.store.manifest.shards[job.number].sample_count)
            return [] if wrong is None else [wrong], []
        if job.part == "lmdb":
            wrong = self._children.problem(job.number)
            return [] if wrong is None else [wrong], []
        found: list[str] = []
        samples: list[DamagedSample] = []
        try:
            samples = self._damaged(job.number, job.part)
        except StoreError as error:  # Nothing of them is known.
            found.append(str(error))
        self._on_progress(len(job.part))
        return found, samples

    def _file_problem(self, number: int) -> str | None:
        info = self.store.manifest.shards[number]
        path = self.store.path / info.file
        try:
            digest = _far_sha256(self.store, number) if isinstance(path, Url) else file_sha256(path)
        except StoreError as error:
            return str(error)
        if digest == info.sha256:
            return None
        if self._waits_for_digests:
            self.suspects.add(number)
        return (
            f"{path}: SHA-256 {digest[:16]}..., expected {info.sha256[:16]}.... The file "
            "changed after it was built; copy it again."
        )

    def _damaged(self, number: int, positions: range) -> list[DamagedSample]:
        shard = self.store.shard(number)
        records = self._records(shard, number, positions)
        reasons: dict[int, str] = {}
        for position in positions:
            try:
                shard.check_record(position, records[position])
                if self._decodes:
                    self._decode(shard, position, records[position])
            except StoreError as error:
                reasons[position] = _without_place(error, shard, position)
        whole = [position for position in positions if position not in reasons]
        reasons.update(self._index_differences(shard, {at: records[at] for at in whole}))
        first = int(self.store.first_samples[number])
        return [
            DamagedSample(
                index=first + position,
                key=self._key(shard, position),
                shard=str(shard.path),
                position=position,
                reason=reasons[position],
            )
            for position in sorted(reasons)
        ]

    def _records(
        self, shard: ShardReader, number: int, positions: range
    ) -> Mapping[int, memoryview]:
        """Records by position; from a URL by many reads at once."""
        if not _is_far(self.store):
            return {position: shard.record(position) for position in positions}
        first = int(self.store.first_samples[number])
        wanted = self.store.located(np.arange(positions.start, positions.stop) + first).records()
        (pieces,) = self.store.bytes.fetch([wanted])
        memory = memoryview(pieces.memory)  # type: ignore[arg-type]
        spans = zip(pieces.starts.tolist(), shard.lengths[list(positions)].tolist(), strict=True)
        return {
            position: memory[start : start + length]
            for position, (start, length) in zip(positions, spans, strict=True)
        }

    def _decode(self, shard: ShardReader, position: int, record: memoryview) -> None:
        """Decode every field, and look the key up. Raises StoreError."""
        values = self._reader.unpack(record)
        if self._key_reader is None:
            return
        found = shard.find(key_bytes(values[KEY_FIELD]))
        if found != position:
            raise StoreError(f"its key {values[KEY_FIELD]!r} leads to sample {found} of the shard")

    def _index_differences(
        self, shard: ShardReader, records: Mapping[int, memoryview]
    ) -> Iterator[tuple[int, str]]:
        """What the index says otherwise than the headers of records that are whole."""
        positions = list(records)
        byte_count = self.store.layout.header.size
        data = b"".join(record[:byte_count] for record in records.values())
        headers = np.frombuffer(data, self._headers)
        for item in self.store.layout.columns:
            said = shard.columns[item.name][positions]
            found = np.ascontiguousarray(headers[item.name])
            # Bit by bit: a NaN is the same as itself.
            bits = f"u{said.dtype.itemsize}"
            for at in np.flatnonzero(said.view(bits) != found.view(bits)).tolist():
                yield (
                    positions[at],
                    f"its record has {item.name} {found[at]}, the index says {said[at]}",
                )

    def _key(self, shard: ShardReader, position: int) -> str | None:
        """The key of a damaged sample, when it still leads here."""
        if self._key_reader is None:
            return None
        try:
            key: str = self._key_reader.unpack(shard.record(position))[KEY_FIELD]
            return key if shard.find(key_bytes(key)) == position else None
        except StoreError:
            return None


def _far_sha256(store: StoreReader, number: int) -> str:
    """SHA-256 of a shard at a URL, by many reads at once. Raises ShardError."""
    digest, size = hashlib.sha256(), store.manifest.shards[number].bytes
    for first in range(0, size, _FAR_BYTES_AT_ONCE):
        wanted = Wanted(
            shards=np.array([number]),
            offsets=np.array([first]),
            lengths=min(_FAR_BYTES_AT_ONCE, size - first),
        )
        digest.update(memoryview(store.bytes.fetch([wanted])[0].memory))  # type: ignore[arg-type]
    return digest.hexdigest()


def _without_place(error: StoreError, shard: ShardReader, position: int) -> str:
    """An error's text without the place, which is told once."""
    return str(error).removeprefix(f"{shard.path}, sample {position} of the shard: ")


def _header_dtype(layout: RecordLayout) -> np.dtype[Any]:
    """A record's header as numpy reads it."""
    kinds = [little(item.dtype) for item in layout.items]
    offsets = np.cumsum([0, *(kind.itemsize for kind in kinds)])[:-1].tolist()
    return np.dtype(
        {
            "names": [item.name for item in layout.items],
            "formats": kinds,
            "offsets": offsets,
            "itemsize": layout.header.size,
        }
    )


def _count_problems(store: StoreReader, *, is_readable: bool) -> Iterator[str]:
    """What the manifest says twice, or says of the index and the reject list."""
    manifest, place = store.manifest, store.path / MANIFEST_NAME
    schema = manifest.schema
    names = [name for name in ("label", "split") if name in schema and schema[name].is_scalar]
    counts: dict[str, list[int]] = {}
    if is_readable and manifest.shards:
        for name in names:
            values = np.concatenate([shard.columns[name] for shard in store.shards()])
            if schema[name].names is not None:
                counts[name] = np.bincount(values, minlength=len(schema[name].names or ())).tolist()
    if "label" in counts:
        said = manifest.statistics.get("class_counts")
        if said != counts["label"]:
            yield f"{place}: class_counts {said}, but the labels count {counts['label']}"
        if manifest.classes != schema["label"].names:
            yield f"{place}: its classes are not the names of the field 'label'"
    if "split" in counts:
        expected = dict(zip(schema["split"].names or (), counts["split"], strict=True))
        if list(manifest.splits.items()) != list(expected.items()):
            yield f"{place}: splits {manifest.splits}, but the samples count {expected}"
    source = manifest.source
    accounted = manifest.sample_count + source.reject_count + sum(source.ignored.values())
    if source.found_count != accounted:
        yield f"{place}: found_count {source.found_count}, but {accounted} are accounted for"
    try:
        # A line may also be about an annotation of a sample, or a part of one.
        listed = item_count(read_rejects(store.path))
    except StoreError as error:
        yield str(error)
        return
    if listed != source.reject_count:
        yield (
            f"{store.path / REJECTS_NAME}: {listed} raw items, but the manifest says "
            f"{source.reject_count} rejects"
        )
