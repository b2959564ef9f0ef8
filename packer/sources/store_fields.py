"""Fields of samples that stores of other tools keep by name: which is the label, and the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from packer.sources.hugging_face.columns import LABEL_COLUMNS, field_name
from packer.wording import names_text
from readers.store.schema import Field

ValueForm = Literal["int", "float", "text", "json"]
"""What the values of a column are."""

IMAGE_COLUMNS = ("image", "images", "img", "picture", "photo", "x", "data", "jpg", "png")
"""Names of the column of images, where several may be it."""

_LABELS = (*LABEL_COLUMNS, "y", "cls", "lbl")
"""Names of the column of labels, the likeliest first."""

_FIELD_OF: dict[ValueForm, tuple[Literal["scalar", "text", "json"], str | None]] = {
    "int": ("scalar", "int64"),
    "float": ("scalar", "float64"),
    "text": ("text", None),
    "json": ("json", None),
}


@dataclass(frozen=True, kw_only=True)
class StoreFields:
    """What columns become.

    Attributes:
        image: The column of images.
        label: The column of labels, or None.
        others: (column, field's name) of each other that is read.
        fields: Those of `others`.
        unread: Columns that are not read.
    """

    image: str
    label: str | None
    others: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = field(default=())
    unread: tuple[str, ...] = ()

    def notes(self) -> list[str]:
        """What a user should know of the columns."""
        return [f"columns not read: {names_text(self.unread)}"] if self.unread else []


def image_column(names: Sequence[str]) -> str:
    """The column of images among those that may be: the one that is called so, or the first."""
    return next((name for name in IMAGE_COLUMNS if name in names), names[0])


def store_fields(
    image: str, forms: Iterable[tuple[str, ValueForm | None]], able_labels: Sequence[str]
) -> StoreFields:
    """What the columns of a store become.

    Args:
        image: The column of images.
        forms: What each column holds, in their order; None for what is not read.
        able_labels: Columns of a form that labels may have.
    """
    label = next((name for name in _LABELS if name in able_labels), None)
    taken: set[str] = set()
    others, fields, unread = [], [], []
    for name, form in forms:
        if name in (image, label):
            continue
        if form is None:
            unread.append(name)
            continue
        kind, dtype = _FIELD_OF[form]
        known = field_name(name, taken, suffix=kind)
        others.append((name, known))
        fields.append(Field(name=known, kind=kind, dtype=dtype))
    return StoreFields(
        image=image,
        label=label,
        others=tuple(others),
        fields=tuple(fields),
        unread=tuple(unread),
    )
