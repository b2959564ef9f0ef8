"""The ways in which images can be stored, a row each: all that differs between them is said here.

`Recipe.image` names one. A new way is a row here, a form in `packer.pictures.forms` where it
encodes in a new manner, and FORMAT.md where readers meet something new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from readers.store.schema import ImageCodec

ImagePolicy = Literal["raw", "jpeg", "png", "webp", "original", "smart", "proportion"]
Form = Literal["raw", "jpeg", "png", "webp", "original"]
"""In what form one image is stored. A policy may mix two."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One way of storing images.

    Attributes:
        codec: What the format calls it.
        forms: In which forms its images are stored; one each where it mixes them.
        settings: Settings of the recipe that are about it; others must not be given beside it.
        keeps_size: Whether images keep the pixels of their files, so that none can be resized.
        holds_alpha: Whether each of its forms can hold an alpha channel.
        pixel_rate: Bytes for each pixel where no image can be encoded to see; None where bytes
            follow from the pixels or the file.
        text: What it does, as `--image` explains it.
    """

    codec: ImageCodec
    forms: tuple[Form, ...]
    settings: tuple[str, ...] = ()
    keeps_size: bool = False
    holds_alpha: bool = True
    pixel_rate: float | None = None
    text: str


POLICIES: dict[ImagePolicy, Policy] = {
    "raw": Policy(codec="raw", forms=("raw",), text="decoded pixels"),
    "jpeg": Policy(
        codec="original",
        forms=("jpeg",),
        settings=("quality",),
        holds_alpha=False,
        pixel_rate=0.15,
        text="a JPEG each",
    ),
    "png": Policy(codec="original", forms=("png",), pixel_rate=1.0, text="a PNG each"),
    "webp": Policy(
        codec="original",
        forms=("webp",),
        settings=("quality",),
        pixel_rate=0.1,
        text="a WebP each",
    ),
    "original": Policy(
        codec="original", forms=("original",), keeps_size=True, text="the file's own bytes"
    ),
    "smart": Policy(
        codec="mixed",
        forms=("raw", "jpeg"),
        settings=("quality", "raw_below"),
        holds_alpha=False,
        text="raw up to --raw-below, else JPEG",
    ),
    "proportion": Policy(
        codec="mixed",
        forms=("raw", "jpeg"),
        settings=("quality", "raw_share"),
        holds_alpha=False,
        text="raw for --raw-share of the images, else JPEG",
    ),
}
"""Every policy; `Recipe` refuses any other name."""


def taking(setting: str) -> tuple[ImagePolicy, ...]:
    """The policies that a setting of the recipe is about."""
    return tuple(name for name, policy in POLICIES.items() if setting in policy.settings)
