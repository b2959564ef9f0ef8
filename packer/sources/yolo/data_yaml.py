"""Reads a data.yaml: YOLO's names of classes, and where the pictures of each split lie.

The file is taken apart as text and never turned into Python objects: a name such as `no` or `007`
stays what was written, and no tag or date of a stranger's file can do anything.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from packer.errors import SourceError
from packer.files.text import TEXT_BYTES_MAX, read_text
from packer.wording import names_text, readable_path
from readers.store.wording import few_text

YAML_EXTENSIONS = (b".yaml", b".yml")
SPLIT_KEYS = ("train", "val", "test")

_TEXT_TAG = "tag:yaml.org,2002:str"
_NULL_TAG = "tag:yaml.org,2002:null"


@dataclass(frozen=True, kw_only=True)
class DataYaml:
    """What a data.yaml says.

    Attributes:
        place: The file, as messages name it.
        root: Its `path`: folder of the data set, or empty.
        splits: Folders or lists of each split, as written: train, val, test, as far as given.
        names: Class names by number. None: it has none.
        class_count: How many classes it says that there are, or None.
        keypoint_shape: (points, numbers a point) of a pose set, the second 2 or 3. Or None.
        keypoint_names: Names of the points, where there is one list for all classes. Or None.
        flip_indices: Which point each becomes when a picture is mirrored; empty when not given.
        task: What it says that the set is for, or empty.
        notes: What is odd about it, one line each.
    """

    place: str
    root: str
    splits: dict[str, tuple[str, ...]]
    names: tuple[str, ...] | None
    class_count: int | None
    keypoint_shape: tuple[int, int] | None
    keypoint_names: tuple[str, ...] | None
    flip_indices: tuple[int, ...]
    task: str
    notes: tuple[str, ...]


def declares_yolo(path: Path) -> bool:
    """Whether a YAML file has class names, and splits or a folder or a number of classes."""
    try:
        # One that is too large is taken for what it begins as, and refused when it is read.
        with open(path, "rb") as file:
            text = file.read(TEXT_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return False
    keys = set(re.findall(r"^\ufeff?[\"']?([A-Za-z_]+)[\"']?\s*:", text, re.MULTILINE))
    return bool(keys & {"names", "nc"}) and bool(keys & {*SPLIT_KEYS, "nc", "path"})


def read_data_yaml(path: Path) -> DataYaml:
    """Read a data.yaml.

    Raises:
        SourceError: It cannot be read, is not YAML, or one of the entries that are used is not of
            the form that it should have.
    """
    place = readable_path(os.fsencode(path))
    entries = _entries(_document(path, place), place)
    names, notes = _class_names(entries.get("names"), place)
    class_count = _text(entries.get("nc"), f"{place}: nc")
    count = _whole(class_count, f"{place}: nc", 1, 100_000) if class_count else None
    if names is not None and count is not None and count != len(names):
        notes.append(
            f"{path.name}: nc is {count}, but there are {len(names)} names; the names decide"
        )
    splits = {
        key: found
        for key in SPLIT_KEYS
        if (found := _texts(entries.get(key), f"{place}: {key}")) != ()
    }
    shape = _numbers(entries.get("kpt_shape"), f"{place}: kpt_shape")
    if shape and (len(shape) != 2 or not 1 <= shape[0] <= 10_000 or shape[1] not in (2, 3)):
        raise SourceError(
            f"{place}: kpt_shape is {list(shape)}; expected the number of points, and 2 (x, y) or "
            "3 (x, y, visibility), such as [17, 3]."
        )
    flip = _numbers(entries.get("flip_idx"), f"{place}: flip_idx")
    return DataYaml(
        place=place,
        root=_text(entries.get("path"), f"{place}: path"),
        splits=splits,
        names=names,
        class_count=count,
        keypoint_shape=(shape[0], shape[1]) if shape else None,
        keypoint_names=_point_names(entries.get("kpt_names"), shape[0]) if shape else None,
        flip_indices=flip,
        task=_text(entries.get("task"), f"{place}: task").lower(),
        notes=tuple(notes),
    )


def _document(path: Path, place: str) -> yaml.Node | None:
    """The nodes of the file; no object is made of them."""
    text = read_text(path)
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split()) or "nested too deeply"
        raise SourceError(f"{place}: not YAML: {reason}. Correct the file.") from error


def _entries(node: yaml.Node | None, place: str) -> dict[str, yaml.Node]:
    """The entries of a mapping by key. The file's own keys are text, or numbers as written."""
    if not isinstance(node, yaml.MappingNode):
        raise SourceError(f"{place}: expected entries such as 'names:' and 'train:'.")
    entries: dict[str, yaml.Node] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.value in entries:
            line = key.start_mark.line + 1
            raise SourceError(
                f"{place}, line {line}: {key.value!r} stands here a second time. Remove one."
            )
        entries[key.value] = value
    return entries


