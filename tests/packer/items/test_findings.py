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
    colors = ((0, 0, 0), (128, 0, 0))
    scan = found.as_scan(
        "voc", Path("raw"), classes=("cat",), splits=("train",), mask_colors=colors
    )
    assert scan == Scan(
        format="voc",
        root=Path("raw"),
        items=[RawItem(b"b", b"b", 1, 0), RawItem(b"a", b"a", 1, 0)],
        classes=("cat",),
        splits=("train",),
        mask_colors=colors,
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


def test_what_is_refused_is_named_by_its_place_or_its_key():
    """A file is where its key says, and the row of a list is named; a part is said as well."""
    found = Findings()
    found.refuse(b"caf\xe9.jpg", "is broken", split="val")
    found.refuse(b"", "is empty", "list.csv, line 7", split=None)
    found.refuse_annotation(b"a.jpg", "is too small", "a.xml, object 2", "outline", "train")
    assert found.rejects == [
        Reject(key=b"caf\xe9.jpg", path=r"caf\xe9.jpg", reason="is broken", split="val"),
        Reject(key=b"", path="list.csv, line 7", reason="is empty"),
    ]
    assert found.annotation_rejects == [
        Reject(
            key=b"a.jpg",
            path="a.xml, object 2",
            reason="is too small",
            part="outline",
            split="train",
        )
    ]


def test_ignored_files_are_told_with_the_first_of_them():
    """A note a reason, in the order asked for, and none where there is nothing to tell."""
    found = Findings()
    found.ignore("beside classes", (b"%d.png" % number for number in range(7)))
    found.ignore("a document", [b"a.txt"])
    found.note_ignored("in no split", "beside classes")
    found.note_ignored("a document", noun="file")
    assert found.ignored.counts == {"beside classes": 7, "a document": 1}
    assert found.notes == [
        "7 pictures not packed, beside classes: "
        "'0.png', '1.png', '2.png', '3.png', '4.png' and 2 more",
        "1 file not packed, a document: 'a.txt'",
    ]


def test_nothing_found_names_what_was_refused():
    """Who looks for pictures learns that the folder that holds them cannot be listed."""
    found = Findings()
    assert str(found.nothing(Path("raw"), "no list", "expected a list.txt")) == (
        "raw: no list; expected a list.txt."
    )
    found.refuse(b"a", "the folder cannot be listed: Permission denied")
    found.refuse(b"b", "is broken")
    assert str(found.nothing(Path("raw"), "no list", "expected a list.txt")) == (
        "raw: no list; expected a list.txt. 2 raw items refused, such as a: the folder cannot be "
        "listed: Permission denied."
    )
