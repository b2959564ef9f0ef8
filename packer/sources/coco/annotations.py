"""The annotations of COCO files, given to the images that they name."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from packer.items.annotations import RawObject, join_objects, pack_object
from packer.items.findings import Findings
from packer.items.raw_item import Reject
from packer.sources.coco.classes import Classes
from packer.sources.coco.document import (
    CocoAnnotation,
    CocoCaption,
    CocoFile,
    CocoIdOf,
    CocoImageOf,
    CocoLoose,
    CocoPoints,
    Id,
    RawId,
    Rle,
    is_unicode,
    known_id,
)
from packer.sources.coco.images import FileImages, Image
from packer.sources.coco.objects import make_object, pack_keypoints
from packer.sources.coco.parts import (
    ATTRIBUTES,
    KEYPOINTS,
    AnnotationError,
    PartProblems,
    part_rejects,
    read_loose,
)
from packer.sources.coco.turned import turn_object
from packer.sources.source import Task
from packer.wording import count_text

_REPEATED_SHOWN_MAX = 5

_ANNOTATIONS_AT_ONCE = 2**17
"""Objects that wait at a time: about 60 MB of COCO's. A file of 1.1M is gone through in 9 parts,
which takes no longer than in one."""


@dataclass
class Gathered:
    """What the annotations of all files hold, beside the objects that are with their images.

    Attributes:
        findings: Takes annotations that cannot be used, and notes.
        labels: Of all objects.
        has_outlines: Whether any object has polygons or runs.
        has_attributes: Whether any annotation has the key `attributes`.
        has_points: Whether any object has keypoints.
        point_count: How many keypoints an object has; 0: not known yet.
        captions: Of each image, by key.
        task: What the build is for.
        turned_count: How many objects are turned boxes.
        points_left_count: How many objects have keypoints that are left aside.
    """

    findings: Findings
    labels: set[int] = field(default_factory=set)
    has_outlines: bool = False
    has_attributes: bool = False
    has_points: bool = False
    point_count: int = 0
    captions: dict[bytes, list[str]] = field(default_factory=dict)
    task: Task | None = None
    turned_count: int = 0
    points_left_count: int = 0


@dataclass(frozen=True)
class Points:
    """Keypoints of an annotation in a file of keypoints, for the same annotation of another file.

    Attributes:
        packed: x, y, visibility of each.
        place: Where they stand.
    """

    packed: bytes
    place: str


_NO_POINTS = Points(b"", "")

PointsByPlace = dict[tuple[bytes, Id], Points]
"""By key of the image and id of the annotation."""


def read_objects(
    listed: FileImages, classes: Classes, points: PointsByPlace, gathered: Gathered
) -> None:
    """Give each image its objects, in the order of the file.

    Args:
        listed: A file's images.
        classes: Labels of the categories.
        points: Keypoints from other files; those that are used are taken out.
        gathered: Takes everything else.
    """
    coco_file = listed.coco_file
    images = list(listed.by_id.values())
    image_numbers = _image_numbers(listed, images, gathered)
    tally = _Tally()
    parts = PartProblems()
    # Annotations of an image may lie anywhere in the file. Objects that wait for the rest of theirs
    # take as much memory as all that are joined, so the file is gone through several times, for
    # some of the images each. Decoding is what takes the time, and is done once.
    for first, last in _image_ranges(images):
        objects: list[list[bytes]] = [[] for _ in range(first, last)]
        positions = np.flatnonzero((image_numbers >= first) & (image_numbers < last)).tolist()
        raw = map(coco_file.annotations.__getitem__, positions)
        entries = coco_file.entries(raw, CocoAnnotation)
        for position, number, (entry, problem) in zip(
            positions, image_numbers[positions].tolist(), entries, strict=True
        ):
            image = images[number]
            if parts.is_any:
                parts = PartProblems()
            try:
                if entry is None:
                    entry = _loosely(coco_file, position, problem, parts)
                annotation_id = known_id(entry.id)
                tally.add_id(annotation_id)
                raw_object = _read_object(
                    entry, annotation_id, position, image, classes, points, gathered, parts
                )
            except AnnotationError as error:
                path = _full_place(coco_file, position)
                reject = Reject(key=image.key, path=path, reason=str(error))
                tally.problems.append((position, reject))
                continue
            if parts.is_any:
                tally.add_parts(parts, position, image, f"{coco_file.name}, {raw_object.place}")
            objects[number - first].append(pack_object(raw_object))
            if raw_object.area is None and entry.area is not None:
                tally.odd_area_count += 1
        for image, its_objects in zip(images[first:last], objects, strict=True):
            image.annotations = join_objects(its_objects, image.size)
    problems = sorted(tally.problems, key=itemgetter(0))
    gathered.findings.annotation_rejects += [reject for _, reject in problems]
    gathered.findings.notes += tally.notes(coco_file)


def _read_object(
    entry: CocoAnnotation,
    annotation_id: Id | None,
    position: int,
    image: Image,
    classes: Classes,
    points: PointsByPlace,
    gathered: Gathered,
    parts: PartProblems,
) -> RawObject:
    """The object of an annotation, with the points that another file has for it.

    What is left out of it is added to `parts`.

    Raises:
        AnnotationError: It is rejected.
    """
    more = b""
    if points and annotation_id is not None:
        more = points.pop((image.key, annotation_id), _NO_POINTS).packed
    label, problem = classes.label_or_problem(image.coco_file.path, known_id(entry.category_id))
    if problem:
        raise AnnotationError(problem)
    if entry.keypoints and not gathered.point_count and len(entry.keypoints) % 3 == 0:
        gathered.point_count = len(entry.keypoints) // 3
    place = _place(annotation_id, position)
    raw_object = make_object(entry, place, label, image.size, gathered.point_count, more, parts)
    if raw_object.attributes:
        problem = _attributes_problem(raw_object.attributes)
        if problem:
            parts.add(ATTRIBUTES, problem)
            raw_object = msgspec.structs.replace(raw_object, attributes={})
    if image.size is None and raw_object.runs and isinstance(entry.segmentation, Rle):
        image.size = (entry.segmentation.size[1], entry.segmentation.size[0])
    gathered.labels.add(label)
    if raw_object.polygons or raw_object.runs:
        gathered.has_outlines = True
    if raw_object.keypoints:
        gathered.has_points = True
    turned = turn_object(raw_object, entry.rotation, gathered.task)
    if turned is not raw_object:
        gathered.points_left_count += bool(raw_object.keypoints)
        gathered.turned_count += turned.box != raw_object.box
        raw_object = turned
    if entry.attributes is not msgspec.UNSET:
        gathered.has_attributes = True
    return raw_object


def _loosely(
    coco_file: CocoFile, position: int, problem: str, parts: PartProblems
) -> CocoAnnotation:
    """An annotation that does not decode as a whole, with what can be read of its parts.

    Raises:
        AnnotationError: No object can be made of it.
    """
    loose, _ = next(coco_file.entries([coco_file.annotations[position]], CocoLoose))
    if loose is None:
        raise AnnotationError(problem)
    return read_loose(loose, parts)


@dataclass
class _Tally:
    """What is counted while the objects of a file are read."""

    problems: list[tuple[int, Reject]] = field(default_factory=list)
    number_ids: array[int] = field(default_factory=lambda: array("q"))
    text_ids: list[str] = field(default_factory=list)
    odd_area_count: int = 0
    form_counts: Counter[str] = field(default_factory=Counter)

    def add_parts(self, parts: PartProblems, position: int, image: Image, place: str) -> None:
        """Report the parts that an object is stored without."""
        if parts.form:
            self.form_counts[parts.form] += 1
        self.problems += [(position, r) for r in part_rejects(parts, image.key, place)]

    def add_id(self, annotation_id: Id | None) -> None:
        if annotation_id is None:
            return
        try:
            self.number_ids.append(annotation_id)  # type: ignore[arg-type]
        except (TypeError, OverflowError):  # Text, or a number of over 64 bits.
            self.text_ids.append(str(annotation_id))

    def notes(self, coco_file: CocoFile) -> Iterator[str]:
        """One line when ids stand more than once: nothing goes by them, but other tools may."""
        ids = np.frombuffer(self.number_ids, np.int64)
        numbers, counts = np.unique(ids, return_counts=True)
        again = len(ids) - len(numbers) + len(self.text_ids) - len(set(self.text_ids))
        if again:
            first = ", ".join(str(number) for number in numbers[counts > 1][:_REPEATED_SHOWN_MAX])
            some = f" (such as {first})" if first else ""
            yield (
                f"{coco_file.name}: {count_text(again, 'annotation')} with an id that stands "
                f"before{some}; each is taken for the image that it names"
            )
        if self.odd_area_count:
            count = count_text(self.odd_area_count, "annotation")
            yield f"{coco_file.name}: area of {count} is below 0 or no number; computed instead"
        for form, form_count in self.form_counts.items():
            count = count_text(form_count, "annotation")
            yield (
                f"{coco_file.name}: segmentation of {count} is written as {form}; read as outlines "
                "[x0, y0, x1, y1, ...]"
            )


def _image_numbers(
    listed: FileImages, images: Sequence[Image], gathered: Gathered
) -> NDArray[np.int64]:
    """Of each annotation the position of its image, or -1 when it is not to be read.

    Counts the annotations of all images, and rejects those that are of none.
    """
    coco_file = listed.coco_file
    number_of = {image.id: number for number, image in enumerate(images)}
    text_ids = listed.text_ids
    numbers = array("q")
    mixed_count, first_mixed = 0, ""
    for position, (entry, problem) in enumerate(
        coco_file.entries(coco_file.annotations, CocoImageOf)
    ):
        image_id = known_id(entry.image_id) if entry is not None else None
        number = number_of.get(image_id, -1) if image_id is not None else -1
        if number >= 0:
            image = images[number]
            image.annotation_count += 1
            is_text = isinstance(entry.image_id, str)  # type: ignore[union-attr]
            if (is_text or text_ids) and is_text != (image_id in text_ids):
                mixed_count += 1
                first_mixed = first_mixed or _full_place(coco_file, position)
            number = -1 if image.problem else number
        else:
            reason = problem or _no_image_reason(entry.image_id if entry is not None else None)
            place = _full_place(coco_file, position)
            gathered.findings.refuse_annotation(b"", reason, place)
        numbers.append(number)
    if mixed_count:
        count = count_text(mixed_count, "annotation")
        gathered.findings.notes.append(
            f"{coco_file.name}: image_id of {count} is text where the image's id is a number, or "
            f"the other way round (such as {first_mixed}); taken as the same id"
        )
    return np.frombuffer(numbers, np.int64)


def _image_ranges(images: Sequence[Image]) -> Iterator[tuple[int, int]]:
    """Ranges of images that have `_ANNOTATIONS_AT_ONCE` together, or a little more."""
    first, count = 0, 0
    for number, image in enumerate(images, 1):
        count += image.annotation_count
        if count >= _ANNOTATIONS_AT_ONCE or number == len(images):
            yield first, number
            first, count = number, 0


def _full_place(coco_file: CocoFile, position: int) -> str:
    """How a report names an annotation that is rejected: by its id, where that can be read."""
    annotation, _ = next(coco_file.entries([coco_file.annotations[position]], CocoIdOf))
    annotation_id = known_id(annotation.id) if annotation is not None else None
    return f"{coco_file.name}, {_place(annotation_id, position)}"


def _attributes_problem(attributes: dict[str, Any]) -> str:
    """Why no store can hold attributes: half a surrogate pair, a number of over 64 bits; or ""."""
    try:
        msgspec.msgpack.encode(attributes)
    except (UnicodeEncodeError, OverflowError) as error:
        return f"attributes cannot be kept: {error}"
    return ""


def read_points(added: Iterable[FileImages], keys: set[bytes], gathered: Gathered) -> PointsByPlace:
    """The keypoints in files of keypoints, for objects of other files.

    Args:
        added: The files' images.
        keys: Those of the images that are read.
        gathered: Takes what cannot be used.
    """
    points: PointsByPlace = {}
    for listed in added:
        coco_file = listed.coco_file
        mark = gathered.findings.mark()
        for position, (entry, problem) in enumerate(
            coco_file.entries(coco_file.annotations, CocoPoints)
        ):
            annotation_id = known_id(entry.id) if entry is not None else None
            image, image_problem = _image(listed, entry.image_id if entry is not None else None)
            problem = problem or image_problem
            if image is not None and image.key not in keys:
                continue  # Of an image that is not read, which is accounted for as a whole.
            key = image.key if image is not None else b""
            try:
                if entry is None or problem:
                    raise AnnotationError(problem)
                if not entry.keypoints:
                    continue
                if annotation_id is None:
                    raise AnnotationError("has no id; expected that of an annotation to add to")
                if (key, annotation_id) in points:
                    raise AnnotationError(
                        f"the image has keypoints of id {annotation_id!r} already; expected one"
                    )
                gathered.point_count = gathered.point_count or len(entry.keypoints) // 3
                packed = pack_keypoints(entry.keypoints, gathered.point_count)
            except AnnotationError as error:
                place = _full_place(coco_file, position)
                part = KEYPOINTS if annotation_id is not None and image is not None else ""
                gathered.findings.refuse_annotation(key, str(error), place, part)
                continue
            place = f"{coco_file.name}, {_place(annotation_id, position)}"
            points[key, annotation_id] = Points(packed, place)
        gathered.findings.tag_split(mark, listed.split)
    return points


def reject_left_points(points: PointsByPlace, stored: set[bytes], gathered: Gathered) -> None:
    """Reject keypoints whose annotation is in no other file, of images that are stored."""
    for (key, annotation_id), left in points.items():
        if key in stored:
            reason = (
                f"keypoints of annotation {annotation_id!r}, which the file of instances does not "
                "have on this image; expected the same id in both"
            )
            gathered.findings.refuse_annotation(key, reason, left.place)


def read_captions(listed: FileImages, gathered: Gathered) -> None:
    """The captions of a file's images, in its order."""
    coco_file = listed.coco_file
    for position, (entry, problem) in enumerate(
        coco_file.entries(coco_file.annotations, CocoCaption)
    ):
        image, image_problem = _image(listed, entry.image_id if entry is not None else None)
        problem = problem or image_problem
        if entry is not None and image is not None:
            image.annotation_count += 1
            if image.problem:
                continue
            if isinstance(entry.caption, str) and is_unicode(entry.caption):
                gathered.captions.setdefault(image.key, []).append(entry.caption)
                continue
            problem = f"caption is {entry.caption!r}; expected text"
        key = image.key if image is not None else b""
        place = _full_place(coco_file, position)
        gathered.findings.refuse_annotation(key, problem, place)


def _image(listed: FileImages, written: RawId) -> tuple[Image | None, str]:
    """(image, ""), or (None, why there is none)."""
    image_id = known_id(written)
    image = listed.by_id.get(image_id) if image_id is not None else None
    if image is None:
        return None, _no_image_reason(written)
    return image, ""


def _no_image_reason(written: RawId) -> str:
    return f"image_id {written!r} is none of the file's images"


def _place(annotation_id: Id | None, position: int) -> str:
    return (
        f"annotation {annotation_id}" if annotation_id is not None else f"annotations[{position}]"
    )
