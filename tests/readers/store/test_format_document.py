"""FORMAT.md and the code say the same: names, numbers, element types, keys."""

from __future__ import annotations

import re
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest

import readers.store
from readers.store import layout
from readers.store.codecs import little
from readers.store.errors import ManifestError
from readers.store.manifest import FormatVersion, Manifest, ShardInfo, SourceInfo
from readers.store.pictures.decode import MODES
from readers.store.record import RECORD_BYTES_MAX, RecordLayout
from readers.store.schema import ITEM_DTYPES, Field, ImageCodec, Kind, Schema
from tests.readers.store.making import NUMBERS, open_plain, samples_of, write_shard

DOCUMENT = (Path(readers.store.__path__[0]) / "FORMAT.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^## |\Z)", DOCUMENT, re.M | re.S)
    assert found, f"FORMAT.md has no section {title!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """Cells of each row of the table in a text, but for its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def number(pattern: str, text: str = DOCUMENT) -> int:
    """The one number that stands in a text where the pattern has its group."""
    found = re.findall(pattern, text)
    assert len(found) == 1, (pattern, found)
    base, _, exponent = found[0].partition("^")
    return int(base) ** int(exponent or 1)


def keys_of(struct: type[msgspec.Struct]) -> list[str]:
    return list(struct.__struct_fields__)


def test_the_version_is_the_title_and_the_last_of_the_history():
    """Who changes the format changes both, and the code."""
    version = f"{layout.FORMAT_MAJOR}.{layout.FORMAT_MINOR}"
    assert DOCUMENT.startswith(f"# The format of a store, version {version}\n")
    history = [row[0] for row in rows(section("History"))]
    assert history[-1] == version
    assert all(a < b for a, b in pairwise([tuple(map(int, v.split("."))) for v in history]))
    entry = re.search(r'\{"name": "([a-z-]+)", "major": (\d+), "minor": (\d+)\}', DOCUMENT)
    assert entry
    assert FormatVersion() == FormatVersion(entry[1], int(entry[2]), int(entry[3]))


def test_files_are_named_as_the_folder_shows():
    """The picture of the folder is what users look at."""
    tree = section("The folder")
    names = re.findall(r"^      (\S+)", tree, re.M)
    assert names == [
        layout.MANIFEST_NAME,
        layout.shard_name(0),
        layout.shard_name(1),
        layout.REJECTS_NAME,
    ]
    assert f"`out.lmdb{layout.BUILDING_SUFFIX}`" in tree
    assert number(r"At most (\d+) MiB") * 2**20 == layout.MANIFEST_BYTES_MAX


def test_keys_of_the_manifest_are_those_of_the_table():
    """No key is undocumented, and none is only in the document."""
    table = rows(section("The manifest"))
    assert [row[0].strip("`") for row in table] == [*keys_of(Manifest), "sha256"]
    values = {row[0].strip("`"): row[1] for row in table}
    inner = re.findall(r"`(\w+)`", values["shards"])
    assert inner == keys_of(ShardInfo)
    assert re.findall(r"`(\w+)`", values["source"]) == keys_of(SourceInfo)


def test_kinds_and_codecs_are_those_of_the_schema():
    """Each kind of the table can be made, and no other."""
    text = section("The schema")
    kinds = [row[0].strip("`") for row in rows(text)]
    assert kinds == list(get_args(Kind))
    assert re.findall(r"^- `(\w+)`: ", text, re.M) == list(get_args(ImageCodec))
    modes = re.search(r"`mode` \(`(.*)`\) says", text)
    assert modes
    assert tuple(modes[1].split("`, `")) == MODES
    name = re.search(r"`name` \(`(.*)`\), a `kind`", text)
    assert name
    for text, fits in (("a" * 64, True), ("a" * 65, False), ("_a", False), ("a_0", True)):
        assert bool(re.fullmatch(name[1], text)) is fits
        with nullcontext() if fits else pytest.raises(ManifestError):
            Field(name=text, kind="text")


