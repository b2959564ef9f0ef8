"""Pillow reads what it is asked for, says what is wrong with a file, and leaves no trace."""

from __future__ import annotations

import sys
import threading
import warnings

import numpy as np
import pytest
from PIL import Image

from readers.store.errors import ImageError
from readers.store.pictures.decode import decode_image
from readers.store.pictures.image_header import read_header
from tests.readers.store.pictures import LIMIT, claim, decoded, noise, saved, smooth


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xd8\xff", "damaged JPEG file"),
        (saved(smooth(), "WEBP")[:300], "truncated WEBP file: 300 bytes of [0-9]+"),
        (b"\x89PNG\r\n\x1a\n" + b"x" * 50, "damaged PNG file: Truncated File Read"),
    ],
)
def test_a_damaged_picture_is_refused_with_what_is_wrong(data, words):
    """It is not a stranger: its format, and what its decoder met, lead to the repair."""
    with pytest.raises(ImageError, match=words):
        read_header(data, pixels_max=LIMIT)


def test_heic_names_the_extra_that_it_needs(monkeypatch):
    """A phone's photos must not be called broken."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # As if it were not installed.
    for brand in (b"heic", b"heix", b"mif1"):
        data = b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0" + brand + b"heic"
        with pytest.raises(
            ImageError, match="HEIC pictures need pillow-heif: install the extra named heif"
        ):
            read_header(data, pixels_max=LIMIT)


@pytest.mark.parametrize("format", ["PNG", "GIF", "TIFF"])
def test_pillows_own_limit_neither_counts_nor_is_lost(format, monkeypatch):
    """A user may have set it low for his own code; it guards that, not us."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    gray = saved(noise(1), format)
    assert np.array_equal(decoded(gray, "gray"), noise(1))
    assert Image.MAX_IMAGE_PIXELS == 10


def test_nothing_is_warned_of_and_the_filters_stay():
    """One line per picture would bury what matters; a user's own filters are not ours to change."""
    palette = Image.new("P", (4, 4))
    palette.putpalette([1, 2, 3, 4, 5, 6])
    odd = [
        saved(palette, "PNG", transparency=bytes([255, 7])),
        saved(smooth(), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01" * 9),
        claim(12000, 12000),  # Large enough for Pillow to warn.
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        for data in odd:
            header = read_header(data, pixels_max=2**28)
            if header.width < 1000:
                decode_image(data, "rgba", header)
        assert list(warnings.filters) == before
    assert [str(w.message) for w in caught] == []


def test_threads_decode_at_the_same_time():
    """Loader threads share one process: what one sets aside must not disturb the others."""
    files = [saved(noise(3), "PNG"), saved(noise(3), "BMP"), claim(60000, 60000)]
    before = list(warnings.filters), Image.MAX_IMAGE_PIXELS
    wrong: list[object] = []

    def work(number: int) -> None:
        for i in range(60):
            data = files[(i + number) % 3]
            try:
                if not np.array_equal(decoded(data), noise(3)):
                    wrong.append((i, number))
            except ImageError as error:
                if "60000x60000" not in str(error):
                    wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert wrong == []
    assert (list(warnings.filters), Image.MAX_IMAGE_PIXELS) == before
