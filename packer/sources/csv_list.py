"""A CSV or TSV file that lists pictures and their labels."""

from __future__ import annotations

import csv
import io
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packer.errors import SourceError
from packer.sources.items import RawItem, Reject, Scan
from packer.sources.source import SourceOptions
from packer.sources.walk import readable_path, skip_reason
from readers.store.schema import Field
from readers.store.splits import SPLITS_MAX

name = "csv"

LIST_EXTENSIONS = (".csv", ".tsv")

# Compared without case and blanks. Where a list has several of them, the first one here is taken:
# a full path says more than a name, and a name more than an id.
PATH_COLUMNS = (
    "path",
    "filepath",
    "file_path",
    "image_path",
    "img_path",
    "file_name",
    "filename",
    "image_name",
    "img_name",
    "file",
    "image",
    "img",
    "image_id",
)
LABEL_COLUMNS = (
    "label",
    "class",
    "category",
    "target",
    "label_name",
    "class_name",
    "category_name",
    "target_name",
    "classname",
    "labelname",
)
SPLIT_COLUMNS = ("split", "subset")

# Compared without underscores as well. Width and height alone are the size of the picture.
BOX_COLUMNS = frozenset(
    (
        *("xmin", "xmax", "ymin", "ymax", "x0", "y0", "x1", "y1", "x2", "y2"),
        *("bbox", "bboxes", "box", "boxes"),
    )
)
MASK_COLUMNS = frozenset(("mask", "maskpath", "maskfile", "segmentation", "rle", "encodedpixels"))


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What the header of a list says.

    Attributes:
        delimiter: "," or ";" or tab: the one that gives a path column.
        names: As written, without surrounding blanks.
        path: Position of the path column, or None.
        label: Position of the label column, or None.
        split: Position of the split column, or None.
        boxes: Names of columns that hold boxes.
        masks: Names of columns that hold masks.
    """

    delimiter: str
    names: tuple[str, ...]
    path: int | None
    label: int | None
    split: int | None
    boxes: tuple[str, ...]
    masks: tuple[str, ...]

    @property
    def is_readable(self) -> bool:
        """Whether this source reads such a list: pictures with one label each."""
        return self.path is not None and self.label is not None and not self.boxes + self.masks


def scan(raw: Path, options: SourceOptions) -> Scan:
    """The pictures that a list names, in its order, each with the label in its row.

    Every value is text, as written, but for blanks around it: `007`, `NA` and `1e3` stay what they
    are. A path is looked for beside the list first, then under `options.root`. Classes and splits
    are sorted by code point. Rows that cannot be used are rejects that name their line.

    Args:
        raw: The list, or a folder with exactly one.
        options: `root` is where pictures are that do not lie beside the list.

    Raises:
        SourceError: There is no list, or more than one, or its header names no path or no label,
            or it holds boxes or masks.
    """
    list_path = find_list(raw)
    columns = read_columns(list_path)
    _check_columns(list_path, columns)
    assert columns.path is not None
    assert columns.label is not None

    bases = picture_folders(list_path, options)
    # Items are relative to the root where one is given: that is where the pictures are. The few
    # that lie beside the list instead then get a full path.
    base = bases[-1]
    found: list[tuple[bytes, bytes, os.stat_result, str, str]] = []
    rejects: list[Reject] = []
    first_lines: dict[bytes, int] = {}
    for line, row in read_rows(list_path, columns.delimiter):
        place = f"{readable_path(os.fsencode(list_path.name))}, line {line}"
        key = _key(row[columns.path], bases) if len(row) > columns.path else b""
        problem = _row_problem(row, columns, key)
        if problem is None and key in first_lines:
            problem = f"listed twice (first in line {first_lines[key]})"
        if problem is None:
            first_lines[key] = line
            status, folder, problem = _find_picture(key, bases)
        if problem is not None:
            rejects.append(Reject(key=key, path=place, reason=problem))
            continue
        assert status is not None
        path = key if folder == base else os.path.join(os.path.abspath(folder), key)
        split = row[columns.split].strip() if columns.split is not None else ""
        found.append((key, path, status, row[columns.label].strip(), split))

    if not found and not rejects:
        raise SourceError(
            f"{readable_path(os.fsencode(list_path))}: the list has a header and no rows; expected "
            "one row for each picture."
        )
    classes = tuple(sorted({label for _, _, _, label, _ in found}))
    splits = tuple(sorted({split for *_, split in found})) if columns.split is not None else ()
    if len(splits) > SPLITS_MAX:
        raise SourceError(
            f"{readable_path(os.fsencode(list_path))}: column "
            f"{columns.names[columns.split or 0]!r} names {len(splits)} splits; at most "
            f"{SPLITS_MAX} are possible. Rename the column if it is not about splits."
        )
    # One dict for all items of a label and split, which nobody changes.
    values = {
        (label, split): {"label": number, **({"split": splits.index(split)} if splits else {})}
        for number, label in enumerate(classes)
        for split in splits or ("",)
    }
    items = [
        RawItem(key, path, status.st_size, status.st_mtime_ns, values[label, split])
        for key, path, status, label, split in found
    ]
    fields = [Field(name="label", kind="label", dtype="int64", names=classes)]
    if splits:
        fields.append(Field(name="split", kind="scalar", dtype="uint8", names=splits))
    return Scan(
        format=name,
        root=Path(os.fsdecode(base)),
        items=items,
        classes=classes,
        splits=splits,
        fields=tuple(fields),
        rejects=rejects,
        notes=_column_notes(columns),
    )


def list_files(folder: Path) -> list[Path]:
    """The CSV and TSV files that lie directly in a folder, sorted by name."""
    return sorted(
        (
            path
            for path in folder.iterdir()
            if path.suffix.lower() in LIST_EXTENSIONS
            and skip_reason(os.fsencode(path.name)) is None
            and path.is_file()
        ),
        key=lambda path: os.fsencode(path.name),
    )


def find_list(raw: Path) -> Path:
    """The list that `raw` is, or the one readable list in it.

    Raises:
        SourceError: There is none, or more than one.
    """
    if raw.is_file():
        return raw
    lists = list_files(raw)
    if len(lists) > 1:
        # A file of another kind (class names, statistics) does not make it ambiguous.
        lists = [path for path in lists if read_columns(path).is_readable] or lists
    if len(lists) != 1:
        found = ", ".join(readable_path(os.fsencode(path.name)) for path in lists) or "none"
        raise SourceError(
            f"{readable_path(os.fsencode(raw))}: found {found}; expected exactly one .csv or .tsv "
            "file that lists pictures and labels. Give the path of the list itself instead."
        )
    return lists[0]


def picture_folders(list_path: Path, options: SourceOptions) -> list[bytes]:
    """Where the pictures of a list are looked for: beside it, then under the root."""
    folders = [list_path.parent] if options.root is None else [list_path.parent, options.root]
    return [os.fsencode(folder) for folder in folders]


def is_there(written: str, bases: list[bytes]) -> bool:
    """Whether a path of a list leads to a file."""
    key = _key(written, bases)
    return bool(key) and b"\0" not in key and _find_picture(key, bases)[0] is not None


def read_columns(list_path: Path) -> Columns:
    """Read the header of a list, trying the delimiters.

    Raises:
        SourceError: It cannot be read, or is not text in UTF-8.
    """
    delimiters = "\t,;" if list_path.suffix.lower() == ".tsv" else ",;\t"
    fallback = None
    for delimiter in delimiters:
        header = next(read_lines(list_path, delimiter), (0, []))[1]
        columns = _columns_of([column.strip() for column in header], delimiter)
        if columns.path is not None and len(columns.names) > 1:
            return columns
        fallback = fallback or columns
    assert fallback is not None
    return fallback


def read_rows(list_path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows below the header with the number of their first line, which counts from 1."""
    rows = read_lines(list_path, delimiter)
    next(rows, None)
    return rows


