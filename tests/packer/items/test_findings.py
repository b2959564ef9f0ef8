"""The account of a source: nothing that it met is lost on the way to its scan."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from packer.items.findings import Findings
from packer.items.raw_item import Ignored, RawItem, Reject, Scan


def _reject(name):
    return Reject(key=name.encode(), path=name, reason="is broken")


def test_all_that_was_found_is_in_the_scan():
    """Each kind of finding has its place, and what a walk met comes before the rest."""
    of_walk, ignored = [_reject("walk")], Ignored()
    ignored.add("not a picture", "a.txt")
    found = Findings(rejects=of_walk, ignored=ignored)
    found.items += [RawItem(b"b", b"b", 1, 0), RawItem(b"a", b"a", 1, 0)]
    found.rejects.append(_reject("later"))
    found.annotation_rejects.append(_reject("box"))
    found.notes.append("a note")
    found.choices["voc_origin"] = "1"
    scan = found.as_scan("voc", Path("raw"), classes=("cat",), splits=("train",))
    assert scan == Scan(
        format="voc",
        root=Path("raw"),
        items=[RawItem(b"b", b"b", 1, 0), RawItem(b"a", b"a", 1, 0)],
        classes=("cat",),
        splits=("train",),
        rejects=[_reject("walk"), _reject("later")],
        annotation_rejects=[_reject("box")],
        ignored=ignored,
        notes=["a note"],
        choices={"voc_origin": "1"},
    )
    for field in dataclasses.fields(Findings):
        assert getattr(scan, field.name) is getattr(found, field.name)


def test_rejects_since_a_mark_are_of_a_split():
    """Those before it are of another or of none, and what a reject knows itself stays."""
    found = Findings(rejects=[_reject("walk")])
    mark = found.mark()
    found.rejects += [_reject("a"), Reject(key=b"", path="b", reason="is broken", split="val")]
    found.annotation_rejects.append(_reject("box"))
    found.tag_split(mark, "train")
    assert [reject.split for reject in found.rejects] == ["", "train", "val"]
    assert [reject.split for reject in found.annotation_rejects] == ["train"]
