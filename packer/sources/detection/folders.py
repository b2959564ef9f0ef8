"""What names of folders, and of files beside pictures, say about the layout."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from packer.sources.class_folders import are_sequences, names_no_class
from packer.sources.detection.files import kind_of_file
from packer.sources.detection.found import (
    FILES_MAX,
    FLAT,
    FOLDERS,
    PAIRED,
    STRUCTURAL,
    Evidence,
)
from packer.sources.detection.look import (
    LEVEL2_FOLDERS_MAX,
    Look,
    evenly,
    holds_pictures,
    list_folder,
    shown_names,
)
from packer.sources.detection.promises import broken_promise
from packer.sources.detection.text_files import are_yolo, is_yolo_class_file, yolo_classes_text
from packer.sources.layouts import LAYOUTS
from packer.sources.masks.names import role_of, stems_of_mask, stems_of_picture
from packer.sources.pairing import composed, split_path, stem_of
from packer.sources.siblings import find_parts, split_names
from packer.sources.sidecars import PICTURE_FOLDERS
from packer.sources.split_labels import LIST_EXTENSION, find_label_file, is_of_split
from packer.sources.splits import are_all_splits
from packer.wording import count_text, readable_path

_NNUNET = (b"imagestr", b"labelstr")
"""One of the groups of folders that tell masks; no other tool has these names."""

_DEFECTS = (
    "beside test/ it has masks of some pictures alone (MVTec), and every picture needs one. Move "
    "it away to take the folders of each split for labels"
)

_ANNOTATION_FOLDERS = frozenset(
    b"masks mask labels label annotations annotation annots annot ann gt gts segmentation "
    b"segmentations seg labels_txt xml xmls json jsons targets target det".split()
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
    yield from _names_anywhere(look)
    for listing in look.listings:
        lower = {name.lower(): name for name in listing.folders}
        for kind, layout in LAYOUTS.items():
            for sign in layout.folders_beside:
                if all(name in lower for name in sign):
                    seen = f"folders {shown_names(listing.join(lower[name]) for name in sign)}"
                    is_pair = kind == "mask-pairs" and sign != _NNUNET
                    score = PAIRED if is_pair else STRUCTURAL
                    are_defects = sign == (b"ground_truth",) and b"test" in lower
                    problem = _DEFECTS if are_defects else ""
                    yield Evidence(format=kind, score=score, seen=seen, problem=problem)
        pictures = sorted(PICTURE_FOLDERS & lower.keys())
        annotations = sorted(_ANNOTATION_FOLDERS & lower.keys())
        if pictures and annotations:
            pair = listing.join(lower[pictures[0]]), listing.join(lower[annotations[0]])
            found = _folder_pair(look, *pair)
            if found is not None:
                yield found
        for name in listing.folders:
            partners = [
                name + suffix for suffix in _MASK_SUFFIXES if name + suffix in listing.folders
            ]
            if partners:
                seen = f"folders {shown_names(map(listing.join, [name, *partners]))}"
                yield Evidence(format="mask-pairs", score=PAIRED, seen=seen)


def _names_anywhere(look: Look) -> Iterator[Evidence]:
    """Folders that belong to one format wherever they lie."""
    paths: dict[bytes, bytes] = {}
    for listing in look.listings:
        for path in (listing.path, *map(listing.join, listing.folders)):
            parts = path.split(b"/")
            for n, part in enumerate(parts):
                paths.setdefault(part.lower(), b"/".join(parts[: n + 1]))
    for kind, layout in LAYOUTS.items():
        for sign in layout.folders_anywhere:
            if all(name in paths for name in sign):
                places = [paths[name] for name in sign]
                problem = ""
                if kind == "kitti" and len({split_path(place)[0] for place in places}) > 1:
                    problem = "they do not lie side by side. Move them into one folder"
                seen = f"folders {shown_names(places)}"
                yield Evidence(format=kind, score=STRUCTURAL, seen=seen, problem=problem)


def _folder_pair(look: Look, pictures: bytes, annotations: bytes) -> Evidence | None:
    """What a folder of annotations beside a folder of pictures holds."""
    inside = [
        listing for listing in look.listings if (listing.path + b"/").startswith(annotations + b"/")
    ]
    if not inside:  # It lies deeper than the look went.
        with suppress(OSError):
            inside = [list_folder(look.root, annotations)]
    seen = f"folders {shown_names([pictures, annotations])}"
    texts = [
        listing.join(name)
        for listing in inside
        for name in listing.files
        if name.lower().endswith(b".txt") and not is_yolo_class_file(name)
    ]
    if texts and are_yolo(look, texts):
        seen = f"{seen}; {yolo_classes_text(look)}"
        return Evidence(format="yolo", score=PAIRED, seen=seen)
    if any(listing.pictures for listing in inside):
        return Evidence(format="mask-pairs", score=PAIRED, seen=seen)
    if any(kind_of_file(look, x.join(name)) for x in inside for name in x.files[:FILES_MAX]):
        return None  # What the files say of themselves is more.
    seen += _broken_text(look, [x.join(name) for x in inside for name in x.files])
    return Evidence(format="annotation-folders", score=PAIRED, seen=seen)


def _broken_text(look: Look, paths: Sequence[bytes]) -> str:
    """What is wrong with the first of some files that does not hold what its name says, if any."""
    for path in paths[:FILES_MAX]:
        problem = broken_promise(os.path.join(look.root, path), split_path(path)[1])
        if problem:
            return f"; {readable_path(path)}: {problem}"
    return ""


_SIDECARS = (b".txt", b".xml", b".json", b".npy", b".npz", b".mat", b".cls", b".caption", b".csv")
_SIDECAR_SHARE_MIN = 0.1


def sidecars(look: Look) -> Iterator[Evidence]:
    """Files in the same folder as pictures that share their names."""
    for listing in look.listings:
        sampled = evenly(listing.pictures)
        files = set(listing.files)
        for extension in _SIDECARS:
            names = [stem_of(name) + extension for name in sampled]
            paths = [listing.join(name) for name in names if name in files]
            if not paths or len(paths) < _SIDECAR_SHARE_MIN * len(sampled):
                continue
            if kind_of_file(look, paths[0]) is not None:
                continue  # What the files say of themselves is more.
            seen = f"{extension.decode()} files beside pictures: {shown_names(paths, 2)}"
            if extension == b".txt" and are_yolo(look, paths):
                seen = f"{seen}; {yolo_classes_text(look)}"
                yield Evidence(format="yolo", score=PAIRED, seen=seen)
            else:
                seen += _broken_text(look, paths)
                yield Evidence(format="sidecars", score=PAIRED, seen=seen)
        marked = [name for name in listing.files if re.fullmatch(rb"gt_.*\.txt", name)]
        if marked:
            seen = f"text files {shown_names(map(listing.join, marked), 2)}"
            yield Evidence(format="icdar", score=PAIRED, seen=seen)


_MASK_SHARE_MIN = 0.25


def masks_beside(look: Look) -> Iterator[Evidence]:
    """Masks in the same folder as their pictures, told by how their names begin or end."""
    for listing in look.listings:
        if role_of(listing.path).holds_masks:
            continue
        sampled = evenly(listing.pictures)
        masks = masks_among(listing.pictures, sampled)
        if masks and len(masks) >= _MASK_SHARE_MIN * len(sampled):
            seen = f"masks beside pictures, such as {readable_path(listing.join(masks[0]))}"
            yield Evidence(format="mask-pairs", score=PAIRED, seen=seen)


def masks_among(names: Sequence[bytes], sampled: Sequence[bytes]) -> list[bytes]:
    """Those of the sampled names that are of masks of a picture among all the names."""
    stripped = {name: stems_of_mask(composed(stem_of(name))) for name in sampled}
    if not any(stripped.values()):
        return []
    there = {stem for name in names for stem in picture_names(name)}
    return [name for name, stems in stripped.items() if not there.isdisjoint(stems)]


def picture_names(name: bytes) -> list[bytes]:
    """Names by which a mask may call a picture: without extension, and without what it ends in."""
    stem = composed(stem_of(name))
    return [stem, *stems_of_picture(stem)]


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
    only = _picture_folder(look, tops[0]) if len(tops) == 1 else None
    if only is not None:
        yield only
    elif not tops:
        seen = f"{count_text(len(root.pictures), 'picture')}, in no folder"
        yield Evidence(format="flat", score=FLAT, seen=seen)
    elif not are_all_splits(tops):
        if all(map(names_no_class, tops)) and not _hold_class_folders(look, tops):
            seen = f"folders with pictures: {shown_names(tops)}, which are the names of no class"
            yield Evidence(format="flat", score=FLAT, seen=seen)
        elif _hold_sequences(look, tops):
            seen = f"sequences of frames, which are no classes: {shown_names(tops)}"
            yield Evidence(format="flat", score=FLAT, seen=seen)
        else:
            seen = f"folders with pictures: {shown_names(tops)}"
            yield Evidence(format="imagefolder", score=FOLDERS, seen=seen)
    else:
        yield _splits(look, tops)


def _splits(look: Look, splits: Sequence[bytes]) -> Evidence:
    """Folders of splits, with class folders in them or without."""
    shown = shown_names(splits)
    plain: list[bytes] = []
    sequences: list[bytes] = []
    for split in splits:
        for name in _folders_with_pictures(look, split):
            path = split + b"/" + name
            if names_no_class(name):
                plain.append(path)
            elif _hold_sequences(look, [path]):
                sequences.append(path)
            else:
                seen = f"splits {shown} with class folders"
                return Evidence(format="imagefolder", score=FOLDERS, seen=seen)
    if sequences:
        seen = f"splits {shown} with sequences of frames, which are no classes: "
        return Evidence(format="flat", score=FLAT, seen=seen + shown_names(sequences))
    if _hold_class_folders(look, plain):
        seen = f"splits {shown} with class folders in {shown_names(plain)}"
        return Evidence(format="imagefolder", score=FOLDERS, seen=seen)
    seen = f"splits {shown} without class folders"
    if plain:
        seen += f": {shown_names(plain)} {'names' if len(plain) == 1 else 'name'} none"
    return Evidence(format="flat", score=FLAT, seen=seen)


def _hold_class_folders(look: Look, folders: Iterable[bytes]) -> bool:
    """Whether a folder that names no class itself has one in it that does, with pictures."""
    return any(
        not names_no_class(name)
        for folder in folders
        for name in _folders_with_pictures(look, folder)
    )


def _hold_sequences(look: Look, folders: Iterable[bytes]) -> bool:
    """Whether each of some folders is a sequence of frames: see `are_sequences`."""
    for folder in folders:
        try:
            here = list_folder(look.root, folder)
        except OSError:
            return False
        names = [] if here.pictures else list(_folders_with_pictures(look, folder))
        if not are_sequences([[(name,) for name in names]]):
            return False
    return True


def _picture_folder(look: Look, name: bytes) -> Evidence | None:
    """The only folder with pictures, if it has the name of no class or holds folders of classes."""
    shown = readable_path(name)
    is_plain = names_no_class(name)
    held = [x for x in look.listings if (x.path + b"/").startswith(name + b"/") and x.pictures]
    for listing in held:
        if listing.path == name:
            if not is_plain:
                return None
            count = count_text(len(listing.pictures), "picture")
            seen = f"{count} in {shown}/, which is the name of no class"
            return Evidence(format="flat", score=FLAT, seen=seen)
    below = sorted({x.path.split(b"/")[1] for x in held})
    if not is_plain and (len(below) < 2 or are_all_splits([name])):
        return None
    seen = f"the only folder with pictures: {shown}"
    what = "this is the name of no class" if is_plain else "it would be the only class"
    otherwise = "" if is_plain else ". If it is the class of all, give --format imagefolder"
    problem = (
        f"{what}, and the pictures lie in folders below it"
        f"{': ' + shown_names(below) if below else ''}. To take those for classes or splits, give "
        f"{readable_path(os.path.join(look.root, name))} instead{otherwise}"
    )
    return Evidence(format="imagefolder", score=FLAT, seen=seen, problem=problem)


def _folders_with_pictures(look: Look, folder: bytes) -> Iterator[bytes]:
    """Names of folders in a folder that hold pictures, at any depth."""
    try:
        names = list_folder(os.path.join(look.root, folder), b"").folders
    except OSError:
        return
    for name in names:
        if holds_pictures(os.path.join(look.root, folder, name)):
            yield name


def label_files(look: Look) -> set[bytes]:
    """Text files that name pictures of a split without class folders: `imagefolder` reads them."""
    root, texts = Path(os.fsdecode(look.root)), look.files(LIST_EXTENSION)
    return {
        path
        for split in look.listings[0].folders
        if are_all_splits([split])
        and any(is_of_split(split, path) for path in texts)
        and all(map(names_no_class, _folders_with_pictures(look, split)))
        and (path := find_label_file(root, split, texts)) is not None
    }


DEEP_FOLDERS_MAX = 200


def sample_parts(look: Look) -> Iterator[Evidence]:
    """Folders that would be taken for classes and hold parts of samples: see `find_parts`."""
    folders = {listing.path: listing.pictures for listing in look.listings}
    pending = [
        x.join(name)
        for x in look.listings
        if not any(x.join(name) in folders for name in x.folders)
        for name in x.folders[:LEVEL2_FOLDERS_MAX]
    ]
    for path in pending:  # Which grows.
        if path in folders or len(folders) > len(look.listings) + DEEP_FOLDERS_MAX:
            continue
        try:
            listing = list_folder(look.root, path)
        except OSError:
            continue
        folders[path] = listing.pictures
        pending += [listing.join(name) for name in listing.folders[:LEVEL2_FOLDERS_MAX]]
    parts = find_parts(look.root, folders)
    if parts is not None:
        yield Evidence(format="sample-parts", score=PAIRED, seen=parts.text)
        return
    named = split_names(folders)
    if named:
        yield Evidence(format="split-names", score=PAIRED, seen=f"folders {shown_names(named)}")
