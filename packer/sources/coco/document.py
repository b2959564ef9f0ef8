r"""One COCO file: its lists, decoded entry by entry, so that a file of 500 MB takes seconds.

The file is mapped, and its lists are split into entries without looking into them; an entry is
decoded when its turn comes. So memory holds one entry at a time, and one that is broken is a reject
of its own rather than the end of the file.

What msgspec refuses and files in the wild have is taken as well: a byte order mark, numbers as
text, `NaN`, half an emoji (`"\ud83d"` alone), and other encodings than UTF-8. For the last three
Python's own json reads the file, at ten times the time and memory.
"""

from __future__ import annotations

import codecs
import json
import math
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from packer.errors import SourceError
from packer.files.start import content_problem
from packer.sources.pairing import split_path
from packer.wording import readable_path
from readers.store.pictures.signatures import START_BYTES

Kind = Literal["instances", "keypoints", "captions", "panoptic", "labels", "images", "results"]
"""What a file holds: `labels` are categories of whole pictures, `images` has no annotations at all,
`results` are a model's answers."""

Id: TypeAlias = "int | str"
RawId: TypeAlias = "int | float | str | None"

_T = TypeVar("_T")

COCO_BYTES_MAX = 2**34
"""16 GiB. It is mapped and not held in memory; Objects365, the largest that is published, has 5."""

LOOSE_BYTES_MAX = 2**30
"""Of a file that only Python's json reads, which takes six times as much memory."""

_SAMPLE_MAX = 50
"""Annotations that are looked at to tell what a file holds."""

_ENTRIES_PER_RELEASE = 2**11
"""Entries after which pages of the file are given back. Linux maps 64 KiB around each that is
read, so this is 128 MiB at most, where they lie far apart."""


class Rle(msgspec.Struct, frozen=True, gc=False):
    """An outline as runs: (height, width), and counts that are plain or compressed."""

    size: tuple[int, int]
    counts: list[int] | str


class CocoImage(msgspec.Struct, frozen=True, gc=False):
    """An entry of `images`."""

    id: RawId = None
    file_name: str | None = None
    width: float | None = None
    height: float | None = None


class CocoCategory(msgspec.Struct, frozen=True):
    """An entry of `categories`. Names of points and lines between them are for poses."""

    id: RawId = None
    name: str | int | float | None = None
    keypoints: Any = None
    skeleton: Any = None
    isthing: bool | int | None = None


class CocoAnnotation(msgspec.Struct, frozen=True, gc=False):
    """An entry of `annotations`: one object."""

    id: RawId = None
    image_id: RawId = None
    category_id: RawId = None
    bbox: list[float] | None = None
    segmentation: list[list[float]] | Rle | None = None
    area: float | None = None
    iscrowd: bool | int | None = None
    keypoints: list[float] | None = None
    attributes: Any = msgspec.UNSET
    rotation: Any = None


class CocoLoose(msgspec.Struct, frozen=True):
    """An entry of `annotations` of which some part is not as it should be; see `coco.parts`."""

    id: Any = None
    image_id: Any = None
    category_id: Any = None
    bbox: Any = None
    segmentation: Any = None
    area: Any = None
    iscrowd: Any = None
    keypoints: Any = None
    attributes: Any = msgspec.UNSET
    rotation: Any = None


class CocoIdOf(msgspec.Struct, frozen=True, gc=False):
    """The id of an entry, and nothing else of it."""

    id: RawId = None


class CocoImageOf(msgspec.Struct, frozen=True, gc=False):
    """The image of an entry of `annotations`, and nothing else of it."""

    image_id: RawId = None


class CocoCategoryOf(msgspec.Struct, frozen=True, gc=False):
    """The category of an entry of `annotations`, and nothing else of it."""

    category_id: RawId = None


class CocoPoints(msgspec.Struct, frozen=True, gc=False):
    """The points of an entry of `annotations`."""

    id: RawId = None
    image_id: RawId = None
    keypoints: list[float] | None = None


class CocoCaption(msgspec.Struct, frozen=True, gc=False):
    """An entry of `annotations` of a file of captions."""

    id: RawId = None
    image_id: RawId = None
    caption: str | None = None


