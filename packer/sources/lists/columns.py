"""What the columns of a list mean, by their names alone.

Names are compared without case, blanks, underscores and hyphens. Where a list has several columns
of one meaning, the first name given here is taken. Columns inside of records (`objects.bbox`) are
those of objects when the record is called so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

# A full path says more than a name, and a name more than an id.
PATH_COLUMNS = (
    "path",
    "filepath",
    "file_path",
    "image_path",
    "img_path",
    "file_name",
    "filename",
    "image_name",
    "img_name",
    "file",
    "image",
    "img",
    "image_id",
)
LABEL_COLUMNS = (
    "label",
    "class",
    "category",
    "target",
    "label_name",
    "class_name",
    "category_name",
    "target_name",
    "cell_type",
    "object_class",
)
LABEL_LIST_COLUMNS = ("labels", "classes", "categories", "label_names", "class_names")
SPLIT_COLUMNS = ("split", "subset")
MASK_COLUMNS = ("mask", "mask_path", "mask_file", "mask_name", "mask_file_name")
CAPTION_COLUMNS = ("caption", "text", "description", "sentence")
WIDTH_COLUMNS = ("width", "image_width", "img_width", "original_width")
HEIGHT_COLUMNS = ("height", "image_height", "img_height", "original_height")
OUTLINE_COLUMNS = ("segmentation", "rle", "encoded_pixels", "polygon", "polygons")
"""Outlines of objects, which lists have in no common form."""

OBJECT_RECORDS = ("objects", "annotations", "instances", "boxes", "bboxes")
"""Records that hold columns of objects."""

BoxForm = Literal["corners", "size", "centre", "open"]
"""What the four numbers of a box are: x0 y0 x1 y1; x0 y0 width height; the centre and width height;
or one of the first two, which the name leaves open."""

_CORNER_NAMES = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("left", "top", "right", "bottom"),
    ("x0", "y0", "x1", "y1"),
    ("x1", "y1", "x2", "y2"),
)
_SIDES = (("w", "h"), ("width", "height"))
_ORIGINS = (("x1", "y1"), ("x0", "y0"), ("xmin", "ymin"), ("left", "top"), ("x", "y"))
_CENTRES = (("cx", "cy"), ("xc", "yc"), ("xcenter", "ycenter"), ("centerx", "centery"))
_BOX_NAMES: tuple[tuple[tuple[str, ...], BoxForm], ...] = (
    *((names, "corners") for names in _CORNER_NAMES),
    *(((*origin, *sides), "size") for origin in _ORIGINS for sides in _SIDES),
    *(((*centre, *sides), "centre") for centre in _CENTRES for sides in _SIDES),
)
"""Columns that are a box together, in the order in which its numbers are read."""

_ONLY_OF_BOXES = frozenset(
    ("xmin", "xmax", "ymin", "ymax", *(f"{axis}{n}" for axis in "xy" for n in range(9)))
)
"""Names that belong to a box even where the rest of it is missing."""

_PARTS = frozenset(name for names, _ in _BOX_NAMES for name in names) | _ONLY_OF_BOXES
_BOX_LISTS: dict[str, BoxForm] = {"bbox": "open", "bboxes": "open", "box": "open"}
_FORM_ENDINGS: dict[str, BoxForm] = {"xyxy": "corners", "xywh": "size", "cxcywh": "centre"}
_SHARE_ENDING = re.compile(r"(.*?)(?:rel|relative|norm|normalized|normalised)")


@dataclass(frozen=True, kw_only=True)
class BoxColumns:
    """Where a row has its boxes.

    Attributes:
        positions: Of the four columns of a box; or of one column that holds one box or several.
        form: What the four numbers are.
        is_relative: Whether they are shares of the picture's sides, as the names say.
        label: Position of a column that belongs to them, within the same records; or None.
    """

    positions: tuple[int, ...]
    form: BoxForm
    is_relative: bool = False
    label: int | None = None


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What the columns of a list mean; positions in `names`, or None.

    Attributes:
        delimiter: Of a text list: "," or ";" or tab.
        names: As written, without surrounding blanks.
        path: The picture's path.
        label: Of the one label of a row.
        labels: Of a list of labels.
        split: Name of the split.
        mask: Path of a mask file.
        caption: Text about the picture.
        size: Of the picture's width and height.
        boxes: Names of the columns that hold boxes, or parts of them.
        box: Where a row has its boxes; None when it has none, or they are not whole.
        box_problem: Why the columns of boxes cannot be read; empty when they can.
        masks: Names of the columns that hold masks or outlines.
        outlines: Those of `masks` that no source of lists reads.
    """

    delimiter: str = ","
    names: tuple[str, ...]
    path: int | None
    label: int | None
    labels: int | None
    split: int | None
    mask: int | None
    caption: int | None
    size: tuple[int, int] | None
    boxes: tuple[str, ...]
    box: BoxColumns | None
    box_problem: str
    masks: tuple[str, ...]
    outlines: tuple[str, ...]

    @property
    def says_something(self) -> bool:
        """Whether a row says more about a picture than where it is."""
        meanings = (self.label, self.labels, self.mask, self.caption)
        return bool(self.boxes) or any(position is not None for position in meanings)


