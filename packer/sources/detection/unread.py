"""Files that say something about the pictures and that the chosen source does not read.

Every source accounts for the files that it has no use for (`Scan.ignored`). Before a build goes on
without them, each is looked into: whose values are names of pictures, with anything beside them
that says more than the pictures do themselves, is not left aside in silence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packer.errors import SourceError
from packer.items.raw_item import RawItem, Scan
from packer.sources.detection.found import UNREAD
from packer.sources.detection.meaning import (
    PictureNames,
    hits_of,
    lower_name,
    names_among,
    repeats_boxes,
    says_more,
    split_of_file,
    word_of,
)
from packer.sources.detection.mentions import READ_BYTES, Mentions, Place, read_mentions
from packer.sources.detection.promises import broken_promise, opaque_promise, promise_text
from packer.sources.layouts import LAYOUTS
from packer.sources.pairing import composed, split_path, stem_of
from packer.sources.source import AUTO_FORMAT, SourceOptions
from packer.sources.walk import NOT_A_PICTURE, is_picture_name
from packer.wording import readable_path

_FILES_MAX = 500
"""How many files are looked into, the uppermost first."""

_READ_WELL = 16
"""Of more files than these only the first lines are looked into, so that 500 take seconds."""

LOOKED_INTO = frozenset(
    (
        NOT_A_PICTURE,
        "list that was not read",
        "JSON file that is not COCO annotations",
        "annotation file without boxes",
        "file without a picture that is not LabelMe",
        "XML file that is not a dump of CVAT",
        "XML file without a picture that is not Pascal VOC",
        "table that no state.json names",
    )
)
"""Reasons of ignored files that no source has looked into, or that are of no kind it knows."""

_NOTHING_NAMES = re.compile(
    rb"(readme|licen[sc]e|copying|copyright|changelog|changes|authors|contributors|contributing|"
    rb"notice|citation|requirements|constraints|environment|setup|makefile|dockerfile|install|"
    rb"attribution|credits|package(-lock)?)([^a-z].*)?"
    rb"(?<!\.csv)(?<!\.tsv)(?<!\.jsonl)(?<!\.ndjson)(?<!\.xml)",
    re.IGNORECASE,
)
_NOTHING_EXTENSIONS = frozenset(
    b".py .pyc .pyi .ipynb .sh .bash .bat .cmd .ps1 .js .ts .css .html .htm .c .h .cc .cpp .hpp "
    b".cu .java .go .rs .r .m .lua .pl .rb .php .log .lock .out .err .pdf .doc .docx .ppt .pptx "
    b".tex .bib .zip .tar .gz .tgz .bz2 .xz .7z .rar .zst .mp4 .avi .mov .mkv .webm .mp3 .wav .pt "
    b".pth .ckpt .onnx .safetensors .tflite .pb .cache .exe .dll .so .url .lnk .torrent .psd .svg "
    b".xcf .ai .eps .cr2 .cr3 .nef .arw .dng .raf .orf .rw2 .thm .xmp .aae .md5 .sha1 .sha256 "
    b".sha512 .sfv .sig .asc .bak .tmp .swp .ds_store".split()
)
"""Documents, code, archives, models, sums: what may name pictures and says nothing about them."""


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A file that says something and is not read.

    Attributes:
        path: Relative to the raw folder.
        said: One sentence about it, which begins with its path.
        advice: What to do about it.
    """

    path: bytes
    said: str
    advice: str


def stop_at_unread(raw: Path, scan: Scan, options: SourceOptions) -> list[str]:
    """See that no file that the source has no use for says something about its pictures.

    Args:
        raw: The raw path.
        scan: What the source found.
        options: Under a format that was asked for, the files are named and the build goes on.

    Returns:
        Notes on files that are left aside because the user wants it so.

    Raises:
        SourceError: There is one, and the format was not asked for.
    """
    if not raw.is_dir():
        return []  # The user has chosen one file.
    # The first of each folder and extension come first: a list among 50,000 text files is seen.
    ranked = sorted(
        (rank, path.count("/"), path)
        for group in scan.ignored.groups
        if group.reason in LOOKED_INTO
        for rank, path in enumerate(group.paths)
    )
    candidates = [os.fsencode(path) for _, _, path in ranked]
    found = find_unread(raw, candidates, scan.items, scan)
    twin = _twins(raw, scan)
    if twin is not None:
        found.append(twin)
    if not found:
        return []
    if options.format != AUTO_FORMAT:
        return [f"not read, as --format {scan.format} asks: {unread.said}" for unread in found[:5]]
    raise unread_error(raw, found, scan.format)


