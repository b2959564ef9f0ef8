"""What files say about the layout, by their names and the start of their content."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from packer.errors import SourceError
from packer.files.arrow import open_parquet
from packer.files.start import pointer_reason_of
from packer.sources.detection.found import (
    DECLARED,
    FILES_MAX,
    STRUCTURAL,
    TABULAR,
    Evidence,
)
from packer.sources.detection.json_outline import JsonOutline, read_json_outline
from packer.sources.detection.look import Look, shown_names
from packer.sources.detection.promises import broken_promise
from packer.sources.hugging_face.columns import columns_of
from packer.sources.layouts import LAYOUTS, layouts_of
from packer.sources.pairing import stem_of
from packer.sources.yolo.data_yaml import declares_yolo
from packer.wording import readable_path


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
    pictures = {stem_of(x.join(name)) for x in look.listings for name in x.pictures}
    # Of many files, those that are of one picture each are looked at last.
    paths = sorted(look.files(b".json"), key=lambda path: stem_of(path) in pictures)
    for path in paths[:FILES_MAX]:
        outline = read_json_outline(os.path.join(look.root, path))
        found = _json_format(outline)
        if found is not None:
            score = DECLARED if found == "coco" else STRUCTURAL
            keys = ", ".join(sorted(outline.keys)[:6])
            yield Evidence(format=found, score=score, seen=f"{readable_path(path)} has {keys}")


def kind_of_file(look: Look, path: bytes) -> str | None:
    """The format that an XML or JSON file is of, or None."""
    if path.lower().endswith(b".xml"):
        return _xml_format(look.head(path))
    if path.lower().endswith(b".json"):
        return _json_format(read_json_outline(os.path.join(look.root, path)))
    return None


def _json_format(outline: JsonOutline) -> str | None:
    """Format that the keys of a JSON file belong to, or None."""
    keys, inner = outline.keys, outline.inner_keys
    if outline.is_list:
        if "image_id" in keys and keys & {"category_id", "caption"}:
            return "coco-results"
        if {"image", "annotations"} <= keys and "coordinates" in inner:
            return "createml"
        if "result" in inner and keys & {"annotations", "completions"}:
            return "labelstudio"
    elif _is_coco(keys, inner):
        return "coco"
    elif {"shapes", "imagePath"} <= keys:
        return "labelme"
    elif {"categories", "items"} <= keys:
        return "datumaro"
    elif {"image", "annotations"} <= keys and "segmentation" in inner:
        return "segment-anything"
    elif {"chunks", "config"} <= keys:
        return "litdata"
    elif "assets" in keys or {"asset", "regions"} <= keys:
        return "vott"
    elif {"objects", "size"} <= keys and "classTitle" in inner:
        return "supervisely"
    return "via" if {"regions", "shape_attributes"} <= inner else None


def _is_coco(keys: frozenset[str], inner: frozenset[str]) -> bool:
    """Whether keys are COCO's. Of a long file they are those of its first lists."""
    if "images" in keys:
        names = {"file_name", "coco_url"} & inner  # LVIS has the latter alone.
        return bool(keys & {"annotations", "categories"}) or bool("id" in inner and names)
    of_annotations = {"category_id", "caption", "segments_info"} & inner
    return "annotations" in keys and "image_id" in inner and bool(of_annotations)


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
    # Pascal VOC has polygons as well, of <x1>, <y1>, <x2>, ...
    is_labelme = not re.search(r"<(rob)?bndbox[\s>]", head) and re.search(r"<(pt|segm)[\s/>]", head)
    return "labelme" if is_labelme else "voc"


_MOT = re.compile(rb"(.*/)?(gt/gt|det/det)\.txt", re.IGNORECASE)


