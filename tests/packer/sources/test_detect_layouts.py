"""What speaks for each layout: every one that is read is told from its names and its content."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from packer.errors import SourceError
from packer.sources import LAYOUTS, SourceOptions
from packer.sources.detection.detect import detect, examine
from packer.sources.detection.evidence import FINDERS, LIST_FINDERS
from packer.sources.detection.found import UNREAD
from packer.sources.detection.json_outline import read_json_outline
from packer.sources.detection.look import look_at
from tests.packer.raw_files import COCO, VOC, YOLO, write_files, write_texts

AUTO = SourceOptions()

IMAGE = '{"id": 1, "file_name": "000000000001.jpg", "height": 4, "width": 4},'
ANNOTATION = '{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]},'
CAPTION = '{"id": 1, "image_id": 1, "caption": "a photo of a cat"},'
SEGMENTS = '{"image_id": 1, "file_name": "1.png", "segments_info": []},'

RAW = {
    "a COCO json beside pictures": (["1.png"], {"result.json": COCO}, "coco"),
    "COCO annotations": (["val2017/1.png"], {"annotations/instances_val2017.json": COCO}, "coco"),
    "Roboflow COCO": (["train/1.png"], {"train/_annotations.coco.json": COCO}, "coco"),
    "only a COCO json": ([], {"a.json": COCO}, "coco"),
    "VOC": (
        ["JPEGImages/1.png"],
        {"Annotations/1.xml": VOC, "ImageSets/Main/train.txt": "1\n"},
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
    "images and masks": (["images/1.png", "masks/1.png"], {}, "mask-pairs"),
    "images and masks in splits": (["train/Images/1.png", "train/Labels/1.png"], {}, "mask-pairs"),
    "folders with a suffix": (["train/1.png", "trainannot/1.png"], {}, "mask-pairs"),
    "files with a suffix": (["a/1.png", "a/1_seg.png"], {}, "mask-pairs"),
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
    "Open Images": (
        ["images/1.png"],
        {"annotations/a.csv": "ImageID,Source,LabelName,XMin,XMax,YMin,YMax\n"},
        "open-images",
    ),
    "a list of boxes": (
        ["images/1.png"],
        {"a.csv": "filename,class,xmin,xmax,ymin,ymax\nimages/1.png,a,0,1,0,1\n"},
        "csv",
    ),
    "one-hot": (
        ["train/1.png"],
        {"train/_classes.csv": "filename, a, b\n1.png, 1, 0\n"},
        "csv",
    ),
    "JSON lines": (["imgs/1.png"], {"m.jsonl": '{"image": "imgs/1.png"}\n'}, "jsonl"),
    "HF metadata": (["train/1.png"], {"train/metadata.jsonl": '{"file_name": "1.png"}\n'}, "jsonl"),
    "HF saved": (["train/data-0.arrow"], {"dataset_dict.json": '{"splits": ["train"]}'}, "hf"),
    "Parquet": (["data/train-00000-of-00001.parquet"], {}, "parquet"),
    "tar": (["a-000000.tar", "a-000001.tar"], {}, "tar"),
    "zip": (["a.zip"], {}, "zip"),
    "IDX": (["train-images-idx3-ubyte.gz"], {}, "idx"),
    "CIFAR": (["cifar/data_batch_1", "cifar/batches.meta"], {}, "cifar"),
    "LMDB": (["old/data.mdb", "old/lock.mdb"], {"old/meta_info.txt": "1.png (6,8,3) 1\n"}, "lmdb"),
    "FFCV": (["train.beton"], {}, "ffcv"),
    "MDS": (["train/shard.00000.mds"], {"train/index.json": '{"shards": [], "version": 2}'}, "mds"),
    "WIDER": (["WIDER_train/images/0--a/1.png", "split/wider_face_train_bbx_gt.txt"], {}, "wider"),
    "a text list": (["1.png"], {"train.txt": "1.png 0\n"}, "txt-list"),
    "COCO sorted by key": (
        ["1.png"],
        {"a.json": f'{{"annotations": [{ANNOTATION * 2000}], "images": [{IMAGE * 2000}]}}'},
        "coco",
    ),
    "COCO captions sorted by key": (
        ["1.png"],
        {"a.json": f'{{"annotations": [{CAPTION * 2000}], "images": [{IMAGE * 2000}]}}'},
        "coco",
    ),
    "COCO panoptic sorted by key": (
        ["1.png"],
        {"a.json": f'{{"annotations": [{SEGMENTS * 2000}], "images": [{IMAGE * 2000}]}}'},
        "coco",
    ),
    "COCO with long lists": (
        ["1.png"],
        {"a.json": f'{{"images": [{IMAGE * 2000}], "annotations": [{ANNOTATION * 2000}]}}'},
        "coco",
    ),
    "COCO behind files of one picture each": (
        [f"{n:02d}.png" for n in range(30)],
        {**{f"{n:02d}.json": "{}" for n in range(30)}, "zz.json": COCO},
        "coco",
    ),
    "YOLO with a file of class names": (
        ["images/1.png"],
        {"labels/classes.txt": "a\nb\n", "labels/1.txt": YOLO},
        "yolo",
    ),
    "YOLO with numbers of classes as floats": (
        ["1.png"],
        {"1.txt": "0.0 0.5 0.5 0.25 1\n"},
        "yolo",
    ),
    "files with a beginning": (["1.png", "2.png", "gt_1.png", "gt_2.png"], {}, "mask-pairs"),
    "files with an ending each": (["1_sat.jpg", "1_mask.png"], {}, "mask-pairs"),
    "a list of masks": (["a/1.png", "b/1.png"], {"train.txt": "/a/1.png /b/1.png\n"}, "mask-pairs"),
    "Cityscapes as it is unpacked": (
        [
            "leftImg8bit_trainvaltest/leftImg8bit/train/a/1.png",
            "leftImg8bit_trainvaltest/license.txt",
            "gtFine_trainvaltest/gtFine/train/a/1.png",
            "gtFine_trainvaltest/license.txt",
        ],
        {},
        "cityscapes",
    ),
    "DOTA 1.5": (["train/images/1.png", "train/labelTxt-v1.5/1.txt"], {}, "dota"),
    "IDX with dots": (["train-images.idx3-ubyte"], {}, "idx"),
    "text lists of splits": (
        ["1.png", "2.png"],
        {"train.txt": "1.png 0\n", "val.txt": "2.png 1\n"},
        "txt-list",
    ),
    "a text list beside images": (["images/1.png"], {"train.txt": "1.png 0\n"}, "txt-list"),
    "a text list of class folders": (["a/1.png"], {"train.txt": "a/1.png 0\n"}, "txt-list"),
}


@pytest.mark.parametrize(("names", "texts", "kind"), RAW.values(), ids=RAW.keys())
def test_each_layout_is_told(names, texts, kind, tmp_path):
    """A build without --format takes the source that reads all that is there."""
    write_texts(write_files(tmp_path, *names), texts)
    found = examine(tmp_path)
    assert (found.format, found.error) == (kind, None)
    assert found.evidence[0].format == kind


def test_every_format_is_met_in_these_tests():
    """A source that nothing leads to would be there for those alone who know its name."""
    met = {kind for _, _, kind in RAW.values()} | {"imagefolder", "flat"}
    assert met == LAYOUTS.keys()
    assert LAYOUTS.keys().isdisjoint(UNREAD)


def test_each_row_says_who_tells_its_layout(tmp_path):
    """What finds evidence for a layout stands in its row, and nothing else there."""
    found: dict[str, set[str]] = {name: set() for name in LAYOUTS}
    raw = {**RAW, "class folders": (["a/1.png", "b/1.png"], {}, ""), "alone": (["1.png"], {}, "")}
    for number, (names, texts, _) in enumerate((*raw.values(), *TOLD_IN_OTHER_WAYS)):
        look = look_at(write_texts(write_files(tmp_path / str(number), *names), texts))
        for finder, find in FINDERS.items():
            for evidence in find(look):
                found.setdefault(evidence.format, set()).add(finder)
        for finder, find_list in LIST_FINDERS.items():
            for evidence in find_list(look, AUTO):
                found.setdefault(evidence.format, set()).add(finder)
    assert {name: found[name] for name in LAYOUTS} == {
        name: set(layout.told_by) for name, layout in LAYOUTS.items()
    }


TOLD_IN_OTHER_WAYS = (
    (["1.png"], {"metadata.csv": "file_name,text\n1.png,a\n", "metadata.parquet": ""}, ""),
    (["labelTxt/1.txt"], {"data.yaml": "train: images\nnames: [a]\n"}, ""),
)


def test_the_documentation_names_every_format():
    """A user looks there for what to give as --format."""
    pages = Path(__file__).parents[3] / "docs" / "layouts"
    section = (pages / "index.md").read_text().split("These are recognised")[0]
    named = re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`[a-z].*?) \|", section, re.M)))
    assert sorted(set(named)) == sorted(LAYOUTS)


CLASS_FILES = ["classes.txt", "obj.names", "names.txt", "_darknet.labels", "my.names"]


@pytest.mark.parametrize("class_file", CLASS_FILES)
def test_the_file_of_yolo_classes_is_named(class_file, tmp_path):
    """Names or none: it is what a user asks next. Such a file is not a label file itself."""
    write_texts(write_files(tmp_path, "images/1.png"), {"labels/1.txt": YOLO})
    assert "no file of class names" in detect(tmp_path, AUTO).line
    write_texts(tmp_path, {f"labels/{class_file}": "".join(f"class {n}\n" for n in range(20))})
    assert f"classes in labels/{class_file})" in detect(tmp_path, AUTO).line


def test_lines_decide_what_text_files_are(tmp_path):
    """Nine lines of ten must be YOLO's: captions have the same names."""
    write_files(tmp_path, "1.png")
    write_texts(tmp_path, {"1.txt": YOLO * 9 + "a cat\n"})
    assert examine(tmp_path).format == "yolo"
    write_texts(tmp_path, {"1.txt": YOLO * 8 + "a cat\n"})
    assert examine(tmp_path).evidence[0].format == "sidecars"


