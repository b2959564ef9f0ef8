"""An annotation of which some part is not as it should be, read part by part.

Nearly all annotations decode as `CocoAnnotation` in one go. What does not is looked at here: a part
that can be read all the same is read, and one that cannot is left out and reported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec

from packer.items.raw_item import Reject
from packer.sources.coco.document import CocoAnnotation, CocoLoose, Rle
from packer.wording import cut_text

SEGMENTATION_EXPECTED = "expected lists of numbers, [[x0, y0, x1, y1, ...]], or RLE"

BOX, OUTLINE, KEYPOINTS, ATTRIBUTES, ISCROWD = (
    "box",
    "outline",
    "keypoints",
    "attributes",
    "iscrowd",
)
"""Parts of an annotation, as a report names them."""

_KEPT = {BOX: "The object is stored with the box around its outline"}

_SHOWN_MAX = 60


class AnnotationError(Exception):
    """An annotation that cannot be used. Its text is the reason of the reject."""


@dataclass
class PartProblems:
    """What is wrong with single parts of an annotation that is kept.

    Attributes:
        reasons: (part, reason) of each part that is left out.
        form: In which other form its outline was written and read; empty: in the usual one.
    """

    reasons: list[tuple[str, str]] = field(default_factory=list)
    form: str = ""

    @property
    def is_any(self) -> bool:
        """Whether there is anything to say."""
        return bool(self.reasons or self.form)

    def add(self, part: str, reason: str) -> None:
        """One more part that is left out."""
        self.reasons.append((part, reason))


def read_loose(entry: CocoLoose, problems: PartProblems) -> CocoAnnotation:
    """An annotation with what can be read of its parts.

    Args:
        entry: As the file has it.
        problems: Takes the parts that cannot be read.

    Raises:
        AnnotationError: Its category cannot be read, and so no object can be made of it.
    """
    if not isinstance(entry.category_id, (int, float, str, type(None))):
        raise AnnotationError(f"category_id is {shown(entry.category_id)}; expected a number")
    box = _numbers(entry.bbox)
    if entry.bbox is not None and box is None:
        problems.add(BOX, f"bbox is {shown(entry.bbox)}; expected 4 numbers: x, y, width, height")
    return CocoAnnotation(
        id=entry.id if isinstance(entry.id, (int, float, str)) else None,
        category_id=entry.category_id,
        bbox=box,
        segmentation=_segmentation(entry.segmentation, problems),
        area=read_number(entry.area),
        iscrowd=read_flag(entry.iscrowd, problems),
        keypoints=_keypoints(entry.keypoints, problems),
        attributes=entry.attributes,
        rotation=entry.rotation,
    )


def part_rejects(problems: PartProblems, key: bytes, place: str) -> list[Reject]:
    """The parts that an object is stored without, as the report counts them.

    Args:
        problems: The object's problems.
        key: Of its image.
        place: How a report names the annotation.
    """
    return [
        Reject(
            key=key,
            path=f"{place}, {part}",
            reason=f"{reason}. {_KEPT.get(part, 'The object is stored without it')}",
            part=part,
        )
        for part, reason in problems.reasons
    ]


def read_number(value: Any) -> float | None:
    """A number, however written; NaN for what is none."""
    if value is None:
        return None
    try:
        return msgspec.convert(value, float, strict=False)
    except msgspec.ValidationError:
        return math.nan


def read_flag(value: Any, problems: PartProblems) -> bool | int | None:
    """`iscrowd`; what is not a flag is reported, and counts as none."""
    try:
        return msgspec.convert(value, bool | int | None, strict=False)
    except msgspec.ValidationError:
        problems.add(ISCROWD, f"iscrowd is {shown(value)}; expected 0 or 1")
        return None


def shown(value: Any) -> str:
    """A value as a message shows it, cut off where it is long."""
    return cut_text(repr(value), _SHOWN_MAX)


def _segmentation(value: Any, problems: PartProblems) -> list[list[float]] | Rle | None:
    if value is None or value == {} or value == "":
        return None
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        value = value[0] if "counts" in value[0] else value
    if isinstance(value, dict):
        return _rle(value, problems)
    if not isinstance(value, list):
        problems.add(OUTLINE, f"segmentation is {shown(value)}; {SEGMENTATION_EXPECTED}")
        return None
    one, form = _one_outline(value)
    if one is not None:
        problems.form = form
        return [one]
    if value and not any(isinstance(part, (list, dict)) for part in value):
        problems.add(OUTLINE, _outline_problem(value, 0))
        return None
    outlines = []
    for position, part in enumerate(value):
        outline, form = _outline(part)
        if outline is None:
            problems.add(OUTLINE, _outline_problem(value, position))
            continue
        problems.form = problems.form or form
        outlines.append(outline)
    return outlines


def _rle(value: dict[str, Any], problems: PartProblems) -> Rle | None:
    try:
        return msgspec.convert(value, Rle, strict=False)
    except msgspec.ValidationError as error:
        text = str(error).replace("`", "").replace(" - at $.", " at ").replace(" - at $", "")
        problems.add(
            OUTLINE,
            f"segmentation is an object that is not an RLE: {text[:1].lower()}{text[1:]}; expected "
            "size [height, width] and counts",
        )
        return None


def _one_outline(value: list[Any]) -> tuple[list[float] | None, str]:
    """(the numbers of a whole value that is one outline, how it is written), or (None, "").

    A list of numbers, of points, or of records. A list of points has at least three, and a list of
    outlines none of two numbers, so they cannot be taken for each other.
    """
    if value and not any(isinstance(part, (list, dict)) for part in value):
        numbers = _numbers(value)
        return (numbers, "a list of numbers") if numbers is not None else (None, "")
    outline, form = _outline(value) if len(value) > 2 else (None, "")
    return (outline, form) if form else (None, "")


def _outline(part: Any) -> tuple[list[float] | None, str]:
    """(numbers of an outline, in which form it is when not in the usual one); None: it is none."""
    numbers = _numbers(part)
    if numbers is not None:
        return numbers, ""
    if not isinstance(part, list) or not part:
        return None, ""
    pairs: list[list[float]] = []
    form = "pairs [x, y]"
    for point in part:
        if isinstance(point, dict) and {"x", "y"} <= point.keys():
            point, form = [point["x"], point["y"]], "records of x and y"
        pair = _numbers(point)
        if pair is None or len(pair) != 2:
            return None, ""
        pairs.append(pair)
    return [number for pair in pairs for number in pair], form


def _outline_problem(value: list[Any], position: int) -> str:
    part = value[position]
    if not isinstance(part, (list, dict)):
        return f"segmentation is {shown(value)}; {SEGMENTATION_EXPECTED}"
    return f"segmentation[{position}] is {shown(part)}; {SEGMENTATION_EXPECTED}"


def _keypoints(value: Any, problems: PartProblems) -> list[float] | None:
    if value is None:
        return None
    numbers = _numbers(value)
    if numbers is None and isinstance(value, list):
        rows = [_numbers(row) for row in value]
        if all(row is not None and len(row) == 3 for row in rows):
            return [number for row in rows if row is not None for number in row]
    if numbers is None:
        reason = f"keypoints is {shown(value)}; expected a list of x, y, visibility of each point"
        problems.add(KEYPOINTS, reason)
    return numbers


def _numbers(value: Any) -> list[float] | None:
    """A list of numbers, also of such that are written as text; None for anything else."""
    if not isinstance(value, list):
        return None
    try:
        return msgspec.convert(value, list[float], strict=False)
    except msgspec.ValidationError:
        return None
