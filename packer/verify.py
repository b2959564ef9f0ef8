"""Is a store what was written? Digests, checksums, LMDB's own answers, every field decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from packer.wording import count_text
from readers.machine import core_count
from readers.store.errors import ChecksumError, CodecError, ImageError, StoreError
from readers.store.layout import FORMAT_MINOR, MANIFEST_NAME, REJECTS_NAME
from readers.store.manifest import manifest_bytes
from readers.store.reader import StoreReader, open_store
from readers.store.record import RecordReader
from readers.store.shard import check_against_lmdb, file_sha256


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """What was looked at, and everything that is wrong.

    Attributes:
        path: The store.
        sample_count: Samples that the store says it has.
        shard_count: Shards likewise.
        problems: A line for each thing that is wrong; empty for a good store.
    """

    path: str
    sample_count: int
    shard_count: int
    problems: list[str]

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
            return f"{what}: all good"
        return "\n".join([*self.problems, f"{what}: {count_text(len(self.problems), 'problem')}"])


def verify(
    path: str | Path, *, on_progress: Callable[[int], None] = lambda count: None
) -> VerifyReport:
    """Check every byte of a store: file digests, record checksums, index and keys, every field.

    The manifest has no digest of its own. Its form, schema, shards, counts and class names are
    held against the shards and the reject list; its recipe, notes and versions cannot be.

    Args:
        path: The store.
        on_progress: Told how many more samples are done.

    Raises:
        StoreError: There is no store, or its manifest cannot be read.
    """
    store = open_store(path)

    def check(number: int) -> list[str]:
        problems = list(_shard_problems(store, number))
        on_progress(store.manifest.shards[number].sample_count)
        return problems

    # Hashing, checksums and decoding all let go of the interpreter lock.
    with ThreadPoolExecutor(core_count()) as pool:
        found = list(pool.map(check, range(len(store.manifest.shards))))
    return VerifyReport(
        path=str(path),
        sample_count=store.manifest.sample_count,
        shard_count=len(store.manifest.shards),
        problems=[
            *(problem for problems in found for problem in problems),
            *_manifest_problems(store),
        ],
    )


def _manifest_problems(store: StoreReader) -> Iterator[str]:
    """What the manifest says twice, or says of the shards and the reject list."""
    manifest, place = store.manifest, store.path / MANIFEST_NAME
    # One of a newer minor version may hold keys that this release does not know.
    if manifest.format.minor <= FORMAT_MINOR and place.read_bytes() != manifest_bytes(manifest):
        yield f"{place}: it was changed after it was written; copy the store again."
    try:
        counts = {
            name: np.bincount(
                np.concatenate([shard.columns[name] for shard in store.shards()]),
                minlength=len(manifest.schema[name].names or ()),
            ).tolist()
            for name in ("label", "split")
            if name in manifest.schema and store.manifest.shards
        }
    except StoreError:
        counts = {}  # A damaged shard is a problem of its own.
    if "label" in counts:
        said = manifest.statistics.get("class_counts")
        if said != counts["label"]:
            yield f"{place}: class_counts {said}, but the labels count {counts['label']}"
        if manifest.classes != manifest.schema["label"].names:
            yield f"{place}: its classes are not the names of the field 'label'"
    if "split" in counts:
        names = manifest.schema["split"].names or ()
        expected = dict(zip(names, counts["split"], strict=True))
        if list(manifest.splits.items()) != list(expected.items()):
            yield f"{place}: splits {manifest.splits}, but the samples count {expected}"
    source = manifest.source
    accounted = manifest.sample_count + source.reject_count + sum(source.ignored.values())
    if source.found_count != accounted:
        yield f"{place}: found_count {source.found_count}, but {accounted} are accounted for"
    rejects = store.path / REJECTS_NAME
    try:
        line_count = len(rejects.read_bytes().splitlines())
    except OSError as error:
        yield f"{rejects}: {error.strerror}; copy the store again."
        return
    if line_count != source.reject_count:
        yield f"{rejects}: {line_count} lines, but the manifest says {source.reject_count} rejects"


def _shard_problems(store: StoreReader, number: int) -> list[str]:
    info = store.manifest.shards[number]
    path = store.path / info.file
    try:
        shard = store.shard(number)
    except StoreError as error:
        return [str(error)]
    problems = []
    digest = file_sha256(path)
    if digest != info.sha256:
        problems.append(
            f"{path}: SHA-256 {digest[:16]}..., expected {info.sha256[:16]}.... The file changed "
            "after it was built; copy it again."
        )
    try:
        check_against_lmdb(path, shard)
    except StoreError as error:
        problems.append(str(error))
    reader = RecordReader(store.layout)
    first = store.first_samples[number]
    for position in range(info.sample_count):
        try:
            shard.check_record(position)
            reader.unpack(shard.record(position))
        except ChecksumError as error:
            problems.append(f"sample {first + position}: {error}")
        except (CodecError, ImageError) as error:
            problems.append(f"sample {first + position}: {path}, sample {position}: {error}")
    return problems
