"""Which layout raw data has: told from what lies there, and never guessed in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packer.errors import SourceError
from packer.sources import SOURCES, SourceOptions, detect, scan_source
from packer.sources.detection.evidence import NOT_READ_YET
from packer.sources.detection.json_outline import read_json_outline
from packer.sources.walk import PICTURE_TYPES

COCO = json.dumps(
    {"info": {}, "images": [{"file_name": "1.png"}], "annotations": [], "categories": []}
)
VOC = "<annotation><size><width>4</width></size><object><name>a</name></object></annotation>"
YOLO = "0 0.5 0.5 0.25 0.25\n"


def write_files(root: Path, *names: str) -> Path:
    """Files of as many bytes as their name has letters; a name with a slash last is a folder."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(b"x" * len(name))
    return root


def write_texts(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


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
            "also seen: 1 other files, not read: notes.txt",
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
            "flat (1 pictures, in no folder); also seen: 1 other files, not read: raw.zip",
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


UNREAD = {
    "a COCO json beside pictures": (["1.png"], {"result.json": COCO}, "coco"),
    "COCO annotations": (["val2017/1.png"], {"annotations/instances_val2017.json": COCO}, "coco"),
    "Roboflow COCO": (["train/1.png"], {"train/_annotations.coco.json": COCO}, "coco"),
    "only a COCO json": ([], {"a.json": COCO}, "coco"),
    "VOC": (
        ["JPEGImages/1.png"],
        {"Annotations/1.xml": VOC, "ImageSets/Main/train.txt": "1\n"},
        "voc",
    ),
    "VOC without xml": (
        ["VOCdevkit/VOC2012/JPEGImages/1.png", "VOCdevkit/VOC2012/Annotations/"],
        {},
        "voc",
    ),
    "VOC below other folders": (
        ["unpacked/VOCdevkit/VOC2012/JPEGImages/1.png"],
        {"unpacked/VOCdevkit/VOC2012/Annotations/1.xml": VOC},
        "voc",
    ),
    "xml beside pictures": (["train/1.png"], {"train/1.xml": VOC}, "voc"),
    "VOC and a list of its boxes": (
        ["images/1.png"],
        {"annotations/1.xml": VOC, "labels.csv": "filename,class,xmin\n1.png,a,1\n"},
        "voc",
    ),
    "data.yaml": (["images/train/1.png"], {"data.yaml": "train: images\nnames: [a]\n"}, "yolo"),
    "darknet": (["obj/1.png"], {"obj.data": "classes = 1\nnames = obj.names\n"}, "yolo"),
    "txt beside pictures": (["1.png"], {"1.txt": YOLO}, "yolo"),
    "txt in class folders": (["a/1.png", "b/1.png"], {"b/1.txt": YOLO}, "yolo"),
    "images and labels": (["images/1.png"], {"labels/1.txt": YOLO}, "yolo"),
    "captions": (["1.png"], {"1.txt": "a photo of a cat\n"}, "sidecars"),
    "arrays beside pictures": (["1.png", "1.npy"], {}, "sidecars"),
    "images and masks": (["images/1.png", "masks/1.png"], {}, "mask-pairs"),
    "images and masks in splits": (["train/Images/1.png", "train/Labels/1.png"], {}, "mask-pairs"),
    "folders with a suffix": (["train/1.png", "trainannot/1.png"], {}, "mask-pairs"),
    "files with a suffix": (["a/1.png", "a/1_seg.png"], {}, "mask-pairs"),
    "defects": (["screw/test/good/1.png", "screw/ground_truth/bent/1.png"], {}, "mask-pairs"),
    "images and annotations": (["images/1.png", "annotations/1.foo"], {}, "annotation-folders"),
    "Cityscapes": (["leftImg8bit/train/a/1.png", "gtFine/train/a/1.png"], {}, "cityscapes"),
    "KITTI": (["training/image_2/1.png", "training/label_2/1.txt"], {}, "kitti"),
    "DOTA": (["train/images/1.png", "train/labelTxt/1.txt"], {}, "dota"),
    "LabelMe": (
        ["1.png"],
        {"1.json": json.dumps({"shapes": [], "imagePath": "1.png", "imageData": "x" * 100_000})},
        "labelme",
    ),
    "LabelMe xml": (
        ["Images/1.png"],
        {"Annotations/1.xml": "<annotation><object><polygon><pt/></polygon></object></annotation>"},
        "labelme",
    ),
    "CVAT": (
        ["images/1.png"],
        {"train.xml": "<annotations><version>1.1</version></annotations>"},
        "cvat",
    ),
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
    "Open Images": (
        ["images/1.png"],
        {"annotations/a.csv": "ImageID,Source,LabelName,XMin\n"},
        "open-images",
    ),
    "a list of boxes": (["images/1.png"], {"a.csv": "filename,xmin,xmax,ymin,ymax\n"}, "csv-boxes"),
    "one-hot": (
        ["train/1.png"],
        {"train/_classes.csv": "filename, a, b\n1.png, 1, 0\n"},
        "csv-multilabel",
    ),
    "no labels": (["1.png"], {"a.csv": "file_name,caption\n1.png,a cat\n"}, "csv-other"),
    "JSON lines": (["imgs/1.png"], {"m.jsonl": '{"image": "imgs/1.png"}\n'}, "jsonl"),
    "HF metadata": (["train/1.png"], {"train/metadata.jsonl": '{"file_name": "1.png"}\n'}, "hf"),
    "HF saved": (["train/data-0.arrow"], {"dataset_dict.json": '{"splits": ["train"]}'}, "hf"),
    "Parquet": (["data/train-00000-of-00001.parquet"], {}, "parquet"),
    "tar": (["a-000000.tar", "a-000001.tar"], {}, "tar"),
    "zip": (["a.zip"], {}, "zip"),
    "TFRecord": (["a.tfrecord"], {}, "tfrecord"),
    "IDX": (["train-images-idx3-ubyte.gz"], {}, "idx"),
    "CIFAR": (["cifar/data_batch_1", "cifar/batches.meta"], {}, "cifar"),
    "WIDER": (["WIDER_train/images/0--a/1.png", "split/wider_face_train_bbx_gt.txt"], {}, "wider"),
    "ICDAR": (["train/images/1.png", "train/gt_1.txt"], {}, "icdar"),
    "a text list": (["1.png"], {"train.txt": "1.png 0\n"}, "txt-list"),
}


@pytest.mark.parametrize(("names", "texts", "kind"), UNREAD.values(), ids=UNREAD.keys())
def test_annotations_that_no_source_reads_are_named_and_refused(names, texts, kind, tmp_path):
    """Pictures are packed without the annotations beside them only when that is asked for."""
    write_texts(write_files(tmp_path, *names), texts)
    with pytest.raises(SourceError) as caught:
        scan_source(tmp_path, AUTO)
    message = str(caught.value)
    assert f"this looks like {NOT_READ_YET[kind]} (" in message
    if any(name.endswith(".png") for name in names):
        assert "--format flat (every picture, unlabelled)" in message
        assert scan_source(tmp_path, SourceOptions(format="flat")).items
    else:
        assert "There are no pictures to pack without it." in message


def test_every_format_is_read_or_refused():
    """A format has a source or a name in the list of those that have none, never both."""
    assert NOT_READ_YET.keys().isdisjoint(SOURCES)
    assert {kind for _, _, kind in UNREAD.values()} <= NOT_READ_YET.keys()


def test_a_tie_lists_the_candidates_and_what_to_give(tmp_path):
    """Evidence of equal weight is the user's to weigh; the exact options are in the message."""
    write_files(tmp_path, "images/1.png", "masks/1.png")
    write_texts(tmp_path, {"list.csv": "path,label\nimages/1.png,a\n"})
    with pytest.raises(SourceError) as caught:
        detect(tmp_path, AUTO)
    assert str(caught.value).split("\n") == [
        f"{tmp_path}: more than one layout fits, and nothing may be dropped in silence:",
        "  mask-pairs: folders images, masks; pictures with masks, not read by this release yet",
        "  csv: list.csv: columns 'path' and 'label', 1 of 1 sampled paths are there; "
        "to take it give --format csv",
        "To leave it aside, give --format csv (the list) or --format imagefolder (names of folders "
        "become labels) or --format flat (every picture, unlabelled), or the folder of the "
        "pictures you want.",
    ]


def test_one_annotation_file_among_many_pictures_is_seen(tmp_path):
    """Names are read in full: the file that decides may be the last of a large folder."""
    write_files(tmp_path, *(f"train/{n:04d}.png" for n in range(1000)))
    write_texts(tmp_path, {"train/zz.json": COCO})
    with pytest.raises(SourceError, match="this looks like COCO"):
        detect(tmp_path, AUTO)


def test_json_that_is_no_annotation_does_not_stand_in_the_way(tmp_path):
    """A table of class names beside class folders is ignored, and said."""
    write_files(tmp_path, "a/1.png", "b/1.png")
    write_texts(tmp_path, {"class_to_idx.json": '{"a": 0, "b": 1}', "broken.json": '{"images'})
    assert detect(tmp_path, AUTO).line == (
        "format: imagefolder (folders with pictures: a, b); also seen: "
        "2 other files, not read: broken.json, class_to_idx.json"
    )


def test_keys_of_a_json_longer_than_what_is_read(tmp_path):
    """The images of a large COCO file take more than the first 64 kB; keys after them are found."""
    images = [
        {"id": n, "file_name": f"{n:012d}.jpg", "note": '"annotations": ['} for n in range(4000)
    ]
    document = {
        "info": "images of 2017",
        "images": images,
        "annotations": [{"id": 1}],
        "categories": [],
    }
    path = tmp_path / "a.json"
    path.write_text("\ufeff" + json.dumps(document))
    assert path.stat().st_size > 2**17
    outline = read_json_outline(str(path).encode())
    assert not outline.is_list
    assert outline.keys == {"info", "images", "annotations", "categories"}
    path.write_text(json.dumps([{"id": 1, "result": [{"x": 1}]}]))
    outline = read_json_outline(str(path).encode())
    assert (outline.is_list, outline.keys, outline.inner_keys) == (True, {"id", "result"}, {"x"})
    assert read_json_outline(b"/nowhere/a.json").keys == frozenset()


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
        f"({PICTURE_TYPES}) or a .csv or .tsv list. Check the path."
    )
    with pytest.raises(SourceError, match=r"root .*: there is no folder at this path"):
        scan_source(tmp_path, SourceOptions(root=tmp_path / "gone"))


