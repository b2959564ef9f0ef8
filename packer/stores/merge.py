"""Several stores become one: one behind the other, names of classes brought together."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from packer.counts import summed_counts
from packer.errors import BuildError
from packer.progress import counting
from packer.stores.keys import key_bytes, key_reader, key_text, store_keys
from packer.stores.merged_facts import merged_choices, merged_recipe, merged_statistics
from packer.stores.repack import Part, RepackReport, repack
from packer.stores.rewrite import Rewriter
from packer.stores.sample_compare import counts_names, positions_in
from packer.wording import names_text
from packer.workspace.folder import TaskReport
from readers.machine import core_count
from readers.store.errors import SchemaMismatchError, StoreError
from readers.store.manifest import (
    FormatVersion,
    Manifest,
    ShardInfo,
    SourceInfo,
    manifest_bytes,
)
from readers.store.reader import StoreReader, open_store
from readers.store.rejects import RejectLine, read_rejects, rejects_bytes
from readers.store.schema import Field, Schema
from readers.store.wording import few

MERGE_FORMAT = "merge"
"""What the manifest of a merged store has for the name of a source."""

_KEYS_SHOWN_MAX = 20


def merge(
    stores: Sequence[str | Path],
    out: str | Path,
    *,
    prefixes: Sequence[str] | None = None,
    same_classes: bool = False,
    overwrite: bool = False,
    links: bool = False,
    scratch: str | Path | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> RepackReport:
    """Make one store of several, without decoding or encoding a sample.

    Samples come one store after the other. The stores must have the same fields. Where their names
    differ (classes, splits, labels, ids of masks), the new ones of each store are put behind those
    of the stores before it, and the numbers in its records follow.

    A shard of which nothing changes is kept as it is, under a new name: its blocks are shared where
    the file system can, else copied. Other shards are written anew, one for one.

    Args:
        stores: At least two stores.
        out: Where the store is to be.
        prefixes: What the keys of each store are to begin with. Without, a key may be in one store
            alone.
        same_classes: Refuse stores whose names differ, in any way or in order.
        overwrite: Replace a store at `out`, in one step once the new one is whole.
        links: Keep shards as hard links, which takes no room and needs one file system. The stores
            then share files: damage to one is damage to the other.
        scratch: Folder on a local disk to write shards in; see `packer.workspace.scratch`.
        workers: Threads. None takes the cores of this job.
        progress: Say on stderr how far the work is: a bar on a terminal or in a notebook, else a
            line every 30 s. None does so in a notebook alone.
        on_progress: Told how many more samples are done.

    Raises:
        ValueError: An argument is out of its range.
        StoreError: A store cannot be read, has other fields, or a key that another one has.
        BuildError: The store cannot be written; see `packer.stores.repack`.
    """
    if len(stores) < 2:
        raise ValueError(f"stores must be at least two; got {len(stores)}")
    if prefixes is not None and len(prefixes) != len(stores):
        raise ValueError(f"prefixes must be one for each of {len(stores)} stores; got {prefixes!r}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers!r}")
    out = Path(os.path.abspath(out))
    opened = [open_store(path) for path in stores]
    check_apart(out, opened)
    starts = [key_bytes(prefix) for prefix in prefixes or [""] * len(opened)]
    schema = _merged_schema(opened, same_classes=same_classes)
    for store, start in zip(opened, starts, strict=True):
        if start:
            key_reader(store)  # Raises where there is no key to put it before.
    _check_keys(opened, starts)
    joined = [
        _Joined(store, start, _tables(store.manifest.schema, schema))
        for store, start in zip(opened, starts, strict=True)
    ]
    parts = [part for each in joined for part in each.parts(schema)]
    facts = {
        "format": MERGE_FORMAT,
        "stores": [manifest_sha256(store) for store in opened],
        "prefixes": list(prefixes or []),
        "schema": schema.as_builtins(),
    }
    total = sum(store.manifest.sample_count for store in opened)
    with counting(total, on_progress, progress=progress) as told:
        return repack(
            out,
            parts,
            schema,
            facts,
            lambda reports: _manifest(joined, schema, reports),
            rejects_bytes(line for each in joined for line in each.rejects()),
            overwrite=overwrite,
            links=links,
            scratch=scratch,
            thread_count=workers or core_count(),
            on_progress=told,
        )


def check_apart(out: Path, stores: Iterable[StoreReader]) -> None:
    """See that a store is not written over one that it is made of. Raises BuildError."""
    for store in stores:
        folder = Path(os.path.realpath(store.folder))
        target = Path(os.path.realpath(out))
        if folder == target or folder in target.parents:
            raise BuildError(
                f"{out}: it is, or lies in, {store.path}, which it is to be made of. Write to "
                "another path."
            )


def manifest_sha256(store: StoreReader) -> str:
    """What tells a store from any other, in hex: its manifest names its content by digests."""
    return hashlib.sha256(manifest_bytes(store.manifest)).hexdigest()


# --- what must fit together -----------------------------------------------------------------------


def _merged_schema(stores: Sequence[StoreReader], *, same_classes: bool) -> Schema:
    """The schema of all: that of the first, with the names of all."""
    first = stores[0].manifest.schema
    fields = list(first.fields)
    for store in stores:
        _check_names(store)
    for store in stores[1:]:
        schema = store.manifest.schema
        if schema.names != first.names:
            raise SchemaMismatchError(
                f"{store.path}: its fields are {', '.join(schema.names)}; those of "
                f"{stores[0].path} are {', '.join(first.names)}. Stores that are merged have the "
                "same fields in the same order: build them from raw data of one kind."
            )
        for at, field in enumerate(schema.fields):
            ours = fields[at]
            if msgspec.structs.replace(field, names=ours.names) != ours:
                raise SchemaMismatchError(
                    f"{store.path}: its field {field.name!r} is {_described(field)}; in "
                    f"{stores[0].path} it is {_described(ours)}. Build both with one recipe."
                )
            if field.names != ours.names:
                if same_classes:
                    raise SchemaMismatchError(
                        f"{store.path}: the names of its field {field.name!r} are "
                        f"{names_text(field.names or ())}; in {stores[0].path} they are "
                        f"{names_text(ours.names or ())}. Without --same-classes they are brought "
                        "together by name."
                    )
                fields[at] = _with_names_of_both(ours, field, store)
    return Schema(tuple(fields))


def _check_names(store: StoreReader) -> None:
    """See that a name is one number's, so that samples can be told by it."""
    manifest = store.manifest
    named = {f"field {field.name!r}": field.names or () for field in manifest.schema.fields}
    for what, names in {**named, "classes": manifest.classes}.items():
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise SchemaMismatchError(
                f"{store.path}: {what}: {names_text(twice)} is listed twice, so which one a "
                "sample means cannot be told by name."
            )


