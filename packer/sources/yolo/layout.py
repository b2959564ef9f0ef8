"""Which pictures a YOLO data set has, of which splits, and what its classes are called.

ultralytics   a data.yaml names a folder, or a list of pictures, for each split
darknet       an obj.data names a list of pictures for each split, and the file of class names
bare          pictures and label files alone, with or without a file of class names
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from packer.errors import SourceError
from packer.sources.items import Reject
from packer.sources.pairing import PictureIndex, split_path
from packer.sources.source import SourceOptions
from packer.sources.splits import are_all_splits, ordered_splits
from packer.sources.walk import Picture, Tree, readable_path, skip_reason, walk
from packer.sources.yolo.data_yaml import YAML_EXTENSIONS, DataYaml, declares_yolo, read_data_yaml
from packer.sources.yolo.labels import PICTURE_FOLDERS, LabelFiles
from packer.sources.yolo.names import CLASS_FILES, class_files, read_class_files
from packer.sources.yolo.paths import ListedPaths, find_entry, inside
from packer.wording import count_text, names_text

ANNOTATION_EXTENSIONS = (b".txt", b".names", b".labels", b".data", b".json", *YAML_EXTENSIONS)

NOT_NAMED = "not named by the annotations"
NOT_AMONG_PICTURES = "outside of the folders of pictures"


@dataclass(kw_only=True)
class Layout:
    """A data set, before any label file was read.

    Attributes:
        form: "ultralytics", "darknet" or "bare".
        base: Folder that everything is relative to.
        tree: Of `base`.
        index: Its pictures; those of `pictures` are taken.
        labels: Its label files.
        pictures: Each picture with the position of its split, in the order of the store.
        splits: Names of the splits; empty without.
        class_names: Names by the numbers in the label files. None: there is no list of them.
        data_yaml: What the data.yaml says, where there is one.
        used: Paths of files that were read here, or are not to be read as labels.
        rejects: Lines of lists that lead to no picture.
        notes: One line each.
    """

    form: str
    base: Path
    tree: Tree
    index: PictureIndex
    labels: LabelFiles
    pictures: list[tuple[Picture, int]]
    splits: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None
    data_yaml: DataYaml | None = None
    used: set[bytes] = field(default_factory=set)
    rejects: list[Reject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


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
        return _bare_layout(raw)
    extension = os.fsencode(declaration.suffix.lower())
    if extension in YAML_EXTENSIONS:
        layout = _ultralytics_layout(raw, declaration, options)
    elif extension == b".data":
        layout = _darknet_layout(raw, declaration, options)
    else:
        raise SourceError(
            f"{_shown(raw)}: expected a folder, a data.yaml or an obj.data. "
            "Give the folder that it lies in."
        )
    if others:
        left = names_text(readable_path(os.fsencode(path.name)) for path in others)
        layout.notes.append(f"{declaration.name} was taken; not read: {left}")
    return layout


# Forms that name their pictures.


@dataclass
class _Choice:
    """Pictures of splits as they are collected."""

    base: Path
    tree: Tree
    index: PictureIndex
    splits: tuple[str, ...]
    used: set[bytes]
    order: dict[Picture, int] = field(default_factory=dict)
    is_listed: bool = False
    again: dict[tuple[str, str], int] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, picture: Picture, split: int) -> None:
        """Put a picture into a split, unless it is in one already."""
        before = self.order.setdefault(picture, split)
        if before != split:
            names = self.splits[split], self.splits[before]
            self.again[names] = self.again.get(names, 0) + 1
        self.index.take(picture)

    def pictures(self) -> list[tuple[Picture, int]]:
        """In the order of the store: that of the lists, or sorted where there are folders alone."""
        found = list(self.order.items())
        return found if self.is_listed else sorted(found)

    def again_notes(self) -> list[str]:
        return [
            f"split {split} names {count_text(count, 'picture')} of split {before} again; each is "
            f"packed once, in {before}"
            for (split, before), count in self.again.items()
        ]


def _ultralytics_layout(raw: Path, file: Path, options: SourceOptions) -> Layout:
    data = read_data_yaml(file)
    beside = Path(os.path.abspath(file.parent))
    base, starts, root_note = _data_folder(raw, data, beside, options)
    tree = walk(base, ANNOTATION_EXTENSIONS)
    if not data.splits:
        layout = _bare_layout(base, tree, class_names=data.names)
        layout.data_yaml = data
        layout.notes = [*data.notes, f"{file.name} names no splits", *layout.notes]
        _use(layout.used, file, base)
        return layout
    choice = _Choice(base, tree, PictureIndex(tree), tuple(data.splits), set())
    _use(choice.used, file, base)
    for split, (name, entries) in enumerate(data.splits.items()):
        for entry in entries:
            found = find_entry(entry, starts, base, tree)
            if found is None:
                _missing_entry(data, name, entry, starts, choice)
                continue
            how = f" ({found.how})" if found.how else ""
            kind = "" if found.path in choice.tree.folders else "list "
            shown = readable_path(found.path) or "the whole folder"
            choice.notes.append(f"{file.name}: {name}: {entry!r} is {kind}{shown}{how}")
            if kind:
                _add_list(choice, found.path, split, [inside(s, base) for s in starts])
            else:
                _add_folder(choice, found.path, split)
    if not choice.order and not choice.rejects:
        looked = ", ".join(dict.fromkeys(map(readable_path, starts)))
        wanted = names_text(entry for entries in data.splits.values() for entry in entries)
        raise SourceError(
            f"{data.place}: no pictures at {wanted}; looked in {looked}. Correct 'path' and the "
            "splits, or give the folder of the data as --root."
        )
    names = data.names
    class_note: list[str] = []
    if names is None:
        names, class_note = _class_list(base, tree, choice.used)
    notes = [*data.notes, *root_note, *choice.notes, *choice.again_notes(), *class_note]
    return Layout(
        form="ultralytics",
        base=base,
        tree=tree,
        index=choice.index,
        labels=LabelFiles(tree, choice.used),
        pictures=choice.pictures(),
        splits=choice.splits,
        class_names=names,
        data_yaml=data,
        used=choice.used,
        rejects=choice.rejects,
        notes=notes,
    )


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
    return base, starts, [f"{name}: path {data.root!r} {state}; taken is {_shown(base)}"]


def _holds_splits(folder: Path, data: DataYaml) -> bool:
    """Whether a split's folder or list is there, as written."""
    return any(os.path.exists(folder / e) for entries in data.splits.values() for e in entries)


