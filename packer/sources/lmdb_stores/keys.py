"""What the keys of a map say: which entry is an image, which its label, and which belong together.

No two tools write the same keys, but all of them name the role of an entry by a word and the sample
by the rest: `image-000000001` and `label-000000001`, `17` and `17_label`, `X_17` and `y_17`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from packer.sources.splits import are_all_splits

Role = Literal["image", "label", "text", "shape", "about"]
"""What an entry is: an image, its class, a text about it, the shape of its pixels, or something
about all of them."""

_WORDS: dict[str, Role] = {
    **dict.fromkeys(("shape", "shapes", "dims"), "shape"),
    **dict.fromkeys(("text", "texts", "txt", "caption", "captions", "transcription"), "text"),
    **dict.fromkeys(("label", "labels", "lbl", "target", "targets", "cls", "y"), "label"),
}
_IMAGE_WORDS = frozenset(
    (
        *("image", "images", "img", "imgs", "picture", "pictures", "pic", "photo"),
        *("data", "x", "jpg", "jpeg", "png", "webp"),
    )
)
_COUNTS = frozenset(
    b"__len__ len length num-samples num_samples nsamples n_samples num-images count".split()
)
CLASS_NAMES = frozenset(b"__classes__ classes class_names class-names".split())
"""Keys whose values name the classes, in the order of their labels."""

_ABOUT = (
    _COUNTS
    | CLASS_NAMES
    | frozenset(b"__keys__ keys __meta__ meta metadata class_to_idx idx_to_class version".split())
)
_PARTS = re.compile(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9]+")


class KeyParts(NamedTuple):
    """A key, understood.

    Attributes:
        role: What the entry is, by the words in the key.
        sample: What is left of the key without words of roles: the same for entries of one sample.
        has_image_word: Whether the key itself says that it is an image.
    """

    role: Role
    sample: tuple[str, ...]
    has_image_word: bool


def is_count(key: bytes) -> bool:
    """Whether the value of a key says how many samples there are."""
    return key.lower() in _COUNTS


def key_parts(key: bytes) -> KeyParts:
    """The role and the sample of a key."""
    if key.lower() in _ABOUT:
        return KeyParts("about", (), has_image_word=False)
    parts = [part for part in _PARTS.findall(key.decode("latin1")) if part[0].isalnum()]
    words = [part.lower() for part in parts]
    role: Role = "image"
    # A shape may be that of labels, and a label lie in a `.txt`: what comes first here decides.
    for wanted in ("shape", "label", "text"):
        if any(_WORDS.get(word) == wanted for word in words):
            role = _WORDS[next(word for word in words if _WORDS.get(word) == wanted)]
            break
    sample = tuple(
        part
        for part, word in zip(parts, words, strict=True)
        if word not in _WORDS and word not in _IMAGE_WORDS
    )
    has_image_word = any(word in _IMAGE_WORDS for word in words)
    return KeyParts(role, sample, has_image_word)


def in_order(keys: Iterable[bytes]) -> list[bytes]:
    """Keys in the order of the samples: by number where all are numbers, else as the map has them.

    A map sorts keys as bytes, where `10` comes before `9`.
    """
    found = list(keys)
    if all(key.isdigit() for key in found):
        found.sort(key=lambda key: (int(key), key))
        return found
    numbered = [_NUMBERED.fullmatch(key) for key in found]
    starts = {(match[1], match[3]) for match in numbered if match}
    if found and all(numbered) and len(starts) == 1:
        found.sort(key=lambda key: (int(_number(key)), key))
    return found


_NUMBERED = re.compile(rb"(.*?)([0-9]+)([^0-9]*)")


def _number(key: bytes) -> bytes:
    match = _NUMBERED.fullmatch(key)
    assert match is not None
    return match[2]


_WORDS_IN_KEYS = (
    re.compile(r"(?P<number>\d+)[_-]+(?P<word>[A-Za-z][A-Za-z _-]*|\d{1,4})"),
    re.compile(r"(?P<word>[A-Za-z][A-Za-z _-]*?|\d{1,4})[_-]+(?P<number>\d+)"),
)


def labels_in_keys(keys: Sequence[bytes]) -> list[str]:
    """The word of each key, where keys are a number and a word that is a class; else nothing.

    No number comes twice: parts of one sample have the same (`0001_left`, `0001_right`). Words do,
    twice on average, are at least two, and are no splits; where they are numbers, these are all
    from 0 on.
    """
    names = [key.decode("latin1").rsplit(".", 1)[0] for key in keys]
    for form in _WORDS_IN_KEYS:
        matches = [match for name in names if (match := form.fullmatch(name))]
        if len(matches) < len(names):
            continue
        words = [match["word"] for match in matches]
        different = set(words)
        are_unique = len({int(match["number"]) for match in matches}) == len(matches)
        if not are_unique or not 2 <= len(different) <= len(words) // 2:
            continue
        digits = {word for word in different if word.isdigit()}
        if digits and different != {str(number) for number in range(len(different))}:
            continue
        if not are_all_splits(word.encode() for word in different):
            return words
    return []


def shown_key(key: bytes) -> bytes:
    """A key as the key of a sample: as it is where it is text, else in hexadecimal digits."""
    try:
        is_text = key.decode().isprintable()
    except UnicodeDecodeError:
        is_text = False
    return key if is_text and key else b"0x" + key.hex().encode()
