"""Which form a YOLO data set has: decided by the file that declares it, if there is one.

ultralytics   a data.yaml names a folder, or a list of pictures, for each split
darknet       an obj.data names a list of pictures for each split, and the file of class names
bare          pictures and label files alone, with or without a file of class names
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from packer.errors import SourceError
from packer.files.start import content_problem
from packer.sources.listing import is_folder, is_regular_file
from packer.sources.source import SourceOptions
from packer.sources.walk import skip_reason
from packer.sources.yolo.bare import bare_layout
from packer.sources.yolo.darknet import darknet_layout
from packer.sources.yolo.data_yaml import YAML_EXTENSIONS, declares_yolo
from packer.sources.yolo.layout import Layout
from packer.sources.yolo.paths import inside
from packer.sources.yolo.ultralytics import ultralytics_layout
from packer.wording import names_text, readable_path
from readers.store.wording import few_text

_USUAL_NAMES = ("data.yaml", "data.yml", "dataset.yaml", "obj.data")


def find_layout(raw: Path, options: SourceOptions) -> Layout:
    """Decide which form the data has, and find its pictures.

    Args:
        raw: Folder of the data, or the data.yaml or obj.data itself.
        options: `root` is the folder of the data where that is not beside the file.

    Raises:
        SourceError: A file of the data set cannot be read or leads nowhere, or several data sets
            lie here.
    """
    declaration, others = (raw, []) if raw.is_file() else _declaration(raw)
    if declaration is None:
        if options.root is not None:
            raise SourceError(
                f"{_shown(raw)}: root was given, but there is no data.yaml or obj.data whose paths "
                "could be relative to it. Give the folder of pictures and labels instead."
            )
        return bare_layout(raw)
    extension = os.fsencode(declaration.suffix.lower())
    if extension in YAML_EXTENSIONS:
        layout = ultralytics_layout(raw, declaration, options)
    elif extension == b".data":
        layout = darknet_layout(raw, declaration, options)
    else:
        raise SourceError(
            f"{_shown(raw)}: expected a folder, a data.yaml or an obj.data. "
            "Give the folder that it lies in."
        )
    own_path = inside(os.fsencode(os.path.abspath(declaration)), layout.base)
    if own_path is not None:
        layout.used.add(own_path)
    if others:
        left = names_text(readable_path(os.fsencode(path.name)) for path in others)
        layout.tree.findings.notes.append(f"{declaration.name} was taken; not read: {left}")
    return layout


def _declaration(raw: Path) -> tuple[Path | None, list[Path]]:
    """The data.yaml or obj.data of a folder, and others that are left aside."""
    files, folders = _entries(raw)
    found = _declaring(files)
    if not found:
        found = [path for folder in folders for path in _declaring(_entries(folder)[0])]
        if len({path.parent for path in found}) > 1:
            shown = few_text(found, 5, _shown)
            raise SourceError(
                f"{_shown(raw)}: more than one data set: {shown}. Give the one that is meant."
            )
    if len(found) > 1:
        usual = [p for p in found if p.name.lower() in _USUAL_NAMES and p.suffix != ".data"]
        found = [*usual, *(path for path in found if path not in usual)]
        if len(usual) != 1 and len([p for p in found if p.suffix != ".data"]) > 1:
            shown = few_text([Path(path.name) for path in found], 5, _shown)
            raise SourceError(
                f"{_shown(raw)}: {shown} each name classes and splits. Give the one that is meant."
            )
    return (found[0], found[1:]) if found else (None, [])


def _entries(folder: Path) -> tuple[list[Path], list[Path]]:
    """Files that may declare a data set, and folders, sorted by name, without hidden ones."""
    files, folders = [], []
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
    except OSError:
        return [], []
    for entry in entries:
        if skip_reason(os.fsencode(entry.name)) is None:
            may_declare = entry.name.lower().endswith((".yaml", ".yml", ".data"))
            if may_declare and is_regular_file(entry):
                files.append(Path(entry.path))
            elif is_folder(entry):
                folders.append(Path(entry.path))
    return files, folders


def _declaring(files: list[Path]) -> list[Path]:
    """Files that declare a data set: YAML first."""
    for path in files:
        if path.name.lower() in _USUAL_NAMES:
            _check_whole(path)
    yamls = [path for path in files if path.suffix.lower() != ".data" and declares_yolo(path)]
    return yamls + [path for path in files if path.suffix.lower() == ".data" and _is_data(path)]


def _check_whole(path: Path) -> None:
    """Refuse a file that is called like one of YOLO's and cannot be read, or was cut short."""
    try:
        start = path.read_bytes()[:65536]
    except OSError as error:
        raise SourceError(f"{_shown(path)}: cannot be read: {error.strerror}.") from error
    problem = content_problem(start)
    if not problem and path.suffix.lower() != ".data" and not declares_yolo(path):
        keys = re.findall(rb"^(train|val|test|nc|names|path)\s*:", start, re.MULTILINE)
        if keys:
            has = ", ".join(key.decode() for key in dict.fromkeys(keys))
            lacks = (
                "no train, val or path" if {b"names", b"nc"} & {*keys} else "no names of classes"
            )
            problem = f"it has {has}, and {lacks}; cut short perhaps"
        elif b"\0" in start:
            problem = "it is not text"
    if problem:
        raise SourceError(
            f"{_shown(path)}: {problem}; expected YOLO's data file, with names of classes and "
            "splits. Get the file again, or move it away."
        )


def _is_data(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            text = file.read(65536)
    except OSError:
        return False
    return re.search(rb"^\s*(names|train|valid)\s*=", text, re.MULTILINE) is not None


def _shown(path: Path) -> str:
    return readable_path(os.fsencode(path))
