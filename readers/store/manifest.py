"""The table of contents of a store, and the moment at which a store exists."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from readers.store.errors import (
    FormatVersionError,
    ManifestError,
    RemoteError,
    StoreIncompleteError,
    StoreNotFoundError,
)
from readers.store.layout import (
    BUILDING_SUFFIX,
    FORMAT_MAJOR,
    FORMAT_MINOR,
    FORMAT_NAME,
    INDEX_PARTS_MAX,
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    shard_name,
)
from readers.store.not_a_store import hint_for_file, hint_for_folder
from readers.store.place import Place, Url, place_of
from readers.store.read_policy import ReadPolicy, tried
from readers.store.remote import files_of
from readers.store.schema import Schema

_SHARD_FILE = re.compile(r"shard-[0-9a-z-]{1,64}\.lmdb")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGEST = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n}\n\Z')
_DIGEST_BYTES = len(',\n "sha256": ""\n}\n') + 64
_FIRST_MINOR_WITH_DIGEST = 1

_VALUES_MAX = 4_000_000
"""Commas and opening brackets of a manifest. 100,000 shards take 1,000,000 to 2,000,000; 64 MiB of
nothing else would take 1.6 GiB of memory to parse, and these take 0.5."""


class FormatVersion(msgspec.Struct, frozen=True):
    """Which format a store is written in."""

    name: str = FORMAT_NAME
    major: int = FORMAT_MAJOR
    minor: int = FORMAT_MINOR


class ShardInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One shard file.

    Attributes:
        file: Its name in the store's folder.
        sample_count: Samples in it.
        bytes: Size of the file.
        sha256: Digest of the file, in hex.
        identity: Digest of what it holds, in hex, which the shard itself repeats.
        index: Where its index lies: first byte and bytes of each part of the file that it takes to
            read it, one part after the other. Empty when that is not known, as in stores of
            version 1.1.
    """

    file: str
    sample_count: int
    bytes: int
    sha256: str
    identity: str
    index: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not _SHARD_FILE.fullmatch(self.file):
            raise ManifestError(
                f"shard file {self.file!r}, expected a plain name such as {shard_name(0)!r}"
            )
        if not 1 <= self.sample_count < 2**48 or not 1 <= self.bytes < 2**48:
            raise ManifestError(
                f"{self.file}: {self.sample_count} samples in {self.bytes} bytes, expected both in "
                "[1, 2**48)"
            )
        for digest in (self.sha256, self.identity):
            if not _SHA256.fullmatch(digest):
                raise ManifestError(f"{self.file}: digest {digest!r}, expected 64 hex digits")
        if len(self.index) % 2 or len(self.index) > 2 * INDEX_PARTS_MAX:
            raise ManifestError(
                f"{self.file}: {len(self.index)} numbers say where its index lies, expected two of "
                f"each of at most {INDEX_PARTS_MAX} parts"
            )
        for start, count in self.index_parts:
            if start < 0 or count < 1 or start + count > self.bytes:
                raise ManifestError(
                    f"{self.file}: {count} bytes of its index at {start}, expected one or more "
                    f"inside the file's {self.bytes}"
                )

    @property
    def index_parts(self) -> list[tuple[int, int]]:
        """First byte and bytes of each part of the file that it takes to read its index."""
        return list(zip(self.index[::2], self.index[1::2], strict=True))


class SourceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the store was built from.

    Attributes:
        format: Name of the source that read the raw data.
        sha256: Digest over the key, size and values of every raw item, in hex.
        found_count: Raw items and other files met in all.
        reject_count: Raw items that were not packed; `rejects.jsonl` names each.
        ignored: Files that are no raw items, by reason.
        notes: What the source said about the layout.
        annotations: How many annotations were `found`, `stored` and `rejected`; empty without any.
        choices: What was decided where the raw data leaves it open, by name.
        options: How the raw data was asked to be read, by name; what was left to itself is not
            listed, nor is a folder, which means nothing elsewhere.
    """

    format: str
    sha256: str
    found_count: int
    reject_count: int
    ignored: dict[str, int]
    notes: tuple[str, ...] = ()
    annotations: dict[str, int] = {}
    choices: dict[str, str] = {}
    options: dict[str, Any] = {}


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a store but its samples. Attributes are the keys of `manifest.json`.

    Attributes:
        format: Name and version of the format.
        schema: The fields of a sample.
        classes: Class names; a label is a position in it.
        splits: Split name -> samples in it, in the order of the `split` field's values.
        sample_count: Samples in all.
        shards: The shard files, in the order of the samples.
        recipe: Every setting of the build, by name.
        source: What it was built from.
        statistics: Facts about all samples, such as samples per class.
        versions: Library versions that decided the bytes.
    """

    format: FormatVersion
    schema: Schema
    classes: tuple[str, ...]
    splits: dict[str, int]
    sample_count: int
    shards: tuple[ShardInfo, ...]
    recipe: dict[str, Any]
    source: SourceInfo
    statistics: dict[str, Any]
    versions: dict[str, str]

    @property
    def shard_bytes(self) -> int:
        """Size of all shard files."""
        return sum(shard.bytes for shard in self.shards)

    def __post_init__(self) -> None:
        total = sum(shard.sample_count for shard in self.shards)
        if total != self.sample_count:
            raise ManifestError(f"{self.sample_count} samples, but its shards hold {total}")
        if len({shard.file for shard in self.shards}) != len(self.shards):
            raise ManifestError("a shard file is listed twice")
        for name, count in self.splits.items():
            if count < 0:
                raise ManifestError(f"split {name!r} of {count} samples, expected none or more")
        if self.splits and sum(self.splits.values()) != self.sample_count:
            raise ManifestError(
                f"splits of {sum(self.splits.values())} samples in all, "
                f"expected {self.sample_count}"
            )


def identity_of(manifest: Manifest) -> bytes:
    """What tells a store from another that took its place."""
    digest = hashlib.sha256()
    for shard in manifest.shards:
        digest.update(shard.sha256.encode())
    return digest.digest()[:16]


def read_manifest(path: str | Place, policy: ReadPolicy | None = None) -> Manifest:
    """The manifest of the store at `path`: a folder, or a URL.

    Args:
        path: Folder of the store, or its URL.
        policy: How often it is tried again when the server of its folder fails. None: never.

    Raises:
        StoreNotFoundError: There is nothing at `path`, or it is not a folder.
        StoreIncompleteError: A build of this store began and did not finish.
        FormatVersionError: The store is of a newer version, or of another program.
        ManifestError: The manifest is not what FORMAT.md says.
        RemoteError: A bucket or server refuses, fails or does not answer.
    """
    place = place_of(path)
    return parse_manifest(read_manifest_bytes(place, policy), place / MANIFEST_NAME)


def read_manifest_bytes(place: Place, policy: ReadPolicy | None = None) -> bytes:
    """The bytes of a manifest's file, yet to be parsed. Raises as `read_manifest` does."""
    if isinstance(place, Url):
        data = _remote_bytes(place)
    else:
        data = _local_bytes(place, policy)
    if len(data) > MANIFEST_BYTES_MAX:
        raise ManifestError(
            f"{place / MANIFEST_NAME}: over {MANIFEST_BYTES_MAX} bytes; not a manifest of ours"
        )
    return data


def _local_bytes(path: Path, policy: ReadPolicy | None) -> bytes:
    file = path / MANIFEST_NAME
    try:
        return tried(partial(_read_at_once, file), policy)
    except NotADirectoryError:
        raise StoreNotFoundError(
            f"{path} is a file; a store is a folder with {MANIFEST_NAME}. {hint_for_file(path)}"
        ) from None
    except FileNotFoundError:
        raise _absent(path) from None
    except OSError as error:
        raise ManifestError(f"{file}: {error.strerror}; expected a file to read.") from error


def _remote_bytes(url: Url) -> bytes:
    files = files_of(url)
    try:
        return files.read(MANIFEST_NAME, MANIFEST_BYTES_MAX + 1)
    except RemoteError as error:
        if not error.is_missing:
            raise
        if files.listing():
            raise StoreIncompleteError(
                f"{url}: no {MANIFEST_NAME} there, though other files are: its upload did not "
                f"finish. Run the same command again: packer build RAW {url}"
            ) from error
        raise StoreNotFoundError(
            f"{error} Expected {MANIFEST_NAME}, as `packer build RAW {url}` puts it there."
        ) from error


