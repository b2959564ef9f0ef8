"""The real data sets that lie beside the repository: how each is read, and what comes of it.

A set that no source reads stands in `REFUSED`, with what its refusal must say; the way that the
refusal then names stands in `READ`, as any other. A difference from the facts of EXPECTED.json is
never forgiven by a checker: it stands here, with what the store holds instead and why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Differences = dict[str, tuple[Any, str]]

PICTURES_ALONE = "read as pictures, without what no source reads"


@dataclass(frozen=True, kw_only=True)
class RealSet:
    """One way to read one set.

    Attributes:
        folder: Of the set.
        inside: Path in it that is given, where that is not the folder itself.
        given: Words that tell this way from others of the same folder.
        format: Source that must be found, or is asked for with `options`.
        options: Of the source; a `root` is relative to the folder.
        mode: Colour of the stored pixels.
        aside: Pictures of the set that are no samples, by pattern: they are masks, or the reason
            that the store gives for leaving them.
        ignored: Files that are counted as ignored, by reason.
        masks: Mask field -> how a picture's path becomes that of its mask, as (regular expression,
            replacement).
        colors: Value of each colour of painted masks, as EXPECTED.json writes it.
        is_numbered: Datumaro calls the items image_1, image_2 and so on.
        left_out: Kinds of facts that are not about this way of reading, and why.
        differences: Fact -> (what the store holds, why).
    """

    folder: str
    format: str
    inside: str = ""
    given: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    mode: str = "rgb"
    aside: dict[str, str] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
    masks: dict[str, tuple[str, str]] = field(default_factory=dict)
    colors: dict[str, int] = field(default_factory=dict)
    is_numbered: bool = False
    left_out: dict[str, str] = field(default_factory=dict)
    differences: Differences = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How tests and the table call it."""
        place = f"{self.folder}/{self.inside}" if self.inside else self.folder
        return f"{place} ({self.given})" if self.given else place