@pytest.mark.parametrize("name", ["images", "Imgs", "img", "image", "JPEGImages"])
def test_a_folder_called_images_is_no_class(name, tmp_path):
    """Alone it would be the only class; beside another folder it is one as any other."""
    write_files(tmp_path, f"{name}/1.png", f"{name}/2.png")
    found = detect(tmp_path, AUTO)
    assert found.format == "flat"
    assert f"2 pictures in {name}/, which is the name of no class" in found.line
    write_files(tmp_path, "cat/1.png")
    assert detect(tmp_path, AUTO).format == "imagefolder"


@pytest.mark.parametrize("below", [("cat", "dog"), ("train", "val"), ("a/b", "c/d")])
def test_class_folders_below_images_are_not_lost(below, tmp_path):
    """They would become one class called `images`; the message says which folder to give."""
    write_files(tmp_path, *(f"images/{name}/1.png" for name in below))
    found = examine(tmp_path)
    assert found.format == ""
    assert f"give {tmp_path}/images instead" in str(found.error)
    assert ("folders below it: cat, dog." in str(found.error)) == (below == ("cat", "dog"))
    assert "--format flat (every picture, unlabelled)" in str(found.error)
    assert "--format imagefolder" not in str(found.error)


def test_the_share_of_masked_pictures_is_said(tmp_path):
    """A quarter without masks is a matter of the report; all without is a wrong guess."""
    write_files(tmp_path, *(f"images/{n}.jpg" for n in range(8)))
    write_files(tmp_path, *(f"masks/{n}_mask.png" for n in range(6)))
    line = detect(tmp_path, AUTO).line
    assert "folders images, masks; 6 of 8 sampled pictures have a mask of their name" in line
    for path in (tmp_path / "masks").iterdir():
        path.rename(path.with_name("x" + path.name))
    found = examine(tmp_path)
    assert found.evidence[0].format == "mask-pairs"
    assert "0 of 8 sampled pictures have a mask of their name), but every" in str(found.error)


