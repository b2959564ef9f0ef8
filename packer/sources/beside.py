"""Files that say what the pictures of archives are, beside the archives: lists, labels, masks.

Only pictures, and what WebDataset keeps with each, are read in an archive. A list beside it belongs
to its pictures all the same, and a store without it would lack the labels or captions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packer.errors import SourceError
from packer.files.arrow import arrow_errors, open_parquet
from packer.sources.container_files import ContainerFiles
from packer.sources.detection.files import kind_of_file
from packer.sources.detection.look import HEAD_BYTES, Look
from packer.sources.detection.unread import says_nothing_by_name
from packer.sources.pairing import split_path, stem_of
from packer.sources.source import SourceOptions
from packer.sources.yolo.data_yaml import declares_yolo
from packer.wording import names_text, readable_path

_ANNOTATION_NAME = re.compile(
    rb"\.((json|geojson|jsonl|ndjson|odgt|manifest|xml|csv|tsv|txt|lst)(\.gz)?|ya?ml|names|data|"
    rb"parquet|arrow|feather|mat|npy|npz|pkl|pickle|h5|hdf5|xlsx?|ods|sqlite3?|tfrecord|record|"
    rb"caption|captions|cls|label|labels|lab|pts|ann|lines)$",
    re.IGNORECASE,
)
_PROSE_NAME = re.compile(rb"(readme|licen[cs]e|copying|notice|changelog|authors)", re.IGNORECASE)

_LOOKED_INTO_MAX = 20
"""Files of one extension that are opened; names alone tell of all others."""

_ROWS_MAX = 20
_JSON = (b".json", b".geojson")
_TEXTS = tuple(
    b".csv .tsv .txt .lst .jsonl .ndjson .odgt .manifest .json .geojson .names .data .lines".split()
)
_OPAQUE = (b".mat", b".npy", b".npz")
_CLASS_FILES = (b"classes.txt", b"labels.txt", b"class_names.txt")
_ARCHIVES = tuple(b".zip .7z .rar .tar .tgz .tbz2 .txz .tar.gz .tar.bz2 .tar.xz .tar.zst".split())
_WORDS = re.compile(rb"[\s,;:|=\"'<>()\[\]{}]+")
_CELLS = re.compile(rb"[\n\r\t,;|\"']+")


@dataclass(frozen=True, kw_only=True)
class Unread:
    """What was found in archives and beside them, and is not read.

    Attributes:
        inside: What the archives hold beside pictures, as a message says it.
        layout: What the folders in them are where they are neither splits nor classes.
        beside: Paths of files that say what the pictures are.
        other: Paths of files of annotations that do not name them.
    """

    inside: Sequence[str] = ()
    layout: str = ""
    beside: Sequence[bytes] = ()
    other: Sequence[bytes] = ()

    def notes(
        self, raw: Path, archives: Iterable[bytes], options: SourceOptions, name: str
    ) -> list[str]:
        """A note on what is left aside, which only a user may decide.

        Args:
            raw: The raw path.
            archives: Paths of the archives.
            options: Whether `name` was asked for.
            name: Format of the archives.

        Raises:
            SourceError: Something is, and the format was not asked for.
        """
        shown = readable_path(os.fsencode(raw))
        way_out = f"give the folder, or give --format {name} to pack the pictures without"
        names = names_text(map(readable_path, archives))
        beside = names_text(map(readable_path, self.beside))
        what = " and ".join(self.inside)
        if options.format != name and what:
            raise SourceError(
                f"{shown}: the archives hold {what} beside pictures, and only pictures are read "
                f"inside of an archive. Unpack it and {way_out} them."
            )
        if options.format != name and self.layout:
            raise SourceError(
                f"{shown}: the archives hold {self.layout}, and inside of an archive each picture "
                f"is a sample of its own. Unpack it and give the folder, or give --format {name} "
                "to pack every picture, unlabelled; if the folders are classes, give --classes "
                "with their names."
            )
        if options.format != name and self.beside:
            raise SourceError(
                f"{shown}: {names} holds the pictures that {beside} is about, and no list is read "
                f"beside an archive. Unpack the archive there and {way_out} it."
            )
        notes = [f"not read: {what}; unpack the archive to have them read"] if what else []
        if self.layout:
            notes.append(
                f"{self.layout}: each picture is a sample of its own, unlabelled, as asked for"
            )
        if self.beside:
            notes.append(
                f"not read: {beside}, about the pictures in {names}; unpack the archive to have it "
                "read"
            )
        if self.other:
            notes.append(f"not read: {names_text(map(readable_path, self.other))}")
        return notes


def files_beside(
    found: ContainerFiles, members: Iterable[bytes], *, are_labelled: bool
) -> tuple[list[bytes], list[bytes]]:
    """Files beside archives that say what the pictures in them are, and others of such kinds.

    Args:
        found: The archives, and the files beside them.
        members: Paths of the pictures, in their archives.
        are_labelled: Whether the archives say what their pictures are.
    """
    candidates = [path for path in found.others if is_annotation_name(path)]
    if not candidates:
        return [], []
    bases = {split_path(member)[1] for member in members}
    stems = {stem_of(base) for base in bases}
    beside: list[bytes] = []
    opened: dict[bytes, int] = {}
    for path in candidates:
        base = split_path(path)[1].lower()
        if stem_of(split_path(path)[1]) in stems:
            beside.append(path)  # `labels/1.txt` of `1.jpg`.
            continue
        extension = base[base.rfind(b".") :]
        opened[extension] = opened.get(extension, 0) + 1
        if opened[extension] <= _LOOKED_INTO_MAX and _is_about(
            found, path, extension, bases, stems, are_labelled=are_labelled
        ):
            beside.append(path)
    return beside, [path for path in candidates if path not in beside]


def _is_about(
    found: ContainerFiles,
    path: bytes,
    extension: bytes,
    bases: set[bytes],
    stems: set[bytes],
    *,
    are_labelled: bool,
) -> bool:
    """Whether a file says what pictures are that have these names."""
    full = found.full_path(path)
    if extension in _OPAQUE:
        return not are_labelled  # Nobody looks into it, and labels must be somewhere.
    if extension in (b".yaml", b".yml"):
        return declares_yolo(full)
    if extension == b".parquet":
        lines = _parquet_rows(full)
        return not are_labelled if lines is None else _names_any(lines, bases, stems)
    look = Look(os.fsencode(found.root), [])
    if extension in (b".json", b".xml") and kind_of_file(look, path) is not None:
        return True
    if extension not in _TEXTS:
        return False
    try:
        with open(full, "rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return False
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        head = head.decode("utf-16", "replace").encode()
    has_stems = extension not in _JSON and split_path(path)[1].lower() not in _CLASS_FILES
    return _names_any(head.splitlines(), bases, stems if has_stems else set())


def name_pictures(lines: Sequence[bytes], members: Iterable[bytes]) -> bool:
    """Whether lines of a file in an archive name pictures in it."""
    bases = {split_path(member)[1] for member in members}
    return _names_any(lines, bases, {stem_of(base) for base in bases})


def _names_any(lines: Sequence[bytes], bases: set[bytes], stems: set[bytes]) -> bool:
    """Whether a line names a picture; or half of them do, by names without extension."""
    stem_count = line_count = 0
    for line in lines:
        words = {
            word.replace(b"\\", b"/").rsplit(b"/", 1)[-1].strip()
            for words in (_WORDS.split(line), _CELLS.split(line))
            for word in words
        }
        if not words.isdisjoint(bases):
            return True
        if line.strip():
            line_count += 1
            stem_count += not words.isdisjoint(stems)
    return line_count > 0 and 2 * stem_count >= line_count


def _parquet_rows(path: Path) -> list[bytes] | None:
    """The first rows of a Parquet file as text; None where it cannot be read."""
    try:
        with open_parquet(path) as file:
            batch = next(file.iter_batches(_ROWS_MAX), None)
            rows = [] if batch is None else batch.to_pylist()
    except SourceError:
        return None  # pyarrow is not installed.
    except arrow_errors():
        return None
    return [b",".join(_texts(row)) for row in rows]


def _texts(value: object) -> Iterator[bytes]:
    if isinstance(value, str):
        yield value.encode("utf-8", "surrogateescape")
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, int):
        yield b"%d" % value


def is_annotation_name(path: bytes) -> bool:
    """Whether a file is called like one that says what pictures are."""
    name = split_path(path)[1]
    if _ANNOTATION_NAME.search(name) is None or _PROSE_NAME.match(name):
        return False
    return not says_nothing_by_name(name)


def is_nested(name: bytes) -> bool:
    """Whether a file in an archive is an archive itself, by its name."""
    return name.lower().endswith(_ARCHIVES)
