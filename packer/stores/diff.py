"""What differs between two stores: samples by their keys, and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from packer.progress import counting
from packer.stores.keys import key_text, store_keys
from packer.stores.sample_compare import counts_names, differing_fields
from packer.wording import Summarized, count_text
from readers.store.errors import CodecError, ImageError
from readers.store.reader import StoreReader, open_store
from readers.store.record import RecordReader
from readers.store.wording import few

_KEYS_SHOWN_MAX = 20


@dataclass(frozen=True, kw_only=True)
class DiffReport(Summarized):
    """What differs between two stores.

    Attributes:
        a: One store.
        b: The other.
        same_count: Samples that are the same in both.
        added: Keys of samples that only `b` has, in its order.
        removed: Keys of samples that only `a` has, in its order.
        changed: Key of a sample in both -> its fields that differ.
        settings: What the manifests say otherwise: name -> its value in `a` and in `b`.
    """

    a: str
    b: str
    same_count: int
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: dict[str, list[str]] = field(default_factory=dict)
    settings: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not (self.added or self.removed or self.changed or self.settings)

    def as_dict(self) -> dict[str, Any]:
        """The report by name, as `--json` prints it."""
        return {**asdict(self), "is_same": self.is_same}

    def summary(self) -> str:
        """The differences, some of each kind by name, and how many of each there are."""
        lines = [f"{name}: {a!r} -> {b!r}" for name, (a, b) in self.settings.items()]
        changed = [f"{key}: {', '.join(names)}" for key, names in self.changed.items()]
        for sign, what, found in (
            ("-", "removed", self.removed),
            ("+", "added", self.added),
            ("~", "changed", changed),
        ):
            shown = few(found, _KEYS_SHOWN_MAX, what=f" {what}")
            lines += [f"{sign} {line}" for line in shown]
        lines.append(
            f"{self.a} -> {self.b}: {len(self.removed):,} removed, {len(self.added):,} added, "
            f"{len(self.changed):,} changed, {count_text(self.same_count, 'sample')} the same; "
            f"{count_text(len(self.settings), 'setting')} differ"
        )
        return "\n".join(lines)


def diff(
    a: str | Path,
    b: str | Path,
    *,
    progress: bool | None = None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> DiffReport:
    """Compare two stores: which samples only one has, which differ in what, and the settings.

    Samples are told by their keys, and are the same when length and checksum of their records are:
    the pixels of samples that are the same are not read. Others are compared field by field, with
    labels and masks by the names of their numbers. Order and shards do not count.

    Args:
        a: One store.
        b: The other.
        progress: Say on stderr how far the work is: a bar on a terminal or in a notebook, else a
            line every 30 s. None does so in a notebook alone.
        on_progress: Told how many more samples of `b` are done.

    Raises:
        StoreError: A store cannot be read, or its samples have no keys.
    """
    ours, theirs = open_store(a), open_store(b)
    places = {key: index for index, key in enumerate(store_keys(ours))}
    compare = _Comparison(ours, theirs)
    added: list[str] = []
    changed: dict[str, list[str]] = {}
    same_count = 0
    with counting(theirs.manifest.sample_count, on_progress, progress=progress) as told:
        for index, key in enumerate(store_keys(theirs)):
            place = places.pop(key, None)
            told(1)
            if place is None:
                added.append(key_text(key))
                continue
            names = compare.differing(place, index)
            if names:
                changed[key_text(key)] = names
            else:
                same_count += 1
    return DiffReport(
        a=str(a),
        b=str(b),
        same_count=same_count,
        added=added,
        removed=[key_text(key) for key in places],
        changed=changed,
        settings=_settings(ours, theirs),
    )


class _Comparison:
    """Compares a sample of one store with one of another."""

    def __init__(self, a: StoreReader, b: StoreReader) -> None:
        self._a, self._b = a, b
        self._schemas = a.manifest.schema, b.manifest.schema
        common = [name for name in self._schemas[0].names if name in self._schemas[1]]
        self._readers = RecordReader(a.layout, common), RecordReader(b.layout, common)
        without_names = [
            [msgspec.structs.replace(field, names=None) for field in schema.fields]
            for schema in self._schemas
        ]
        # Records of such two layouts that are the same bytes hold the same values but for these.
        self._is_one_layout = without_names[0] == without_names[1]
        renamed = [
            field.name
            for field in self._schemas[0].fields
            if field.name in common
            and counts_names(field)
            and field.names != self._schemas[1][field.name].names
        ]
        self._renamed_readers = (
            (RecordReader(a.layout, renamed), RecordReader(b.layout, renamed)) if renamed else None
        )

    def differing(self, index_a: int, index_b: int) -> list[str]:
        """Names of the fields that differ."""
        (shard_a, at_a), (shard_b, at_b) = self._a.locate(index_a), self._b.locate(index_b)
        readers: tuple[RecordReader, RecordReader] | None = self._readers
        if (
            self._is_one_layout
            and shard_a.lengths[at_a] == shard_b.lengths[at_b]
            and shard_a.checksums[at_a] == shard_b.checksums[at_b]
        ):
            readers = self._renamed_readers
        if readers is None:
            return []
        try:
            values_a = readers[0].unpack(shard_a.record(at_a))
            values_b = readers[1].unpack(shard_b.record(at_b))
        except (CodecError, ImageError) as error:
            return [f"a record that cannot be decoded ({error})"]
        return differing_fields(values_a, values_b, *self._schemas)


def _settings(a: StoreReader, b: StoreReader) -> dict[str, tuple[Any, Any]]:
    """What the manifests say otherwise, but for what follows from the samples."""
    ours, theirs = _settings_of(a), _settings_of(b)
    return {
        name: (ours.get(name), theirs.get(name))
        for name in dict.fromkeys((*ours, *theirs))
        if ours.get(name) != theirs.get(name)
    }


def _settings_of(store: StoreReader) -> dict[str, Any]:
    manifest = store.manifest
    source = manifest.source
    return {
        "format": f"{manifest.format.major}.{manifest.format.minor}",
        **{f"field {f.name}": msgspec.to_builtins(f) for f in manifest.schema.fields},
        "classes": list(manifest.classes),
        "splits": list(manifest.splits),
        **{f"recipe {name}": value for name, value in manifest.recipe.items()},
        "source": source.format,
        **{f"choice {name}": value for name, value in source.choices.items()},
        **{f"option {name}": value for name, value in source.options.items()},
        **{f"version of {name}": value for name, value in manifest.versions.items()},
    }
