"""Picture files opened by Pillow: of a few formats, of any size, quietly, with every failure named.

Pillow is imported on first use.
"""

from __future__ import annotations

import functools
import importlib
import io
import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from readers.store.errors import ImageError
from readers.store.pictures.essentials import essentials
from readers.store.pictures.signatures import START_BYTES, is_heic, signed_format, stranger_text
from readers.store.pictures.tiff_planes import tiff_kind_text

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "PPM", "AVIF", "JPEG2000", "TGA")
"""Pillow's names of what is read, the commonest first. No others: some start other programs."""

_PILLOW_WARNINGS = ("ignore", None, Warning, re.compile(r"PIL\."), 0)
_LIMIT_LOCK = threading.RLock()

_Result = TypeVar("_Result")


@contextmanager
def reading_by_pillow(data: bytes | memoryview) -> Iterator[None]:
    """Keep Pillow quiet while it reads a file, and make an ImageError of whatever it raises.

    Args:
        data: The whole file.

    Raises:
        ImageError: The file is damaged, or not a picture that is read here.
    """
    with _kept_quiet():
        try:
            yield
        except ImageError:
            raise
        except Exception as error:  # Broken files make Pillow's plugins raise nearly any class.
            raise ImageError(_damage(data, error)) from error


def open_picture(data: bytes | memoryview) -> ImageFile:
    """Pillow's lazy image: its header is parsed, its pixels are not.

    To be called under `reading_by_pillow`.
    """
    image_module = _pillow()
    try:
        return of_any_size(lambda: _opened(data, _formats()))
    except Exception as error:
        image = _opened_in_part(data)
        if image is not None:
            return image
        if not isinstance(error, image_module.UnidentifiedImageError):
            raise
        start = bytes(data[:START_BYTES])
        if is_heic(start):
            return _open_heic(data)
        name = signed_format(start)
        if name is None:
            raise ImageError(stranger_text(start)) from error
        # Pillow has swallowed what its plugin said; ask the plugin itself.
        if name in _formats():
            open_as(data, name)
        raise ImageError(_damage(data, error)) from error


def open_as(data: bytes | memoryview, format_name: str) -> ImageFile:
    """Pillow's lazy image of a file whose format and size are known, whatever its own limit is.

    Args:
        data: The whole file.
        format_name: Pillow's name of a format that is read here.

    Raises:
        Exception: Whatever its plugin raises of a file that it cannot read.
    """
    assert format_name in _formats()
    factory, _ = _pillow().OPEN[format_name]
    image: ImageFile = factory(io.BytesIO(data), "")
    return image


def _opened_in_part(data: bytes | memoryview) -> ImageFile | None:
    """The picture of a file of which some part is damaged that says nothing about pixels; or None.

    Raises:
        ImageError: The damage is where the pixels follow from.
    """
    for part in essentials(data):
        with suppress(Exception):
            return of_any_size(functools.partial(_opened, part, _formats()))
    return None


def of_any_size(read: Callable[[], _Result]) -> _Result:
    """What `read` returns, which opens or loads a picture that Pillow may think too large.

    NOTE [ two pixel limits ] Pillow refuses above 2 * MAX_IMAGE_PIXELS before it tells width and
    height, so our own limit could neither be higher nor name the size. Its limit is one number for
    the process and guards the user's own code too: it is lifted for the few files that hit it,
    while they are opened or loaded, and put back. Opening takes no memory for pixels, and only
    what has passed our limit is loaded.
    """
    module = _pillow()
    try:
        return read()
    except module.DecompressionBombError:
        with _LIMIT_LOCK:
            kept = module.MAX_IMAGE_PIXELS
            module.MAX_IMAGE_PIXELS = None
            try:
                return read()
            finally:
                module.MAX_IMAGE_PIXELS = kept


def _opened(data: bytes | memoryview, formats: tuple[str, ...]) -> ImageFile:
    image: ImageFile = _pillow().open(io.BytesIO(data), formats=formats)
    return image


def _open_heic(data: bytes | memoryview) -> ImageFile:
    try:
        plugin = importlib.import_module("pillow_heif")
    except ImportError as error:
        raise ImageError(
            "HEIC pictures need pillow-heif: install the extra named heif, or convert to JPEG"
        ) from error
    plugin.register_heif_opener()
    return _opened(data, ("HEIF",))


@functools.cache
def _formats() -> tuple[str, ...]:
    """The formats that are read and that this Pillow has: AVIF came with 11.3."""
    _pillow().init()
    return tuple(name for name in _FORMATS if name in _pillow().OPEN)


@functools.cache
def _pillow() -> Any:
    """The module PIL.Image, imported on first use."""
    # Without a handler, errors that Pillow logs about a broken file would be printed to stderr.
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    return importlib.import_module("PIL.Image")


@contextmanager
def _kept_quiet() -> Iterator[None]:
    """Silence what Pillow's own modules warn of: odd EXIF, palettes with transparency, large sizes.

    `warnings.catch_warnings` puts back the whole list of filters, which mixes up threads that do so
    at the same time, and makes Python repeat warnings that it had shown once. One more
    entry, put in and taken out by itself, does neither.
    """
    filters = cast("list[object]", warnings.filters)
    filters.insert(0, _PILLOW_WARNINGS)
    try:
        yield
    finally:
        with suppress(ValueError):  # Somebody has emptied the list meanwhile.
            filters.remove(_PILLOW_WARNINGS)


def _damage(data: bytes | memoryview, error: Exception) -> str:
    """What is wrong with the file, in the decoder's words without its memory addresses."""
    name = signed_format(bytes(data[:START_BYTES])) or "image"
    if isinstance(error, MemoryError):
        return f"not enough memory to decode this {name} file"
    text = str(error)
    if name == "WEBP" and len(data) < (expected := int.from_bytes(data[4:8], "little") + 8):
        return f"truncated WEBP file: {len(data)} bytes of {expected}"
    if name == "TIFF" and text.startswith("unknown ") and text.split()[-1] == "mode":
        return (
            f"a TIFF that is not read ({text}): {tiff_kind_text(data)}; save it as gray, RGB or "
            "RGBA of 8 or 16 bits"
        )
    if isinstance(error, _pillow().UnidentifiedImageError) or not text:
        text = type(error).__name__
    return f"damaged {name} file: {text}"
