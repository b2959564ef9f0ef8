"""The files of a Hugging Face data set on disk, and the split that each is of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from packer.errors import SourceError
from packer.files.start import pointer_reason
from packer.items.findings import Findings
from packer.items.raw_item import RawFile
from packer.sources.container_files import ContainerFiles, find_container_files, split_of_path
from packer.sources.pairing import normal_path, split_path
from packer.wording import names_text, readable_path

NOT_NAMED = "table that no state.json names"

_DICT, _STATE, _INFO = b"dataset_dict.json", b"state.json", b"dataset_info.json"
_SHARD = re.compile(rb"^(.+?)-\d{5}-of-\d{5}.*\.parquet$", re.IGNORECASE)
_JSON_BYTES_MAX = 64 * 2**20


@dataclass(frozen=True)
class Table:
    """One file of rows.

    Attributes:
        file: As found.
        kind: "arrow" or "parquet".
        split: As the data calls it; empty when it has none.
        info: Content of the `dataset_info.json` beside it.
    """

    file: RawFile
    kind: str
    split: str
    info: Any


def find_tables(raw: Path) -> tuple[ContainerFiles, list[Table]]:
    """The tables under a folder in their order, and what lies beside them.

    A folder that `save_to_disk` wrote says itself which files it has, and in which order. Other
    tables come by path.

    Raises:
        SourceError: There is none, or they are of a kind that cannot be read.
    """
    found = find_container_files(raw, _is_ours)
    by_path = {file.path: file for file in found.files}
    states = [path for path in by_path if split_path(path)[1] == _STATE]
    tables: list[Table] = []
    for path in states:
        tables += _saved_tables(path, by_path, found)
    if states:
        named = {table.file.path for table in tables}
        for path in by_path:
            if path.endswith((b".arrow", b".parquet")) and path not in named:
                found.findings.ignore(NOT_NAMED, [path])
        _check_dict(by_path, states, found)
    else:
        paths = [path for path in by_path if path.lower().endswith((b".parquet", b".arrow"))]
        splits = _splits(paths, found.findings)
        for path in paths:
            kind = "parquet" if path.lower().endswith(b".parquet") else "arrow"
            info = _read_json(by_path.get(_beside(path, _INFO)), found)
            tables.append(Table(by_path[path], kind, splits.get(path, ""), info))
    if not tables and not found.findings.rejects:
        raise found.findings.nothing(
            raw,
            "no tables found",
            "looked for .parquet files, and for folders of .arrow files with a state.json",
        )
    return found, tables


def _is_ours(path: bytes) -> bool:
    base = split_path(path)[1]
    return base.lower().endswith((b".parquet", b".arrow")) or base in (_DICT, _STATE, _INFO)


def _beside(path: bytes, base: bytes) -> bytes:
    folder = split_path(path)[0]
    return folder + b"/" + base if folder else base


def _read_json(file: RawFile | None, found: ContainerFiles) -> Any:
    """Content of a JSON file; None when there is none, and a reject when it is broken."""
    if file is None:
        return None
    try:
        if file.byte_count > _JSON_BYTES_MAX:
            raise ValueError(f"{file.byte_count:,} bytes; expected at most {_JSON_BYTES_MAX:,}")
        data = found.full_path(file.path).read_bytes()
        if pointer_reason(data):
            raise ValueError(pointer_reason(data))
        return msgspec.json.decode(data)
    except (OSError, ValueError, msgspec.DecodeError, RecursionError) as error:
        # Several tables may share the file.
        if not any(reject.key == file.path for reject in found.findings.rejects):
            found.findings.refuse(file.path, f"cannot be read as JSON: {error}")
        return None


def _saved_tables(
    state_path: bytes, by_path: dict[bytes, RawFile], found: ContainerFiles
) -> list[Table]:
    """The files that a state.json names."""
    state = _read_json(by_path[state_path], found)
    if state is None:
        return []
    shown = readable_path(state_path)
    entries = state.get("_data_files") if isinstance(state, dict) else None
    if not isinstance(entries, list):
        reason = "has no list _data_files, so that it is not known which files belong together"
        found.findings.refuse(state_path, reason)
        return []
    if state.get("_indices_data_files"):
        raise SourceError(
            f"{shown}: the data set is a selection of its rows (_indices_data_files), as old "
            "versions of datasets saved it. Save it anew with flatten_indices() first."
        )
    folder = split_path(state_path)[0]
    split = readable_path(split_path(folder)[1]) if _is_in_dict(folder, by_path) else ""
    info = _read_json(by_path.get(_beside(state_path, _INFO)), found)
    tables = []
    for entry in entries:
        written = entry.get("filename") if isinstance(entry, dict) else None
        path = normal_path(_beside(state_path, str(written).encode("utf-8", "replace")))
        if path not in by_path or not isinstance(written, str):
            reason = f"names {written!r:.200}, which does not lie beside it"
            found.findings.refuse(path, reason, shown)
        else:
            tables.append(Table(by_path[path], "arrow", split, info))
    return tables


def _is_in_dict(folder: bytes, by_path: dict[bytes, RawFile]) -> bool:
    return bool(folder) and _beside(folder, _DICT) in by_path


def _check_dict(by_path: dict[bytes, RawFile], states: list[bytes], found: ContainerFiles) -> None:
    """Name the splits that a dataset_dict.json promises and that are not there."""
    for path in by_path:
        if split_path(path)[1] != _DICT:
            continue
        content = _read_json(by_path[path], found)
        splits = content.get("splits") if isinstance(content, dict) else None
        for split in splits if isinstance(splits, list) else []:
            folder = _beside(path, str(split).encode("utf-8", "replace"))
            if folder + b"/" + _STATE not in states:
                reason = (
                    f"names split {split!r:.200}, but {readable_path(folder)} has no state.json"
                )
                found.findings.refuse(folder, reason, readable_path(path))


def _splits(paths: list[bytes], findings: Findings) -> dict[bytes, str]:
    """Split of each table: what its name begins with (`train-00000-of-00001`), else its folder."""
    splits: dict[bytes, str] = {}
    for path in paths:
        match = _SHARD.match(split_path(path)[1])
        prefix = readable_path(match.group(1)) if match else None
        found = split_of_path(path)
        # The prefix is a split of any name, but "data-00000-of-00002" says nothing.
        if found is not None or (prefix is not None and prefix not in ("data", "part")):
            splits[path] = prefix if prefix and (found is None or found in prefix) else found or ""
    if len(splits) < len(paths):
        if splits:
            without = names_text(readable_path(path) for path in paths if path not in splits)
            findings.notes.append(f"no splits: some tables are named after one, but not {without}")
        return {}
    return splits
