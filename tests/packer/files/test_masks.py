"""A mask's values must reach the store as its file has them, on the grid of its image."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from packer.files.masks import NO_COLOR, distinct, read_mask
from packer.pictures.geometry import plan_fit
from packer.pictures.mask_grid import place_mask
from packer.pictures.prepare import prepare_image
from packer.recipe import Recipe
from readers.store.errors import ImageError
from readers.store.pictures.orientation import turn_upright
from readers.store.schema import Field

LIMIT = 10_000
FITS = ("short", "long", "letterbox", "stretch", "crop")

BYTES = Field(name="mask", kind="mask", dtype="uint8", shape=(None, None))
WIDE = Field(name="mask", kind="mask", dtype="int32", shape=(None, None))

VOC = np.array([[0, 1, 15, 255], [255, 15, 1, 0], [15, 15, 0, 0]], np.uint8)
COLORS = ((0, 0, 0), (128, 0, 0), (0, 128, 0))


def saved(pixels: NDArray[Any] | Image.Image, format: str = "PNG", **options: Any) -> bytes:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def gray_png(values: NDArray[Any], bits: int) -> bytes:
    """A PNG of gray with 1, 2 or 4 bits a pixel, which Pillow does not write."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    height, width = values.shape
    rows = b""
    for row in values:
        text = "".join(f"{int(value):0{bits}b}" for value in row)
        text += "0" * (-len(text) % 8)
        rows += b"\0" + int(text, 2).to_bytes(len(text) // 8, "big")
    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def painted(values: NDArray[Any], colors: Any = COLORS) -> NDArray[np.uint8]:
    return np.array(colors, np.uint8)[values]


def with_palette(values: NDArray[Any], colors: Any) -> Image.Image:
    image = Image.fromarray(values.astype(np.uint8), "L")
    image = image.convert("P")
    image.putdata(values.ravel().tolist())
    image.putpalette([part for color in colors for part in color])
    return image


def rejected(data: bytes, *parts: str, colors: Any = (), field: Field = BYTES) -> None:
    with pytest.raises(ImageError) as caught:
        read_mask(data, colors, field, LIMIT)
    for part in parts:
        assert part in str(caught.value)


# What a file holds.


@pytest.mark.parametrize("format", ["PNG", "TIFF", "BMP", "GIF", "PPM", "TGA"])
def test_values_of_gray_are_kept_in_every_format_without_loss(format):
    """A gray mask's values are its ids, whatever holds them."""
    ids = read_mask(saved(VOC, format), (), BYTES, LIMIT)
    assert ids.dtype == np.uint8
    assert np.array_equal(ids, VOC)


@pytest.mark.parametrize("format", ["PNG", "TIFF", "BMP", "TGA"])
def test_a_palette_gives_positions_and_not_colours(format):
    """VOC's masks hold class numbers; their colours are only for show."""
    rng = np.random.default_rng(0)
    image = with_palette(VOC, rng.integers(0, 256, (256, 3)).tolist())
    assert np.array_equal(read_mask(saved(image, format), (), BYTES, LIMIT), VOC)


def test_a_gif_gives_what_is_seen_since_its_positions_mean_nothing():
    """Programs renumber the palette of a GIF as they write it, so only its colours are known."""
    values = np.array([[2, 0, 1], [1, 1, 2]])
    data = saved(with_palette(values, COLORS), "GIF")
    assert np.array_equal(read_mask(data, COLORS, BYTES, LIMIT), values)
    rejected(data, "three channels")


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_few_bits_of_gray_are_not_scaled_to_eight(bits):
    """Pillow makes 255 of the largest value of 1, 2 and 4 bits; a mask means the value itself."""
    values = np.arange(15).reshape(3, 5) % 2**bits
    assert np.array_equal(read_mask(gray_png(values, bits), (), BYTES, LIMIT), values)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_few_bits_of_a_palette_are_positions(bits):
    """A small palette is written with few bits, which changes no position."""
    values = np.arange(15).reshape(3, 5) % 2**bits
    image = with_palette(values, [(n * 7, 255 - n, n) for n in range(2**bits)])
    assert np.array_equal(read_mask(saved(image, bits=bits), (), BYTES, LIMIT), values)


@pytest.mark.parametrize("white", [1, 3, 20, 34, 254, 255, 256, 1000, 65534, 65535])
def test_a_pgm_is_not_scaled_to_its_white(white):
    """PGM says what is white; Pillow scales to 255 or 65535, and a mask means what is written."""
    values = np.unique(np.linspace(0, white, 200).astype(np.int64))[None]
    dtype = ">u1" if white < 256 else ">u2"
    data = b"P5 %d 1 %d\n" % (values.size, white) + values.astype(dtype).tobytes()
    assert np.array_equal(read_mask(data, (), WIDE, LIMIT), values)


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_sixteen_bits_are_kept_where_the_store_has_room(format):
    """Instance ids go past 255; they are kept, or the mask is refused, but never cut to 8 bits."""
    values = np.array([[0, 255, 256], [26_001, 40_000, 65_535]], np.uint16)
    data = saved(values, format)
    ids = read_mask(data, (), WIDE, LIMIT)
    assert ids.dtype == np.int32
    assert np.array_equal(ids, values)
    rejected(data, "65535", "uint8")


def test_alpha_that_hides_nothing_is_left_out():
    """Some programs write an alpha channel that is opaque throughout."""
    gray = np.stack([VOC, np.full_like(VOC, 255)], axis=2)
    assert np.array_equal(read_mask(saved(gray), (), BYTES, LIMIT), VOC)
    values = VOC % 3
    opaque = np.concatenate([painted(values), np.full((3, 4, 1), 255, np.uint8)], axis=2)
    assert np.array_equal(read_mask(saved(opaque), COLORS, BYTES, LIMIT), values)
    opaque[1, 1, 3] = 254
    rejected(saved(opaque), "transparent", colors=COLORS)


def test_an_orientation_tag_of_the_mask_counts_for_nothing():
    """A mask's grid is that of its file; a tag copied from the photograph must not turn it."""
    block = Image.Exif()
    block[0x0112] = 6
    assert np.array_equal(read_mask(saved(VOC, exif=block), (), BYTES, LIMIT), VOC)
    rejected(saved(VOC, "TIFF", exif=block), "orientation 6")


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (saved(VOC, "JPEG", quality=100), "JPEG"),
        (saved(VOC, "WEBP", lossless=False), "WEBP"),
        (saved(np.dstack([VOC] * 3), "TIFF", compression="jpeg"), "TIFF compressed as"),
        (saved(VOC, "TIFF", tiffinfo={262: 0}), "0 is white"),
        (saved(VOC, "TIFF", save_all=True, append_images=[Image.fromarray(VOC)]), "2 pictures"),
        (saved(VOC)[:-30], "PNG"),
        (b"", "empty"),
        (b"<html></html>", "HTML"),
        (saved(np.zeros((101, 100), np.uint8)), "over the limit"),
        (saved(Image.new("CMYK", (3, 3)), "TIFF"), "CMYK"),
        (saved(np.zeros((2, 2), np.float32), "TIFF"), "floating-point"),
    ],
)
def test_a_file_that_does_not_keep_values_is_refused_with_the_reason(data, part):
    """What was changed by compression, or cannot be read in full, is not a mask."""
    rejected(data, part)


