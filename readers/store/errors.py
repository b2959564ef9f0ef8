"""Everything that can go wrong with a store.

    StoreError
    ├── StoreNotFoundError          there is no store at this path
    ├── StoreIncompleteError        a build that did not finish: no manifest
    ├── FormatVersionError          written in a version this release cannot read
    ├── RemoteError                 a bucket or server refuses, fails or has not got a file
    ├── ManifestError               the manifest is not what FORMAT.md says
    ├── SchemaMismatchError         a field was asked for that the store does not have
    ├── UnknownKeyError             no sample has this key (also a KeyError)
    ├── ShardError                  a shard file is missing, truncated, swapped or crafted
    │   └── ChecksumError           a record is not what was written
    ├── CodecError                  a value does not fit its field, or bytes are no value of it
    └── ImageError                  encoded image bytes that cannot be decoded

Each message says where, what was found, what was expected and what to do. The last two are raised
where the place is not known: their text is the reason alone, and who knows the place adds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from readers.store.place import Place, Url

if TYPE_CHECKING:
    from typing_extensions import Self


class StoreError(Exception):
    """Something is wrong with a store. The parent of every error of this package."""


class StoreNotFoundError(StoreError):
    """There is no store at the path."""


class StoreIncompleteError(StoreError):
    """The folder has no manifest: its build did not finish."""


class FormatVersionError(StoreError):
    """The store is of a version that this release cannot read."""


class RemoteError(StoreError):
    """A bucket or a web server refuses, fails, does not answer, or does not have a file.

    Attributes:
        is_missing: Whether the file, or the bucket, is not there.
    """

    is_missing: bool = False


class ManifestError(StoreError):
    """The manifest is not what FORMAT.md says."""


class SchemaMismatchError(StoreError):
    """A field, split or class was asked for that the store does not have."""


class UnknownKeyError(StoreError, KeyError):
    """No sample of the store has this key."""

    def __str__(self) -> str:
        # KeyError would print the repr of the message.
        return str(self.args[0]) if self.args else ""


class ShardError(StoreError):
    """A shard file is missing, truncated, swapped, damaged or crafted.

    Made of a message alone, it crosses from any process by whatever way errors cross.

    Attributes:
        path: The shard file, or None when it is not known.
        position: Position of the sample in its shard, or None when the file as a whole is meant.
    """

    path: Place | None = None
    position: int | None = None

    @classmethod
    def at(cls, path: str | Place, message: str, position: int | None = None) -> Self:
        """The error of a shard, or of one sample in it."""
        place = str(path) if position is None else f"{path}, sample {position} of the shard"
        error = cls(f"{place}: {message}")
        error.path = path if isinstance(path, Url) else Path(path)
        error.position = position
        return error


class ChecksumError(ShardError):
    """A record's bytes are not the ones that were written."""


class CodecError(StoreError):
    """A value does not fit its field, or bytes are no value of it. The text is the reason alone."""


class ImageError(StoreError):
    """Encoded image bytes that cannot be decoded. The text is the reason alone."""