def test_files_are_told_apart(tmp_path):
    """A list is read; a picture, an archive and a COCO file are refused by name."""
    write_files(tmp_path, "1.png", "a.tar", "a.bin")
    write_texts(tmp_path, {"a.json": COCO})
    with pytest.raises(SourceError, match=r"1\.png is one picture; .*Give the folder"):
        scan_source(tmp_path / "1.png", AUTO)
    with pytest.raises(SourceError, match="this looks like tar shards"):
        scan_source(tmp_path / "a.tar", AUTO)
    with pytest.raises(SourceError, match="this looks like COCO"):
        scan_source(tmp_path / "a.json", AUTO)
    with pytest.raises(SourceError, match=r"a\.bin is a file of no known kind"):
        scan_source(tmp_path / "a.bin", AUTO)
    with pytest.raises(SourceError, match=r"is a file; format 'flat' expects a folder"):
        scan_source(tmp_path / "1.png", SourceOptions(format="flat"))


def test_options_that_do_not_fit_are_refused(tmp_path):
    """A mistyped format gets the close match; a root without a list would be ignored in silence."""
    write_files(tmp_path, "a/1.png")
    with pytest.raises(
        ValueError,
        match=r"auto, csv, flat, imagefolder; got 'imagefoldr'; did you mean 'imagefolder'",
    ):
        scan_source(tmp_path, SourceOptions(format="imagefoldr"))
    with pytest.raises(SourceError, match="format 'imagefolder' reads no list"):
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
