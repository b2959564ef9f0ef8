"""Whether the places of a file hold names of pictures, and whether more is said of them there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from packer.items.annotations import unpack_annotations
from packer.items.raw_item import RawItem, Scan
from packer.sources.detection.mentions import Mentions, Place
from packer.sources.lists.columns import columns_of
from packer.sources.pairing import composed, split_path, stem_of
from packer.sources.walk import is_picture_name
from readers.store.splits import canonical_split


@dataclass
class PictureNames:
    """Which of some words are names of pictures.

    Attributes:
        count: How many pictures there are.
        named: File names with the first item that has each, in lower case.
        stems: The same without extension, with how many pictures share it.
    """

    count: int = 0
    named: dict[bytes, RawItem | None] = field(default_factory=dict)
    stems: dict[bytes, tuple[int, RawItem | None]] = field(default_factory=dict)

    def item(self, word: bytes) -> tuple[bool, RawItem | None]:
        """Whether a word names a picture, and its item where that is known."""
        if word in self.named:
            return True, self.named[word]
        for stem in (word, stem_of(word) if is_picture_name(word) else plain_number(word)):
            if stem in self.stems:
                return True, self.stems[stem][1]
        return False, None


def plain_number(word: bytes) -> bytes:
    """A number without the zeros before it: frame 1 is 000001.jpg. Other words as they are."""
    return word.lstrip(b"0") or b"0" if word.isdigit() else word


def word_of(value: str) -> bytes:
    """The last part of a path, as names are compared."""
    name = value.strip().strip("\"'").replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    # Captions are numbered (1.jpg#0), and addresses have queries (1.jpg?size=s).
    start = re.split(r"[#?]", name, maxsplit=1)[0]
    if start != name and is_picture_name(start.encode("utf-8", "replace")):
        name = start
    return composed(name.lower().encode("utf-8", "surrogatepass"))


def names_among(
    read: Sequence[tuple[bytes, Mentions]], items: Iterable[RawItem | bytes]
) -> PictureNames:
    """Which words of the files are names of pictures: one pass over the pictures."""
    places = [place for _, mentions in read for place in mentions.places]
    words = {word_of(value) for place in places for value in (place.title, *place.values)}
    words |= {stem_of(word) for word in words if is_picture_name(word)}
    words |= {plain_number(word) for word in words}
    names = PictureNames()
    for entry in items:
        path = entry if isinstance(entry, bytes) else entry.key
        name = split_path(path)[1]
        if not is_picture_name(name):
            continue
        names.count += 1
        name = composed(lower_name(name))
        stem = stem_of(name)
        item = None if isinstance(entry, bytes) else entry
        if name in words:
            names.named.setdefault(name, item)
        for each in {stem, plain_number(stem)}:
            if each in words:
                shared, first = names.stems.get(each, (0, item))
                names.stems[each] = shared + 1, first
    return names


def lower_name(name: bytes) -> bytes:
    """A file name in lower case, for comparison."""
    return name.lower() if name.isascii() else name.decode("utf-8", "replace").lower().encode()


_SHARED_MAX = 3
"""How many pictures may share a name that a file gives without extension: one in each split."""


def hits_of(place: Place, names: PictureNames, *, is_cut: bool) -> int:
    """How many pictures a place names; 0 where that may be chance."""
    if not names.count:
        return 0
    whole = numbers = stems = shared = 0
    seen: set[bytes] = set()
    for value in (place.title, *place.values):
        word = word_of(value)
        if word in seen or not names.item(word)[0]:
            continue
        seen.add(word)
        if word in names.named or is_picture_name(word):
            whole += 1
        elif word.isdigit():
            numbers += 1
        else:
            stems += 1
            shared += names.stems[word][0]
    least = min(2, names.count)
    half = 0.5 * names.count
    total = whole + stems
    value_count = len(place.values)
    is_mostly = total >= 0.5 * value_count
    if whole >= least and (whole >= half or (whole >= 3 and is_mostly)):
        return total
    # A stem that many pictures share names none of them; and some words are stems by chance.
    names_few = is_mostly and shared <= _SHARED_MAX * stems
    if stems >= least and names_few and (shared >= half or stems >= 3):
        return total
    if place.may_number and numbers >= max(least, 0.9 * value_count):
        repeated = sum(names.stems[word][0] for word in seen if word in names.stems)
        if (repeated >= half or is_cut) and repeated <= _SHARED_MAX * numbers:
            return numbers
    return 0


_NOTHING_COLUMNS = frozenset(
    (
        *("md5", "sha", "sha1", "sha256", "sha512", "crc", "crc32", "checksum", "hash", "digest"),
        *("etag", "size", "bytes", "filesize", "bytecount", "width", "height", "w", "h", "depth"),
        *("imagewidth", "imageheight", "imgwidth", "imgheight", "channels", "mode", "extension"),
        *("ext", "mtime", "ctime", "atime", "modified", "url", "urls", "uri", "link", "flickrurl"),
        *("cocourl", "source", "license", "licence", "licenses", "author", "credit", "index"),
        *("idx", "no", "n", "number", "row", "rowid", "unnamed", "unnamed0", "images", "files"),
        *("pictures", "items", "data", "info", "paths", "filenames", "names", "version"),
        *("description", "year", "contributor", "datecreated", "xml", "encoding", "standalone"),
    )
)
"""What columns and keys are called, without punctuation, that say no more than a file itself."""

_DIGEST = re.compile(r"[0-9a-fA-F]{8,128}")
_URL = re.compile(r"(https?|ftp|s3|gs)://\S+")
_LISTING = re.compile(r"[-dl][-rwxsStT]{9}[.+@]?")


def says_more(place: Place, names: PictureNames, path: bytes, scan: Scan | None) -> bool:
    """Whether more is said of the pictures than their names, sums, sizes and origins."""
    if len(place.lists) > 0:
        return _lists_say(place, names, path, scan)
    if place.is_nested:
        return True
    if any(_LISTING.fullmatch(value) for _, values in place.beside for value in values[:5]):
        return False  # What `ls -l` prints.
    sizes = {
        str(item.byte_count)
        for value in list(place.values)[:200]
        if (item := names.item(word_of(value))[1]) is not None
    }
    for name, values in place.beside:
        if re.sub(r"[^a-z0-9]", "", name.lower()) in _NOTHING_COLUMNS:
            continue
        if values and _are_nothing(values, names, sizes):
            continue
        return True
    is_plain = not any(values for _, values in place.beside)
    return is_plain and _is_new_split(place, split_of_file(path), names, scan)


def tells_more(name: str, values: Sequence[str]) -> bool:
    """Whether a column of this name and these values says more than a picture itself does."""
    if re.sub(r"[^a-z0-9]", "", name.lower()) in _NOTHING_COLUMNS:
        return False
    return not _are_nothing(values, PictureNames(), set())


def _are_nothing(values: Sequence[str], names: PictureNames, sizes: set[str]) -> bool:
    """Whether values say nothing of pictures: sums, addresses, names, sizes, running numbers."""
    filled = [value.strip() for value in values if value.strip()]
    if not filled:
        return True
    digests = [value for value in filled if _DIGEST.fullmatch(value.lstrip("*"))]
    are_digests = len(digests) == len(filled) and len({len(value) for value in filled}) == 1
    if are_digests and any(c.isalpha() for value in filled for c in value):
        return True
    if all(_URL.fullmatch(value) or names.item(word_of(value))[0] for value in filled):
        return True
    if all(value.isdecimal() for value in filled):
        numbers = [int(value) for value in filled]
        steps = {b - a for a, b in pairwise(numbers)}
        return (steps == {1} and numbers[0] in (0, 1)) or (bool(sizes) and set(filled) <= sizes)
    return all(is_picture_name(value.encode("utf-8", "replace")) for value in filled)


def _lists_say(place: Place, names: PictureNames, path: bytes, scan: Scan | None) -> bool:
    """Whether lists of names in JSON say something by what they are called, or hold more."""
    holding = {
        key: [word for value in values if names.item(word := word_of(value))[0]]
        for key, values in place.lists.items()
    }
    holding = {key: words for key, words in holding.items() if words}
    others = [
        value for key in holding for value in place.lists[key] if not names.item(word_of(value))[0]
    ]
    if others and not _are_nothing(others, names, set()):
        return True
    if len(holding) != 1:
        return any(_is_new_split(place, key, names, scan, place.lists[key]) for key in holding) or (
            not all(canonical_split(key) for key in holding)
        )
    key = next(iter(holding))
    if re.sub(r"[^a-z0-9]", "", key.lower()) in _NOTHING_COLUMNS or not key:
        return _is_new_split(place, split_of_file(path), names, scan)
    return canonical_split(key) is None or _is_new_split(place, key, names, scan)


def split_of_file(path: bytes) -> str:
    """The split that a list's name speaks of, or empty."""
    name = split_path(path)[1]
    words = re.split(r"[^a-z0-9]+", stem_of(name).decode("utf-8", "replace").lower())
    named = [word for word in words if canonical_split(word) or word == "trainval"]
    return named[0] if named else ""


