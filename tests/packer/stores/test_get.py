"""One sample of a store, by index or key."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from packer.building.build import build
from packer.recipe import Recipe
from packer.sources import SourceOptions
from packer.stores.get import facts_of, get_sample, write_picture
from readers.store.errors import ChecksumError, ImageError, SchemaMismatchError, UnknownKeyError
from readers.store.reader import open_store

ODD_NAMES = [
    "007.png",
    "-1.png",
    "two, parts and spaces.png",
    "\u732b.png",
    os.fsdecode(b"caf\xe9.png"),
    "deep/er/1.png",
]


@pytest.fixture(scope="module")
def odd(tmp_path_factory, draw_tree):
    """A store of odd names, in one folder."""
    folder = tmp_path_factory.mktemp("odd")
    tree = draw_tree(folder / "raw", ODD_NAMES)
    build(tree, folder / "out.lmdb", source=SourceOptions(format="flat"), worker_count=1)
    return folder / "out.lmdb"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_sample_is_found_by_its_key(odd, picture, name):
    """Whatever the name: blanks, digits, other scripts, bytes that are no UTF-8."""
    sample = get_sample(odd, name)
    assert sample["key"] == name
    assert np.array_equal(sample["image"], picture(name))


def test_a_sample_is_found_by_its_index(store, class_names, picture):
    """From 0, or from the end with a minus."""
    for text, index in [("0", 0), ("11", 11), ("-1", 11), ("-12", 0), ("007", 7)]:
        sample = get_sample(store, text)
        assert (sample["index"], sample["key"]) == (index, class_names[index])
        assert np.array_equal(sample["image"], picture(class_names[index]))


def test_a_key_wins_over_an_index(tmp_path, draw_tree):
    """A list may name a picture 0: it is found by its name, and the first one by another index."""
    tree = draw_tree(tmp_path / "imgs", ["a.png", "b.png"])
    (tree / "b.png").rename(tree / "0")
    (tmp_path / "list.csv").write_text("path,label\nimgs/a.png,x\nimgs/0,y\n")
    build(tmp_path / "list.csv", tmp_path / "out.lmdb", worker_count=1)
    keys = [get_sample(tmp_path / "out.lmdb", text)["key"] for text in ("-2", "-1")]
    assert get_sample(tmp_path / "out.lmdb", keys[1])["index"] == 1
    assert keys[0].endswith("a.png")
    assert keys[1].endswith("0")


@pytest.mark.parametrize("text", ["12", "-13", "99999999999999999999"])
def test_an_index_out_of_range_is_refused(store, text):
    """With the range that there is."""
    with pytest.raises(UnknownKeyError, match=rf"no sample {text}; it has 12: \[0, 12\)"):
        get_sample(store, text)


@pytest.mark.parametrize("text", ["ant/9.png", "--5", "", "1.5", "\u0663"])
def test_an_unknown_key_is_refused(store, text):
    """With what a key is."""
    with pytest.raises(
        UnknownKeyError, match=r"no sample with the key .* relative to the raw folder"
    ):
        get_sample(store, text)


def test_facts_are_json_without_pixels(store):
    """Numbers as they are, the image by its type and shape."""
    assert json.loads(json.dumps(facts_of(get_sample(store, "bee/2.png")))) == {
        "index": 6,
        "key": "bee/2.png",
        "image": "uint8 [16, 24, 3]",
        "label": 1,
        "original_size": [16, 24],
        "transform": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
    }


@pytest.mark.parametrize("mode", ["rgb", "gray", "rgba", "unchanged"])
def test_a_png_keeps_every_pixel(tmp_path, draw_tree, mode):
    """In each colour mode, and 16-bit gray in full depth: what Pillow reads is what was stored."""
    tree = draw_tree(tmp_path / "raw", ["1.png"])
    deep = np.arange(24 * 16, dtype=np.uint16).reshape(16, 24) * 170
    Image.fromarray(deep).save(tree / "deep.png")
    build(tree, tmp_path / "out.lmdb", Recipe(mode=mode), worker_count=1)
    for key in ("1.png", "deep.png"):
        sample = get_sample(tmp_path / "out.lmdb", key)
        write_picture(sample, tmp_path / "written.png")
        with Image.open(tmp_path / "written.png") as image:
            written = np.asarray(image)
        assert np.array_equal(written.reshape(sample["image"].shape), sample["image"])
        if mode == "unchanged" and key == "deep.png":
            assert np.array_equal(written, deep)


def test_what_is_no_picture_cannot_be_written(tmp_path, store):
    """Another field, or a kind of file that nobody knows; nothing is left behind."""
    sample = get_sample(store, "0")
    with pytest.raises(SchemaMismatchError, match="field 'label' is not an image"):
        write_picture(sample, tmp_path / "1.png", "label")
    with pytest.raises(SchemaMismatchError, match="field 'mask' is not an image"):
        write_picture(sample, tmp_path / "1.png", "mask")
    with pytest.raises(ImageError, match=r"unknown kind of picture; end its name in \.png"):
        write_picture(sample, tmp_path / "1.psd")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_sample_is_not_shown(tmp_path, store):
    """Wrong pixels would look like a finding about the data."""
    out = shutil.copytree(store, tmp_path / "out.lmdb")
    start = int(open_store(out).shard(0).offsets[5])
    data = bytearray((out / "shard-00000.lmdb").read_bytes())
    data[start + 500] ^= 1
    (out / "shard-00000.lmdb").write_bytes(data)
    with pytest.raises(ChecksumError, match="sample 5"):
        get_sample(out, "5")
    assert get_sample(out, "4")["label"] == 1