class CocoSegment(msgspec.Struct, frozen=True, gc=False):
    """A segment of a panoptic mask: its `id` is the value of its pixels."""

    id: int
    category_id: RawId = None
    bbox: list[float] | None = None
    area: Any = None
    iscrowd: Any = None


class CocoPanoptic(msgspec.Struct, frozen=True):
    """An entry of `annotations` of a panoptic file: a mask and what its values mean."""

    image_id: RawId = None
    file_name: str | None = None
    segments_info: list[Any] = []


@dataclass(frozen=True, eq=False)
class CocoFile:
    """A COCO file whose entries are still to be decoded.

    Attributes:
        path: Relative to the raw folder.
        kind: What its annotations are.
        images: Entries of `images`, for `entries`.
        annotations: Entries of `annotations`.
        categories: Entries of `categories`.
        note: What was odd about the file as a whole, or None.
        mapped: The file's memory, or None when it was read by Python's json.
    """

    path: bytes
    kind: Kind
    images: Sequence[Any] = ()
    annotations: Sequence[Any] = ()
    categories: Sequence[Any] = ()
    note: str | None = None
    mapped: mmap.mmap | None = None

    @property
    def name(self) -> str:
        """How messages call it."""
        return readable_path(self.path)

    @property
    def folder(self) -> bytes:
        """Folder that it lies in, relative to the raw folder."""
        return split_path(self.path)[0]

    def entries(self, raw: Iterable[Any], kind: type[_T]) -> Iterator[tuple[_T | None, str]]:
        """Decode entries, in any order: each as (entry, ""), or (None, what is wrong)."""
        decoder = msgspec.json.Decoder(kind, strict=False)
        for position, entry in enumerate(raw):
            if position % _ENTRIES_PER_RELEASE == 0:
                self.release()
            try:
                if isinstance(entry, msgspec.Raw):
                    yield decoder.decode(entry), ""
                else:
                    yield msgspec.convert(entry, kind, strict=False), ""
            except msgspec.ValidationError as error:
                yield None, problem_text(error)
            # Text that is not UTF-8 is either, by the version of msgspec.
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                yield None, f"cannot be decoded: {error}"
        self.release()

    def plain(self, entry: Any) -> dict[str, Any]:
        """An entry with all that it has; empty when it is no object."""
        found = _plain(entry)
        return found if isinstance(found, dict) else {}

    def keys(self, entries: Sequence[Any]) -> set[str]:
        """Keys of the first of some entries."""
        return _keys(entries)

    def release(self) -> None:
        """Give the file's pages back to the system, which keeps them cached while it likes."""
        if self.mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED)


class _Document(msgspec.Struct):
    images: list[msgspec.Raw] | None = None
    annotations: list[msgspec.Raw] | None = None
    categories: list[msgspec.Raw] | None = None


