"""Files beside pictures that say something about them are read, or stop the build by name."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from packer.errors import SourceError
from packer.sources import SourceOptions, scan_source
from packer.sources.detection.detect import examine
from packer.sources.detection.promises import broken_promise
from tests.packer.conftest import draw_tree
from tests.packer.raw_files import VOC, YOLO, write_texts

AUTO = SourceOptions()
STEMS = [f"img{n:02}" for n in range(4)]
NAMES = [f"{stem}.png" for stem in STEMS]
COCO_OF_ALL = {
    "images": [
        {"id": n, "file_name": name, "width": 24, "height": 16} for n, name in enumerate(NAMES)
    ],
    "annotations": [
        {"id": n, "image_id": n, "category_id": 1, "bbox": [1, 2, 5, 6], "area": 30, "iscrowd": 0}
        for n in range(4)
    ],
    "categories": [{"id": 1, "name": "a"}],
}


def _lines(form: str, names: list[str] = NAMES) -> str:
    return "".join(form.format(name=name, n=n) + "\n" for n, name in enumerate(names))


def _json_lines(records: list[object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


SAYING: dict[str, str] = {
    "comma.csv": "Bild,Klasse\n" + _lines("{name},c{n}"),
    "semicolon.csv": "Bild;Klasse\n" + _lines("{name};c{n}"),
    "tab.tsv": "Bild\tKlasse\n" + _lines("{name}\tc{n}"),
    "pipe.txt": _lines("{name}|c{n}"),
    "ids.csv": "uuid,a,b\n" + _lines("{name},x{n},y{n}", STEMS),
    "no-header.csv": _lines("{name},c{n}"),
    "no-header-stems.csv": _lines("{name},c{n}", STEMS),
    "boxes.txt": _lines("{name},van,{n},1,10,12"),
    "blanks.dat": _lines("pics/{name} 5 6 20 22 {n}"),
    "label-first.lst": _lines("{n}\tc{n}\t{name}"),
    "no_ending": _lines("{name} c{n}"),
    "windows.txt": _lines("C:\\data\\{name},c{n}"),
    "other-extension.csv": "which,what\n" + _lines("{name}.tif,c{n}", STEMS),
    "map.json": json.dumps(dict.fromkeys(NAMES, "cat")),
    "map-of-stems.json": json.dumps({stem: ["cat", 1] for stem in STEMS}),
    "inner-map.json": json.dumps({"classes": ["a"], "labels": dict.fromkeys(STEMS, 0)}),
    "by-class.json": json.dumps({"cat": NAMES[:2], "dog": NAMES[2:]}),
    "pairs.json": json.dumps([[name, "cat"] for name in NAMES]),
    "records.json": json.dumps(
        [{"picture": f"x/{name}", "what": "cat"} for name in NAMES], indent=1
    ),
    "deep.json": json.dumps({"data": {"rows": [{"img": {"src": n}, "tag": 1} for n in NAMES]}}),
    "lines.json": _json_lines([{"file_name": name, "label": "a"} for name in NAMES]),
    "lines.odgt": _json_lines([{"ID": stem, "gtboxes": []} for stem in STEMS]),
    "lines.manifest": _json_lines([{"source-ref": f"s3://b/{name}", "c": 1} for name in NAMES]),
    "lines.ndjson": _json_lines([{"data_row": {"external_id": name}, "p": {}} for name in NAMES]),
    "cut.json": json.dumps(dict.fromkeys(NAMES, "cat"))[:-25],
    "dump.sql": _lines("INSERT INTO labels VALUES ('{name}', 'c{n}');"),
    "captions.token": _lines("{name}#0\tA cat number {n}") + _lines("{name}#1\tA dog"),
    "boxes-in-one.txt": _lines("{name} 1,2,{n},9,0"),
    "anywhere.txt": _lines("the picture {name} shows a cat"),
    "all.xml": "<set>" + _lines("<image file='{name}'><box top='{n}5'/></image>") + "</set>",
    "flow.yaml": "items:\n" + _lines("- file: {name}\n  label: c{n}"),
    "map.yml": _lines("{name}: c{n}"),
    "map.ini": "[labels]\n" + _lines("{name} = c{n}"),
}
"""Files that say something about each picture, by their names."""

LAYOUTS: dict[str, dict[str, str]] = {
    "flat": dict.fromkeys(NAMES, ""),
    "images": {f"images/{name}": "" for name in NAMES},
    "imagefolder": {f"{'ab'[n % 2]}/{name}": "" for n, name in enumerate(NAMES)},
    "splits": {f"{('train', 'val')[n % 2]}/{name}": "" for n, name in enumerate(NAMES)},
    "class splits": {f"train/{'ab'[n % 2]}/{name}": "" for n, name in enumerate(NAMES)},
    "voc": {
        **{f"JPEGImages/{name}": "" for name in NAMES},
        **{f"Annotations/{stem}.xml": VOC for stem in STEMS},
    },
    "yolo": {
        "data.yaml": "names: [a]\ntrain: images\n",
        **{f"images/{name}": "" for name in NAMES},
        **{f"labels/{stem}.txt": YOLO for stem in STEMS},
    },
    "coco": {
        "annotations/instances_train.json": json.dumps(COCO_OF_ALL),
        **{f"train/{name}": "" for name in NAMES},
    },
    "mask-pairs": {
        **{f"images/{name}": "" for name in NAMES},
        **{f"masks/{name}": "" for name in NAMES},
    },
    "csv": {
        "list.csv": "path,label\n" + _lines("{name},a"),
        **dict.fromkeys(NAMES, ""),
    },
}


def _write(root: Path, files: dict[str, str]) -> Path:
    draw_tree(root, [name for name in files if name.endswith(".png")])
    for mask in root.glob("masks/*.png"):
        Image.fromarray(np.eye(16, 24, dtype=np.uint8)).save(mask)
    return write_texts(root, {n: t for n, t in files.items() if not n.endswith(".png")})


def _place(files: dict[str, str]) -> str:
    """A folder of pictures of a layout, as the start of a path in it."""
    first = next(name for name in files if name.endswith(".png"))
    return first[: first.rfind("/") + 1]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SAYING)
def test_a_file_that_says_something_is_read_or_stops_the_build(name, layout, tmp_path):
    """Whatever its form, beside the pictures or above them, its name is in the error."""
    files = LAYOUTS[layout]
    for n, folder in enumerate(dict.fromkeys(("", _place(files)))):
        raw = _write(tmp_path / str(n), {**files, folder + name: SAYING[name]})
        with pytest.raises(SourceError) as caught:
            scan_source(raw, AUTO)
        assert folder + name in str(caught.value)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layouts_themselves_are_read(layout, tmp_path):
    """Nothing that belongs to a layout is taken for a file that no source reads."""
    assert len(scan_source(_write(tmp_path, LAYOUTS[layout]), AUTO).items) == len(NAMES)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1"])
@pytest.mark.parametrize("name", ["comma.csv", "boxes.txt", "map.json", "no_ending", "map.yml"])
def test_the_encoding_of_a_file_hides_nothing(name, encoding, tmp_path):
    """A file of Windows says the same as one in UTF-8, pictures with umlauts included."""
    names = [f"fä{n}.png" for n in range(4)]
    text = SAYING[name]
    for old, new in zip(NAMES, names, strict=True):
        text = text.replace(json.dumps(old)[1:-1], new)
    draw_tree(tmp_path, names)
    (tmp_path / name).write_bytes(text.encode(encoding))
    with pytest.raises(SourceError) as caught:
        scan_source(tmp_path, AUTO)
    assert name in str(caught.value)


SILENT: dict[str, str] = {
    "README.md": "Pictures of cats:\n" + _lines("![a cat]({name}) a cat"),
    "LICENSE": "CC-BY 4.0, for img00.png and img01.png",
    "load.py": _lines("open('{name}')  # cat"),
    "requirements.txt": "numpy==2.0\npillow>=11\n",
    "Thumbs.db": "x",
    "MD5SUMS": _lines("d41d8cd98f00b204e9800998ecf8427{n}  {name}"),
    "sums.txt": _lines("{name}\td41d8cd98f00b204e9800998ecf8427{n}"),
    "sums.csv": "file_name,md5\n" + _lines("{name},d41d8cd98f00b204e9800998ecf8427{n}"),
    "files.txt": _lines("{name}"),
    "files.csv": "n,file\n" + _lines("{n},{name}"),
    "sizes.csv": "file,width,height\n" + _lines("{name},24,16"),
    "files.json": json.dumps(NAMES),
    "index.json": json.dumps({"files": NAMES}),
    "urls.tsv": _lines("{name}\thttps://a.org/{name}"),
    "listing.txt": _lines("-rw-r--r-- 1 root root 10{n} Jan  1 12:00 {name}"),
    "download.log": _lines("12:0{n} saved {name}"),
    "index.html": _lines("<img src='{name}' alt='cat'>"),
    "classes.txt": "cat\ndog\n",
    "settings.json": json.dumps({"size": 224, "classes": 2}),
    "config.yaml": "lr: 0.1\nepochs: 3\n",
    "results.csv": "epoch,loss\n0,1.5\n1,0.7\n2,0.4\n",
    "notes.txt": "taken in May\n",
    "empty.json": "",
}
"""Files that say nothing about the pictures, though some of them name every one."""


@pytest.mark.parametrize("name", SILENT)
def test_a_file_that_says_nothing_stops_no_build(name, tmp_path):
    """Sums, plain lists, documents and code are no annotations: they are counted, no more."""
    for layout in ("flat", "imagefolder", "voc", "coco", "csv"):
        raw = _write(tmp_path / layout, {**LAYOUTS[layout], name: SILENT[name]})
        found = scan_source(raw, AUTO)
        assert (found.format, len(found.items)) == (
            {"flat": "flat"}.get(layout, layout),
            len(NAMES),
        )
        assert examine(raw).error is None


def test_numbers_that_are_no_names_stop_no_build(tmp_path):
    """Pictures called 1.png to 4.png are not named by every table of numbers."""
    draw_tree(tmp_path, [f"{n}.png" for n in range(1, 5)])
    write_texts(
        tmp_path,
        {
            "results.csv": "epoch,loss\n" + "".join(f"{n},0.{n}\n" for n in range(1, 5)),
            "classes.txt": "1 cat\n2 dog\n3 cow\n4 ant\n",
            "loss.txt": "".join(f"{n} 0.{n}\n" for n in range(1, 60)),
        },
    )
    assert scan_source(tmp_path, AUTO).format == "flat"
    write_texts(tmp_path, {"truth.csv": "id,kind,x\n" + "".join(f"{n},a,b\n" for n in range(1, 5))})
    with pytest.raises(SourceError, match=r"truth\.csv names 4 of 4 pictures in column 'id'"):
        scan_source(tmp_path, AUTO)


def test_a_list_of_a_split_stops_the_build_unless_the_folders_say_the_same(tmp_path):
    """Which pictures are of a split is something that a plain list of names says."""
    for n, layout in enumerate(("images", "imagefolder", "voc")):
        for folder in ("", "lists/"):
            raw = _write(
                tmp_path / f"{n}{bool(folder)}",
                {**LAYOUTS[layout], f"{folder}val.txt": _lines("{name}")},
            )
            with pytest.raises(SourceError, match=rf"{folder}val\.txt"):
                scan_source(raw, AUTO)
    split = {f"train/{'ab'[n % 2]}/{name}": "" for n, name in enumerate(NAMES)}
    raw = _write(tmp_path / "same", {**split, "lists/train.txt": _lines("{name}")})
    assert len(scan_source(raw, AUTO).items) == 4


def test_a_format_that_was_asked_for_is_built_with_a_note(tmp_path):
    """Whoever names the format wants it so; the file is named all the same."""
    raw = _write(tmp_path, {**LAYOUTS["flat"], "map.json": SAYING["map.json"]})
    found = scan_source(raw, SourceOptions(format="flat"))
    assert len(found.items) == 4
    assert any("not read, as --format flat asks: map.json names 4 of 4" in n for n in found.notes)


def test_boxes_that_a_table_repeats_are_no_reason_to_stop(tmp_path):
    """A CSV with the boxes of the XML files beside it says nothing new; one with others does."""
    table = "filename,class,xmin,ymin,xmax,ymax\n"
    box = "<xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax>"
    xml = f"<annotation><object><name>a</name><bndbox>{box}</bndbox></object></annotation>"
    files = {
        **{f"images/{name}": "" for name in NAMES},
        **{f"annotations/{stem}.xml": xml for stem in STEMS},
    }
    same = {"all.csv": table + _lines("images/{name},a,1,1,5,5")}
    assert scan_source(_write(tmp_path / "same", {**files, **same}), AUTO).format == "voc"
    more = {"all.csv": table + _lines("images/{name},a,1,1,5,5\nimages/{name},a,6,6,9,9")}
    with pytest.raises(SourceError, match=r"all\.csv names 4 of 4 pictures"):
        scan_source(_write(tmp_path / "more", {**files, **more}), AUTO)


def test_files_elsewhere_with_the_names_of_pictures_stop_the_build(tmp_path):
    """A file for each picture, elsewhere: none names a picture, but all are called like one."""
    raw = _write(
        tmp_path, {**LAYOUTS["imagefolder"], **{f"info/x/{s}.json": '{"a": 1}' for s in STEMS}}
    )
    with pytest.raises(
        SourceError, match=r"4 \.json files such as info/x/img00\.json have the names"
    ):
        scan_source(raw, AUTO)


def test_tables_that_are_no_text_are_looked_into(tmp_path):
    """A pickle, a spreadsheet and MATLAB's labels are named as well."""
    raw = _write(tmp_path, LAYOUTS["flat"])
    (raw / "a.pkl").write_bytes(pickle.dumps({name: n for n, name in enumerate(NAMES)}))
    with pytest.raises(SourceError, match=r"a\.pkl names 4 of 4 pictures"):
        scan_source(raw, AUTO)
    (raw / "a.pkl").unlink()
    with zipfile.ZipFile(raw / "a.xlsx", "w") as book:
        book.writestr("xl/sharedStrings.xml", "<sst>" + _lines("<si><t>{name}</t></si>") + "</sst>")
    with pytest.raises(SourceError, match=r"a\.xlsx names 4 of 4 pictures"):
        scan_source(raw, AUTO)
    (raw / "a.xlsx").unlink()
    for name in ("imagelabels.mat", "annotations.zip", "labels.npy"):
        (raw / name).write_bytes(b"PK\x03\x04")
        with pytest.raises(SourceError, match=f"{name} is called like a file of annotations"):
            scan_source(raw, AUTO)
        (raw / name).unlink()
    (raw / "model.pkl").write_bytes(pickle.dumps([1, 2, 3]))
    (raw / "pictures.zip").write_bytes(b"PK\x03\x04")
    assert scan_source(raw, AUTO).format == "flat"


