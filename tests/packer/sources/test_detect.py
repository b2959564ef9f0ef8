"""Which layout raw data has: told from what lies there, and never guessed in silence."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from packer.errors import AmbiguousFormatError, SourceError
from packer.sources import LAYOUTS, SourceOptions, scan_source
from packer.sources.detection.detect import detect, examine
from packer.sources.detection.found import UNREAD
from packer.sources.walk import PICTURE_TYPES
from tests.command import run_packer
from tests.packer.raw_files import COCO, VOC, write_files, write_texts

AUTO = SourceOptions()


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (["a/1.png", "b/1.png"], "imagefolder (folders with pictures: a, b); also seen: nothing"),
        (["a/x/1.png"], "imagefolder (folders with pictures: a); also seen: nothing"),
        (["a/x/y/z/1.png", "b/"], "imagefolder (folders with pictures: a); also seen: nothing"),
        (["0.png", "a/1.png"], "imagefolder (folders with pictures: a); also seen: nothing"),
        (
            ["train/a/1.png", "val/a/1.png", "notes.txt"],
            "imagefolder (splits train, val with class folders); "
            "also seen: 1 other file, not read: notes.txt",
        ),
        (
            ["train/a/b/c/d/1.png", "test/1.png"],
            "imagefolder (splits test, train with class folders); also seen: nothing",
        ),
        (
            ["train/1.png", "other/x/y/z/1.png"],
            "imagefolder (folders with pictures: other, train); also seen: nothing",
        ),
        (
            ["a/x/y/z/1.png", "a/x/y/w/", "a/x/w/", "a/w/"],
            "imagefolder (folders with pictures: a); also seen: nothing",
        ),
        (
            ["train/a/x/y/1.png", "train/a/x/w/", "train/a/w/", "train/w/"],
            "imagefolder (splits train with class folders); also seen: nothing",
        ),
        (["1.png", "2.JPG", "empty/"], "flat (2 pictures, in no folder); also seen: nothing"),
        (
            ["train/1.png", "val/1.png", "docs/"],
            "flat (splits train, val without class folders); also seen: nothing",
        ),
        (
            ["1.png", "raw.zip"],
            "flat (1 picture, in no folder); also seen: 1 other file, not read: raw.zip",
        ),
        (
            ["mask/1.png", "no_mask/1.png"],
            "imagefolder (folders with pictures: mask, no_mask); also seen: nothing",
        ),
    ],
)
def test_pictures_alone_are_class_folders_or_flat(names, line, tmp_path):
    """One line says what was taken, and why, and the scan holds it as its first note."""
    write_files(tmp_path, *names)
    detection = detect(tmp_path, AUTO)
    assert detection.line == f"format: {line}"
    assert detection.format == line.split()[0]
    found = scan_source(tmp_path, AUTO)
    assert found.format == detection.format
    assert found.notes[0] == detection.line


def test_a_list_beats_the_folders_that_it_names(tmp_path):
    """The list is read if its pictures are there; how many were is said."""
    write_files(tmp_path, "files/1.png", "files/2.png")
    write_texts(tmp_path, {"list.csv": "path,label\nfiles/1.png,a\nfiles/2.png,b\nfiles/3.png,b\n"})
    assert detect(tmp_path, AUTO).line == (
        "format: csv (list.csv: columns 'path' and 'label', 2 of 3 sampled paths are there); "
        "also seen: imagefolder (folders with pictures: files)"
    )
    assert detect(tmp_path / "list.csv", AUTO).format == "csv"
    assert len(scan_source(tmp_path, AUTO).items) == 2


def test_a_list_whose_pictures_are_elsewhere_is_not_dropped(tmp_path):
    """The message says where it was looked, and which root would do."""
    write_files(tmp_path, "imgs/1.png")
    write_texts(tmp_path, {"list.csv": "path,label\n1.png,a\n"})
    with pytest.raises(
        SourceError, match=f"lies in {tmp_path}. It lies in imgs/: give --root {tmp_path}/imgs"
    ):
        detect(tmp_path, AUTO)
    assert detect(tmp_path, SourceOptions(root=tmp_path / "imgs")).format == "csv"


def test_several_lists_are_not_chosen_from(tmp_path):
    """The message names them and says what to give."""
    write_files(tmp_path, "1.png")
    write_texts(tmp_path, {"a.csv": "path,label\n1.png,a\n", "b.csv": "path,label\n1.png,b\n"})
    with pytest.raises(SourceError, match=r"lists a\.csv, b\.csv\), but it is not clear which"):
        detect(tmp_path, AUTO)


NOT_READ = {
    "captions": (["1.png"], {"1.txt": "a photo of a cat\n"}, "sidecars"),
    "arrays beside pictures": (["1.png", "1.npy"], {}, "sidecars"),
    "images and annotations": (["images/1.png", "annotations/1.foo"], {}, "annotation-folders"),
    "Label Studio": (
        [],
        {"a.json": json.dumps([{"id": 1, "annotations": [{"result": []}]}])},
        "labelstudio",
    ),
    "VIA": (
        ["1.png"],
        {"v.json": json.dumps({"1.png9": {"regions": [{"shape_attributes": {}}]}})},
        "via",
    ),
    "CreateML": (
        ["1.png"],
        {"c.json": json.dumps([{"image": "1.png", "annotations": [{"coordinates": {}}]}])},
        "createml",
    ),
    "Datumaro": (
        ["images/1.png"],
        {"annotations/a.json": json.dumps({"categories": {}, "items": []})},
        "datumaro",
    ),
    "predictions": (
        [],
        {"r.json": json.dumps([{"image_id": 1, "category_id": 1, "score": 0.5}])},
        "coco-results",
    ),
    "no labels": (["1.png"], {"a.csv": "file_name,price\n1.png,4\n"}, "csv-other"),
    "TFRecord": (["a.tfrecord"], {}, "tfrecord"),
    "ICDAR": (["train/images/1.png", "train/gt_1.txt"], {}, "icdar"),
    "pixels": ([], {"a.csv": ",".join(f"p{n}" for n in range(200)) + "\n"}, "csv-pixels"),
    "arrays": (["a.npz"], {}, "npy"),
    "Segment Anything": (
        ["1.png"],
        {"a.json": json.dumps({"image": {}, "annotations": [{"segmentation": {}}]})},
        "segment-anything",
    ),
    "Supervisely": (
        ["img/1.png"],
        {"a.json": json.dumps({"objects": [{"classTitle": "a"}], "size": {}})},
        "supervisely",
    ),
    "CrowdHuman": (["1.png"], {"a.odgt": '{"ID": "1", "gtboxes": []}'}, "crowdhuman"),
    "MOT": (["s/img1/1.png"], {"s/gt/gt.txt": "1,1,1,1,2,2,1,1,1\n"}, "mot"),
    "SageMaker": (["1.png"], {"a.manifest": '{"source-ref": "s3://a/1.png"}'}, "sagemaker"),
    "LitData": (["chunk-0-0.bin"], {"index.json": '{"chunks": [], "config": {}}'}, "litdata"),
    "VoTT": (["1.png"], {"a.json": json.dumps({"assets": {}})}, "vott"),
    "parts of samples": (["A/1.png", "A/2.png", "B/1.png", "B/2.png"], {}, "sample-parts"),
    "splits in names": (["trainA/h1.png", "trainB/z1.png", "testA/h2.png"], {}, "split-names"),
}


@pytest.mark.parametrize(("names", "texts", "kind"), NOT_READ.values(), ids=NOT_READ.keys())
def test_annotations_that_no_source_reads_are_named_and_refused(names, texts, kind, tmp_path):
    """Pictures are packed without the annotations beside them only when that is asked for."""
    write_texts(write_files(tmp_path, *names), texts)
    with pytest.raises(SourceError) as caught:
        scan_source(tmp_path, AUTO)
    message = str(caught.value)
    name, advice = UNREAD[kind]
    assert message.startswith(f"{tmp_path}: this looks like {name} (")
    assert f"), which no source reads. {advice}. " in message
    if any(name.endswith(".png") for name in names):
        assert "--format flat (every picture, unlabelled)" in message
        assert scan_source(tmp_path, SourceOptions(format="flat")).items
    else:
        assert "There are no pictures to pack without it." in message


def test_every_format_that_is_not_read_is_met():
    """Each of them has advice of its own, which somebody must once have read."""
    assert {kind for _, _, kind in NOT_READ.values()} == UNREAD.keys()


def test_a_tie_lists_the_candidates_and_what_to_give(tmp_path):
    """Evidence of equal weight is the user's to weigh; the exact options are in the message."""
    write_files(tmp_path, "images/1.png", "masks/1.png")
    write_texts(tmp_path, {"list.csv": "path,label\nimages/1.png,a\n"})
    with pytest.raises(AmbiguousFormatError) as caught:
        detect(tmp_path, AUTO)
    assert str(caught.value).split("\n") == [
        f"{tmp_path}: more than one layout fits, and nothing may be dropped in silence:",
        "  mask-pairs: folders images, masks; 1 of 1 sampled pictures have a mask of their name; "
        "to take it give --format mask-pairs",
        "  csv: list.csv: columns 'path' and 'label', 1 of 1 sampled paths are there; "
        "to take it give --format csv",
        "To take none of these, give --format imagefolder (names of folders become labels) or "
        "--format flat (every picture, unlabelled), or the folder of the pictures you want.",
    ]


