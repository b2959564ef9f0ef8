"""A store that is exported and built again is the same store, but for what is said to be lost."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet
import pytest
import yaml
from PIL import Image

import packer
from packer.errors import BuildError
from readers.store.manifest import read_manifest
from readers.store.schema import Field, Schema
from tests.cases.real_data import shards_made_here
from tests.packer.source_trees import write_archive
from tests.packer.stores.export.making import (
    CLASSES,
    differing,
    draw,
    make_detection,
    make_panoptic,
    make_pose,
    make_store,
    make_turned,
    samples,
)
from tests.readers.conftest import publish, write_shards
from tests.vision import need_torchvision


@pytest.fixture(autouse=True, scope="module")
def _here() -> Iterator[None]:
    with shards_made_here():
        yield


@pytest.fixture(scope="module")
def detection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of boxes, outlines, crowds and attributes in two splits. Not to be changed."""
    folder = tmp_path_factory.mktemp("detection")
    return make_store(make_detection(folder / "raw"), folder / "out.lmdb")


def again(store: Path, folder: Path, as_: str, image: str = "original", **options: object) -> Path:
    """The store that is built of an export."""
    packer.export(store, folder / "files", as_=as_)
    return make_store(folder / "files", folder / "again.lmdb", image, **options)


def test_coco_carries_all_of_a_detection_store(detection, tmp_path):
    """Files, keys, ids, boxes to the last bit, outlines, runs, crowds, attributes and splits."""
    built = again(detection, tmp_path, "coco")
    assert differing(samples(detection), samples(built)) == set()
    manifest = read_manifest(built)
    assert manifest.classes == tuple(CLASSES)
    assert manifest.source.choices["category_ids"] == "1,6,11,16"


def test_yolo_carries_outlines_and_says_what_became_of_them(detection, tmp_path):
    """One polygon an object; those of several, of runs, and outside of the picture are counted."""
    report = packer.export(detection, tmp_path / "files", as_="yolo")
    assert [line for line in report.losses if "times" in line or "1 time" in line] == [
        "4 times: boxes and points outside of their picture are cut off at its border",
        "2 times: outlines of several polygons are one, joined by lines that go there and back",
        "2 times: outlines that are runs of pixels are polygons along their outer edge, without "
        "holes",
    ]
    built = make_store(tmp_path / "files", tmp_path / "again.lmdb")
    before, after = samples(detection), samples(built)
    assert differing(before, after) >= {"key", "boxes", "masks", "area", "iscrowd", "attributes"}
    for a, b in zip(before, after, strict=True):
        assert a["file"] == b["file"]
        assert a["labels"] == b["labels"]
    (first,), (other,) = before[0]["masks"][0], after[0]["masks"][0]
    np.testing.assert_allclose(first, other, atol=1e-9)
    content = yaml.safe_load((tmp_path / "files" / "data.yaml").read_text())
    assert content["names"] == dict(enumerate(CLASSES))
    assert (content["train"], content["val"]) == ("images/train2017", "images/val2017")


def test_yolo_carries_boxes_of_a_store_without_outlines(tmp_path):
    """As shares of the sides, in enough digits that a box is the same float32 again."""
    store = make_store(make_detection(tmp_path / "raw"), tmp_path / "a.lmdb", task="detect")
    if "masks" in samples(store)[0]:
        packer.export(store, tmp_path / "plain", as_="parquet")
        store = make_store(tmp_path / "plain", tmp_path / "b.lmdb")
    built = again(store, tmp_path, "yolo")
    for a, b in zip(samples(store), samples(built), strict=True):
        assert a["labels"] == b["labels"]
        inside = np.clip(a["boxes"], 0, [24, 16, 24, 16])
        np.testing.assert_array_equal(inside, b["boxes"])


