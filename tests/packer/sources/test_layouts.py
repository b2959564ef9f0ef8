"""The table of layouts: each trait of a row is what its source and the detection do."""

from __future__ import annotations

import csv
import dataclasses
import json
from inspect import signature
from itertools import combinations

import pytest

from packer.errors import SourceError
from packer.sources import LAYOUTS, SourceOptions, scan_source, source_named
from packer.sources.detection import content
from packer.sources.detection.detect import examine
from packer.sources.detection.evidence import FINDERS, LIST_FINDERS, collect_evidence
from packer.sources.detection.look import look_at
from packer.sources.layouts import Layout, layouts_of
from packer.sources.tar import TAR_EXTENSIONS
from tests.packer.raw_files import write_files, write_texts

EVERY = pytest.mark.parametrize("name", LAYOUTS)
AUTO = SourceOptions()


def _message(raw, options):
    """What a scan says when it refuses; empty when it does not."""
    try:
        scan_source(raw, options)
    except SourceError as error:
        return str(error)
    return ""


def _formats(raw):
    return {found.format for found in collect_evidence(look_at(raw), AUTO)}


@EVERY
def test_the_module_of_a_row_is_a_source_of_its_name(name):
    """The table and what each source calls itself are one thing."""
    source = source_named(name)
    assert source.name == name
    assert list(signature(source.scan).parameters) == ["raw", "options"]


def test_no_trait_has_a_default():
    """A row that does not state one is an error when the table is loaded, not taken as usual."""
    fields = dataclasses.fields(Layout)
    assert all(field.default is dataclasses.MISSING for field in fields)
    assert all(field.default_factory is dataclasses.MISSING for field in fields)
    whole = {field.name: getattr(LAYOUTS["coco"], field.name) for field in fields}
    for field in fields:
        with pytest.raises(TypeError, match=field.name):
            Layout(**{key: value for key, value in whole.items() if key != field.name})


@EVERY
def test_a_file_is_taken_by_those_that_say_so(name, tmp_path):
    """What is detected for a file must not be refused by the scan for being one."""
    path = tmp_path / "file.x"
    path.write_bytes(b"x")
    message = _message(path, SourceOptions(format=name))
    refusal = (
        f"{path} is a file; format {name!r} expects a folder of pictures. "
        "Give the folder that it lies in."
    )
    taken = {"coco", "yolo", "csv", "jsonl", "parquet", "txt-list", *layouts_of("archive")}
    assert (message != refusal) == (name in taken) == LAYOUTS[name].may_be_file


@EVERY
def test_turned_boxes_are_known_to_those_that_say_so(name, tmp_path):
    """Data that cannot have any is refused for them before it is read."""
    message = _message(write_files(tmp_path, "a/1.png"), SourceOptions(format=name, task="obb"))
    refusal = (
        f"{tmp_path}: task 'obb' packs the corners of turned boxes, and format {name!r} has none; "
        "those that have are coco, cvat, dota, labelme, voc, yolo. Leave --task out, or convert "
        "the data to one of these."
    )
    assert (message == refusal) == (not LAYOUTS[name].has_corners)


@EVERY
def test_those_of_pictures_alone_read_no_other_file(name, tmp_path):
    """A file beside the pictures is ignored, counted, and stops a build that was not asked for."""
    layout = LAYOUTS[name]
    assert bool(layout.meaning) == (layout.kind == "pictures")
    if layout.kind != "pictures":
        return
    raw = write_files(tmp_path, "a/1.png" if name == "imagefolder" else "1.png", "labels.mat")
    message = _message(raw, AUTO)
    assert f"To build without it, give --format {name} ({layout.meaning}), or move" in message
    found = scan_source(raw, SourceOptions(format=name))
    assert found.ignored.counts == {"not a picture": 1}


def _write_list(path, name):
    row = {"path": "1.png", "label": "a"}
    if name == "parquet":
        arrow = pytest.importorskip("pyarrow.parquet")
        table = pytest.importorskip("pyarrow").table({key: [row[key]] for key in row})
        arrow.write_table(table, path)
    elif name == "jsonl":
        path.write_text(json.dumps(row) + "\n")
    elif name == "txt-list":
        path.write_text("1.png a\n")
    else:
        with path.open("w", newline="") as file:
            rows = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            rows.writerows((row.keys(), row.values()))


LIST_ENDINGS = {
    "csv": (".csv", ".tsv"),
    "jsonl": (".jsonl", ".ndjson", ".jsonlines"),
    "parquet": (".parquet",),
    "txt-list": (".txt",),
}
ARCHIVE_ENDINGS = {
    "tar": (".tar", ".tgz", ".tar.gz"),
    "zip": (".zip",),
    "hf": (".arrow", ".parquet"),
    "idx": ("ubyte", "ubyte.gz"),
    "cifar": (),
    "lmdb": ("data.mdb", ".lmdb"),
    "ffcv": (".beton",),
    "mds": (".mds",),
}


