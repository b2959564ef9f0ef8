"""Why a layout was not chosen: of every one, what it needs and what was found instead."""

from __future__ import annotations

import json

import pytest

from packer.sources import LAYOUTS
from packer.sources.detection.detect import examine
from tests.command import run_packer
from tests.packer.raw_files import COCO, VOC, write_files, write_texts

ANSWERS = json.dumps({"answers": [], "images": []})

MISSING = {
    "class folders": (["1.png", "2.png"], {}, "imagefolder", "2 pictures, in no folder"),
    "no class folders": (["a/1.png"], {}, "flat", "folders with pictures: a"),
    "no pictures": ([], {"a.txt": "x"}, "flat", "no pictures"),
    "no JSON": (["1.png"], {}, "coco", "no *.json file"),
    "other JSON": (
        ["1.png"],
        {"a.json": ANSWERS},
        "coco",
        "a.json has the keys 'answers', 'images'",
    ),
    "a list in JSON": (
        ["1.png"],
        {"a.json": '[{"a": 1}]'},
        "labelme",
        "a.json has a list with the keys 'a'",
    ),
    "JSON of another": (["1.png"], {"a.json": COCO}, "labelme", "a.json is of coco"),
    "XML of another": (["1.png"], {"1.xml": VOC}, "cvat", "1.xml is of voc"),
    "other XML": (
        ["1.png"],
        {"a.xml": '<?xml version="1.0"?>\n<!-- <a> --><notes/>'},
        "cvat",
        "a.xml has the root <notes>",
    ),
    "no XML": (["1.png"], {"a.xml": "hello"}, "cvat", "a.xml is not XML"),
    "half of VOC": (
        ["Annotations/1.txt", "images/1.png"],
        {},
        "voc",
        "there is Annotations, but no folder jpegimages, and no *.xml file",
    ),
    "half of Cityscapes": (
        ["x/leftImg8bit/train/1.png"],
        {},
        "cityscapes",
        "there is leftImg8bit, but no folder gtfine",
    ),
    "no KITTI": (["1.png"], {}, "kitti", "no such folder"),
    "folders apart": (
        ["a/Annotations/1.txt", "a/x/1.png", "b/JPEGImages/1.png"],
        {},
        "voc",
        "Annotations and JPEGImages do not lie side by side, and no *.xml file",
    ),
    "no columns": (
        ["1.png"],
        {"a.csv": "x,y\n7,8\n"},
        "csv",
        "a.csv has no column of paths among 'x', 'y'",
    ),
    "no labels": (
        ["1.png"],
        {"a.csv": "path,price\n1.png,2\n"},
        "csv",
        "a.csv says nothing of its pictures in 'path', 'price'",
    ),
    "half of Open Images": (
        ["1.png"],
        {"a.csv": "ImageID,LabelName,XMin,xmax\n1,a,0,1\n"},
        "open-images",
        "a.csv has no column 'YMin', 'YMax'",
    ),
    "other lines": (
        ["1.png"],
        {"a.jsonl": '\n{"x": 1}\n'},
        "jsonl",
        "a.jsonl begins with '{\"x\": 1}'",
    ),
    "a long line": (["1.png"], {"a.txt": "y" * 99}, "txt-list", f"a.txt begins with '{'y' * 40}'"),
    "an empty file": (["1.png"], {"a.txt": " \n"}, "yolo", "a.txt is empty"),
    "many files": (
        ["1.png"],
        {f"{n}.txt": f"note {n}" for n in range(30, 60)},
        "txt-list",
        "none of the first 20 of 30 *.txt files; the first: 30.txt begins with 'note 30'",
    ),
    "an archive beside pictures": (
        ["1.png", "a.tar.gz"],
        {},
        "tar",
        "a.tar.gz lies beside pictures, and those alone are taken",
    ),
    "no archive": (["1.png"], {}, "idx", "no *ubyte or *ubyte.gz file"),
    "no CIFAR": (["1.png"], {}, "cifar", "no such file"),
    "no faces": (["1.png"], {"a_gt.txt": "x"}, "wider", "no *_bbx_gt.txt file"),
}


@pytest.mark.parametrize(("names", "texts", "name", "reason"), MISSING.values(), ids=MISSING)
def test_what_is_missing_is_said_of_each_layout(names, texts, name, reason, tmp_path):
    """What was looked for and not found, in the terms of the layout."""
    found = examine(write_texts(write_files(tmp_path, *names), texts))
    others = {other.format: other for other in found.others}
    assert others[name].reason == reason
    assert others[name].text == f"needs {LAYOUTS[name].requires}; {reason}"
    assert not others[name].is_seen