def test_masks_deeper_than_the_first_look_are_checked(tmp_path):
    """A folder for each split, scene and kind has them three levels down."""
    for scene in ("a", "b"):
        write_files(tmp_path, f"d/train/{scene}/images/1.png", f"d/train/{scene}/masks/1.png")
        write_files(tmp_path, f"d/val/{scene}/images/1.png", f"d/val/{scene}/images/2.png")
    write_files(tmp_path, "d/x_mask/1.png", "d/x/y/z/1.png")
    found = examine(tmp_path)
    assert found.format == "mask-pairs"
    assert "; 2 of 2 sampled pictures have" in found.line


def test_of_many_pictures_some_from_all_parts_are_checked(tmp_path):
    """The masks of a folder may begin anywhere, and be called by their beginning."""
    write_files(tmp_path, *(f"a/{n:03d}.png" for n in range(250)))
    write_files(tmp_path, *(f"a/gt_{n:03d}.png" for n in range(250)))
    line = detect(tmp_path, AUTO).line
    assert "mask-pairs (masks beside pictures, such as a/gt_" in line
    assert "; 125 of 125 sampled pictures have a mask of their name)" in line


def test_a_picture_with_a_word_for_masks_in_its_name_is_no_mask(tmp_path):
    """Two of many are no layout."""
    write_files(tmp_path, *(f"{n}.png" for n in range(20)), "1_mask.png", "2_gt.png", "x_label.png")
    assert detect(tmp_path, AUTO).format == "flat"


