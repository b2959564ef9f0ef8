"""The reject list: written, read and counted in one place."""

from __future__ import annotations

import json
import os

import pytest

from readers.store.errors import StoreError
from readers.store.rejects import RejectLine, item_count, read_rejects, rejects_bytes

LINES = [
    RejectLine(key="a.jpg", path="raw/a.jpg", reason="not a picture"),
    RejectLine(key=os.fsdecode(b"\xe9.jpg"), path="\\xe9.jpg", reason="the file is empty"),
    RejectLine(key="b.jpg", path="b.json, object 3", reason="a box of no size", kind="annotation"),
    RejectLine(key="c.jpg", path="c.json", reason="2 points", kind="part", part="outline"),
    RejectLine(key="", path="list.csv, line 7", reason="no picture of this name"),
]


def test_a_list_reads_as_it_was_written(tmp_path):
    """Every line comes back, a key that is not UTF-8 as its bytes; the file itself is ASCII."""
    data = rejects_bytes(LINES)
    (tmp_path / "rejects.jsonl").write_bytes(data)
    assert data.isascii()
    found = list(read_rejects(tmp_path))
    assert found == LINES
    assert [line.key_bytes for line in found] == [b"a.jpg", b"\xe9.jpg", b"b.jpg", b"c.jpg", b""]


def test_raw_items_are_counted_without_their_annotations():
    """The manifest counts rejected raw items; an annotation of a stored one is none."""
    assert item_count(LINES) == 3


def test_keys_of_later_releases_are_passed_over(tmp_path):
    """A minor version may add to a line, numbers too; an older reader still reads it."""
    line = {"key": "a", "path": "a", "reason": "r", "bytes": 12, "where": {"line": 3}}
    (tmp_path / "rejects.jsonl").write_text(json.dumps(line) + "\n")
    assert list(read_rejects(tmp_path)) == [RejectLine(key="a", path="a", reason="r")]


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        '{"key": "a", "path": "a"}',
        '{"key": 7, "path": "a", "reason": "r"}',
        '{"key": "a", "path": "a", "reason": "r", "kind": 1}',
        "[" * 100_000,
    ],
)
def test_a_line_of_another_kind_names_the_file(tmp_path, line):
    """A list that was damaged, or is not ours, is an error that says where and what."""
    path = tmp_path / "rejects.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(StoreError, match=r"rejects\.jsonl: it holds .*expected a JSON object"):
        list(read_rejects(tmp_path))
