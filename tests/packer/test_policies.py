"""Each way of storing images is one row, and every part of the build goes by that row."""

from __future__ import annotations

from typing import get_args

import pytest
from PIL import Image

from packer import build
from packer.plan.estimate import estimate_record_bytes
from packer.policies import POLICIES, ImagePolicy, taking
from packer.recipe import POLICY_SETTINGS, Recipe
from packer.sources import SourceOptions, scan_source
from readers import LMDBDataset


@pytest.fixture
def raw(tmp_path):
    """Three small pictures."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for name in "abc":
        Image.new("RGB", (40, 30), (10, 20, 30)).save(folder / f"{name}.png")
    return folder


def test_every_name_has_a_row():
    """What `--image` takes and what the build knows are the same, in the same order."""
    assert list(POLICIES) == list(get_args(ImagePolicy))


@pytest.mark.parametrize("name", POLICIES)
def test_a_store_is_what_its_row_says(raw, tmp_path, name):
    """The codec in the schema is the row's, and the store reads back."""
    build(raw, tmp_path / "out.lmdb", Recipe(image=name), worker_count=1)
    dataset = LMDBDataset(tmp_path / "out.lmdb")
    assert dataset.schema["image"].codec == POLICIES[name].codec
    assert tuple(dataset[0]["image"].shape) == (3, 30, 40)


@pytest.mark.parametrize("name", POLICIES)
def test_a_size_is_refused_where_the_file_is_kept(name):
    """Pixels can be resized under all policies but those that keep the file's own bytes."""
    if POLICIES[name].keeps_size:
        with pytest.raises(ValueError, match="changes the pixels"):
            Recipe(image=name, size=20)
    else:
        assert Recipe(image=name, size=20).size == 20


@pytest.mark.parametrize("name", POLICIES)
def test_alpha_is_refused_where_a_form_cannot_hold_it(name):
    """A policy that may make a JPEG takes no rgba."""
    if POLICIES[name].holds_alpha:
        assert Recipe(image=name, mode="rgba").mode == "rgba"
    else:
        with pytest.raises(ValueError, match="alpha"):
            Recipe(image=name, mode="rgba")


@pytest.mark.parametrize("setting", POLICY_SETTINGS)
@pytest.mark.parametrize("name", POLICIES)
def test_a_setting_belongs_to_the_policies_that_name_it(name, setting):
    """It gets its default where it is of use, and is refused where it is not."""
    value = POLICY_SETTINGS[setting]
    if setting in POLICIES[name].settings:
        assert getattr(Recipe(image=name), setting) == value
        assert name in taking(setting)
    else:
        assert getattr(Recipe(image=name), setting) is None
        with pytest.raises(ValueError, match=f"{setting}=.* is of no use"):
            Recipe(**{"image": name, setting: value})


@pytest.mark.parametrize("name", POLICIES)
def test_files_that_nobody_can_read_have_a_size_all_the_same(tmp_path, name):
    """Where no image can be encoded to see, the row says how many bytes a pixel takes."""
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(b"not a picture" * 100)
    scan = scan_source(folder, SourceOptions(format="flat"))
    (size,) = estimate_record_bytes(scan, Recipe(image=name))
    assert size > 0
