"""Reading data.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer.errors import SourceError
from packer.sources.yolo.data_yaml import DataYaml, declares_yolo, read_data_yaml


def read(folder: Path, text: str | bytes) -> DataYaml:
    path = folder / "data.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_data_yaml(path)


def test_names_are_a_list_or_numbered(tmp_path):
    """Both spellings give the names by number; numbers need not stand in order."""
    for text in ("names: [ant, bee]", "names:\n- ant\n- bee", "names:\n  1: bee\n  0: 'ant'"):
        assert read(tmp_path, text).names == ("ant", "bee")
    assert read(tmp_path, "nc: 2\ntrain: x").names is None
    assert read(tmp_path, "nc: 2\ntrain: x").class_count == 2


def test_a_name_is_text_as_written(tmp_path):
    """YAML makes False of no and 7 of 007; here they stay what they are, and a note names them."""
    data = read(tmp_path, "names: [yes, no, 007, null, 1.50, 2020-13-99, 'on', ok]")
    assert data.names == ("yes", "no", "007", "null", "1.50", "2020-13-99", "on", "ok")
    assert len(data.notes) == 1
    assert "'yes', 'no', '007', 'null', '1.50' and 1 more" in data.notes[0]
    assert read(tmp_path, "names: ['no', \"007\"]").notes == ()


def test_all_entries_are_read(tmp_path):
    """Splits in the order train, val, test, one or several places each; null is nothing."""
    text = (
        "\ufefftest:\nval: [a/val, b/val]\ntrain: a.txt\npath: ../set\nnc: 1\nnames: [person]\n"
        "kpt_shape: [2, 3]\nflip_idx: [1, 0]\nkpt_names: {0: [left, right]}\ntask: Pose\n"
        "download: |\n  import os\n"
    )
    data = read(tmp_path, text)
    assert list(data.splits.items()) == [("train", ("a.txt",)), ("val", ("a/val", "b/val"))]
    assert (data.root, data.keypoint_shape, data.flip_indices) == ("../set", (2, 3), (1, 0))
    assert (data.keypoint_names, data.task, data.notes) == (("left", "right"), "pose", ())


def test_a_number_of_classes_that_does_not_fit_is_noted(tmp_path):
    """The names decide."""
    data = read(tmp_path, "nc: 3\nnames: [ant, bee]")
    assert data.names == ("ant", "bee")
    assert data.notes == ("data.yaml: nc is 3, but there are 2 names; the names decide",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("names: [a, b", "not YAML"),
        ("names: [a]\nnames: [b]", "line 2: 'names' stands here a second time"),
        ("names: {0: a, 0: b}", "'0' stands here a second time"),
        ("names: {0: a, 2: c}", "none of the number 1; expected 0 to 1"),
        ("names: {a: 0}", "'a'; expected a whole number"),
        ("names: [a, a]", "class 1: 'a' is class 0 already"),
        ("names: [a, '']", "class 1: has no name"),
        ("names: [[a]]", "class 0 is a list"),
        ("names: &x [*x]", "class 0 is a list"),
        ("names: []", "names is empty"),
        ("names: coco.names", "expected a list"),
        ("- a", "expected entries"),
        ("", "expected entries"),
        ("names: [a]\nkpt_shape: [17, 4]", "kpt_shape is [17, 4]"),
        ("names: [a]\nkpt_shape: [17]", "kpt_shape is [17]"),
        ("names: [a]\nnc: many", "nc: 'many'; expected a whole number"),
        ("names: [a]\npath: [b]", "path: found a list"),
        ('names: ["\\ud800"]', "no character"),
        ('names: [a]\npath: "\\0"', "no character"),
        (b"names: [\xff]", "not UTF-8"),
        (b"names: [\x00]", "not YAML"),
        ("names: " + "[" * 5000, "not YAML"),
        ("names: [!!python/object/apply:os.abort []]", "class 0 is a list"),
    ],
)
def test_a_broken_file_is_an_error_that_names_the_place(text, words, tmp_path):
    """Nothing that a file holds is executed, or ends in anything but an error of ours."""
    with pytest.raises(SourceError) as caught:
        read(tmp_path, text)
    assert "data.yaml" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "declares"),
    [
        ("names: [a]\ntrain: x", True),
        ("nc: 2\nnames:\n  0: a", True),
        ("path: x\nnames: [a]", True),
        ("lr0: 0.01\nepochs: 3", False),
        ("name: x\ntrain: y", False),
        ("names: [a]", False),
    ],
)
def test_only_a_data_set_declares_itself(text, declares, tmp_path):
    """Other YAML files beside the data, such as training settings, are not taken for one."""
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert declares_yolo(path) is declares