@pytest.mark.parametrize(
    ("name", "ending"), [(name, end) for name, ends in LIST_ENDINGS.items() for end in ends]
)
def test_a_list_of_each_ending_is_found(name, ending, tmp_path):
    """In its folder and given itself, with and without --format."""
    path = write_files(tmp_path, "1.png") / f"list{ending}"
    _write_list(path, name)
    for raw in (tmp_path, path):
        for options in (AUTO, SourceOptions(format=name)):
            found = scan_source(raw, options)
            assert (found.format, len(found.items)) == (name, 1)


@pytest.mark.parametrize(
    ("name", "ending"), [(name, end) for name, ends in ARCHIVE_ENDINGS.items() for end in ends]
)
def test_an_archive_of_each_ending_is_told(name, ending, tmp_path):
    """By its name; of Parquet, whose columns decide, either layout is told."""
    told = _formats(write_files(tmp_path, f"a{ending}"))
    assert told == ({name} if ending != ".parquet" else {"parquet"})


def test_lists_and_archives_have_no_other_endings():
    """A file that is told by its ending and that its source does not look for would be lost."""
    for kind, endings in (("list", LIST_ENDINGS), ("archive", ARCHIVE_ENDINGS)):
        assert {name: LAYOUTS[name].endings for name in layouts_of(kind)} == endings
    assert ARCHIVE_ENDINGS["tar"] == tuple(ending.decode() for ending in TAR_EXTENSIONS)


FOLDERS = {
    "voc": ("annotations jpegimages",),
    "mask-pairs": ("segmentationclass", "ground_truth", "groundtruth", "imagestr labelstr"),
    "cityscapes": ("leftimg8bit gtfine", "leftimg8bit gtcoarse"),
    "dota": ("labeltxt", "labeltxt-v1.0", "labeltxt-v1.5", "labeltxt-v2.0"),
    "kitti": ("image_2 label_2",),
}


@EVERY
def test_the_folders_of_a_row_tell_it(name, tmp_path):
    """All of a group do, side by side or anywhere, and no fewer."""
    layout = LAYOUTS[name]
    groups = (*layout.folders_beside, *layout.folders_anywhere)
    assert groups == tuple(tuple(g.encode().split()) for g in FOLDERS.get(name, ()))
    for number, group in enumerate(groups):
        for count in range(len(group) + 1):
            for some in combinations(group, count):
                whole = any(set(other) <= set(some) for other in groups)
                for apart in (False, True):
                    raw = tmp_path / f"{number}-{b'-'.join(some).decode()}-{apart}"
                    names = [
                        f"{f'in {n}/' if apart else ''}{folder.decode()}/x/1.png"
                        for n, folder in enumerate(some)
                    ]
                    # Beside another, a folder is not passed through on the way to what it holds.
                    names += [f"in {n}/other/1.png" for n in range(len(some))]
                    told = name in _formats(write_files(raw, *names, "other/1.png"))
                    is_apart = apart and len(some) > 1 and some in layout.folders_beside
                    assert told == (whole and not is_apart), (some, apart)


@EVERY
def test_those_that_are_checked_have_a_check(name):
    """A row that says so and has none would fail in the midst of a build."""
    assert (name in content._CHECKS) == LAYOUTS[name].is_checked


@EVERY
def test_a_row_is_told_by_finders_that_there_are(name):
    """At least one; which one finds what is for tests of the detection."""
    assert LAYOUTS[name].told_by
    assert set(LAYOUTS[name].told_by) <= {*FINDERS, *LIST_FINDERS}


@pytest.mark.parametrize(
    ("name", "ending"), [(n, end) for n in LAYOUTS for end in LAYOUTS[n].not_alone]
)
def test_a_file_without_data_is_not_enough(name, ending, tmp_path):
    """It tells the layout and is sent to its folder."""
    write_texts(tmp_path, {f"dataset_dict{ending}": '{"splits": []}'})
    message = _message(tmp_path / f"dataset_dict{ending}", AUTO)
    assert f"this looks like {name} (" in message
    assert "one file is not enough. Give the folder that holds it and its pictures." in message


@pytest.mark.parametrize("name", layouts_of("archive"))
def test_those_that_say_so_are_read_before_detect_answers(name, tmp_path, monkeypatch):
    """Detect says of them what a build would; of others it looks at names alone."""
    read = []

    def scan(raw, options):
        read.append(raw)
        raise SourceError("no build takes it")

    monkeypatch.setattr(source_named(name), "scan", scan)
    ending = LAYOUTS[name].endings[0] if LAYOUTS[name].endings else ".bin"
    found = examine(write_files(tmp_path, f"data_batch_1{ending}"))
    assert found.format == name
    assert LAYOUTS[name].is_read_to_tell == (name in ("tar", "zip"))
    assert read == ([tmp_path] if LAYOUTS[name].is_read_to_tell else [])
    assert str(found.error) == ("no build takes it" if read else "None")
