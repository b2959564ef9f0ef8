"""Cuts real photos into a small tree of JPEG files, the raw data of the demo.

    python scripts/demo_photos.py FOLDER

The photos are those that scikit-image ships inside its wheel, so nothing is downloaded. FOLDER must
not exist; it gets the layout that most classification data has: `FOLDER/SPLIT/CLASS/NAME.jpg`.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
from pathlib import Path

from PIL import Image

PHOTOS = {
    "astronaut": "astronaut.png",
    "brick": "brick.png",  # This, grass and gravel are gray: a build makes one colour mode of all.
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "galaxies": "hubble_deep_field.jpg",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "motorcycle": "motorcycle_left.png",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
}
"""Class name -> file in scikit-image's folder of photos, all of them free to use."""

CROP_COUNTS = {"train": 8, "val": 2}
"""Crops of each class, by split."""

SIDE_MIN = 224
"""Pixels. The first crop of a class is a square of this side; the others are of all sizes above."""

QUALITY = 90
SEED = 7


def cut_photos(folder: Path) -> int:
    """Write all crops under `folder`, the same ones each time, and return how many there are.

    Raises:
        FileExistsError: `folder` is there already.
        ModuleNotFoundError: scikit-image is not installed.
    """
    photo_folder = _photo_folder()
    folder.mkdir(parents=True)
    numbers = random.Random(SEED)
    crop_count = 0
    for name, file_name in PHOTOS.items():
        photo = Image.open(photo_folder / file_name)
        number = 0
        for split, count in CROP_COUNTS.items():
            class_folder = folder / split / name
            class_folder.mkdir(parents=True)
            for _ in range(count):
                box = _first_box(photo) if number == 0 else _random_box(photo, numbers)
                photo.crop(box).save(class_folder / f"{name}-{number:02d}.jpg", quality=QUALITY)
                number += 1
        crop_count += number
    return crop_count


def _photo_folder() -> Path:
    """Where scikit-image keeps its photos. Found without importing it, which takes seconds."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            "scikit-image, whose photos the demo cuts, is not installed; "
            "install the project with its extra: pip install -e '.[demo]'"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _first_box(photo: Image.Image) -> tuple[int, int, int, int]:
    """The square of the smallest side in the middle of a photo: x0 y0 x1 y1 in pixels."""
    left, top = (photo.width - SIDE_MIN) // 2, (photo.height - SIDE_MIN) // 2
    return left, top, left + SIDE_MIN, top + SIDE_MIN


def _random_box(photo: Image.Image, numbers: random.Random) -> tuple[int, int, int, int]:
    """A rectangle of any size and place inside a photo: x0 y0 x1 y1 in pixels."""
    width = numbers.randint(SIDE_MIN, photo.width)
    height = numbers.randint(SIDE_MIN, photo.height)
    left = numbers.randint(0, photo.width - width)
    top = numbers.randint(0, photo.height - height)
    return left, top, left + width, top + height


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description="Cut real photos into a tree of JPEG files.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="Made here; must not exist.")
    folder = parser.parse_args().folder
    print(f"{cut_photos(folder)} JPEG files under {folder}")


if __name__ == "__main__":
    main()