def _missing_entry(
    data: DataYaml, split: str, entry: str, starts: list[bytes], choice: _Choice
) -> None:
    """Say that a split is not there. Without its training pictures, a data set is none."""
    looked = ", ".join(dict.fromkeys(map(readable_path, starts)))
    if split == "train":
        raise SourceError(
            f"{data.place}: train is {entry!r}, and there is no such folder or list inside of "
            f"{_shown(choice.base)}; looked in {looked}. Correct the path, or give the folder of "
            "the data as --root."
        )
    choice.notes.append(
        f"{Path(data.place).name}: {split} is {entry!r}, which is not there; the split is empty"
    )


def _add_folder(choice: _Choice, path: bytes, split: int) -> None:
    """All pictures in a folder and below it."""
    prefix = path + b"/" if path else b""
    for folder_path, folder in choice.tree.folders.items():
        if folder_path == path or folder_path.startswith(prefix):
            for picture in folder.pictures:
                choice.add(picture, split)


def _add_list(choice: _Choice, path: bytes, split: int, starts: list[bytes | None]) -> None:
    """All pictures that a list names; lines that lead to none are rejects."""
    choice.is_listed = True
    choice.used.add(path)
    shown = readable_path(path)
    try:
        data = (choice.base / os.fsdecode(path)).read_bytes()
    except OSError as error:
        raise SourceError(f"{shown}: cannot be read: {error.strerror}.") from error
    lines = [line.strip() for line in data.removeprefix(b"\xef\xbb\xbf").splitlines()]
    folders = [split_path(path)[0], *(start for start in starts if start is not None), b""]
    paths = ListedPaths([line for line in lines if line], folders, choice.base, choice.index)
    first_lines: dict[Picture, int] = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        picture = paths.find(line)
        if picture is None:
            reason = f"there is no picture at {readable_path(line)!r} inside of the data"
        elif picture in first_lines:
            reason = f"listed twice (first in line {first_lines[picture]})"
        else:
            if not first_lines and paths.drop_count:
                beginning = readable_path(paths.dropped(line))
                choice.notes.append(f"{shown}: paths are taken without their start {beginning!r}")
            first_lines[picture] = number
            choice.add(picture, split)
            continue
        # A picture that is listed twice is stored, so the key belongs to its sample.
        key = b"" if picture is None else picture.path
        choice.rejects.append(Reject(key=key, path=f"{shown}, line {number}", reason=reason))


