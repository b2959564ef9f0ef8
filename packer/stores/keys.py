"""The text keys of a store's samples."""

from __future__ import annotations

from readers.store.errors import SchemaMismatchError
from readers.store.reader import StoreReader
from readers.store.record import RecordReader

KEY_FIELD = "key"


def store_keys(store: StoreReader) -> list[bytes]:
    """The text key of every sample, in order, as bytes.

    Raises:
        SchemaMismatchError: The samples have no keys that could be read.
        StoreError: A shard or record is damaged.
    """
    reader = key_reader(store)
    return [
        key_bytes(reader.unpack(shard.record(position))[KEY_FIELD])
        for shard in store.shards()
        for position in range(len(shard.offsets))
    ]


def key_reader(store: StoreReader) -> RecordReader:
    """Reads nothing of a record but its key. Raises SchemaMismatchError where there is none."""
    schema = store.manifest.schema
    if KEY_FIELD not in schema or schema[KEY_FIELD].kind != "text":
        raise SchemaMismatchError(
            f"{store.path}: its samples have no text field {KEY_FIELD!r} to tell them by; the "
            f"fields are {', '.join(schema.names)}"
        )
    return RecordReader(store.layout, [KEY_FIELD])


def key_bytes(key: str) -> bytes:
    """The bytes of a key as it is read: names of files need be no UTF-8."""
    return key.encode("utf-8", "surrogateescape")


def key_text(key: bytes) -> str:
    """A key as it is read, from its bytes."""
    return key.decode("utf-8", "surrogateescape")
