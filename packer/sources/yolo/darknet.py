"""YOLO as darknet has it: an obj.data names a list of pictures for each split."""

from __future__ import annotations

import os
from pathlib import Path

from packer.errors import SourceError
from packer.files.text import read_listing
from packer.sources.only_split import is_other_split
from packer.sources.source import SourceOptions
from packer.sources.walk import Tree, walk
from packer.sources.yolo.layout import ANNOTATION_EXTENSIONS, Layout
from packer.sources.yolo.named_pictures import NamedPictures, add_list
from packer.sources.yolo.names import find_class_names, read_class_files
from packer.sources.yolo.paths import inside
from packer.wording import readable_path


def darknet_layout(raw: Path, file: Path, options: SourceOptions) -> Layout:
    """The pictures that the lists of an obj.data name.

    Args:
        raw: Folder of the data, or the obj.data itself.
        file: The obj.data.
        options: `root` is the folder of the data where that is not beside the file.

    Raises:
        SourceError: The file, or one that it names, cannot be read or is not there.
    """
    place = readable_path(os.fsencode(file))
    settings = _read_settings(file)
    base = options.root or (file.parent if raw.is_file() else raw)
    tree = walk(base, ANNOTATION_EXTENSIONS)
    keys = [key for key in ("train", "valid", "test") if settings.get(key)]
    if not keys:
        raise SourceError(f"{place}: expected 'train = ' with a list of pictures.")
    named = NamedPictures(base, tree, tuple(keys))
    starts = [os.fsencode(os.path.abspath(folder)) for folder in (file.parent, base)]
    for split, key in enumerate(keys):
        found = _settings_file(settings[key], starts, base, tree)
        if found is None and is_other_split(key, options.split):
            tree.findings.notes.append(
                f"{file.name}: {key} is {settings[key]!r}, which is not there"
            )
            continue
        if found is None:
            raise SourceError(
                f"{place}: {key} is {settings[key]!r}, and there is no such list beside it. "
                "Correct the path, or remove the line."
            )
        folders = [inside(start, base) for start in starts]
        add_list(named, found, split, folders, options.split)
    names: tuple[str, ...] | None = None
    class_notes: list[str] = []
    if settings.get("names"):
        found = _settings_file(settings["names"], starts, base, tree)
        if found is None:
            raise SourceError(
                f"{place}: names is {settings['names']!r}, and there is no such file beside it. "
                "Correct the path, or remove the line and give --classes."
            )
        names, _ = read_class_files(base, [found])
        named.used.add(found)
    else:
        names, class_notes = find_class_names(base, tree, named.used)
    count = settings.get("classes")
    if names is not None and count and count != str(len(names)):
        class_notes.append(
            f"{file.name}: classes is {count}, but there are {len(names)} names; the names decide"
        )
    return named.layout("darknet", names, class_notes)


def _read_settings(file: Path) -> dict[str, str]:
    """The `key = value` lines of an obj.data."""
    shown = readable_path(os.fsencode(file))
    text = read_listing(file, shown).decode("utf-8-sig", "surrogateescape")
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, is_pair, value in pairs if is_pair}


def _settings_file(written: str, starts: list[bytes], base: Path, tree: Tree) -> bytes | None:
    """A file that an obj.data names, relative to where darknet was started, which is unknown."""
    files = {path for folder in tree.folders.values() for path in folder.annotation_files}
    parts = os.fsencode(written).split(b"/")
    for at in range(len(parts)):
        for start in starts:
            found = inside(os.path.join(start, b"/".join(parts[at:])), base)
            if found in files:
                return found
    return None
