"""Folders side by side that hold the parts of each sample, and so are no classes.

A picture and its mask, two images of one place, the same picture at two sizes: their files have
the same names, and a class for each folder would be nonsense. But classes have equal names as well,
wherever files are counted: `cat/0001.jpg` and `dog/0001.jpg`. Therefore:

    names that are not counted     the same in two folders: parts of a sample
    counted names                  only if the counts are equal too, and the folders are called
                                   like parts (left and right, images and depth), or one holds masks

The two errors are not equal. Classes that are taken for parts stop a build, and the message says
that `--format imagefolder` goes on; parts that are taken for classes make a store of wrong labels.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import pairwise
from pathlib import Path

from packer.files.masks import MaskPixels, color_codes, decode_mask, distinct
from packer.recipe import Recipe
from packer.sources.class_folders import split_and_words
from packer.sources.pairing import composed, stem_of
from packer.sources.part_names import are_called_parts, are_letters
from packer.sources.splits import are_all_splits
from packer.sources.walk import is_picture_name
from packer.wording import readable_path
from readers.store.errors import ImageError
from readers.store.wording import few_text

Reader = Callable[[bytes], bytes]
"""Gives the bytes of a file by its path. Raises OSError or ImageError where there are none."""

SIBLINGS_MAX = 64
"""Of more folders side by side none are parts: nobody has as many images of each sample."""

_PARTS_MAX = 8
"""More parts than this are believed only if there are more samples than parts: pictures of forty
people, each called after the same ten poses, are forty classes."""

_NAMES_MAX = 5000
"""Names of a folder that are compared: the shortest, which counted names begin with."""

_COUNTED_SHARE_MIN = 0.9
_NAMED_SHARE_MIN = 0.5
_SPARSE_SHARE_MIN = 0.8
_PART_SHARE_MIN = 0.75


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Folders that hold the parts of each sample.

    Attributes:
        folders: Their paths, sorted.
        shared: How many names are in all of them.
        total: How many names were compared: those of the folder with the most.
        masks: Those whose files are masks, as far as that was looked at.
    """

    folders: tuple[bytes, ...]
    shared: int
    total: int
    masks: tuple[bytes, ...] = ()

    @property
    def text(self) -> str:
        """What was found, in words."""
        text = f"{self.shared:,} of {self.total:,} names are in {_and(self.folders)}"
        if self.masks:
            verb = "holds" if len(self.masks) == 1 else "hold"
            text += f"; {_and(self.masks)} {verb} few values, as masks do"
        return text


def find_parts(root: bytes | Reader, folders: Mapping[bytes, Sequence[bytes]]) -> Parts | None:
    """The first folders side by side that hold parts of samples, the deepest of all, or None.

    Args:
        root: Folder that the paths are relative to, or what reads the files of an archive. Of
            counted names, some files are looked into.
        folders: Names of the pictures in each folder, by the folder's path.
    """
    for siblings in _side_by_side(folders):
        parts = _parts_among(root, siblings)
        if parts:
            covered = sum(len(each.folders) for each in parts)
            # A picture that was put into two of many class folders has two labels.
            if 2 * covered >= len(siblings):
                return parts[0]
    return None


def split_names(folders: Mapping[bytes, Sequence[bytes]]) -> tuple[bytes, ...]:
    """Folders side by side of which each has a split and something else in its name, as `trainA`.

    The something must come again, in another split or as the other side: `train_station` and
    `test_tube` are classes.
    """
    for siblings in _side_by_side(folders):
        names = {path: split_and_words(path.split(b"/")[-1]) for path in siblings}
        if all(split and words for split, words in names.values()):
            rests = [words for _, words in names.values()]
            splits = {split for split, _ in names.values()}
            comes_again = len(set(rests)) < len(rests)
            if (len(splits) > 1 and comes_again) or are_letters(rests):
                return tuple(sorted(names))
    return ()