def _darknet_layout(raw: Path, file: Path, options: SourceOptions) -> Layout:
    place = _shown(file)
    settings = _read_settings(file)
    base = options.root or (file.parent if raw.is_file() else raw)
    tree = walk(base, ANNOTATION_EXTENSIONS)
    keys = [key for key in ("train", "valid", "test") if settings.get(key)]
    if not keys:
        raise SourceError(f"{place}: expected 'train = ' with a list of pictures.")
    choice = _Choice(base, tree, PictureIndex(tree), tuple(keys), set())
    _use(choice.used, file, base)
    starts = [os.fsencode(os.path.abspath(folder)) for folder in (file.parent, base)]
    for split, key in enumerate(keys):
        found = _settings_file(settings[key], starts, base, tree)
        if found is None:
            raise SourceError(
                f"{place}: {key} is {settings[key]!r}, and there is no such list beside it. "
                "Correct the path, or remove the line."
            )
        _add_list(choice, found, split, [inside(start, base) for start in starts])
    names: tuple[str, ...] | None = None
    class_note: list[str] = []
    if settings.get("names"):
        found = _settings_file(settings["names"], starts, base, tree)
        if found is None:
            raise SourceError(
                f"{place}: names is {settings['names']!r}, and there is no such file beside it. "
                "Correct the path, or remove the line and give --classes."
            )
        names, _ = read_class_files(base, [found])
        choice.used.add(found)
    else:
        names, class_note = _class_list(base, tree, choice.used)
    count = settings.get("classes")
    if names is not None and count and count != str(len(names)):
        class_note.append(
            f"{file.name}: classes is {count}, but there are {len(names)} names; the names decide"
        )
    return Layout(
        form="darknet",
        base=base,
        tree=tree,
        index=choice.index,
        labels=LabelFiles(tree, choice.used),
        pictures=choice.pictures(),
        splits=choice.splits,
        class_names=names,
        used=choice.used,
        rejects=choice.rejects,
        notes=[*choice.notes, *choice.again_notes(), *class_note],
    )


def _read_settings(file: Path) -> dict[str, str]:
    """The `key = value` lines of an obj.data."""
    try:
        text = file.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise SourceError(f"{_shown(file)}: cannot be read: {error.strerror}.") from error
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


# Pictures and label files alone.


