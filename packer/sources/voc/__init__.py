"""Pascal VOC: an XML file for each picture, in official folders or beside the pictures."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from packer.errors import SourceError
from packer.items.annotations import Annotations, object_fields, pack_annotations
from packer.items.findings import Findings
from packer.items.raw_item import RawFile, Reject, Scan
from packer.sources.class_names import ClassNames, class_names
from packer.sources.masks.label_map import find_label_maps
from packer.sources.pairing import PictureIndex, several_reason, split_path, stem_of
from packer.sources.picture_item import picture_item
from packer.sources.sidecars import (
    NO_PICTURE_HERE,
    PICTURE_FOLDERS,
    Pairs,
    lost_reason,
    pair_files,
    splits_by_folder,
)
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.sources.turned_boxes import corners_field, stores_corners
from packer.sources.voc.content import (
    VocContent,
    angle_notes,
    choose_origin,
    one_pixel_notes,
    pack_objects,
    read_files,
)
from packer.sources.voc.image_sets import SplitLists, list_name
from packer.sources.voc.masks import (
    LABEL_MAP,
    VOC_CLASSES,
    VOC_IGNORE,
    VocMasks,
    is_mask_folder,
    voc_colors,
)
from packer.sources.voc.xml import read_voc
from packer.sources.walk import NOT_A_PICTURE, Picture, Tree, walk
from packer.wording import count_text, names_text, readable_path
from readers.store.schema import Field

name = "voc"

MASK_FILE = "mask of Pascal VOC, not asked for"
UNUSED_MASK = "mask of a picture that is not packed"
NOT_LISTED = "in no ImageSets list"
NO_MASK = "has no mask in SegmentationClass"
UNUSED_XML = "annotation file of a picture that is not packed"
OTHER_XML = "XML file without a picture that is not Pascal VOC"
UNREAD_LIST = "ImageSets list that is not read"


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Pictures with the boxes of their XML files, in order of their paths.

    An XML file and its picture have the same name; what `<filename>` says is not used. Splits are
    the lists in `ImageSets/Main`, or else folders that all have names of splits. Classes are sorted
    by code point. A picture without XML, where others have some, is one without objects. With
    `options.task` "segment" the pictures are those with a mask in `SegmentationClass`, where there
    is such a folder; else the objects are those with an outline.

    A `<polygon>` is an outline, and counts from where boxes do. A `<robndbox>`, and a `<bndbox>`
    whose attributes say `rotation`, is a turned box. An object of several boxes is several objects.

    VOC counts pixels from 1 and a box includes its last pixel: xmin - 1, ymin - 1, xmax, ymax are
    its edges. Many tools count from 0 instead and write the edges themselves. Under
    `options.voc_origin` "auto" one box in the data with xmin or ymin in [0, 1) proves that its tool
    did, since by the official rule it would begin outside of its picture. A box of no width or
    height proves nothing (0, 0, 0, 0 stands for "no box"), nor does a number below 0, which is
    outside by either rule. What was taken is in `Scan.choices["voc_origin"]` and in a note.

    Raises:
        SourceError: No picture has an XML file (or a mask or outline, when those are wanted), or
            the file of the names of mask values cannot be read.
    """
    tree = walk(raw, (b".xml", b".txt"))
    findings = tree.findings
    mark = findings.mark()
    index = PictureIndex(tree)
    files = [file for folder in tree.folders.values() for file in folder.annotation_files]
    pairs = pair_files(tree, index, (f for f in files if f.lower().endswith(b".xml")))
    texts = [file for file in files if file.lower().endswith(b".txt")]
    masks = VocMasks(tree, index)
    wants_masks = options.task == "segment" and bool(masks.folders)
    lists = SplitLists(raw, texts, findings, prefers_masks=wants_masks)

    chosen = _choose(tree, index, pairs, lists, masks, wants_masks=wants_masks)
    content = read_files(raw, chosen.pictures, pairs.file_of, findings)
    _refuse_lost_files(raw, pairs, findings)
    lists.refuse_missing(_names_by_root(tree, pairs, lists), findings)
    has_files = any(picture.path in pairs.file_of for picture in chosen.pictures)
    lacks_outlines = options.task == "segment" and not content.outline_count
    if not chosen.masks and (not has_files or lacks_outlines):
        raise _nothing_found(raw, pairs, lists, tree, options)
    _ignore_rest(tree, texts, lists, masks, chosen)

    classes = class_names(content.class_counts, options.classes)
    origin, origin_note = choose_origin(content.evidence, options)
    has_boxes = not chosen.masks or all(p.path in pairs.file_of for p in chosen.pictures)
    splits = ordered_splits(chosen.split_of.values())
    _add_items(content, chosen, classes, origin, splits, findings, has_boxes=has_boxes)
    fields: list[Field] = []
    mask_colors: tuple[tuple[int, int, int], ...] = ()
    if has_boxes:
        has_corners = stores_corners(options.task, content.angles.turned_count)
        has_attributes = content.attribute_count or content.angles.angle_count
        names = ["boxes", "labels", "difficult", "truncated"]
        names += ["masks"] if content.outline_count else []
        names += ["attributes"] if has_attributes else []
        corners = corners_field() if has_corners else None
        fields += object_fields(classes.names, tuple(names), keypoints=corners)
    if chosen.masks:
        mask_names, mask_colors, mask_notes = _mask_values(
            raw, _label_maps(texts, masks), classes.names
        )
        findings.notes += mask_notes
        fields.append(
            Field(
                name="mask",
                kind="mask",
                dtype="uint8",
                shape=(None, None),
                names=mask_names,
                ignore=VOC_IGNORE,
            )
        )
    if splits:
        fields.append(split_field(splits))
    if has_boxes:
        findings.notes.insert(0, origin_note)
        findings.notes += [*one_pixel_notes(content, origin), *angle_notes(content, options)]
        findings.choices |= _choices(content, origin)
    else:
        findings.notes.append("boxes left aside: not every picture with a mask has an XML file")
        findings.annotation_rejects.clear()  # Of boxes that nobody misses.
    findings.notes += lists.notes
    _add_picture_notes(findings, chosen, pairs, masks)

    def of_split(reject: Reject) -> Reject:
        place = reject.key or os.fsencode(reject.path)
        split = reject.split or chosen.split_of.get(place) or lists.split(place)
        return msgspec.structs.replace(reject, split=split or "")

    findings.rejects[mark[0] :] = map(of_split, findings.rejects[mark[0] :])
    return findings.as_scan(
        name,
        raw,
        classes=classes.names if has_boxes else (),
        splits=splits,
        fields=tuple(fields),
        mask_colors=mask_colors,
    )