def test_a_tie_names_what_is_not_read_as_such(tmp_path):
    """A list beside arrays: one candidate can be taken, the other cannot."""
    write_files(tmp_path, "a/1.png", "a/1.npy")
    write_texts(tmp_path, {"list.csv": "path,label\na/1.png,a\n"})
    with pytest.raises(AmbiguousFormatError) as caught:
        detect(tmp_path, AUTO)
    lines = str(caught.value).split("\n")
    assert lines[1].endswith(
        "files of no known kind beside the pictures, of the same names, which no source reads"
    )
    assert lines[2].endswith("to take it give --format csv")


def test_a_list_without_labels_ties_with_class_folders(tmp_path):
    """It may be a choice among them, which is not made in silence."""
    write_files(tmp_path, "a/1.png", "b/1.png")
    write_texts(tmp_path, {"train.txt": "a/1.png\n"})
    with pytest.raises(AmbiguousFormatError) as caught:
        detect(tmp_path, AUTO)
    assert "in each line; but its lines have no label." in str(caught.value)
    assert "to take it give --format imagefolder" in str(caught.value)
    write_texts(tmp_path, {"train.txt": "x/1.png 0\n"})
    with pytest.raises(AmbiguousFormatError, match=r"no picture such as 'x/1\.png' lies in"):
        detect(tmp_path, AUTO)


