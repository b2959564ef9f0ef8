"""Which keypoints are joined by a line, where their names tell what they are."""

from __future__ import annotations

from collections.abc import Sequence

_PERSON_POINTS = (
    *("nose", "left_eye", "right_eye", "left_ear", "right_ear"),
    *("left_shoulder", "right_shoulder", "left_elbow", "right_elbow", "left_wrist", "right_wrist"),
    *("left_hip", "right_hip", "left_knee", "right_knee", "left_ankle", "right_ankle"),
)
"""COCO's 17 points of a person, in its order."""

_LIMBS = (
    ("ankle", "knee"),
    ("knee", "hip"),
    ("hip", "shoulder"),
    ("shoulder", "elbow"),
    ("elbow", "wrist"),
    ("eye", "ear"),
    ("ear", "shoulder"),
    ("knee", "hoof"),
    ("wrist", "hand"),
    ("ankle", "foot"),
)
"""Joined on either side of the body."""

_ACROSS = ("hip", "shoulder", "eye")
"""Joined from the left to the right."""

_MIDDLE = (
    ("nose", "left_eye"),
    ("nose", "right_eye"),
    ("head", "neck"),
    ("nose", "neck"),
    ("neck", "left_shoulder"),
    ("neck", "right_shoulder"),
)


def joined_points(
    names: Sequence[str] | None, point_count: int, classes: Sequence[str]
) -> list[tuple[int, int]]:
    """Pairs of points that are joined; none where it is not known what the points are.

    Args:
        names: The points' names, when they have any.
        point_count: How many points an object has.
        classes: The store's classes: 17 points without names are COCO's where one is a person.
    """
    if names is None:
        has_people = any(name.strip().lower() in ("person", "people", "human") for name in classes)
        if point_count != len(_PERSON_POINTS) or not has_people:
            return []
        names = _PERSON_POINTS
    plain = (name.strip().lower().replace(" ", "_").replace("-", "_") for name in names)
    places = {name: number for number, name in enumerate(plain)}
    pairs = [(f"{side}_{a}", f"{side}_{b}") for side in ("left", "right") for a, b in _LIMBS]
    pairs += [(f"left_{part}", f"right_{part}") for part in _ACROSS]
    pairs += _MIDDLE
    return sorted((places[a], places[b]) for a, b in pairs if a in places and b in places)
