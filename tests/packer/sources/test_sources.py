"""Each source holds the laws of all of them."""

from __future__ import annotations

from packer.sources.layouts import LAYOUTS
from tests.packer.sources.source_conformance import SourceConformance


class TestImagefolder(SourceConformance):
    format = "imagefolder"


class TestFlat(SourceConformance):
    format = "flat"


class TestCoco(SourceConformance):
    format = "coco"
    reads = ("annotations/*.json",)


class TestVoc(SourceConformance):
    format = "voc"
    reads = ("*.xml", "ImageSets/*.txt")


class TestYolo(SourceConformance):
    format = "yolo"
    reads = ("*.yaml", "*.txt", "obj.*")


class TestMaskPairs(SourceConformance):
    format = "mask-pairs"
    reads = ("*.txt",)


class TestCsv(SourceConformance):
    format = "csv"
    reads = ("*.csv",)


class TestJsonl(SourceConformance):
    format = "jsonl"
    reads = ("*.jsonl",)


class TestParquet(SourceConformance):
    format = "parquet"
    reads = ("*.parquet",)


class TestTxtList(SourceConformance):
    format = "txt-list"
    reads = ("*.txt",)


class TestTar(SourceConformance):
    format = "tar"


class TestZip(SourceConformance):
    format = "zip"


class TestHuggingFace(SourceConformance):
    format = "hf"


class TestIdx(SourceConformance):
    format = "idx"
    reads = ("*-labels-*",)


class TestCifar(SourceConformance):
    format = "cifar"
    reads = ("batches.meta.txt",)


class TestLmdb(SourceConformance):
    format = "lmdb"
    reads = ("*meta_info.txt",)


class TestFfcv(SourceConformance):
    format = "ffcv"


class TestMds(SourceConformance):
    format = "mds"
    reads = ("*index.json",)


class TestCityscapes(SourceConformance):
    format = "cityscapes"


class TestCvat(SourceConformance):
    format = "cvat"
    reads = ("*.xml",)


class TestDota(SourceConformance):
    format = "dota"
    reads = ("*/labelTxt/*.txt",)


class TestKitti(SourceConformance):
    format = "kitti"
    reads = ("*/label_2/*.txt",)


class TestLabelMe(SourceConformance):
    format = "labelme"
    reads = ("*.json",)


class TestOpenImages(SourceConformance):
    format = "open-images"
    reads = ("*.csv",)


class TestWider(SourceConformance):
    format = "wider"
    reads = ("wider_face_split/*.txt",)


def test_each_source_is_held_to_the_laws():
    """One that is added needs a class here."""
    classes = [value for value in globals().values() if isinstance(value, type)]
    assert {value.format for value in classes if hasattr(value, "format")} == set(LAYOUTS)
