"""Pictures with a mask each: `images/a.jpg` and `masks/a.png`, `a.jpg` and `a_mask.png`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from packer.errors import SourceError
from packer.items.findings import Findings
from packer.items.raw_item import RawFile, Scan
from packer.sources.masks.label_map import find_label_maps, is_label_map_name
from packer.sources.masks.lists import MaskList, read_mask_lists
from packer.sources.masks.names import FolderRole, role_of, stems_of_mask, stems_of_picture
from packer.sources.masks.nnunet import case_of, channel_problem, find_names
from packer.sources.masks.survey import MaskDecision, decide_masks
from packer.sources.pairing import PictureIndex, composed, several_reason, split_path, stem_of
from packer.sources.picture_item import picture_item
from packer.sources.source import SourceOptions
from packer.sources.splits import are_all_splits, ordered_splits, split_field
from packer.sources.walk import NOT_A_PICTURE, Picture, Tree, walk
from packer.wording import count_text, readable_path
from readers.store.schema import Field
from readers.store.wording import few_text

name = "mask-pairs"

WITHOUT_MASKS = "in a folder without masks"
BESIDE_PICTURES = "beside the folder of pictures"
NOT_NAMED = "not named by the annotations"

_JPEG_ENDS = (b".jpg", b".jpeg", b".jpe", b".jfif")
_SHOWN_MAX = 5


@dataclass
class _Group:
    """Folders whose pictures and masks belong together.

    Attributes:
        place: What their paths have in common; see `FolderRole`.
        pictures: In folders of pictures.
        masks: In folders of masks.
        folders: Paths of the folders of pictures, for messages.
    """

    place: bytes
    pictures: list[Picture] = field(default_factory=list)
    masks: list[Picture] = field(default_factory=list)
    folders: list[bytes] = field(default_factory=list)


_Pair = tuple[Picture, Picture, str]
"""A picture, its mask, and its split or ""."""


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Every picture with the mask of its name, or as lists of `picture mask` say.

    Masks lie in a folder of their own, which is called so (masks, labels, annotations, gt, ...) or
    like that of the pictures with an ending (trainannot, train_masks); or beside the pictures, with
    an ending or beginning of the name (a_mask.png, gt_a.png). Never are they paired by position.
    A picture without a mask is rejected, and a mask without a picture is named as well.

    Some masks are looked into, to decide whether they hold values or colours: see `decide_masks`.

    Raises:
        SourceError: There are no masks beside the pictures, or it cannot be known what they mean.
    """
    tree = walk(raw, (b".txt", b".csv", b".json"))
    listed = [path for folder in tree.folders.values() for path in folder.annotation_files]
    maps = find_label_maps(raw, listed)
    lists = read_mask_lists(raw, [path for path in listed if not _is_label_map(path)])
    _refuse_channels(raw, tree)
    named = find_names(raw, listed, tree.folders)
    maps = [named[1], *maps] if named is not None and named[1] is not None else maps
    findings = tree.findings
    pairs = _listed_pairs(tree, lists) if lists else _named_pairs(raw, tree)
    used = {mask_list.path for mask_list in lists} | ({named[0]} if named is not None else set())
    if named is not None and named[1] is None:
        findings.notes.append(
            f"{readable_path(named[0])}: labels are regions, which name no values"
        )
    unread = (path for path in listed if path not in used and not _is_label_map(path))
    findings.ignore(NOT_A_PICTURE, unread)

    splits = ordered_splits(split for _, _, split in pairs if split)
    masks = [_file(mask) for _, mask, _ in pairs]
    _refuse_ade20k(raw, listed)
    decision = (
        decide_masks(raw, masks, maps, options.classes)
        if masks
        else MaskDecision(field=_plain_field(), notes=[], choices={})
    )
    # One dict for all items of a split, which nobody changes.
    values = {split: {"split": number} for number, split in enumerate(splits)}
    findings.items += [
        picture_item(
            picture,
            values.get(split, {}),
            masks={"mask": _file(mask)},
        )
        for picture, mask, split in pairs
    ]
    findings.notes += decision.notes
    findings.choices |= decision.choices
    return findings.as_scan(
        name,
        raw,
        classes=decision.classes,
        splits=splits,
        fields=(decision.field, split_field(splits)) if splits else (decision.field,),
        mask_colors=decision.colors,
    )