def unread_error(raw: Path, found: Sequence[Unread], format_name: str) -> SourceError:
    """The error that names the files and what to do about them."""
    shown = readable_path(os.fsencode(raw))
    first = found[0]
    others = ""
    if found[1:]:
        names = ", ".join(readable_path(unread.path) for unread in found[1:4])
        others = f" The same is true of {names}{' and others' if found[4:] else ''}."
    meaning = LAYOUTS[format_name].meaning
    shown_format = f"{format_name} ({meaning})" if meaning else format_name
    them = "them" if found[1:] else "it"
    advice = f" {first.advice}." if first.advice else ""
    return SourceError(
        f"{shown}: {first.said}.{others}{advice} To build without {them}, give --format "
        f"{shown_format}, or move {them} out of this folder."
    )


def find_unread(
    raw: Path, candidates: Sequence[bytes], items: Iterable[RawItem | bytes], scan: Scan | None
) -> list[Unread]:
    """Those of some files that say something about pictures.

    Args:
        raw: Folder that the files' paths are relative to.
        candidates: The files, the likeliest first.
        items: The pictures, or paths of them.
        scan: Where it is known what the source made of the pictures.
    """
    roots = [os.fsencode(raw), *([os.fsencode(scan.root)] if scan is not None else [])]
    found: list[Unread] = []
    read: list[tuple[bytes, Mentions]] = []
    others = [path for path in dict.fromkeys(candidates) if not is_picture_name(path)]
    for path in others[:_FILES_MAX]:
        name = split_path(path)[1]
        places = [os.path.join(root, path) for root in roots]
        full = next((place for place in places if os.path.lexists(place)), b"")
        if not full:
            continue  # Inside of an archive: its source accounts for it.
        problem = broken_promise(full, name)
        if problem:
            found.append(_broken(path, problem))
        elif _FRAMES.fullmatch(path.lower()):
            found.append(_frames(path))
        elif opaque_promise(name) and (scan is None or LAYOUTS[scan.format].kind == "pictures"):
            found.append(_opaque(path))
        elif not says_nothing_by_name(name):
            try:
                read_bytes = READ_BYTES if len(read) < _READ_WELL else READ_BYTES // 16
                mentions = read_mentions(full, read_bytes)
            except OSError:
                continue
            if mentions is not None:
                read.append((path, mentions))
    if read:
        names = names_among(read, items)
        for path, mentions in read:
            said = _said(path, mentions, names, scan)
            if said is not None:
                found.append(said)
    return sorted(found, key=lambda unread: (unread.path.count(b"/"), unread.path))


_FRAMES = re.compile(rb"(.*/)?(gt/gt|det/det)\.txt")


def _frames(path: bytes) -> Unread:
    return Unread(
        path=path,
        said=f"{readable_path(path)} is named like MOT's boxes, by the number of the frame, and no "
        "source reads it",
        advice=f"{UNREAD['mot'][1]}",
    )


def says_nothing_by_name(name: bytes) -> bool:
    """Whether a file is called like documents, code and such, which say nothing of pictures."""
    extension = name[name.rfind(b".") :].lower() if b"." in name else b""
    if extension in _NOTHING_EXTENSIONS:
        return True
    return _NOTHING_NAMES.fullmatch(name) is not None


def _broken(path: bytes, problem: str) -> Unread:
    advice = "" if "git lfs" in problem else "Get the file again, whole"
    return Unread(path=path, said=promise_text(path, problem), advice=advice)


def _opaque(path: bytes) -> Unread:
    return Unread(
        path=path,
        said=f"{readable_path(path)} is called like a file of annotations, and no source reads it "
        "beside pictures",
        advice="Unpack it if it is an archive; else write what it says as CSV with the columns "
        "path and label, or build from Python: packer.build(dataset, out)",
    )


def _said(path: bytes, mentions: Mentions, names: PictureNames, scan: Scan | None) -> Unread | None:
    """What a file says about pictures, or None where it names none or says no more than that."""
    best: tuple[int, Place] | None = None
    for place in mentions.places:
        hits = hits_of(place, names, is_cut=mentions.is_cut)
        if hits and (best is None or hits > best[0]) and says_more(place, names, path, scan):
            best = hits, place
    if best is None:
        return None
    count, place = best
    if scan is not None and mentions.shape == "table" and repeats_boxes(mentions, place, names):
        return None
    where = f" in {place.name}" if not place.name.startswith("the ") else ""
    of = "" if mentions.is_cut else f" of {names.count:,}"
    begins = f": it begins with {mentions.start}" if mentions.start else ""
    return Unread(
        path=path,
        said=f"{readable_path(path)} names {count:,}{of} pictures{where}, and no source reads what "
        f"it says of them{begins}",
        advice=_advice(path, mentions, place, names),
    )


# --- what to do -----------------------------------------------------------------------------------


