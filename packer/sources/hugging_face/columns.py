"""What the columns of a Hugging Face data set mean: by its features, else by name and type."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from packer.files.arrow import image_value_type, load_pyarrow

LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "category", "target")
_IMAGE_COLUMNS = ("image", "img", "picture", "photo")
_BOX_KEYS = ("bbox", "bboxes", "boxes", "box")
_CATEGORY_KEYS = ("category", "categories", "category_id", "label", "labels", "class", "classes")
_AREA_KEYS = ("area",)
_CROWD_KEYS = ("iscrowd", "is_crowd")
_RESERVED = frozenset(
    b"key image label labels boxes area iscrowd difficult truncated masks attributes keypoints "
    b"image_id original_size transform split valid".split()
)


@dataclass(frozen=True)
class ObjectColumns:
    """Names inside the column of objects: struct of lists, or list of structs."""

    column: str
    boxes: str
    category: str
    category_names: tuple[str, ...] | None
    area: str | None
    iscrowd: str | None
    unread: tuple[str, ...]


@dataclass(frozen=True)
class Columns:
    """Which column is what.

    Attributes:
        image: Name of the column of images.
        image_type: "struct" or "bytes".
        has_path: Whether an image has a path beside its bytes.
        label: Name of the column of labels, or None.
        label_names: Their names, where the data says them.
        objects: The column of boxes, or None.
        image_id: Whether there is a column `image_id` of whole numbers.
        has_size: Whether there are columns `width` and `height`.
        texts: (column, field) of each column of text.
        numbers: (column, field, names) of further class labels.
        unread: Columns that are not read.
    """

    image: str
    image_type: str
    has_path: bool
    label: str | None
    label_names: tuple[str, ...] | None
    objects: ObjectColumns | None
    image_id: bool
    has_size: bool
    texts: tuple[tuple[str, str], ...]
    numbers: tuple[tuple[str, str, tuple[str, ...]], ...]
    unread: tuple[str, ...]

    @property
    def read(self) -> list[str]:
        """All columns to read, but for the images."""
        names = [self.label, self.objects.column if self.objects else None]
        names += ["image_id"] if self.image_id else []
        names += ["width", "height"] if self.has_size else []
        names += [column for column, _ in self.texts] + [column for column, *_ in self.numbers]
        return [name for name in names if name is not None]


def columns_of(schema: Any, info: Any) -> Columns | None:
    """What the columns of an Arrow schema mean, or None when none holds images.

    Args:
        schema: A `pyarrow.Schema`, whose metadata may hold the features.
        info: Content of a dataset_info.json, used when it does not; or None.
    """
    types = load_pyarrow("pyarrow.types")
    features = _features(schema, info)
    arrow_types = {field.name: field.type for field in schema}
    image = _image_column(arrow_types, features)
    if image is None:
        return None
    image_type = image_value_type(arrow_types[image])
    objects = next(
        (
            found
            for name, arrow_type in arrow_types.items()
            if (found := _object_columns(name, arrow_type, features.get(name))) is not None
        ),
        None,
    )
    class_labels = {
        name: names
        for name in arrow_types
        if types.is_integer(arrow_types[name])
        and (names := _label_names(features.get(name))) is not None
    }
    label = next((name for name in LABEL_COLUMNS if name in class_labels), None)
    if label is None:
        label = next(iter(class_labels), None)
    if label is None:
        label = next(
            (
                name
                for name in LABEL_COLUMNS
                if name in arrow_types
                and (types.is_integer(arrow_types[name]) or _is_text(arrow_types[name]))
            ),
            None,
        )
    image_id = "image_id" in arrow_types and types.is_integer(arrow_types["image_id"])
    has_size = objects is not None and all(
        side in arrow_types and types.is_integer(arrow_types[side]) for side in ("width", "height")
    )
    taken: set[str] = set()
    texts = tuple(
        (name, field_name(name, taken))
        for name, arrow_type in arrow_types.items()
        if _is_text(arrow_type) and name not in (image, label)
    )
    numbers = tuple(
        (name, field_name(name, taken), names)
        for name, names in class_labels.items()
        if name != label
    )
    columns = Columns(
        image=image,
        image_type=image_type,
        has_path=image_type == "struct" and "path" in _struct_names(arrow_types[image]),
        label=label,
        label_names=class_labels.get(label) if label is not None else None,
        objects=objects,
        image_id=image_id,
        has_size=has_size,
        texts=texts,
        numbers=numbers,
        unread=(),
    )
    read = {image, *columns.read}
    unread = [name for name in arrow_types if name not in read]
    if objects is not None:
        unread += [f"{objects.column}.{key}" for key in objects.unread]
    return Columns(**{**vars(columns), "unread": tuple(unread)})


def _features(schema: Any, info: Any) -> dict[str, Any]:
    """Features by column; empty when the data does not say them."""
    written = (schema.metadata or {}).get(b"huggingface")
    if written is not None:
        try:
            content = json.loads(written)
        except (ValueError, RecursionError):
            content = None
        inner = content.get("info") if isinstance(content, dict) else None
        features = inner.get("features") if isinstance(inner, dict) else None
        if isinstance(features, dict):
            return features
    features = info.get("features") if isinstance(info, dict) else None
    return features if isinstance(features, dict) else {}


def _image_column(arrow_types: dict[str, Any], features: dict[str, Any]) -> str | None:
    """The column of images: by feature, else by type; of several, the one called so."""
    able = [name for name in arrow_types if image_value_type(arrow_types[name])]
    declared = [
        name
        for name in able
        if isinstance(features.get(name), dict) and features[name].get("_type") == "Image"
    ]
    structs = [name for name in able if "path" in _struct_names(arrow_types[name])]
    for candidates in (declared, structs, [name for name in able if name in _IMAGE_COLUMNS]):
        if candidates:
            return next((name for name in _IMAGE_COLUMNS if name in candidates), candidates[0])
    return None


def _struct_names(arrow_type: Any) -> list[str]:
    if not load_pyarrow("pyarrow.types").is_struct(arrow_type):
        return []
    return [arrow_type.field(position).name for position in range(arrow_type.num_fields)]


def _is_text(arrow_type: Any) -> bool:
    types = load_pyarrow("pyarrow.types")
    return bool(types.is_string(arrow_type) or types.is_large_string(arrow_type))


def _object_columns(name: str, arrow_type: Any, feature: Any) -> ObjectColumns | None:
    """What a column of objects holds, or None when it is none."""
    types = load_pyarrow("pyarrow.types")
    if types.is_list(arrow_type) or types.is_large_list(arrow_type):
        arrow_type = arrow_type.value_type
    keys = _struct_names(arrow_type)
    boxes = next((key for key in _BOX_KEYS if key in keys), None)
    category = next((key for key in _CATEGORY_KEYS if key in keys), None)
    if boxes is None or category is None:
        return None
    area = next((key for key in _AREA_KEYS if key in keys), None)
    iscrowd = next((key for key in _CROWD_KEYS if key in keys), None)
    return ObjectColumns(
        column=name,
        boxes=boxes,
        category=category,
        category_names=_label_names(_inner_features(feature).get(category)),
        area=area,
        iscrowd=iscrowd,
        unread=tuple(key for key in keys if key not in (boxes, category, area, iscrowd)),
    )


def _inner_features(feature: Any) -> dict[str, Any]:
    """Features by key of a struct, also of one in a list, however it is written."""
    for _ in range(4):
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif isinstance(feature, dict) and "_type" in feature and "feature" in feature:
            feature = feature["feature"]
    return feature if isinstance(feature, dict) else {}


def _label_names(feature: Any) -> tuple[str, ...] | None:
    """Class names of a feature that is a ClassLabel or a list of them; else None."""
    feature = _inner_features(feature)
    names = feature.get("names") if feature.get("_type") == "ClassLabel" else None
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        return None
    return tuple(names) if len(set(names)) == len(names) else None


def field_name(column: str, taken: set[str], suffix: str = "text") -> str:
    """A name that a field may have: lower case, and none that is taken.

    Args:
        column: As the data calls it.
        taken: Names that other columns have; this one is added.
        suffix: What tells it from a field of ours that is called so.
    """
    plain = re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")[:50]
    if not plain or not plain[0].isalpha():
        plain = f"column_{plain}".rstrip("_")
    if plain.encode() in _RESERVED and plain != column:
        plain = f"{plain}_column"
    elif plain.encode() in _RESERVED and plain != "image_id":
        plain = f"{plain}_{suffix}"
    field, number = plain, 2
    while field in taken:
        field, number = f"{plain}_{number}", number + 1
    taken.add(field)
    return field
