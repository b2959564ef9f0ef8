"""A small raw tree for each layout that a source reads, and for each of the forms it has.

In each the split for training is whole; what is meant for validation or testing is damaged in part.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.packer.foreign_stores import drawn, write_beton, write_lmdb, write_mds
from tests.packer.raw_files import write_texts

BOX = "0 0.5 0.5 0.2 0.2\n"
XML = (
    "<annotation><object><name>a</name><bndbox><xmin>5</xmin><ymin>6</ymin><xmax>20</xmax>"
    "<ymax>30</ymax></bndbox></object></annotation>"
)
CVAT = (
    '<annotations><version>1.1</version><image id="0" name="{0}" width="24" height="16">'
    '<box label="a" xtl="1" ytl="2" xbr="9" ybr="8"/></image></annotations>'
)


def coco(*names: str, image_id: int = 1) -> str:
    return json.dumps(
        {
            "images": [
                {"id": n + 1, "file_name": name, "width": 24, "height": 16}
                for n, name in enumerate(names)
            ],
            "annotations": [
                {"id": 1, "image_id": image_id, "category_id": 1, "bbox": [1, 2, 9, 8], "area": 72}
            ],
            "categories": [{"id": 1, "name": "a"}],
        }
    )


def png(name: str) -> bytes:
    """The file of a picture that is drawn for a name."""
    data = io.BytesIO()
    Image.new("RGB", (24, 16), (len(name), 3, 9)).save(data, "PNG")
    return data.getvalue()


def write_mask(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.arange(384, dtype=np.uint8).reshape(16, 24) // 100).save(path)


def draw_tree(raw: Path, names: list[str]) -> None:
    """A picture at each path."""
    for name in names:
        (raw / name).parent.mkdir(parents=True, exist_ok=True)
        (raw / name).write_bytes(png(name))


def lost_link(path: Path) -> None:
    """A picture that cannot be read, whoever runs the test."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("nowhere.png")


def make_coco(raw: Path) -> None:
    draw_tree(raw, [f"train2017/{n}.png" for n in range(2)])
    write_texts(
        raw,
        {
            "annotations/instances_train2017.json": coco("0.png", "1.png"),
            "annotations/instances_val2017.json": coco("5.png", "6.png", image_id=77),
        },
    )
    lost_link(raw / "val2017" / "9.png")


def make_coco_damaged(raw: Path) -> None:
    draw_tree(raw, [f"train2017/{n}.png" for n in range(2)])
    write_texts(
        raw,
        {
            "annotations/instances_train2017.json": coco("0.png", "1.png"),
            "annotations/instances_val2017.json": coco("5.png", "6.png")[:-9],
        },
    )


def make_coco_captions(raw: Path) -> None:
    draw_tree(raw, ["train2017/0.png", "train2017/1.png", "val2017/3.png"])
    for split, names in (("train", ("0.png", "1.png")), ("val", ("3.png", "4.png"))):
        images = [{"id": n, "file_name": name} for n, name in enumerate(names)]
        notes = [{"id": n, "image_id": n, "caption": "a"} for n in range(2)]
        if split == "val":
            notes += [{"id": 7, "image_id": 0, "caption": 4}, {"id": 8, "image_id": 9}]
        write_texts(
            raw,
            {
                f"annotations/captions_{split}2017.json": json.dumps(
                    {"images": images, "annotations": notes}
                )
            },
        )


def make_csv(raw: Path) -> None:
    draw_tree(raw, ["0.png", "1.png"])
    rows = "path,label,split\n0.png,a,train\n1.png,b,train\n2.png,a,val\n,b,val\n0.png,b,val\n"
    write_texts(raw, {"list.csv": rows})


def make_csv_boxes(raw: Path) -> None:
    draw_tree(raw, ["0.png", "1.png", "2.png"])
    rows = "path,label,xmin,ymin,xmax,ymax,split\n"
    rows += "0.png,a,1,2,9,8,train\n1.png,b,1,2,9,8,train\n"
    rows += "2.png,a,1,2,9,8,val\n2.png,a,x,2,9,8,val\n3.png,a,1,2,9,8,val\n"
    write_texts(raw, {"list.csv": rows})


