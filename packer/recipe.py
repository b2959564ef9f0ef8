"""Settings of a build that change the bytes of its store, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, Literal, get_args

from packer.policies import POLICIES, ImagePolicy, taking

Fit = Literal["short", "long", "letterbox", "stretch", "crop"]
ColorMode = Literal["rgb", "gray", "rgba", "unchanged"]
Scaling = Literal["fast", "exact"]

SHARD_BYTES_MIN = 1 * 2**20

Size = int | tuple[int, int]
"""A side in pixels, or (height, width)."""

EXACT_FITS = ("letterbox", "stretch", "crop")
"""Under these all images have the same size, `Recipe.size`."""

QUALITY = 90
RAW_BELOW_BYTES = 2**18
"""Pixels of 256 x 341 in colour, a photo whose short side is 256, are just below."""

RAW_SHARE = 0.5

POLICY_SETTINGS: dict[str, int | float] = {
    "quality": QUALITY,
    "raw_share": RAW_SHARE,
    "raw_below": RAW_BELOW_BYTES,
}
"""Settings that some policies take, and their defaults."""


NEEDS: dict[str, tuple[str, ...]] = {
    "fit": ("size",),
    "scaling": ("size", "max_side"),
    "stratify": ("splits", "limit"),
}
"""Settings that are about others, one of which must be given with them."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Every setting that changes what a store holds. The defaults are the command line's.

    A setting that its policy has no use for must be None; one that is None and of use takes the
    default that is named here.

    Args:
        size: Side in pixels that `fit` is about; or (height, width), as torchvision and
            `readers.ops` have it, of a rectangle that all images are brought to. None keeps each
            image's own size. A rectangle with equal sides becomes its side.
        fit: How an image comes to `size`. "short" and "long" scale that side and keep the aspect;
            "letterbox" scales the image so that it fits into the square or rectangle, and pads
            with gray 114; "stretch" scales each side by itself; "crop" scales it so that it covers
            the square or rectangle, and cuts out the middle. A rectangle needs one of these three.
        max_side: Longest side in pixels that an image may have; a larger one is scaled down to it.
        scaling: How images are scaled down. "exact" averages all pixels of the file that a stored
            one covers. "fast" lets JPEG's decoder and a supersampled average do most of it, at half
            the cost; see `packer.pictures.scaling` for how near it comes.
        image: How images are stored. "raw": decoded pixels. "jpeg", "png", "webp": files of that
            kind. "original": the raw file's own bytes. "smart": raw up to `raw_below` bytes, else
            JPEG. "proportion": raw for `raw_share` of the images, else JPEG. A raw file that needs
            no change is stored byte for byte under all of them but "raw".
        quality: Of JPEG and WebP, in [1, 100]. Default: 90.
        raw_share: Share of images that "proportion" stores raw, in [0, 1]. Default: 0.5.
        raw_below: Bytes of pixels up to which "smart" stores them raw. Default: 256 KiB.
        target_bytes: Size that the store is to have at most. The plan then chooses `image`,
            `quality` (from the one given here downwards) and `raw_share`, and this becomes None.
        mode: Colour of the stored pixels. "unchanged" keeps channels and bit depth.
        shard_bytes_max: A shard is closed before it is estimated to grow past this.
        pixels_max: An image whose header declares more pixels is rejected undecoded.
        clip_boxes: Cut boxes off at the border of their picture, rather than keep them as they are.
        include: Shell patterns of keys; images that match none are left out. Empty takes all. A `*`
            matches slashes too.
        exclude: Shell patterns of keys; images that match one are left out.
        limit: How many images to keep, drawn by their keys.
        splits: (name, share) of each split, the shares adding up to 1. An image's split is drawn by
            its key, so it stays when images are added. Empty keeps the raw data's own.
        stratify: Give each class its share of `splits` and `limit` exactly, as far as whole images
            go; then some images move when others are added.
        shuffle: Seed of the order in which samples are stored, so that reading in order is random.
            None keeps the source's order.

    Raises:
        ValueError: A setting is out of its range, or two contradict each other.
    """

    size: Size | None = None
    fit: Fit = "short"
    max_side: int | None = None
    scaling: Scaling = "fast"
    image: ImagePolicy = "raw"
    quality: int | None = None
    raw_share: float | None = None
    raw_below: int | None = None
    target_bytes: int | None = None
    mode: ColorMode = "rgb"
    shard_bytes_max: int = 2**30
    pixels_max: int = 2**28
    clip_boxes: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    limit: int | None = None
    splits: tuple[tuple[str, float], ...] = ()
    stratify: bool = False
    shuffle: int | None = None

    def __post_init__(self) -> None:
        for name, choices in (
            ("fit", Fit),
            ("scaling", Scaling),
            ("image", ImagePolicy),
            ("mode", ColorMode),
        ):
            if getattr(self, name) not in get_args(choices):
                known = ", ".join(get_args(choices))
                raise ValueError(f"{name} must be one of {known}; got {getattr(self, name)!r}")
        for name in ("include", "exclude"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "splits", tuple((name, share) for name, share in self.splits))
        object.__setattr__(self, "size", _normal_size(self.size))
        self._check_needs()
        self._check_sizes()
        self._check_choice()
        self._check_policy()
        if self.shard_bytes_max < SHARD_BYTES_MIN:
            raise ValueError(
                f"shard_bytes_max must be at least {SHARD_BYTES_MIN} (1MiB); "
                f"got {self.shard_bytes_max!r}"
            )
        if self.pixels_max < 1:
            raise ValueError(f"pixels_max must be at least 1; got {self.pixels_max!r}")

    def _check_needs(self) -> None:
        """Refuse what would change nothing. The defaults stand in every manifest."""
        for name, about in NEEDS.items():
            value = getattr(self, name)
            if value != getattr(Recipe, name) and not any(getattr(self, other) for other in about):
                raise ValueError(needs_text(name, value))

    def _check_sizes(self) -> None:
        for name in ("size", "max_side"):
            value = getattr(self, name)
            sides = value if isinstance(value, tuple) else (value,)
            if value is not None and not all(1 <= side <= 65_535 for side in sides):
                raise ValueError(f"{name} must be in [1, 65536) pixels; got {value!r}")
            if value is not None and POLICIES[self.image].keeps_size:
                raise ValueError(
                    f"{name}={value!r} changes the pixels, but image={self.image!r} keeps the "
                    f"file's own bytes; drop the {name}, or use image='jpeg' or 'raw'"
                )
        if isinstance(self.size, tuple) and self.fit not in EXACT_FITS:
            raise ValueError(
                f"size={self.size!r} is a rectangle, which fit={self.fit!r} cannot bring images "
                "to: give fit='crop' (cuts off what is over), fit='letterbox' (pads) or "
                "fit='stretch' (changes the aspect)"
            )
        longest = max(self.size) if isinstance(self.size, tuple) else self.size
        if longest is not None and self.max_side is not None and self.max_side < longest:
            raise ValueError(f"max_side={self.max_side!r} is below size={self.size!r}; drop one")

    def _check_choice(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1; got {self.limit!r}")
        if self.shuffle is not None and not 0 <= self.shuffle < 2**64:
            raise ValueError(f"shuffle must be in [0, 2**64); got {self.shuffle!r}")
        names, shares = [n for n, _ in self.splits], [s for _, s in self.splits]
        is_twice = len(set(names)) < len(names) or "" in names
        if self.splits and (is_twice or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6):
            raise ValueError(
                f"splits must be different names with shares above 0 that add up to 1; "
                f"got {dict(self.splits)!r}"
            )
        if len(self.splits) > 255:
            raise ValueError(f"splits must be at most 255; got {len(self.splits)}")

    def _check_policy(self) -> None:
        """See that the policy's settings fit it, and give those that it needs their defaults."""
        chooses = self.target_bytes is not None
        if chooses and (self.image != "raw" or self.raw_share is not None):
            raise ValueError(
                "target_bytes chooses image and raw_share by itself; drop them, or target_bytes"
            )
        if chooses and self.target_bytes is not None and self.target_bytes < 1:
            raise ValueError(f"target_bytes must be at least 1; got {self.target_bytes!r}")
        for name, default in POLICY_SETTINGS.items():
            is_of_use = name in POLICIES[self.image].settings or (chooses and name == "quality")
            if getattr(self, name) is None and is_of_use:
                object.__setattr__(self, name, default)
            elif getattr(self, name) is not None and not is_of_use:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is of no use with image={self.image!r}; "
                    f"it is for {', '.join(taking(name))}"
                )
        if self.quality is not None and not 1 <= self.quality <= 100:
            raise ValueError(f"quality must be in [1, 100]; got {self.quality!r}")
        if self.raw_share is not None and not 0 <= self.raw_share <= 1:
            raise ValueError(f"raw_share must be in [0, 1]; got {self.raw_share!r}")
        if self.raw_below is not None and self.raw_below < 0:
            raise ValueError(f"raw_below must be at least 0; got {self.raw_below!r}")
        if self.mode == "rgba" and (not POLICIES[self.image].holds_alpha or chooses):
            raise ValueError(
                "mode='rgba' needs a kind of file with alpha, and JPEG has none; use image='webp', "
                "'png' or 'raw', or mode='rgb'"
            )

    @property
    def stored_size(self) -> tuple[int, int] | None:
        """(height, width) of all images, where the recipe brings them to one size."""
        if self.size is None or self.fit not in EXACT_FITS:
            return None
        return self.size if isinstance(self.size, tuple) else (self.size, self.size)

    @classmethod
    def of_manifest(cls, settings: Mapping[str, Any]) -> Recipe:
        """The recipe of a store, whose release may have taken settings that changed nothing.

        Raises:
            TypeError: A setting is not known.
            ValueError: A setting is out of its range.
        """
        kept = {
            name: value
            for name, value in settings.items()
            if name not in NEEDS or any(settings.get(other) for other in NEEDS[name])
        }
        return cls(**kept)

    def as_dict(self) -> dict[str, Any]:
        """The settings by name, as the manifest keeps them."""
        found = asdict(self)
        found |= {name: list(found[name]) for name in ("include", "exclude")}
        if isinstance(self.size, tuple):
            found["size"] = list(self.size)
        return found | {"splits": [list(pair) for pair in self.splits]}


def _normal_size(size: Any) -> Any:
    """A size as recipes keep it: a rectangle as a tuple, a square as its side.

    Raises:
        ValueError: It is neither one number nor two.
    """
    if size is None:
        return None
    sides = size if isinstance(size, (list, tuple)) else (size, size)
    if len(sides) != 2 or not all(isinstance(side, Integral) for side in sides):
        raise ValueError(f"size must be a side in pixels, or (height, width); got {size!r}")
    height, width = map(int, sides)
    return height if height == width else (height, width)


def needs_text(name: str, value: object) -> str:
    """Why a setting of `NEEDS` that stands alone is refused."""
    about = " or ".join(NEEDS[name])
    given = "one of them" if len(NEEDS[name]) > 1 else "that"
    return f"{name}={value!r} is about {about}; give {given} as well, or drop the {name}"
