"""Names of folders that hold the parts of each sample: left and right, images and depth, A and B.

They count where the names of the files do not: `left/0001.png` and `right/0001.png` are two images
of one moment, `cat/0001.png` and `dog/0001.png` are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from packer.sources.class_folders import names_no_class, split_and_words
from packer.sources.masks.names import MASK_FOLDERS

_FAMILIES: tuple[frozenset[str], ...] = tuple(
    frozenset(words.split())
    for words in (
        "a b ab",
        "low high normal",
        "lr hr sr lq hq x gt",
        "lowres highres",
        "left right",
        "input inputs output outputs target targets gt truth",
        "source target src tgt dst",
        "photo photos face faces sketch sketches edge edges",
        "noisy clean noise denoised",
        "blur blurry blurred sharp gt",
        "rain rainy norain gt",
        "hazy haze clear gt",
        "before after",
        "pre post",
        "rgb depth disparity disp normal normals thermal ir nir lwir infrared visible vis color"
        " colour gray grey edges flow",
        "optical sar",
        "original edited resized augmented",
        "raw processed rendered",
    )
)
"""Words for the parts of a sample that belong together. Those that are as likely to be classes
(real and fake, good and bad) are not among them."""

_PART_WORDS = frozenset().union(*_FAMILIES)
_OF_PICTURES = frozenset(name.decode() for name in MASK_FOLDERS) | frozenset(
    ["out", "truth", "depth", "disparity", "disp", "normals", "thermal", "flow", "edges"]
)
"""Words for what belongs to a picture, whatever that is called."""
_NUMBERED_PARTS = frozenset(
    word
    for words in (
        "image images img imgs im pic picture frame frames",
        "band channel view",
        "cam camera time t",
    )
    for word in words.split()
)
_LETTERS_LEAST = 2


def are_called_parts(names: Sequence[bytes], shared: int) -> bool:
    """Whether folders are called like parts of a sample: left and right, images and depth, A and B.

    Args:
        names: The folders' names.
        shared: How many names of files they share: one alone in `a` and `b` says nothing.
    """
    told = [split_and_words(name) for name in names]
    words = [frozenset(each) for _, each in told]
    common = frozenset.intersection(*words)
    rests = [each - common for each in words]
    if common & _NUMBERED_PARTS and all(rest and _are_numbers(rest) for rest in rests):
        return True  # image_2 and image_3, t1 and t2.
    plain = [
        names_no_class(name) or names_no_class("_".join(each).encode())  # `train_images`
        for name, (_, each) in zip(names, told, strict=True)
    ]
    if any(plain):
        # One says that pictures lie in it; what else lies beside them is about these pictures,
        # unless that has no class either, as `seq-01` and `seq-02`.
        return not all(plain) or bool(frozenset().union(*rests) & _PART_WORDS)
    known = [rest & (_PART_WORDS | _OF_PICTURES) for rest in rests]
    if not all(known):
        # train_A, train_B and train_C.
        return all(split for split, _ in told) and are_letters(tuple(rest) for rest in rests)
    found = frozenset().union(*known)
    # One file in `a` and one in `b` say nothing, and types and grades have letters as well.
    if found == {"a", "b"} and (shared < _LETTERS_LEAST or common - _NUMBERED_PARTS):
        return False
    return bool(found & _OF_PICTURES) or any(len(found & family) > 1 for family in _FAMILIES)


def are_letters(words: Iterable[tuple[str, ...]]) -> bool:
    """Whether names without their split are the first letters: A and B, perhaps C and D."""
    found = sorted(set(words))
    return 2 <= len(found) <= 4 and found == [(letter,) for letter in "abcd"[: len(found)]]


def _are_numbers(words: Iterable[str]) -> bool:
    return all(word.isdecimal() for word in words)
