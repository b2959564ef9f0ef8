"""Names of folders that name no class: they say that pictures lie there, or which part of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from readers.store.splits import canonical_split

_NO_CLASSES = frozenset(
    b"images image imgs img jpegimages jpegs jpeg jpgs jpg pngs png pictures picture pics "
    b"frames frame rgb data raw input inputs samples".split()
)
"""In lower case. Photos may be a class, beside drawings; so may some of these: see `classless`."""

_NUMBERED = re.compile(
    rb"(images?|imgs?|frames?|pictures?|photos?|jpegs?|seq|sequence|clip|video|part|batch|chunk)"
    rb"[-_ ]?\d+"
)
"""A numbered part of a whole: `seq-01`, `images_001`, MOT's `img1`."""


def names_no_class(name: bytes) -> bool:
    """Whether a folder of this name, whatever its case, holds pictures of no class of its own."""
    lower = name.lower()
    return lower in _NO_CLASSES or _NUMBERED.fullmatch(lower) is not None


def classless(groups: Iterable[Iterable[bytes]]) -> frozenset[bytes]:
    """Of the folder names in each split, those that name no class.

    `images` beside `sketches` is a class as any other, also in a split where it stands alone; and
    `images` in `val` is none, where `train` has class folders and no `images` among them.

    Args:
        groups: Names of the folders that lie side by side, one group for each split.
    """
    suspects: set[bytes] = set()
    classes: set[bytes] = set()
    for group in map(frozenset, groups):
        found = {name for name in group if names_no_class(name)}
        suspects |= found
        if found != group:
            classes |= found
    return frozenset(suspects - classes)


_FRAMES = b"img1"


def are_sequences(folders: Iterable[Collection[tuple[bytes, ...]]]) -> bool:
    """Whether folders side by side are sequences of frames as MOT has them, and so no classes.

    `MOT17-02/img1/000001.jpg`: all pictures lie in the one folder of this name. Other names say
    less: the classes of Tiny ImageNet hold nothing but `images` either.

    Args:
        folders: For each folder, which of the folders below it hold pictures.
    """
    found = [set(below) for below in folders]
    return bool(found) and all(below == {(_FRAMES,)} for below in found)


_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")


def split_and_words(name: bytes) -> tuple[str, tuple[str, ...]]:
    """The split that a folder's name holds, and its other words in lower case.

    `trainA` is ("train", ("a",)), and `DIV2K_valid_HR` is ("val", ("div", "2", "k", "hr")). A name
    without a split, or with two, has "" for it.
    """
    text = name.decode("utf-8", "replace")
    whole = canonical_split(text)
    if whole is not None:
        return whole, ()
    words = [word.lower() for word in _WORD.findall(text)]
    splits = [word for word in words if canonical_split(word) is not None]
    if len(splits) != 1:
        return "", tuple(words)
    return canonical_split(splits[0]) or "", tuple(word for word in words if word != splits[0])
