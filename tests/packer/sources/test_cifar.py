"""CIFAR batches, pickled and binary."""

from __future__ import annotations

import os
import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.errors import SourceError
from packer.items.raw_item import Scan
from packer.raw.containers import Containers
from packer.sources.cifar import scan
from packer.sources.source import SourceOptions
from readers.store.errors import ImageError
from readers.store.schema import Field

NAMES = ["airplane", "automobile", "bird"]


def drawn(count: int, start: int = 0) -> np.ndarray[Any, Any]:
    """Images (image, height, width, channel) of 32x32 pixels, no axis like another."""
    return ((np.arange(count * 3072) * 7 + start) % 253).astype(np.uint8).reshape(count, 32, 32, 3)


def rows_of(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As CIFAR has them: planes of red, green, blue in one row."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)


def dump(path: Path, content: Any, protocol: int = 2) -> None:
    path.write_bytes(pickle.dumps(content, protocol))


def write_cifar10(folder: Path) -> None:
    dump(folder / "batches.meta", {b"label_names": [name.encode() for name in NAMES]})
    dump(folder / "data_batch_1", {b"data": rows_of(drawn(2)), b"labels": [2, 0]})
    dump(folder / "test_batch", {"data": rows_of(drawn(1, 9)), "labels": [1]}, 4)


def described(found: Scan) -> list[tuple[str, dict[str, Any]]]:
    return [(item.key.decode(), item.values) for item in found.items]


def reasons(found: Scan) -> dict[str, str]:
    return {reject.path: reject.reason for reject in found.rejects}


def contents(found: Scan) -> list[Any]:
    with closing(Containers(bytes(found.root))) as containers:
        return [containers.read(item) for item in found.items]


def test_the_python_version(tmp_path):
    """Names from batches.meta, splits from the files, pixels as (height, width, RGB)."""
    write_cifar10(tmp_path)
    found = scan(tmp_path, SourceOptions())
    assert described(found) == [
        ("data_batch_1/00000", {"label": 2, "split": 0}),
        ("data_batch_1/00001", {"label": 0, "split": 0}),
        ("test_batch/00000", {"label": 1, "split": 1}),
    ]
    assert (found.classes, found.splits) == (tuple(NAMES), ("train", "test"))
    assert not found.rejects
    assert found.ignored.total == 0
    assert found.image_size == (32, 32)
    read = contents(found)
    assert np.array_equal(read, np.concatenate([drawn(2), drawn(1, 9)]))


def test_the_binary_version_is_the_same(tmp_path):
    """One byte of label before the planes; names from batches.meta.txt."""
    (tmp_path / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    for name, images, labels in (
        ("data_batch_1.bin", drawn(2), [2, 0]),
        ("test_batch.bin", drawn(1, 9), [1]),
    ):
        records = np.column_stack([np.array(labels, np.uint8), rows_of(images)])
        (tmp_path / name).write_bytes(records.tobytes())
    found = scan(tmp_path, SourceOptions())
    assert described(found) == [
        ("data_batch_1/00000", {"label": 2, "split": 0}),
        ("data_batch_1/00001", {"label": 0, "split": 0}),
        ("test_batch/00000", {"label": 1, "split": 1}),
    ]
    assert found.classes == tuple(NAMES)
    assert np.array_equal(contents(found), np.concatenate([drawn(2), drawn(1, 9)]))


@pytest.mark.parametrize("is_binary", [False, True])
def test_cifar_100_has_two_labels(tmp_path, is_binary):
    """The fine one is the label; the coarse one is kept beside it."""
    if is_binary:
        (tmp_path / "fine_label_names.txt").write_text("apple\nbee\n")
        (tmp_path / "coarse_label_names.txt").write_text("fruit\ninsect\n")
        record = np.concatenate([np.array([1, 0], np.uint8), rows_of(drawn(1))[0]])
        (tmp_path / "train.bin").write_bytes(record.tobytes())
    else:
        names = {"fine_label_names": ["apple", "bee"], "coarse_label_names": ["fruit", "insect"]}
        dump(tmp_path / "meta", names)
        content = {"data": rows_of(drawn(1)), "fine_labels": [0], "coarse_labels": [1]}
        dump(tmp_path / "train", content)
    found = scan(tmp_path, SourceOptions())
    assert described(found) == [("train/00000", {"label": 0, "split": 0, "coarse_label": 1})]
    assert found.classes == ("apple", "bee")
    coarse = Field(name="coarse_label", kind="scalar", dtype="int64", names=("fruit", "insect"))
    assert coarse in found.fields
    assert np.array_equal(contents(found), drawn(1))


def test_images_of_other_sizes_are_read_by_their_sizes(tmp_path):
    """Other tools write an array of arrays, with the (height, width) of each."""
    small = np.arange(18, dtype=np.uint8).reshape(1, 2, 3, 3)
    data = np.empty(2, object)
    data[:] = [rows_of(small)[0], rows_of(drawn(1))[0]]
    content = {"data": data, "labels": [0, 0], "image_sizes": [(2, 3), (32, 32)]}
    dump(tmp_path / "test_batch", content, 4)
    found = scan(tmp_path, SourceOptions())
    assert [item.byte_count for item in found.items] == [18, 3072]
    assert found.image_size is None
    read = contents(found)
    assert np.array_equal(read[0], small[0])
    assert np.array_equal(read[1], drawn(1)[0])


def test_labels_beyond_the_names_are_rejected(tmp_path):
    """One image, by its number; --classes decides how many there are."""
    write_cifar10(tmp_path)
    found = scan(tmp_path, SourceOptions(classes=("a", "b")))
    assert [item.values["label"] for item in found.items] == [0, 1]
    assert reasons(found) == {
        "data_batch_1, image 0": "label 2 is not in [0, 2), the number of classes"
    }


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._target}",)


def test_a_batch_that_runs_code_is_rejected(tmp_path):
    """It is named with what it asked for, nothing runs, and the other batches are read."""
    raw = tmp_path / "raw"
    raw.mkdir()
    write_cifar10(raw)
    dump(raw / "data_batch_2", {"data": Bomb(tmp_path / "done"), "labels": [0]})
    dump(raw / "batches.meta", Bomb(tmp_path / "done"))
    found = scan(raw, SourceOptions())
    assert len(found.items) == 3
    assert sorted(reasons(found)) == ["batches.meta", "data_batch_2"]
    assert "system, which data does not need" in reasons(found)["data_batch_2"]
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"labels": [0]}, "no array 'data'"),
        ({"data": rows_of(drawn(2)), "labels": [0]}, "1 'labels', expected one for each of 2"),
        ({"data": rows_of(drawn(1)), "labels": [-1]}, "'labels' is not a list of numbers"),
        ({"data": rows_of(drawn(1))[:, 1:], "labels": [0]}, "expected 3072 bytes of 3 planes"),
        ({"data": rows_of(drawn(1)).astype("f4"), "labels": [0]}, "expected 3072 bytes"),
        ({"data": rows_of(drawn(1)), "labels": [0], "image_sizes": [(0, 1)]}, "image size (0, 1)"),
        ([1], "a pickled list, expected a dict"),
    ],
)
def test_a_batch_that_is_none_is_rejected(tmp_path, content, message):
    """With what was found and what was expected."""
    dump(tmp_path / "data_batch_1", content)
    assert message in reasons(scan(tmp_path, SourceOptions()))["data_batch_1"]


def test_a_binary_batch_of_odd_length_is_rejected(tmp_path):
    """A file that is cut would shift nothing, but loses an image."""
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3073 + 100))
    found = scan(tmp_path, SourceOptions())
    assert "3,173 bytes, which are not records of 3,073" in reasons(found)["data_batch_1.bin"]


def test_a_batch_that_changed_is_not_read(tmp_path):
    """Its images may be others now."""
    write_cifar10(tmp_path)
    found = scan(tmp_path, SourceOptions())
    dump(tmp_path / "data_batch_1", {b"data": rows_of(drawn(3)), b"labels": [2, 0, 0]})
    with pytest.raises(ImageError, match="changed while the build ran"):
        contents(found)


def test_no_batch_is_an_error(tmp_path):
    """The message says what names were looked for."""
    with pytest.raises(SourceError, match="data_batch_1 and test_batch"):
        scan(tmp_path, SourceOptions())