def test_voc_carries_boxes_outlines_and_attributes(detection, tmp_path):
    """Counted from 1 as the official rule has it; what lies outside of the picture is cut off."""
    built = again(detection, tmp_path, "voc", voc_origin="1", classes=tuple(CLASSES))
    for a, b in zip(samples(detection), samples(built), strict=True):
        assert a["file"] == b["file"]
        assert (a["labels"], a["split"]) == (b["labels"], b["split"])
        np.testing.assert_allclose(np.clip(a["boxes"], 0, [24, 16, 24, 16]), b["boxes"], atol=1e-6)
        assert [{k: str(v).lower() for k, v in x.items()} for x in a["attributes"]] == b[
            "attributes"
        ]
    root = ElementTree.parse(tmp_path / "files/Annotations/000000.xml").getroot()
    assert root.findtext("filename") == "000000.png"
    assert float(root.findtext("object/bndbox/xmin") or 0) == pytest.approx(2.1)


def test_parquet_carries_boxes_areas_and_crowds(detection, tmp_path):
    """In the columns of Hugging Face, with names of classes in the file; keys are the paths."""
    built = again(detection, tmp_path, "parquet")
    lost = {"key", "masks", "attributes"}
    assert differing(samples(detection), samples(built)) == lost
    table = pyarrow.parquet.read_table(tmp_path / "files/data/train2017-00000-of-00001.parquet")
    rows = table.to_pylist()
    assert [row["image"]["path"] for row in rows] == [
        s["key"] for s in samples(detection) if s["split"] == ["train2017"]
    ]


def test_tar_carries_all_but_masks_in_its_json(detection, tmp_path):
    """A member for the picture and one of JSON, next to each other, with the key in it."""
    packer.export(detection, tmp_path / "files", as_="tar")
    with tarfile.open(tmp_path / "files" / "train2017-000000.tar") as archive:
        names = archive.getnames()
        assert names[:2] == ["train2017/000000.png", "train2017/000000.json"]
        said = json.load(archive.extractfile(names[1]))  # type: ignore[arg-type]
    first = samples(detection)[0]
    assert said["key"] == first["key"]
    assert np.array_equal(np.array(said["boxes"], np.float32), first["boxes"])
    assert said["masks"][0] == [[1.1, 2.3, 10.8, 2.5, 6.2, 10.4]]
    built = make_store(tmp_path / "files", tmp_path / "again.lmdb")
    assert [s["file"] for s in samples(built)] == [s["file"] for s in samples(detection)]


def test_a_store_of_tar_archives_comes_out_as_they_were(tmp_path):
    """The same members with the same bytes: pictures, numbers of classes, JSON and texts."""
    members: dict[str, dict[str, bytes]] = {"train-000000.tar": {}, "val-000000.tar": {}}
    for name, content in members.items():
        for number in range(3):
            draw(tmp_path / f"{number}.png")
            content[f"a/{number}.png"] = (tmp_path / f"{number}.png").read_bytes()
            content[f"a/{number}.cls"] = b"%d" % number
            content[f"a/{number}.json"] = b'{"id":%d,"tags":["x",{"y":1.5}]}' % number
            content[f"a/{number}.txt"] = f"größe {name}".encode()
        (tmp_path / "raw").mkdir(exist_ok=True)
        write_archive(tmp_path / "raw" / name, content)
    store = make_store(tmp_path / "raw", tmp_path / "a.lmdb")
    packer.export(store, tmp_path / "files", as_="tar")
    for name, content in members.items():
        with tarfile.open(tmp_path / "files" / name) as archive:
            found = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
        prefix = name.removesuffix(".tar")
        assert found == {f"{prefix}/{path}": data for path, data in content.items()}
    built = make_store(tmp_path / "files", tmp_path / "again.lmdb")
    assert differing(samples(store), samples(built)) == {"key"}


def test_panoptic_masks_come_back_with_their_segments(tmp_path):
    """Values of three bytes, classes, crowds, ids, and which classes are counted."""
    store = make_store(make_panoptic(tmp_path / "raw"), tmp_path / "a.lmdb")
    assert {int(value) for value in np.unique(samples(store)[1]["panoptic"])} == {0, 7, 70001}
    built = again(store, tmp_path, "coco")
    assert differing(samples(store), samples(built)) == set()
    choices = [read_manifest(path).source.choices for path in (store, built)]
    assert choices[0]["isthing"] == choices[1]["isthing"] == "1,0"
    written = json.loads((tmp_path / "files/annotations/panoptic_val2017.json").read_text())
    assert written["annotations"][0]["file_name"] == "val2017/000010.png"
    assert [each["id"] for each in written["annotations"][0]["segments_info"]] == [70010, 7]