def _read_at_once(file: Path) -> bytes:
    with open(file, "rb", opener=_open_at_once) as stream:
        return stream.read(MANIFEST_BYTES_MAX + 1)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file for reading; without O_NONBLOCK, a pipe of its name would wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _absent(path: Path) -> StoreNotFoundError | StoreIncompleteError:
    # The path may be ".", which has no name.
    working = Path(os.path.abspath(path) + BUILDING_SUFFIX)
    if working.is_dir():
        return StoreIncompleteError(
            f"{path}: its build did not finish ({working.name} is there). "
            "Run the same `packer build` command again; it goes on where it stopped."
        )
    if not path.exists():
        return StoreNotFoundError(
            f"{path}: nothing there. Expected the folder that `packer build RAW {path}` makes."
        )
    return StoreIncompleteError(
        f"{path}: no {MANIFEST_NAME} in it, so it is not a store. {hint_for_folder(path)}"
    )


def parse_manifest(data: bytes, place: str | Place) -> Manifest:
    """A manifest from the bytes of its file. `place` is named in errors.

    Raises:
        FormatVersionError: It is of a newer version, or of another program.
        ManifestError: It is not what FORMAT.md says.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > _VALUES_MAX:
        raise ManifestError(
            f"{place}: not a manifest (over {_VALUES_MAX} values). No store has as many; copy it "
            "again."
        )
    try:
        # Not msgspec's decoder: class names may hold surrogates, which it refuses.
        tree = json.loads(data)
        # All three must be there: the defaults are for writing.
        found = {key: tree["format"][key] for key in FormatVersion.__struct_fields__}
        version = msgspec.convert(found, FormatVersion)
    except (ValueError, RecursionError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise ManifestError(
            f"{place}: not a manifest ({error}). Expected JSON with a 'format'; "
            "copy the store again."
        ) from error
    if version.name != FORMAT_NAME or version.major != FORMAT_MAJOR:
        raise FormatVersionError(
            f"{place}: format {version.name} {version.major}.{version.minor}; this release reads "
            f"{FORMAT_NAME} {FORMAT_MAJOR}. Install the release that wrote it, or build it again."
        )
    try:
        return msgspec.convert(tree, Manifest)
    except (msgspec.ValidationError, ManifestError, UnicodeEncodeError) as error:
        # The last is msgspec's word for a surrogate where one of a few names is expected.
        raise ManifestError(
            f"{place}: {error}. The manifest was changed or damaged; copy the store again."
        ) from error


def manifest_bytes(manifest: Manifest) -> bytes:
    """The manifest as the bytes of its file; the same for equal manifests.

    The last key is the digest of all that stands before it.
    """
    body = json.dumps(msgspec.to_builtins(manifest), indent=1).removesuffix("\n}").encode("ascii")
    return body + f',\n "sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode("ascii")


def digest_problem(data: bytes) -> str | None:
    """Why the bytes of a manifest's file are not the ones that were written, or None if they are.

    Opening a store does not ask for this: what it goes by is checked by itself, against the shards.

    Args:
        data: The bytes, which `parse_manifest` has taken for a manifest. Those of version 1.0 have
            no digest, and so no problem.
    """
    found = _DIGEST.match(data, max(0, len(data) - _DIGEST_BYTES))
    if found:
        digest, expected = hashlib.sha256(data[: found.start()]).hexdigest(), found[1].decode()
        if digest == expected:
            return None
        return f"SHA-256 {digest[:16]}..., expected {expected[:16]}..."
    tree = json.loads(data)
    if "sha256" not in tree and tree["format"]["minor"] < _FIRST_MINOR_WITH_DIGEST:
        return None
    return "it does not end with its SHA-256"


def publish_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder whose shards are there and synced: now it is a store."""
    write_synced(folder / MANIFEST_NAME, manifest_bytes(manifest))


def says_store(data: bytes) -> bool:
    """Whether a manifest.json is of a store, of any version: other programs have such files too."""
    try:
        return bool(json.loads(data)["format"]["name"] == FORMAT_NAME)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def write_synced(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Put a file in place whole, or not at all: written aside, synced, renamed, folder synced.

    Args:
        path: The file.
        data: Its bytes, or parts of them that are written as they come.
    """
    aside = path.with_name(path.name + ".partial")
    with open(aside, "wb") as stream:
        stream.writelines([data] if isinstance(data, bytes) else data)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(aside, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