@dataclass(frozen=True, kw_only=True)
class RefusedSet:
    """A set, or a part of one, that cannot be read as it stands.

    Attributes:
        folder: Of the set.
        says: Parts of the message: what was found, and what to do now.
        inside: Path in it that is given.
        options: Of the source.
    """

    folder: str
    says: tuple[str, ...]
    inside: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How tests and the table call it."""
        return f"{self.folder}/{self.inside}" if self.inside else self.folder


def read(folder: str, source: str, **settings: Any) -> RealSet:
    """A set that is read by `source`."""
    return RealSet(folder=folder, format=source, **settings)


def pictures(folder: str, source: str = "flat", **settings: Any) -> RealSet:
    """A set that no source reads: its pictures alone, as the refusal says."""
    kinds = ("datumaro", "masks", "sam")
    return RealSet(
        folder=folder,
        format=source,
        given=f"--format {source}",
        options={"format": source},
        left_out=dict.fromkeys(kinds, PICTURES_ALONE),
        **settings,
    )


MASK = "mask"
"""Why a picture is no sample of its own: it is stored as a mask."""

_VOC_ASIDE = "mask of Pascal VOC, not asked for"
_VOC_MASKS = {"SegmentationClass/*": _VOC_ASIDE, "SegmentationObject/*": _VOC_ASIDE}
_NOT_ASKED_FOR = {"masks": "masks of Pascal VOC are packed under --task segment"}
_FULL_LISTS = {"ImageSets list that is not read": 28}  # `cat_train.txt`: of one class each.

_OBJECT_MASKS = "only the masks of classes are packed, not those of objects"
_HEADER = "the file is 88 wide and 590 high; Pillow says its upright size when it opens a TIFF"
_NO_RANGE = "signed or floating-point pixels: what is black and what is white is not known"

_ONE_PIXEL = "counted from 1, xmin = xmax and ymin = ymax are one pixel"
_NO_AREA = "counted from 0, a box of xmin = xmax has no area: rejected, and named"
_NO_XML = "classes are those that the XML files name"
_NOT_PACKED = "no box and no area: rejected, and named"
_OUTSIDE = "marked as outside of the frame, where datumaro keeps it as an attribute"
_OTHER_NAMES = "named by class-descriptions.csv, where datumaro has the ids"
_IMAGE_LABELS = "labels of whole images are left aside, as the store's notes say"
_EVENTS = "the event is in the path of the picture; objects are faces"
_NESTED = "class folders are those of the first level, as for torchvision"
_NOT_THERE = "the list names a picture that is not there: rejected, and named"
_NO_PICTURE = "boxes beyond the picture of 5x5 pixels: rejected, and named"
_WRONG_MASK = "its mask is 5x5 pixels and the picture 10x5: rejected, and named"

_ODD: Differences = {
    "g4_orientation_6.tif: original_size": ([88, 590], _HEADER),
    "ice_test_1_bands_float32.tif: stored": (
        "floating-point pixels (mode F) are not supported: what is black and what is white is not "
        "known; convert to unsigned integers of 8 or 16 bits",
        _NO_RANGE,
    ),
    "ice_test_1_bands_int16.tif: stored": (
        "32-bit or signed pixels (mode I) are not supported: what is black and what is white is "
        "not known; convert to unsigned integers of 8 or 16 bits",
        _NO_RANGE,
    ),
}
_ODD_IN_RGB: Differences = {
    **_ODD,
    "tiff_16bit_RGB.tiff: rgb_upright_sum": (373304, "16 bits are rounded; Pillow cuts them off"),
}
_ODD_UNCHANGED: Differences = {
    **_ODD,
    "tiff_16bit_RGB.tiff: decoded_sum": (95945893, "all 16 bits; Pillow reads 8 of them"),
    "tiff_16bit_RGB.tiff: decoded_dtype": ("uint16", "all 16 bits; Pillow reads 8 of them"),
    "16_bit_binary.pgm: decoded_dtype": ("uint16", "as the file has it; Pillow's type is wider"),
    "apng_mode_16bit.png: stored": (
        "16-bit colour in this kind of PNG file can only be read as 8 bits; convert it to a still "
        "16-bit PNG, or use mode rgb or rgba",
        "Pillow reads 8 of its 16 bits, and unchanged is to keep all",
    ),
}

_VOC_NAMES = (
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike "
    "person pottedplant sheep sofa train tvmonitor"
)

READ: tuple[RealSet, ...] = (
    pictures("ade20k", ignored={"not a picture": 2}),
    read(
        "cifar-python",
        "cifar",
        is_numbered=True,
        differences={
            "datumaro: subsets": (
                {"train": 1, "test": 4},
                "batches are parts of train; datumaro takes each for a subset",
            ),
        },
    ),
    read(
        "cityscapes",
        "cityscapes",
        aside={"gtFine/*": MASK},
        masks={"mask": (r"leftImg8bit/(.*)_leftImg8bit", r"gtFine/\1_gtFine_instanceIds")},
        differences={
            "datumaro: labels": (set(), "instanceIds are of classes and of single objects"),
        },
    ),
    read("coco-flat", "coco"),
    read("coco-instances", "coco"),
    read(
        "coco-panoptic",
        "coco",
        aside={"annotations/*.png": MASK},
        masks={"panoptic": (r"images/(.*)/(.*)\.jpg", r"annotations/panoptic_\1/\2.png")},
        differences={
            "annotations in the reject list": (0, "counted, and named by their picture"),
            "images/train/a.jpg: stored": (
                "mask annotations/panoptic_train/a.png: the mask is 5x5 pixels and its picture "
                "10x5; expected the same size",
                _WRONG_MASK,
            ),
            "datumaro: items": (1, _WRONG_MASK),
            "datumaro: subsets": ({"train": 0, "val": 1}, _WRONG_MASK),
            "datumaro train/a: stored": (False, _WRONG_MASK),
            "annotations/panoptic_train/a.png: mask": ("not stored", _WRONG_MASK),
        },
    ),
    read("coco-roboflow", "coco"),
    pictures("createml", ignored={"not a picture": 2}),
    read("csv-bccd", "csv", given="--root images", options={"root": "images"}),
    read("csv-boxes", "csv", inside="ann.csv", options={"root": "images"}),
    read("csv-boxes", "csv", inside="ann2.csv", options={"root": "images"}),
    read("csv-classes", "csv", inside="ann.csv", options={"root": "images"}),
    read("csv-classes", "csv", inside="ann_wo_ext.csv", options={"root": "images"}),
    read("csv-multilabel", "csv"),
    read(
        "cvat-images",
        "cvat",
        differences={
            "datumaro train/img0: other objects": ([], _NOT_PACKED),
            "datumaro train/img1: boxes": ([], "a polygon of no class: rejected, and named"),
            "datumaro train/img1: other objects": ([], _NOT_PACKED),
        },
    ),
    read(
        "cvat-video",
        "cvat",
        differences={
            "datumaro annotations/frame_000010: other objects": ([], _NOT_PACKED),
            "datumaro annotations/frame_000013: boxes": ([], _OUTSIDE),
            "datumaro annotations/frame_000013: other objects": ([], _NOT_PACKED),
            "datumaro annotations/frame_000016: boxes": ([], _OUTSIDE),
            "datumaro annotations/frame_000016: other objects": ([], _NOT_PACKED),
        },
    ),
    pictures("datumaro-json", ignored={"not a picture": 3}),
    read("flat-folder", "flat"),
    read("flat-photos", "flat"),
    read("hf-imagefolder-metadata", "jsonl"),
    read("hf-parquet", "hf"),
    read("hf-parquet-classes", "hf"),
    read("hf-saved", "hf"),
    pictures("icdar", ignored={"not a picture": 2}),
    read("image-zip", "zip"),
    read("imagefolder", "imagefolder"),
    read(
        "imagefolder-nested",
        "imagefolder",
        aside={"label_0_2.jpg": "unlabelled: lies beside class folders"},
        ignored={"unlabelled: lies beside class folders": 1},
        differences={
            "datumaro: items": (3, "a picture beside the class folders has no label: ignored"),
            "datumaro default/no_label:label_0_2: stored": (False, "the same picture"),
            "datumaro: labels": ({"label_0", "label_1"}, _NESTED),
            "datumaro default/label_1/label_1_1:label_1_1: labels": (["label_1"], _NESTED),
        },
    ),
    read(
        "imagenet-txt",
        "txt-list",
        differences={
            "datumaro: items": (2, _NOT_THERE),
            "datumaro train/3: stored": (False, _NOT_THERE),
            "datumaro train/4: stored": (False, _NOT_THERE),
        },
    ),
    read(
        "images-broken",
        "flat",
        differences={
            "unknown_compression_method.png: rejected": (
                False,
                "its colour profile alone is damaged; libpng, browsers and OpenCV show its pixels",
            ),
        },
    ),
    read("images-exif", "flat"),
    read(
        "images-odd",
        "flat",
        left_out={"masks": "hopper_mask.png is a picture among pictures"},
        differences=_ODD_IN_RGB,
    ),
    read(
        "images-odd",
        "flat",
        given="--mode unchanged",
        mode="unchanged",
        left_out={"masks": "hopper_mask.png is a picture among pictures"},
        differences=_ODD_UNCHANGED,
    ),
    read("kitti", "kitti"),
    read("labelme-json", "labelme"),
    read(
        "labelme-xml",
        "labelme",
        aside={
            "Masks/*": "lies in a folder where no picture has annotations",
            "Scribbles/*": "lies in a folder where no picture has annotations",
        },
        ignored={"lies in a folder where no picture has annotations": 4},
        left_out={"masks": "files of outlines are not read, as the store's notes say"},
        differences={
            "datumaro subset1/img1: boxes": (
                [
                    ("b1", 13, 19, 23, 30),
                    ("hg", 60, 21, 74, 34),
                    ("license plate", 58, 66, 62, 68),
                    ("m1", 56, 14, 70, 23),
                    ("o1", 15, 12, 42, 26),
                    ("q1", 28, 21, 43, 31),
                    ("window", 43, 34, 45, 37),
                ],
                "two objects have a file for an outline, which is not read: packed by their boxes",
            ),
            "datumaro subset1/img1: masks": ({}, "the same two"),
        },
    ),
    read("manifest-csv", "csv"),
    read("manifest-jsonl", "jsonl"),
    read("mnist-idx", "idx"),
    read(
        "mvtec",
        "imagefolder",
        inside="category_0/default",
        left_out={"masks": "read by folders; only two of three pictures have a mask"},
    ),
    read(
        "open-images",
        "open-images",
        aside={"masks/*": "mask of a segment, which this source does not read"},
        ignored={
            "not a picture": 2,
            "annotation file without boxes": 1,
            "mask of a segment, which this source does not read": 1,
        },
        left_out={"masks": "masks of segments are not read, as the store's notes say"},
        differences={
            "datumaro: labels": ({f"Generic label #{n}" for n in range(4)}, _OTHER_NAMES),
            "datumaro train/a: labels": ([], _IMAGE_LABELS),
            "datumaro train/b: labels": ([], _IMAGE_LABELS),
            "datumaro test/c: labels": ([], _IMAGE_LABELS),
            "datumaro train/b: boxes": (
                [("Generic label #0", 1.6, 0.6, 8.0, 1.0)],
                _OTHER_NAMES,
            ),
            "datumaro test/c: boxes": ([("Generic label #3", 3.5, 0.0, 4.0, 5.0)], _OTHER_NAMES),
            "datumaro train/b: masks": ({}, "masks of segments are not read"),
        },
    ),
    read("photos-large", "flat"),
    read(
        "seg-pairs-camvid",
        "mask-pairs",
        aside={"labels/*": MASK},
        masks={"mask": (r"images/(.*)\.png", r"labels/\1_P.png")},
    ),
    pictures("seg-pairs-camvid-txt", ignored={"not a picture": 3}),
    read(
        "seg-pairs-toy",
        "mask-pairs",
        aside={"masks/*": MASK},
        masks={"mask": ("images/", "masks/")},
        colors={
            "(64, 128, 64)": 1,
            "(0, 128, 192)": 3,
            "(192, 128, 64)": 4,
            "(128, 64, 128)": 5,
        },
    ),
    pictures("segment-anything", ignored={"not a picture": 2}),
    pictures("via", ignored={"not a picture": 1}),
    read("voc-bccd", "voc"),
    read(
        "voc-dirty",
        "voc",
        differences={
            "Annotations/BloodImage_00338.xml: degenerate": ([], _ONE_PIXEL),
            "voc_totals: degenerate": (0, _ONE_PIXEL),
        },
    ),
    read(
        "voc-dirty",
        "voc",
        given="--voc-origin 0",
        options={"voc_origin": "0"},
        differences={
            "voc_totals: classes": ({"RBC": 12, "WBC": 1, "raccoon": 1}, _NO_AREA),
            "voc_totals: report": ({"RBC": 12, "WBC": 1, "raccoon": 1}, _NO_AREA),
            "supervision all BloodImage_00338.jpg: classes": (["RBC"] * 12 + ["WBC"], _NO_AREA),
            "supervision all BloodImage_00338.jpg: boxes": (13, _NO_AREA),
            "supervision all: boxes": (14, _NO_AREA),
        },
    ),
    read("voc-flat-pairs", "voc"),
    read("voc-fridge", "voc"),
    read(
        "voc-full",
        "voc",
        aside=_VOC_MASKS,
        ignored={_VOC_ASIDE: 2, **_FULL_LISTS},
        left_out=_NOT_ASKED_FOR,
        differences={"datumaro: labels": ({"cat", "person"}, _NO_XML)},
    ),
    read(
        "voc-full",
        "voc",
        given="--task segment",
        options={"task": "segment"},
        aside={
            "JPEGImages/2007_000002.jpg": "has no mask in SegmentationClass",
            "SegmentationClass/*": MASK,
            "SegmentationObject/*": _VOC_ASIDE,
        },
        ignored={"has no mask in SegmentationClass": 1, _VOC_ASIDE: 1, **_FULL_LISTS},
        masks={"mask": (r"JPEGImages/(.*)\.jpg", r"SegmentationClass/\1.png")},
        colors={"(0, 128, 0)": 2},  # Pascal VOC's own palette.
        differences={
            "datumaro: items": (1, "a picture without a mask is none of a segmentation"),
            "datumaro test/2007_000002: stored": (False, "the same picture"),
            "datumaro: subsets": ({"train": 1}, "the same picture was all of test"),
            "datumaro: labels": (
                {"background", *_VOC_NAMES.split()},
                "255, which datumaro calls 'ignored', is not a class",
            ),
            "SegmentationObject/2007_000001.png: mask": ("not stored", _OBJECT_MASKS),
        },
    ),
    read("voc-raccoon", "voc", ignored={"not a picture": 1}),  # The same boxes, as CSV.
    read("voc-roboflow", "voc"),
    read(
        "voc-segmentation",
        "voc",
        aside=_VOC_MASKS,
        ignored={_VOC_ASIDE: 2},
        left_out=_NOT_ASKED_FOR,
    ),
    read(
        "voc-segmentation",
        "voc",
        given="--task segment",
        options={"task": "segment"},
        aside={"SegmentationClass/*": MASK, "SegmentationObject/*": _VOC_ASIDE},
        ignored={_VOC_ASIDE: 1},
        masks={"mask": (r"JPEGImages/(.*)\.jpg", r"SegmentationClass/\1.png")},
        differences={
            "SegmentationObject/2007_000063.png: mask": ("not stored", _OBJECT_MASKS),
        },
    ),
    read(
        "vott-csv",
        "csv",
        differences={
            "datumaro test/img0001: boxes": ([], _NO_PICTURE),
            "datumaro test/img0002: boxes": ([], _NO_PICTURE),
            "datumaro train/img0003: boxes": ([], _NO_PICTURE),
        },
    ),
    read("webdataset", "tar", inside="bccd-000000.tar"),
    read("webdataset", "tar", inside="bccd-000001.tar"),
    read("webdataset", "tar", inside="classic_png_cls.tgz"),
    read(
        "wider-face",
        "wider",
        ignored={"not a picture": 1},  # dataset_meta.json, which is datumaro's.
        differences={
            "datumaro: labels": ({"face"}, _EVENTS),
            "datumaro train/0_Parade_image_01: labels": ([], _EVENTS),
            "datumaro train/1_Handshaking_image_02: labels": ([], _EVENTS),
            "datumaro val/0_Parade_image_03: labels": ([], _EVENTS),
        },
    ),
    read("yolo-darknet", "yolo"),
    read("yolo-flat-pairs", "yolo"),
    read("yolo-labelstudio", "yolo"),
    read("yolo-obb", "dota"),
    read("yolo-roboflow", "yolo"),
    read("yolo-ultralytics", "yolo"),
)


def refused(folder: str, *says: str, **settings: Any) -> RefusedSet:
    """A set whose refusal says these things."""
    return RefusedSet(folder=folder, says=says, **settings)


_FLAT = "give --format flat"

REFUSED: tuple[RefusedSet, ...] = (
    refused("ade20k", "full ADE20K", "its release for scene parsing"),
    refused("coco-json-only", "none of the 50 pictures", "--root"),
    refused("coco-rle", "COCO results (predictions)", "Give the annotations"),
    refused("createml", "CreateML annotations", "Export them as COCO", _FLAT),
    refused("csv-bccd", "BloodImage_00001.jpg", "It lies in images/: give --root"),
    refused("csv-boxes", "ann.csv, ann2.csv, ann3.csv", "the list itself"),
    refused("csv-boxes", "1.jpg not found", "give --root", inside="ann.csv"),
    refused(
        "csv-boxes",
        "x0, y0, x1, y1 or x, y, width, height",
        "'bbox_xyxy' or 'bbox_xywh'",
        inside="ann3.csv",
        options={"root": "images"},
    ),
    refused("csv-classes", "ann.csv, ann_wo_ext.csv", "the list itself"),
    refused("datumaro-json", "Datumaro annotations", "datum convert", "--format flat"),
    refused("icdar", "ICDAR text boxes", "Convert them to COCO", "--format flat"),
    refused("labelstudio-json", "Label Studio", "Export the project as COCO or YOLO"),
    refused("mnist-csv", "pixels written as CSV", "IDX"),
    refused("mvtec", "MVTec", "a folder for each class"),
    refused("seg-pairs-camvid-txt", "a mask with three channels", "labelmap.txt"),
    refused("segment-anything", "Segment Anything", "one COCO JSON", _FLAT),
    refused("tfrecord-detection", "TFRecord", "Build from what they were made of"),
    refused("via", "VGG Image Annotator (VIA)", "Export them as COCO", _FLAT),
    refused("webdataset", "members with .cls are in", "the path of one archive"),
)
