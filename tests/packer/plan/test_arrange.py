"""Which items are stored, in which split and order: by their keys, and with an account of the
rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packer.building.build import build
from packer.errors import SourceError
from packer.items.raw_item import RawItem, Reject, Scan
from packer.plan.arrange import EXCLUDED, NOT_INCLUDED, OVER_LIMIT, arranged
from packer.recipe import Recipe
from readers.store.manifest import read_manifest
from readers.store.reader import open_store
from readers.store.record import RecordReader
from readers.store.schema import Field

LABEL = Field(name="label", kind="label", dtype="int64", names=("ant", "bee"))
HALVES = (("train", 0.8), ("val", 0.2))


def scan_of(count, *, folder="a", labels=None, **changes):
    """Items `folder/N.jpg`; one in four is a bee."""
    items = []
    for at in range(count):
        key = b"%s/%d.jpg" % (folder.encode(), at)
        values = {"label": int(at % 4 == 0)} if labels else {}
        items.append(RawItem(key, key, 10, 0, values))
    fields = (LABEL,) if labels else ()
    return Scan(format="flat", root=Path("raw"), items=items, fields=fields, **changes)


def keys(scan):
    return [item.key.decode() for item in scan.items]


def split_of(scan):
    return {item.key: item.values["split"] for item in scan.items}


def test_without_settings_a_scan_stays_as_it_is():
    """Not copied, not counted anew."""
    scan = scan_of(5)
    assert arranged(scan, Recipe()) is scan


def test_patterns_are_held_against_the_whole_key():
    """Any of several; a star crosses folders; case counts; what is left out has a reason."""
    scan = scan_of(12)
    found = arranged(scan, Recipe(include=("a/1*", "*2.jpg")))
    assert keys(found) == ["a/1.jpg", "a/2.jpg", "a/10.jpg", "a/11.jpg"]
    assert found.ignored.counts == {NOT_INCLUDED: 8}
    found = arranged(scan, Recipe(include=("*1*",), exclude=("a/1[01].jpg", "A/*")))
    assert keys(found) == ["a/1.jpg"]
    assert found.ignored.counts == {NOT_INCLUDED: 9, EXCLUDED: 2}
    assert scan.ignored.counts == {}
    assert found.ignored.examples[EXCLUDED] == ["a/10.jpg", "a/11.jpg"]


def test_names_that_are_no_utf8_can_be_matched():
    """They are what people want to leave out."""
    scan = scan_of(2)
    scan.items.append(RawItem(b"a/caf\xe9.jpg", b"a/caf\xe9.jpg", 1, 0))
    assert keys(arranged(scan, Recipe(exclude=("a/caf?.jpg",)))) == ["a/0.jpg", "a/1.jpg"]


def test_rejects_of_what_is_left_out_are_ignored_with_it():
    """A broken file that the user has excluded must not stop his build."""
    rejects = [Reject(key=b"a/bad.jpg", path="a/bad.jpg", reason="broken")]
    notes = [Reject(key=b"a/1.jpg", path="x", reason="y"), Reject(key=b"", path="z", reason="w")]
    scan = scan_of(3, rejects=rejects, annotation_rejects=notes)
    found = arranged(scan, Recipe(exclude=("*bad*", "a/1.jpg")))
    assert found.rejects == []
    assert found.annotation_rejects == notes[1:]
    assert found.ignored.counts == {EXCLUDED: 2}
    # A limit is about what there is to store: what is broken is told all the same.
    assert arranged(scan, Recipe(limit=1)).rejects == rejects


def test_nothing_left_is_an_error():
    """With the place and the way to write patterns."""
    with pytest.raises(SourceError, match=r"none of 3 images is left.*'train/\*'"):
        arranged(scan_of(3), Recipe(include=("b/*",)))


def test_a_limit_draws_by_keys_and_keeps_the_order():
    """So many exactly; a smaller limit is a part of a larger one; more data changes little."""
    scan = scan_of(200)
    found = {count: keys(arranged(scan, Recipe(limit=count))) for count in (20, 50, 200, 500)}
    assert [len(names) for names in found.values()] == [20, 50, 200, 200]
    assert set(found[20]) < set(found[50])
    assert found[50] == [key for key in keys(scan) if key in found[50]]
    assert arranged(scan, Recipe(limit=20)).ignored.counts == {OVER_LIMIT: 180}
    more = keys(arranged(scan_of(220), Recipe(limit=20)))
    assert len(set(more) & set(found[20])) >= 15


def test_a_limit_can_keep_the_shares_of_classes():
    """A quarter are bees, and a quarter of the few that are kept."""
    scan = scan_of(400, labels=True)
    found = arranged(scan, Recipe(limit=40, stratify=True))
    assert sum(item.values["label"] for item in found.items) == 10
    assert len(found.items) == 40


def test_splits_are_drawn_by_keys_and_stay_when_data_is_added():
    """Near their shares; whoever was in training stays there, for good."""
    few, many = (arranged(scan_of(n), Recipe(splits=HALVES)) for n in (1000, 3000))
    assert few.splits == ("train", "val")
    assert few.fields[-1] == Field(
        name="split", kind="scalar", dtype="uint8", names=("train", "val")
    )
    assert abs(sum(split_of(few).values()) - 200) < 40
    assert split_of(few).items() <= split_of(many).items()
    # And not by what decides about the form or the limit.
    some = arranged(scan_of(1000), Recipe(splits=HALVES, limit=200))
    assert abs(sum(split_of(some).values()) - 40) < 20


def test_stratified_splits_are_exact_in_each_class():
    """To the image, for rare classes above all."""
    found = arranged(scan_of(400, labels=True), Recipe(splits=HALVES, stratify=True))
    counts = {
        label: sum(i.values["split"] for i in found.items if i.values["label"] == label)
        for label in (0, 1)
    }
    assert counts == {0: 60, 1: 20}


def test_splits_of_the_raw_data_are_not_overwritten():
    """Only one of them may be divided anew."""
    field = Field(name="split", kind="scalar", dtype="uint8", names=("train", "test"))
    items = [RawItem(b"%d" % at, b"%d" % at, 1, 0, {"split": at % 2}) for at in range(100)]
    scan = Scan(format="flat", root=Path(), items=items, fields=(field,), splits=("train", "test"))
    with pytest.raises(SourceError, match=r"has its own: 'train', 'test'.*--split"):
        arranged(scan, Recipe(splits=HALVES))
    one = Scan(
        format="flat", root=Path(), items=items[::2], fields=(field,), splits=("train", "test")
    )
    found = arranged(one, Recipe(splits=HALVES))
    assert [f.names for f in found.fields] == [("train", "val")]
    assert {item.values["split"] for item in found.items} == {0, 1}


def test_stratify_needs_a_label():
    """Boxes have many classes an image."""
    with pytest.raises(SourceError, match="no label each"):
        arranged(scan_of(9), Recipe(splits=HALVES, stratify=True))


def test_a_shuffled_order_follows_from_its_seed():
    """All items, in an order of their own for each seed, whatever order the source gave."""
    scan = scan_of(100)
    first, again, other = (keys(arranged(scan, Recipe(shuffle=seed))) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert sorted(first) == sorted(keys(scan)) != first
    scan.items.reverse()
    assert keys(arranged(scan, Recipe(shuffle=3))) == first
    # Seeds that begin alike are seeds of their own.
    long = [keys(arranged(scan, Recipe(shuffle=10**18 + n))) for n in (0, 1)]
    assert long[0] != long[1]


def test_a_build_stores_what_was_chosen(tmp_path, raw, packer):
    """From the command line to the manifest: found = stored + rejected + ignored."""
    out = tmp_path / "out.lmdb"
    options = ("--exclude", "bee/*", "--limit", "6", "--splits", "train=0.5,val=0.5", "--stratify")
    done = packer("build", raw, out, *options, "--shuffle", "7", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["sample_count"] == 6
    assert report["ignored"] == {EXCLUDED: 4, OVER_LIMIT: 2}
    assert report["found_count"] == 12
    assert sum(report["splits"].values()) == 6
    manifest = read_manifest(out)
    assert manifest.recipe["splits"] == [["train", 0.5], ["val", 0.5]]
    store = open_store(out)
    reader = RecordReader(store.layout, ["key"])
    shard = next(store.shards())
    stored = [reader.unpack(shard.record(at))["key"] for at in range(6)]
    assert stored != sorted(stored)
    again = build(raw, tmp_path / "again.lmdb", Recipe(**manifest.recipe), worker_count=1)
    assert again.content_sha256 == report["content_sha256"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--splits", "train"), "'train' is not a split with its share"),
        (("--splits", "train=0.9,val=0.2"), "shares above 0 that add up to 1"),
        (("--stratify",), "is about splits or limit"),
    ],
)
def test_wrong_choices_are_usage_errors(tmp_path, raw, packer, options, message):
    """Status 2, before anything is read."""
    done = packer("build", raw, tmp_path / "out.lmdb", *options)
    assert done.returncode == 2
    assert message in done.stderr
