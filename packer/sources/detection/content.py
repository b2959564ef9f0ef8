"""Whether the content bears out what names promise; looked at for the best layout alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packer.sources.detection.folders import masks_among, picture_names, sample_parts
from packer.sources.detection.found import UNREAD, Evidence
from packer.sources.detection.look import Listing, Look, deeper, evenly
from packer.sources.detection.text_files import mask_lists
from packer.sources.layouts import LAYOUTS
from packer.sources.masks.names import role_of, stems_of_mask
from packer.sources.masks.nnunet import case_of, channel_problem
from packer.sources.pairing import PictureIndex, composed, stem_of
from packer.sources.pictures import Pictures
from packer.sources.siblings import hold_photographs
from packer.sources.sidecars import pair_files
from packer.sources.walk import Folder, Tree, walk
from packer.wording import count_text, readable_path


def checked(found: Evidence, look: Look) -> Evidence:
    """The evidence with what its content says: how much of it fits, or a problem."""
    if found.problem or found.format in UNREAD or not LAYOUTS[found.format].is_checked:
        return found
    return _CHECKS[found.format](found, look)


# --- annotation files of one picture each ---------------------------------------------------------


def _check_voc(found: Evidence, look: Look) -> Evidence:
    folders = {name.lower() for listing in look.listings for name in listing.folders}
    if b"segmentationclass" in folders:
        return found  # Masks alone are enough.
    return _check_annotation_files(found, look, (b".xml",))


def _check_labelme(found: Evidence, look: Look) -> Evidence:
    return _check_annotation_files(found, look, (b".json", b".xml"))


def _check_annotation_files(found: Evidence, look: Look, extensions: tuple[bytes, ...]) -> Evidence:
    """At least one annotation file must have its picture."""
    files = [
        listing.join(name)
        for listing in look.listings
        for name in evenly([n for n in listing.files if n.lower().endswith(extensions)])
    ]
    tree = _small_tree(look, files)
    pairs = pair_files(tree, PictureIndex(tree), files)
    if not pairs.folders:
        # They may lie deeper than was looked; that is told before anybody is sent away.
        tree = walk(Path(os.fsdecode(look.root)), extensions)
        files = [path for folder in tree.folders.values() for path in folder.annotation_files]
        pairs = pair_files(tree, PictureIndex(tree), files)
    if pairs.folders:
        return found
    if not files:
        return replace(found, problem="there is no annotation file in it. Check the path")
    first, looked = next(iter(pairs.lost.items()))
    which = "none" if len(files) > 1 else "not one"
    problem = (
        f"{which} of {count_text(len(files), 'annotation file')}, such as {readable_path(first)}, "
        f"has a picture of the same name; looked in {looked}. Put the pictures there"
    )
    return replace(found, problem=problem)


def _small_tree(look: Look, files: Iterable[bytes]) -> Tree:
    """The folders that were looked at, with the pictures that may belong to some files."""
    stems = {composed(stem_of(path.split(b"/")[-1])) for path in files}
    tree = Tree()
    for listing in look.listings:
        kept = [
            name
            for name in listing.pictures
            if composed(stem_of(name)) in stems or composed(name) in stems
        ]
        # One at least, so that the folder counts as one of pictures.
        kept = kept or listing.pictures[:1]
        first = len(tree.table)
        nothing = [0] * len(kept)
        tree.table.add(kept, nothing, nothing)
        pictures = Pictures(tree.table, listing.path, first, len(tree.table))
        tree.folders[listing.path] = Folder(pictures)
    return tree


# --- masks ----------------------------------------------------------------------------------------


@dataclass
class _Group:
    """Names of the pictures of one place, and the names that have a mask; nnU-Net's cases."""

    pictures: list[bytes] = field(default_factory=list)
    masked: set[bytes] = field(default_factory=set)
    cases: dict[bytes, bytes] = field(default_factory=dict)


def _check_masks(found: Evidence, look: Look) -> Evidence:
    """Pictures and masks must have names in common; the share is said."""
    if mask_lists(look):
        return found
    listings: Sequence[Listing] = look.listings
    matched, sampled = _share(listings)
    if not sampled:
        listings = [*look.listings, *deeper(look)]
        matched, sampled = _share(listings)
    if not sampled:
        return found  # Too deep for a look. The source has the last word.
    seen = f"{found.seen}; {matched} of {sampled} sampled pictures have a mask of their name"
    if matched:
        targets = [x for x in listings if x.path.split(b"/")[-1].lower() in _TARGET_FOLDERS]
        if hold_photographs(look.root, [x.join(name) for x in targets for name in x.pictures]):
            return next(sample_parts(look), found)
        problem = channel_problem({x.path: x.pictures for x in listings}) or _several(listings)
        return replace(found, seen=seen, problem=problem)
    problem = "every picture needs one. To take folders for labels give --format imagefolder"
    return replace(found, seen=seen, problem=problem)


def _share(listings: Sequence[Listing]) -> tuple[int, int]:
    """How many of the sampled pictures have a mask; of places without masks none are sampled."""
    groups: dict[bytes, _Group] = {}
    for listing in listings:
        role = role_of(listing.path)
        group = groups.setdefault(role.place, _Group())
        if role.holds_masks:
            group.masked.update(*map(_names_of_mask, listing.pictures))
        else:
            group.pictures += listing.pictures
            for name in listing.pictures:
                case = case_of(listing.join(name))
                if case is not None:
                    group.cases[name] = composed(case)
    matched = sampled = 0
    for group in groups.values():
        if not group.masked:
            _take_masks_beside(group)
        if group.masked and group.pictures:
            names = evenly(group.pictures)
            sampled += len(names)
            matched += sum(
                not group.masked.isdisjoint([*_names_of(name), group.cases.get(name, name)])
                for name in names
            )
    return matched, sampled


_TARGET_FOLDERS = frozenset(b"target targets gt gts ground_truth groundtruth".split())
"""Folders that hold masks, or the picture that a model is to make of another: a sharp one, say."""


def _several(listings: Sequence[Listing]) -> str:
    """Why the masks of a place cannot be told, if folders hold one each; else empty."""
    first: dict[tuple[bytes, bytes], bytes] = {}
    for listing in listings:
        role = role_of(listing.path)
        if not role.holds_masks:
            continue
        for name in evenly(listing.pictures):
            other = first.setdefault((role.place, composed(stem_of(name))), listing.path)
            if other != listing.path:
                return (
                    f"{readable_path(other)} and {readable_path(listing.path)} both have a mask of "
                    "a picture, and a sample has one. Move one of the folders away"
                )
    return ""


def _take_masks_beside(group: _Group) -> None:
    """Find the masks among the pictures themselves, by their endings."""
    masks = set(masks_among(group.pictures, group.pictures))
    group.masked.update(*map(_names_of_mask, masks))
    group.pictures = [name for name in group.pictures if name not in masks]


def _names_of_mask(name: bytes) -> list[bytes]:
    stem = composed(stem_of(name))
    return [stem, *stems_of_mask(stem)]


def _names_of(picture: bytes) -> list[bytes]:
    return [*picture_names(picture), composed(picture)]


_CHECKS: dict[str, Callable[[Evidence, Look], Evidence]] = {
    "voc": _check_voc,
    "labelme": _check_labelme,
    "mask-pairs": _check_masks,
}