def _described(field: Field) -> str:
    """A field without its names, as the manifest has it."""
    return json.dumps(msgspec.to_builtins(msgspec.structs.replace(field, names=None)))


def _with_names_of_both(ours: Field, theirs: Field, store: StoreReader) -> Field:
    """A field with its names and, behind them, another's new ones."""
    problem = None
    names = ours.names or ()
    if not counts_names(ours):
        problem = "names of points tell what each is, and cannot be mixed"
    elif ours.names is None or theirs.names is None:
        problem = "one of the two has names for its numbers, and the other has none"
    elif ours.codec is not None:
        problem = "ids in PNG files cannot be renumbered without encoding them again"
    else:
        known = set(names)
        names = (*names, *(name for name in theirs.names if name not in known))
        if len(names) - 1 > np.iinfo(ours.dtype or "").max:
            problem = f"{len(names)} names are too many for {ours.dtype}"
        elif ours.ignore is not None and 0 <= ours.ignore < len(names):
            problem = f"{len(names)} names would take the number {ours.ignore}, which is ignored"
    if problem is not None:
        raise SchemaMismatchError(
            f"{store.path}: the names of its field {ours.name!r} are other ones, and {problem}. "
            "Build it again with --classes that suit both."
        )
    return msgspec.structs.replace(ours, names=names)


def _tables(schema: Schema, merged: Schema) -> dict[str, NDArray[np.int64]]:
    """By field, the new number of each name, where a field's names become others."""
    return {
        field.name: positions_in(field.names or (), merged[field.name].names or ())
        for field in schema.fields
        if field.names != merged[field.name].names
    }


def _check_keys(stores: Sequence[StoreReader], starts: Sequence[bytes]) -> None:
    """See that no key is in two stores."""
    owners: dict[bytes, int] = {}
    twice: list[str] = []
    for number, (store, start) in enumerate(zip(stores, starts, strict=True)):
        for key in store_keys(store):
            owner = owners.setdefault(start + key, number)
            if owner != number:
                twice.append(key_text(start + key))
    if twice:
        shown = "".join(f"\n  {line}" for line in few(twice, _KEYS_SHOWN_MAX))
        raise StoreError(
            f"{len(twice):,} keys are in more than one of the stores:{shown}\n"
            "Give the keys of each store their own beginning: --prefix a/ --prefix b/."
        )


