"""Shards of MosaicML Streaming."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.building.build import build
from packer.errors import SourceError
from packer.items.raw_item import Scan
from packer.raw.containers import Containers
from packer.sources import SourceOptions, scan_source
from readers import LMDBDataset
from tests.packer.foreign_stores import drawn, encoded, write_mds

AUTO = SourceOptions()


def contents(found: Scan) -> list[Any]:
    with closing(Containers(os.fsencode(found.root))) as containers:
        return [containers.read(item) for item in found.items]


def samples_of(count: int) -> list[dict[str, Any]]:
    return [{"image": pixels, "label": n % 3} for n, pixels in enumerate(drawn(count))]


@pytest.mark.parametrize("encoding", ["png", "jpeg", "pil", "ndarray", "ndarray:uint8:6,8,3"])
def test_images_of_every_encoding_come_with_their_labels(encoding, tmp_path):
    """Over several shards, in folders that are splits."""
    samples = samples_of(5)
    columns = {"image": encoding, "label": "int"}
    write_mds(tmp_path / "raw" / "train", columns, [samples[:3], samples[3:]])
    write_mds(tmp_path / "raw" / "val", columns, [samples[:1]])
    found = scan_source(tmp_path / "raw", AUTO)
    assert (found.format, found.rejects, found.splits) == ("mds", [], ("train", "val"))
    assert [item.key.decode() for item in found.items][2:4] == [
        "train/shard.00000/00002",
        "train/shard.00001/00000",
    ]
    assert [item.values["label"] for item in found.items] == [0, 1, 2, 0, 1, 0]
    pixels = [sample["image"] for sample in [*samples, samples[0]]]
    if encoding in ("png", "jpeg"):
        assert contents(found) == [encoded(p, encoding.upper()) for p in pixels]
    else:
        assert all(map(np.array_equal, contents(found), pixels))
    out = tmp_path / "out.lmdb"
    build(tmp_path / "raw" / "train" / "shard.00000.mds", out, worker_count=1)
    with LMDBDataset(out, image_as="numpy") as dataset:
        assert [int(sample["label"]) for sample in dataset] == [0, 1, 2]
        if encoding != "jpeg":
            assert all(map(np.array_equal, (s["image"] for s in dataset), drawn(3)))


def test_the_other_columns_are_kept_or_named(tmp_path):
    """Numbers, texts and JSON by their names; pickles in a note, and never unpickled."""
    columns = {"img": "bytes", "class": "str", "Caption": "str", "id": "int", "p": "pkl"}
    columns |= {"score": "float64", "facts": "json"}
    samples = [
        {
            **{"img": encoded(p), "class": name, "Caption": "é", "id": -3, "p": b"\x80\x04."},
            **{"score": 0.25, "facts": {"a": [1]}},
        }
        for p, name in zip(drawn(2), ("dog", "cat"), strict=True)
    ]
    found = scan_source(write_mds(tmp_path, columns, [samples]), AUTO)
    others = {"caption": "é", "facts": {"a": [1]}, "id": -3, "score": 0.25}
    assert [item.values for item in found.items] == [
        {"label": 1, **others},
        {"label": 0, **others},
    ]
    assert found.classes == ("cat", "dog")
    assert "columns not read: 'p'" in found.notes
    assert contents(found) == [sample["img"] for sample in samples]


def test_what_is_pickled_alone_is_refused(tmp_path):
    """With the way through Python."""
    write_mds(tmp_path, {"x": "pkl", "y": "int"}, [[{"x": b"\x80\x04.", "y": 1}]])
    with pytest.raises(SourceError, match=r"no column is an image.*packer\.build\(dataset, out\)"):
        scan_source(tmp_path, AUTO)


def reasons(found: Scan) -> dict[str, str]:
    return {reject.path: reject.reason for reject in found.rejects}


def test_shards_that_are_missing_cut_or_compressed_are_rejected(tmp_path):
    """index.json says what should be there."""
    samples = samples_of(2)
    write_mds(tmp_path, {"image": "png", "label": "int"}, [samples] * 4)
    (tmp_path / "shard.00001.mds").unlink()
    cut = tmp_path / "shard.00002.mds"
    cut.write_bytes(cut.read_bytes()[:-1])
    (tmp_path / "shard.00003.mds").rename(tmp_path / "shard.00003.mds.zstd")
    (tmp_path / "shard.00000.mds.zstd").write_bytes(b"a copy")
    found = scan_source(tmp_path, AUTO)
    assert len(found.items) == 2
    told = reasons(found)
    assert set(told) == {f"shard.0000{n}.mds" for n in (1, 2)} | {"shard.00003.mds.zstd"}
    assert "index.json names it with 2 samples" in told["shard.00001.mds"]
    assert "cut short or damaged" in told["shard.00002.mds"]
    assert "zstd -d" in told["shard.00003.mds.zstd"]
    assert found.ignored.counts == {"compressed copy of a shard that is there": 1}


@pytest.mark.parametrize(
    ("end", "command"),
    [("zst", "zstd"), ("gz", "gzip"), ("BZ2", "bzip2"), ("br", "brotli"), ("snappy", "snappy")],
)
def test_a_compressed_shard_is_told_what_unpacks_it(end, command, tmp_path):
    """By the end of its name, whatever its case."""
    write_mds(tmp_path, {"image": "png"}, [[{"image": pixels} for pixels in drawn(1)]] * 2)
    (tmp_path / "shard.00001.mds").rename(tmp_path / f"shard.00001.mds.{end}")
    (reason,) = reasons(scan_source(tmp_path, AUTO)).values()
    assert f"{command} -d)" in reason


def test_an_image_that_is_not_of_its_encoding_is_rejected_alone(tmp_path):
    """Floats, other modes, and sizes that do not add up."""
    good, other = drawn(2)
    columns = {"image": "ndarray", "label": "int"}
    samples = [{"image": good, "label": 0}, {"image": other, "label": 1}]
    path = write_mds(tmp_path, columns, [samples]) / "shard.00000.mds"
    data = path.read_bytes()
    at = data.rindex(bytes([8, 3 << 2, 6, 8, 3]))
    for change, word in (
        (bytes([34, 12, 6, 8, 3]), "an array of other numbers; expected uint8"),
        (bytes([8, 12, 6, 9, 3]), "149 bytes of ndarray: 6x9x3"),
        (bytes([8, 8, 6, 8, 3]), "149 bytes of ndarray: 6x8x1"),
    ):
        path.write_bytes(data[:at] + change + data[at + 5 :])
        found = scan_source(tmp_path, AUTO)
        assert [item.values for item in found.items] == [{"label": 0}]
        assert word in reasons(found)["shard.00000.mds, shard.00000/00001"]


def test_bytes_that_lie_never_end_a_scan(tmp_path):
    """Whatever stands in the file, it is told or read within it."""
    columns = {"image": "png", "label": "int", "text": "str"}
    samples = [{**sample, "text": "x"} for sample in samples_of(3)]
    path = write_mds(tmp_path, columns, [samples]) / "shard.00000.mds"
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    for _ in range(100):
        damaged = bytearray(whole)
        for at in rng.integers(0, 500, 4):
            damaged[at] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            found = scan_source(Path(tmp_path), SourceOptions(format="mds"))
        except SourceError:
            continue
        assert all(len(content) <= len(whole) for content in contents(found))


def test_litdata_is_told_with_its_remedy(tmp_path):
    """Its items are trees of a program's own: its reader is a torch Dataset."""
    index = {"chunks": [{"filename": "chunk-0-0.bin"}], "config": {"data_format": ["jpeg"]}}
    (tmp_path / "index.json").write_text(json.dumps(index))
    (tmp_path / "chunk-0-0.bin").write_bytes(bytes(100))
    with pytest.raises(SourceError, match=r"LitData chunks.*packer\.build\(StreamingDataset"):
        scan_source(tmp_path, AUTO)
