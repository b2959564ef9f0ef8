"""What is stored of a picture, and that its transform says where every pixel came from."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from packer.pictures.prepare import prepare_image
from packer.recipe import Recipe
from readers.store.errors import ImageError
from readers.store.pictures.decode import decode_image
from readers.store.pictures.image_header import read_header
from readers.store.shapes.affine import invert

FITS = ("short", "long", "letterbox", "stretch", "crop")
WIDTH, HEIGHT = 90, 60
PATCH = (36, 20, 56, 35)
"""x0 y0 x1 y1 of a red patch in the raw file, off the middle, and within what crop keeps."""


def saved(pixels: NDArray[Any] | Image.Image, format: str = "PNG", **options: Any) -> bytes:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def patched(format: str, orientation: int) -> bytes:
    """A green picture with the red patch, in the file's own grid."""
    image = Image.new("RGB", (WIDTH, HEIGHT), (0, 200, 0))
    image.paste((255, 0, 0), PATCH)
    block = Image.Exif()
    block[0x0112] = orientation
    options = {"quality": 95, "subsampling": 0} if format == "JPEG" else {}
    return saved(image, format, exif=block, **options)


def pixels_of(data: bytes, **settings: Any) -> NDArray[Any]:
    image = prepare_image(data, Recipe(**settings)).image
    assert isinstance(image, np.ndarray)
    return image


def moved(affine: NDArray[Any], points: object) -> NDArray[np.float64]:
    return np.asarray(points, dtype=np.float64) @ affine[:, :2].T + affine[:, 2]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("fit", [None, *FITS])
@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize("size", [40, 150])
def test_the_transform_takes_a_patch_to_where_it_is_seen(format, fit, orientation, size):
    """Boxes drawn on the raw file must lie on their objects in the stored image."""
    recipe = Recipe() if fit is None else Recipe(size=size, fit=fit)
    prepared = prepare_image(patched(format, orientation), recipe)
    image = prepared.image
    assert isinstance(image, np.ndarray)
    assert prepared.size == image.shape
    assert prepared.orientation == 1
    assert prepared.original_size == (HEIGHT, WIDTH)
    assert (prepared.transform.shape, prepared.transform.dtype) == ((2, 3), np.float32)

    corners = moved(prepared.transform, [PATCH[:2], PATCH[2:]])
    (x0, y0), (x1, y1) = corners.min(axis=0), corners.max(axis=0)
    is_red = (image[..., 0] > 127) & (image[..., 1] < 100)
    rows, columns = np.nonzero(is_red.any(axis=1))[0], np.nonzero(is_red.any(axis=0))[0]
    seen = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    assert np.abs(np.array([x0, y0, x1, y1]) - seen).max() <= 0.75
    # Not only its corners: the area is the patch's, and the middle of it is red.
    assert is_red.sum() == pytest.approx((x1 - x0) * (y1 - y0), rel=0.1)
    middle = (corners.sum(axis=0) / 2).astype(int)
    assert is_red[middle[1], middle[0]]
    # And back again, with what the store keeps.
    back = moved(invert(prepared.transform.astype(np.float64)), corners)
    assert np.abs(back - np.array([PATCH[:2], PATCH[2:]])).max() <= 0.01


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("size", [16, 100])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_constant_picture_stays_constant(fit, size, dtype):
    """Resizing makes up no values, at any depth, and a single channel stays an axis."""
    value = 7 if dtype == np.uint8 else 40000
    data = saved(np.full((30, 50), value, dtype))
    image = pixels_of(data, size=size, fit=fit, mode="unchanged")
    assert image.dtype == dtype
    assert image.ndim == 3
    assert image.shape[2] == 1
    assert image.flags.c_contiguous
    if fit == "letterbox":
        height = round(30 * size / 50)
        top = (size - height) // 2
        assert (image[top : top + height] == value).all()
        padding = np.concatenate([image[:top], image[top + height :]])
        assert (padding == (114 if dtype == np.uint8 else 114 * 257)).all()
        assert len(padding) == size - height
    else:
        assert (image == value).all()


@pytest.mark.parametrize(("height", "width"), [(19, 20), (20, 19)])
def test_a_padding_of_one_pixel_is_a_padding(height, width):
    """It is all below or to the right, and the picture starts at the edge."""
    image = pixels_of(saved(np.full((height, width, 3), 200, np.uint8)), size=20, fit="letterbox")
    assert image.shape == (20, 20, 3)
    assert (image[:height, :width] == 200).all()
    assert (image == 114).all(axis=2).sum() == 20