def _bare_layout(
    base: Path, tree: Tree | None = None, *, class_names: tuple[str, ...] | None = None
) -> Layout:
    tree = tree or walk(base, ANNOTATION_EXTENSIONS)
    used: set[bytes] = set()
    notes: list[str] = []
    if class_names is None:
        class_names, notes = _class_list(base, tree, used)
    labels = LabelFiles(tree, used)
    index = PictureIndex(tree)
    holding = [path for path, folder in tree.folders.items() if folder.pictures]
    named = [path for path in holding if _is_picture_folder(path)]
    # Once there are folders called images, pictures elsewhere are plots or previews, unless
    # label files of their own say otherwise.
    folders = [p for p in holding if p in named or labels.has_labels(p)] if named else holding
    depth = _split_depth(folders)
    splits: tuple[str, ...] = ()
    if depth is not None:
        splits = ordered_splits(readable_path(path.split(b"/")[depth]) for path in folders)
    pictures: list[tuple[Picture, int]] = []
    for path in folders:
        name = readable_path(path.split(b"/")[depth]) if depth is not None else ""
        split = splits.index(name) if splits else 0
        for picture in tree.folders[path].pictures:
            index.take(picture)
            pictures.append((picture, split))
    return Layout(
        form="bare",
        base=base,
        tree=tree,
        index=index,
        labels=labels,
        pictures=sorted(pictures),
        splits=splits,
        class_names=class_names,
        used=used,
        notes=notes,
    )


def _is_picture_folder(path: bytes) -> bool:
    return any(part.lower() in PICTURE_FOLDERS for part in path.split(b"/"))


def _split_depth(folders: list[bytes]) -> int | None:
    """Which part of the paths names the split: train/images, images/train, set/images/train."""
    parts = [path.split(b"/") for path in folders]
    for depth in range(min(map(len, parts), default=0)):
        names = {path[depth] for path in parts}
        if are_all_splits(names):
            return depth
        if len(names) > 1:
            return None
    return None


def _class_list(
    base: Path, tree: Tree, used: set[bytes]
) -> tuple[tuple[str, ...] | None, list[str]]:
    """Class names from a file among the data, and a note on where they are from."""
    paths = class_files(tree)
    used.update(paths)
    names, path = read_class_files(base, paths)
    if names is not None:
        return names, [f"class names are from {readable_path(path)}"]
    wanted = ", ".join(name.decode() for name in CLASS_FILES)
    note = (
        f"no list of class names (looked for data.yaml, {wanted}): classes are named by their "
        "numbers, unless --classes names them"
    )
    return None, [note]


# The file that declares a data set.


def _declaration(raw: Path) -> tuple[Path | None, list[Path]]:
    """The data.yaml or obj.data of a folder, and others that are left aside."""
    files, folders = _entries(raw)
    found = _declaring(files)
    if not found:
        found = [path for folder in folders for path in _declaring(_entries(folder)[0])]
        if len({path.parent for path in found}) > 1:
            shown = ", ".join(_shown(path) for path in found[:5])
            raise SourceError(
                f"{_shown(raw)}: more than one data set: {shown}. Give the one that is meant."
            )
    if len(found) > 1:
        usual = [p for p in found if p.name.lower() in ("data.yaml", "data.yml", "dataset.yaml")]
        found = [*usual, *(path for path in found if path not in usual)]
        if len(usual) != 1 and len([p for p in found if p.suffix != ".data"]) > 1:
            shown = ", ".join(readable_path(os.fsencode(path.name)) for path in found[:5])
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
            if entry.name.lower().endswith((".yaml", ".yml", ".data")) and entry.is_file():
                files.append(Path(entry.path))
            elif entry.is_dir():
                folders.append(Path(entry.path))
    return files, folders


def _declaring(files: list[Path]) -> list[Path]:
    """Files that declare a data set: YAML first."""
    yamls = [path for path in files if path.suffix.lower() != ".data" and declares_yolo(path)]
    return yamls + [path for path in files if path.suffix.lower() == ".data" and _is_data(path)]


def _is_data(path: Path) -> bool:
    try:
        text = path.read_bytes()[:65536]
    except OSError:
        return False
    return re.search(rb"^\s*(names|train|valid)\s*=", text, re.MULTILINE) is not None


def _use(used: set[bytes], file: Path, base: Path) -> None:
    path = inside(os.fsencode(os.path.abspath(file)), base)
    if path is not None:
        used.add(path)


def _shown(path: Path) -> str:
    return readable_path(os.fsencode(path))
