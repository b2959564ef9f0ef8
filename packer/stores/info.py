"""What a store holds, from its manifest."""

from __future__ import annotations

from typing import Any

import msgspec

from packer.advice import gray_text, python_lines, sizes_text
from packer.report import content_sha256
from packer.stores.info_tables import field_lines, statistics_lines
from packer.wording import NAMED_MAX, count_text, counts_text
from readers.store.manifest import Manifest, read_manifest
from readers.store.place import Place, place_of
from readers.store.schema import Field
from readers.store.shard_files import check_shard_files
from readers.store.wording import few_text


def info(path: str | Place, *, checks_files: bool = True) -> dict[str, Any]:
    """The manifest as a dict, with `bytes` of all shards and the `content_sha256` added.

    Args:
        path: Folder of the store, or its URL.
        checks_files: See by one stat a shard that all are there.

    Raises:
        StoreError: There is no store, its manifest cannot be read, or shards are missing.
    """
    manifest = _manifest(path, checks_files=checks_files)
    return {
        **msgspec.to_builtins(manifest),
        "path": str(place_of(path)),
        "bytes": manifest.shard_bytes,
        "content_sha256": content_sha256(manifest),
    }


def describe_fields(path: str | Place, *, checks_files: bool = True) -> str:
    """The fields of a sample as a table, with what each means.

    Raises:
        StoreError: There is no store, its manifest cannot be read, or shards are missing.
    """
    return "\n".join(field_lines(_manifest(path, checks_files=checks_files).schema.fields))


def describe_statistics(path: str | Place, *, checks_files: bool = True) -> str:
    """Means, and histograms of splits, classes and sizes.

    Raises:
        StoreError: There is no store, its manifest cannot be read, or shards are missing.
    """
    return "\n".join(statistics_lines(_manifest(path, checks_files=checks_files)))


def describe(path: str | Place, *, checks_files: bool = True) -> str:
    """The same for a person, in a dozen lines.

    Raises:
        StoreError: There is no store, its manifest cannot be read, or shards are missing.
    """
    manifest = _manifest(path, checks_files=checks_files)
    byte_count = manifest.shard_bytes
    source = manifest.source
    lines = [
        f"{place_of(path)}: {count_text(manifest.sample_count, 'sample')}, {byte_count:,} bytes in "
        f"{count_text(len(manifest.shards), 'shard')}, "
        f"format {manifest.format.major}.{manifest.format.minor}",
        f"source: {source.format}, found {source.found_count:,}, rejected {source.reject_count:,}, "
        f"ignored {sum(source.ignored.values()):,}",
        "recipe: " + ", ".join(_setting(n, v) for n, v in manifest.recipe.items() if _is_set(v)),
        "fields:",
        *(f"  {field.name:<16}{_describe_field(field)}" for field in manifest.schema.fields),
    ]
    if manifest.splits:
        counts = (f"{name} {count:,}" for name, count in manifest.splits.items())
        lines.append("splits: " + ", ".join(counts))
    if manifest.classes:
        lines.append(f"{count_text(len(manifest.classes), 'class')}: {_describe_classes(manifest)}")
    lines += filter(None, (sizes_text(manifest), gray_text(manifest)))
    versions = (f"{name} {version}" for name, version in manifest.versions.items())
    lines += ["made with " + ", ".join(versions), f"content {content_sha256(manifest)}"]
    if manifest.sample_count:
        lines += ["", *python_lines(str(path), manifest)]
    return "\n".join(lines)


def _manifest(path: str | Place, *, checks_files: bool) -> Manifest:
    place = place_of(path)
    manifest = read_manifest(place)
    if checks_files:
        check_shard_files(place, manifest.shards)
    return manifest


def _describe_field(field: Field) -> str:
    parts: list[str] = [field.kind]
    if field.shape:
        names = ", ".join("any" if side is None else str(side) for side in field.shape)
        parts.append(f"({names})")
    if field.dtype or field.kind == "image":
        parts.append(field.dtype or "uint8 or uint16")
    if field.codec:
        parts.append(field.codec)
    return " ".join(parts)


def _describe_classes(manifest: Manifest) -> str:
    counts = manifest.statistics.get("class_counts", [])
    if len(counts) == len(manifest.classes):
        return counts_text(dict(zip(manifest.classes, counts, strict=True)))
    return few_text(manifest.classes, NAMED_MAX)


def _setting(name: str, value: Any) -> str:
    """A setting of a recipe as the command line has it, where Python's would be misread."""
    if name == "size" and isinstance(value, list) and len(value) == 2:
        return f"size={value[1]}x{value[0]}"
    return f"{name}={value}"


def _is_set(setting: object) -> bool:
    """Whether a setting of a recipe says anything: most are about one policy alone."""
    return setting is not None and setting is not False and setting != []