def test_a_file_of_no_known_kind_is_not_sent_back_to_its_folder(tmp_path):
    """A build of the folder stops at the file; given itself, it says what to make of it."""
    raw = _write(tmp_path, LAYOUTS["flat"])
    for name in ("boxes.txt", "map.json", "lines.json", "blanks.dat", "all.xml", "no-header.csv"):
        (raw / name).write_text(SAYING[name])
        with pytest.raises(SourceError) as caught:
            scan_source(raw / name, AUTO)
        message = str(caught.value)
        assert "Give the folder" not in message
        assert name in message
        assert any(word in message for word in ("CSV", ".jsonl", "COCO", "header line"))


PROMISED = (
    "_annotations.coco.json",
    "annotations/instances_train2017.json",
    "annotations.json",
    "labels.json",
    "train.json",
    "annotations.xml",
    "labels.csv",
    "metadata.csv",
    "metadata.jsonl",
    "train.tsv",
    "data.yaml",
    "gt.txt",
    "labels.txt",
    "annotation_train.odgt",
    "train.manifest",
)
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty|nothing|no rows"),
    "blank": (b" \n\n", "empty|nothing|no rows|not JSON"),
    "page": (
        b"<!DOCTYPE html><html><body>please log in</body></html>",
        "a web page|DOCTYPE|not JSON",
    ),
    "zeros": (bytes(600), "zero|not|nothing|cannot"),
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 90405\n",
        "it looks like a Git LFS pointer: get the file with git lfs pull",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("name", PROMISED)