@pytest.mark.parametrize(
    ("mode", "expected"), [("rgb", [114] * 3), ("gray", [114]), ("rgba", [114, 114, 114, 255])]
)
def test_padding_is_gray_and_opaque(mode, expected):
    """114 in every colour channel; what is padded is not a hole."""
    image = pixels_of(
        saved(np.full((10, 20, 3), 200, np.uint8)), size=20, fit="letterbox", mode=mode
    )
    assert image[0, 0].tolist() == expected
    assert image[19, 19].tolist() == expected
    assert image[10, 10].tolist() == [200 if v == 114 else v for v in expected]


def test_crop_keeps_the_middle_columns():
    """Without scaling, the stored pixels are the file's own, cut at both sides."""
    pixels = np.random.default_rng(3).integers(0, 256, (10, 17, 3)).astype(np.uint8)
    prepared = prepare_image(saved(pixels), Recipe(size=10, fit="crop"))
    assert np.array_equal(prepared.image, pixels[:, 3:13])  # type: ignore[arg-type]
    assert prepared.transform.tolist() == [[1, 0, -3], [0, 1, 0]]


def test_shrinking_averages_and_enlarging_interpolates():
    """Lines thinner than the new pixels turn gray: no pixel is skipped, so nothing flickers."""
    lines = np.tile(np.array([0, 0, 0, 200], np.uint8), (40, 10))
    assert (pixels_of(saved(lines), size=10, fit="stretch", mode="gray") == 50).all()
    # Also where the other side grows.
    assert (pixels_of(saved(lines[:4]), size=10, fit="stretch", mode="gray") == 50).all()
    steps = pixels_of(saved(np.array([[0, 200]], np.uint8)), size=4, fit="stretch", mode="gray")
    assert steps[:, :, 0].tolist() == [[0, 50, 150, 200]] * 4


def test_without_a_size_pixels_are_the_files_own():
    """The default keeps every pixel, and says so by the identity."""
    pixels = np.random.default_rng(4).integers(0, 256, (9, 14, 3)).astype(np.uint8)
    prepared = prepare_image(saved(pixels), Recipe())
    assert np.array_equal(prepared.image, pixels)  # type: ignore[arg-type]
    assert prepared.transform.tolist() == [[1, 0, 0], [0, 1, 0]]
    assert (prepared.size, prepared.dtype) == ((9, 14, 3), "uint8")


@pytest.mark.parametrize("orientation", [1, 6])
def test_an_original_keeps_its_bytes_and_says_how_it_is_read(orientation):
    """Size, orientation and transform are those of the image that a reader will get."""
    data = patched("JPEG", orientation)
    prepared = prepare_image(data, Recipe(image="original"))
    assert prepared.image == data
    assert prepared.orientation == orientation
    assert prepared.original_size == (HEIGHT, WIDTH)
    image = decode_image(data, "rgb", read_header(data, pixels_max=2**28))
    assert prepared.size == image.shape
    x, y = moved(prepared.transform, [40, 25]).astype(int)
    assert image[y, x, 0] > 240


@pytest.mark.parametrize("policy", ["raw", "original"])
def test_a_truncated_file_is_stored_under_no_policy(policy):
    """Original bytes are decoded once to prove that they are whole."""
    data = patched("JPEG", 1)
    prepare_image(data, Recipe(image=policy))
    with pytest.raises(ImageError, match=r"(?i)truncated"):
        prepare_image(data[: len(data) // 2], Recipe(image=policy))


def test_depth_and_further_pictures_are_told():
    """The store records a 16-bit image as such, and the report says what was left out."""
    deep = saved(np.full((4, 6), 1000, np.uint16))
    prepared = prepare_image(deep, Recipe(mode="unchanged", image="original"))
    assert (prepared.size, prepared.dtype, prepared.extra_frame_count) == ((4, 6, 1), "uint16", 0)
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "lime", "blue")]
    many = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert prepare_image(many, Recipe()).extra_frame_count == 2


def test_a_resize_past_the_limit_is_refused_before_it_is_done():
    """A line of 1x3000 pixels would become 256x768000 under the default fit."""
    data = saved(np.zeros((1, 3000), np.uint8))
    recipe = Recipe(size=256, fit="short", pixels_max=10**6)
    with pytest.raises(
        ImageError, match="3000x1 pixels become 768000x256 under size=256 and fit='short'"
    ):
        prepare_image(data, recipe)
    assert prepare_image(data, Recipe(size=256, fit="long", pixels_max=10**6)).size == (1, 256, 3)
