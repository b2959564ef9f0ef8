"""Names of folders and files of masks, and of the pictures that they belong to.

images/train/a.jpg    masks/train/a.png      folders that are called so
imagesTr/a_0000.png   labelsTr/a.png         nnU-Net's folders of a split
train/a.jpg           trainannot/a.png       folders with an ending
a.jpg                 a_mask.png, gt_a.png   files with an ending or a beginning
"""

from __future__ import annotations

import re
from typing import NamedTuple

PICTURE_FOLDERS = frozenset(
    b"images image imgs img jpegimages jpegs jpg photos pictures input inputs rgb img_dir img1 "
    b"image_2 frames pics".split()
)
MASK_FOLDERS = frozenset(
    b"masks mask labels label annotations annotation annots annot ann ann_dir gt gts groundtruth "
    b"ground_truth segmentationclass segmentationclassaug segmentation segmentations seg segs "
    b"target targets trimaps semantic semantics instance instances".split()
)
"""In lower case, with `_` for `-` and blanks. A folder of one of these names holds masks, whatever
lies in it."""

_MASK_FOLDER = re.compile(
    rb"(.+?)(?:annot|[_-](?:masks?|annots?|annotations?|labels?|gts?|segs?|segmentations?))",
    re.IGNORECASE,
)
_MASK_FOLDER_START = re.compile(rb"(?:masks|labels|annotations)[_-](.+)", re.IGNORECASE)
_PICTURE_FOLDER = re.compile(rb"(.+?)[_-](?:images?|imgs?)", re.IGNORECASE)
_PICTURE_FOLDER_START = re.compile(rb"(?:images|imgs)[_-](.+)", re.IGNORECASE)

NNUNET_FOLDER = re.compile(rb"(?i:(images|labels))(Tr|Ts|Val)")
_NNUNET_SPLITS = {b"Tr": b"train", b"Ts": b"test", b"Val": b"val"}

# A number after it counts the masks of one picture.
_MASK_END = re.compile(
    rb"(.+?)[_-](?:(?:masks?|gt|labels?|seg|segmentation|annot|annotations?|trimap|labelids|"
    rb"labeltrainids)|(?-i:[PL]))(?:[_-]?\d{1,3})?",
    re.IGNORECASE,
)
_MASK_START = re.compile(rb"(?:gt|mask|seg|label)[_-](.+)", re.IGNORECASE)
_PICTURE_END = re.compile(rb"(.+?)[_-](?:sat|images?|img|rgb|input|original)", re.IGNORECASE)
_PICTURE_START = re.compile(rb"(?:image|img)[_-](.+)", re.IGNORECASE)


class FolderRole(NamedTuple):
    """What the name of a folder says that it holds.

    Attributes:
        place: Its path without what tells pictures from masks, which is the same for both:
            `train` for `train/images`, `masks/train` and `trainannot`.
        holds_masks: Whether masks rather than pictures.
        is_certain: Whether a whole name says so, rather than an ending that other folders may have.
    """

    place: bytes
    holds_masks: bool
    is_certain: bool


def role_of(path: bytes) -> FolderRole:
    """What a folder holds, by its path relative to the raw folder."""
    parts: list[bytes] = []
    holds_masks = is_certain = False
    for part in path.split(b"/") if path else ():
        lower = part.lower().replace(b"-", b"_").replace(b" ", b"_")
        of_split = NNUNET_FOLDER.fullmatch(part)
        if of_split is not None:
            parts.append(_NNUNET_SPLITS[of_split[2]])
            holds_masks = holds_masks or of_split[1].lower() == b"labels"
            is_certain = True
            continue
        if lower in MASK_FOLDERS:
            holds_masks = is_certain = True
            continue
        if lower in PICTURE_FOLDERS:
            is_certain = True
            continue
        rest = _first_match(part, _MASK_FOLDER, _MASK_FOLDER_START)
        if rest is not None:
            holds_masks = True
        else:
            rest = _first_match(part, _PICTURE_FOLDER, _PICTURE_FOLDER_START) or part
        if rest.lower() not in PICTURE_FOLDERS:
            parts.append(rest)
    return FolderRole(b"/".join(parts), holds_masks, is_certain)


def stems_of_mask(stem: bytes) -> list[bytes]:
    """Names that the picture of a mask may have, without extension, besides the mask's own."""
    return _stripped(stem, _MASK_END, _MASK_START)


def stems_of_picture(stem: bytes) -> list[bytes]:
    """Names of a picture without what says that it is one, besides its own."""
    return _stripped(stem, _PICTURE_END, _PICTURE_START)


def _stripped(stem: bytes, *patterns: re.Pattern[bytes]) -> list[bytes]:
    found = [match[1] for pattern in patterns if (match := pattern.fullmatch(stem))]
    # `a_gt_mask` is of `a`.
    return found + [rest for name in found for rest in _stripped(name, *patterns)]


def _first_match(part: bytes, *patterns: re.Pattern[bytes]) -> bytes | None:
    return next((match[1] for pattern in patterns if (match := pattern.fullmatch(part))), None)