def test_every_layout_but_the_chosen_one_has_a_line(tmp_path):
    """After all that detect prints otherwise, by the order of --format; in JSON as well."""
    write_texts(write_files(tmp_path, "a/1.png"), {"list.csv": "path,label\na/1.png,b\n"})
    done = run_packer("detect", tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[3].startswith("format: csv (")
    assert lines[4] == "not chosen:"
    names = [name for name in LAYOUTS if name != "csv"]
    assert [line.split()[0] for line in lines[5:]] == names
    assert lines[5] == (
        "  imagefolder  folders with pictures: a, but csv is more certain, 50 over 30"
    )
    assert lines[7] == f"  coco         needs {LAYOUTS['coco'].requires}; no *.json file"
    document = json.loads(run_packer("detect", tmp_path, "--json").stdout)
    assert [other["format"] for other in document["not_chosen"]] == names
    assert document["not_chosen"][2] == {
        "format": "coco",
        "requires": LAYOUTS["coco"].requires,
        "is_seen": False,
        "reason": "no *.json file",
    }


def test_of_a_tie_each_layout_says_what_fits_as_well(tmp_path):
    """Neither was chosen; what is weaker says so."""
    write_files(tmp_path, "images/1.png", "masks/1.png")
    write_texts(tmp_path, {"list.csv": "path,label\nimages/1.png,a\n"})
    found = examine(tmp_path)
    assert found.is_tie
    assert [other.format for other in found.others] == list(LAYOUTS)
    reasons = {other.format: other.reason for other in found.others if other.is_seen}
    assert reasons.keys() == {"mask-pairs", "csv", "imagefolder"}
    assert reasons["mask-pairs"].endswith("have a mask of their name, but csv fits as well")
    assert reasons["csv"].endswith("paths are there, but mask-pairs fits as well")
    assert reasons["imagefolder"].endswith(", but mask-pairs is more certain, 60 over 30")


def test_what_is_wrong_with_a_layout_is_said_of_it(tmp_path):
    """A problem of its content, a kind that no source reads, a file beside it that says more."""
    write_texts(write_files(tmp_path / "a", "JPEGImages/2.png"), {"Annotations/1.xml": VOC})
    voc = next(x for x in examine(tmp_path / "a").others if x.format == "voc")
    assert voc.is_seen
    assert ", but not one of 1 annotation file, such as Annotations/1.xml, has a pict" in voc.reason
    write_texts(write_files(tmp_path / "b", "1.png"), {"a.json": json.dumps({"assets": {}})})
    flat = next(x for x in examine(tmp_path / "b").others if x.format == "flat")
    assert flat.reason == (
        "1 picture, in no folder, but vott (which no source reads) is more certain, 80 over 10"
    )
    write_texts(write_files(tmp_path / "c", "1.png"), {"notes.json": json.dumps({"1.png": "a"})})
    found = examine(tmp_path / "c")
    assert "notes.json names 1 of 1 pictures" in str(found.error)
    flat = next(x for x in found.others if x.format == "flat")
    assert flat.reason == "1 picture, in no folder, but other files say more than it reads"


def test_where_nothing_is_found_every_layout_says_why(tmp_path):
    """A user whose data is of one of them sees what is missing. The status is that of a build."""
    write_texts(tmp_path, {"a.json": ANSWERS})
    done = run_packer("detect", tmp_path)
    assert done.exit_code == 1
    assert done.stdout.splitlines()[0] == "not chosen:"
    assert len(done.stdout.splitlines()) == 1 + len(LAYOUTS)
    assert "a.json has the keys 'answers', 'images'" in done.stdout
    assert f"Error: {tmp_path}: no pictures found" in done.stderr
    done = run_packer("detect", tmp_path, "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["format"], document["evidence"]) == (1, None, [])
    assert document["problem"].startswith(f"{tmp_path}: no pictures found")


def test_one_file_is_held_against_those_that_take_one(tmp_path):
    """Of others it is said that they are read from a folder."""
    write_texts(tmp_path, {"a.json": ANSWERS, "b.json": COCO})
    reasons = {other.format: other.reason for other in examine(tmp_path / "a.json").others}
    assert reasons.keys() == LAYOUTS.keys()
    assert reasons["coco"] == "a.json has the keys 'answers', 'images'"
    assert reasons["zip"] == "a.json is not called *.zip"
    assert reasons["cifar"] == "no such file"
    for name, layout in LAYOUTS.items():
        is_refused = reasons[name] == "one file was given, and this is read from a folder"
        assert is_refused == (not layout.may_be_file)
    done = run_packer("detect", tmp_path / "b.json")
    assert done.exit_code == 0
    assert (
        "  zip          needs zip archives of pictures; b.json is not called *.zip" in done.stdout
    )


def test_names_that_are_not_text_are_printed(tmp_path):
    """A file whose name or first line is not UTF-8 breaks neither form."""
    write_files(tmp_path, "1.png")
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00\x1b[31m\n")
    (tmp_path / "a\udce9.xml").write_bytes(b"\xff<\xe9")
    for arguments in ((), ("--json",)):
        done = run_packer("detect", tmp_path, *arguments)
        assert done.stdout.isascii() or done.stdout.encode("utf-8")
        assert "\x1b" not in done.stdout