def _side_by_side(
    folders: Mapping[bytes, Sequence[bytes]],
) -> Iterator[dict[bytes, dict[bytes, Sequence[bytes]]]]:
    """Folders with one parent that hold pictures, with the names below each by relative folder."""
    children: dict[bytes, dict[bytes, dict[bytes, Sequence[bytes]]]] = {}
    for path, names in folders.items():
        if not path or not names:
            continue
        parts = path.split(b"/")
        for depth in range(len(parts)):
            parent = children.setdefault(b"/".join(parts[:depth]), {})
            child = parent.setdefault(b"/".join(parts[: depth + 1]), {})
            child[b"/".join(parts[depth + 1 :])] = names
    # The deepest first: what holds for them holds for the folders above as well.
    for parent_path in sorted(children, key=lambda path: (-path.count(b"/") - bool(path), path)):
        siblings = children[parent_path]
        if 2 <= len(siblings) <= SIBLINGS_MAX and not are_all_splits(
            path.split(b"/")[-1] for path in siblings
        ):
            yield siblings


# What the names in a folder are.


@dataclass(frozen=True)
class _Names:
    """The names in one folder and below.

    Attributes:
        count: How many there are; of many, the others are about the first.
        stems: Without extensions.
        words: Of these, the ones that are not counted.
        bare: Words without what all names begin or end with.
        numbers: What counts the others, where these are half of all or more.
        is_numbered: Whether most are numbers of one form, with gaps if they are not counted.
    """

    count: int
    stems: frozenset[bytes]
    words: frozenset[bytes]
    bare: frozenset[bytes]
    numbers: frozenset[tuple[bytes, tuple[int, ...]]]
    is_numbered: bool


def _names(below: Mapping[bytes, Sequence[bytes]]) -> _Names:
    """What the names are; folders below are part of them where there are several."""
    pairs = ((len(name), name, folder) for folder, names in below.items() for name in names)
    stems: set[tuple[bytes, bytes]] = set()
    for _, name, folder in nsmallest(_NAMES_MAX, pairs):
        stem = stem_of(name)
        if is_picture_name(stem):  # The mask of `a.jpg` may be `a.jpg.png`.
            stem = stem_of(stem)
        stems.add((composed(folder) if len(below) > 1 else b"", composed(stem)))
    bare = _without_common({stem for _, stem in stems})
    numbers, counted, numbered_count = _numbers(stems)
    return _Names(
        sum(map(len, below.values())),
        frozenset(b"/".join(pair) for pair in stems),
        frozenset(b"/".join(pair) for pair in stems - counted),
        frozenset(folder + b"/" + bare[stem] for folder, stem in stems - counted),
        numbers if 2 * len(counted) >= len(stems) else frozenset(),
        2 * numbered_count >= len(stems),
    )


_COMMON_END = re.compile(rb"[-_. ].*|x\d", re.DOTALL)
_KNOWN_START = re.compile(
    rb"(?:gts?|masks?|labels?|seg|images?|img|left|right|lr|hr|input|target|depth|rgb|real|fake)"
    rb"[-_. ]",
    re.IGNORECASE,
)


def _without_common(stems: Iterable[bytes]) -> dict[bytes, bytes]:
    """Each stem without the ending that all have (`_depth`, `x2`), or a beginning such as `gt_`."""
    stems = list(stems)
    if len(stems) < 2:
        return {stem: stem for stem in stems}
    end = _common_start([stem[::-1] for stem in stems])[::-1]
    at = _COMMON_END.search(end)
    ending = len(at[0]) if at is not None else 0
    start = _KNOWN_START.match(_common_start(stems))
    beginning = start.end() if start is not None else 0
    if any(beginning + ending >= len(stem) for stem in stems):
        return {stem: stem for stem in stems}
    return {stem: stem[beginning : len(stem) - ending] for stem in stems}


def _common_start(texts: Sequence[bytes]) -> bytes:
    """What all begin with: the first and the last in order differ the soonest."""
    first, last = min(texts), max(texts)
    at = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:at]


_DIGITS = re.compile(rb"\d+")
_SMALL = 10
_RUN_MIN = 3
_FORMS_MAX = 2