def test_a_name_of_annotations_with_nothing_in_it_stops_the_build(name, kind, tmp_path):
    """Pictures are not packed without what a file should have said, had it come whole."""
    content, reason = BROKEN[kind]
    for layout in ("flat", "imagefolder", "yolo bare", "voc"):
        files = LAYOUTS.get(layout) or {
            k: v for k, v in LAYOUTS["yolo"].items() if k != "data.yaml"
        }
        if layout == "yolo bare" and name.endswith(".txt"):
            continue  # An empty text file is one of a picture without objects.
        raw = _write(tmp_path / layout, files)
        (raw / name).parent.mkdir(exist_ok=True)
        (raw / name).write_bytes(content)
        with pytest.raises(SourceError, match=f"(?s){os.path.basename(name)}.*({reason})"):
            scan_source(raw, AUTO)


@pytest.mark.parametrize("count", [5, 30, 200])
def test_json_that_was_cut_short_stops_the_build(count, tmp_path):
    """Cut in its first word or in the middle of its images, it is named."""
    raw = _write(tmp_path, LAYOUTS["flat"])
    (raw / "_annotations.coco.json").write_text(json.dumps(COCO_OF_ALL)[:count])
    with pytest.raises(SourceError, match=r"_annotations\.coco\.json"):
        scan_source(raw, AUTO)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("annotations.xml", "<?xml version='1.0'?>\n<annot"),
        ("labels.csv", "pa"),
        ("train.csv", "path,la"),
        ("train.jsonl", '{"file_na'),
        ("annotation_train.odgt", '{"ID": "img'),
        ("labels.json", "{}"),
        ("instances_val.json", "[]"),
        ("labels.csv", "\x01\x02\x03\x7f\x04" * 50),
    ],
)
def test_other_files_that_were_cut_short_stop_the_build(name, text, tmp_path):
    """The little that is there does not tell what the file says, but its name does."""
    raw = _write(tmp_path, {**LAYOUTS["flat"], name: text})
    with pytest.raises(SourceError, match=name):
        scan_source(raw, AUTO)