def test_text_lists_that_are_no_splits_are_not_chosen_from(tmp_path):
    """The message names them and says what to give."""
    write_texts(write_files(tmp_path, "1.png"), {"a.txt": "1.png 0\n", "b.txt": "1.png 1\n"})
    with pytest.raises(SourceError, match=r"lists a\.txt, b\.txt\), but it is not clear which"):
        detect(tmp_path, AUTO)


@pytest.mark.parametrize(
    ("name", "text"),
    [("list.csv", "path,label\n1.png,a\n"), ("list.jsonl", '{"path": "1.png", "label": "a"}\n')],
)
def test_a_list_in_a_folder_below_is_to_be_given_itself(name, text, tmp_path):
    """Its source looks in the folder that was given, so the list would not be found."""
    write_texts(write_files(tmp_path, "data/1.png"), {f"data/{name}": text})
    with pytest.raises(SourceError, match="it does not lie in the folder that was given"):
        detect(tmp_path, AUTO)
    assert len(scan_source(tmp_path / "data" / name, AUTO).items) == 1


def test_json_that_is_no_annotation_does_not_stand_in_the_way(tmp_path):
    """A table of class names beside class folders is ignored, and said."""
    write_files(tmp_path, "a/1.png", "b/1.png")
    write_texts(tmp_path, {"class_to_idx.json": '{"a": 0, "b": 1}', "broken.json": '{"images'})
    assert detect(tmp_path, AUTO).line == (
        "format: imagefolder (folders with pictures: a, b); also seen: "
        "2 other files, not read: broken.json, class_to_idx.json"
    )


@pytest.mark.parametrize("names", [[], ["a.txt"], ["a/b/c/"], [".hidden/1.png"]])
def test_nothing_to_build_from_is_one_line(names, tmp_path):
    """It names the path and the types of picture that were looked for."""
    write_files(tmp_path, *names)
    for options in (AUTO, SourceOptions(format="flat"), SourceOptions(format="imagefolder")):
        with pytest.raises(SourceError) as caught:
            scan_source(tmp_path, options)
        assert str(caught.value) == (
            f"{tmp_path}: no pictures found; looked for {PICTURE_TYPES} in this folder and all "
            "folders below. Check the path."
        )