def test_sixteen_bits_of_colour_are_refused():
    """Pillow would keep 8 of the 16 bits, and two colours might become one."""
    import cv2

    _, data = cv2.imencode(".png", np.full((2, 2, 3), 300, np.uint16))
    rejected(data.tobytes(), "16 bits", colors=COLORS)
    header = struct.pack(">IIBBBBB", 1, 1, 16, 4, 0, 0, 0)  # Gray with alpha, which Pillow halves.
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0\1\0\xff\xff")), (b"IEND", b"")]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in parts
    )
    rejected(png, "16 bits")


# What the values mean.


def test_colours_become_their_position_in_the_table():
    """A painted mask is looked up colour by colour, exactly."""
    values = np.array([[0, 0, 1, 1, 2], [2, 1, 0, 2, 2]])
    ids = read_mask(saved(painted(values)), COLORS, BYTES, LIMIT)
    assert ids.dtype == np.uint8
    assert np.array_equal(ids, values)
    table = (*COLORS[:1], NO_COLOR, NO_COLOR, *COLORS[1:])
    assert np.array_equal(
        read_mask(saved(painted(values)), table, BYTES, LIMIT), np.array([0, 3, 4])[values]
    )


def test_painted_masks_that_were_made_smaller_keep_their_meaning():
    """Tools write few colours as a palette in any order, and black and white as gray or one bit."""
    values = np.array([[0, 2, 1], [1, 1, 2]])
    order = (COLORS[2], COLORS[0], COLORS[1])
    image = with_palette(np.array([1, 2, 0])[values], order)
    assert np.array_equal(read_mask(saved(image), COLORS, BYTES, LIMIT), values)
    table = ((255, 255, 255), (0, 0, 0), (85, 85, 85))
    black_and_white = np.array([[True, False]])
    for data, expected in (
        (saved(Image.fromarray(black_and_white)), [[0, 1]]),
        (saved(black_and_white.astype(np.uint8) * 255), [[0, 1]]),
        (gray_png(np.array([[3, 0, 1]]), 2), [[0, 1, 2]]),
    ):
        assert read_mask(data, table, BYTES, LIMIT).tolist() == expected


