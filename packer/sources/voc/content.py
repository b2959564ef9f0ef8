"""What the XML files of Pascal VOC say together: objects, classes, and where counting begins."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from packer.items.annotations import Annotations, pack_annotations
from packer.items.findings import Findings
from packer.sources.class_names import ClassNames
from packer.sources.pairing import split_path
from packer.sources.source import SourceOptions
from packer.sources.turned_boxes import turned_notes
from packer.sources.voc.objects import RADIANS_MAX, make_object
from packer.sources.voc.xml import VocFile, VocObject, read_voc
from packer.sources.walk import Picture
from packer.wording import count_text, names_text, readable_path


class RawBoxes(NamedTuple):
    """What the XML file of a picture says: its objects as bytes, since there may be a million."""

    file: str
    size: tuple[int, int] | None
    objects: bytes


@dataclass
class OriginEvidence:
    """How many boxes speak for which origin."""

    box_count: int = 0
    below_one_count: int = 0
    at_one_count: int = 0
    first_below_one: str = ""


@dataclass
class AngleEvidence:
    """How many turned boxes there are, and whether their angles can be radians."""

    turned_count: int = 0
    angle_count: int = 0
    over_count: int = 0
    first_over: str = ""

    @property
    def has_degrees(self) -> bool:
        """Whether angles of `<robndbox>` are degrees: one over a whole turn proves it for all."""
        return self.over_count > 0


@dataclass
class VocContent:
    """What all XML files say together.

    Attributes:
        raw_of: What the file of each picture says, by the picture's path.
        class_counts: Objects of each class.
        evidence: About the origin.
        angles: About turned boxes.
        attribute_count: Objects that have attributes.
        outline_count: Objects that have an outline.
        one_pixel_places: Boxes whose sides are equal, when counted from 1 a single pixel.
    """

    raw_of: dict[bytes, RawBoxes] = field(default_factory=dict)
    class_counts: Counter[str] = field(default_factory=Counter)
    evidence: OriginEvidence = field(default_factory=OriginEvidence)
    angles: AngleEvidence = field(default_factory=AngleEvidence)
    attribute_count: int = 0
    outline_count: int = 0
    one_pixel_places: list[str] = field(default_factory=list)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[VocObject])


def unpack_objects(data: bytes) -> list[VocObject]:
    """The objects of `RawBoxes`."""
    return _DECODER.decode(data)


def read_files(
    raw: Path, pictures: list[Picture], file_of: dict[bytes, bytes], findings: Findings
) -> VocContent:
    """Read the XML file of each picture that has one; what is wrong is refused."""
    content = VocContent()
    misnamed: list[str] = []
    totals = VocFile()
    no_size_count = 0
    root = os.fsencode(raw)
    for picture in pictures:
        file = file_of.get(picture.path)
        if file is None:
            continue
        place = readable_path(file)
        try:
            found = read_voc(os.path.join(root, file))
        except ValueError as error:
            findings.refuse(picture.path, str(error), place)
            continue
        for number, reason in found.rejects:
            findings.refuse_annotation(picture.path, reason, f"{place}, object {number}")
        for number, part, reason in found.lost_parts:
            path = f"{place}, object {number}, {part}"
            findings.refuse_annotation(picture.path, reason, path, part)
        for o in found.objects:
            content.class_counts[o.name] += 1
            content.attribute_count += bool(o.attributes)
            content.outline_count += bool(o.polygons)
            _weigh(content, o, place)
            _weigh_angle(content, o, place)
        _add_counts(totals, found)
        no_size_count += found.size is None
        if found.file_name and found.file_name.encode() != split_path(picture.path)[1]:
            misnamed.append(place)
        content.raw_of[picture.path] = RawBoxes(place, found.size, _ENCODER.encode(found.objects))
    if misnamed:
        findings.notes.append(
            f"{count_text(len(misnamed), 'XML file')} with another picture in <filename>, "
            f"which is not used; the first is {misnamed[0]}"
        )
    if no_size_count:
        findings.notes.append(
            f"{count_text(no_size_count, 'XML file')} without the size of the picture: "
            "that of the upright picture is taken"
        )
    findings.notes += _count_notes(totals)
    return content


def _add_counts(totals: VocFile, found: VocFile) -> None:
    totals.part_count += found.part_count
    totals.action_count += found.action_count
    totals.several_count += found.several_count
    totals.beside_count += found.beside_count
    totals.unread.update(found.unread)


def _count_notes(totals: VocFile) -> list[str]:
    """What is in objects and not packed, or packed in another way than it seems."""
    notes = []
    if totals.part_count:
        parts = count_text(totals.part_count, "<part>")
        notes.append(f"{parts} inside of objects: no objects, not packed")
    if totals.action_count:
        notes.append(f"<actions> of {count_text(totals.action_count, 'object')}: not packed")
    for tag, count in totals.unread.items():
        notes.append(f"{count_text(count, f'<{tag}>')} inside of objects: not read, not packed")
    if totals.several_count:
        objects = count_text(totals.several_count, "<object>")
        notes.append(f"{objects} with several boxes: each box is packed as an object")
    if totals.beside_count:
        objects = count_text(totals.beside_count, "object")
        notes.append(f"{objects} with a <bndbox> beside <robndbox>: the turned box is packed")
    return notes


def pack_objects(
    raw: RawBoxes,
    key: bytes,
    classes: ClassNames,
    origin: int,
    content: VocContent,
    findings: Findings,
) -> bytes:
    """Annotations of a picture; objects of a class that is not wanted are rejected."""
    objects = []
    for o in unpack_objects(raw.objects):
        label = classes.label(o.name)
        if label is None:
            reason = classes.unknown_reason(o.name)
            findings.refuse_annotation(key, reason, f"{raw.file}, {o.place}")
            continue
        has_degrees = content.angles.has_degrees
        objects.append(make_object(o, raw.file, label, origin, has_degrees=has_degrees))
    return pack_annotations(Annotations(objects=tuple(objects), size=raw.size))


def _weigh_angle(content: VocContent, o: VocObject, place: str) -> None:
    """Add what a turned box says about the unit of its angle."""
    angles = content.angles
    if o.turned is not None:
        angles.angle_count += 1
        angles.turned_count += o.turned.angle != 0
        if abs(o.turned.angle) > RADIANS_MAX:
            angles.over_count += 1
            angles.first_over = angles.first_over or f"{place}, {o.place}"
    else:
        angles.turned_count += bool(o.degrees)


def angle_notes(content: VocContent, options: SourceOptions) -> list[str]:
    """What becomes of turned boxes, and in which unit their angles are."""
    angles = content.angles
    total = sum(content.class_counts.values())
    notes = turned_notes(options.task, angles.turned_count, total)
    if angles.has_degrees:
        notes.append(
            f"angles of <robndbox> are degrees: {angles.over_count:,} of {angles.angle_count:,} "
            "are over a whole turn in radians, which roLabelImg writes (first: "
            f"{angles.first_over})"
        )
    return notes


def _weigh(content: VocContent, o: VocObject, place: str) -> None:
    """Add what a box says about the origin of the coordinates."""
    if o.turned is not None:
        return  # A middle and a size, which count from no pixel.
    evidence = content.evidence
    evidence.box_count += 1
    x0, y0, x1, y1 = o.bounds
    if x1 > x0 and y1 > y0:
        low = min(x0, y0) if min(x0, y0) >= 0 else max(x0, y0)
        if 0 <= low < 1:
            evidence.below_one_count += 1
            evidence.first_below_one = evidence.first_below_one or f"{place}, {o.place}"
        elif low == 1:
            evidence.at_one_count += 1
    elif x0 == x1 and y0 == y1:
        content.one_pixel_places.append(f"{place}, {o.place}")


def choose_origin(evidence: OriginEvidence, options: SourceOptions) -> tuple[int, str]:
    """The pixel that coordinates count from, and a note that says why."""
    boxes = count_text(evidence.box_count, "box")
    below = evidence.below_one_count
    proof = (
        f"{below:,} of {boxes} begin in [0, 1), which is outside of the picture when counted from "
        f"1 (first: {evidence.first_below_one})"
    )
    if options.voc_origin == "0":
        return 0, f"VOC origin 0, as given: coordinates of {boxes} taken as written"
    if options.voc_origin == "1":
        note = f"VOC origin 1, as given: {boxes} from xmin - 1, ymin - 1 to xmax, ymax"
        if below:
            note += f". But {proof}: --voc-origin 0 or auto fits better"
        return 1, note
    if below:
        return 0, f"VOC origin 0: {proof}; coordinates taken as written"
    return 1, (
        f"VOC origin 1, the official rule: {boxes} from xmin - 1, ymin - 1 to xmax, ymax; none "
        f"begins in [0, 1), {evidence.at_one_count:,} at 1. If the tool counted from 0, give "
        "--voc-origin 0"
    )


def one_pixel_notes(content: VocContent, origin: int) -> list[str]:
    """A note about boxes that cover one pixel, which may also be slips of the hand."""
    places = content.one_pixel_places
    if origin == 0 or not places:
        return []
    noun = "box covers" if len(places) == 1 else "boxes cover"
    return [
        f"{len(places):,} {noun} a single pixel (xmin = xmax, ymin = ymax): {names_text(places)}"
    ]
