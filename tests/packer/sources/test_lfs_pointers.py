"""A Git LFS pointer is called one, whatever file it stands for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packer.building.build import build
from packer.errors import BuildError
from packer.sources import SourceOptions
from tests.packer.conftest import draw_tree
from tests.packer.raw_files import VOC, YOLO, write_texts

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{1:064x}\nsize 90405\n"
PICTURES = [f"images/{n}.png" for n in range(2)]

PLACES: dict[str, tuple[list[str], dict[str, str]]] = {
    "picture": ([], {"a/1.jpg": POINTER, "a/2.jpg": POINTER}),
    "coco": (PICTURES, {"images/_annotations.coco.json": POINTER}),
    "csv": (PICTURES, {"train.csv": POINTER}),
    "csv below": (PICTURES, {"images/x/y/z/boxes.csv": POINTER}),
    "jsonl": (PICTURES, {"metadata.jsonl": POINTER}),
    "any data": (PICTURES, {"images/whatever.json": POINTER}),
    "txt-list": (PICTURES, {"train.txt": POINTER}),
    "xml": (PICTURES, {"annotations.xml": POINTER}),
    "data.yaml": (PICTURES, {"data.yaml": POINTER, "labels/0.txt": YOLO, "labels/1.txt": YOLO}),
    "obj.data": (PICTURES, {"obj.data": POINTER, "labels/0.txt": YOLO, "labels/1.txt": YOLO}),
    "yolo labels": (
        PICTURES,
        {
            "data.yaml": "names: [a]\ntrain: images\n",
            "labels/0.txt": POINTER,
            "labels/1.txt": POINTER,
        },
    ),
    "bare labels": (PICTURES, {"labels/0.txt": POINTER, "labels/1.txt": POINTER}),
    "labels beside": (PICTURES, {"images/0.txt": POINTER, "images/1.txt": POINTER}),
    "yolo list": (PICTURES, {"data.yaml": "names: [a]\ntrain: t.txt\n", "t.txt": POINTER}),
    "class names": (PICTURES, {"classes.txt": POINTER, "labels/0.txt": YOLO, "labels/1.txt": YOLO}),
    "notes.json": (PICTURES, {"notes.json": POINTER, "labels/0.txt": YOLO, "labels/1.txt": YOLO}),
    "voc": (
        [f"JPEGImages/{n}.png" for n in range(2)],
        {"Annotations/0.xml": POINTER, "Annotations/1.xml": POINTER},
    ),
    "voc list": (
        ["JPEGImages/0.png"],
        {"Annotations/0.xml": VOC, "ImageSets/Main/train.txt": POINTER},
    ),
    "labelme": (
        ["0.png", "1.png"],
        {"0.json": POINTER, "1.json": json.dumps({"shapes": [], "imagePath": "1.png"})},
    ),
    "sidecars": (["0.png", "1.png"], {"0.json": POINTER, "1.json": POINTER}),
    "kitti": (["image_2/0.png"], {"label_2/0.txt": POINTER}),
    "wider": (
        ["WIDER_train/images/0.png"],
        {"wider_face_split/wider_face_train_bbx_gt.txt": POINTER},
    ),
    "mask": (["images/0.png"], {"masks/0.png": POINTER}),
    "label map": (["images/0.png", "masks/0.png"], {"masks/labelmap.txt": POINTER}),
    "parquet": ([], {"train-00000-of-00001.parquet": POINTER}),
    "parquet list": (PICTURES, {"list.parquet": POINTER}),
    "arrow": ([], {"data-00000-of-00001.arrow": POINTER}),
    "saved": ([], {"dataset_dict.json": POINTER, "train/state.json": POINTER}),
    "tar": ([], {"shard-000.tar": POINTER}),
    "zip": ([], {"pictures.zip": POINTER}),
    "idx": ([], {"train-images-idx3-ubyte": POINTER}),
    "idx.gz": ([], {"train-images-idx3-ubyte.gz": POINTER}),
    "lmdb": ([], {"old.lmdb": POINTER}),
    "lmdb folder": ([], {"old/data.mdb": POINTER}),
    "ffcv": ([], {"train.beton": POINTER}),
    "mds": ([], {"shard.00000.mds": POINTER}),
    "cifar": ([], {"data_batch_1": POINTER}),
    "cifar binary": ([], {"data_batch_1.bin": POINTER}),
    "npy": ([], {"pixels.npy": POINTER}),
    "odgt": (PICTURES, {"annotation_train.odgt": POINTER}),
    "manifest": (PICTURES, {"output.manifest": POINTER}),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_pointer_of_git_lfs_is_called_one(place, tmp_path):
    """The error says so and what to run, rather than what a parser makes of it."""
    pictures, texts = PLACES[place]
    raw: Path = write_texts(draw_tree(tmp_path / "raw", pictures), texts)
    with pytest.raises(
        BuildError, match="it looks like a Git LFS pointer: get the file with git lfs"
    ):
        build(raw, tmp_path / "out.lmdb", source=SourceOptions(), worker_count=1)
