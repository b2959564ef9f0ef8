"""Which COCO files there are, which of them are read, and what splits they are of."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packer.errors import SourceError
from packer.items.raw_item import Ignored
from packer.sources.coco.document import CocoFile, Kind, read_coco
from packer.sources.detection.json_outline import read_json_outline
from packer.sources.only_split import OTHER_SPLIT, is_other_split
from packer.sources.pairing import split_path, stem_of
from packer.wording import names_text, readable_path
from readers.store.splits import canonical_split
from readers.store.wording import few_text

NOT_COCO = "JSON file that is not COCO annotations"
RESULTS = "COCO results (predictions), no annotations"
NOT_ASKED_FOR = "JSON file that was not asked for"
LEFT_ASIDE = "COCO file that was left aside"

ANNOTATION_FOLDERS = frozenset(("annotations", "annotation", "anns", "ann", "labels", "json"))
"""Folders of annotation files, in lower case: pictures lie beside them, not in them."""

COCO_EXTENSIONS = (b".json",)

_KIND_PREFIX = re.compile(
    r"(instances|person_keypoints|keypoints|captions|panoptic|stuff|image_info|labels)_(.+)"
)

_KIND_ORDER: tuple[Kind, ...] = (
    "instances",
    "keypoints",
    "panoptic",
    "captions",
    "labels",
    "images",
)
"""The first kind that is there is what is read; keypoints are added to instances."""

_KIND_TEXT: dict[Kind, str] = {
    "labels": "labels of whole pictures",
    "images": "images without annotations",
    "results": "results: predictions",
}


@dataclass(frozen=True)
class Chosen:
    """The files that are read.

    Attributes:
        files: Sorted by path, all of one kind, or instances and keypoints.
        kind: Theirs; instances where there are both.
        aside: The other files, which are not read.
    """

    files: list[CocoFile]
    kind: Kind
    aside: list[CocoFile] = field(default_factory=list)

    def note(self) -> str | None:
        """What was left aside, and how to have it; None where nothing was."""
        if not self.aside:
            return None
        shown = few_text(self.aside, 10, lambda f: f"{f.name} ({_kind_text(f)})")
        return (
            f"read as {self.kind}; left aside: {shown}. To read one of them instead, "
            "give the path of the file itself"
        )


def read_files(
    folder: Path, paths: Iterable[bytes], ignored: Ignored, wanted: str | None = None
) -> list[CocoFile]:
    """The COCO files among JSON files; those of other kinds are ignored by reason.

    Args:
        folder: That the paths are relative to.
        paths: The files' paths.
        ignored: Takes JSON files of other kinds.
        wanted: The one split that is read; None: all are.

    Raises:
        SourceError: A file looks like COCO and is broken, and may be of the wanted split.
    """
    files = []
    for path in sorted(paths):
        full = os.path.join(os.fsencode(folder), path)
        try:
            coco_file = read_coco(folder, path)
        except SourceError:
            words = split_words(CocoFile(path, "instances"))
            if is_other_split(next(filter(_is_split, words), None), wanted):
                ignored.add(OTHER_SPLIT, readable_path(path))
                continue
            if read_json_outline(full).keys & {"images", "annotations", "categories"}:
                raise
            # Not COCO, as far as it can be read: no reason to stop a build.
            coco_file = None
        if coco_file is None:
            ignored.add(NOT_COCO, readable_path(path))
        else:
            files.append(coco_file)
    return files


def choose_files(shown: str, files: Sequence[CocoFile], ignored: Ignored) -> Chosen:
    """The files to read among those that were found.

    Args:
        shown: How a message calls the raw path.
        files: From `read_files`.
        ignored: Takes the files that are not read.

    Raises:
        SourceError: There is none to read.
    """
    results = [coco_file for coco_file in files if coco_file.kind == "results"]
    usable = [coco_file for coco_file in files if coco_file.kind != "results"]
    if not usable:
        if results:
            raise SourceError(
                f"{shown}: {names_text(f.name for f in results)}: COCO results (a model's "
                "predictions: a list with image_id and category_id or caption), not annotations; "
                "expected a file with the lists images, annotations and categories. Give the file "
                "that the predictions were made for."
            )
        raise SourceError(
            f"{shown}: no COCO file; expected JSON with the lists images, annotations and "
            "categories. Check the path."
        )
    for coco_file in results:
        ignored.add(RESULTS, coco_file.name)
    kinds = {_kind_of(coco_file) for coco_file in usable}
    kind = next(kind for kind in _KIND_ORDER if kind in kinds)
    read_kinds = ("instances", "keypoints") if kind == "instances" else (kind,)
    chosen = [f for f in usable if _kind_of(f) in read_kinds]
    # Stuff has the form of instances: only its name and categories tell. Together they would be
    # two annotations of the same images.
    things = [f for f in chosen if not file_stem(f).startswith("stuff_")]
    chosen = things or chosen
    names = names_text(f.name for f in chosen)
    if kind == "images":
        raise SourceError(
            f"{shown}: {names}: lists images but no annotations; expected the list annotations. To "
            "pack the pictures unlabelled give --format flat."
        )
    if kind == "labels":
        raise SourceError(
            f"{shown}: {names}: each annotation is the category of a whole picture, without bbox, "
            "segmentation or caption; expected one of these. Write a CSV with the columns "
            "file_name and label instead, which is read as a list."
        )
    aside = [f for f in usable if f not in chosen]
    for coco_file in aside:
        ignored.add(LEFT_ASIDE, coco_file.name)
    return Chosen(chosen, kind, [*aside, *results])


def says_of_objects(coco_file: CocoFile) -> bool:
    """Whether a file has objects, and does not have the name of another kind."""
    return coco_file.kind == "instances" and not is_of_another(coco_file)


def is_of_another(coco_file: CocoFile) -> bool:
    """Whether a file that has the form of instances has the name of another kind."""
    match = _KIND_PREFIX.fullmatch(file_stem(coco_file))
    return coco_file.kind == "instances" and match is not None and match[1] != "instances"


def _kind_of(coco_file: CocoFile) -> Kind:
    """What a file holds, by its content, and by its name where it has no annotations."""
    if not len(coco_file.annotations) and file_stem(coco_file).startswith("image_info"):
        return "images"
    return coco_file.kind


def split_words(coco_file: CocoFile) -> list[str]:
    """What a file's split may be called, the likeliest first.

    `instances_val2017` is of `val2017`; `_annotations.coco` in `valid/` of `valid`;
    `coco_train` of `train`.
    """
    stem = file_stem(coco_file)
    match = _KIND_PREFIX.fullmatch(stem)
    words = [match[2]] if match else []
    parent = os.fsdecode(split_path(coco_file.folder)[1])
    words += [word for word in (stem, parent, *re.split(r"[_.\- ]+", stem)) if _is_split(word)]
    return list(dict.fromkeys(words))


def split_name(coco_file: CocoFile, picture_folder: bytes) -> str | None:
    """The split of a file, by its name, its folder, or the folder of its pictures; or None."""
    words = split_words(coco_file)
    words += [os.fsdecode(part) for part in reversed(picture_folder.split(b"/"))]
    return next((word for word in words if _is_split(word)), None)


def file_stem(coco_file: CocoFile) -> str:
    """Name of the file without its extension."""
    return os.fsdecode(split_path(stem_of(coco_file.path))[1])


def _is_split(word: str) -> bool:
    return canonical_split(word) is not None


def _kind_text(coco_file: CocoFile) -> str:
    if file_stem(coco_file).startswith("stuff_"):
        return "stuff"
    kind = _kind_of(coco_file)
    if kind in ("instances", "keypoints") and not len(coco_file.annotations):
        kind = "images"
    return _KIND_TEXT.get(kind, kind)