def columns_of(names: Sequence[str], delimiter: str = ",") -> Columns:
    """Decide what columns of these names mean."""
    names = [name.strip() for name in names]
    bare = [_bare(name) for name in names]
    inner = [_bare_in_record(name) for name in names]
    box, box_names, problem = _find_box(names, bare, inner)
    size = None
    width, height = _first(WIDTH_COLUMNS, bare), _first(HEIGHT_COLUMNS, bare)
    if width is not None and height is not None:
        size = (width, height)
    if box is not None and size is not None and set(size) & set(box.positions):
        size = None
    mask = _first(MASK_COLUMNS, bare)
    outlines = tuple(
        name
        for name, plain, in_record in zip(names, bare, inner, strict=True)
        if {plain, in_record} & {_bare(column) for column in OUTLINE_COLUMNS}
    )
    return Columns(
        delimiter=delimiter,
        names=tuple(names),
        path=_first(PATH_COLUMNS, bare),
        label=_first(LABEL_COLUMNS, bare),
        labels=_first(LABEL_LIST_COLUMNS, bare),
        split=_first(SPLIT_COLUMNS, bare),
        mask=mask,
        caption=_first(CAPTION_COLUMNS, bare),
        size=size,
        boxes=box_names,
        box=box,
        box_problem=problem,
        masks=(*((names[mask],) if mask is not None else ()), *outlines),
        outlines=outlines,
    )


def _bare(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).lower()


def _bare_in_record(name: str) -> str:
    """Name of a column inside a record of objects; empty for one that is not."""
    record, dot, column = name.rpartition(".")
    return _bare(column) if dot and _bare(record) in OBJECT_RECORDS else ""


def _first(wanted: Iterable[str], bare: Sequence[str]) -> int | None:
    plain = (_bare(column) for column in wanted)
    return next((bare.index(column) for column in plain if column in bare), None)


def _find_box(
    names: Sequence[str], bare: Sequence[str], inner: Sequence[str]
) -> tuple[BoxColumns | None, tuple[str, ...], str]:
    """Columns of boxes, the names of all columns that are about boxes, and what is wrong."""
    found: list[BoxColumns] = []
    positions = {part: n for n, part in reversed(list(enumerate(map(_part, bare)))) if part[0]}
    about = {n for (part, _), n in positions.items() if part in _ONLY_OF_BOXES}
    for is_relative in (False, True):
        for parts, form in _BOX_NAMES:
            if all((part, is_relative) in positions for part in parts):
                places = tuple(positions[part, is_relative] for part in parts)
                found.append(BoxColumns(positions=places, form=form, is_relative=is_relative))
                about.update(places)
                break
    label = _first((*LABEL_COLUMNS, *LABEL_LIST_COLUMNS, "name", "names"), inner)
    for n, (outer_name, inner_name) in enumerate(zip(bare, inner, strict=True)):
        whole = _box_list(inner_name or outer_name)
        if whole is not None:
            form, is_relative = whole
            if inner_name and form == "open":
                # Hugging Face: boxes of objects are COCO's.
                form = "size"
            owned = label if inner_name else None
            about.add(n)
            found.append(
                BoxColumns(positions=(n,), form=form, is_relative=is_relative, label=owned)
            )
    box_names = tuple(names[n] for n in sorted(about))
    shown = ", ".join(map(repr, box_names))
    if not about:
        return None, (), ""
    if len(found) == 1 and about == set(found[0].positions):
        return found[0], box_names, ""
    if found:
        return None, box_names, f"the columns {shown} hold more than one box of four numbers"
    return None, box_names, f"the columns {shown} are not a whole box"


def _part(bare: str) -> tuple[str, bool]:
    """The part of a box that a name means, and whether as a share of the side; or an empty one."""
    share = _SHARE_ENDING.fullmatch(bare)
    for name, is_relative in ((bare, False), (share.group(1) if share else "", True)):
        for plain in (name, name.removeprefix("bbox"), name.removeprefix("box")):
            if plain in _PARTS:
                return plain, is_relative
    return "", False


def _box_list(bare: str) -> tuple[BoxForm, bool] | None:
    """Form of the boxes in a column of this name, and whether they are shares; None for none."""
    share = _SHARE_ENDING.fullmatch(bare)
    for name, is_relative in ((bare, False), (share.group(1) if share else "", True)):
        if name == "boxes":
            # As readers.LMDBDataset and torchvision have them.
            return "corners", is_relative
        if name in _BOX_LISTS:
            return _BOX_LISTS[name], is_relative
        for ending, form in _FORM_ENDINGS.items():
            if name.removesuffix(ending) in (*_BOX_LISTS, "boxes") and name.endswith(ending):
                return form, is_relative
    return None
