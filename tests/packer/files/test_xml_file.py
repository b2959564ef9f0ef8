"""XML of strangers: encodings, attacks, size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packer.files.xml import read_xml, stream_xml


def write(tmp_path: Path, data: bytes) -> bytes:
    path = tmp_path / "a.xml"
    path.write_bytes(data)
    return os.fsencode(path)


DECLARED = '<?xml version="1.0" encoding="{}"?>\n<a><b>caf\u00e9 \u4e2d</b></a>'


@pytest.mark.parametrize(
    "data",
    [
        DECLARED.format("utf-8").encode(),
        b"\xef\xbb\xbf" + DECLARED.format("UTF-8").encode(),
        b"\n \n" + DECLARED.format("UTF-8").encode(),
        b"\xff\xfe" + DECLARED.format("utf-16").encode("utf-16-le"),
        b"\xfe\xff" + DECLARED.format("utf-16").encode("utf-16-be"),
        DECLARED.format("utf-16").encode("utf-16-le"),
        DECLARED.format("utf-16").encode("utf-16-be"),
        b"\xff\xfe\x00\x00" + DECLARED.format("utf-32").encode("utf-32-le"),
        DECLARED.format("GB18030").encode("gb18030"),
        DECLARED.replace('"', "'").format("gb18030").encode("gb18030"),
    ],
    ids=["utf8", "bom", "blank", "16le", "16be", "16le-bare", "16be-bare", "32", "gb", "quote"],
)
def test_text_is_read_in_the_encoding_that_the_file_has(tmp_path, data):
    """By its mark or its declaration; blank lines before it and any codec are fine."""
    path = write(tmp_path, data)
    assert read_xml(path).findtext("b") == "caf\u00e9 \u4e2d"
    assert [element.tag for element in stream_xml(path)] == ["a", "b"]


def test_latin_1_is_read_as_declared(tmp_path):
    """What is not UTF-8 but says so is text all the same."""
    data = b'<?xml version="1.0" encoding="windows-1252"?><a>caf\xe9 \x80</a>'
    assert read_xml(write(tmp_path, data)).text == "caf\u00e9 \u20ac"


BOMB = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;">]><a>&y;</a>'
EXTERNAL = '<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>'


@pytest.mark.parametrize("text", [BOMB, EXTERNAL, '<!DOCTYPE a PUBLIC "x" "y"><a/>'])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-7"])
def test_a_document_type_is_refused_in_any_encoding(tmp_path, text, encoding):
    """Entities grow or read files; an encoding that hides the word from a search hides nothing."""
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    body = text.encode(encoding) if encoding != "utf-7" else text.replace("<!", "+ADwAIQ-").encode()
    data = head.encode(encoding) + body if encoding != "utf-16" else (head + text).encode(encoding)
    path = write(tmp_path, data)
    with pytest.raises(ValueError, match="<!DOCTYPE, which can be an attack"):
        read_xml(path)
    with pytest.raises(ValueError, match="<!DOCTYPE, which can be an attack"):
        list(stream_xml(path))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty, expected XML"),
        (b" \n", "the file is empty, expected XML"),
        (b"<a><b></a>", "not well-formed XML: mismatched tag"),
        (b"<a>", "not well-formed XML: no element found"),
        (b"<a>caf\xe9</a>", "not UTF-8 .* at byte 6"),
        (b'<?xml version="1.0" encoding="klingon"?><a/>', "'klingon', which is none that Python"),
        (b'<?xml version="1.0" encoding="base64"?><a/>', "'base64', which is none that Python"),
        (b'<?xml version="1.0" encoding="ascii"?><a>\xe9</a>', "not ascii, as the XML says"),
        (b"<a>&nbsp;</a>", "not well-formed XML: undefined entity"),
        (b"<a>\x00</a>", "not well-formed XML"),
    ],
)
def test_what_cannot_be_parsed_is_said_with_its_reason(tmp_path, data, reason):
    """Nothing but ValueError leaves the module, and it says what is wrong."""
    path = write(tmp_path, data)
    with pytest.raises(ValueError, match=reason):
        read_xml(path)
    with pytest.raises(ValueError, match=reason):
        list(stream_xml(path))


def test_a_file_that_is_not_there_or_too_large_is_said(tmp_path):
    """Without reading a byte of it."""
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_xml(os.fsencode(tmp_path / "none.xml"))
    path = write(tmp_path, b"<a>" + b" " * 100 + b"</a>")
    with pytest.raises(ValueError, match="107 bytes of XML, expected at most 106"):
        read_xml(path, 106)
    assert read_xml(path, 107).tag == "a"


def test_a_stream_gives_whole_children_and_lets_go_of_them(tmp_path):
    """A dump of any size takes little more memory than its bytes."""
    count = 20_000
    inner = b"".join(b'<a n="%d"><x>%d</x><y/></a>' % (n, n) for n in range(count))
    stream = stream_xml(write(tmp_path, b'<r v="1">' + inner + b"</r>"))
    root = next(stream)
    assert (root.tag, root.get("v")) == ("r", "1")
    held = 0
    for number, child in enumerate(stream):
        assert (child.get("n"), child.findtext("x"), len(child)) == (str(number), str(number), 2)
        held = max(held, len(root))
    assert number == count - 1
    assert held < count / 4


def test_elements_that_lie_deep_in_each_other_crash_nothing(tmp_path):
    """A stranger's file may be built to overflow a stack."""
    path = write(tmp_path, b"<a>" * 100_000 + b"</a>" * 100_000)
    assert read_xml(path).tag == "a"