def make_csv_lists(raw: Path) -> None:
    draw_tree(raw, ["0.png", "1.png"])
    train = "path,label\n0.png,a\n1.png,b\n"
    write_texts(raw, {"train.csv": train, "val.csv": "path,label\n7.png,a\n8.png\n"})


def make_csv_lists_quoted(raw: Path) -> None:
    make_csv_lists(raw)
    (raw / "val.csv").write_text('path,label\n7.png,a\n8.png,"b\n')


def make_csv_lists_utf16(raw: Path) -> None:
    make_csv_lists(raw)
    (raw / "val.csv").write_bytes("path,label\n0.png,a\n".encode("utf-16"))


def make_jsonl(raw: Path) -> None:
    draw_tree(raw, ["0.png", "1.png"])
    lines = [{"file_name": f"{n}.png", "label": "a", "split": "train"} for n in range(2)]
    lines += [{"file_name": "5.png", "label": "a", "split": "val"}]
    lines += [{"file_name": None, "label": "a", "split": "val"}]
    write_texts(raw, {"metadata.jsonl": "".join(json.dumps(line) + "\n" for line in lines)})


def make_jsonl_lists(raw: Path) -> None:
    draw_tree(raw, ["0.png", "1.png"])
    train = "".join(json.dumps({"file_name": f"{n}.png", "label": "a"}) + "\n" for n in range(2))
    write_texts(raw, {"train.jsonl": train, "val.jsonl": '{"file_name": "7.png", "label": "a"}\n{'})