def test_a_colour_that_no_class_has_is_named_and_counted():
    """Edges that were smoothed, or a class that the label map forgot, reject the mask."""
    pixels = painted(np.zeros((4, 5), int))
    pixels[1, 1:3] = (127, 1, 0)
    rejected(saved(pixels), "2 pixels", "(127, 1, 0)", "label map", colors=COLORS)


def test_colours_without_a_table_are_never_guessed():
    """Three channels are no values, however few colours there are; the message lists them."""
    values = np.array([[0, 1, 2], [1, 1, 2]])
    rejected(saved(painted(values)), "three channels", "(128, 0, 0), (0, 128, 0), (0, 0, 0)")


def test_a_value_that_is_no_class_is_named_and_counted():
    """With names, a value is one of them or the one to ignore."""
    names = tuple(f"c{n}" for n in range(16))
    field = Field(
        name="mask", kind="mask", dtype="uint8", shape=(None, None), names=names, ignore=255
    )
    assert np.array_equal(read_mask(saved(VOC), (), field, LIMIT), VOC)
    field = Field(name="mask", kind="mask", dtype="uint8", shape=(None, None), names=names)
    rejected(saved(VOC), "255 (2 pixels)", "[0, 16)", field=field)
    field = Field(
        name="mask", kind="mask", dtype="uint8", shape=(None, None), names=names[:15], ignore=255
    )
    rejected(saved(VOC), "15 (4 pixels)", "[0, 15) or 255", field=field)


def test_panoptic_masks_hold_numbers_of_segments():
    """COCO writes the id of a segment as R + 256 G + 65536 B."""
    field = Field(name="panoptic", kind="mask", dtype="int32", shape=(None, None))
    colors = [[1, 0, 0], [0, 2, 0], [3, 4, 255]]
    ids = read_mask(saved(np.array([colors], np.uint8)), (), field, LIMIT)
    assert ids.dtype == np.int32
    assert ids.tolist() == [[1, 512, 3 + 4 * 256 + 255 * 65536]]
    image = with_palette(np.array([[2, 0, 1]]), colors)
    assert read_mask(saved(image), (), field, LIMIT).tolist() == [[16_712_707, 1, 512]]
    rejected(saved(VOC), "one channel", field=field)


def test_distinct_counts_every_pixel():
    """Counting runs must give what counting pixels gives."""
    values = np.random.default_rng(3).integers(0, 5, (37, 23)).astype(np.int32)
    found, counts = distinct(values)
    expected, expected_counts = np.unique(values, return_counts=True)
    assert np.array_equal(found, expected)
    assert np.array_equal(counts, expected_counts)


# Where the pixels go.


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 41), st.integers(1, 41), st.integers(1, 50), st.sampled_from(FITS), st.booleans()
)
def test_every_stored_pixel_is_the_one_that_lies_under_its_middle(width, height, size, fit, wide):
    """The affine of the image says where each pixel of the mask comes from; the rest is filled."""
    ids = np.arange(width * height, dtype=np.int32 if wide else np.uint8).reshape(height, width)
    plan = plan_fit(width, height, size, fit)
    placed = place_mask(ids, plan, 1, 77)
    assert placed.dtype == ids.dtype
    assert placed.flags.c_contiguous
    assert placed.shape == (plan.final[1], plan.final[0])

    y, x = np.mgrid[: plan.final[1], : plan.final[0]]
    # Where a middle falls between two pixels, the affine's rounding may take it to either.
    source_x = np.floor((x + 0.5 - plan.affine[0, 2]) / plan.affine[0, 0] + 1e-9).astype(int)
    source_y = np.floor((y + 0.5 - plan.affine[1, 2]) / plan.affine[1, 1] + 1e-9).astype(int)
    inside = (source_x >= 0) & (source_x < width) & (source_y >= 0) & (source_y < height)
    expected = np.where(inside, ids[source_y.clip(0, height - 1), source_x.clip(0, width - 1)], 77)
    assert np.array_equal(placed, expected)


