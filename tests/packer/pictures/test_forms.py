"""In which form an image is stored, and that nothing is lost that was to be kept."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from packer.pictures.forms import drawn, encoded, form_of
from packer.pictures.jpeg_quality import jpeg_quality
from packer.pictures.prepare import prepare_image, prepare_pixels
from packer.recipe import Recipe
from readers.store.errors import ImageError
from readers.store.pictures.decode import decode_image
from readers.store.pictures.image_header import read_header


def photo(height: int = 60, width: int = 80, channel_count: int = 3) -> NDArray[np.uint8]:
    """(height, width, channel) uint8, smooth as photos are, with edges."""
    rng = np.random.default_rng(height * width)
    small = rng.integers(60, 200, (height // 20 + 2, width // 20 + 2, channel_count), np.uint8)
    smooth = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    smooth = smooth.reshape(height, width, channel_count)
    smooth[height // 3 :, width // 2 :] //= 2
    return smooth


def saved(pixels: NDArray[Any], format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    image.save(stream, format, **options)
    return stream.getvalue()


def read_again(data: bytes, mode: str = "rgb") -> NDArray[Any]:
    return decode_image(data, mode, read_header(data, pixels_max=2**28))


def psnr(a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(10 * np.log10(255**2 / np.mean((a.astype(float) - b) ** 2)))


def kind_of(image: object) -> str:
    return "raw" if not isinstance(image, bytes) else read_header(image, pixels_max=2**28).format


@pytest.mark.parametrize("image", ["jpeg", "webp", "smart", "proportion"])
@pytest.mark.parametrize("fit", ["short", "letterbox"])
def test_lossy_forms_are_near_the_pixels(image, fit):
    """At the default quality at least 33 dB, of the size and kind that the record says."""
    settings = {"raw_below": 0} if image == "smart" else {}
    settings |= {"raw_share": 0} if image == "proportion" else {}
    recipe, data = Recipe(image=image, size=192, fit=fit, **settings), saved(photo(240, 320), "PNG")
    prepared = prepare_image(data, recipe)
    assert kind_of(prepared.image) == ("WEBP" if image == "webp" else "JPEG")
    assert isinstance(prepared.image, bytes)
    found = read_again(prepared.image)
    assert (found.shape, prepared.orientation) == (prepared.size, 1)
    assert np.array_equal(prepared.pixels, prepare_image(data, Recipe(size=192, fit=fit)).image)
    assert psnr(found, prepared.pixels) > 33


def test_quality_is_what_files_are_encoded_with():
    """Less of it, less bytes, and further from the pixels."""
    data, found = saved(photo(), "PNG"), []
    for quality in (30, 60, 90):
        image = prepare_image(data, Recipe(image="jpeg", quality=quality)).image
        assert isinstance(image, bytes)
        assert jpeg_quality(image) == quality
        found.append((len(image), psnr(read_again(image), photo())))
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("pixels", "mode"),
    [
        (photo(), "rgb"),
        (photo(channel_count=1), "gray"),
        (photo(channel_count=4), "rgba"),
        (photo(channel_count=2), "unchanged"),
        (photo(channel_count=4), "unchanged"),
        (photo(channel_count=1).astype(np.uint16) * 257, "unchanged"),
    ],
    ids=["rgb", "gray", "rgba", "gray and alpha", "rgba unchanged", "16 bits"],
)
def test_png_loses_nothing(pixels, mode):
    """Of every number of channels and bits that a recipe can ask for."""
    recipe = Recipe(image="png", mode=mode, size=48, scaling="exact")
    prepared = prepare_pixels(pixels, recipe)
    assert kind_of(prepared.image) == "PNG"
    assert isinstance(prepared.image, bytes)
    found = read_again(prepared.image, mode)
    assert found.dtype == prepared.pixels.dtype == pixels.dtype
    assert np.array_equal(found, prepared.pixels)
    assert min(found.shape[:2]) == 48


@pytest.mark.parametrize("image", ["jpeg", "webp"])
def test_what_a_lossy_file_cannot_hold_is_png(image):
    """16 bits, and channels that the kind has not; WebP has alpha, JPEG has none."""
    deep = np.full((4, 6, 3), 40_000, np.uint16)
    for pixels in (deep, photo(channel_count=2)):
        found = prepare_pixels(pixels, Recipe(image=image, mode="unchanged")).image
        assert kind_of(found) == "PNG"
        assert isinstance(found, bytes)
        assert np.array_equal(read_again(found, "unchanged"), pixels)
    alpha = prepare_pixels(photo(channel_count=4), Recipe(image=image, mode="unchanged")).image
    assert kind_of(alpha) == ("PNG" if image == "jpeg" else "WEBP")
    gray = prepare_pixels(photo(channel_count=1), Recipe(image=image, mode="gray")).image
    assert kind_of(gray) == ("JPEG" if image == "jpeg" else "PNG")


def test_an_alpha_without_a_hole_is_kept_as_a_channel():
    """WebP leaves it out; a reader that takes files as they are must find four channels still."""
    opaque = photo(channel_count=4)
    opaque[..., 3] = 255
    for mode, kind in (("unchanged", "PNG"), ("rgba", "WEBP")):
        image = prepare_pixels(opaque, Recipe(image="webp", mode=mode)).image
        assert kind_of(image) == kind
        assert read_again(image, mode).shape == opaque.shape


def test_a_picture_longer_than_the_kind_allows_is_png():
    """WebP ends at 16,383 pixels, JPEG at 65,500."""
    line = np.zeros((1, 16_384, 3), np.uint8)
    assert kind_of(encoded(line, "webp", 90, "rgb")) == "PNG"
    assert kind_of(encoded(line[:, :16_383], "webp", 90, "rgb")) == "WEBP"
    assert kind_of(encoded(np.zeros((65_501, 1, 3), np.uint8), "jpeg", 90, "rgb")) == "PNG"


def test_16_bits_of_gray_with_alpha_cannot_be_encoded_and_say_so():
    """No library here writes such a file; the reject names the way out."""
    with pytest.raises(ImageError, match=r"6x4 pixels of 2 channels of uint16.*use --image raw"):
        encoded(np.zeros((4, 6, 2), np.uint16), "png", None, "unchanged")


@pytest.mark.parametrize(
    ("image", "format", "options"),
    [
        ("jpeg", "JPEG", {"quality": 90}),
        ("jpeg", "JPEG", {"quality": 40, "progressive": True}),
        ("smart", "JPEG", {"quality": 75}),
        ("proportion", "JPEG", {"quality": 90}),
        ("png", "PNG", {}),
        ("webp", "WEBP", {"quality": 95}),
        ("original", "TIFF", {}),
        ("original", "JPEG", {"quality": 99}),
    ],
)
def test_a_file_that_needs_no_change_is_stored_byte_for_byte(image, format, options):
    """With its orientation to apply: nothing is decoded and encoded again for nothing."""
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(photo(), format, exif=exif, **options)
    settings = {"raw_below": 0} if image == "smart" else {}
    settings |= {"raw_share": 0.0} if image == "proportion" else {}
    settings |= {"max_side": 80} if image != "original" else {}
    prepared = prepare_image(data, Recipe(image=image, **settings))
    assert prepared.image == data
    assert prepared.orientation == 6
    assert prepared.size == (80, 60, 3)


@pytest.mark.parametrize(
    ("recipe", "format", "options"),
    [
        (Recipe(image="jpeg", quality=80), "JPEG", {"quality": 81}),
        (Recipe(image="jpeg", max_side=79), "JPEG", {"quality": 60}),
        (Recipe(image="jpeg", size=48), "JPEG", {"quality": 60}),
        (Recipe(image="jpeg", size=60, fit="letterbox"), "JPEG", {"quality": 60}),
        (Recipe(image="jpeg"), "PNG", {}),
        (Recipe(image="png"), "WEBP", {"lossless": True}),
        (Recipe(image="webp"), "PNG", {}),
    ],
)
def test_a_file_that_needs_a_change_is_encoded(recipe, format, options):
    """Of too high a quality, too large, or of another kind."""
    data = saved(photo(), format, **options)
    prepared = prepare_image(data, recipe)
    assert isinstance(prepared.image, bytes)
    assert prepared.image != data
    assert kind_of(prepared.image) == recipe.image.upper()
    assert prepared.orientation == 1


def test_a_file_of_other_colours_bits_or_several_pictures_is_encoded():
    """CMYK is slow to read, 16 bits are more than asked for, and further pictures never are."""
    stream = io.BytesIO()
    Image.fromarray(photo()).convert("CMYK").save(stream, "JPEG", quality=50)
    assert prepare_image(stream.getvalue(), Recipe(image="jpeg")).image != stream.getvalue()
    deep = saved(photo(channel_count=1).astype(np.uint16) * 257, "PNG")
    assert prepare_image(deep, Recipe(image="png")).image != deep
    assert prepare_image(deep, Recipe(image="png", mode="unchanged")).image == deep
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "lime")]
    stream = io.BytesIO()
    frames[0].save(stream, "WEBP", save_all=True, append_images=frames[1:])
    prepared = prepare_image(stream.getvalue(), Recipe(image="webp"))
    assert prepared.image != stream.getvalue()
    assert prepared.extra_frame_count == 1


def test_smart_is_raw_up_to_its_limit():
    """By the bytes of the pixels that are stored, exactly."""
    data = saved(photo(10, 20), "PNG")
    assert kind_of(prepare_image(data, Recipe(image="smart", raw_below=600)).image) == "raw"
    assert kind_of(prepare_image(data, Recipe(image="smart", raw_below=599)).image) == "JPEG"
    assert kind_of(prepare_image(data, Recipe(image="smart", raw_below=150, size=5)).image) == "raw"


def test_a_proportion_is_drawn_by_keys_and_stays():
    """As many as asked for, the same whatever else is there, and more where the share grows."""
    keys = [b"%d.jpg" % number for number in range(4000)]
    forms = {
        share: [
            form_of(Recipe(image="proportion", raw_share=share), key, 9) == "raw" for key in keys
        ]
        for share in (0, 0.3, 0.5, 1)
    }
    assert sum(forms[0]) == 0
    assert sum(forms[1]) == 4000
    assert abs(sum(forms[0.3]) - 1200) < 120
    assert all(b >= a for a, b in zip(forms[0.3], forms[0.5], strict=True))


def test_draws_are_spread_evenly_and_differ_by_purpose():
    """What decides about a split must not decide about the form as well."""
    keys = [b"%d" % number for number in range(2000)]
    first, second = ([drawn(name, key) for key in keys] for name in (b"a", b"b"))
    assert all(0 <= value < 1 for value in first)
    counts, _ = np.histogram(first, 10, (0, 1))
    assert counts.min() > 140
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1


@pytest.mark.parametrize("quality", [1, 10, 50, 75, 90, 95, 100])
def test_the_quality_of_a_jpeg_is_read_from_its_tables(quality):
    """As libjpeg counts it, by either library, however the file is coded."""
    assert jpeg_quality(saved(photo(), "JPEG", quality=quality)) == quality
    assert jpeg_quality(saved(photo(), "JPEG", quality=quality, progressive=True)) == quality
    assert jpeg_quality(saved(photo(channel_count=1), "JPEG", quality=quality)) == quality
    options = [cv2.IMWRITE_JPEG_QUALITY, quality]
    assert jpeg_quality(cv2.imencode(".jpg", photo(), options)[1].tobytes()) == quality


def test_what_has_no_tables_has_no_quality():
    """Bytes from users' files, cut anywhere, are no reason to fail."""
    data = saved(photo(), "JPEG", quality=70)
    start = data.index(b"\xff\xdb")
    for end in (0, 1, 2, 3, start, start + 3, start + 60):
        assert jpeg_quality(data[:end]) is None
    assert jpeg_quality(saved(photo(), "PNG")) is None
    filled = data[:start] + b"\xff\xff" + data[start:]
    assert jpeg_quality(filled) == 70