def read_coco(folder: Path, path: bytes) -> CocoFile | None:
    """The lists of a COCO file, or None when the file is JSON of another kind.

    Args:
        folder: The raw folder.
        path: Of the file, relative to it.

    Raises:
        SourceError: The file cannot be read, is not JSON, or its lists are no lists.
    """
    name = readable_path(path)
    full = os.path.join(os.fsencode(folder), path)
    mapped: mmap.mmap | None = None
    note: str | None = None
    try:
        with open(full, "rb") as file:
            byte_count = os.fstat(file.fileno()).st_size
            if byte_count > COCO_BYTES_MAX:
                raise SourceError(
                    f"{name}: {byte_count:,} bytes, far more than COCO annotations have; expected "
                    f"at most {COCO_BYTES_MAX:,}. Is it COCO JSON?"
                )
            try:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:  # An empty file cannot be mapped.
                raise SourceError(f"{name}: the file is empty; expected COCO JSON.") from error
    except OSError as error:
        raise SourceError(f"{name}: cannot be read: {error.strerror}.") from error
    problem = content_problem(mapped[:START_BYTES])
    if problem:
        raise SourceError(f"{name}: {problem}; expected COCO JSON.")
    data = memoryview(mapped)
    if mapped[:3] == codecs.BOM_UTF8:
        data = data[3:]
    document: Any
    try:
        if bytes(data[:64]).lstrip()[:1] == b"[":
            document = msgspec.json.decode(data, type=list[msgspec.Raw])
        else:
            document = msgspec.json.decode(data, type=_Document)
    except msgspec.ValidationError as error:
        raise SourceError(f"{name}: {problem_text(error)}; expected the lists of COCO.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        document = _python_document(full, name, error)
        note = f"{name} is no strict JSON ({error}), and was read by Python's json, which is slower"
        mapped = None
    if isinstance(document, list):
        kind = _list_kind(document)
        return CocoFile(path, kind) if kind is not None else None
    if document.images is None or (document.annotations is None and document.categories is None):
        return None
    coco_file = CocoFile(
        path,
        _kind(document.annotations),
        document.images,
        document.annotations or (),
        document.categories or (),
        note,
        mapped,
    )
    coco_file.release()
    return coco_file


def known_id(value: RawId) -> Id | None:
    """An id in the form that is compared: a number where it is one however written, or text."""
    if type(value) is int:  # Nearly all of them.
        return value
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() else None
    if isinstance(value, str):
        # "007" stays text: another image may be called "7". Text of more digits is not an int64.
        digits = value.removeprefix("-")
        is_number = digits.isdecimal() and len(digits) < 19 and str(int(value)) == value
        return int(value) if is_number else value
    return value


def is_unicode(text: str) -> bool:
    """Whether text can be written as UTF-8: JSON may hold half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _python_document(path: bytes, name: str, reason: Exception) -> Any:
    """What Python's json makes of the file: a list, or a document of plain lists.

    Args:
        path: The file.
        name: Of it, for a message.
        reason: Why it is not strict JSON.

    Raises:
        SourceError: It makes nothing of it, or would take too much memory.
    """
    try:
        byte_count = os.stat(path).st_size
        if byte_count > LOOSE_BYTES_MAX:
            raise SourceError(
                f"{name}: not strict JSON: {reason}. Python's json might read it, and takes at "
                f"most {LOOSE_BYTES_MAX:,} bytes, of which the file has {byte_count:,}. Write NaN "
                "and Infinity as null."
            )
        document = json.loads(Path(os.fsdecode(path)).read_bytes())
    except OSError as error:
        raise SourceError(f"{name}: cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{name}: not JSON: {error}. Was it copied in full? Write it again, or move it away."
        ) from error
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        return _Document()
    lists = {}
    for key in ("images", "annotations", "categories"):
        lists[key] = document.get(key)
        if lists[key] is not None and not isinstance(lists[key], list):
            raise SourceError(
                f"{name}: {key!r} is not a list but {type(lists[key]).__name__}; expected the "
                "lists of COCO."
            )
    return _Document(**lists)


def _list_kind(document: list[Any]) -> Kind | None:
    keys = _keys(document)
    return "results" if "image_id" in keys and keys & {"category_id", "caption"} else None


def _kind(annotations: Sequence[Any] | None) -> Kind:
    if annotations is None:
        return "images"
    keys = _keys(annotations)
    if "segments_info" in keys:
        return "panoptic"
    if "keypoints" in keys:
        return "keypoints"
    if keys & {"bbox", "segmentation"}:
        return "instances"
    if "caption" in keys:
        return "captions"
    return "labels" if "category_id" in keys and not _has_shapes(annotations) else "instances"


def _has_shapes(annotations: Sequence[Any]) -> bool:
    """Whether any annotation has a box or an outline."""
    return any(
        (b'"bbox"' in bytes(raw) or b'"segmentation"' in bytes(raw))
        if isinstance(raw, msgspec.Raw)
        else isinstance(raw, dict) and ("bbox" in raw or "segmentation" in raw)
        for raw in annotations
    )


def _keys(entries: Sequence[Any]) -> set[str]:
    """Keys of the first entries that are objects."""
    keys: set[str] = set()
    for raw in entries[:_SAMPLE_MAX]:
        entry = _plain(raw)
        if isinstance(entry, dict):
            keys |= entry.keys()
    return keys


def _plain(raw: Any) -> Any:
    """An entry as Python's json reads it, or None."""
    try:
        return json.loads(bytes(raw)) if isinstance(raw, msgspec.Raw) else raw
    except (ValueError, RecursionError):
        return None


def problem_text(error: msgspec.ValidationError) -> str:
    """What msgspec found and expected, in plain text: "expected array, got int at bbox[0]"."""
    text = str(error).replace("`", "").replace(" - at $.", " at ").replace(" - at $", " at ")
    return text[:1].lower() + text[1:]