def _numbers(
    stems: Collection[tuple[bytes, bytes]],
) -> tuple[frozenset[tuple[bytes, tuple[int, ...]]], set[tuple[bytes, bytes]], int]:
    """The numbers of counted names, these names, and how many names are numbers of one form.

    Names of one form (`img_#`) are counted if their numbers leave few gaps, as those of files that
    were written one after the other. Numbers with gaps were chosen from a larger set, and two
    folders do not choose the same ones by chance. A single letter is a number as well.
    """
    forms: dict[tuple[bytes, bytes], dict[tuple[int, ...], list[tuple[bytes, bytes]]]] = {}
    for folder, stem in stems:
        is_letter = len(stem) == 1 and stem.isalpha()
        text = str(ord(stem.lower()) - ord("a")).encode() if is_letter else stem
        # Longer ones are no numbers, and take long to read.
        values = tuple(int(digits[-18:]) for digits in _DIGITS.findall(text))
        of_form = forms.setdefault((folder, _DIGITS.sub(b"#", text)), {})
        of_form.setdefault(values, []).append((folder, stem))
    forms_of = Counter(folder for folder, _ in forms)
    numbers: set[tuple[bytes, tuple[int, ...]]] = set()
    counted: set[tuple[bytes, bytes]] = set()
    numbered = 0
    for (folder, form), found in forms.items():
        if b"#" not in form or (len(found) < _RUN_MIN and forms_of[folder] > _FORMS_MAX):
            continue
        if len(found) > 1:
            numbered += len(found)
        varying = _counting(found, is_alone=len(stems) == 1)
        if varying is not None:
            counted.update(each for same in found.values() for each in same)
            place = folder + b"/" + (form if forms_of[folder] > 1 else b"")
            numbers.update((place, tuple(values[n] for n in varying)) for values in found)
    return frozenset(numbers), counted, numbered


def _counting(found: Collection[tuple[int, ...]], *, is_alone: bool) -> list[int] | None:
    """Which of the numbers in names of one form count them; None if they do not count."""
    columns = [sorted(set(column)) for column in zip(*found, strict=True)]
    if len(found) == 1:
        is_first = all(column[0] <= 1 for column in columns)
        return list(range(len(columns))) if is_alone or is_first else None
    varying = [n for n, column in enumerate(columns) if len(column) > 1]
    room = 1
    for n in varying:
        column = columns[n]
        is_even = len(column) > 2 and len({b - a for a, b in pairwise(column)}) == 1
        is_small = column[-1] <= _SMALL
        room *= len(column) if is_even or is_small else column[-1] - column[0] + 1
    return varying if 2 * len(found) >= room else None


# Which folders belong together.


@dataclass
class _Cluster:
    """Folders of the same names.

    Attributes:
        folders: Their paths.
        names: Of the first.
        shared: The fewest names that one has in common with the first.
        total: The most names that one has.
        are_counted: Whether their names are counted.
    """

    folders: list[bytes]
    names: _Names
    shared: int
    total: int
    are_counted: bool = False


def _parts_among(
    root: bytes | Reader, siblings: Mapping[bytes, Mapping[bytes, Sequence[bytes]]]
) -> list[Parts]:
    clusters: dict[str, list[_Cluster]] = {}
    for path in sorted(siblings):
        names = _names(siblings[path])
        # Those of one split belong together: trainA and trainB, and neither with testA.
        split = split_and_words(path.split(b"/")[-1])[0]
        for cluster in clusters.setdefault(split, []):
            found = _shared(cluster.names, names)
            if found is not None:
                shared, are_counted = found
                cluster.folders.append(path)
                cluster.are_counted |= are_counted
                cluster.shared = min(cluster.shared, shared)
                cluster.total = max(cluster.total, len(names.stems))
                break
        else:
            count = len(names.stems)
            clusters[split].append(_Cluster([path], names, shared=count, total=count))
    parts = []
    for cluster in (each for group in clusters.values() for each in group):
        if len(cluster.folders) > 1:
            found_parts = _parts_of(root, cluster, siblings)
            if found_parts is not None:
                parts.append(found_parts)
    return sorted(parts, key=lambda each: each.folders)