def test_a_data_yaml_that_was_cut_short_stops_the_build(tmp_path):
    """Without its end it names no classes, and the numbers would take their place."""
    for text, reason in (
        ("train: images\nval: images\n", "it has train, val, and no names of classes"),
        ("names: [a]\n", "it has names, and no train, val or path"),
    ):
        raw = _write(tmp_path, {**LAYOUTS["yolo"], "data.yaml": text})
        for options in (AUTO, SourceOptions(format="yolo")):
            with pytest.raises(SourceError, match=rf"data\.yaml: {reason}"):
                scan_source(raw, options)


def test_reasons_of_files_that_are_looked_into_are_those_of_the_sources():
    """A source that words its reason anew must not take its files out of sight."""
    from packer.sources import cvat, labelme, voc
    from packer.sources.coco import files
    from packer.sources.detection.unread import LOOKED_INTO
    from packer.sources.hugging_face import tables
    from packer.sources.lists import open_images, scan
    from packer.sources.walk import NOT_A_PICTURE

    assert {
        NOT_A_PICTURE,
        cvat.OTHER_XML,
        voc.OTHER_XML,
        files.NOT_COCO,
        labelme.OTHER_FILE,
        open_images.NOT_BOXES,
        scan.LIST_NOT_READ,
        tables.NOT_NAMED,
    } == LOOKED_INTO


