"""What speaks for each layout that raw data may have, and how strongly.

    100  a file that names its format itself: COCO json, data.yaml
     80  folders and files whose names and content belong to one format: VOC, KITTI, IDX
     60  files beside pictures that belong to them: same name with .txt, a folder of masks
     50  a list whose paths are there
     40  a text file that mentions pictures
     30  class folders
     10  pictures alone

Most of these formats are not read by any source yet. They are recognised so that their annotations
are never dropped in silence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from packer.errors import SourceError
from packer.sources.detection.json_outline import JsonOutline, read_json_outline
from packer.sources.detection.look import Listing, Look, holds_pictures, list_folder, shown_names
from packer.sources.lists import csv_list
from packer.sources.source import SourceOptions
from packer.sources.splits import are_all_splits
from packer.sources.walk import PICTURE_TYPES, is_picture_name, readable_path

DECLARED, STRUCTURAL, PAIRED, TABULAR, MENTIONED, FOLDERS, FLAT = 100, 80, 60, 50, 40, 30, 10

NAMES_MAX = 200
FILES_MAX = 20
"""How many pictures of a folder, and how many files of a kind, are looked at."""

NOT_READ_YET: dict[str, str] = {
    "annotation-folders": "a folder of annotations beside one of pictures",
    "cifar": "CIFAR batches",
    "cityscapes": "Cityscapes",
    "coco": "COCO annotations",
    "coco-results": "COCO results (predictions)",
    "createml": "CreateML annotations",
    "csv-boxes": "a list of boxes or masks",
    "csv-multilabel": "a list with one column for each class",
    "csv-other": "a list of pictures without a column of labels",
    "csv-pixels": "pixels written as CSV",
    "cvat": "CVAT annotations",
    "datumaro": "Datumaro annotations",
    "dota": "oriented boxes (DOTA)",
    "hf": "a Hugging Face dataset",
    "icdar": "ICDAR text boxes",
    "idx": "IDX files (MNIST)",
    "jsonl": "a JSON lines list",
    "kitti": "KITTI",
    "labelme": "LabelMe annotations",
    "labelstudio": "a Label Studio export",
    "mask-pairs": "pictures with masks",
    "npy": "NumPy arrays",
    "open-images": "Open Images",
    "parquet": "Parquet files",
    "segment-anything": "Segment Anything annotations",
    "sidecars": "annotation files beside the pictures, of the same names",
    "supervisely": "Supervisely annotations",
    "tar": "tar shards (WebDataset)",
    "tfrecord": "TFRecord files",
    "txt-list": "a text file that lists pictures",
    "via": "VGG Image Annotator (VIA) annotations",
    "voc": "Pascal VOC annotations",
    "vott": "VoTT annotations",
    "wider": "WIDER FACE",
    "yolo": "YOLO annotations",
    "zip": "zip archives",
}
"""Formats that are recognised and that no source reads, with what a message calls them."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One layout that the raw data may have.

    Attributes:
        format: Name of the source, or a key of `NOT_READ_YET`.
        score: See the head of this module.
        seen: What speaks for it.
        problem: Why its content does not pass the check, with what to do; empty when it passes.
    """

    format: str
    score: int
    seen: str
    problem: str = ""


def collect_evidence(look: Look, options: SourceOptions) -> list[Evidence]:
    """All that speaks for any format, the strongest first, one entry a format.

    Raises:
        SourceError: A list cannot be read.
    """
    best: dict[str, Evidence] = {}
    everything = chain.from_iterable(find(look) for find in _FINDERS)
    for found in chain(everything, _list_evidence(look, options)):
        if found.format not in best or found.score > best[found.format].score:
            best[found.format] = found
    return sorted(best.values(), key=lambda found: (-found.score, found.format))


def file_evidence(raw: Path) -> list[Evidence]:
    """What a raw path that is a file may be."""
    file_name = raw.name.lower()
    if raw.suffix.lower() in csv_list.LIST_EXTENSIONS:
        return [Evidence(format="csv", score=TABULAR, seen=f"the file {raw.name} itself")]
    name = os.fsencode(raw.name)
    look = Look(os.fsencode(raw.parent), [Listing(b"", files=[name])])
    for find in (_declared, _json, _xml, _archives):
        for found in find(look):
            return [found]
    kind = "one picture" if is_picture_name(os.fsencode(file_name)) else "a file of no known kind"
    raise SourceError(
        f"{readable_path(os.fsencode(raw))} is {kind}; expected a folder of pictures "
        f"({PICTURE_TYPES}) or a .csv or .tsv list. Give the folder that it lies in."
    )


# What speaks for each format. Each finder looks at one kind of thing.


def _declared(look: Look) -> Iterator[Evidence]:
    """Files that name their format themselves."""
    for path in look.files(b".yaml", b".yml")[:FILES_MAX]:
        keys = set(re.findall(r"^([A-Za-z_]+)\s*:", look.head(path), re.MULTILINE))
        if "names" in keys and keys & {"train", "val", "test", "nc", "path"}:
            seen = f"{readable_path(path)} has names of classes and splits"
            yield Evidence(format="yolo", score=DECLARED, seen=seen)
    for path in look.files(b".data")[:FILES_MAX]:
        if re.search(r"^\s*(names|train|valid)\s*=", look.head(path), re.MULTILINE):
            seen = f"{readable_path(path)} names the files of a darknet training"
            yield Evidence(format="yolo", score=DECLARED, seen=seen)
    hugging = {b"dataset_dict.json", b"metadata.jsonl", b"metadata.parquet"}
    for path in look.files(b".json", b".jsonl", b".parquet"):
        base = path.split(b"/")[-1]
        if base in hugging or (base == b"state.json" and '"_data_files"' in look.head(path)):
            yield Evidence(format="hf", score=DECLARED, seen=f"{readable_path(path)} is there")


def _json(look: Look) -> Iterator[Evidence]:
    """JSON files, by their keys."""
    for path in look.files(b".json")[:FILES_MAX]:
        outline = read_json_outline(os.path.join(look.root, path))
        found = _json_format(outline)
        if found is not None:
            score = DECLARED if found == "coco" else STRUCTURAL
            keys = ", ".join(sorted(outline.keys)[:6])
            yield Evidence(format=found, score=score, seen=f"{readable_path(path)} has {keys}")
    for path in look.files(b".jsonl", b".ndjson", b".jsonlines")[:FILES_MAX]:
        first = look.head(path).lstrip().split("\n")[0]
        if any(f'"{column}"' in first for column in csv_list.PATH_COLUMNS):
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


def _xml(look: Look) -> Iterator[Evidence]:
    """XML files, by their root and a few of their elements."""
    seen_count: dict[str, int] = {}
    first: dict[str, bytes] = {}
    paths = look.files(b".xml")
    for path in paths[:FILES_MAX]:
        text = look.head(path)
        if re.search(r"<annotations[\s>]", text):
            kind = "cvat"
        elif not re.search(r"<annotation[\s>]", text):
            continue
        elif "<polygon>" in text and "<bndbox>" not in text:
            kind = "labelme"
        else:
            kind = "voc"
        seen_count[kind] = seen_count.get(kind, 0) + 1
        first.setdefault(kind, path)
    scores = {"cvat": DECLARED, "labelme": STRUCTURAL, "voc": STRUCTURAL}
    for kind, count in seen_count.items():
        total = len(paths) if count == min(len(paths), FILES_MAX) else count
        seen = f"{total} xml, the first {readable_path(first[kind])}"
        yield Evidence(format=kind, score=scores[kind], seen=seen)


_FOLDER_SIGNS: dict[str, tuple[tuple[bytes, ...], ...]] = {
    "voc": ((b"annotations", b"jpegimages"),),
    "cityscapes": ((b"leftimg8bit", b"gtfine"), (b"leftimg8bit", b"gtcoarse")),
    "kitti": ((b"image_2", b"label_2"),),
    "dota": ((b"labeltxt",),),
    "mask-pairs": ((b"segmentationclass",), (b"ground_truth",), (b"groundtruth",)),
}
"""Names of folders, in lower case, that belong to one format when they lie side by side."""

_PICTURE_FOLDERS = frozenset(
    b"images image imgs img jpegimages jpegs jpg photos pictures input inputs rgb".split()
)
_ANNOTATION_FOLDERS = frozenset(
    b"masks mask labels label annotations annotation annots annot ann gt gts segmentation "
    b"segmentations seg labels_txt xml xmls json jsons targets target".split()
)
_MASK_SUFFIXES = (
    b"annot",
    b"_annot",
    b"_annotations",
    b"_labels",
    b"_masks",
    b"_mask",
    b"_gt",
    b"_seg",
)


def _folder_names(look: Look) -> Iterator[Evidence]:
    """Folders whose names say what they hold."""
    for listing in look.listings:
        lower = {name.lower(): name for name in listing.folders}
        for kind, signs in _FOLDER_SIGNS.items():
            for sign in signs:
                if all(name in lower for name in sign):
                    seen = f"folders {shown_names(listing.join(lower[name]) for name in sign)}"
                    score = PAIRED if kind == "mask-pairs" else STRUCTURAL
                    yield Evidence(format=kind, score=score, seen=seen)
        pictures = sorted(_PICTURE_FOLDERS & lower.keys())
        annotations = sorted(_ANNOTATION_FOLDERS & lower.keys())
        if pictures and annotations:
            pair = listing.join(lower[pictures[0]]), listing.join(lower[annotations[0]])
            yield _folder_pair(look, *pair)
        for name in listing.folders:
            partners = [
                name + suffix for suffix in _MASK_SUFFIXES if name + suffix in listing.folders
            ]
            if partners:
                seen = f"folders {shown_names(map(listing.join, [name, *partners]))}"
                yield Evidence(format="mask-pairs", score=PAIRED, seen=seen)


def _folder_pair(look: Look, pictures: bytes, annotations: bytes) -> Evidence:
    """What a folder of annotations beside a folder of pictures holds."""
    inside = [
        listing for listing in look.listings if (listing.path + b"/").startswith(annotations + b"/")
    ]
    seen = f"folders {shown_names([pictures, annotations])}"
    texts = [
        listing.join(n) for listing in inside for n in listing.files if n.lower().endswith(b".txt")
    ]
    if texts and _are_yolo(look, texts):
        return Evidence(format="yolo", score=PAIRED, seen=seen)
    if any(listing.pictures for listing in inside):
        return Evidence(format="mask-pairs", score=PAIRED, seen=seen)
    return Evidence(format="annotation-folders", score=PAIRED, seen=seen)


_SIDECARS = (b".txt", b".xml", b".json", b".npy", b".npz", b".mat", b".cls", b".caption", b".csv")
_PICTURE_SUFFIXES = (b"_mask", b"_gt", b"_label", b"_labels", b"_seg", b"_P", b"_labelIds")
_SIDECAR_SHARE_MIN = 0.1
_YOLO_LINE = re.compile(r"\d+(\s+[-+.\deE]+){4,}\s*")


def _sidecars(look: Look) -> Iterator[Evidence]:
    """Files in the same folder as pictures that share their names."""
    for listing in look.listings:
        stems = {name[: name.rfind(b".")] for name in listing.pictures}
        sampled = listing.pictures[:NAMES_MAX]
        files = set(listing.files)
        for extension in _SIDECARS:
            paired = [
                name[: name.rfind(b".")] + extension
                for name in sampled
                if name[: name.rfind(b".")] + extension in files
            ]
            if paired and len(paired) >= _SIDECAR_SHARE_MIN * len(sampled):
                paths = [listing.join(name) for name in paired]
                is_yolo = extension == b".txt" and _are_yolo(look, paths)
                kind = "yolo" if is_yolo else "sidecars"
                seen = f"{extension.decode()} files beside pictures: {shown_names(paths, 2)}"
                yield Evidence(format=kind, score=PAIRED, seen=seen)
        for suffix in _PICTURE_SUFFIXES:
            masked = [name for name in sampled if name[: name.rfind(b".")] + suffix in stems]
            if masked and 3 * len(masked) >= len(sampled):
                shown = shown_names(map(listing.join, masked), 2)
                seen = f"pictures with and without {suffix.decode()}: {shown}"
                yield Evidence(format="mask-pairs", score=PAIRED, seen=seen)
        marked = [name for name in listing.files if re.fullmatch(rb"gt_.*\.txt", name)]
        if marked:
            seen = f"text files {shown_names(map(listing.join, marked), 2)}"
            yield Evidence(format="icdar", score=PAIRED, seen=seen)


def _are_yolo(look: Look, paths: list[bytes]) -> bool:
    """Whether nine of ten lines are a class number and four numbers or more; no line is fine."""
    lines = [
        line for path in paths[:FILES_MAX] for line in look.head(path).splitlines() if line.strip()
    ]
    return sum(bool(_YOLO_LINE.fullmatch(line)) for line in lines) >= 0.9 * len(lines)


_ARCHIVES: dict[str, tuple[bytes, ...]] = {
    "tar": (b".tar", b".tgz", b".tar.gz"),
    "zip": (b".zip",),
    "parquet": (b".parquet",),
    "hf": (b".arrow",),
    "tfrecord": (b".tfrecord", b".tfrecords", b".record"),
    "idx": (b"-ubyte", b"-ubyte.gz"),
    "npy": (b".npy", b".npz"),
}


def _archives(look: Look) -> Iterator[Evidence]:
    """Files that hold pictures; beside pictures, they are most likely where those come from."""
    if look.has_pictures:
        return
    for kind, extensions in _ARCHIVES.items():
        paths = look.files(*extensions)
        if paths:
            seen = f"{shown_names(paths)}, and no pictures"
            yield Evidence(format=kind, score=STRUCTURAL, seen=seen)
    batches = [
        listing.join(name)
        for listing in look.listings
        for name in listing.files
        if re.fullmatch(rb"(data_batch_\d|test_batch|batches\.meta)(\.(bin|txt))?", name)
    ]
    if batches:
        yield Evidence(
            format="cifar", score=STRUCTURAL, seen=f"{shown_names(batches)}, and no pictures"
        )


def _texts(look: Look) -> Iterator[Evidence]:
    """Text files that mention pictures, one in each line."""
    faces = [path for path in look.files(b".txt") if path.endswith(b"_bbx_gt.txt")]
    if faces:
        yield Evidence(format="wider", score=STRUCTURAL, seen=f"{shown_names(faces)} is there")
    for name in look.listings[0].files[:NAMES_MAX]:
        if not name.lower().endswith((b".txt", b".lst")):
            continue
        lines = [line for line in look.head(name).splitlines()[:NAMES_MAX] if line.strip()]
        mentions = [
            line
            for line in lines
            if any(is_picture_name(w.encode()) for w in re.split(r"[\s,;]+", line))
        ]
        if lines and len(mentions) >= 0.9 * len(lines):
            seen = f"{readable_path(name)} names a picture in each line"
            yield Evidence(format="txt-list", score=MENTIONED, seen=seen)


def _pictures(look: Look) -> Iterator[Evidence]:
    """Pictures in class folders, in split folders, or alone."""
    if not look.has_pictures:
        return
    root = look.listings[0]
    tops = sorted({x.path.split(b"/")[0] for x in look.listings if x.pictures and x.path})
    if not tops or are_all_splits(tops):
        # Then another folder that holds pictures decides, however deep they lie in it.
        for name in root.folders:
            if name not in tops and holds_pictures(os.path.join(look.root, name)):
                tops = sorted((*tops, name))
                if not are_all_splits(tops):
                    break
    if not tops:
        seen = f"{len(root.pictures)} pictures, in no folder"
        yield Evidence(format="flat", score=FLAT, seen=seen)
    elif not are_all_splits(tops):
        seen = f"folders with pictures: {shown_names(tops)}"
        yield Evidence(format="imagefolder", score=FOLDERS, seen=seen)
    elif any(_has_class_folders(look, name) for name in tops):
        seen = f"splits {shown_names(tops)} with class folders"
        yield Evidence(format="imagefolder", score=FOLDERS, seen=seen)
    else:
        seen = f"splits {shown_names(tops)} without class folders"
        yield Evidence(format="flat", score=FLAT, seen=seen)


def _has_class_folders(look: Look, split: bytes) -> bool:
    if any(x.pictures for x in look.listings if x.path.startswith(split + b"/")):
        return True
    path = os.path.join(look.root, split)
    try:
        folders = list_folder(path, b"").folders
    except OSError:
        return False
    return any(holds_pictures(os.path.join(path, name)) for name in folders)


_FINDERS: tuple[Callable[[Look], Iterator[Evidence]], ...] = (
    _declared,
    _json,
    _xml,
    _folder_names,
    _sidecars,
    _archives,
    _texts,
    _pictures,
)


def _list_evidence(look: Look, options: SourceOptions) -> Iterator[Evidence]:
    """CSV and TSV files: lists of one label a picture, and lists that say more."""
    readable = []
    for path in look.files(*(e.encode() for e in csv_list.LIST_EXTENSIONS))[:FILES_MAX]:
        list_path = Path(os.fsdecode(os.path.join(look.root, path)))
        columns = csv_list.read_columns(list_path)
        seen = f"{readable_path(path)}: columns {', '.join(map(repr, columns.names[:8]))}"
        lower = {column.lower() for column in columns.names}
        if {"imageid", "labelname"} <= lower:
            yield Evidence(format="open-images", score=STRUCTURAL, seen=seen)
        elif columns.path is None:
            if not look.has_pictures and len(columns.names) > 100:
                seen = f"{readable_path(path)} has {len(columns.names)} columns, and no pictures"
                yield Evidence(format="csv-pixels", score=STRUCTURAL, seen=seen)
        elif columns.boxes or columns.masks:
            yield Evidence(format="csv-boxes", score=TABULAR, seen=seen)
        elif columns.label is not None:
            readable.append((path, list_path, columns))
        else:
            first = next(csv_list.read_rows(list_path, columns.delimiter), (0, []))[1]
            is_one_hot = sum(value.strip() in ("0", "1") for value in first) >= 2
            kind = "csv-multilabel" if is_one_hot else "csv-other"
            yield Evidence(format=kind, score=TABULAR, seen=seen)
    if len(readable) > 1:
        names = shown_names(path for path, _, _ in readable)
        problem = "it is not clear which is meant. Give the path of the list itself instead"
        yield Evidence(format="csv", score=TABULAR, seen=f"lists {names}", problem=problem)
    elif readable:
        yield _one_list(*readable[0], look, options)


def _one_list(
    path: bytes, list_path: Path, columns: csv_list.Columns, look: Look, options: SourceOptions
) -> Evidence:
    """The one list of labels, and whether the pictures it names are there."""
    assert columns.path is not None
    taken = [columns.names[p] for p in (columns.path, columns.label) if p is not None]
    seen = f"{readable_path(path)}: columns {' and '.join(map(repr, taken))}"
    if b"/" in path:
        problem = "the list lies in a folder below. Give the path of the list itself instead"
        return Evidence(format="csv", score=TABULAR, seen=seen, problem=problem)
    names = [
        row[columns.path]
        for _, row in islice(csv_list.read_rows(list_path, columns.delimiter), FILES_MAX)
        if len(row) > columns.path
    ]
    bases = csv_list.picture_folders(list_path, options)
    there = sum(csv_list.is_there(name, bases) for name in names)
    seen += f", {there} of {len(names)} sampled paths are there"
    if there or not names:
        return Evidence(format="csv", score=TABULAR, seen=seen)
    looked = " and ".join(map(readable_path, bases))
    problem = f"no picture such as {names[0]!r} lies in {looked}"
    for folder in look.listings[0].folders[:NAMES_MAX]:
        base = os.path.join(look.root, folder)
        if csv_list.is_there(names[0], [base]):
            problem += f". It lies in {readable_path(folder)}/: give --root {readable_path(base)}"
            break
    else:
        problem += ". Give the folder of the pictures as --root"
    return Evidence(format="csv", score=TABULAR, seen=seen, problem=problem)
