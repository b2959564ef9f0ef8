"""Colours that tell classes apart, on photographs and beside each other."""

from __future__ import annotations

import colorsys

_GOLDEN = 0.618034
"""Of a turn of the colour wheel: numbers next to each other come out far apart, however many."""

_FIRST_HUE = 0.58

Colour = tuple[int, int, int]


def colour_of(number: int) -> Colour:
    """The colour of a class or id by its number: (red, green, blue), each in [0, 256)."""
    hue = (_FIRST_HUE + number * _GOLDEN) % 1
    # Every second round of the wheel is lighter, so that hues that come near still differ.
    lightness = 0.58 if number // 8 % 2 == 0 else 0.72
    if 0.6 < hue < 0.78:  # Blue is the darkest of the colours.
        lightness += 0.1
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, 0.82)
    return round(red * 255), round(green * 255), round(blue * 255)


def hex_of(colour: Colour) -> str:
    """A colour as CSS writes it."""
    return "#" + "".join(f"{part:02x}" for part in colour)


def ink_on(colour: Colour) -> str:
    """Black or white: which of the two is easier to read on a colour, by WCAG's contrast."""
    luminance = sum(
        weight * _linear(part)
        for weight, part in zip((0.2126, 0.7152, 0.0722), colour, strict=True)
    )
    return "#000000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#ffffff"


def _linear(part: int) -> float:
    """A part of a colour as light, in [0, 1]."""
    share = part / 255
    return share / 12.92 if share <= 0.04045 else float(((share + 0.055) / 1.055) ** 2.4)