def _class_names(node: yaml.Node | None, place: str) -> tuple[tuple[str, ...] | None, list[str]]:
    """Class names by number, and a note where YAML would not have read text."""
    if node is None or node.tag == _NULL_TAG:
        return None, []
    if isinstance(node, yaml.MappingNode):
        by_number = {
            _whole(key, f"{place}: key of names", 0, 100_000): value
            for key, value in _entries(node, f"{place}: names").items()
        }
        missing = [str(n) for n in range(len(by_number)) if n not in by_number]
        if missing:
            raise SourceError(
                f"{place}: names has {len(by_number)} classes but none of the number "
                f"{few_text(missing, 5)}; expected 0 to {len(by_number) - 1}. Name every class."
            )
        nodes = [by_number[number] for number in range(len(by_number))]
    elif isinstance(node, yaml.SequenceNode):
        nodes = node.value
    else:
        raise SourceError(
            f"{place}: names is {node.value!r}; expected a list, or numbers with a name each."
        )
    names: list[str] = []
    odd: list[str] = []
    for number, entry in enumerate(nodes):
        where = f"{place}, line {entry.start_mark.line + 1}: class {number}"
        if not isinstance(entry, yaml.ScalarNode):
            raise SourceError(f"{where} is a list; expected a name.")
        name = _scalar(entry, where)
        if not name or name in names:
            problem = f"{name!r} is class {names.index(name)} already" if name else "has no name"
            raise SourceError(f"{where}: {problem}. Give every class a name of its own.")
        names.append(name)
        if entry.tag != _TEXT_TAG:
            odd.append(name)
    if not names:
        raise SourceError(f"{place}: names is empty; expected one for each class.")
    if not odd:
        return tuple(names), []
    note = (
        f"names that YAML does not take for text, kept as written: {names_text(odd)}; other tools "
        "may call them otherwise (no: False, 007: 7). Quotes around them make them text"
    )
    return tuple(names), [note]


def _texts(node: yaml.Node | None, place: str) -> tuple[str, ...]:
    if isinstance(node, yaml.SequenceNode):
        return tuple(text for entry in node.value if (text := _text(entry, place)))
    text = _text(node, place)
    return (text,) if text else ()


def _text(node: yaml.Node | None, place: str) -> str:
    """One value as written; empty where there is none."""
    if node is None or node.tag == _NULL_TAG:
        return ""
    if not isinstance(node, yaml.ScalarNode):
        raise SourceError(f"{place}: found a list or entries; expected one value.")
    return _scalar(node, place)


def _scalar(node: yaml.ScalarNode, place: str) -> str:
    """A value as written, without blanks around it."""
    text = str(node.value).strip()
    # Escapes such as "\ud800" can write what is no character, and what no path may hold.
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise SourceError(f"{place}: {text!r} holds what is no character. Correct the file.")
    return text


def _numbers(node: yaml.Node | None, place: str) -> tuple[int, ...]:
    return tuple(_whole(text, place, 0, 100_000) for text in _texts(node, place))


def _whole(text: str, place: str, least: int, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise SourceError(f"{place}: {text!r}; expected a whole number in [{least}, {most}].")
    return int(text)


def _point_names(node: yaml.Node | None, point_count: int) -> tuple[str, ...] | None:
    """Names of the points where they are one plain list, or one list for the only class."""
    if isinstance(node, yaml.MappingNode) and len(node.value) == 1:
        node = node.value[0][1]
    if not isinstance(node, yaml.SequenceNode) or len(node.value) != point_count:
        return None
    names = tuple(_scalar(n, "kpt_names") for n in node.value if isinstance(n, yaml.ScalarNode))
    return names if len(set(names)) == point_count else None
