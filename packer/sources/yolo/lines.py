"""Reads one label file of YOLO: a line an object, in shares of the picture's sides.

5 numbers          class, x centre, y centre, width, height
6                  the same and a confidence: a prediction, which is no annotation
9                  class and four corners: a turned box, or an outline of four points
7, 11, 13 ...      class and the points of an outline
5 + n * 2 or 3     a box and n keypoints, where the data set says how many
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from packer.items.annotations import RawObject, pack_points
from packer.sources.source import Task
from packer.sources.text_values import is_number, number_problem, separator_problem
from packer.wording import cut_text

SHARE_MAX = 1.01
"""What is over 1 by no more than this is rounding; more is pixels, or a wrong box."""

UNNAMED_CLASSES_MAX = 10_000
"""How many classes there may be where no list names them: past it, the number is not a class."""

_LINE_SHOWN_MAX = 100
_BOX_VALUES = ("x centre", "y centre", "width", "height")


@dataclass(frozen=True, kw_only=True)
class LineRules:
    """How the lines of a data set are read.

    Attributes:
        task: What annotations are made of the lines. None: boxes, and outlines where there are any.
        class_names: Names by the numbers in the files. None: no list names them.
        labels: Label of each number, spelled as in `str(number)`. A named class that is missing
            here is not wanted.
        keypoint_shape: (points, numbers a point), or None.
    """

    task: Task | None
    class_names: tuple[str, ...] | None
    labels: dict[bytes, int]
    keypoint_shape: tuple[int, int] | None = None


class LabelFile(NamedTuple):
    """What one label file holds.

    Attributes:
        objects: In the order of the lines.
        rejects: (line, reason) of each line that is no annotation.
        lost_parts: (line, part, reason) of each part of an annotation that is left out of it.
        widths: First line of each number of values, as (line number, text), of good lines.
        counts: How many good lines have each number of values.
    """

    objects: list[RawObject]
    rejects: list[tuple[int, str]]
    lost_parts: list[tuple[int, str, str]]
    widths: dict[int, tuple[int, str]]
    counts: dict[int, int]


def read_label_file(data: bytes, place: str, rules: LineRules) -> LabelFile:
    """The objects of a label file.

    Args:
        data: The file.
        place: What it is called in reports.
        rules: How its lines are read.
    """
    found = LabelFile([], [], [], {}, {})
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    for number, line in enumerate(data.splitlines(), 1):
        tokens = line.split()
        if not tokens:
            continue
        lost: list[str] = []
        made = _object(tokens, f"{place}, line {number}", rules, lost)
        if isinstance(made, str):
            found.rejects.append((number, made))
            continue
        found.objects.append(made)
        found.lost_parts.extend((number, "keypoints", reason) for reason in lost)
        found.counts[len(tokens)] = found.counts.get(len(tokens), 0) + 1
        if len(tokens) not in found.widths:
            found.widths[len(tokens)] = (number, shown_line(line))
    return found


def shown_line(line: bytes) -> str:
    """A line as a message shows it."""
    return cut_text(" ".join(line.decode("ascii", "backslashreplace").split()), _LINE_SHOWN_MAX)


def _object(tokens: list[bytes], place: str, rules: LineRules, lost: list[str]) -> RawObject | str:
    """The object of a line, or the reason why it is none; `lost` takes why keypoints are not."""
    label = rules.labels.get(tokens[0])
    if label is None:
        found = _unusual_label(tokens[0], rules)
        if isinstance(found, str):
            return _form_problem(tokens, rules) or found
        label = found
    count = len(tokens)
    shape = rules.keypoint_shape
    is_posed = rules.task == "pose" or (rules.task == "detect" and shape and count > 5)
    try:
        values = list(map(float, tokens[1:]))
    except ValueError:
        problem = _form_problem(tokens, rules) or _unreadable_reason(tokens)
        if not is_posed or any(not is_number(token) for token in tokens[1:5]):
            return problem
        values = [float(token) if is_number(token) else math.nan for token in tokens[1:]]
    if is_posed:
        assert shape is not None
        return _posed(values, label, place, shape, lost, with_points=rules.task == "pose")
    if rules.task == "obb" and count != 5:  # An upright box is turned by 0.
        if count != 9:
            return (
                f"{_count_text(tokens)}; expected 9 for task 'obb': class and four corners; or 5 "
                "of a box that is not turned"
            )
        problem = _points_problem(values)
        corners = pack_points(values, "<f4")
        return problem or RawObject(place=place, label=label, keypoints=corners)
    if count == 5:
        if rules.task == "segment":
            return (
                "a box without an outline (5 values); task 'segment' needs the points of an "
                "outline. Give --task detect to take boxes"
            )
        return _box_problem(values) or RawObject(place=place, label=label, box=_box(values))
    if count < 7 or count % 2 == 0:
        return _count_reason(tokens)
    problem = _points_problem(values)
    if problem:
        return problem
    if rules.task == "detect":
        xs, ys = values[::2], values[1::2]
        bounds = (min(xs), min(ys), max(xs), max(ys))
        return RawObject(place=place, label=label, box=bounds)
    return RawObject(place=place, label=label, polygons=(pack_points(values),))


def _posed(
    values: list[float],
    label: int,
    place: str,
    shape: tuple[int, int],
    lost: list[str],
    *,
    with_points: bool,
) -> RawObject | str:
    """A box with its keypoints; where they cannot be used, without them, and `lost` has why."""
    point_count, size = shape
    if len(values) != 4 + point_count * size:
        return (
            f"{len(values) + 1} values; expected {5 + point_count * size}: class, box and "
            f"{point_count} keypoints of {size} numbers, as kpt_shape says"
        )
    points = values[4:]
    sides = [value for at, value in enumerate(points) if at % size < 2]
    problem = _box_problem(values[:4])
    if problem:
        return problem
    problem = _points_problem(sides)
    if not problem and size == 3 and not all(-1e6 < value < 1e6 for value in points[2::3]):
        problem = "the visibility of a keypoint is not a number; expected 0, 1 or 2"
    if problem and with_points:
        lost.append(f"{problem}. The object is stored without its keypoints")
    packed = pack_points(points, "<f4") if with_points and not problem else b""
    return RawObject(place=place, label=label, box=_box(values), keypoints=packed)


def _box(values: list[float]) -> tuple[float, float, float, float]:
    x, y, half_width, half_height = values[0], values[1], values[2] / 2, values[3] / 2
    return (x - half_width, y - half_height, x + half_width, y + half_height)


def _are_shares(values: list[float]) -> bool:
    """Whether all are in the range of a share, give or take rounding. NaN makes the sum one."""
    total = sum(values)
    return total == total and max(values) <= SHARE_MAX and min(values) >= 1 - SHARE_MAX


def _box_problem(values: list[float]) -> str:
    """What is wrong with the four numbers of a box, or nothing."""
    if _are_shares(values) and values[2] >= 0 and values[3] >= 0:
        return ""
    for what, value in zip(_BOX_VALUES, values, strict=True):
        if what in ("width", "height") and value < 0:
            return f"{what} is {value!r}; expected a share of the picture's {what}, over 0"
        if not _are_shares([value]):
            return _share_reason(what, value)
    raise AssertionError(values)


def _points_problem(values: list[float]) -> str:
    """What is wrong with x, y pairs, or nothing."""
    if _are_shares(values):
        return ""
    for at, value in enumerate(values):
        if not _are_shares([value]):
            return _share_reason(f"{'xy'[at % 2]} of point {at // 2 + 1}", value)
    raise AssertionError(values)


def _share_reason(what: str, value: float) -> str:
    reason = f"{what} is {value!r}; expected a share of the picture's side, in [0, 1]"
    if value > SHARE_MAX:
        reason += ". Numbers over 1 look like pixels: divide them by the picture's width or height"
    return reason


def _form_problem(tokens: list[bytes], rules: LineRules) -> str:
    """What is wrong with the form of a whole line, where that is known, or nothing."""
    problem = separator_problem(tokens, lambda count: count >= 5)
    if problem:
        return problem
    if len(tokens) in (9, 10) and all(map(is_number, tokens[:8])) and not is_number(tokens[8]):
        return (
            "four corners and a class by name, which is DOTA's form; expected the number of a "
            "class and shares of the picture's sides. Give --format dota"
        )
    words = list(takewhile(lambda token: not is_number(token), tokens))
    class_name = b" ".join(words).decode("utf-8", "backslashreplace").strip("'\"")
    if words and rules.class_names is not None and class_name in rules.class_names:
        number = rules.class_names.index(class_name)
        return f"a class by name; expected its number ({class_name} is {number})"
    if words and words[0].isalpha():
        shown = shown_line(b" ".join(words))
        return f"class {shown!r} is not a whole number from 0; {_numbers_text(rules)}"
    if len(tokens) == 5 and re.fullmatch(rb"\d{1,4}", tokens[4]) and not tokens[0].isdigit():
        shown = shown_line(tokens[0])
        return (
            f"class {shown!r} is not a whole number from 0; the class seems to be the last value, "
            "and is expected to be the first"
        )
    return ""


def _numbers_text(rules: LineRules) -> str:
    """What the numbers of classes are."""
    if not rules.class_names:
        return "expected the number of a class, and no list names the classes"
    first = ", ".join(f"{name} is {n}" for n, name in enumerate(rules.class_names[:3]))
    more = ", ..." if len(rules.class_names) > 3 else ""
    return f"expected the number of a class ({first}{more})"


def _unusual_label(token: bytes, rules: LineRules) -> int | str:
    """Label of a class that is not spelled as usual, or why it has none."""
    shown = shown_line(token)
    # Some tools write all numbers alike: 3.0, or 3.000000e+00.
    if not re.fullmatch(rb"\+?\d{1,9}(\.0*)?([eE][-+]?\d{1,2})?", token):
        return f"class {shown!r} is not a whole number from 0"
    value = float(token)
    if not value.is_integer():
        return f"class {shown!r} is not a whole number from 0"
    number = int(value)
    count = UNNAMED_CLASSES_MAX if rules.class_names is None else len(rules.class_names)
    label = rules.labels.get(str(number).encode())
    if label is not None:
        return label
    if number >= count:
        known = "no list names the classes, and" if rules.class_names is None else "there are"
        return f"class {number} is not known; {known} {_known_text(count, rules)}"
    assert rules.class_names is not None
    return f"class {rules.class_names[number]!r} is not one of --classes"


def _known_text(count: int, rules: LineRules) -> str:
    if rules.class_names is None:
        return f"at most {count:,} are then read"
    return f"{count} classes, 0 to {count - 1}"


def _unreadable_reason(tokens: list[bytes]) -> str:
    for at, token in enumerate(tokens[1:], 2):
        if not is_number(token):
            return number_problem(token, at)
    raise AssertionError(tokens)


def _count_text(tokens: list[bytes]) -> str:
    found = "1 value" if len(tokens) == 1 else f"{len(tokens)} values"
    return f"{found}: {shown_line(b' '.join(tokens))!r}"


def _count_reason(tokens: list[bytes]) -> str:
    """Why a line of this many values is none of those that are known."""
    problem = separator_problem(tokens, lambda count: count >= 5)
    if problem:
        return problem
    if len(tokens) == 6:
        return (
            f"{_count_text(tokens)}; a box and a confidence is a prediction, not an annotation; "
            "expected 5. Remove the last column if it is to be taken"
        )
    reason = f"{_count_text(tokens)}; expected 5 for a box, or 7, 9, 11, ... for an outline"
    if len(tokens) < 5:
        reason += f". {5 - len(tokens)} of class, x centre, y centre, width and height missing"
    if len(tokens) > 6:
        reason += ". If these are keypoints, say how many in data.yaml, as kpt_shape"
    return reason
