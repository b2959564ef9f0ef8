"""What names of folders, and of files beside pictures, say about the layout."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from packer.sources.detection.found import (
    FILES_MAX,
    FLAT,
    FOLDERS,
    NAMES_MAX,
    PAIRED,
    STRUCTURAL,
    Evidence,
)
from packer.sources.detection.look import Look, holds_pictures, list_folder, shown_names
from packer.sources.masks.names import role_of
from packer.sources.splits import are_all_splits

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


def mask_folders(look: Look) -> Iterator[Evidence]:
    """Folders of pictures whose names differ by what says that one holds masks."""
    roles: dict[bytes, dict[bool, bytes]] = {}
    for listing in look.listings:
        if listing.pictures and listing.path:
            role = role_of(listing.path)
            roles.setdefault(role.place, {}).setdefault(role.holds_masks, listing.path)
    for pair in roles.values():
        if len(pair) == 2:
            seen = f"folders {shown_names([pair[False], pair[True]])}"
            yield Evidence(format="mask-pairs", score=PAIRED, seen=seen)


def folder_names(look: Look) -> Iterator[Evidence]:
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


def sidecars(look: Look) -> Iterator[Evidence]:
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


def pictures(look: Look) -> Iterator[Evidence]:
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