def _choices(content: VocContent, origin: int) -> dict[str, str]:
    choices = {"voc_origin": str(origin)}
    if content.angles.angle_count:
        choices["voc_angle"] = "degrees" if content.angles.has_degrees else "radians"
    return choices


# --- which pictures -------------------------------------------------------------------------------


@dataclass
class _Chosen:
    """Pictures to be packed, sorted by path, with split and mask of each."""

    pictures: list[Picture] = field(default_factory=list)
    split_of: dict[bytes, str] = field(default_factory=dict)
    masks: dict[bytes, RawFile] = field(default_factory=dict)


def _choose(
    tree: Tree,
    index: PictureIndex,
    pairs: Pairs,
    lists: SplitLists,
    masks: VocMasks,
    *,
    wants_masks: bool,
) -> _Chosen:
    """Decide about every picture that is not rejected yet; the others become ignored files."""
    chosen = _Chosen()
    folders = {path for path in tree.folders if _holds_samples(path, pairs, lists, masks)}
    split_of_folder = {} if lists.sets else splits_by_folder(folders)
    for picture in index.rest():
        folder = split_path(picture.path)[0]
        if folder not in folders:
            reason = MASK_FILE if is_mask_folder(folder) else NO_PICTURE_HERE
            if not (wants_masks and folder in masks.folders.values()):
                tree.findings.ignore(reason, [picture.path])
            continue
        split = lists.split(picture.path) if lists.sets else split_of_folder.get(folder)
        fitting = masks.of(picture.path) if wants_masks else []
        if lists.sets and split is None:
            _ignore(tree, pairs, picture, NOT_LISTED)
        elif wants_masks and not fitting:
            _ignore(tree, pairs, picture, NO_MASK)
        elif len(fitting) > 1:
            reason = f"of its masks, {several_reason(fitting)}"
            tree.findings.refuse(picture.path, reason)
        else:
            chosen.pictures.append(picture)
            if split is not None:
                chosen.split_of[picture.path] = split
            for mask in fitting:
                chosen.masks[picture.path] = RawFile(mask.path, mask.byte_count, mask.mtime_ns)
    return chosen


