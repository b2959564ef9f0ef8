"""A data set that LitData has optimized is built by its own reader, as any torch Dataset."""

from __future__ import annotations

import numpy as np
from common import FOLDER, answer
from litdata import StreamingDataset, optimize
from PIL import Image

import packer
from readers import LMDBDataset

COUNT = 12


def picture(number):
    """Of one colour, but for the corner, which says its number."""
    pixels = np.full((16, 24, 3), 10 * number, np.uint8)
    pixels[0, 0] = number, 1, 2
    return pixels


def sample(number):
    return {"image": Image.fromarray(picture(number)), "label": number % 3}


if __name__ == "__main__":
    optimize(sample, list(range(COUNT)), output_dir=str(FOLDER / "chunks"), chunk_bytes="64KB",
             num_workers=1)  # fmt: skip
    report = packer.build(
        StreamingDataset(str(FOLDER / "chunks")), FOLDER / "out.lmdb", workers=1, progress=False
    )
    with LMDBDataset(FOLDER / "out.lmdb", image_as="numpy") as dataset:
        samples = [dataset[number] for number in range(COUNT)]
        same = [
            bool(np.array_equal(found["image"], picture(number))) and found["label"] == number % 3
            for number, found in enumerate(samples)
        ]
    answer({"format": report.format, "sample_count": report.sample_count, "same": same})
