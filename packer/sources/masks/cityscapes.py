"""Cityscapes: `leftImg8bit/{split}/{city}/*_leftImg8bit.png` with the masks of `gtFine`."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

from packer.errors import SourceError
from packer.items.findings import Findings
from packer.items.raw_item import RawFile, Scan
from packer.sources.pairing import split_path, stem_of
from packer.sources.picture_item import picture_item
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.sources.walk import NOT_A_PICTURE, Picture, Tree, walk
from packer.wording import readable_path
from readers.store.schema import Field
from readers.store.splits import canonical_split

name = "cityscapes"

PICTURE_FOLDER = b"leftImg8bit"
MASK_FOLDERS = (b"gtFine", b"gtCoarse")
"""The first that is there is read: fine and coarse masks are not mixed."""

LABEL_IDS, TRAIN_IDS, INSTANCE_IDS = b"labelIds", b"labelTrainIds", b"instanceIds"

LABELS = (
    "unlabeled",
    "ego vehicle",
    "rectification border",
    "out of roi",
    "static",
    "dynamic",
    "ground",
    "road",
    "sidewalk",
    "parking",
    "rail track",
    "building",
    "wall",
    "fence",
    "guard rail",
    "bridge",
    "tunnel",
    "pole",
    "polegroup",
    "traffic light",
    "traffic sign",
    "vegetation",
    "terrain",
    "sky",
    "person",
    "rider",
    "car",
    "truck",
    "bus",
    "caravan",
    "trailer",
    "train",
    "motorcycle",
    "bicycle",
)
"""Names of the values of labelIds masks."""

TRAIN_LABELS = (
    "road",
    "sidewalk",
    "building",
    "wall",
    "fence",
    "pole",
    "traffic light",
    "traffic sign",
    "vegetation",
    "terrain",
    "sky",
    "person",
    "rider",
    "car",
    "truck",
    "bus",
    "train",
    "motorcycle",
    "bicycle",
)
"""Names of the values of labelTrainIds masks, in which 255 is every other class."""

TRAIN_IGNORE = 255

OTHER_FOLDER = "in none of the folders that are read"
OTHER_NAME = "not called like a picture or mask of Cityscapes"
OTHER_KIND = "a mask of another kind than those that are read"
WITHOUT_MASKS = "in a split without masks"

_EXTRA_SPLIT = "train_extra"


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Every picture of leftImg8bit with its masks of values, and the split that it lies in.

    Masks are labelIds or labelTrainIds, in field `mask`. Where a set has both, neither is chosen:
    they become the fields `mask_label_ids` and `mask_train_ids`, and a reader takes the one it is
    about. instanceIds are read, as `mask`, only where there is nothing else.

    Raises:
        SourceError: The folders are not there, or hold no masks of values.
    """
    tree = walk(raw, (b".json", b".txt"))
    findings = tree.findings
    mask_folder = next((each for each in MASK_FOLDERS if any(_below(tree, each))), MASK_FOLDERS[0])
    masks, kinds = _masks(tree, mask_folder)
    fields = _mask_fields(kinds, options.classes)
    if not fields:
        raise _nothing_found(raw, mask_folder, findings)

    mask_places = {place for place, _ in masks}
    splits_with_masks = {_split_of(place) for place in mask_places}
    pictures: dict[tuple[bytes, bytes], list[Picture]] = {}
    for folder, picture in _below(tree, PICTURE_FOLDER):
        base = _base(picture.path, b"_" + PICTURE_FOLDER)
        if base is None:
            findings.ignore(OTHER_NAME, [picture.path])
        elif _split_of((folder, base)) not in splits_with_masks:
            findings.ignore(WITHOUT_MASKS, [picture.path])
        else:
            pictures.setdefault((folder, base), []).append(picture)
    splits = ordered_splits(_split_of(place) for place in pictures)
    has_splits = all(canonical_split(each) or each == _EXTRA_SPLIT for each in splits)
    splits = splits if has_splits else ()
    values = {each: {"split": number} for number, each in enumerate(splits)}
    for place, found in pictures.items():
        for picture in found:
            chosen = {each.name: masks.get((place, kind), []) for kind, each in fields.items()}
            reason = _problem(place, mask_folder, found, fields, masks)
            if reason is not None:
                findings.refuse(picture.path, reason)
                continue
            findings.items.append(
                picture_item(
                    picture,
                    values.get(_split_of(place), {}),
                    masks={each: RawFile(*files[0]) for each, files in chosen.items()},
                )
            )
    findings.items.sort(key=attrgetter("key"))
    lonely = f"a mask without its picture; looked in {PICTURE_FOLDER.decode()}/"
    for (place, kind), files in sorted(masks.items()):
        for mask in files if place not in pictures and kind in fields else ():
            findings.refuse_annotation(b"", lonely, readable_path(mask.path))
    _ignore_the_rest(tree, mask_folder, set(fields))
    _add_notes(findings, mask_folder, fields)
    findings.choices["mask_values"] = ", ".join(kind.decode() for kind in fields)
    return findings.as_scan(
        name,
        raw,
        classes=next((each.names for each in fields.values() if each.names), ()),
        splits=splits,
        fields=(*fields.values(), split_field(splits)) if splits else tuple(fields.values()),
    )