def test_a_list_of_masks_is_no_list_of_labels(tmp_path):
    """The second path of a line is no name of a class."""
    write_texts(write_files(tmp_path, "a/1.png", "b/1.png"), {"t.txt": "a/1.png b/1.png\n"})
    found = examine(tmp_path)
    assert [evidence.format for evidence in found.evidence] == ["mask-pairs", "imagefolder"]
    assert "(t.txt names a picture and its mask in each line)" in found.line


@pytest.mark.parametrize("annotations", ["Annotations", "xml"])
def test_annotations_need_a_picture(annotations, tmp_path):
    """The message names one that has none and where it was looked; deep ones are looked for."""
    write_files(tmp_path, "JPEGImages/2.png")
    write_texts(tmp_path, {f"{annotations}/1.xml": VOC})
    message = str(examine(tmp_path).error)
    assert f"not one of 1 annotation file, such as {annotations}/1.xml, has a picture" in message
    assert f"; looked in '{annotations}/', 'JPEGImages/'. Put the pictures there." in message
    write_files(tmp_path, "JPEGImages/1.png")
    assert examine(tmp_path).format == "voc"


def test_voc_below_many_folders_is_checked_in_full(tmp_path):
    """The first look sees the names of two levels, and pairs may lie deeper."""
    for year in ("VOC2007", "VOC2012"):
        write_files(tmp_path, f"data/VOCdevkit/{year}/JPEGImages/1.png", f"data/x/{year}/notes")
        write_texts(tmp_path, {f"data/VOCdevkit/{year}/Annotations/1.xml": VOC})
    assert examine(tmp_path / "data").format == "voc"
    for path in (tmp_path / "data").rglob("*.xml"):
        path.rename(path.with_name("2.xml"))
    message = str(examine(tmp_path / "data").error)
    assert "none of 2 annotation files, such as VOCdevkit/VOC2007/Annotations/2.xml" in message


def test_voc_without_annotations_is_refused_unless_it_has_masks(tmp_path):
    """Folders alone are no data set of boxes."""
    root = write_files(tmp_path, "VOC2012/JPEGImages/1.png", "VOC2012/Annotations/")
    assert "but there is no annotation file in it. Check the path." in str(examine(root).error)
    write_files(tmp_path, "VOC2012/SegmentationClass/1.png")
    assert examine(root).format == "voc"


