"""What a file is, told from its first bytes: a picture of some format, or something else."""

from __future__ import annotations

import re

START_BYTES = 256
"""How much of a file is enough to tell."""

_READ = "JPEG, MPO, PNG, WebP, TIFF, BMP, GIF, PPM, AVIF, JPEG 2000 and TGA"

_SIGNATURES = (
    (re.compile(rb"\xff\xd8\xff"), "JPEG"),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "PNG"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "WEBP"),
    (re.compile(rb"II[*+]\0|MM\0[*+]"), "TIFF"),
    (re.compile(rb"BM"), "BMP"),
    (re.compile(rb"GIF8[79]a"), "GIF"),
    (re.compile(rb"P[1-6]\s"), "PPM"),
    (re.compile(rb"....ftypavi[fs]", re.DOTALL), "AVIF"),
    (re.compile(rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51"), "JPEG2000"),
)

_LFS_POINTER = re.compile(rb"\s*version https://(git-lfs|hawser)\.github\.com/spec/")

_STRANGERS = (
    (_LFS_POINTER, "a Git LFS pointer: get the file with git lfs pull"),
    (re.compile(rb"\s*(<!doctype html|<html)", re.IGNORECASE), "a web page (HTML)"),
    (re.compile(rb"\s*(<\?xml[^>]*>\s*)?<svg", re.IGNORECASE), "an SVG drawing"),
    (re.compile(rb"%PDF"), "a PDF document"),
    (re.compile(rb"PK\x03\x04"), "a zip archive"),
    (re.compile(rb"\x1f\x8b"), "gzip data"),
    (re.compile(rb"\x93NUMPY"), "a NumPy array"),
    (re.compile(rb"\0\x05\x16\x07"), "a macOS resource fork (AppleDouble)"),
)

_HEIC = re.compile(rb"....ftyp(hei[cxms]|hev[cx]|mif1|msf1)", re.DOTALL)


def signed_format(start: bytes) -> str | None:
    """Pillow's name of the format whose signature the file starts with."""
    return next((name for signature, name in _SIGNATURES if signature.match(start)), None)


def is_heic(start: bytes) -> bool:
    """Whether the file starts like a HEIC picture."""
    return _HEIC.match(start) is not None


def is_lfs_pointer(start: bytes) -> bool:
    """Whether a file starts like what Git LFS leaves in place of a file that was not fetched."""
    return _LFS_POINTER.match(start.removeprefix(b"\xef\xbb\xbf")) is not None


def stranger_kind(start: bytes) -> str | None:
    """What a file that starts like this is, where it holds neither a picture nor annotations."""
    start = start.removeprefix(b"\xef\xbb\xbf")
    return next((kind for signature, kind in _STRANGERS if signature.match(start)), None)


def stranger_text(start: bytes) -> str:
    """Why a file without a known signature is not a picture."""
    if not any(start):
        return (
            f"not an image: the first {len(start)} bytes are all zero, an unfinished copy perhaps"
        )
    kind = stranger_kind(start)
    looks = f"it looks like {kind}" if kind else f"it starts with {start[:16]!r}"
    return f"not an image: {looks}; pictures that are read: {_READ}"