def _is_new_split(
    place: Place,
    split: str,
    names: PictureNames,
    scan: Scan | None,
    values: Mapping[str, None] | None = None,
) -> bool:
    """Whether a list of one split says what is not known from where the pictures lie."""
    if not split or scan is None:
        return False
    known: list[str] = []
    for value in values or place.values:
        there, item = names.item(word_of(value))
        if there and item is not None:
            number = item.values.get("split")
            known.append(scan.splits[number] if isinstance(number, int) and scan.splits else "")
    wanted = canonical_split(split)
    if split == "trainval":
        return not all(canonical_split(name) in ("train", "val") for name in known)
    return not all(canonical_split(name) == wanted for name in known)


def repeats_boxes(mentions: Mentions, place: Place, names: PictureNames) -> bool:
    """Whether a table of boxes has as many of each picture as the source has found."""
    if columns_of(mentions.columns).box is None:
        return False
    counts = dict(place.values)
    if mentions.is_cut and counts:
        counts.popitem()  # Its boxes may go on beyond what was read.
    compared = 0
    for value, count in counts.items():
        there, item = names.item(word_of(value))
        if not there or item is None:
            continue
        if not item.annotations:
            return False
        compared += 1
        if len(unpack_annotations(item.annotations).objects) != count:
            return False
    return compared > 0