@pytest.mark.parametrize("as_", ["coco", "yolo"])
def test_keypoints_come_back(as_, tmp_path):
    """Places, visibility, names, and the lines between them where the layout has them."""
    store = make_store(make_pose(tmp_path / "raw"), tmp_path / "a.lmdb")
    built = again(store, tmp_path, as_)
    within = {"boxes": 1e-5, "keypoints": 1e-5}
    lost = differing(samples(store), samples(built), within)
    assert lost == (set() if as_ == "coco" else {"key", "area", "iscrowd", "image_id", "split"})
    schemas = [read_manifest(path).schema for path in (store, built)]
    assert schemas[0]["keypoints"] == schemas[1]["keypoints"]


@pytest.mark.parametrize("as_", ["coco", "voc", "yolo"])
def test_turned_boxes_come_back(as_, tmp_path):
    """As an angle, or as corners; a box that is not turned stays one."""
    store = make_store(make_turned(tmp_path / "raw"), tmp_path / "a.lmdb")
    options = {"voc": {"voc_origin": "1"}}.get(as_, {})
    built = again(store, tmp_path, as_, **options)
    (before,), (after,) = samples(store), samples(built)
    np.testing.assert_allclose(before["corners"], after["corners"], atol=1e-4)
    np.testing.assert_allclose(before["boxes"], after["boxes"], atol=1e-4)


@pytest.mark.parametrize("as_", ["coco", "yolo", "voc", "tar", "parquet"])
def test_raw_pixels_come_back_from_png(as_, tmp_path):
    """Pixel for pixel, whatever size and cut the store has; boxes are about the stored picture."""
    recipe = packer.Recipe(size=12, fit="letterbox")
    raw, store = make_detection(tmp_path / "raw"), tmp_path / "a.lmdb"
    packer.build(raw, store, recipe, workers=1)
    options = {"voc": {"voc_origin": "1"}}.get(as_, {})
    built = again(store, tmp_path, as_, image="raw", **options)
    for a, b in zip(samples(store), samples(built), strict=True):
        assert np.array_equal(a["image"], b["image"])
        if as_ == "coco":
            assert np.array_equal(a["boxes"], b["boxes"])


def test_class_folders_come_back_as_they_were(tmp_path):
    """Every key, file, class and split, also an empty class."""
    for name in ("train/cat/1.jpg", "train/dog/x/2.png", "val/cat/1.jpg", "val/größe x/3.jpeg"):
        draw(tmp_path / "raw" / name)
    (tmp_path / "raw/train/empty").mkdir()
    store = make_store(tmp_path / "raw", tmp_path / "a.lmdb")
    built = again(store, tmp_path, "folder")
    assert differing(samples(store), samples(built)) == set()
    classes = read_manifest(built).classes
    assert classes == ("cat", "dog", "empty", "größe x")
    files = {p.relative_to(tmp_path / "files") for p in (tmp_path / "files").rglob("*.*g")}
    assert files == {p.relative_to(tmp_path / "raw") for p in (tmp_path / "raw").rglob("*.*g")}


def test_a_file_that_says_how_to_turn_it_comes_out_as_it_is(tmp_path):
    """Boxes are about the picture as it is seen: a build takes them so, and the report says so."""
    exif = Image.Exif()
    exif[0x0112] = 6
    draw(tmp_path / "raw/train2017/1.jpg", exif=exif)
    content = {
        "images": [{"id": 1, "file_name": "1.jpg", "width": 16, "height": 24}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 9, 20.5]}],
        "categories": [{"id": 1, "name": "a"}],
    }
    (tmp_path / "raw/annotations").mkdir()
    (tmp_path / "raw/annotations/instances_train2017.json").write_text(json.dumps(content))
    store = make_store(tmp_path / "raw", tmp_path / "a.lmdb")
    report = packer.export(store, tmp_path / "files", as_="coco")
    assert any("1 picture whose file says how to turn it" in line for line in report.losses)
    built = make_store(tmp_path / "files", tmp_path / "again.lmdb")
    assert differing(samples(store), samples(built)) == set()
    assert samples(built)[0]["image"].shape == (24, 16, 3)