def _holds_samples(folder: bytes, pairs: Pairs, lists: SplitLists, masks: VocMasks) -> bool:
    """Whether pictures in a folder are samples rather than masks or something else."""
    if folder in pairs.folders:
        return True
    root, last = split_path(folder)
    return last.lower() in PICTURE_FOLDERS and (root in lists.sets or root in masks.folders)


def _ignore(tree: Tree, pairs: Pairs, picture: Picture, reason: str) -> None:
    tree.findings.ignore(reason, [picture.path])
    if picture.path in pairs.file_of:
        tree.findings.ignore(UNUSED_XML, [pairs.file_of[picture.path]])


def _ignore_rest(
    tree: Tree, texts: list[bytes], lists: SplitLists, masks: VocMasks, chosen: _Chosen
) -> None:
    """Account for text files that were not read and masks of classes that are not packed."""
    label_maps: set[bytes] = set()
    if chosen.masks:
        label_maps = _label_maps(texts, masks)
        used = {mask.path for mask in chosen.masks.values()}
        for folder in masks.folders.values():
            paths = (mask.path for mask in tree.folders[folder].pictures)
            tree.findings.ignore(UNUSED_MASK, (path for path in paths if path not in used))
    for file in texts:
        if file in lists.unread:
            tree.findings.ignore(UNREAD_LIST, [file])
        elif not lists.was_read(file) and file not in label_maps:
            tree.findings.ignore(NOT_A_PICTURE, [file])


def _label_maps(texts: Iterable[bytes], masks: VocMasks) -> set[bytes]:
    """Text files beside folders of masks that say what their values are called."""
    pairs = ((file, *split_path(file)) for file in texts)
    return {
        file
        for file, folder, name in pairs
        if folder in masks.folders and name.lower() == LABEL_MAP
    }


def _names_by_root(tree: Tree, pairs: Pairs, lists: SplitLists) -> set[tuple[bytes, bytes]]:
    """Every name that a list may mention: of pictures, and of XML files that lost theirs."""
    paths = [
        p.path for path, f in tree.folders.items() if not is_mask_folder(path) for p in f.pictures
    ]
    places = ((lists.of(path), path) for path in (*paths, *pairs.lost))
    return {(place[0], list_name(path)) for place, path in places if place is not None}


def _refuse_lost_files(raw: Path, pairs: Pairs, findings: Findings) -> None:
    """Refuse each XML file of a picture that is not there; other XML is ignored."""
    for file, looked in pairs.lost.items():
        place = readable_path(file)
        try:
            found = read_voc(os.path.join(os.fsencode(raw), file))
        except ValueError:
            findings.ignore(OTHER_XML, [file])
            continue
        reason = lost_reason(file, looked, found.object_count)
        findings.refuse(b"", reason, place)


# --- what a store gets ----------------------------------------------------------------------------


