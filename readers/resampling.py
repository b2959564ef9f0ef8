"""A batch of images cropped, resized and mirrored, a box each: on any device, nothing random.

NOTE [ two ways to resample ]

A resampled image is `rows @ image @ columns.T`, where line i of `rows` and `columns` holds the
weights of the pixels that output line i is made of: zero outside the box, in reverse order for a
flip, wider than two pixels for antialiasing. For a batch these are two batched matrix products,
which is what a GPU is best at. In memory order, a letter an axis:

    (b, h, w, c) uint8 -> (b, h, c, w) @ columns (b, w, x) -> (b, h, c, x)
                          rows (b, y, h) @ (b, h, c x)     -> (b, y, c, x) -> (b, y, x, c)

A CPU would multiply mostly by zero: 280 images/s on one core, 256 x 256 to 224 x 224, where torch's
resize of one uint8 crop after the other does 9,000. So samples are taken one by one there; what
follows the resize is faster that way as well, since a sample stays in the core's cache. Sampling
points (`grid_sample`) would do 540, and cannot antialias.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import interpolate

Write: TypeAlias = Callable[[Tensor, Tensor], None]
"""Writes levels, (sample, channel, height, width) uint8 or float, into a part of the result."""

_WORK_BYTES_MAX = 512 * 2**20
"""Memory that the matrix products may take beside input and output; larger batches go in parts."""


def resample_each(
    images: Tensor,
    boxes: Tensor | None,
    flips: Tensor | None,
    antialias: bool,
    write: Write,
    out: Tensor,
) -> None:
    """One sample after the other, through torch's resize of uint8. Arguments as drawn."""
    size = tuple(out.shape[2:])
    mirrored = [False] * len(images) if flips is None else flips.tolist()
    places = None if boxes is None else boxes.tolist()
    for at in range(len(images)):
        levels = images[at : at + 1]
        if places is not None:
            top, left, height, width = places[at]
            levels = levels[:, :, top : top + height, left : left + width]
        if levels.shape[2:] != size:
            levels = interpolate(levels, size, mode="bilinear", antialias=antialias)
        if mirrored[at]:
            levels = levels.flip(3)
        write(levels, out[at : at + 1])


def flipped(images: Tensor, flips: Tensor | None) -> Tensor:
    """Images, mirrored where `flips`, (batch,) bool on the CPU, says so."""
    if flips is None or not flips.any():
        return images
    choice = flips.to(images.device, non_blocking=True)[:, None, None, None]
    return torch.where(choice, images.flip(3), images)


def resample_all(
    images: Tensor,
    boxes: Tensor,
    flips: Tensor | None,
    antialias: bool,
    write: Write,
    out: Tensor,
) -> None:
    """All samples by two matrix products: NOTE [ two ways to resample ]. Boxes as of `draw`."""
    count, channel_count, height, width = images.shape
    out_height, out_width = out.shape[2:]
    # float16 holds every level exactly, and its weights err by less than half a level.
    is_half = images.device.type == "cuda" and out.dtype != torch.float32
    dtype = torch.float16 if is_half else torch.float32
    mirrored = torch.zeros(count) if flips is None else flips
    # One small copy to the device; a second would wait as long again.
    drawn = torch.cat([boxes, mirrored[:, None]], 1).to(torch.float32)
    drawn = drawn.to(images.device, non_blocking=True)
    tops, lefts, heights, widths, mirrors = drawn.unbind(1)

    numbers = (
        height * channel_count * (width + out_width)
        + 2 * out_height * channel_count * out_width  # The second is for rounding.
        + out_height * height
        + out_width * width
    )
    step = max(1, _WORK_BYTES_MAX // (numbers * dtype.itemsize))
    for first in range(0, count, step):
        part = slice(first, first + step)
        columns = _weights(
            lefts[part], widths[part], mirrors[part], out_width, width, antialias, dtype
        )
        rows = _weights(tops[part], heights[part], None, out_height, height, antialias, dtype)
        levels = images[part].permute(0, 2, 1, 3).to(dtype, memory_format=torch.contiguous_format)
        levels = torch.bmm(levels.flatten(1, 2), columns.transpose(1, 2))
        levels = torch.bmm(rows, levels.view(-1, height, channel_count * out_width))
        levels = levels.view(-1, out_height, channel_count, out_width)
        write(levels.permute(0, 2, 1, 3), out[part])


def _weights(
    starts: Tensor,
    extents: Tensor,
    mirrors: Tensor | None,
    out_count: int,
    in_count: int,
    antialias: bool,
    dtype: torch.dtype,
) -> Tensor:
    """What each output line is made of, along one side: (sample, out_count, in_count).

    A triangle over the pixels around the line's place in the box, as torch's bilinear interpolation
    has it with align_corners=False. Few pixels matter to a line, so only these are computed.

    Args:
        starts: (sample,) float32, first pixel of each box.
        extents: (sample,) float32, pixels of each box.
        mirrors: (sample,) float32, 1 for a box to be mirrored; or None.
        out_count: Lines of the result.
        in_count: Lines of the image.
        antialias: Whether the triangle covers all pixels of a line, if these are more than two.
        dtype: Of the result. Weights are computed in float32.
    """
    device = starts.device
    scales = extents / out_count
    reaches = scales.clamp(min=1) if antialias else torch.ones_like(scales)
    # From the largest box that there can be, so that nobody asks the device for the largest drawn.
    reach_max = max(in_count / out_count, 1) if antialias else 1
    tap_count = min(in_count, math.ceil(2 * reach_max) + 1)

    lines = torch.arange(out_count, device=device, dtype=torch.float32).expand(len(starts), -1)
    if mirrors is not None:
        lines = torch.where(mirrors[:, None] > 0, out_count - 1 - lines, lines)
    # Inside the box, where numbers are small and exact.
    centers = scales[:, None] * (lines + 0.5)
    firsts = (centers - reaches[:, None] + 0.5).floor() + starts[:, None]
    # No tap lies outside the image, and none twice on one pixel: scatter_ would keep either weight.
    firsts = firsts.clamp(0, in_count - tap_count)
    taps = firsts[:, :, None] + torch.arange(tap_count, device=device)
    places = taps - starts[:, None, None]
    weights = 1 - (places + 0.5 - centers[:, :, None]).abs() / reaches[:, None, None]
    is_inside = (places >= 0) & (places < extents[:, None, None])
    weights = torch.where(is_inside, weights.clamp(min=0), 0)
    weights = weights / weights.sum(2, keepdim=True)
    table = torch.zeros((len(starts), out_count, in_count), device=device, dtype=dtype)
    return table.scatter_(2, taps.long(), weights.to(dtype))
