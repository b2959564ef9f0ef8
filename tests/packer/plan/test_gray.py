"""Gray images are told before the work that would store them in colour."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from packer.building.build import build
from packer.plan.gray import gray_ahead_text
from packer.recipe import Recipe
from packer.sources import SourceOptions, scan_source
from tests.packer.source_trees import make_idx


def _scan(folder, modes):
    folder.mkdir()
    for number, mode in enumerate(modes):
        Image.fromarray(np.full((4, 5, 3), 90, np.uint8)).convert(mode).save(
            folder / f"{number}.png"
        )
    return scan_source(folder, SourceOptions())


@pytest.mark.parametrize(
    ("modes", "is_told"),
    [(["L", "LA", "1"], True), (["L", "RGB"], False), (["P", "P"], False)],
    ids=["gray", "mixed", "palette"],
)
def test_gray_pictures_are_told_by_their_headers(tmp_path, modes, is_told):
    """Where one of those looked at has colour, or may have, nothing is advised."""
    scan = _scan(tmp_path / "raw", modes)
    text = gray_ahead_text(scan, Recipe())
    assert text.startswith("all images looked at are gray (3 files)") == is_told
    assert ("--mode gray" in text) == is_told
    assert gray_ahead_text(scan, Recipe(mode="gray")) == ""


def test_a_build_of_idx_says_so_before_the_work(tmp_path, capfd):
    """On stderr, with the option, and only where it would change anything."""
    make_idx(tmp_path / "raw")
    build(tmp_path / "raw", tmp_path / "a.lmdb", workers=1, max_rejects="100%", progress=True)
    assert "the images are gray and will be stored in three channels" in capfd.readouterr().err
    build(
        tmp_path / "raw",
        tmp_path / "b.lmdb",
        workers=1,
        max_rejects="100%",
        progress=True,
        mode="gray",
    )
    assert "gray" not in capfd.readouterr().err