@pytest.mark.parametrize("image", ["jpeg", "webp", "png", "smart", "proportion"])
def test_what_a_store_holds_as_a_file_comes_out_as_it_is(image, tmp_path):
    """Byte for byte and named for what it is; of a mixture, pixels are PNG."""
    for name in ("cat/1.jpg", "cat/2.png", "dog/3.bmp", "dog/4.jpg"):
        draw(tmp_path / "raw" / name)
    shares = {"smart": {"raw_below": 1}, "proportion": {"raw_share": 0.5}}.get(image, {})
    recipe = packer.Recipe(image=image, size=12, fit="short", **shares)
    packer.build(tmp_path / "raw", tmp_path / "a.lmdb", recipe, workers=1)
    built = again(tmp_path / "a.lmdb", tmp_path, "folder")
    for a, b in zip(samples(tmp_path / "a.lmdb"), samples(built), strict=True):
        assert np.array_equal(a["image"], b["image"])
        assert Path(a["key"]).stem == Path(b["key"]).stem
        if a["file"][:4] in (b"RIFF", b"\x89PNG", b"\xff\xd8\xff\xe0"):
            assert a["file"] == b["file"]
        ends = {b"\xff\xd8": ".jpg", b"\x89P": ".png", b"RI": ".webp"}
        assert Path(b["key"]).suffix == ends[b["file"][:2]]


@pytest.mark.parametrize(
    ("mode", "dtype"), [("L", "uint8"), ("LA", "uint8"), ("RGBA", "uint8"), ("I;16", "uint16")]
)
def test_pixels_of_any_kind_come_back(mode, dtype, tmp_path):
    """Gray, with alpha, of 16 bits: PNG holds each."""
    values = np.random.default_rng(0).integers(0, 256, (6, 7, len(mode.split(";")[0])), np.uint8)
    pixels = values[..., 0].astype(dtype) * (257 if dtype == "uint16" else 1)
    raw = tmp_path / "raw" / "a.png"
    raw.parent.mkdir()
    Image.fromarray(pixels if mode in ("L", "I;16") else values).save(raw)
    store = make_store(tmp_path / "raw", tmp_path / "a.lmdb", "raw", format="flat")
    built = again(store, tmp_path, "folder", "raw", format="flat")
    (before,), (after,) = samples(store), samples(built)
    assert before["image"].dtype == dtype
    assert differing([before], [after]) == set()


def test_torchvision_reads_class_folders_and_voc(detection, tmp_path):
    """Its ImageFolder numbers the classes as the store does; its VOCDetection finds every XML."""
    need_torchvision()
    from torchvision import datasets

    for name in ("cat/1.jpg", "dog/2.png", "dog/3.png"):
        draw(tmp_path / "raw" / name)
    store = make_store(tmp_path / "raw", tmp_path / "a.lmdb")
    packer.export(store, tmp_path / "files", as_="folder")
    found = datasets.ImageFolder(tmp_path / "files")
    assert found.classes == list(read_manifest(store).classes)
    assert [label for _, label in found.samples] == [0, 1, 1]
    voc = tmp_path / "voc" / "VOCdevkit" / "VOC2012"
    voc.parent.mkdir(parents=True)
    packer.export(detection, voc, as_="voc", splits=["train2017"])
    (voc / "ImageSets/Main/train2017.txt").rename(voc / "ImageSets/Main/train.txt")
    for picture in (voc / "JPEGImages").glob("*.png"):  # It takes all pictures for .jpg.
        picture.rename(picture.with_suffix(".jpg"))
    read = datasets.VOCDetection(tmp_path / "voc", year="2012", image_set="train")
    boxes = [thing["bndbox"] for _, said in read for thing in said["annotation"].get("object", [])]
    assert len(read) == 3
    assert len(boxes) == 4