def _refuse_ade20k(raw: Path, listed: Iterable[bytes]) -> None:
    """Refuse ADE20K as its authors publish it, whose masks no table of colours explains."""
    sign = next((path for path in listed if path.endswith(b"_atr.txt")), None)
    if sign is not None:
        raise SourceError(
            f"{readable_path(os.fsencode(raw))}: {readable_path(sign)} is of the full ADE20K; its "
            "masks hold a class as R / 10 * 256 + G, and are not read. Take its release for scene "
            "parsing (images/ and annotations/), or write masks of values."
        )


def _refuse_channels(raw: Path, tree: Tree) -> None:
    """Refuse nnU-Net's folders where each channel of a case is a file of its own."""
    folders = {
        path: [split_path(picture.path)[1] for picture in folder.pictures]
        for path, folder in tree.folders.items()
    }
    problem = channel_problem(folders)
    if problem:
        raise SourceError(f"{readable_path(os.fsencode(raw))}: {problem}.")


def _plain_field() -> Field:
    return Field(name="mask", kind="mask", dtype="uint8", shape=(None, None))


def _file(picture: Picture) -> RawFile:
    return RawFile(picture.path, picture.byte_count, picture.mtime_ns)


def _is_label_map(path: bytes) -> bool:
    return is_label_map_name(path.split(b"/")[-1])


def _jpeg_reason(mask: Picture) -> str | None:
    """Why a mask is refused for its name, or None when it is not."""
    if not mask.path.lower().endswith(_JPEG_ENDS):
        return None
    return (
        f"its mask {readable_path(mask.path)} is a JPEG, whose compression changes values; "
        "expected PNG. Write the masks anew from where they were made"
    )


# Pairs by name.


def _named_pairs(raw: Path, tree: Tree) -> list[_Pair]:
    """Pairs by the names of folders and files."""
    findings = tree.findings
    first = len(findings.rejects)
    groups = _groups(tree)
    pairs: list[_Pair] = []
    for group in groups:
        if not group.masks:
            _take_masks_beside(group)
    found = {group.place: _matched(group, findings) for group in groups if group.masks}
    if not any(found.values()):
        del findings.rejects[first:]  # Each picture is without a mask, as the error says.
        raise _nothing_paired(raw, groups, findings)
    for group in groups:
        if not group.masks:
            findings.ignore(WITHOUT_MASKS, (picture.path for picture in group.pictures))
    splits = _splits_of([group.place for group in groups if group.masks and group.pictures])
    for place, matched in found.items():
        for picture, mask in matched:
            reason = _jpeg_reason(mask)
            if reason is None:
                pairs.append((picture, mask, splits.get(place, "")))
            else:
                findings.refuse(picture.path, reason)
    pairs.sort(key=lambda pair: pair[0].path)
    findings.rejects[first:] = sorted(findings.rejects[first:], key=attrgetter("key"))
    example = next(matched[0] for matched in found.values() if matched)
    findings.notes.append(
        f"paired by name, such as {readable_path(example[0].path)} with "
        f"{readable_path(example[1].path)}"
    )
    findings.note_ignored(WITHOUT_MASKS, BESIDE_PICTURES)
    return pairs


def _groups(tree: Tree) -> list[_Group]:
    """Pictures and masks by what the paths of their folders have in common, sorted by it."""
    roles = {path: role_of(path) for path, folder in tree.folders.items() if folder.pictures}
    with_pictures = {role.place for role in roles.values() if not role.holds_masks}
    groups: dict[bytes, _Group] = {}
    for path, role in roles.items():
        if role.holds_masks and not role.is_certain and role.place not in with_pictures:
            # There are no pictures that these could be the masks of.
            role = roles[path] = FolderRole(path, False, False)
        group = groups.setdefault(role.place, _Group(role.place))
        (group.masks if role.holds_masks else group.pictures).extend(tree.folders[path].pictures)
        if not role.holds_masks:
            group.folders.append(path)
    for group in groups.values():
        _leave_out_strays(group, roles, tree)
    return [groups[place] for place in sorted(groups)]


