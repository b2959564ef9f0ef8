"""The reject list, and the bound on how many there may be."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.items.raw_item import Reject
from packer.workspace.rejects import (
    Rejects,
    describe_rejects,
    reject_count_max,
    too_many_text,
    write_rejects,
)


@pytest.mark.parametrize(
    ("limit", "found", "expected"),
    [
        ("1%", 99, 0),
        ("1%", 100, 1),
        ("0.5%", 1000, 5),
        ("0.57%", 10_000, 57),
        ("100%", 7, 7),
        ("0%", 10**9, 0),
        (" 3 ", 2, 3),
        (0, 5, 0),
        (12, 5, 12),
    ],
)
def test_a_limit_is_a_count_or_a_share_rounded_down(limit, found, expected):
    """So that a share never allows more than it says."""
    assert reject_count_max(limit, found) == expected


@given(st.decimals(0, 100, places=3), st.integers(0, 10**9))
def test_shares_are_exact(share, found):
    """No rounding of floating point: 57 of 100 are 57%."""
    expected = Fraction(share) * found // 100
    assert reject_count_max(f"{share}%", found) == expected


@pytest.mark.parametrize("limit", ["", "%", "many", "-1", -1, "101%", "-1%", "1.5", "nan%", "inf%"])
def test_what_is_neither_is_refused(limit):
    """With the value given."""
    with pytest.raises(ValueError, match="max_rejects must be a count or a share in"):
        reject_count_max(limit, 10)


@pytest.mark.parametrize(
    ("count", "found", "limit", "text"),
    [
        (1, 1, "100%", "the only raw item was rejected, so that nothing is left to store"),
        (3, 3, 3, "all 3 raw items were rejected, so that nothing is left to store"),
        (3, 200, "1%", "3 of 200 raw items rejected; --max-rejects 1% allows 2 of 200"),
        (
            3,
            250,
            "1%",
            "3 of 250 raw items rejected; --max-rejects 1% allows 2 of 250 "
            "(1% of 250 is rounded down)",
        ),
        (
            3,
            5,
            "1%",
            "3 of 5 raw items rejected; --max-rejects 1% allows none (1% of 5 is rounded down)",
        ),
        (3, 5, 0, "3 of 5 raw items rejected; --max-rejects 0 allows none"),
        (3, 5000, "2", "3 of 5,000 raw items rejected; --max-rejects 2 allows 2"),
    ],
)
def test_too_many_rejects_are_told_with_what_is_allowed_of_how_many(count, found, limit, text):
    """A share is told with its number, and where every item was rejected no limit is to blame."""
    assert too_many_text(count, found, limit) == text


def test_the_list_holds_one_json_object_a_line(tmp_path):
    """Names that are no UTF-8 come back byte for byte; line ends in names stay inside a line."""
    rejects = [
        Reject(key=b"a/\xe9.png", path="a/\\xe9.png", reason="empty"),
        Reject(key="b/\u732b\n.png".encode(), path="list.csv, line 7", reason="not there"),
    ]
    write_rejects(tmp_path / "rejects.jsonl", Rejects(items=rejects))
    data = (tmp_path / "rejects.jsonl").read_bytes()
    assert data.isascii()
    lines = [json.loads(line) for line in data.splitlines()]
    assert [line["key"].encode("utf-8", "surrogateescape") for line in lines] == [
        reject.key for reject in rejects
    ]
    assert [line["path"] for line in lines] == ["a/\\xe9.png", "list.csv, line 7"]
    assert [line["reason"] for line in lines] == ["empty", "not there"]
    write_rejects(tmp_path / "rejects.jsonl", Rejects())
    assert (tmp_path / "rejects.jsonl").read_bytes() == b""


def test_a_message_names_a_thousand_and_where_the_rest_is(tmp_path):
    """A terminal is not flooded with a million lines, and nothing is kept back."""
    rejects = [Reject(key=b"", path=f"{n}.png", reason=f"empty {n}") for n in range(1002)]
    lines = describe_rejects(Rejects(items=rejects), tmp_path / "rejects.jsonl").splitlines()
    assert lines[:2] == ["  0.png: empty 0", "  1.png: empty 1"]
    assert lines[999:] == [
        "  999.png: empty 999",
        "  and 2 more",
        f"  all are listed in {tmp_path / 'rejects.jsonl'}",
    ]
    assert len(describe_rejects(Rejects(items=rejects[:1000]), tmp_path).splitlines()) == 1000


def test_rejects_of_one_reason_share_a_line(tmp_path):
    """Twenty lines alike hide the one that is not; and it is said where every one is named."""
    rejects = [Reject(key=b"", path=f"{n}.png", reason="empty") for n in range(20)]
    rejects.insert(7, Reject(key=b"", path="odd.png", reason="truncated"))
    assert describe_rejects(Rejects(items=rejects), tmp_path).splitlines() == [
        "  20 x empty: '0.png', '1.png', '2.png', '3.png', '4.png' and 15 more",
        "  odd.png: truncated",
        f"  all are listed in {tmp_path}",
    ]


def test_annotations_are_listed_behind_items_and_told_apart(tmp_path):
    """Both are rejects; a line of an annotation says so, and its key is that of a stored sample."""
    rejects = Rejects(
        items=[Reject(key=b"a.png", path="a.png", reason="empty")],
        annotations=[Reject(key=b"b.png", path="b.png: annotation 7", reason="no area")],
    )
    write_rejects(tmp_path / "rejects.jsonl", rejects)
    lines = (tmp_path / "rejects.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"key": "a.png", "path": "a.png", "reason": "empty"},
        {"key": "b.png", "path": "b.png: annotation 7", "reason": "no area", "kind": "annotation"},
    ]
    shown = describe_rejects(rejects, tmp_path / "rejects.jsonl")
    assert shown == "  a.png: empty\n  b.png: annotation 7: no area"
