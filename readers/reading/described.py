"""A dataset in a line: what is asked for, and what its samples are."""

from __future__ import annotations

from readers.reading.view import StoreView
from readers.store.schema import Field

_SIDES = ("height", "width", "channel")


def described(view: StoreView, count: int) -> str:
    """What a dataset is, for people.

    Args:
        view: Its samples and fields.
        count: How many samples there are.
    """
    schema = view.store.manifest.schema
    fields = ", ".join(_field(schema[name], view) for name in view.result_names)
    settings = {"split": view.split, "image_as": view.image_as, "io": view.io}
    usual = {"split": None, "image_as": "tensor", "io": "auto"}
    said = [f", {name}={value!r}" for name, value in settings.items() if value != usual[name]]
    form = "" if view.returns is None else ", as tuples"
    what = f"{count:,} samples of {fields or 'nothing'}{form}"
    return f"LMDBDataset({view.path!r}{''.join(said)}): {what}"


def _field(field: Field, view: StoreView) -> str:
    """A field's name, and what is worth knowing of it."""
    if field.kind == "image":
        sides = [
            name if side is None else side for name, side in zip(_SIDES, field.shape, strict=True)
        ]
        if view.image_as in ("tensor", "tv_tensor"):
            sides = [sides[2], *sides[:2]]
        return f"{field.name} ({', '.join(map(str, sides))}) {field.dtype or 'of any depth'}"
    if field.names is not None and field.kind in ("label", "mask"):
        return f"{field.name} ({len(field.names)} classes)"
    return field.name
