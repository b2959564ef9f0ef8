"""YOLO as ultralytics has it: a data.yaml names a folder, or a list of pictures, for each split."""

from __future__ import annotations

import os
from pathlib import Path

from packer.errors import SourceError
from packer.sources.only_split import is_other_split
from packer.sources.source import SourceOptions
from packer.sources.walk import walk
from packer.sources.yolo.bare import bare_layout
from packer.sources.yolo.data_yaml import DataYaml, read_data_yaml
from packer.sources.yolo.layout import ANNOTATION_EXTENSIONS, Layout
from packer.sources.yolo.named_pictures import NamedPictures, add_folder, add_list
from packer.sources.yolo.names import find_class_names
from packer.sources.yolo.paths import find_entry, inside
from packer.wording import names_text, readable_path


def ultralytics_layout(raw: Path, file: Path, options: SourceOptions) -> Layout:
    """The pictures that a data.yaml names.

    Args:
        raw: Folder of the data, or the data.yaml itself.
        file: The data.yaml.
        options: `root` is the folder of the data where that is not beside the file.

    Raises:
        SourceError: The file or a list cannot be read, or the training pictures or all are missing.
    """
    data = read_data_yaml(file)
    beside = Path(os.path.abspath(file.parent))
    base, starts, root_note = _data_folder(raw, data, beside, options)
    tree = walk(base, ANNOTATION_EXTENSIONS)
    findings = tree.findings
    findings.notes += data.notes
    if not data.splits:
        findings.notes.append(f"{file.name} names no splits")
        layout = bare_layout(base, tree, class_names=data.names)
        layout.data_yaml = data
        return layout
    findings.notes += root_note
    named = NamedPictures(base, tree, tuple(data.splits))
    mark = findings.mark()
    for split, (name, entries) in enumerate(data.splits.items()):
        for entry in entries:
            found = find_entry(entry, starts, base, tree)
            if found is None:
                _missing_entry(data, name, entry, starts, named, options.split)
                continue
            how = f" ({found.how})" if found.how else ""
            kind = "" if found.path in tree.folders else "list "
            shown = readable_path(found.path) or "the whole folder"
            findings.notes.append(f"{file.name}: {name}: {entry!r} is {kind}{shown}{how}")
            if kind:
                folders = [inside(s, base) for s in starts]
                add_list(named, found.path, split, folders, options.split)
            else:
                add_folder(named, found.path, split)
    if not named.order and findings.mark() == mark:
        looked = ", ".join(dict.fromkeys(map(readable_path, starts)))
        wanted = names_text(entry for entries in data.splits.values() for entry in entries)
        raise SourceError(
            f"{data.place}: no pictures at {wanted}; looked in {looked}. Correct 'path' and the "
            "splits, or give the folder of the data as --root."
        )
    names = data.names
    class_notes: list[str] = []
    if names is None:
        names, class_notes = find_class_names(base, tree, named.used)
    return named.layout("ultralytics", names, class_notes, data)


def _data_folder(
    raw: Path, data: DataYaml, beside: Path, options: SourceOptions
) -> tuple[Path, list[bytes], list[str]]:
    """The folder of the data, where its entries may be relative to, and a note if `path` is odd.

    A folder that was given is the data, wherever `path` leads: it may be a copy. A data.yaml that
    was given may say where the data is.
    """
    is_file = raw.is_file()
    places = [beside / data.root, Path(os.path.abspath(data.root))] if data.root else []
    there = [path for path in places if os.path.isdir(path)]
    if options.root is not None:
        base = options.root
    elif is_file:
        likely = (path for path in (*there, beside) if _holds_splits(path, data))
        base = next(likely, there[0] if there else beside)
    else:
        base = raw
    starts = [os.fsencode(path) for path in (options.root, *there, beside, Path.cwd()) if path]
    starts = [os.path.abspath(start) for start in dict.fromkeys(starts)]
    if not data.root:
        return base, starts, []
    name = Path(data.place).name
    if any(inside(os.fsencode(path), base) is not None for path in there):
        return base, starts, []
    state = "lies outside of the data" if there else "is not there"
    shown = readable_path(os.fsencode(base))
    return base, starts, [f"{name}: path {data.root!r} {state}; taken is {shown}"]


def _holds_splits(folder: Path, data: DataYaml) -> bool:
    """Whether a split's folder or list is there, as written."""
    return any(os.path.exists(folder / e) for entries in data.splits.values() for e in entries)


def _missing_entry(
    data: DataYaml,
    split: str,
    entry: str,
    starts: list[bytes],
    named: NamedPictures,
    wanted: str | None,
) -> None:
    """Say that a split is not there. Without its training pictures, a data set is none."""
    looked = ", ".join(dict.fromkeys(map(readable_path, starts)))
    if split == "train" and not is_other_split(split, wanted):
        shown = readable_path(os.fsencode(named.base))
        raise SourceError(
            f"{data.place}: train is {entry!r}, and there is no such folder or list inside of "
            f"{shown}; looked in {looked}. Correct the path, or give the folder of the data as "
            "--root."
        )
    named.tree.findings.notes.append(
        f"{Path(data.place).name}: {split} is {entry!r}, which is not there; the split is empty"
    )
