"""Settings of a build that change the bytes of its store, checked once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Fit = Literal["short", "long", "letterbox", "stretch", "crop"]
ImagePolicy = Literal["raw", "original"]
ColorMode = Literal["rgb", "gray", "rgba", "unchanged"]

SHARD_BYTES_MIN = 1 * 2**20


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Every setting that changes what a store holds. The defaults are the command line's.

    Args:
        size: Side in pixels that `fit` is about. None keeps each image's own size.
        fit: How an image comes to `size`. "short" and "long" scale that side and keep the aspect;
            "letterbox" scales the long side and pads with gray 114 to a square; "stretch" makes a
            square of it; "crop" scales the short side and cuts the middle square.
        image: "raw" stores decoded pixels, "original" the file's own bytes.
        mode: Colour of the stored pixels. "unchanged" keeps channels and bit depth.
        shard_bytes_max: A shard is closed before it is estimated to grow past this.
        pixels_max: An image whose header declares more pixels is rejected undecoded.
        clip_boxes: Cut boxes off at the border of their picture, rather than keep them as they are.

    Raises:
        ValueError: A setting is out of its range, or two contradict each other.
    """

    size: int | None = None
    fit: Fit = "short"
    image: ImagePolicy = "raw"
    mode: ColorMode = "rgb"
    shard_bytes_max: int = 2**30
    pixels_max: int = 2**28
    clip_boxes: bool = False

    def __post_init__(self) -> None:
        for name, choices in (("fit", Fit), ("image", ImagePolicy), ("mode", ColorMode)):
            if getattr(self, name) not in get_args(choices):
                known = ", ".join(get_args(choices))
                raise ValueError(f"{name} must be one of {known}; got {getattr(self, name)!r}")
        if self.size is not None and not 1 <= self.size <= 65_535:
            raise ValueError(f"size must be in [1, 65536) pixels; got {self.size!r}")
        if self.size is not None and self.image == "original":
            raise ValueError(
                f"size={self.size!r} changes the pixels, but image='original' keeps the file's own "
                "bytes; drop the size, or use image='raw'"
            )
        if self.shard_bytes_max < SHARD_BYTES_MIN:
            raise ValueError(
                f"shard_bytes_max must be at least {SHARD_BYTES_MIN} (1MiB); "
                f"got {self.shard_bytes_max!r}"
            )
        if self.pixels_max < 1:
            raise ValueError(f"pixels_max must be at least 1; got {self.pixels_max!r}")

    def as_dict(self) -> dict[str, Any]:
        """The settings by name, as the manifest keeps them."""
        return asdict(self)