def test_a_path_that_is_not_there_is_one_line(tmp_path):
    """It names the path and what was expected at it."""
    with pytest.raises(SourceError) as caught:
        scan_source(tmp_path / "gone", AUTO)
    assert str(caught.value) == (
        f"{tmp_path}/gone: No such file or directory; expected a folder of pictures "
        f"({PICTURE_TYPES}) or a file of annotations. Check the path."
    )
    with pytest.raises(SourceError, match=r"root .*: there is no folder at this path"):
        scan_source(tmp_path, SourceOptions(root=tmp_path / "gone"))


def test_files_are_told_apart(tmp_path):
    """One that holds or names pictures is read; of others the message says what to give."""
    write_files(tmp_path, "1.png", "a.bin", "a.tar", "a.zip", "b-idx3-ubyte", "data_batch_1")
    write_texts(
        tmp_path,
        {
            "a.json": COCO,
            "a.csv": "path,label\n1.png,a\n",
            "a.jsonl": '{"path": "1.png"}\n',
            "a.txt": "1.png 0\n",
            "data.yaml": "train: images\nnames: [a]\n",
            "boxes.csv": "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n",
            "v.xml": VOC,
            "c.xml": "<annotations><version>1.1</version></annotations>",
            "dataset_dict.json": '{"splits": []}',
            "shapes.json": json.dumps({"shapes": [], "imagePath": "1.png"}),
            "assets.json": json.dumps({"assets": {}}),
        },
    )
    told = {
        **{"a.tar": "tar", "a.zip": "zip", "b-idx3-ubyte": "idx", "data_batch_1": "cifar"},
        **{"a.json": "coco", "a.csv": "csv", "a.jsonl": "jsonl", "a.txt": "txt-list"},
        "data.yaml": "yolo",
    }
    assert {name: examine(tmp_path / name).format for name in told} == told
    seen = "format: tar (the file a.tar itself); also seen: nothing"
    assert detect(tmp_path / "a.tar", AUTO).line == seen
    for name in ("v.xml", "c.xml", "boxes.csv", "shapes.json", "dataset_dict.json"):
        with pytest.raises(SourceError, match=r"one file is not enough\. Give the folder that ho"):
            scan_source(tmp_path / name, AUTO)
    with pytest.raises(SourceError, match=r"looks like VoTT .* as Pascal VOC or CSV\.$"):
        scan_source(tmp_path / "assets.json", AUTO)
    with pytest.raises(SourceError, match=r"1\.png is one picture; .*Give the folder"):
        scan_source(tmp_path / "1.png", AUTO)
    with pytest.raises(SourceError, match=r"a\.bin is a file of no known kind"):
        scan_source(tmp_path / "a.bin", AUTO)
    with pytest.raises(SourceError, match=r"is a file; format 'flat' expects a folder"):
        scan_source(tmp_path / "1.png", SourceOptions(format="flat"))


def test_options_that_do_not_fit_are_refused(tmp_path):
    """A mistyped format gets the close match; a root without a list would be ignored in silence."""
    write_files(tmp_path, "a/1.png")
    with pytest.raises(
        ValueError,
        match=r"auto, cifar, .*; got 'imagefoldr'\. Did you mean 'imagefolder'",
    ):
        scan_source(tmp_path, SourceOptions(format="imagefoldr"))
    with pytest.raises(SourceError, match="format 'imagefolder' names no pictures by path"):
        scan_source(tmp_path, SourceOptions(root=tmp_path))


def test_what_is_asked_for_is_not_looked_for(tmp_path):
    """A given format is taken as it is, even where annotations lie beside the pictures."""
    write_texts(write_files(tmp_path, "a/1.png"), {"a/1.xml": VOC})
    found = scan_source(tmp_path, SourceOptions(format="imagefolder"))
    assert found.classes == ("a",)
    assert found.notes[0] == "format: imagefolder (as asked for)"
    assert found.ignored.counts == {"not a picture": 1}


def test_rejects_alone_are_no_error_of_the_scan(tmp_path):
    """Whether a build may go on with nothing but rejects is for its limits to say."""
    (tmp_path / "1.png").symlink_to("gone")
    found = scan_source(tmp_path, AUTO)
    assert (found.items, len(found.rejects)) == ([], 1)