def make_parquet(raw: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    draw_tree(raw, ["0.png", "1.png"])
    names = ["0.png", "1.png", "5.png"]
    table = {"path": names, "label": ["a", "b", "a"], "split": ["train", "train", "val"]}
    pq.write_table(pa.table(table), raw / "list.parquet")


def make_txt(raw: Path) -> None:
    draw_tree(raw, ["0.png", "1.png"])
    write_texts(raw, {"train.txt": "0.png a\n1.png b\n", "val.txt": "5.png a\n6.png\n0.png b\n"})


def make_yolo(raw: Path) -> None:
    draw_tree(raw, ["train/images/0.png", "train/images/1.png", "valid/images/9.png"])
    write_texts(
        raw,
        {
            "train/labels/0.txt": BOX,
            "train/labels/1.txt": BOX,
            "data.yaml": "names: [a]\ntrain: train/images\nval: valid/images\n",
        },
    )
    (raw / "valid/labels").mkdir()
    (raw / "valid/labels/9.txt").write_bytes(b"\xff\xfe0\0 \0")
    lost_link(raw / "valid" / "images" / "7.png")


def make_yolo_lines(raw: Path) -> None:
    make_yolo(raw)
    (raw / "valid/labels/9.txt").write_text(BOX + "5 0.5 0.5 0.2 0.2\n0 9 9 9 9\n")


def make_yolo_lists(raw: Path) -> None:
    make_yolo(raw)
    write_texts(
        raw,
        {
            "train.txt": "train/images/0.png\ntrain/images/1.png\n",
            "val.txt": "valid/images/9.png\nvalid/images/nowhere.png\n",
            "data.yaml": "names: [a]\ntrain: train.txt\nval: val.txt\n",
        },
    )


def make_darknet(raw: Path) -> None:
    make_yolo_lists(raw)
    (raw / "data.yaml").unlink()
    settings = "classes = 1\ntrain = train.txt\nvalid = nowhere.txt\nnames = obj.names\n"
    write_texts(raw, {"obj.names": "a\n", "obj.data": settings})


def make_voc(raw: Path) -> None:
    draw_tree(raw, [f"JPEGImages/{n}.png" for n in range(3)])
    write_texts(
        raw,
        {
            "Annotations/0.xml": XML,
            "Annotations/1.xml": XML,
            "Annotations/2.xml": "broken",
            "Annotations/4.xml": XML,
            "ImageSets/Main/train.txt": "0\n1\n",
            "ImageSets/Main/val.txt": "2\n3\n4\n",
        },
    )


def make_voc_folders(raw: Path) -> None:
    draw_tree(raw, ["train/0.png", "train/1.png", "valid/2.png"])
    texts = {"train/0.xml": XML, "train/1.xml": XML, "valid/2.xml": XML[:-5], "valid/3.xml": XML}
    write_texts(raw, texts)


def make_labelme(raw: Path) -> None:
    draw_tree(raw, ["train/0.png", "train/1.png", "val/2.png"])
    shape = {"label": "a", "points": [[1, 2], [9, 8]], "shape_type": "rectangle"}
    whole = {"shapes": [shape], "imagePath": "", "imageHeight": 16, "imageWidth": 24}
    broken = {**whole, "shapes": [{**shape, "points": "x"}, {**shape, "shape_type": "point"}]}
    text = json.dumps(whole)
    write_texts(
        raw,
        {
            "train/0.json": text,
            "train/1.json": text,
            "val/2.json": json.dumps(broken),
            "val/3.json": text,
        },
    )


def make_cvat(raw: Path) -> None:
    draw_tree(raw, ["images/0.png", "images/2.png"])
    write_texts(raw, {"train.xml": CVAT.format("0.png"), "val.xml": CVAT.format("5.png")})


def make_cvat_damaged(raw: Path) -> None:
    draw_tree(raw, ["images/0.png", "images/2.png"])
    write_texts(raw, {"train.xml": CVAT.format("0.png"), "val.xml": CVAT.format("2.png")[:-9]})


def make_kitti(raw: Path) -> None:
    draw_tree(raw, ["training/image_2/0.png", "training/image_2/1.png", "testing/image_2/2.png"])
    line = "Car 0 0 0 1 2 9 8 1 1 1 1 1 1 0\n"
    texts = {f"training/label_2/{n}.txt": line for n in range(2)}
    write_texts(raw, {**texts, "testing/label_2/2.txt": "Car\n" + line})
    lost_link(raw / "testing" / "image_2" / "5.png")


def make_dota(raw: Path) -> None:
    draw_tree(raw, ["train/images/0.png", "train/images/1.png", "val/images/2.png"])
    line = "1 1 9 1 9 8 1 8 plane 0\n"
    texts = {f"train/labelTxt/{n}.txt": line for n in range(2)}
    write_texts(raw, texts)
    (raw / "val/labelTxt").mkdir()
    (raw / "val/labelTxt/2.txt").write_bytes(b"\0\0")


def make_wider(raw: Path) -> None:
    draw_tree(raw, ["WIDER_train/images/x/0.png", "WIDER_val/images/x/2.png"])
    face = "1 2 9 8 0 0 0 0 0 0\n"
    val = f"x/2.png\n2\n{face}x\nx/9.png\n1\n{face}"
    write_texts(
        raw,
        {
            "wider_face_split/wider_face_train_bbx_gt.txt": f"x/0.png\n1\n{face}",
            "wider_face_split/wider_face_val_bbx_gt.txt": val,
        },
    )


def make_wider_damaged(raw: Path) -> None:
    make_wider(raw)
    (raw / "wider_face_split/wider_face_val_bbx_gt.txt").write_text("what is this\n")


def make_open_images(raw: Path) -> None:
    draw_tree(raw, ["train/aa.png", "validation/bb.png"])
    header = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n"
    row = "{},x,/m/0,1,0.1,0.5,0.2,0.6\n"
    write_texts(
        raw,
        {
            "train-annotations-bbox.csv": header + row.format("aa"),
            "validation-annotations-bbox.csv": header
            + row.format("bb")
            + row.format("cc")
            + "bb,x,/m/0,1,0.1,oops,0.2,0.6\n",
        },
    )


def make_mask_pairs(raw: Path) -> None:
    draw_tree(raw, ["images/train/0.png", "images/train/1.png", "images/val/2.png"])
    for name in ("train/0", "train/1", "val/7"):
        write_mask(raw / "masks" / f"{name}.png")
    draw_tree(raw, ["images/val/7.png", "images/val/8.png"])


def make_mask_lists(raw: Path) -> None:
    draw_tree(raw, ["a/0.png", "a/1.png", "a/2.png"])
    for name in ("0", "1"):
        write_mask(raw / "b" / f"{name}.png")
    train = "a/0.png b/0.png\na/1.png b/1.png\n"
    write_texts(raw, {"train.txt": train, "val.txt": "a/2.png b/2.png\na/5.png b/5.png\n"})


def make_cityscapes(raw: Path) -> None:
    names = ["train/x/x_0", "train/x/x_1", "val/x/x_2", "val/x/x_3"]
    draw_tree(raw, [f"leftImg8bit/{name}_leftImg8bit.png" for name in names])
    for name in (*names[:3], "val/x/x_9"):
        write_mask(raw / "gtFine" / f"{name}_gtFine_labelIds.png")


def make_imagefolder(raw: Path) -> None:
    draw_tree(raw, [f"{s}/{c}/{n}.png" for s in ("train", "val") for c in "ab" for n in "0"])
    lost_link(raw / "val" / "a" / "9.png")


def make_flat(raw: Path) -> None:
    draw_tree(raw, ["train/0.png", "train/1.png", "val/2.png"])
    lost_link(raw / "val" / "9.png")


def write_archive(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def make_tar(raw: Path) -> None:
    write_archive(raw / "train.tar", {"0.png": png("0"), "0.cls": b"0"})
    write_archive(raw / "val.tar", {"1.png": png("1"), "1.cls": b"", "2.png": png("2")})


def make_tar_unlabelled(raw: Path) -> None:
    make_tar(raw)
    write_archive(raw / "val.tar", {"1.png": png("1"), "2.png": png("2")})


def make_tar_damaged(raw: Path) -> None:
    make_tar(raw)
    (raw / "val.tar").write_bytes(b"no tar" * 200)


def make_zip(raw: Path) -> None:
    write_archive(raw / "train.zip", {f"{c}/0.png": png(c) for c in "ab"})
    (raw / "val.zip").write_bytes(b"PK nothing")


def make_zip_folders(raw: Path) -> None:
    members = {f"{s}/{c}/0.png": png(c) for s in ("train", "val") for c in "ab"}
    write_archive(raw / "all.zip", {**members, "val/../1.png": b"", "val/a/\xe9.png": b""})
    with zipfile.ZipFile(raw / "all.zip", "a") as archive:
        link = zipfile.ZipInfo("val/a/9.png")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "0.png")


def make_idx(raw: Path) -> None:
    raw.mkdir()
    images = struct.pack(">IIII", 0x803, 2, 4, 3) + bytes(24)
    labels = struct.pack(">II", 0x801, 2) + bytes(2)
    (raw / "train-images-idx3-ubyte").write_bytes(images)
    (raw / "train-labels-idx1-ubyte").write_bytes(labels)
    (raw / "t10k-images-idx3-ubyte").write_bytes(images[:-3])
    (raw / "t10k-labels-idx1-ubyte").write_bytes(labels)


def make_cifar(raw: Path) -> None:
    raw.mkdir()
    (raw / "data_batch_1.bin").write_bytes(bytes(3073) * 2)
    (raw / "test_batch.bin").write_bytes(bytes(3000))
    (raw / "batches.meta.txt").write_text("a\nb\n")


def hf_table(labels: list[int | None], **more: list[int]) -> object:
    pa = pytest.importorskip("pyarrow")
    images = [{"bytes": png(str(n)), "path": f"{n}.png"} for n in range(len(labels))]
    return pa.table({"image": images, "label": pa.array(labels, pa.int64()), **more})


def make_hf(raw: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    (raw / "data").mkdir(parents=True)
    pq.write_table(hf_table([0, 1]), raw / "data" / "train-00000-of-00001.parquet")
    pq.write_table(hf_table([0, None]), raw / "data" / "test-00000-of-00001.parquet")


def make_hf_damaged(raw: Path) -> None:
    make_hf(raw)
    (raw / "data" / "test-00000-of-00001.parquet").write_bytes(b"PAR1 nothing")


def make_hf_columns(raw: Path) -> None:
    make_hf(raw)
    import pyarrow.parquet as pq

    table = hf_table([0, 1], image_id=[1, 2])
    pq.write_table(table, raw / "data" / "test-00000-of-00001.parquet")


def make_lmdb(raw: Path) -> None:
    entries = {b"image-%d" % n: png(str(n)) for n in range(2)}
    entries |= {b"label-%d" % n: b"%d" % n for n in range(2)}
    write_lmdb(raw / "train", {**entries, b"length": b"2"})
    entries |= {b"label-2": b"2"}
    write_lmdb(raw / "val.lmdb", entries, subdir=False)
    (raw / "test.lmdb").write_bytes(bytes(100))


def make_lmdb_named(raw: Path) -> None:
    for split in ("train", "val"):
        pictures = {f"{c}/{n}.png".encode(): png(f"{split}{c}{n}") for c in "ab" for n in "01"}
        write_lmdb(raw / split, pictures)
    (raw / "val" / "meta_info.txt").write_text("a/0.png (8,8,3) 1\na/9.png (8,8,3) 1\n")


def make_ffcv(raw: Path) -> None:
    raw.mkdir()
    samples = [(pixels, n) for n, pixels in enumerate(drawn(2))]
    for name in ("train", "val"):
        write_beton(raw / f"{name}.beton", {"image": "image", "label": "int"}, samples, {1})
    (raw / "test.beton").write_bytes(bytes(100))


def make_mds(raw: Path) -> None:
    samples = [{"image": pixels, "label": n} for n, pixels in enumerate(drawn(2))]
    for name in ("train", "val"):
        write_mds(raw / name, {"image": "png", "label": "int"}, [samples, samples])
    (raw / "val" / "shard.00001.mds").write_bytes(bytes(100))
    (raw / "val" / "shard.00002.mds.zstd").write_bytes(bytes(100))


MAKERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    maker.__name__.removeprefix("make_"): (format_name, maker)
    for format_name, makers in {
        "coco": [make_coco, make_coco_damaged, make_coco_captions],
        "csv": [
            make_csv,
            make_csv_boxes,
            make_csv_lists,
            make_csv_lists_quoted,
            make_csv_lists_utf16,
        ],
        "jsonl": [make_jsonl, make_jsonl_lists],
        "parquet": [make_parquet],
        "txt-list": [make_txt],
        "yolo": [make_yolo, make_yolo_lines, make_yolo_lists, make_darknet],
        "voc": [make_voc, make_voc_folders],
        "labelme": [make_labelme],
        "cvat": [make_cvat, make_cvat_damaged],
        "kitti": [make_kitti],
        "dota": [make_dota],
        "wider": [make_wider, make_wider_damaged],
        "open-images": [make_open_images],
        "mask-pairs": [make_mask_pairs, make_mask_lists],
        "cityscapes": [make_cityscapes],
        "imagefolder": [make_imagefolder],
        "flat": [make_flat],
        "tar": [make_tar, make_tar_unlabelled, make_tar_damaged],
        "zip": [make_zip, make_zip_folders],
        "idx": [make_idx],
        "cifar": [make_cifar],
        "lmdb": [make_lmdb, make_lmdb_named],
        "ffcv": [make_ffcv],
        "mds": [make_mds],
        "hf": [make_hf, make_hf_damaged, make_hf_columns],
    }.items()
    for maker in makers
}

ENDS_SCAN = frozenset(
    (
        "coco_damaged",
        "csv_lists_quoted",
        "csv_lists_utf16",
        "darknet",
        "tar_unlabelled",
        "wider_damaged",
        "hf_columns",
    )
)
"""Trees of which nothing is packed, for their damage, unless the good split alone is asked for."""