def _advice(path: bytes, mentions: Mentions, place: Place, names: PictureNames) -> str:
    split = split_of_file(path)
    if mentions.shape in ("table", "lines") and split and not any(v for _, v in place.beside):
        return (
            f"It seems to say which pictures are of {split}: move those into a folder of that "
            "name, or write a CSV with the columns path, label and split"
        )
    is_header = not any(names.item(word_of(column))[0] for column in mentions.columns)
    if mentions.columns and is_header:
        shown = ", ".join(map(repr, mentions.columns[:8]))
        return (
            f"Its columns are {shown}: rename the one of file names to path, and the one of labels "
            "to label (or caption, mask_path; boxes are xmin, ymin, xmax, ymax)"
        )
    if mentions.shape in ("table", "lines"):
        return (
            "Write it as CSV with a first line that names the columns, such as path,label or "
            "path,label,xmin,ymin,xmax,ymax"
        )
    if mentions.shape == "json lines":
        return (
            "These are JSON lines: call it .jsonl, with the path of the picture under the key "
            "file_name, and its label, caption or boxes under label, caption or bbox"
        )
    if mentions.shape == "json":
        return (
            "Write it as .jsonl with a line such as "
            '{"file_name": "a.jpg", "label": "cat"} for each picture, as CSV with the columns path '
            "and label, or as COCO"
        )
    if mentions.shape == "xml":
        return "Export it as COCO, CVAT for images or Pascal VOC from the tool that made it"
    return "Write it as CSV with the columns path and label"


def file_advice(raw: Path) -> str:
    """What to do about a file that was given for the raw path and that no source reads."""
    path = os.fsencode(raw)
    problem = broken_promise(path, os.fsencode(raw.name))
    if problem:
        return f"{problem[0].upper()}{problem[1:]}."
    try:
        mentions = read_mentions(path)
    except OSError as error:
        return f"It cannot be read: {error.strerror}."
    if mentions is None or not mentions.places:
        return "Give a folder of pictures."
    begins = f"It begins with {mentions.start}. " if mentions.start else ""
    return f"{begins}{_advice(path, mentions, mentions.places[0], PictureNames())}."


# --- files of the same names ----------------------------------------------------------------------

_TWIN_EXTENSIONS = frozenset(
    b".txt .xml .json .jsonl .csv .tsv .yaml .yml .npy .npz .mat .pkl .cls .caption .label .labels "
    b".lab .pts .ann .lines .geojson".split()
)


_SENSORS = frozenset(
    (
        *("calib", "calibration", "calibs", "velodyne", "oxts", "imu", "pose", "poses", "planes"),
        *("timestamps", "depth", "lidar", "points", "pointcloud", "pointclouds", "features"),
        *("embeddings", "latents"),
    )
)
"""Folders of what was measured or computed for each picture, beside what was said of it."""


def _twins(raw: Path, scan: Scan) -> Unread | None:
    """Files elsewhere in the tree that have the names of pictures, such as `info/1.json`."""
    groups = [
        group
        for group in scan.ignored.groups
        if group.reason in LOOKED_INTO and group.extension.encode() in _TWIN_EXTENSIONS
    ]
    groups = [
        g for g in groups if g.count >= 2 and not _SENSORS & set(g.paths[0].lower().split("/"))
    ]
    if not groups:
        return None
    wanted = {
        composed(lower_name(stem_of(split_path(os.fsencode(path))[1])))
        for group in groups
        for path in group.paths
    }
    stems: set[bytes] = set()
    count = 0
    for item in scan.items:
        name = split_path(item.key)[1]
        if is_picture_name(name):
            count += 1
            stem = composed(lower_name(stem_of(name)))
            if stem in wanted:
                stems.add(stem)
    for group in groups:
        paths = [os.fsencode(path) for path in group.paths]
        same = [p for p in paths if composed(lower_name(stem_of(split_path(p)[1]))) in stems]
        if len(same) < 0.5 * len(paths) or group.count < 0.1 * count or _is_known(raw, same[0]):
            continue
        shown = readable_path(same[0])
        return Unread(
            path=same[0],
            said=f"{group.count:,} {group.extension} files such as {shown} have the names of "
            "pictures, and no source reads them",
            advice="Give the format with --format if it is one of those that are read",
        )
    return None


def _is_known(raw: Path, path: bytes) -> bool:
    """Whether the file is of a known kind: then it was seen, weighed and told."""
    from packer.sources.detection.files import kind_of_file
    from packer.sources.detection.look import Look
    from packer.sources.detection.text_files import are_yolo

    look = Look(os.fsencode(raw), [])
    is_yolo = path.lower().endswith(b".txt") and bool(look.head(path)) and are_yolo(look, [path])
    return is_yolo or kind_of_file(look, path) is not None