def named_kinds(look: Look) -> Iterator[Evidence]:
    """Files that only one tool writes, told by their names and first bytes."""
    boxes = [path for path in look.files(b".txt") if _MOT.fullmatch(path)]
    if boxes or any({b"img1", b"gt"} <= set(listing.folders) for listing in look.listings):
        seen = f"{shown_names(boxes)} is there" if boxes else "folders img1 and gt"
        yield Evidence(format="mot", score=STRUCTURAL, seen=seen)
    lines = look.files(b".odgt")
    if lines:
        problem = broken_promise(os.path.join(look.root, lines[0]), lines[0].split(b"/")[-1])
        seen = f"{shown_names(lines)} is there{'; but ' if problem else ''}{problem}"
        yield Evidence(format="crowdhuman", score=STRUCTURAL, seen=seen)
    for path in look.files(b".manifest", b".jsonl", b".json")[:FILES_MAX]:
        keys = '"source(-ref)?"' if path.endswith(b".manifest") else '"source-ref"'
        if re.match(rf"\s*\{{\s*{keys}\s*:", look.head(path)):
            seen = f"{readable_path(path)} names the source of each line"
            yield Evidence(format="sagemaker", score=STRUCTURAL, seen=seen)


def _pointer_text(look: Look, path: bytes) -> str:
    """What to add where Git LFS has not fetched a file."""
    problem = pointer_reason_of(os.path.join(look.root, path))
    return f"; {problem}" if problem else ""


_PARQUET = ".parquet"
"""Whether such a file is a list or holds images, its columns say."""

_ARCHIVES: dict[str, tuple[bytes, ...]] = {
    **{
        name: tuple(end.encode() for end in LAYOUTS[name].endings if end != _PARQUET)
        for name in layouts_of("archive")
        if name != "cifar"  # Whose files have no ending.
    },
    "tfrecord": (b".tfrecord", b".tfrecords", b".record"),
    "npy": (b".npy", b".npz"),
}
_CIFAR = re.compile(
    rb"(data_batch_\d+|test_batch|batches\.meta)(\.(bin|txt))?|fine_label_names\.txt", re.IGNORECASE
)
_CIFAR_100 = frozenset((b"train", b"test", b"train.bin", b"test.bin"))
_CIFAR_100_RECORD_BYTES = 2 + 3 * 32 * 32


def archives(look: Look) -> Iterator[Evidence]:
    """Files that hold pictures; beside pictures, they are most likely where those come from."""
    if look.has_pictures:
        return
    for kind, extensions in _ARCHIVES.items():
        paths = look.files(*extensions)
        if paths:
            seen = f"{shown_names(paths)}, and no pictures{_pointer_text(look, paths[0])}"
            yield Evidence(format=kind, score=STRUCTURAL, seen=seen)
    paths = look.files(_PARQUET.encode())
    if paths:
        first = Path(os.fsdecode(os.path.join(look.root, paths[0])))
        seen = f"{shown_names(paths)}, and no pictures"
        kind = "hf" if holds_images(first) else "parquet"
        yield Evidence(format=kind, score=STRUCTURAL, seen=seen)
    cifar = [
        path
        for path in look.files(b"")
        if _CIFAR.fullmatch(path.split(b"/")[-1]) or _is_cifar_100(look, path)
    ]
    if cifar:
        seen = f"{shown_names(cifar)}, and no pictures"
        yield Evidence(format="cifar", score=STRUCTURAL, seen=seen)


def _is_cifar_100(look: Look, path: bytes) -> bool:
    """Whether a file has a name and the form of CIFAR-100: a pickle, or records of one size."""
    name = path.split(b"/")[-1].lower()
    if name not in _CIFAR_100:
        return False
    try:
        with open(os.path.join(look.root, path), "rb") as file:
            if not name.endswith(b".bin"):
                return file.read(1) == b"\x80"
            byte_count = file.seek(0, os.SEEK_END)
    except OSError:
        return False
    return byte_count > 0 and byte_count % _CIFAR_100_RECORD_BYTES == 0


def holds_images(path: Path) -> bool:
    """Whether the cells of a Parquet file hold images, rather than paths of them.

    Without pyarrow nobody can say, nor of a broken file; the source says what is wrong.
    """
    try:
        return columns_of(open_parquet(path).schema_arrow, None) is not None
    except (SourceError, ValueError, OSError):
        return False


def parquet_lists(look: Look) -> Iterator[Evidence]:
    """Parquet files beside the pictures that they name."""
    paths = look.files(_PARQUET.encode())
    if paths and look.has_pictures:
        yield Evidence(format="parquet", score=TABULAR, seen=f"{shown_names(paths)} is there")