def read_lines(list_path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of a list, the header included, without empty ones.

    Bytes that are not UTF-8 come as lone surrogates, from which the name of a file can be had back.

    Raises:
        SourceError: The file cannot be read, is UTF-16, or its quoting is broken.
    """
    place = readable_path(os.fsencode(list_path))
    line = 1
    try:
        with open(list_path, "rb") as file:
            if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
                raise SourceError(f"{place}: the list is UTF-16. Save it as CSV in UTF-8.")
            file.seek(0)
            text = io.TextIOWrapper(
                file, encoding="utf-8-sig", errors="surrogateescape", newline=""
            )
            # Strict, or an unclosed quote takes the rest of the list for one label without a word.
            rows = csv.reader(text, delimiter=delimiter, skipinitialspace=True, strict=True)
            for row in rows:
                if row:
                    yield line, row
                line = rows.line_num + 1
    except OSError as error:
        raise SourceError(
            f"{place}: the list cannot be read: {error.strerror}. Check its permissions."
        ) from error
    except csv.Error as error:
        raise SourceError(
            f"{place}, line {line}: not CSV: {error}. Look for an unclosed quote in this line."
        ) from error


def posix_form(path: str) -> str:
    """A path without `.` parts and doubled slashes; `..` stays, since links may lie before it."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(parts)


def _columns_of(names: list[str], delimiter: str) -> Columns:
    plain = ["".join(column.split()).lower() for column in names]
    bare = [column.replace("_", "") for column in plain]
    return Columns(
        delimiter=delimiter,
        names=tuple(names),
        path=_first_position(PATH_COLUMNS, plain),
        label=_first_position(LABEL_COLUMNS, plain),
        split=_first_position(SPLIT_COLUMNS, plain),
        boxes=tuple(n for n, b in zip(names, bare, strict=True) if b in BOX_COLUMNS),
        masks=tuple(n for n, b in zip(names, bare, strict=True) if b in MASK_COLUMNS),
    )


def _first_position(wanted: Iterable[str], names: list[str]) -> int | None:
    return next((names.index(column) for column in wanted if column in names), None)


def _check_columns(list_path: Path, columns: Columns) -> None:
    """Refuse a list that says something this source would drop, or does not say what it needs."""
    place = readable_path(os.fsencode(list_path))
    header = ", ".join(repr(column) for column in columns.names[:20]) or "nothing"
    if len(columns.names) > 20:
        header += f" and {len(columns.names) - 20} more"
    if columns.path is None:
        raise SourceError(
            f"{place}: the header has {header}; expected a column of paths, called one of "
            f"{', '.join(PATH_COLUMNS)}. Rename the column, or add a header line."
        )
    for kind, found in (("boxes", columns.boxes), ("masks", columns.masks)):
        if found:
            raise SourceError(
                f"{place}: the columns {', '.join(map(repr, found))} hold {kind}, and lists of "
                f"{kind} are not read by this source yet. Without these columns, the list is read "
                "as one label for each picture."
            )
    if columns.label is None:
        raise SourceError(
            f"{place}: the header has {header}; expected a column of labels, called one of "
            f"{', '.join(LABEL_COLUMNS)}. Rename the column; one column for each class (one-hot) "
            "is not read yet. To pack the pictures unlabelled, give their folder and --format flat."
        )


def _key(path: str, bases: list[bytes]) -> bytes:
    """Bytes of a path as written; one from Windows gets slashes, unless a file is called that."""
    key = posix_form(path.strip()).encode("utf-8", "surrogateescape")
    if b"\\" not in key or any(os.path.lexists(os.path.join(base, key)) for base in bases):
        return key
    return posix_form(path.strip().replace("\\", "/")).encode("utf-8", "surrogateescape")


def _row_problem(row: list[str], columns: Columns, key: bytes) -> str | None:
    """Why the row cannot be used, whatever the file system says, or None when it can."""
    if len(row) != len(columns.names):
        return f"has {len(row)} columns; the header has {len(columns.names)}"
    if not key:
        return "the path is empty"
    if b"\0" in key:
        return "the path holds a zero byte"
    for kind, position in (("label", columns.label), ("split", columns.split)):
        if position is None:
            continue
        value = row[position].strip()
        if not value:
            return f"the {kind} is empty"
        try:
            value.encode()
        except UnicodeEncodeError:
            written = readable_path(value.encode("utf-8", "surrogateescape"))
            return f"the {kind} is not UTF-8 text: {written}"
    return None


def _find_picture(
    key: bytes, bases: list[bytes]
) -> tuple[os.stat_result | None, bytes, str | None]:
    """Status of the file and the folder it was found under, or why there is none."""
    for base in bases:
        try:
            status = os.stat(os.path.join(base, key))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return None, base, f"{readable_path(key)} cannot be read: {error.strerror}"
        if not stat.S_ISREG(status.st_mode):
            return None, base, f"{readable_path(key)} is not a regular file"
        return status, base, None
    looked = " and ".join(readable_path(base) for base in bases)
    return None, b"", f"{readable_path(key)} not found; looked in {looked}"


def _column_notes(columns: Columns) -> list[str]:
    taken = [p for p in (columns.path, columns.label, columns.split) if p is not None]
    left = [column for n, column in enumerate(columns.names) if n not in taken]
    named = ", ".join(repr(columns.names[position]) for position in taken)
    notes = [f"columns read: {named}; files that the list does not name were not looked at"]
    if left:
        more = f" and {len(left) - 10} more" if len(left) > 10 else ""
        notes.append(f"columns not read: {', '.join(map(repr, left[:10]))}{more}")
    return notes