# --- each store's share ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Joined:
    """One of the stores.

    Attributes:
        store: The store.
        prefix: What its keys begin with from now on.
        tables: By field, the new number of each of its names.
    """

    store: StoreReader
    prefix: bytes
    tables: dict[str, NDArray[np.int64]]

    def parts(self, schema: Schema) -> list[Part]:
        """Its shards: as they are, or written anew."""
        names = {name: schema[name].names or () for name in self.tables}
        rewriter = Rewriter(self.store.layout, self.tables, names, self.prefix)
        firsts = self.store.first_samples
        return [
            Part(store=self.store, rewriter=rewriter, kept_shard=number)
            if rewriter.changes_nothing
            else Part(
                store=self.store,
                rewriter=rewriter,
                indices=np.arange(firsts[number], firsts[number + 1]),
            )
            for number in range(len(self.store.manifest.shards))
        ]

    def rejects(self) -> Iterator[RejectLine]:
        """Its reject list, with the keys that it would have had here."""
        for line in read_rejects(self.store.path):
            key = key_text(self.prefix) + line.key if line.key else ""
            yield msgspec.structs.replace(line, key=key)


# --- the account ----------------------------------------------------------------------------------


def _manifest(joined: Sequence[_Joined], schema: Schema, reports: list[TaskReport]) -> Manifest:
    manifests = [each.store.manifest for each in joined]
    names = _store_names([each.store.folder for each in joined])
    shards = tuple(report.shard for report in reports if isinstance(report.shard, ShardInfo))
    classes = tuple(dict.fromkeys(name for m in manifests for name in m.classes))
    statistics, statistics_notes = merged_statistics(manifests, classes)
    recipe, recipe_notes = merged_recipe([manifest.recipe for manifest in manifests], names)
    digest = hashlib.sha256(json.dumps([m.source.sha256 for m in manifests]).encode())
    return Manifest(
        format=FormatVersion(),
        schema=schema,
        classes=classes,
        splits=summed_counts(manifest.splits for manifest in manifests),
        sample_count=sum(shard.sample_count for shard in shards),
        shards=shards,
        recipe=recipe,
        source=SourceInfo(
            format=MERGE_FORMAT,
            sha256=digest.hexdigest(),
            found_count=sum(manifest.source.found_count for manifest in manifests),
            reject_count=sum(manifest.source.reject_count for manifest in manifests),
            ignored=summed_counts(manifest.source.ignored for manifest in manifests),
            notes=(
                *_origin_notes(joined, names, schema),
                *recipe_notes,
                *statistics_notes,
                *(
                    f"{name}: {note}"
                    for name, manifest in zip(names, manifests, strict=True)
                    for note in manifest.source.notes
                ),
            ),
            annotations=summed_counts(manifest.source.annotations for manifest in manifests),
            choices=merged_choices([manifest.source.choices for manifest in manifests], names),
        ),
        statistics=statistics,
        versions={
            name: " and ".join(
                dict.fromkeys(m.versions[name] for m in manifests if name in m.versions)
            )
            for name in sorted({name for manifest in manifests for name in manifest.versions})
        },
    )


def _store_names(paths: Sequence[Path]) -> list[str]:
    """What each store is called in the account: its folder's name, numbered where two share one."""
    names = [path.name for path in paths]
    return [
        name if names.count(name) == 1 else f"{name} ({at})" for at, name in enumerate(names, 1)
    ]


def _origin_notes(joined: Sequence[_Joined], names: Sequence[str], schema: Schema) -> Iterable[str]:
    """What each store has brought, and what became of its names."""
    for each, name in zip(joined, names, strict=True):
        manifest = each.store.manifest
        prefix = f", keys begin with {key_text(each.prefix)!r}" if each.prefix else ""
        yield f"merged: {manifest.sample_count:,} samples of {name}{prefix}"
        for field, table in each.tables.items():
            if (table != np.arange(len(table))).any():
                moved = int((table != np.arange(len(table))).sum())
                yield f"{name}: {moved} of {len(table)} numbers of {field!r} became others, by name"
