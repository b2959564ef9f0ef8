"""IDX files of images and labels."""

from __future__ import annotations

import gzip
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.building.build import build
from packer.errors import SourceError
from packer.items.raw_item import Member, Scan
from packer.raw.containers import Containers
from packer.sources.idx import scan
from packer.sources.source import SourceOptions
from readers.store.errors import ImageError
from readers.store.reader import open_store


def drawn(count: int) -> np.ndarray[Any, Any]:
    """Images of 3x5 pixels, no two alike."""
    return (np.arange(count * 15) % 251).astype(np.uint8).reshape(count, 3, 5)


def write(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_pair(
    folder: Path, start: str, labels: list[int], end: str = "", images: Any = None
) -> None:
    images = drawn(len(labels)) if images is None else images
    header = struct.pack(">4B3I", 0, 0, 8, 3, *images.shape)
    write(folder / f"{start}-images-idx3-ubyte{end}", header + images.tobytes())
    header = struct.pack(">4BI", 0, 0, 8, 1, len(labels))
    write(folder / f"{start}-labels-idx1-ubyte{end}", header + bytes(labels))


def reasons(found: Scan) -> dict[str, str]:
    return {reject.path: reject.reason for reject in found.rejects}


def contents(found: Scan) -> list[Any]:
    with closing(Containers(bytes(found.root))) as containers:
        return [containers.read(item) for item in found.items]


@pytest.mark.parametrize("end", ["", ".gz"])
def test_images_and_labels_of_both_splits(tmp_path, end):
    """t10k is the test split; keys are the file and the number; pixels are those written."""
    write_pair(tmp_path, "train", [3, 0, 1], end)
    write_pair(tmp_path, "t10k", [2], end)
    found = scan(tmp_path, SourceOptions())
    assert [(item.key.decode(), item.values) for item in found.items] == [
        ("t10k-images-idx3-ubyte/00000", {"label": 2, "split": 1}),
        ("train-images-idx3-ubyte/00000", {"label": 3, "split": 0}),
        ("train-images-idx3-ubyte/00001", {"label": 0, "split": 0}),
        ("train-images-idx3-ubyte/00002", {"label": 1, "split": 0}),
    ]
    assert (found.classes, found.splits) == (("0", "1", "2", "3"), ("train", "test"))
    path = tmp_path / f"train-images-idx3-ubyte{end}"
    assert found.items[2].path.decode() == path.name
    assert found.items[2].byte_count == 15
    assert found.items[2].member == Member("idx", path.stat().st_size, 1)
    read = contents(found)
    assert read[0].shape == (3, 5, 1)
    assert np.array_equal(np.stack(read[1:])[..., 0], drawn(3))


def test_the_size_of_all_images_is_known_beforehand(tmp_path):
    """Where all files have one: a store of them is then read without a look at each sample."""
    raw = tmp_path / "raw"
    raw.mkdir()
    write_pair(raw, "train", [3, 0])
    write_pair(raw, "t10k", [2])
    assert scan(raw, SourceOptions()).image_size == (3, 5)
    build(raw, tmp_path / "o.lmdb", worker_count=1)
    store = open_store(tmp_path / "o.lmdb")
    assert store.manifest.schema["image"].shape == (3, 5, 3)
    assert store.layout.variable_fields == ("key",)
    write_pair(raw, "other", [1], images=np.zeros((1, 4, 4), np.uint8))
    assert scan(raw, SourceOptions()).image_size is None


def test_given_classes_name_the_labels(tmp_path):
    """A label that --classes has no name for rejects its image alone."""
    write_pair(tmp_path, "train", [1, 2, 0])
    found = scan(tmp_path / "train-images-idx3-ubyte", SourceOptions(classes=("shirt", "bag")))
    assert [item.values["label"] for item in found.items] == [1, 0]
    assert found.classes == ("shirt", "bag")
    assert list(reasons(found)) == ["train-images-idx3-ubyte, image 1"]
    assert "label 2 is not in [0, 2)" in reasons(found)["train-images-idx3-ubyte, image 1"]


def test_a_compressed_copy_is_not_packed_twice(tmp_path):
    """torchvision leaves the archives beside what it unpacked."""
    write_pair(tmp_path, "train", [0, 1])
    write_pair(tmp_path, "train", [0, 1], ".gz")
    found = scan(tmp_path, SourceOptions())
    assert [item.path for item in found.items] == [b"train-images-idx3-ubyte"] * 2
    assert found.ignored.counts == {"compressed copy of a file that is there": 2}


def test_without_any_labels_the_images_are_unlabelled(tmp_path):
    """A note says so; but labels for one file only leave the other one rejected."""
    write_pair(tmp_path, "train", [0, 1])
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    found = scan(tmp_path, SourceOptions())
    assert [item.values for item in found.items] == [{"split": 0}] * 2
    assert found.notes[0].startswith("unlabelled")
    write_pair(tmp_path, "t10k", [0])
    found = scan(tmp_path, SourceOptions())
    assert len(found.items) == 1
    assert "no labels: train-labels-idx1-ubyte" in reasons(found)["train-images-idx3-ubyte"]


@pytest.mark.parametrize(
    ("end", "images", "message"),
    [
        ("", struct.pack(">4B3I", 0, 0, 8, 3, 2, 3, 5) + bytes(29), r"45 bytes; expected 46 for 2"),
        ("", struct.pack(">4B3I", 0, 0, 8, 3, 3, 3, 5) + bytes(45), r"2 labels, expected one for"),
        ("", struct.pack(">4B3I", 0, 0, 13, 3, 2, 3, 5) + bytes(30), "begins with 00000d03"),
        ("", struct.pack(">4B3I", 0, 0, 8, 3, 2, 0, 5), "images of 5x0 pixels"),
        ("", b"\0\0", "begins with 0000"),
        (".gz", struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 28, 28), "cannot hold 4,294,967,295"),
    ],
)
def test_files_that_lie_are_rejected(tmp_path, end, images, message):
    """Sizes in a header are believed only as far as the file can hold them."""
    write_pair(tmp_path, "train", [0, 1], end)
    write(tmp_path / f"train-images-idx3-ubyte{end}", images)
    found = scan(tmp_path, SourceOptions())
    assert found.items == []
    assert message in reasons(found)[f"train-images-idx3-ubyte{end}"]


def test_labels_that_go_on_are_rejected(tmp_path):
    """More labels than the header says belong to something else."""
    write_pair(tmp_path, "train", [0, 1])
    with open(tmp_path / "train-labels-idx1-ubyte", "ab") as file:
        file.write(b"\1")
    assert "at least 3 bytes of labels" in next(
        iter(reasons(scan(tmp_path, SourceOptions())).values())
    )


def test_a_cut_stream_is_an_image_error(tmp_path):
    """What a header promises may not be there once it is unpacked."""
    write_pair(tmp_path, "train", [0, 1], ".gz")
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 2, 3, 5) + bytes(20)))
    with pytest.raises(ImageError, match="ends before image 1"):
        contents(scan(tmp_path, SourceOptions()))


def test_no_images_is_an_error(tmp_path):
    """The message says what names were looked for."""
    with pytest.raises(SourceError, match="train-images-idx3-ubyte"):
        scan(tmp_path, SourceOptions())