def _add_items(
    content: VocContent,
    chosen: _Chosen,
    classes: ClassNames,
    origin: int,
    splits: tuple[str, ...],
    findings: Findings,
    *,
    has_boxes: bool,
) -> None:
    rejected = {reject.key for reject in findings.rejects if reject.key}
    none = pack_annotations(Annotations())
    values = {split: {"split": number} for number, split in enumerate(splits)}
    for picture in chosen.pictures:
        path = picture.path
        if path in rejected:
            continue
        found = content.raw_of.get(path)
        annotations = b""
        if has_boxes:
            annotations = (
                none
                if found is None
                else pack_objects(found, path, classes, origin, content, findings)
            )
        mask = chosen.masks.get(path)
        findings.items.append(
            picture_item(
                picture,
                values[chosen.split_of[path]] if path in chosen.split_of else {},
                annotations,
                {} if mask is None else {"mask": mask},
            )
        )


def _mask_values(
    raw: Path, label_maps: Iterable[bytes], classes: tuple[str, ...]
) -> tuple[tuple[str, ...] | None, tuple[tuple[int, int, int], ...], list[str]]:
    """Names and colours of the values of masks, and notes."""
    for label_map in find_label_maps(raw, label_maps):
        notes = [f"names and colours of mask values are those of {label_map.place}"]
        return label_map.names or None, label_map.colors or voc_colors(), notes
    if classes and set(classes) <= set(VOC_CLASSES):
        return VOC_CLASSES, voc_colors(), []
    note = "the values of masks have no names: the classes are not those of Pascal VOC"
    return None, voc_colors(), [note]


def _add_picture_notes(findings: Findings, chosen: _Chosen, pairs: Pairs, masks: VocMasks) -> None:
    background = sum(picture.path not in pairs.file_of for picture in chosen.pictures)
    if background and not chosen.masks:
        pictures = count_text(background, "picture")
        findings.notes.append(f"{pictures} without an XML file: packed as pictures without objects")
    findings.note_ignored(NOT_LISTED, NO_MASK, NO_PICTURE_HERE)
    if masks.folders and not chosen.masks:
        shown = names_text(readable_path(folder) + "/" for folder in masks.folders.values())
        findings.notes.append(
            f"masks left aside: {shown}. Give --task segment to pack the pictures they are of"
        )


def _nothing_found(
    raw: Path, pairs: Pairs, lists: SplitLists, tree: Tree, options: SourceOptions
) -> SourceError:
    if options.task == "segment":
        found = "no picture has a mask"
        expected = (
            "expected SegmentationClass/ beside JPEGImages/, with a mask of the same name for each "
            "picture, or XML files with a <polygon> in their objects. Without --task segment boxes "
            "are packed"
        )
    elif pairs.file_of:
        shown = names_text(place for sets in lists.sets.values() for place in sets.places.values())
        pictures = count_text(len(pairs.file_of), "picture")
        found = f"{pictures} with an XML file, but none is in an ImageSets list"
        expected = f"the lists name {shown}. Correct the lists, or move them away"
    elif pairs.lost:
        file, looked = next(iter(pairs.lost.items()))
        files = count_text(len(pairs.lost), "XML file")
        found = (
            f"no picture has an XML file: of {files} such as {readable_path(file)} the pictures "
            "are missing"
        )
        expected = (
            f"looked in {looked}. Expected {readable_path(stem_of(split_path(file)[1]))}.jpg, .png "
            "or the like there, or in a folder such as JPEGImages/ or images/ beside it"
        )
    else:
        texts = (file for folder in tree.folders.values() for file in folder.annotation_files)
        count = sum(text.endswith(b".xml") for text in texts)
        found = f"{count_text(count, 'XML file')} and no picture that one belongs to"
        expected = (
            "expected Annotations/ with XML files beside JPEGImages/, or XML files beside the "
            "pictures"
        )
    return tree.findings.nothing(raw, found, expected)