def test_what_was_measured_of_each_picture_stops_no_build(tmp_path):
    """Calibrations of KITTI have the names of its pictures, and are no annotations of them."""
    raw = _write(
        tmp_path,
        {
            **{f"training/image_2/00000{n}.png": "" for n in range(3)},
            **{
                f"training/label_2/00000{n}.txt": "Car 0 0 0 1 1 9 9 1 1 1 1 1 1 1\n"
                for n in range(3)
            },
            **{f"training/calib/00000{n}.txt": "P0: 7.2 0.0 6.0 0.0\n" for n in range(3)},
        },
    )
    assert scan_source(raw, AUTO).format == "kitti"


def test_labels_of_two_known_kinds_are_weighed_as_before(tmp_path):
    """YOLO files beside a COCO file of the same pictures: the stronger is read, and it is said."""
    raw = _write(
        tmp_path,
        {
            "annotations/instances_train.json": json.dumps(COCO_OF_ALL),
            **{f"images/train/{name}": "" for name in NAMES},
            **{f"labels/train/{stem}.txt": YOLO for stem in STEMS},
        },
    )
    assert scan_source(raw, AUTO).format == "coco"


def test_numbered_pictures_of_several_folders_are_named_by_their_numbers(tmp_path):
    """A list for train/ names 1.png there; that test/ has one of the same name hides nothing."""
    draw_tree(tmp_path, [f"{split}/{n}.png" for split in ("train", "test") for n in range(1, 5)])
    (tmp_path / "trainLabels.csv").write_text("id,label\n1,frog\n2,cat\n3,frog\n4,cat\n")
    with pytest.raises(SourceError, match=r"trainLabels\.csv"):
        scan_source(tmp_path, AUTO)


def test_a_list_among_very_many_files_is_looked_into(tmp_path):
    """Only some hundred files are opened: one of each folder and kind first, the others then."""
    texts = {f"{folder}/a{n}.dat": "x" for folder in "abcdefghijkl" for n in range(60)}
    raw = _write(tmp_path, {**LAYOUTS["flat"], **texts, "z/y/x/truth.txt": SAYING["boxes.txt"]})
    with pytest.raises(SourceError, match=r"z/y/x/truth\.txt names 4 of 4 pictures"):
        scan_source(raw, AUTO)


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    """What is called like annotations and may not be read is not passed over."""
    problem = broken_promise(os.fsencode(tmp_path / "labels.json"), b"labels.json")
    assert problem == "it cannot be read: No such file or directory"
    assert broken_promise(os.fsencode(tmp_path / "notes.bin"), b"notes.bin") == ""