def test_a_circle_of_links_ends(tmp_path):
    """Neither the look nor the walk follows it for ever."""
    write_files(tmp_path, "a/b/")
    for name in ("up", "again"):  # Two double the paths with each turn.
        (tmp_path / "a/b" / name).symlink_to(tmp_path / "a")
    with pytest.raises(SourceError, match="no pictures found"):
        scan_source(tmp_path, AUTO)


# --- packer detect --------------------------------------------------------------------------------


def test_detect_prints_the_evidence_and_the_decision(tmp_path):
    """One line for each layout, the strongest first, and the line that a build prints."""
    write_texts(write_files(tmp_path, "a/1.png"), {"list.csv": "path,label\na/1.png,b\n"})
    done = run_packer("detect", tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:4] == [
        "format       score  seen",
        "csv             50  list.csv: columns 'path' and 'label', 1 of 1 sampled paths are there",
        "imagefolder     30  folders with pictures: a",
        detect(tmp_path, AUTO).line,
    ]


def test_detect_json_is_one_document(tmp_path):
    """The same facts for a program; a name that is not UTF-8 does not break it."""
    write_files(tmp_path, os.fsdecode(b"a\xe9/1.png"))
    done = run_packer("detect", tmp_path, "--json")
    assert (done.exit_code, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    document = json.loads(done.stdout)
    assert len(document.pop("not_chosen")) == len(LAYOUTS) - 1
    assert document == {
        "format": "imagefolder",
        "line": "format: imagefolder (folders with pictures: a\\xe9); also seen: nothing",
        "is_tie": False,
        "problem": None,
        "evidence": [
            {
                "format": "imagefolder",
                "score": 30,
                "seen": "folders with pictures: a\\xe9",
                "problem": "",
                "is_read": True,
            }
        ],
    }


def test_detect_fails_where_a_build_would(tmp_path):
    """Exit status 1, the table on stdout and the message of the build on stderr."""
    write_texts(write_files(tmp_path, "1.png"), {"a.json": json.dumps({"assets": {}})})
    done = run_packer("detect", tmp_path)
    assert done.exit_code == 1
    assert "vott       80  a.json has assets; no source reads it" in done.stdout.splitlines()
    assert done.stderr.startswith(f"Error: {tmp_path}: this looks like VoTT annotations (a.json")
    write_texts(tmp_path, {"a.json": "", "list.csv": "path,label\nx.png,b\n"})
    done = run_packer("detect", tmp_path)
    assert done.exit_code == 1
    assert "sampled paths are there; but no picture such as 'x.png' lies in" in done.stdout
    (tmp_path / "moved").mkdir()
    write_files(tmp_path, "moved/x.png")
    assert run_packer("detect", tmp_path, "--root", tmp_path / "moved").exit_code == 0
    done = run_packer("detect", tmp_path / "gone")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "No such file or directory" in done.stderr


def test_a_tie_is_exit_status_2(tmp_path):
    """As wrong usage is, for detect and build alike: --format is missing."""
    write_files(tmp_path / "raw", "images/1.png", "masks/1.png")
    write_texts(tmp_path / "raw", {"list.csv": "path,label\nimages/1.png,a\n"})
    done = run_packer("detect", tmp_path / "raw", "--json")
    assert done.exit_code == 2
    document = json.loads(done.stdout)
    assert (document["format"], document["line"], document["is_tie"]) == (None, None, True)
    assert document["problem"] == str(examine(tmp_path / "raw").error)
    assert "to take it give --format mask-pairs" in done.stderr
    done = run_packer("build", tmp_path / "raw", tmp_path / "out.lmdb")
    assert done.exit_code == 2
    assert "to take it give --format mask-pairs" in done.stderr
    assert not (tmp_path / "out.lmdb").exists()


def test_a_build_worker_starts_without_the_sources(run_apart):
    """It reads no raw tree; loading all layouts would cost each worker a tenth of a second."""
    loaded = run_apart("import packer.engines.worker, sys; print(*sys.modules)").split()
    assert "packer.engines.worker" in loaded
    modules = {layout.module for layout in LAYOUTS.values()}
    unneeded = {*modules, "yaml", "packer.sources.detection.detect"}
    assert not set(loaded) & unneeded


@pytest.fixture
def run_apart():
    def run(code):
        code = f"import sys; sys.path[:] = {sys.path!r}; {code}"
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
        )
        return done.stdout

    return run