def test_an_odd_rest_is_cut_and_padded_like_the_image():
    """The smaller half is cut or padded at the left and top, as for the image."""
    ids = np.arange(5, dtype=np.uint8)[None] + np.zeros((2, 1), np.uint8)
    cut = place_mask(ids, plan_fit(5, 2, 2, "crop"), 1, 9)
    assert cut.tolist() == [[1, 2], [1, 2]]
    padded = place_mask(ids, plan_fit(5, 2, 5, "letterbox"), 1, 9)
    assert padded.tolist() == [[9] * 5, *ids.tolist(), [9] * 5, [9] * 5]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_only_a_mask_of_the_file_s_own_grid_is_turned(orientation):
    """A mask drawn on the picture as shown stays; one drawn on the file's pixels turns with it."""
    stored = np.arange(6 * 4, dtype=np.int32).reshape(4, 6)
    upright = turn_upright(stored[..., None], orientation)[..., 0]
    plan = plan_fit(upright.shape[1], upright.shape[0], None, "short")
    assert np.array_equal(place_mask(upright, plan, orientation, 0), upright)
    if orientation >= 5:
        assert np.array_equal(place_mask(stored, plan, orientation, 0), upright)
    else:
        # The two grids have the same size, and a mask is made of what is seen.
        assert np.array_equal(place_mask(stored, plan, orientation, 0), stored)
    square = np.arange(9, dtype=np.uint8).reshape(3, 3)
    plan = plan_fit(3, 3, None, "short")
    assert np.array_equal(place_mask(square, plan, orientation, 0), square)


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_mask_of_another_size_is_refused(orientation):
    """A mask that is not of the picture's size is of another picture, and is not stretched."""
    plan = plan_fit(6, 4, 3, "short")
    for shape in ((4, 5), (5, 6), (8, 12)):
        with pytest.raises(ImageError, match=rf"{shape[1]}x{shape[0]} pixels .* 6x4"):
            place_mask(np.zeros(shape, np.uint8), plan, orientation, 0)
    if orientation == 1:
        with pytest.raises(ImageError, match=r"4x6 pixels .* 6x4"):
            place_mask(np.zeros((6, 4), np.uint8), plan, orientation, 0)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("fit", [None, *FITS])
@pytest.mark.parametrize("size", [24, 61])
def test_the_mask_lies_on_its_object_in_the_stored_image(fit, orientation, size):
    """A red patch and the mask of it must cover the same pixels after turning and fitting."""
    picture = np.zeros((47, 66, 3), np.uint8)
    picture[..., 1] = 200
    picture[12:34, 20:47] = (255, 0, 0)
    block = Image.Exif()
    block[0x0112] = orientation
    recipe = Recipe() if fit is None else Recipe(size=size, fit=fit)
    image = prepare_image(saved(picture, exif=block), recipe).image
    assert isinstance(image, np.ndarray)
    mask = (picture[..., :1] > 127).astype(np.uint8)
    upright = turn_upright(mask, orientation)
    plan = plan_fit(upright.shape[1], upright.shape[0], recipe.size, recipe.fit)
    placed = place_mask(upright[..., 0], plan, orientation, 0)
    is_red = (image[..., 0] > 127) & (image[..., 1] < 100)
    assert placed.shape == is_red.shape
    # The image is smoothed at the edge of the patch, the mask is not: at most that edge differs.
    edge = 2 * sum(plan.resized[n] / (upright.shape[1 - n]) * (27 if n else 22) for n in (0, 1)) + 4
    assert (placed.astype(bool) != is_red).sum() <= edge * 0.6
    if fit is None:
        assert np.array_equal(placed.astype(bool), is_red)
