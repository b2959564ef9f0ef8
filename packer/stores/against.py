"""Does a store still match the raw data that it was built from?

The raw data is scanned again, with the options that the manifest records; keys are compared, and
then each raw item is prepared again and must give the values that are stored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packer.errors import SourceError
from packer.files.sizes import picture_bytes_max
from packer.items.raw_item import RawItem, Scan
from packer.pictures.sample_maker import SampleMaker
from packer.plan.arrange import arranged
from packer.plan.shards import library_versions, make_plan, make_schema
from packer.raw.containers import Containers
from packer.raw.files import RawFileError
from packer.raw.read_ahead import Files, ReadAhead
from packer.recipe import Recipe
from packer.sources import LAYOUTS, SourceOptions, scan_source
from packer.stores.keys import key_text, store_keys
from packer.stores.sample_compare import differing_fields
from packer.threads import map_threads
from readers.store.errors import CodecError, ImageError, ManifestError
from readers.store.manifest import Manifest
from readers.store.reader import StoreReader
from readers.store.record import RecordLayout, RecordReader, pack_record
from readers.store.rejects import read_rejects
from readers.store.schema import Schema

_ITEMS_AT_ONCE = 128
"""Raw items that a thread takes: the files that hold many of them are opened once for all."""


@dataclass(frozen=True, kw_only=True)
class RawComparison:
    """What differs between a store and raw data.

    Attributes:
        raw: The raw data.
        settings: What it would be built as now, and is not, a line each.
        added: Keys of raw items that are not in the store.
        removed: Keys of samples whose raw items are gone.
        changed: Key of a sample -> how its raw item is another than it was.
        notes: What to know in reading this.
    """

    raw: str
    settings: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        """A line for each difference."""
        return [
            *(f"{self.raw}: {line}" for line in self.settings),
            *(f"added in {self.raw}: {key!r} is not in the store" for key in self.added),
            *(f"removed from {self.raw}: {key!r} is in the store" for key in self.removed),
            *(f"changed in {self.raw}: {key!r}: {how}" for key, how in self.changed.items()),
        ]


def compare_with_raw(
    store: StoreReader,
    raw: str | Path,
    *,
    root: Path | None = None,
    reads_content: bool = True,
    thread_count: int = 1,
    on_progress: Callable[[int], None] = lambda count: None,
) -> RawComparison:
    """Hold a store against the raw data that it was built from.

    Args:
        store: The store.
        raw: The raw data, where it is now.
        root: Folder that the paths of a list are relative to; see `SourceOptions`.
        reads_content: Whether to prepare every raw item again. Else keys are compared, and the
            digest of sizes and annotations.
        thread_count: Raw items at once.
        on_progress: Told how many more samples are done.

    Raises:
        SourceError: The raw data is not there, or the store was made from no raw data.
        StoreError: The store is damaged, or its recipe is of another release.
    """
    manifest = store.manifest
    recipe = _recipe_of(store)
    # In the raw order, whatever the store's: some files can only be read forward. And that boxes
    # are clipped says nothing of which items there are, if there were boxes or not.
    order = dataclasses.replace(recipe, shuffle=None, clip_boxes=False)
    scan = scan_source(Path(raw), options_of(store, root))
    comparison = RawComparison(raw=str(raw))
    chosen = arranged(scan, order)
    schema = make_schema(chosen, recipe)
    comparison.settings.extend(_schema_differences(manifest, schema))
    comparison.notes.extend(_version_notes(manifest))
    places = {key: index for index, key in enumerate(store_keys(store))}
    known_rejects = _rejected_keys(store)
    present = {item.key for item in chosen.items}
    comparison.removed.extend(key_text(key) for key in places if key not in present)
    if not reads_content:
        comparison.added.extend(
            key_text(item.key)
            for item in chosen.items
            if item.key not in places and item.key not in known_rejects
        )
        if not (comparison.added or comparison.removed):
            comparison.settings.extend(
                _digest_differences(manifest, scan, dataclasses.replace(recipe, clip_boxes=False))
            )
        on_progress(manifest.sample_count)
        return comparison

    worker = _ContentWorker(store, chosen, schema, recipe, places, known_rejects, on_progress)
    batches = [
        chosen.items[at : at + _ITEMS_AT_ONCE] for at in range(0, len(chosen.items), _ITEMS_AT_ONCE)
    ]
    with contextlib.closing(worker):
        for added, changed in map_threads(worker.compare, batches, thread_count):
            comparison.added.extend(added)
            comparison.changed.update(changed)
    return comparison


def _recipe_of(store: StoreReader) -> Recipe:
    try:
        return Recipe.of_manifest(store.manifest.recipe)
    except (TypeError, ValueError) as error:
        raise ManifestError(
            f"{store.path}: its recipe is not one of this release ({error}), so the raw data "
            "cannot be prepared as it was. Use the release that built the store."
        ) from error


def options_of(store: StoreReader, root: Path | None) -> SourceOptions:
    """How the raw data was read, as the manifest says.

    Raises:
        SourceError: The store was made from no raw data.
        ManifestError: It was read in a way that this release does not know.
    """
    source = store.manifest.source
    if source.format not in LAYOUTS:
        raise SourceError(
            f"{store.path}: made by {source.format!r}, which reads no raw folder or list, so there "
            "is none to hold it against."
        )
    try:
        return SourceOptions(**{**source.options, "format": source.format, "root": root})
    except (TypeError, ValueError) as error:
        raise ManifestError(
            f"{store.path}: it was built with options that this release does not have ({error}). "
            "Use the release that built the store."
        ) from error


def _schema_differences(manifest: Manifest, schema: Schema) -> list[str]:
    differences = []
    stored = manifest.schema
    for name in (*stored.names, *(name for name in schema.names if name not in stored)):
        if name not in schema:
            differences.append(f"it has nothing for the field {name!r} any more")
        elif name not in stored:
            differences.append(f"it has a field {name!r} that the store lacks")
        elif stored[name] != schema[name]:
            differences.append(
                f"the field {name!r} would be {schema[name]!r}, and is {stored[name]!r}"
            )
    return differences


def _version_notes(manifest: Manifest) -> list[str]:
    here = library_versions()
    return [
        f"made with {name} {manifest.versions.get(name)}, compared with {here[name]}: pixels may "
        "differ by that alone"
        for name in here
        if name != "lmdb" and manifest.versions.get(name) != here[name]
    ]


def _rejected_keys(store: StoreReader) -> set[bytes]:
    """Keys of the raw items that the store has rejected."""
    return {line.key_bytes for line in read_rejects(store.path) if line.is_item}


def _digest_differences(manifest: Manifest, scan: Scan, recipe: Recipe) -> list[str]:
    if make_plan(scan, recipe).source_sha256 == manifest.source.sha256:
        return []
    return [
        "sizes of files, their order, labels or annotations are not what they were; without "
        "--quick each changed item is named"
    ]


class _ContentWorker:
    """Prepares raw items again, and holds what comes out against the store."""

    def __init__(
        self,
        store: StoreReader,
        scan: Scan,
        schema: Schema,
        recipe: Recipe,
        places: Mapping[bytes, int],
        known_rejects: set[bytes],
        on_progress: Callable[[int], None],
    ) -> None:
        self._store = store
        self._scan = scan
        self._schema = schema
        self._recipe = recipe
        self._places = places
        self._known_rejects = known_rejects
        self._on_progress = on_progress
        self._layout = RecordLayout.of(schema)
        self._is_same_schema = schema == store.manifest.schema
        self._stored_reader = RecordReader(store.layout)
        self._fresh_reader = RecordReader(self._layout)
        self._root = os.fsencode(os.path.abspath(scan.root))
        self._bytes_max = picture_bytes_max(recipe.pixels_max)
        # Each thread goes forward in its own, from one batch to the next.
        self._of_thread = threading.local()
        self._containers: list[Containers] = []

    def close(self) -> None:
        """Close the files that hold many items."""
        for containers in self._containers:
            containers.close()

    def _containers_here(self) -> Containers:
        containers: Containers | None = getattr(self._of_thread, "containers", None)
        if containers is None:
            containers = self._of_thread.containers = Containers(self._root, self._bytes_max)
            self._containers.append(containers)
        return containers

    def compare(self, items: Sequence[RawItem]) -> tuple[list[str], dict[str, str]]:
        """Keys that were added, and how others changed, of some raw items."""
        added: list[str] = []
        changed: dict[str, str] = {}
        with (
            SampleMaker(
                self._root,
                self._schema,
                self._recipe,
                self._scan.mask_colors,
                self._containers_here(),
            ) as maker,
            ReadAhead(self._root, items, bytes_max=self._bytes_max) as reader,
        ):
            for at, item in enumerate(items):
                record, reason = self._fresh(item, reader.files(at), maker)
                index = self._places.get(item.key)
                if index is None:
                    # What could not be packed, and cannot be now, is as it was.
                    if record is not None or item.key not in self._known_rejects:
                        added.append(key_text(item.key))
                    continue
                how = self._difference(record, index) if record is not None else reason
                if how is not None:
                    changed[key_text(item.key)] = how
                self._on_progress(1)
        return added, changed

    def _fresh(
        self, item: RawItem, files: Files, maker: SampleMaker
    ) -> tuple[bytearray | None, str]:
        """The record that an item would have now; or None, and why it would have none."""
        try:
            return pack_record(self._layout, maker.make(item, files).values)[0], ""
        except (ImageError, CodecError, RawFileError) as error:
            return None, f"it could not be packed any more: {error}"

    def _difference(self, fresh: bytearray, index: int) -> str | None:
        """How a record is another than the stored one; None when it is the same."""
        shard, position = self._store.locate(index)
        stored = shard.record(position)
        if self._is_same_schema and fresh == stored:
            return None
        try:
            values = self._stored_reader.unpack(stored)
        except (CodecError, ImageError) as error:
            return f"its record in the store is damaged: {error}"
        ours = self._fresh_reader.unpack(memoryview(fresh))
        names = differing_fields(values, ours, self._store.manifest.schema, self._schema)
        if names:
            return f"another {', '.join(names)}"
        # Equal values of other bytes: an image file that was written anew, or names renumbered.
        return "other bytes of the same values" if self._is_same_schema else None
