"""A look into some of the masks: whether they hold values or colours, and which field that makes.

This is the one place where a source reads pixels: names do not tell a mask of values from a painted
one. What is decided here is checked on every single mask when it is packed
(`packer.files.masks`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from packer.errors import SourceError
from packer.files.masks import Color, color_codes, color_of, colors_text, decode_mask, distinct
from packer.files.sizes import picture_bytes_max
from packer.items.raw_item import RawFile
from packer.raw.files import RawFileError, read_raw_file
from packer.recipe import Recipe
from packer.sources.masks.label_map import IGNORE, LABEL_MAP_NAMES, LabelMap
from packer.wording import count_text, names_text, readable_path
from readers.store.errors import ImageError
from readers.store.schema import Field
from readers.store.wording import few_text

SAMPLED_MAX = 64
"""How many masks are looked at, evenly spaced over all. Their values decide."""

_EQUAL_CHANNELS: tuple[Color, ...] = tuple((n, n, n) for n in range(256))
"""The table of colours of masks that write each value three times."""

_SHOWN_MAX = 8


@dataclass(frozen=True, kw_only=True)
class MaskDecision:
    """How all masks of a source are read.

    Attributes:
        field: The field that they make.
        colors: Colour of each value where they are painted, for `Scan.mask_colors`.
        classes: Names of the values, or empty.
        notes: What was seen and decided.
        choices: What was decided where the masks leave it open, for `Scan.choices`.
    """

    field: Field
    colors: tuple[Color, ...] = ()
    classes: tuple[str, ...] = ()
    notes: list[str]
    choices: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What one mask holds.

    Attributes:
        place: Its path, as a message names it.
        kind: "gray", "palette" or "colors".
        colors: Number of the colour of each value; for colours, their numbers alone.
        is_deep: Whether it has 16 bits.
        text: Its colours for a message, where it holds colours.
    """

    place: str
    kind: str
    colors: dict[int, int]
    is_deep: bool = False
    text: str = ""


def decide_masks(
    root: Path,
    files: Sequence[RawFile],
    maps: Sequence[LabelMap],
    classes: tuple[str, ...] | None,
    *,
    name: str = "mask",
) -> MaskDecision:
    """Look at some masks, and decide what their values are and mean.

    Values are kept as found. 255 is to be ignored only where a label map says so, or where values
    other than 0 and 255 are there as well; 0 and 255 alone are a binary mask.

    Args:
        root: Folder that the paths are relative to.
        files: All masks.
        maps: From `find_label_maps`, those that say more first.
        classes: Names that the user gave, or None.
        name: The field's name.

    Raises:
        SourceError: None of the masks can be read; they are painted, and no label map says what
            the colours mean; or label map or classes do not fit a single one of them.
    """
    seen, unreadable = _look(root, files)
    if not seen:
        place, reason = unreadable[0]
        raise SourceError(
            f"{place}: {reason}. None of the {count_text(len(unreadable), 'mask')} that were "
            "looked at can be read."
        )
    notes = [
        f"{place} cannot be read as a mask, and will be rejected: {reason}"
        for place, reason in unreadable[:3]
    ]
    map_of_colors = next((label_map for label_map in maps if label_map.colors), None)
    painted = [mask for mask in seen if mask.kind == "colors"]
    if map_of_colors is not None and (painted or _means_colors(seen, map_of_colors)):
        decision = _painted(seen, map_of_colors, classes, name)
    else:
        decision = _valued(seen, painted, maps, classes, name)
    kinds = " and ".join(sorted({_KINDS[mask.kind] for mask in seen}))
    notes.insert(0, f"looked into {len(seen)} of {count_text(len(files), 'mask')}: {kinds}")
    notes += decision.notes
    return MaskDecision(
        field=decision.field,
        colors=decision.colors,
        classes=decision.field.names or (),
        notes=notes,
        choices=decision.choices,
    )


_KINDS = {"gray": "values of gray", "palette": "positions in a palette", "colors": "RGB"}


