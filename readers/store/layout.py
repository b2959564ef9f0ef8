"""Names, numbers and key bytes of the format. FORMAT.md is the specification; a test compares."""

from __future__ import annotations

import hashlib
import struct

FORMAT_NAME = "packer-store"
FORMAT_MAJOR = 1
FORMAT_MINOR = 2

MANIFEST_NAME = "manifest.json"
REJECTS_NAME = "rejects.jsonl"
UPDATE_CACHE_NAME = "update-cache"
BUILDING_SUFFIX = ".building"

SAMPLES_DB = b"samples"
KEYS_DB = b"keys"
INDEX_DB = b"index"

KEY_DIGEST_BYTES = 16
IDENTITY_BYTES = 32
PAYLOAD_ALIGNMENT_BYTES = 8
MANIFEST_BYTES_MAX = 64 * 2**20
"""A manifest larger than this is refused before it is parsed; 100,000 shards take 30 to 40 MB."""

INDEX_PARTS_MAX = 64
"""Parts of a shard's file that hold its index; where there are more, the manifest does not say."""

_SHARD_START, _SHARD_END = "shard-", ".lmdb"

_POSITION = struct.Struct(">Q")
POSITION_BYTES = _POSITION.size
"""Size of a key of `samples`, and of a value of `keys`."""


def shard_name(number: int) -> str:
    """File name of shard `number`: five digits, more when a store needs them."""
    return f"{_SHARD_START}{number:05d}{_SHARD_END}"


def shard_number(name: str) -> int:
    """Number of the shard with a file name that `shard_name` has made."""
    return int(name.removeprefix(_SHARD_START).removesuffix(_SHARD_END))


def key_from_index(position: int) -> bytes:
    """LMDB key of the sample at `position` in its shard: 8 bytes, big-endian, so they sort."""
    return _POSITION.pack(position)


def index_from_key(key: bytes | memoryview) -> int:
    """The position that `key_from_index` packed."""
    return int(_POSITION.unpack(key)[0])


def digest_from_key(key: bytes) -> bytes:
    """What the `keys` database is searched by: 16-byte BLAKE2b of the sample's text key.

    LMDB keys end at 511 bytes; paths do not.
    """
    return hashlib.blake2b(key, digest_size=KEY_DIGEST_BYTES).digest()


def column_key(name: str) -> str:
    """Name in `index` of a header item's array; apart from the three that are about records."""
    return f"column.{name}"