def _leave_out_strays(group: _Group, roles: dict[bytes, FolderRole], tree: Tree) -> None:
    """Of `a.jpg` beside `images/a.jpg`, only the one in the folder that is called so counts."""
    certain = [path for path in group.folders if roles[path].is_certain]
    if not group.masks or not certain or len(certain) == len(group.folders):
        return
    for path in group.folders:
        if path not in certain:
            beside = (picture.path for picture in tree.folders[path].pictures)
            tree.findings.ignore(BESIDE_PICTURES, beside)
    group.folders = certain
    group.pictures = [picture for path in certain for picture in tree.folders[path].pictures]


def _take_masks_beside(group: _Group) -> None:
    """Find the masks among pictures of one folder, by the endings of their names."""
    of_folder = {(split_path(p.path)[0], stem) for p in group.pictures for stem in _stems(p)}
    masks = {
        picture.path
        for picture in group.pictures
        if any(
            (split_path(picture.path)[0], stem) in of_folder
            for stem in stems_of_mask(_stem(picture))
        )
    }
    if not masks:
        masks = _lossless_twins(group.pictures)
    group.masks = [picture for picture in group.pictures if picture.path in masks]
    group.pictures = [picture for picture in group.pictures if picture.path not in masks]


def _lossless_twins(pictures: Iterable[Picture]) -> set[bytes]:
    """Paths of PNG files that lie beside one JPEG of the same name, which is a photograph."""
    by_stem: dict[bytes, list[bytes]] = {}
    for picture in pictures:
        by_stem.setdefault(stem_of(picture.path), []).append(picture.path)
    return {
        path
        for paths in by_stem.values()
        if len(paths) == 2 and any(p.lower().endswith(_JPEG_ENDS) for p in paths)
        for path in paths
        if path.lower().endswith(b".png")
    }


def _matched(group: _Group, findings: Findings) -> list[tuple[Picture, Picture]]:
    """Pictures and masks of the same name; all others become rejects."""
    exact: dict[bytes, list[Picture]] = {}
    loose: dict[bytes, list[Picture]] = {}
    for picture in group.pictures:
        # Some tools keep the picture's extension: the mask of `a.jpg` is `a.jpg.png`.
        for stem in (_stem(picture), composed(split_path(picture.path)[1])):
            exact.setdefault(stem, []).append(picture)
        case = case_of(picture.path)
        stems = stems_of_picture(_stem(picture)) if case is None else [composed(case)]
        for stem in dict.fromkeys(stems):
            loose.setdefault(stem, []).append(picture)
    masks_of: dict[bytes, list[Picture]] = {}
    contested: dict[bytes, Picture] = {}
    for mask in group.masks:
        own, stripped = _stem(mask), stems_of_mask(_stem(mask))
        candidates = (
            exact.get(own)
            or next((exact[stem] for stem in stripped if stem in exact), None)
            or next((loose[stem] for stem in (own, *stripped) if stem in loose), None)
            or []
        )
        if len(candidates) == 1:
            masks_of.setdefault(candidates[0].path, []).append(mask)
            continue
        if candidates:
            reason = several_reason(candidates)
            contested.update((picture.path, mask) for picture in candidates)
        else:
            where = few_text(group.folders, _SHOWN_MAX, lambda path: f"{readable_path(path)}/")
            reason = f"a mask without a picture of its name; looked in {where or 'no folder'}"
        findings.refuse_annotation(b"", reason, readable_path(mask.path))
    matched = []
    for picture in group.pictures:
        masks = masks_of.get(picture.path, [])
        if len(masks) == 1 and picture.path not in contested:
            matched.append((picture, masks[0]))
        else:
            findings.refuse(picture.path, _unmatched_reason(picture, masks, contested))
    return matched


def _unmatched_reason(
    picture: Picture, masks: Sequence[Picture], contested: dict[bytes, Picture]
) -> str:
    if picture.path in contested:
        mask = readable_path(contested[picture.path].path)
        return f"its mask {mask} fits other pictures too; expected one. Rename one of them"
    if masks:
        shown = few_text(masks, _SHOWN_MAX, lambda mask: readable_path(mask.path))
        return f"{len(masks)} masks fit: {shown}; expected one. Merge them, or rename the others"
    return "no mask of this name"


