"""The layouts of raw data that can be read, a row each: all that is said of one outside its source.

A new layout is a module and a row here. Every trait is stated in every row: one that is forgotten
is an error as soon as this module is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LayoutKind = Literal["pictures", "annotations", "list", "archive"]

SourceSetting = Literal[
    "root", "classes", "path_column", "label_column", "label_is_index", "voc_origin"
]
"""A setting of `SourceOptions` that some layouts have no use for."""

Finder = Literal[
    "declared",
    "json_files",
    "xml_files",
    "named_kinds",
    "texts",
    "folder_names",
    "mask_folders",
    "sidecars",
    "masks_beside",
    "archives",
    "parquet_lists",
    "pictures",
    "csv_lists",
    "jsonl_lists",
    "txt_lists",
]
"""What looks for evidence: a key of `FINDERS` or `LIST_FINDERS` in `packer.sources.detection`."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One layout of raw data.

    Attributes:
        module: The source that reads it, a `packer.sources.source.Source`, as text. It is loaded
            when it is asked for: a build worker, which reads no raw tree, starts without any.
        kind: "pictures" reads pictures and names of folders, and no file of any other kind; a
            "list" names a picture in each row; an "archive" is a file that holds pictures;
            "annotations" are all others.
        may_be_file: Whether one file may be given for the raw path: the list, the archive, the
            file of annotations.
        takes: Settings of how it is read that it has a use for, of those that not all have:
            `packer.sources.settings` refuses the others. "root" where its files name pictures by
            path, which may lie elsewhere.
        has_corners: Whether its boxes may be turned, which `--task obb` needs.
        told_by: What finds evidence for it.
        endings: Ends of the names of the files that hold it or tell it, in lower case.
        not_alone: Ends of the names of files that tell it and hold none of its data, in lower
            case: one of them is not enough for the raw path.
        folders_beside: Names of folders, in lower case, that tell it where they lie side by side:
            all of a group.
        folders_anywhere: The same of folders that tell it wherever they lie. They come in archives
            of their own, and are often unpacked into folders of their own.
        is_checked: Whether content must bear out what names promise before it is decided on: see
            `packer.sources.detection.content`.
        is_read_to_tell: Whether only what its files hold says if a build takes them, so that
            `packer detect` reads them.
        requires: What has to be there for it to be told, as `packer detect` says it after "needs".
        meaning: What a build of it makes of pictures, as a message adds it to `--format`; empty for
            all but "pictures".
    """

    module: str
    kind: LayoutKind
    may_be_file: bool
    takes: tuple[SourceSetting, ...]
    has_corners: bool
    told_by: tuple[Finder, ...]
    endings: tuple[str, ...]
    not_alone: tuple[str, ...]
    folders_beside: tuple[tuple[bytes, ...], ...]
    folders_anywhere: tuple[tuple[bytes, ...], ...]
    is_checked: bool
    is_read_to_tell: bool
    requires: str
    meaning: str


LAYOUTS: dict[str, Layout] = {
    "imagefolder": Layout(
        module="packer.sources.imagefolder",
        kind="pictures",
        may_be_file=False,
        takes=("classes",),
        has_corners=False,
        told_by=("pictures",),
        endings=(),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="folders of pictures that are called like classes",
        meaning="names of folders become labels",
    ),
    "flat": Layout(
        module="packer.sources.flat",
        kind="pictures",
        may_be_file=False,
        takes=(),
        has_corners=False,
        told_by=("pictures",),
        endings=(),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="pictures in no folder, or in one for each split",
        meaning="every picture, unlabelled",
    ),
    "coco": Layout(
        module="packer.sources.coco",
        kind="annotations",
        may_be_file=True,
        takes=("root", "classes"),
        has_corners=True,
        told_by=("json_files",),
        endings=(".json",),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="a JSON file with images, and annotations or categories",
        meaning="",
    ),
    "voc": Layout(
        module="packer.sources.voc",
        kind="annotations",
        may_be_file=False,
        takes=("classes", "voc_origin"),
        has_corners=True,
        told_by=("xml_files", "folder_names"),
        endings=(".xml",),
        not_alone=(),
        folders_beside=((b"annotations", b"jpegimages"),),
        folders_anywhere=(),
        is_checked=True,
        is_read_to_tell=False,
        requires="XML files of <annotation>, or folders Annotations and JPEGImages side by side",
        meaning="",
    ),
    "yolo": Layout(
        module="packer.sources.yolo",
        kind="annotations",
        may_be_file=True,
        takes=("root", "classes"),
        has_corners=True,
        told_by=("declared", "folder_names", "sidecars"),
        endings=(".yaml", ".yml", ".data", ".txt"),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="a data.yaml, a .data file of darknet, or a .txt of boxes for each picture",
        meaning="",
    ),
    "mask-pairs": Layout(
        module="packer.sources.masks.mask_pairs",
        kind="annotations",
        may_be_file=False,
        takes=("classes",),
        has_corners=False,
        told_by=("texts", "folder_names", "mask_folders", "masks_beside"),
        endings=(".txt",),
        not_alone=(),
        folders_beside=(
            (b"segmentationclass",),
            (b"ground_truth",),
            (b"groundtruth",),
            (b"imagestr", b"labelstr"),
        ),
        folders_anywhere=(),
        is_checked=True,
        is_read_to_tell=False,
        requires="folders images and masks or alike, names such as 1_mask.png, or a list of both",
        meaning="",
    ),
    "csv": Layout(
        module="packer.sources.lists.csv_list",
        kind="list",
        may_be_file=True,
        takes=("root", "classes", "path_column", "label_column", "label_is_index"),
        has_corners=False,
        told_by=("declared", "csv_lists"),
        endings=(".csv", ".tsv"),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="a .csv or .tsv with a column of paths and one of labels, boxes or masks",
        meaning="",
    ),
    "jsonl": Layout(
        module="packer.sources.lists.jsonl_list",
        kind="list",
        may_be_file=True,
        takes=("root", "classes", "path_column", "label_column", "label_is_index"),
        has_corners=False,
        told_by=("declared", "jsonl_lists"),
        endings=(".jsonl", ".ndjson", ".jsonlines"),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="a .jsonl with the path of a picture in each line",
        meaning="",
    ),
    "parquet": Layout(
        module="packer.sources.lists.parquet_list",
        kind="list",
        may_be_file=True,
        takes=("root", "classes", "path_column", "label_column", "label_is_index"),
        has_corners=False,
        told_by=("declared", "archives", "parquet_lists"),
        endings=(".parquet",),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="a Parquet file with a column of paths",
        meaning="",
    ),
    "txt-list": Layout(
        module="packer.sources.lists.txt_list",
        kind="list",
        may_be_file=True,
        takes=("root", "classes", "label_is_index"),
        has_corners=False,
        told_by=("txt_lists",),
        endings=(".txt",),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="a .txt with the path of a picture and its label in each line",
        meaning="",
    ),
    "tar": Layout(
        module="packer.sources.tar",
        kind="archive",
        may_be_file=True,
        takes=("classes", "label_is_index"),
        has_corners=False,
        told_by=("archives",),
        endings=(".tar", ".tgz", ".tar.gz"),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=True,
        requires="tar archives of pictures",
        meaning="",
    ),
    "zip": Layout(
        module="packer.sources.zip_archive",
        kind="archive",
        may_be_file=True,
        takes=("classes",),
        has_corners=False,
        told_by=("archives",),
        endings=(".zip",),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=True,
        requires="zip archives of pictures",
        meaning="",
    ),
    "hf": Layout(
        module="packer.sources.hugging_face.scan",
        kind="archive",
        may_be_file=True,
        takes=("root", "classes", "label_is_index"),
        has_corners=False,
        told_by=("declared", "archives"),
        endings=(".arrow", ".parquet"),
        not_alone=(".json",),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="Arrow or Parquet files that hold pictures, or a dataset_dict.json",
        meaning="",
    ),
    "idx": Layout(
        module="packer.sources.idx",
        kind="archive",
        may_be_file=True,
        takes=("classes",),
        has_corners=False,
        told_by=("archives",),
        endings=("ubyte", "ubyte.gz"),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="files such as train-images-idx3-ubyte.gz",
        meaning="",
    ),
    "cifar": Layout(
        module="packer.sources.cifar",
        kind="archive",
        may_be_file=True,
        takes=("classes",),
        has_corners=False,
        told_by=("archives",),
        endings=(),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="files such as data_batch_1 and batches.meta",
        meaning="",
    ),
    "lmdb": Layout(
        module="packer.sources.lmdb_stores",
        kind="archive",
        may_be_file=True,
        takes=("classes", "label_is_index"),
        has_corners=False,
        told_by=("archives",),
        endings=("data.mdb", ".lmdb"),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="LMDB files of another tool: data.mdb, or *.lmdb",
        meaning="",
    ),
    "ffcv": Layout(
        module="packer.sources.ffcv",
        kind="archive",
        may_be_file=True,
        takes=("classes", "label_is_index"),
        has_corners=False,
        told_by=("archives",),
        endings=(".beton",),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="FFCV's .beton files",
        meaning="",
    ),
    "mds": Layout(
        module="packer.sources.mds",
        kind="archive",
        may_be_file=True,
        takes=("classes", "label_is_index"),
        has_corners=False,
        told_by=("archives",),
        endings=(".mds",),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="shards of MosaicML Streaming: *.mds",
        meaning="",
    ),
    "cityscapes": Layout(
        module="packer.sources.masks.cityscapes",
        kind="annotations",
        may_be_file=False,
        takes=("classes",),
        has_corners=False,
        told_by=("folder_names",),
        endings=(),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=((b"leftimg8bit", b"gtfine"), (b"leftimg8bit", b"gtcoarse")),
        is_checked=False,
        is_read_to_tell=False,
        requires="the folders leftImg8bit and gtFine or gtCoarse",
        meaning="",
    ),
    "cvat": Layout(
        module="packer.sources.cvat",
        kind="annotations",
        may_be_file=False,
        takes=("classes",),
        has_corners=True,
        told_by=("xml_files",),
        endings=(".xml",),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="an XML file of <annotations>",
        meaning="",
    ),
    "dota": Layout(
        module="packer.sources.dota",
        kind="annotations",
        may_be_file=False,
        takes=("classes",),
        has_corners=True,
        told_by=("declared", "folder_names"),
        endings=(".yaml", ".yml"),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(
            (b"labeltxt",),
            (b"labeltxt-v1.0",),
            (b"labeltxt-v1.5",),
            (b"labeltxt-v2.0",),
        ),
        is_checked=False,
        is_read_to_tell=False,
        requires="folders called labelTxt",
        meaning="",
    ),
    "kitti": Layout(
        module="packer.sources.kitti",
        kind="annotations",
        may_be_file=False,
        takes=("classes",),
        has_corners=False,
        told_by=("folder_names",),
        endings=(),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=((b"image_2", b"label_2"),),
        is_checked=False,
        is_read_to_tell=False,
        requires="the folders image_2 and label_2 side by side",
        meaning="",
    ),
    "labelme": Layout(
        module="packer.sources.labelme",
        kind="annotations",
        may_be_file=False,
        takes=("classes",),
        has_corners=True,
        told_by=("json_files", "xml_files"),
        endings=(".json", ".xml"),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=True,
        is_read_to_tell=False,
        requires="JSON files with shapes and imagePath, or LabelMe's XML",
        meaning="",
    ),
    "open-images": Layout(
        module="packer.sources.lists.open_images",
        kind="annotations",
        may_be_file=False,
        takes=("classes",),
        has_corners=False,
        told_by=("csv_lists",),
        endings=(".csv", ".tsv"),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="a .csv with the columns ImageID, LabelName, XMin, XMax, YMin and YMax",
        meaning="",
    ),
    "wider": Layout(
        module="packer.sources.wider",
        kind="annotations",
        may_be_file=False,
        takes=("classes",),
        has_corners=False,
        told_by=("texts",),
        endings=("_bbx_gt.txt",),
        not_alone=(),
        folders_beside=(),
        folders_anywhere=(),
        is_checked=False,
        is_read_to_tell=False,
        requires="a list of boxes called like wider_face_train_bbx_gt.txt",
        meaning="",
    ),
}
"""Every layout that can be read, by the name that `--format` gives it."""


def layouts_of(kind: LayoutKind) -> tuple[str, ...]:
    """Names of the layouts of a kind, in the order of the table."""
    return tuple(name for name, layout in LAYOUTS.items() if layout.kind == kind)