def test_masks_of_classes_come_back(tmp_path):
    """From VOC as a PNG with its palette, and the names of its values; in Parquet as an image."""
    for number in range(2):
        draw(tmp_path / "raw/images" / f"{number}.png")
        ids = (np.arange(384).reshape(16, 24) // 100 + number).astype(np.uint8)
        (tmp_path / "raw/masks").mkdir(exist_ok=True)
        Image.fromarray(ids).save(tmp_path / "raw/masks" / f"{number}.png")
    (tmp_path / "raw/classes.txt").write_text("sky\nroad\ncar\ntree\ngrass\n")
    store = make_store(tmp_path / "raw", tmp_path / "a.lmdb")
    built = again(store, tmp_path, "voc", task="segment")
    for a, b in zip(samples(store), samples(built), strict=True):
        assert np.array_equal(a["mask"], b["mask"])
    assert read_manifest(built).schema["mask"].names == ("sky", "road", "car", "tree", "grass")
    packer.export(store, tmp_path / "tables", as_="parquet")
    (table,) = (tmp_path / "tables/data").iterdir()
    for a, row in zip(samples(store), pyarrow.parquet.read_table(table).to_pylist(), strict=True):
        with Image.open(io.BytesIO(row["mask"]["bytes"])) as image:
            assert np.array_equal(np.asarray(image), a["mask"])


def write_store(folder, fields, samples):
    """A store of these samples, as no source of ours makes it."""
    folder.mkdir()
    schema = Schema(fields)
    publish(folder, schema, write_shards(folder, schema, samples, [len(samples)]))
    return folder


def test_what_panoptic_files_have_no_place_for_is_counted(tmp_path):
    """Keypoints, attributes beside the id, and objects without one; values too large are named."""
    fields = (
        Field(name="key", kind="text"),
        Field(name="image", kind="image", dtype="uint8", shape=(4, 6, 3), codec="raw"),
        Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4)),
        Field(name="labels", kind="label", dtype="int64", shape=(None,), names=("sky",)),
        Field(name="keypoints", kind="keypoints", dtype="float32", shape=(None, 2, 3)),
        Field(name="attributes", kind="json"),
        Field(name="panoptic", kind="mask", dtype="int32", shape=(None, None), codec="png"),
    )
    sample = {
        "key": "a.png",
        "image": np.zeros((4, 6, 3), np.uint8),
        "boxes": np.array([[0, 0, 3, 3], [1, 1, 4, 4]], np.float32),
        "labels": np.zeros(2, np.int64),
        "keypoints": np.ones((2, 2, 3), np.float32),
        "attributes": [{"segment_id": 5, "color": "red"}, {"segment_id": True}],
        "panoptic": np.full((4, 6), 5, np.int32),
    }
    store = write_store(tmp_path / "a.lmdb", fields, [sample])
    report = packer.export(store, tmp_path / "files", as_="coco")
    told = "\n".join(report.losses)
    assert "not carried: keypoints of 2 objects" in told
    assert "2 times: attributes of segments but their segment_id are left out" in told
    assert "1 time: objects without a segment_id are left out" in told
    written = json.loads((tmp_path / "files/annotations/panoptic.json").read_text())
    ((segment,),) = [each["segments_info"] for each in written["annotations"]]
    assert (segment["id"], "keypoints" in segment, "attributes" in segment) == (5, False, False)
    bare = (*fields[:-1], Field(name="panoptic", kind="mask", dtype="int32", shape=(None, None)))
    sample["panoptic"][0, 0] = 2**24
    store = write_store(tmp_path / "b.lmdb", bare, [sample])
    with pytest.raises(BuildError, match=r"b\.lmdb, sample 0: .*16777216\), which .*another --as"):
        packer.export(store, tmp_path / "other", as_="coco")