def _below(tree: Tree, top: bytes) -> Iterator[tuple[bytes, Picture]]:
    """Pictures below folders of a name, wherever these lie, with the folder inside of them."""
    for path, folder in tree.folders.items():
        parts = path.split(b"/")
        tops = [n for n, part in enumerate(parts) if part.lower() == top.lower()]
        if tops:
            inside = b"/".join(parts[tops[0] + 1 :])
            for picture in folder.pictures:
                yield inside, picture


def _masks(
    tree: Tree, mask_folder: bytes
) -> tuple[dict[tuple[tuple[bytes, bytes], bytes], list[Picture]], set[bytes]]:
    """Masks by the place of their picture and their kind, and which kinds there are."""
    masks: dict[tuple[tuple[bytes, bytes], bytes], list[Picture]] = {}
    for folder, mask in _below(tree, mask_folder):
        for kind in (LABEL_IDS, TRAIN_IDS, INSTANCE_IDS):
            base = _base(mask.path, b"_" + mask_folder + b"_" + kind)
            if base is not None:
                masks.setdefault(((folder, base), kind), []).append(mask)
    return masks, {kind for _, kind in masks}


def _base(path: bytes, end: bytes) -> bytes | None:
    """What the names of a picture and its masks have in common, or None without the ending."""
    stem = split_path(stem_of(path))[1]
    return stem[: -len(end)] if stem.endswith(end) else None


def _split_of(place: tuple[bytes, bytes]) -> str:
    return readable_path(place[0].split(b"/")[0])


def _mask_fields(kinds: set[bytes], classes: tuple[str, ...] | None) -> dict[bytes, Field]:
    """The fields of the kinds of masks that are read."""
    has_both = {LABEL_IDS, TRAIN_IDS} <= kinds
    if has_both and classes is not None:
        raise SourceError(
            "--classes cannot name the values of labelIds and labelTrainIds at once, and both are "
            "there. Leave it out, or move the masks of one kind away."
        )
    fields = {}
    if LABEL_IDS in kinds:
        fields[LABEL_IDS] = _field("mask_label_ids" if has_both else "mask", classes or LABELS)
    if TRAIN_IDS in kinds:
        fields[TRAIN_IDS] = _field(
            "mask_train_ids" if has_both else "mask", classes or TRAIN_LABELS, TRAIN_IGNORE
        )
    if not fields and INSTANCE_IDS in kinds:
        fields[INSTANCE_IDS] = Field(name="mask", kind="mask", dtype="int32", shape=(None, None))
    return fields


def _field(field_name: str, names: tuple[str, ...], ignore: int | None = None) -> Field:
    return Field(
        name=field_name,
        kind="mask",
        dtype="uint8",
        shape=(None, None),
        names=names,
        ignore=ignore,
    )


def _problem(
    place: tuple[bytes, bytes],
    mask_folder: bytes,
    pictures: list[Picture],
    fields: dict[bytes, Field],
    masks: dict[tuple[tuple[bytes, bytes], bytes], list[Picture]],
) -> str | None:
    """Why a picture cannot be packed, or None when it can."""
    if len(pictures) > 1:
        shown = ", ".join(readable_path(picture.path) for picture in pictures)
        return f"several pictures fit one mask: {shown}; expected one"
    for kind in fields:
        found = masks.get((place, kind), [])
        if not found:
            expected = b"_".join((place[1], mask_folder, kind)) + b".png"
            return f"no mask {readable_path(expected)}"
        if len(found) > 1:
            shown = ", ".join(readable_path(mask.path) for mask in found)
            return f"several masks fit: {shown}; expected one"
    return None


def _ignore_the_rest(tree: Tree, mask_folder: bytes, kinds: set[bytes]) -> None:
    """Count the pictures and files that nothing was made of."""
    read: set[bytes] = {picture.path for _, picture in _below(tree, PICTURE_FOLDER)}
    for _, mask in _below(tree, mask_folder):
        read.add(mask.path)
        stem = stem_of(mask.path)
        if not any(stem.endswith(b"_" + mask_folder + b"_" + kind) for kind in kinds):
            tree.findings.ignore(OTHER_KIND, [mask.path])
    for folder in tree.folders.values():
        rest = (picture.path for picture in folder.pictures if picture.path not in read)
        tree.findings.ignore(OTHER_FOLDER, rest)
        tree.findings.ignore(NOT_A_PICTURE, folder.annotation_files)


def _add_notes(findings: Findings, mask_folder: bytes, fields: dict[bytes, Field]) -> None:
    named = ", ".join(f"{kind.decode()} as {each.name!r}" for kind, each in fields.items())
    findings.notes.append(f"masks of {mask_folder.decode()}: {named}")
    if INSTANCE_IDS in fields:
        findings.notes.append(
            "instanceIds are the class, or 1000 times the class plus a number; there are no "
            "labelIds or labelTrainIds, which cityscapesscripts makes"
        )
    findings.note_ignored(OTHER_KIND, OTHER_FOLDER, OTHER_NAME, WITHOUT_MASKS, noun="file")


def _nothing_found(raw: Path, mask_folder: bytes, findings: Findings) -> SourceError:
    masks = mask_folder.decode()
    return findings.nothing(
        raw,
        f"no masks *_{masks}_labelIds.png or *_labelTrainIds.png below {masks}/",
        f"expected them in {masks}/{{split}}/{{city}}/, and the pictures in "
        f"{PICTURE_FOLDER.decode()}/{{split}}/{{city}}/. cityscapesscripts makes them of the "
        "polygons (createTrainIdLabelImgs)",
    )