def _look(root: Path, files: Sequence[RawFile]) -> tuple[list[_Seen], list[tuple[str, str]]]:
    """What some of the files hold, and which of them cannot be read and why."""
    seen: list[_Seen] = []
    unreadable: list[tuple[str, str]] = []
    count = min(SAMPLED_MAX, len(files))
    for n in range(count):
        file = files[n * len(files) // count]
        place = readable_path(file.path)
        try:
            data = read_raw_file(os.fsencode(root), file, picture_bytes_max())
            seen.append(_seen(data, place))
        except (RawFileError, ImageError) as error:
            unreadable.append((place, str(error)))
    return seen, unreadable


def _seen(data: bytes, place: str) -> _Seen:
    pixels = decode_mask(data, Recipe.pixels_max)
    if pixels.ids is None:
        codes, _ = distinct(color_codes(pixels))
        return _Seen(
            place=place,
            kind="colors",
            colors={int(code): int(code) for code in codes},
            text=colors_text(pixels),
        )
    values, _ = distinct(pixels.ids)
    palette = pixels.palette
    colors = {}
    for value in map(int, values):
        known = palette is None or value < len(palette)
        gray = (value, value, value)
        r, g, b = gray if palette is None else map(int, palette[value]) if known else (0, 0, 0)
        colors[value] = r << 16 | g << 8 | b
    is_deep = pixels.ids.dtype != np.uint8
    kind = "gray" if palette is None else "palette"
    return _Seen(place=place, kind=kind, colors=colors, is_deep=is_deep)


def _means_colors(seen: list[_Seen], label_map: LabelMap) -> bool:
    """Whether masks without RGB have the colours of a label map rather than its values.

    Tools that make files smaller write a painted mask with a palette of their own order, and one
    in black and white as gray.
    """
    table = [r << 16 | g << 8 | b for r, g, b in label_map.colors]
    pairs = {pair for mask in seen for pair in mask.colors.items()}
    if any(mask.is_deep for mask in seen) or not {code for _, code in pairs} <= set(table):
        return False
    are_values = all(value < len(table) for value, _ in pairs)
    agree = are_values and all(table[value] == code for value, code in pairs)
    return not agree and (not are_values or any(mask.kind == "palette" for mask in seen))


def _painted(
    seen: list[_Seen], label_map: LabelMap, classes: tuple[str, ...] | None, name: str
) -> MaskDecision:
    """Masks whose colours a label map explains."""
    colors, names = label_map.colors, label_map.names or None
    if classes is not None:
        colors, names = _colors_of_classes(label_map, classes), classes
    known = {r << 16 | g << 8 | b for r, g, b in colors}
    strange = [mask for mask in seen if not set(mask.colors.values()) <= known]
    notes = [f"masks are painted; the colours of {label_map.place} say the values"]
    if strange:
        first = strange[0]
        more = sorted(set(first.colors.values()) - known)
        text = few_text([color_of(code) for code in more], _SHOWN_MAX)
        problem = f"{first.place} has colours that {label_map.place} does not name: {text}"
        if len(strange) == len(seen):
            raise SourceError(
                f"{problem}. The same is true of all {count_text(len(seen), 'mask')} that were "
                "looked at. Add the colours, or give the label map of these masks."
            )
        notes.append(f"{problem}; such masks are rejected")
    return MaskDecision(
        field=Field(
            name=name,
            kind="mask",
            dtype="uint8" if len(colors) <= 256 else "int32",
            shape=(None, None),
            names=names,
            ignore=label_map.ignore,
        ),
        colors=colors,
        notes=notes,
        choices={"mask_values": "colors", "label_map": label_map.place},
    )


def _colors_of_classes(label_map: LabelMap, classes: tuple[str, ...]) -> tuple[Color, ...]:
    """The colours in the order of the classes that the user gave."""
    if not label_map.names and len(classes) == len(label_map.colors):
        return label_map.colors
    missing = [each for each in classes if each not in label_map.names]
    if missing:
        found = names_text(label_map.names) or f"{len(label_map.colors)} colours without names"
        raise SourceError(
            f"{label_map.place}: no colour of {names_text(missing)}, which --classes names; "
            f"found {found}. Name classes of the label map, or add their colours to it."
        )
    return tuple(label_map.colors[label_map.names.index(each)] for each in classes)


def _valued(
    seen: list[_Seen],
    painted: list[_Seen],
    maps: Sequence[LabelMap],
    classes: tuple[str, ...] | None,
    name: str,
) -> MaskDecision:
    """Masks that hold values."""
    colors: tuple[Color, ...] = ()
    notes: list[str] = []
    choices = {"mask_values": "stored"}
    if painted and all(_is_gray(code) for mask in painted for code in mask.colors):
        colors, choices = _EQUAL_CHANNELS, {"mask_values": "equal channels"}
        notes.append(
            "masks are RGB with three equal channels; the value is that of a channel. If grays "
            "stand for classes, add a label map"
        )
        of_masks = [
            {code & 255 for code in mask.colors} if mask.kind == "colors" else set(mask.colors)
            for mask in seen
        ]
        painted = []
    elif len(painted) == len(seen):
        raise SourceError(_without_label_map(painted[0], len(seen), maps))
    else:
        of_masks = [set(mask.colors) for mask in seen if mask.kind != "colors"]
    notes += [
        f"{mask.place} has three channels ({mask.text}) where others have one; such masks are "
        "rejected"
        for mask in painted[:1]
    ]
    names, ignore, place = _names_for(of_masks, maps, classes, notes)
    if place:
        choices["label_map"] = place
    if ignore is not None:
        choices["mask_ignore"] = str(ignore)
    notes.append(f"values found in masks: {_values_text(set().union(*of_masks))}")
    return MaskDecision(
        field=Field(
            name=name,
            kind="mask",
            dtype="int32" if any(mask.is_deep for mask in seen) else "uint8",
            shape=(None, None),
            names=names,
            ignore=ignore,
        ),
        colors=colors,
        notes=notes,
        choices=choices,
    )


def _names_for(
    of_masks: list[set[int]],
    maps: Sequence[LabelMap],
    classes: tuple[str, ...] | None,
    notes: list[str],
) -> tuple[tuple[str, ...] | None, int | None, str]:
    """Names of the values, the value to ignore, and the label map that they are of."""
    values = set().union(*of_masks)
    # A list of names alone is about values; one with colours may have any order.
    named = sorted((each for each in maps if each.names), key=lambda each: bool(each.colors))
    label_map = named[0] if named else None
    names, place, ignore = None, "", None
    if classes is not None:
        names, source = classes, "--classes"
    elif label_map is not None:
        names, source, place = label_map.names, label_map.place, label_map.place
        notes.append(f"names of the values: {place}")
        if len(named) > 1:
            notes.append(f"not read for names: {', '.join(each.place for each in named[1:])}")
    is_binary = IGNORE in values and values <= {0, IGNORE}
    is_named = names is not None and len(names) > IGNORE
    if label_map is not None and label_map.ignore is not None:
        ignore = label_map.ignore
    elif is_binary and not is_named:
        notes.append(
            "masks hold 0 and 255 alone: taken for binary, kept as they are; 255 is not ignored"
        )
        if names is not None:
            problem = f"{source} names {len(names)} classes, but masks hold 0 and 255 alone"
            if classes is not None:
                raise SourceError(
                    f"{problem}, and values are kept as they are. Leave --classes out, or write "
                    "1 for 255 in the masks."
                )
            notes.append(f"{problem}: its names are not used")
            return None, None, ""
    elif IGNORE in values and not is_named:
        ignore = IGNORE
        notes.append("255 is ignored: it stands beside other values than 0")
    if names is not None:
        beyond = {value for value in values if value >= len(names) and value != ignore}
        if beyond:
            problem = f"values {_values_text(beyond)} of masks are no classes of {source}"
            if all(beyond & values_of_mask for values_of_mask in of_masks):
                raise SourceError(
                    f"{problem}, which names {len(names)}: expected values in [0, {len(names)}). "
                    "Give the classes of these masks, in the order of their values."
                )
            notes.append(f"{problem}; such masks are rejected")
    return names, ignore, place


def _is_gray(code: int) -> bool:
    r, g, b = color_of(code)
    return r == g == b


def _without_label_map(mask: _Seen, count: int, maps: Sequence[LabelMap]) -> str:
    known = ", ".join(name.decode() for name in LABEL_MAP_NAMES)
    found = ", ".join(each.place for each in maps)
    also = f" ({found} names no colours)" if found else ""
    return (
        f"{mask.place}: a mask with three channels ({mask.text}), as all "
        f"{count_text(count, 'mask')} that were looked at, and no file says which class each "
        f"colour is{also}. Put a label map beside the masks, such as labelmap.txt with a line "
        f"'road:128,64,128::' for each class, or colors.json; names that are looked for: {known}."
    )


def _values_text(values: Iterable[int]) -> str:
    """Values with runs of them drawn together: "0 to 3, 7, 255"."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    texts = [str(a) if a == b else f"{a}, {b}" if a + 1 == b else f"{a} to {b}" for a, b in runs]
    return few_text(texts, _SHOWN_MAX)
