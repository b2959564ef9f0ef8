"""The first bytes of a file say what it is."""

from __future__ import annotations

import pytest

from readers.store.errors import ImageError
from readers.store.pictures.image_header import read_header
from readers.store.pictures.signatures import signed_format, stranger_text
from tests.readers.store.pictures import LIMIT, noise, saved


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\n<!DOCTYPE html><html>", "looks like a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer: get the file with"),
        (bytes(5000), "the first 256 bytes are all zero"),
        (b"hello, this is text", r"starts with b'hello, this is t'; pictures that are read: JPEG"),
    ],
)
def test_what_is_no_picture_is_refused_with_what_it_looks_like(data, words):
    """An empty copy, a web page and a broken picture need different repairs."""
    with pytest.raises(ImageError, match=words):
        read_header(data, pixels_max=LIMIT)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "PPM", "JPEG2000"])
def test_each_format_is_known_by_its_first_bytes(format):
    """A damaged file is called by the name of what it was; a signature is all that it may have."""
    assert signed_format(saved(noise(3), format)[:16]) == format


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"<?xml version='1.0'?>\n<svg>", "an SVG drawing"),
        (b"%PDF-1.7", "a PDF document"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\x1f\x8b\x08", "gzip data"),
        (b"\x93NUMPY\1\0", "a NumPy array"),
        (b"\0\5\x16\7\0\2", "a macOS resource fork"),
    ],
)
def test_what_is_often_found_among_pictures_is_named(start, kind):
    """Whoever reads the name knows what happened without opening the file."""
    assert signed_format(start) is None
    assert f"not an image: it looks like {kind}" in stranger_text(start)