def test_labelme_needs_a_picture(tmp_path):
    """It writes pictures into its files, but pictures are read from beside them."""
    shapes = json.dumps({"shapes": [], "imagePath": "1.png"})
    write_texts(write_files(tmp_path, "2.png"), {"1.json": shapes})
    found = examine(tmp_path)
    assert found.evidence[0].format == "labelme"
    assert "such as 1.json, has a picture of the same name; looked in './'" in str(found.error)


def test_the_files_of_a_known_kind_are_no_second_layout(tmp_path):
    """VOC's XML beside its pictures is not also a file of no known kind."""
    write_texts(write_files(tmp_path, "a/1.png"), {"a/1.xml": VOC})
    assert [found.format for found in examine(tmp_path).evidence] == ["voc", "imagefolder"]
    write_texts(write_files(tmp_path, "b/images/1.png"), {"b/annotations/1.xml": VOC})
    assert [found.format for found in examine(tmp_path / "b").evidence] == ["voc", "flat"]


def test_defects_of_mvtec_are_named(tmp_path):
    """Their masks are of some pictures alone, and folders above them are no classes."""
    write_files(tmp_path, "train/good/1.png", "test/bent/1.png", "ground_truth/bent/1_mask.png")
    message = str(examine(tmp_path).error)
    assert "it has masks of some pictures alone (MVTec), and every picture needs one" in message


def test_kitti_in_folders_of_its_archives_is_refused(tmp_path):
    """Its source looks for label_2 beside image_2; pictures alone would be a silent loss."""
    write_files(tmp_path, "data_object_image_2/training/image_2/1.png")
    write_files(tmp_path, "data_object_label_2/training/label_2/1.txt")
    found = examine(tmp_path)
    assert found.evidence[0].format == "kitti"
    assert "do not lie side by side. Move them into one folder" in str(found.error)


def test_cifar_100_is_told_by_its_form(tmp_path):
    """Its files are called train and test, as many others are."""
    folder = write_files(tmp_path / "python", "meta", "test")
    (folder / "train").write_bytes(b"\x80\x02}q\x01.")
    assert examine(folder).format == "cifar"
    assert examine(folder / "train").format == "cifar"
    folder = write_files(tmp_path / "binary", "notes")
    (folder / "train.bin").write_bytes(bytes(2 * 3074))
    assert examine(folder / "train.bin").format == "cifar"
    (folder / "train.bin").write_bytes(bytes(2 * 3074 + 1))
    with pytest.raises(SourceError, match="no pictures found"):
        detect(folder, AUTO)


def test_one_annotation_file_among_many_pictures_is_seen(tmp_path):
    """Names are read in full: the file that decides may be the last of a large folder."""
    write_files(tmp_path, *(f"train/{n:04d}.png" for n in range(1000)))
    write_texts(tmp_path, {"train/zz.json": COCO})
    assert detect(tmp_path, AUTO).format == "coco"


def test_results_are_told_by_their_first_entries(tmp_path):
    """Captions that a model made have no category."""
    for key in ("category_id", "caption"):
        write_texts(tmp_path, {"r.json": json.dumps([{"image_id": 1, key: 1}] * 3000)})
        assert [found.format for found in examine(tmp_path).evidence] == ["coco-results"]


def test_questions_about_images_are_no_coco(tmp_path):
    """Annotations that have an image alone may be of any kind."""
    answers = {"annotations": [{"image_id": 1, "question_id": 1, "answer": "yes"}]}
    write_texts(write_files(tmp_path, "1.png"), {"vqa.json": json.dumps(answers)})
    assert {found.format for found in examine(tmp_path).evidence} == {"flat"}
    with pytest.raises(SourceError, match=r"vqa\.json names 1 of 1 pictures in key 'image_id'"):
        detect(tmp_path, AUTO)


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