def _shared(one: _Names, other: _Names) -> tuple[int, bool] | None:
    """How many names two folders share, and whether they are counted; None if too few."""
    larger = max(len(one.stems), len(other.stems))
    if one.numbers or other.numbers or larger == 1:  # One name alone says as little.
        fewer, more = sorted((one.count, other.count))
        shared = max(len(one.stems & other.stems), len(one.numbers & other.numbers))
        is_same = shared >= _COUNTED_SHARE_MIN * larger and fewer >= _COUNTED_SHARE_MIN * more
        return (shared, True) if is_same else None
    # Some may be counted, which the two have in common by chance.
    texts = max(len(one.words & other.words), len(one.bare & other.bare))
    smaller, larger = sorted((len(one.words), len(other.words)))
    if one.is_numbered and other.is_numbered:
        # Of every second number, half are in any other such folder.
        is_enough = texts > 2 and texts >= _SPARSE_SHARE_MIN * larger
    else:
        is_enough = (texts > 1 and texts >= _NAMED_SHARE_MIN * larger) or (
            texts > 2 and texts >= _PART_SHARE_MIN * smaller
        )
    return (texts, False) if is_enough else None


def _parts_of(
    root: bytes | Reader,
    cluster: _Cluster,
    siblings: Mapping[bytes, Mapping[bytes, Sequence[bytes]]],
) -> Parts | None:
    """The parts that the folders of a cluster are, or None if they may be classes."""
    folders = tuple(cluster.folders)
    parts = Parts(folders=folders, shared=cluster.shared, total=cluster.total)
    if not cluster.are_counted:
        is_believed = len(folders) <= _PARTS_MAX or cluster.shared > len(folders)
        return parts if is_believed else None
    if len(folders) > _PARTS_MAX:
        return None
    if are_called_parts([path.split(b"/")[-1] for path in folders], cluster.shared):
        return parts
    kinds = {path: _holds_masks(root, path, siblings[path]) for path in folders}
    masks = tuple(path for path, is_mask in kinds.items() if is_mask)
    if masks and any(is_mask is False for is_mask in kinds.values()):
        return Parts(folders=folders, shared=cluster.shared, total=cluster.total, masks=masks)
    return None


# What files hold.

_SAMPLED = 3
_MASK_VALUES_MAX = 32
_MASK_COLORS_MAX = 256
_LOSSY = (b".jpg", b".jpeg", b".jpe", b".jfif", b".webp", b".heic", b".heif", b".avif")


def _holds_masks(
    root: bytes | Reader, path: bytes, below: Mapping[bytes, Sequence[bytes]]
) -> bool | None:
    """Whether files of a folder are masks: one channel or a palette, and few values.

    None where none can be read. JPEG is for photographs, and is not looked into.
    """
    files = [b"/".join(filter(None, (path, f, name))) for f in sorted(below) for name in below[f]]
    seen: bool | None = None
    for pixels in _looked_into(root, files):
        if (
            isinstance(pixels, bool)
            or pixels.ids is None
            or len(distinct(pixels.ids)[0]) > _MASK_VALUES_MAX
        ):
            return False
        seen = True
    return seen


def hold_photographs(root: bytes, files: Sequence[bytes]) -> bool:
    """Whether some of the files are photographs, which are no masks of values or colours."""
    return any(
        isinstance(pixels, bool)
        or (pixels.ids is None and len(distinct(color_codes(pixels))[0]) > _MASK_COLORS_MAX)
        for pixels in _looked_into(root, files)
    )


def _looked_into(root: bytes | Reader, files: Sequence[bytes]) -> Iterator[MaskPixels | bool]:
    """Pixels of a few files, from all parts of the list; True for one that is lossy by its name."""
    for n in range(min(_SAMPLED, len(files))):
        file = files[n * len(files) // min(_SAMPLED, len(files))]
        if file.lower().endswith(_LOSSY):
            yield True
            continue
        try:
            yield decode_mask(_bytes_of(root, file), Recipe.pixels_max)
        except (OSError, ImageError):
            continue


def _bytes_of(root: bytes | Reader, path: bytes) -> bytes:
    if isinstance(root, bytes):
        return Path(os.fsdecode(os.path.join(root, path))).read_bytes()
    return root(path)


def _and(paths: Sequence[bytes]) -> str:
    if len(paths) > _PARTS_MAX:
        return few_text(paths, _PARTS_MAX, readable_path)
    shown = [readable_path(path) for path in paths]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