def test_element_types_have_the_numbers_of_the_document():
    """Records hold the numbers, so they can never be given anew."""
    listed = re.search(r"Element types by number.*?: (.*?)\.\n", DOCUMENT, re.S)
    assert listed
    pairs = [item.split() for item in listed[1].replace("\n", " ").split(", ")]
    assert [(int(at), name) for at, name in pairs] == list(enumerate(ITEM_DTYPES))


def test_numbers_of_a_record_are_those_of_the_document():
    """Alignment, the largest record, and the types of ends, sides, types and orientations."""
    text = section("A record")
    assert number(r"at most (2\^32) - 1 of them") - 1 == RECORD_BYTES_MAX
    assert "each at a multiple" in text
    assert number(r"\| of (\d+), in schema") == layout.PAYLOAD_ALIGNMENT_BYTES
    assert number(r"\| a multiple .*\n    \| of (\d+) ") == layout.PAYLOAD_ALIGNMENT_BYTES
    words = re.search(
        r"its end: (\w+), .*?then a (\w+) for each side.*?its number as (\w+); then, for "
        r"`original`, the orientation as (\w+)\.",
        text.replace("\n", " "),
    )
    assert words
    field = Field(name="a", kind="image", shape=(None, 1, 3), codec="original", mode="rgb")
    items = RecordLayout.of(Schema((field,))).items
    assert [item.dtype for item in items] == list(words.groups())
    mixed = RecordLayout.of(Schema((msgspec.structs.replace(field, codec="mixed"),)))
    assert "`mixed` has the same items." in text
    assert mixed.items == items


def test_keys_and_arrays_of_a_shard_are_those_of_the_document(tmp_path):
    """What a real shard holds is what a reader in another language is told to look for."""
    text = section("A shard")
    names = re.findall(r"^- `(\w+)`: ", text, re.M)
    assert [name.encode() for name in names] == [
        layout.SAMPLES_DB,
        layout.KEYS_DB,
        layout.INDEX_DB,
    ]
    assert number(r"position in the shard as (\d+) bytes") == len(layout.key_from_index(0))
    assert number(r"BLAKE2b with a (\d+)-byte digest") == layout.KEY_DIGEST_BYTES
    assert re.search(r"`offset` \(uint64\), `length` and `crc32` \(uint32\)", text)
    assert re.search(r"`identity` \(32 x uint8\)", text)
    path = tmp_path / "shard-00000.lmdb"
    info = write_shard(path, NUMBERS, samples_of(NUMBERS, range(5)))
    with open_plain(path, readonly=True) as env:
        with env.begin() as transaction:
            assert sorted(names) == [key.decode() for key, _ in transaction.cursor()]
        with env.begin(db=env.open_db(layout.INDEX_DB, create=False)) as transaction:
            arrays = {key.decode(): value for key, value in transaction.cursor()}
    types = {
        "column.label": "<i8",
        "column.weight": "<f4",
        "crc32": "<u4",
        "identity": "|u1",
        "length": "<u4",
        "offset": "<u8",
    }
    assert list(arrays) == list(types)
    for name, dtype in types.items():
        assert arrays[name].startswith(f"\x93NUMPY\1\0v\0{{'descr': '{dtype}'".encode("latin-1"))
    assert arrays["identity"][-32:].hex() == info.identity


def test_a_shard_name_of_the_manifest_is_of_the_documented_form():
    """`shard-*.lmdb`, and nothing that leads elsewhere."""
    assert "plain name of the form `shard-*.lmdb`" in DOCUMENT
    assert re.fullmatch(r"shard-.*\.lmdb", layout.shard_name(7))


def test_words_that_bind_are_written_large():
    """A reader of the document must see at once what it must do."""
    assert not re.search(r"\b(must|Must|shall|SHALL)\b", DOCUMENT)
    assert DOCUMENT.count("MUST") > 10


@pytest.mark.parametrize("name", ["uint32", "uint8", "float32", "int32", "uint64"])
def test_every_type_that_the_document_names_is_little_endian_in_files(name):
    """The document says so once, for all."""
    assert "All numbers are little-endian unless said otherwise." in DOCUMENT
    assert name in DOCUMENT
    assert little(name).newbyteorder("=").name == np.dtype(name).name
    assert little(name).str[0] in "<|"
