"""COCO's categories: ids with holes, in any order, that become labels without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from packer.errors import SourceError
from packer.sources.class_names import ClassNames
from packer.sources.coco.document import (
    CocoCategory,
    CocoCategoryOf,
    CocoFile,
    Id,
    is_unicode,
    known_id,
)
from packer.wording import count_text, names_text
from readers.store.wording import few_text


@dataclass(frozen=True)
class Category:
    """One category of one file.

    Attributes:
        id: As the file has it.
        name: The class's name.
        keypoints: Names of its points, or None.
        skeleton: Pairs of points, counted from 1, with a line between.
        isthing: Whether it is counted (a car) rather than measured (sky); None: not said.
    """

    id: Id
    name: str
    keypoints: tuple[str, ...] | None = None
    skeleton: tuple[tuple[int, int], ...] = ()
    isthing: bool | None = None


@dataclass(frozen=True)
class Classes:
    """Labels for all files that are read together.

    Attributes:
        names: Class names in label order.
        categories: Of each label its category, where a file has it, in the first such file.
        by_file: Of each file, by its path, its categories by id.
        labels: Of each file, by its path, the label of each category id that has one.
        notes: What was odd.
    """

    names: ClassNames
    categories: dict[int, Category]
    by_file: dict[bytes, dict[Id, Category]]
    labels: dict[bytes, dict[Id, int]]
    notes: list[str] = field(default_factory=list)

    def label_or_problem(self, path: bytes, category_id: Id | None) -> tuple[int, str]:
        """(label, ""), or (-1, why an annotation of the category is rejected).

        Args:
            path: Of the file that the category is of.
            category_id: As an annotation has it.
        """
        label = self.labels[path].get(category_id, -1) if category_id is not None else -1
        if label >= 0:
            return label, ""
        category = self.by_file[path].get(category_id) if category_id is not None else None
        if category is None:
            known = few_text(list(self.by_file[path]), 10)
            return (
                -1,
                f"category {category_id!r} is not one of the file's: {known or 'it has none'}",
            )
        return -1, self.names.unknown_reason(category.name)


def read_classes(files: Sequence[CocoFile], given: tuple[str, ...] | None) -> Classes:
    """The classes of the files: by category id, or as given by the user.

    Files are joined by the names of their classes: what is called alike is one class, whatever id
    it has in each file. It stands at the place of its lowest id.

    Raises:
        SourceError: A category has no id or name, an id is listed twice, or a name
            is, and both are used.
    """
    notes: list[str] = []
    by_file = {coco_file.path: read_categories(coco_file, notes) for coco_file in files}
    lowest: dict[str, Id] = {}
    for categories in by_file.values():
        for category in categories.values():
            known = lowest.get(category.name)
            if known is None or _id_order(category.id) < _id_order(known):
                lowest[category.name] = category.id
            if known is not None and known != category.id:
                notes.append(
                    f"class {category.name!r} has category ids {known!r} and {category.id!r} in "
                    "different files; files are joined by the names of classes"
                )
    in_order = tuple(sorted(lowest, key=lambda name: (_id_order(lowest[name]), name)))
    names = ClassNames(in_order) if given is None else ClassNames(given, are_given=True)
    first: dict[int, Category] = {}
    labels: dict[bytes, dict[Id, int]] = {}
    for path, categories in by_file.items():
        labels[path] = {}
        for category in categories.values():
            label = names.label(category.name)
            if label is not None:
                first.setdefault(label, category)
                labels[path][category.id] = label
    return Classes(names, first, by_file, labels, list(dict.fromkeys(notes)))


def class_choices(classes: Classes) -> dict[str, str]:
    """What a store keeps of the categories: the id of each label, and which are things.

    A label without a category has `-`.
    """
    labels = range(len(classes.names.names))
    categories = [classes.categories.get(label) for label in labels]
    choices = {"category_ids": ",".join("-" if c is None else str(c.id) for c in categories)}
    if any(c is not None and c.isthing is not None for c in categories):
        choices["isthing"] = ",".join(
            "-" if c is None or c.isthing is None else str(int(c.isthing)) for c in categories
        )
    return choices


@dataclass(frozen=True)
class Pose:
    """The points that objects have.

    Attributes:
        point_count: How many; 0: the categories do not say.
        names: Of the points, or None.
        skeleton: Pairs of points, counted from 1, with a line between.
    """

    point_count: int = 0
    names: tuple[str, ...] | None = None
    skeleton: tuple[tuple[int, int], ...] = ()


def read_pose(categories: Iterable[Category]) -> Pose:
    """The points that the categories agree on."""
    posed = [category for category in categories if category.keypoints is not None]
    names = {category.keypoints for category in posed}
    counts = {len(found) for found in names if found is not None}
    return Pose(
        counts.pop() if len(counts) == 1 else 0,
        names.pop() if len(names) == 1 else None,
        next((category.skeleton for category in posed if category.skeleton), ()),
    )


def unused_note(classes: Classes, used: Iterable[int]) -> str | None:
    """One line for classes without an annotation, or None."""
    unused = sorted(set(classes.categories) - set(used))
    if not unused:
        return None
    names = names_text(classes.names.names[label] for label in unused)
    return f"{count_text(len(unused), 'class')} without an annotation, kept: {names}"


def _id_order(category_id: Id) -> tuple[bool, int, str]:
    """Numbers by size, then text."""
    if isinstance(category_id, int):
        return False, category_id, ""
    return True, 0, category_id


def read_categories(coco_file: CocoFile, notes: list[str]) -> dict[Id, Category]:
    """The categories of one file by id, in the order of ids, each name once.

    Args:
        coco_file: The file.
        notes: Takes what is odd.

    Raises:
        SourceError: See `read_classes`.
    """
    found: dict[Id, Category] = {}
    for position, (entry, problem) in enumerate(
        coco_file.entries(coco_file.categories, CocoCategory)
    ):
        place = f"{coco_file.name}, categories[{position}]"
        if entry is None:
            raise SourceError(f"{place}: {problem}. Correct the entry.")
        category_id, name = known_id(entry.id), "" if entry.name is None else str(entry.name)
        if category_id is None or not name.strip():
            raise SourceError(
                f"{place}: id {entry.id!r} and name {entry.name!r}; expected both. Correct the "
                "entry."
            )
        if not is_unicode(name):
            raise SourceError(f"{place}: name {name!r} is not Unicode text. Correct the entry.")
        if category_id in found and found[category_id].name != name:
            raise SourceError(
                f"{place}: id {category_id!r} is {name!r} here and {found[category_id].name!r} "
                "before; expected one meaning. Correct the entry."
            )
        found[category_id] = Category(
            category_id,
            name,
            _point_names(entry),
            _lines(entry),
            None if entry.isthing is None else bool(entry.isthing),
        )
    found = dict(sorted(found.items(), key=lambda item: _id_order(item[0])))
    name_counts = Counter(category.name for category in found.values())
    if max(name_counts.values(), default=0) > 1:
        used = _used_ids(coco_file)
        for name in [name for name, count in name_counts.items() if count > 1]:
            found = _without_unused(coco_file, name, found, used, notes)
    return found


def _without_unused(
    coco_file: CocoFile,
    name: str,
    found: dict[Id, Category],
    used: set[Id | None],
    notes: list[str],
) -> dict[Id, Category]:
    """The categories with one of the given name, the one that annotations use."""
    alike = [category.id for category in found.values() if category.name == name]
    taken = [category_id for category_id in alike if category_id in used]
    if len(taken) > 1:
        ids = " and ".join(map(repr, taken))
        raise SourceError(
            f"{coco_file.name}: categories {ids} are both called {name!r}, and both have "
            "annotations; expected a name for each. Rename one, or join them."
        )
    kept = taken[0] if taken else alike[0]
    dropped = [category_id for category_id in alike if category_id != kept]
    shown = ", ".join(map(repr, dropped))
    notes.append(
        f"{coco_file.name}: category {shown} is called {name!r} like category {kept!r} and has no "
        "annotation; left out"
    )
    return {i: category for i, category in found.items() if i not in dropped}


def _used_ids(coco_file: CocoFile) -> set[Id | None]:
    entries = coco_file.entries(coco_file.annotations, CocoCategoryOf)
    return {known_id(entry.category_id) for entry, _ in entries if entry is not None}


def _point_names(entry: CocoCategory) -> tuple[str, ...] | None:
    names = entry.keypoints
    if not isinstance(names, list) or not names:
        return None
    if any(not isinstance(name, str) or not is_unicode(name) for name in names):
        return None
    return tuple(names)


def _lines(entry: CocoCategory) -> tuple[tuple[int, int], ...]:
    lines = entry.skeleton if isinstance(entry.skeleton, list) else []
    return tuple(
        (line[0], line[1])
        for line in lines
        if isinstance(line, list) and len(line) == 2 and all(type(end) is int for end in line)
    )
