"""What a text file may say about pictures: the places in it where names of them may stand.

A place is a column of a table, a key of JSON records, the keys of a JSON map, an attribute of XML.
The values of each are collected here, with what stands beside them; whether they are names of
pictures is for `meaning.py` to find out. A bounded part of a file is read, as text alone.
"""

from __future__ import annotations

import codecs
import csv
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packer.sources.walk import PICTURE_EXTENSIONS
from packer.wording import cut_text

READ_BYTES = 2**18
"""How much of a file is looked into: 5,000 lines of a list or more, enough to tell what it is."""

_VALUES_MAX = 50_000
_BESIDE_MAX = 500
_COLUMNS_MAX = 64
_SHOWN_CHARS = 100


@dataclass
class Place:
    """One place of a file's records.

    Attributes:
        name: As a message has it: "column 'id'", "key 'image'", "the keys".
        values: Different values in the order of the file, with how often each is there.
        may_number: Whether plain numbers in it may be names of pictures (`1` for `1.jpg`).
        beside: Name and values of what stands beside it; the name is empty where there is none.
        lists: Keys of the JSON lists that hold the values, where they are items of lists.
        is_nested: Whether whole records stand beside the values.
        title: Of a column, the first cell, which may be a value as well.
    """

    name: str
    values: dict[str, int] = field(default_factory=dict)
    may_number: bool = False
    beside: list[tuple[str, list[str]]] = field(default_factory=list)
    lists: dict[str, dict[str, None]] = field(default_factory=dict)
    is_nested: bool = False
    title: str = ""

    def add(self, value: str) -> None:
        """Remember a value, as long as there are not too many."""
        if value in self.values:
            self.values[value] += 1
        elif len(self.values) < _VALUES_MAX and value and len(value) <= 1024:
            self.values[value] = 1


@dataclass
class Mentions:
    """What was found in a file.

    Attributes:
        shape: "table", "lines" (no separator but blanks), "json", "json lines", "xml", "binary".
        places: Where names may stand.
        columns: Of a table with a header.
        start: Its first two lines, cut.
        is_cut: Whether only a part of it was read.
    """

    shape: str
    places: list[Place]
    columns: tuple[str, ...] = ()
    start: str = ""
    is_cut: bool = False