def _stem(picture: Picture) -> bytes:
    return composed(stem_of(split_path(picture.path)[1]))


def _stems(picture: Picture) -> list[bytes]:
    stem = _stem(picture)
    return [stem, *stems_of_picture(stem)]


def _splits_of(places: Sequence[bytes]) -> dict[bytes, str]:
    """The split of each place, where all places have one at the same depth; else empty."""
    parts = [place.split(b"/") if place else [] for place in places]
    for depth in range(min(map(len, parts), default=0)):
        names = [part[depth] for part in parts]
        if are_all_splits(names):
            return {place: readable_path(part) for place, part in zip(places, names, strict=True)}
    return {}


def _nothing_paired(raw: Path, groups: Sequence[_Group], findings: Findings) -> SourceError:
    pictures = [picture for group in groups for picture in group.pictures]
    masks = [mask for group in groups for mask in group.masks]
    examples = [
        f"{count_text(len(files), what)}, such as {readable_path(files[0].path)}"
        for files, what in ((pictures, "picture"), (masks, "mask"))
        if files
    ]
    return findings.nothing(
        raw,
        "no picture has a mask of the same name",
        f"found {' and '.join(examples) or 'no pictures'}. Expected images/a.jpg with masks/a.png "
        "(or labels, annotations, gt, ...), train/a.png with trainannot/a.png, a.jpg with "
        "a_mask.png, or train.txt with `picture mask` in each line. Where only some pictures have "
        "masks (MVTec), folders can be labels: give the one that holds a folder for each class, "
        "with --format imagefolder",
    )


# Pairs by lists.


def _listed_pairs(tree: Tree, lists: Sequence[MaskList]) -> list[_Pair]:
    """Pairs as lists name them, in their order."""
    findings = tree.findings
    pairs: list[_Pair] = []
    index = PictureIndex(tree)
    first_places: dict[bytes, str] = {}
    shortened = 0
    order = ordered_splits(mask_list.split for mask_list in lists)
    for mask_list in sorted(lists, key=lambda each: order.index(each.split)):
        for line in mask_list.lines:
            place = f"{readable_path(mask_list.path)}, line {line.number}"
            files: list[Picture] = []
            reason = line.problem
            for written in line.files:
                found, is_shortened = _listed_file(index, mask_list.path, written)
                if found is None:
                    what = "mask" if files else "picture"
                    reason = f"{what} {readable_path(written)} is not in the raw folder"
                    break
                shortened += is_shortened
                files.append(found)
            key = files[0].path if files else b""
            if not reason and key in first_places:
                reason = f"listed twice (first in {first_places[key]})"
            if not reason:
                reason = _jpeg_reason(files[1]) or ""
            if key:
                first_places.setdefault(key, place)
                index.take(files[0])
            if reason:
                findings.refuse(key, reason, place, mask_list.split)
                continue
            index.take(files[1])
            pairs.append((files[0], files[1], mask_list.split))
    findings.ignore(NOT_NAMED, (picture.path for picture in index.rest()))
    shown = ", ".join(readable_path(mask_list.path) for mask_list in lists)
    findings.notes.append(f"paired by lists: {shown}")
    findings.note_ignored(NOT_NAMED)
    if shortened:
        findings.notes.append(
            f"{count_text(shortened, 'path')} of lists found without the folders they begin with"
        )
    return pairs


def _listed_file(
    index: PictureIndex, list_path: bytes, written: bytes
) -> tuple[Picture | None, bool]:
    """The file that a list means, and whether its path had to be shortened.

    Lists begin paths with `/` although they mean the raw folder, or with folders of the machine
    that they were made on. The last folder and the name are kept at least.
    """
    folder = split_path(list_path)[0]
    path = written.lstrip(b"/")
    found = index.at(folder + b"/" + path) or index.at(path)
    if found is not None:
        return found, False
    parts = path.split(b"/")
    for start in range(1, len(parts) - 1):
        found = index.at(b"/".join(parts[start:]))
        if found is not None:
            return found, True
    return None, False
