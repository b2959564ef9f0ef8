"""How large a picture file may be: what claims to be larger is refused before it is in memory.

A size is a claim, in the directory of an archive, in a header or of a file with holes, and a few
kilobytes of deflate make a gigabyte of zeros. So a size is held against a limit first, and of what
is large but allowed the first bytes must be those of a picture before the rest is read.
"""

from __future__ import annotations

from packer.recipe import Recipe
from readers.store.errors import ImageError
from readers.store.pictures.signatures import START_BYTES, is_heic, signed_format, stranger_text

PICTURE_BYTES_LEAST = 2**26
"""64 MiB are allowed however small the limit of pixels is: metadata and further frames take room
that it says nothing about."""

BYTES_PER_PIXEL = 2
"""Of the largest picture that is allowed. Compressed photos take less than one byte for a pixel,
16-bit PNG of satellites up to 6; 2**28 pixels make 512 MiB, which no published data set has in one
file."""

LOOKED_AT_BYTES = 2**24
"""A file of more has its first bytes looked at before the rest is read. Of smaller ones reading all
costs less than a second look."""

_JPEG_XL = (b"\xff\x0a", b"\0\0\0\x0cJXL ")
_UNSIGNED = (b".tga", b".vda", b".icb", b".vst")
"""Extensions of the one kind of picture that has no signature at its start."""


def picture_bytes_max(pixels_max: int = Recipe.pixels_max) -> int:
    """How large a picture file may be, by the pixels that it may have (`Recipe.pixels_max`)."""
    return max(PICTURE_BYTES_LEAST, BYTES_PER_PIXEL * pixels_max)


def size_problem(byte_count: int, bytes_max: int) -> str | None:
    """Why a picture file of a size is not read, or None."""
    if byte_count <= bytes_max:
        return None
    return (
        f"{byte_count:,} bytes, far more than a picture takes; expected at most {bytes_max:,}. If "
        "it is one, raise the limit with --max-pixels, which allows 2 bytes a pixel"
    )


def check_start(start: bytes, byte_count: int, name: bytes) -> None:
    """See that a large file begins like a picture.

    Args:
        start: Its first `START_BYTES` at least.
        byte_count: Its size.
        name: Its name, or the key of its item.

    Raises:
        ImageError: It begins like something else.
    """
    if byte_count <= LOOKED_AT_BYTES or name.lower().endswith(_UNSIGNED):
        return
    start = start[:START_BYTES]
    if signed_format(start) is None and not is_heic(start) and not start.startswith(_JPEG_XL):
        raise ImageError(f"{stranger_text(start)}; of its {byte_count:,} bytes no more were read")
