"""What a store says of itself, for people and for programs."""

from __future__ import annotations

import json
import pickle
import re
import shutil

import pytest

from packer.report import content_sha256
from packer.stores.info import describe, info
from packer.stores.info_tables import bar_lines
from readers import LMDBDataset
from readers.store.errors import ShardError, StoreNotFoundError
from readers.store.manifest import read_manifest
from tests.command import run_packer


def test_info_is_the_manifest_with_size_and_digest(shards):
    """Every key of the manifest as JSON can hold it, and three that follow from it."""
    found = json.loads(json.dumps(info(shards)))
    manifest = json.loads((shards / "manifest.json").read_bytes())
    manifest.pop("sha256")  # Of the file, not of what it says.
    assert {name: found[name] for name in manifest} == manifest
    assert set(found) - set(manifest) == {"path", "bytes", "content_sha256"}
    assert found["path"] == str(shards)
    assert found["bytes"] == sum(path.stat().st_size for path in shards.glob("shard-*"))
    assert found["content_sha256"] == content_sha256(read_manifest(shards))


def test_the_digest_follows_the_content(shards, store):
    """Other shards, another digest."""
    assert info(shards)["content_sha256"] != info(store)["content_sha256"]


def test_a_description_says_what_a_person_asks_first(shards):
    """How much of what, made of what and how, which fields, which classes."""
    lines = describe(shards).splitlines()
    size = sum(path.stat().st_size for path in shards.glob("shard-*"))
    assert lines[0] == f"{shards}: 12 samples, {size:,} bytes in 4 shards, format 1.2"
    assert lines[1] == "source: imagefolder, found 12, rejected 0, ignored 0"
    assert lines[2].startswith("recipe: size=320, fit=stretch, scaling=fast, image=raw, mode=rgb, ")
    assert lines[3:9] == [
        "fields:",
        "  key             text",
        "  image           image (320, 320, 3) uint8 raw",
        "  label           label int64",
        "  original_size   array (2) int32",
        "  transform       array (2, 3) float32",
    ]
    assert lines[9] == "3 classes: ant 4, bee 4, cat 4"
    assert lines[10].startswith("made with lmdb ")
    assert lines[11] == f"content {info(shards)['content_sha256']}"


def test_missing_shards_are_told_unless_the_manifest_alone_is_asked_for(shards, tmp_path, packer):
    """A store that was copied in part is not a store yet: exit status 1, and which shards lack."""
    copy = tmp_path / "copy.lmdb"
    shutil.copytree(shards, copy)
    (copy / "shard-00002.lmdb").unlink()
    found = packer("info", copy)
    assert found.returncode == 1
    assert "1 of 4 shards are not there as the manifest says" in found.stderr
    assert f"{copy}/shard-00002.lmdb: missing." in found.stderr
    assert packer("info", copy, "--json").returncode == 1
    assert packer("info", copy, "--manifest-only").returncode == 0
    with pytest.raises(ShardError, match="1 of 4 shards"):
        LMDBDataset(copy)
    dataset = LMDBDataset(copy, checks_files=False)
    assert pickle.loads(pickle.dumps(dataset))[0]["key"] == dataset[0]["key"]
    report = packer("verify", copy)
    assert report.returncode == 1
    assert "shard-00002.lmdb: No such file" in report.stdout + report.stderr


def test_what_is_no_store_is_an_error(tmp_path):
    """For both."""
    for function in (info, describe):
        with pytest.raises(StoreNotFoundError, match="nothing there"):
            function(tmp_path / "none")


def test_fields_are_told_with_what_each_means(store):
    """A row for each, in the order of a sample; what numbers of classes stand for."""
    lines = run_packer("info", store, "--fields").stdout.splitlines()
    names = list(read_manifest(store).schema.names)
    assert [line.split()[0] for line in lines] == ["field", *names]
    label = lines[1 + names.index("label")]
    assert label.endswith("class, by its number: ant, bee, cat")
    image = lines[1 + names.index("image")]
    assert re.split(r"  +", image) == [
        "image", "image", "(any, any, 3)", "uint8", "raw", "pixels, RGB order",
    ]  # fmt: skip


def test_statistics_are_drawn_small(store):
    """Means, and a bar for each split, class and range of sizes, the longest for the most."""
    told = run_packer("info", store, "--stats").stdout
    mean = read_manifest(store).statistics["channel_mean"]
    values = " ".join(f"{value:.4f}" for value in mean)
    assert told.startswith(f"mean of each channel, white being 1: {values}\n")
    assert "\nsamples of each class:\n  ant  4   33.3%  " + "#" * 30 + "\n" in told
    assert "\nlong side of the raw images, in pixels:\n  0 to 31  12  100.0%  " in told
    both = run_packer("info", store, "--stats", "--fields").stdout
    assert both.startswith("field ")
    assert both.endswith(told)
    assert run_packer("info", store, "--stats", "--json").exit_code == 2


def test_bars_of_many_are_the_most_and_the_rest_in_a_line():
    """Never a thousand lines for a thousand classes; whatever there is has a mark."""
    rows = [(f"c{n}", n) for n in range(100)]
    lines = bar_lines(rows, is_sorted=True)
    assert len(lines) == 21
    assert lines[0].split() == ["c99", "99", "2.0%", "#" * 30]
    assert lines[-1] == f"  and 80 more, which have {sum(range(80)):,} together"
    assert bar_lines([("a", 1000), ("b", 1), ("c", 0)]) == [
        "  a  1,000   99.9%  " + "#" * 30,
        "  b      1    0.1%  #",
        "  c      0    0.0%",
    ]
