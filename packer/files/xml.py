"""XML files of strangers, read without the dangers that XML brings: entities and sheer size."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError, fromstring, iterparse

from packer.files.start import content_problem
from readers.store.pictures.signatures import START_BYTES

FILE_BYTES_MAX = 2**24
"""16 MiB, a thousand times what the annotations of one picture take. Parsed, it is up to a hundred
times as large."""

DUMP_BYTES_MAX = 2**31
"""2 GiB, for a file that holds the annotations of all pictures."""

_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_DECLARED = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._:-]+)["']""")
_DECLARATION = re.compile(rb"\A<\?xml\s[^>]*\?>")
_FORBIDDEN = (b"<!DOCTYPE", b"<!ENTITY")


def read_xml(path: bytes, bytes_max: int = FILE_BYTES_MAX) -> Element:
    """The root of an XML file, whatever text encoding it declares or its byte-order mark says.

    Raises:
        ValueError: Why the file cannot be used, without its name: it cannot be read, is larger
            than `bytes_max`, empty or not well-formed, or declares a document type or entities.
    """
    data = _read(path, bytes_max)
    try:
        root: Element = fromstring(data)
    except ParseError as error:
        raise ValueError(_syntax_reason(data, error)) from error
    return root


def stream_xml(path: bytes, bytes_max: int = DUMP_BYTES_MAX) -> Iterator[Element]:
    """The root of an XML file as it begins, without children, and then each child of it, whole.

    A child is emptied when the next one is asked for, so that a dump of a million pictures takes
    the memory of its bytes alone.

    Raises:
        ValueError: As `read_xml`; after the first children where the file is broken further on.
    """
    data = _read(path, bytes_max)
    root: Element | None = None
    depth = 0
    try:
        for event, element in iterparse(io.BytesIO(data), ("start", "end")):
            if event == "start":
                depth += 1
                if root is None:
                    root = element
                    yield element
                continue
            depth -= 1
            if depth == 1 and root is not None:
                yield element
                root.clear()
    except ParseError as error:
        raise ValueError(_syntax_reason(data, error)) from error


def _read(path: bytes, bytes_max: int) -> bytes:
    """The file as UTF-8, when nothing speaks against parsing it."""
    try:
        with open(path, "rb") as file:
            byte_count = os.fstat(file.fileno()).st_size
            if byte_count > bytes_max:
                raise ValueError(
                    f"{byte_count:,} bytes of XML, expected at most {bytes_max:,}: "
                    "this is not a file of annotations"
                )
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    problem = content_problem(data[:START_BYTES])
    if problem:
        raise ValueError(f"{problem}, expected XML")
    data = _as_utf8(data).lstrip()
    # A document type can define entities that grow to gigabytes or read other files. Not every
    # expat refuses them, and no tool that writes annotations needs them. In UTF-8 a search of the
    # bytes cannot miss one.
    for word in _FORBIDDEN:
        if word in data:
            raise ValueError(
                f"the XML holds {word.decode()}, which can be an attack and is never needed here: "
                "expected plain elements. Remove it if you trust the file"
            )
    return data


def _as_utf8(data: bytes) -> bytes:
    """The text in UTF-8, by its byte-order mark or declaration."""
    encoding = ""
    for mark, encoding_of_mark in _MARKS:
        if data.startswith(mark):
            data, encoding = data[len(mark) :], encoding_of_mark
            break
    else:
        if data[:2] in (b"<\0", b"\0<"):
            encoding = "utf-16-le" if data[1] == 0 else "utf-16-be"
        else:
            declared = _DECLARED.match(data[:256].lstrip())
            encoding = declared[1].decode() if declared else "utf-8"
    if encoding.lower() in ("utf-8", "utf8"):
        return data  # The parser checks that it is.
    try:
        text = data.decode(encoding).encode()
    except LookupError as error:
        raise ValueError(
            f"the XML declares encoding {encoding!r}, which is none that Python knows. "
            "Save it as UTF-8"
        ) from error
    except UnicodeError as error:
        raise ValueError(f"not {encoding}, as the XML says it is: {error}") from error
    return _DECLARATION.sub(b"", text.lstrip(), count=1)  # It is no longer true.


def _syntax_reason(data: bytes, error: ParseError) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as wrong:
        return (
            f"not UTF-8 ({wrong.reason} at byte {wrong.start}), and the XML declares no other "
            "encoding. Save it as UTF-8"
        )
    return f"not well-formed XML: {error}"