def read_mentions(path: bytes, read_bytes: int = READ_BYTES) -> Mentions | None:
    """What a file may say about pictures; None where it holds no text, or no text of records.

    Args:
        path: The file.
        read_bytes: How much of it is looked into.

    Raises:
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        data = file.read(read_bytes)
        is_cut = bool(file.read(1))
    if path.lower().endswith((b".xlsx", b".ods")):
        return _of_workbook(path)
    text = decoded(data)
    if text is None:
        return _of_binary(data, is_cut) if path.lower().endswith(OPAQUE_EXTENSIONS) else None
    lines = [line.strip() for line in text[: 64 * 2**10].splitlines() if line.strip()]
    if not lines:
        return None
    start = " / ".join(_cut(line) for line in lines[:2])
    if text.lstrip()[0] in "[{":
        found = _of_json(text)
        # A Windows INI file begins with a bracket as well, and `[a, b]` may be a line of anything.
        if found.places:
            found.start, found.is_cut = start, is_cut
            return found
    if text.lstrip()[0] == "<":
        found = Mentions("xml", list(_xml_places(text)))
    else:
        found = _of_lines(text, is_cut)
    found.start, found.is_cut = start, is_cut
    return found


def decoded(data: bytes) -> str | None:
    """The text of a file in any common encoding, or None where it is none."""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    if b"\0" in data[:4096]:
        # UTF-16 without a mark: every other byte of Latin text is zero.
        for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
            sample = data[first:4096:2]
            if sample and sample.count(0) > 0.9 * len(sample):
                return data.decode(encoding, "replace")
        return None
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data)  # The end may be cut.
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    controls = sum(c < " " and c not in "\t\n\r\f" for c in text[:4096])
    return None if controls > 0.01 * len(text[:4096]) else text


def _cut(line: str) -> str:
    line = "".join(c if c.isprintable() else " " for c in line[: 2 * _SHOWN_CHARS])
    return cut_text(line, _SHOWN_CHARS)


# --- JSON -----------------------------------------------------------------------------------------

_JSON_TOKEN = re.compile(
    r'"((?:[^"\\]|\\.)*)"(\s*:)?|([\[\]{}])|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)'
)
_ESCAPES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")


def _of_json(text: str) -> Mentions:
    """Of JSON, JSON lines, or either cut short: the text is not parsed but gone through."""
    keys: dict[int, Place] = {}
    values: dict[str, Place] = {}
    items = Place("the lists", may_number=False)
    stack: list[list[str]] = []  # "{" or "[", and the last key.
    tops = 0
    for string, colon, bracket, number in _JSON_TOKEN.findall(text):
        if bracket and bracket in "{[":
            tops += not stack
            if stack and stack[-1][0] == "{" and len(stack) in keys:
                keys[len(stack)].is_nested = True
            stack.append([bracket, stack[-1][1] if stack and bracket == "[" else ""])
            continue
        if bracket:
            if stack:
                stack.pop()
            continue
        word = number or _unescaped(string)
        if not stack:
            continue
        kind, key = stack[-1]
        if colon and kind == "{":
            stack[-1][1] = word
            keys.setdefault(len(stack), Place("the keys")).add(word)
        elif kind == "{":
            if not number or is_name_column(key):
                values.setdefault(key, Place(f"key {key!r}", may_number=is_name_column(key)))
                values[key].add(word)
            map_place = keys.get(len(stack))
            if map_place is not None:
                map_place.beside = map_place.beside or [("", [])]
                if len(map_place.beside[0][1]) < _BESIDE_MAX:
                    map_place.beside[0][1].append(word)
        elif not number:
            items.add(word)
            if len(items.lists) < _BESIDE_MAX:
                items.lists.setdefault(key, {}).setdefault(word)
    names = {name for place in keys.values() for name in place.values}
    for key, place in values.items():
        place.beside = [(name, []) for name in names if name != key]
    shape = "json lines" if tops > 1 else "json"
    return Mentions(shape, [p for p in (*values.values(), *keys.values(), items) if p.values])


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPES.sub(lambda m: chr(int(m[1], 16)) if m[1] else m[2], text)


# --- XML ------------------------------------------------------------------------------------------

_XML_VALUE = re.compile(r"([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')|<([\w:.-]+)[^<>]*>([^<>]+)</")


def _xml_places(text: str) -> Iterator[Place]:
    places: dict[str, Place] = {}
    for attribute, double, single, tag, content in _XML_VALUE.findall(text):
        name = attribute or tag
        place = places.setdefault(name, Place(f"{name!r}", may_number=is_name_column(name)))
        place.add((double or single or content).strip())
    for name, place in places.items():
        place.beside = [(other, list(p.values)) for other, p in places.items() if other != name]
        yield place


# --- lines ----------------------------------------------------------------------------------------

_SEPARATORS = "\t;,|"
_SEPARATED_SHARE_MIN = 0.9
_PAIR = re.compile(r"^\s*-?\s*[\"']?([^:=\"']+?)[\"']?\s*(?::\s|=|:$)\s*(.*)$")
_PICTURE_END = "|".join(re.escape(e.decode()) for e in sorted(PICTURE_EXTENSIONS, reverse=True))
_NAME_IN_LINE = re.compile(rf"[^\t;,|\"'=<>()\[\]]*?(?:{_PICTURE_END})(?![\w.])", re.IGNORECASE)


def _of_lines(text: str, is_cut: bool) -> Mentions:
    lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#%"]
    if is_cut:
        lines = lines[:-1]
    sample = lines[:50]
    for separator in _SEPARATORS:
        if sum(separator in line for line in sample) >= _SEPARATED_SHARE_MIN * len(sample) > 0:
            rows = list(_csv_rows(lines, separator))
            found = _of_rows(rows, "table")
            if not any(cell.lower().endswith(tuple(_ENDINGS)) for row in rows[:50] for cell in row):
                found.places.append(_names_in(lines))  # Such as SQL has them.
            return found
    pairs = [(pair[1], pair[2]) for line in lines if (pair := _PAIR.match(line))]
    if len(pairs) >= _SEPARATED_SHARE_MIN * len(lines) > 0:
        return Mentions("lines", list(_pair_places(pairs)))
    found = _of_rows([line.split() for line in lines], "lines")
    return Mentions("lines", [*found.places, _names_in(lines)], found.columns)


def _names_in(lines: Sequence[str]) -> Place:
    """Names with blanks in them, and names anywhere in lines of no fixed form."""
    whole = Place("the lines")
    rest: list[str] = []
    for line in lines:
        names = _NAME_IN_LINE.findall(line)
        for name in names:
            for start in _word_starts(name):
                whole.add(name[start:])
        if len(rest) < _BESIDE_MAX:
            left = _NAME_IN_LINE.sub(" ", line).split() if names else [line.strip()]
            rest += [word for word in left if word != "*"]
    whole.beside = [("", rest)] if rest else []
    return whole


def _word_starts(name: str) -> Iterator[int]:
    """Where a name may begin: a label of blanks may stand before it."""
    yield len(name) - len(name.lstrip())
    for count, blank in enumerate(re.finditer(r"\s+(?=\S)", name)):
        if count == 8:
            return
        yield blank.end()


def _csv_rows(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error:
            continue
        yield [cell.strip() for cell in row]


def _of_rows(rows: Sequence[Sequence[str]], shape: str) -> Mentions:
    if not rows:
        return Mentions(shape, [])
    has_header = shape == "table" and any(rows[0]) and not any(map(_is_value, rows[0]))
    header = tuple(rows[0]) if has_header else ()
    body = rows[1:] if has_header else rows
    width = min(max(map(len, body), default=0), _COLUMNS_MAX)
    columns = [[row[n] for row in body if n < len(row)] for n in range(width)]
    names = [header[n] if n < len(header) else "" for n in range(width)]
    # Without a header, numbers may be those of pictures only in a table of numbers alone.
    are_numbers = width > 1 and all(
        _is_number(cell) for column in columns for cell in column[:50] if cell
    )
    places = []
    for n, column in enumerate(columns):
        may_number = is_name_column(names[n]) if header else n == 0 and are_numbers
        place = Place(f"column {names[n]!r}" if header else f"column {n + 1}", {}, may_number)
        place.title = names[n]
        for value in column:
            place.add(value)
        place.beside = [
            (names[other], columns[other][:_BESIDE_MAX]) for other in range(width) if other != n
        ]
        places.append(place)
    return Mentions(shape, places, header)


def _pair_places(pairs: Sequence[tuple[str, str]]) -> Iterator[Place]:
    """Of YAML, INI and the like: the keys, and the values of each key."""
    keys, values = Place("the keys"), dict[str, Place]()
    written: list[str] = []
    for key, value in pairs:
        keys.add(key.strip())
        value = value.strip().strip("\"'")
        if value:
            place = values.setdefault(key, Place(f"key {key!r}", may_number=is_name_column(key)))
            place.add(value)
            written.append(value)
    keys.beside = [("", written[:_BESIDE_MAX])]
    keys.is_nested = not written
    for key, place in values.items():
        place.beside = [(other, list(p.values)) for other, p in values.items() if other != key]
    yield from (keys, *values.values())


def _is_value(cell: str) -> bool:
    """Whether a cell of a first row is a value rather than the name of a column."""
    return _is_number(cell) or cell.lower().endswith(tuple(_ENDINGS))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


_ENDINGS = frozenset(extension.decode() for extension in PICTURE_EXTENSIONS)
_NAME_WORDS = frozenset(
    (
        *("id", "ids", "uid", "uuid", "image", "images", "img", "imgs", "picture", "pictures"),
        *("pic", "photo", "file", "files", "filename", "fname", "name", "path", "key", "frame"),
        *("sample", "item", "index"),
    )
)


def is_name_column(name: str) -> bool:
    """Whether numbers under this name may stand for pictures: `id`, `image_id`, `patientId`."""
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()
    return not _NAME_WORDS.isdisjoint(re.split(r"[^a-z0-9]+", words))


# --- others ---------------------------------------------------------------------------------------

OPAQUE_EXTENSIONS = (
    *(b".mat", b".pkl", b".pickle", b".npy", b".npz", b".h5", b".hdf5", b".xls", b".xlsx"),
    *(b".ods", b".db", b".sqlite", b".sqlite3", b".feather", b".rds", b".rdata", b".msgpack"),
)
"""Files of tables and arrays that no source reads."""

_BYTES_NAME = re.compile(
    rb"[\w%+(). -]{1,200}?(?:" + _PICTURE_END.encode() + rb")(?!\w)", re.IGNORECASE
)
_SHEETS = re.compile(r"xl/(sharedStrings|worksheets/[^/]*)\.xml|content\.xml")


def _of_binary(data: bytes, is_cut: bool) -> Mentions:
    """Names of pictures among bytes, whatever these are."""
    place = Place("the file", is_nested=True)
    for name in _BYTES_NAME.findall(data.replace(b"\0", b"")):
        text = name.decode("latin-1")
        # What stands before a name may be letters as well: a length, a tag.
        for start in range(min(len(text), 24)):
            place.add(text[start:])
    return Mentions("binary", [place], is_cut=is_cut)


def _of_workbook(path: bytes) -> Mentions | None:
    """Texts of a spreadsheet."""
    place = Place("a column", is_nested=True, may_number=False)
    try:
        with zipfile.ZipFile(Path(path.decode("utf-8", "surrogateescape"))) as archive:
            for name in archive.namelist():
                if _SHEETS.fullmatch(name):
                    with archive.open(name) as member:
                        text = member.read(16 * READ_BYTES).decode("utf-8", "replace")
                    for value in re.findall(r"<(?:t|text:p)[^<>]*>([^<>]+)<", text):
                        place.add(value.strip())
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError):
        return None
    return Mentions("binary", [place])
