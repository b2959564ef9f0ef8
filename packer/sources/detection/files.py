"""What files say about the layout, by their names and the start of their content."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from packer.errors import SourceError
from packer.sources.detection.found import (
    DECLARED,
    FILES_MAX,
    MENTIONED,
    STRUCTURAL,
    TABULAR,
    Evidence,
)
from packer.sources.detection.json_outline import JsonOutline, read_json_outline
from packer.sources.detection.look import Look, shown_names
from packer.sources.hugging_face.arrow_files import open_parquet
from packer.sources.hugging_face.columns import columns_of
from packer.sources.lists import jsonl_list, txt_list
from packer.sources.lists.columns import PATH_COLUMNS
from packer.sources.walk import readable_path
from packer.sources.yolo.data_yaml import declares_yolo


def declared(look: Look) -> Iterator[Evidence]:
    """Files that name their format themselves."""
    turned = [listing for listing in look.listings for n in listing.folders if _is_dota_folder(n)]
    plain = [n for listing in look.listings for n in listing.folders if n.lower() == b"labels"]
    for path in look.files(b".yaml", b".yml")[:FILES_MAX]:
        if declares_yolo(Path(os.fsdecode(os.path.join(look.root, path)))):
            # Roboflow writes the same file beside labels in DOTA's form.
            kind = "dota" if turned and not plain else "yolo"
            seen = f"{readable_path(path)} has names of classes and splits"
            yield Evidence(format=kind, score=DECLARED, seen=seen)
    for path in look.files(b".data")[:FILES_MAX]:
        if re.search(r"^\s*(names|train|valid)\s*=", look.head(path), re.MULTILINE):
            seen = f"{readable_path(path)} names the files of a darknet training"
            yield Evidence(format="yolo", score=DECLARED, seen=seen)
    for path in look.files(b".json"):
        base = path.split(b"/")[-1]
        if base == b"dataset_dict.json" or (
            base == b"state.json" and '"_data_files"' in look.head(path)
        ):
            yield Evidence(format="hf", score=DECLARED, seen=f"{readable_path(path)} is there")
    for extension, kind in ((b".jsonl", "jsonl"), (b".csv", "csv"), (b".parquet", "parquet")):
        for path in look.files(extension):
            if path.split(b"/")[-1] == b"metadata" + extension and look.has_pictures:
                seen = f"{readable_path(path)} lies beside pictures"
                yield Evidence(format=kind, score=DECLARED, seen=seen)


def _is_dota_folder(name: bytes) -> bool:
    return name.lower().startswith(b"labeltxt")


def json_files(look: Look) -> Iterator[Evidence]:
    """JSON files, by their keys."""
    for path in look.files(b".json")[:FILES_MAX]:
        outline = read_json_outline(os.path.join(look.root, path))
        found = _json_format(outline)
        if found is not None:
            score = DECLARED if found == "coco" else STRUCTURAL
            keys = ", ".join(sorted(outline.keys)[:6])
            yield Evidence(format=found, score=score, seen=f"{readable_path(path)} has {keys}")
    extensions = tuple(extension.encode() for extension in jsonl_list.LIST_EXTENSIONS)
    for path in look.files(*extensions)[:FILES_MAX]:
        first = look.head(path).lstrip().split("\n")[0]
        if any(f'"{column}"' in first for column in PATH_COLUMNS):
            seen = f"{readable_path(path)} names a picture in each line"
            yield Evidence(format="jsonl", score=TABULAR, seen=seen)


def _json_format(outline: JsonOutline) -> str | None:
    """Format that the keys of a JSON file belong to, or None."""
    keys, inner = outline.keys, outline.inner_keys
    if outline.is_list:
        if {"image_id", "category_id"} <= keys:
            return "coco-results"
        if {"image", "annotations"} <= keys and "coordinates" in inner:
            return "createml"
        if "result" in inner and keys & {"annotations", "completions"}:
            return "labelstudio"
    elif "images" in keys and keys & {"annotations", "categories"}:
        return "coco"
    elif {"shapes", "imagePath"} <= keys:
        return "labelme"
    elif {"categories", "items"} <= keys:
        return "datumaro"
    elif {"image", "annotations"} <= keys and "segmentation" in inner:
        return "segment-anything"
    elif "assets" in keys or {"asset", "regions"} <= keys:
        return "vott"
    elif {"objects", "size"} <= keys and "classTitle" in inner:
        return "supervisely"
    return "via" if {"regions", "shape_attributes"} <= inner else None


def xml_files(look: Look) -> Iterator[Evidence]:
    """XML files, by their root and a few of their elements."""
    seen_count: dict[str, int] = {}
    first: dict[str, bytes] = {}
    paths = look.files(b".xml")
    for path in paths[:FILES_MAX]:
        kind = _xml_format(look.head(path))
        if kind is not None:
            seen_count[kind] = seen_count.get(kind, 0) + 1
            first.setdefault(kind, path)
    scores = {"cvat": DECLARED, "labelme": STRUCTURAL, "voc": STRUCTURAL}
    for kind, count in seen_count.items():
        total = len(paths) if count == min(len(paths), FILES_MAX) else count
        seen = f"{total} xml, the first {readable_path(first[kind])}"
        yield Evidence(format=kind, score=scores[kind], seen=seen)


def _xml_format(head: str) -> str | None:
    if re.search(r"<annotations[\s>]", head):
        return "cvat"
    if not re.search(r"<annotation[\s>]", head):
        return None
    is_labelme = "<bndbox>" not in head and ("<polygon>" in head or "<segm>" in head)
    return "labelme" if is_labelme else "voc"


_ARCHIVES: dict[str, tuple[bytes, ...]] = {
    "tar": (b".tar", b".tgz", b".tar.gz"),
    "zip": (b".zip",),
    "hf": (b".arrow",),
    "tfrecord": (b".tfrecord", b".tfrecords", b".record"),
    "idx": (b"-ubyte", b"-ubyte.gz", b".idx3-ubyte", b".idx1-ubyte"),
    "npy": (b".npy", b".npz"),
}
_CIFAR = re.compile(
    rb"(data_batch_\d|test_batch|batches\.meta)(\.(bin|txt))?|fine_label_names\.txt", re.IGNORECASE
)


def archives(look: Look) -> Iterator[Evidence]:
    """Files that hold pictures; beside pictures, they are most likely where those come from."""
    if look.has_pictures:
        return
    for kind, extensions in _ARCHIVES.items():
        paths = look.files(*extensions)
        if paths:
            seen = f"{shown_names(paths)}, and no pictures"
            yield Evidence(format=kind, score=STRUCTURAL, seen=seen)
    paths = look.files(b".parquet")
    if paths:
        first = Path(os.fsdecode(os.path.join(look.root, paths[0])))
        seen = f"{shown_names(paths)}, and no pictures"
        holds_images = _holds_images(first)
        yield Evidence(format="hf" if holds_images else "parquet", score=STRUCTURAL, seen=seen)
    names = [(listing, name) for listing in look.listings for name in listing.files]
    batches = [listing.join(name) for listing, name in names if _CIFAR.fullmatch(name)]
    hundred = {name for _, name in names} >= {b"train", b"test", b"meta"}
    if batches or hundred:
        seen = f"{shown_names(batches or [b'train', b'test', b'meta'])}, and no pictures"
        yield Evidence(format="cifar", score=STRUCTURAL, seen=seen)


def _holds_images(path: Path) -> bool:
    """Whether the cells of a Parquet file hold images, rather than paths of them.

    Without pyarrow nobody can say; the source asks for it.
    """
    try:
        return columns_of(open_parquet(path).schema_arrow, None) is not None
    except SourceError:
        return False


def parquet_lists(look: Look) -> Iterator[Evidence]:
    """Parquet files beside the pictures that they name."""
    paths = look.files(b".parquet")
    if paths and look.has_pictures:
        yield Evidence(format="parquet", score=TABULAR, seen=f"{shown_names(paths)} is there")


def texts(look: Look) -> Iterator[Evidence]:
    """Text files that mention pictures, one in each line."""
    faces = [path for path in look.files(b".txt") if path.endswith(b"_bbx_gt.txt")]
    if faces:
        yield Evidence(format="wider", score=STRUCTURAL, seen=f"{shown_names(faces)} is there")
    for name in look.listings[0].files[:FILES_MAX]:
        if not name.lower().endswith((b".txt", b".lst")):
            continue
        if txt_list.is_list(Path(os.fsdecode(os.path.join(look.root, name)))):
            seen = f"{readable_path(name)} names a picture in each line"
            yield Evidence(format="txt-list", score=MENTIONED, seen=seen)
