"""What is known of a YOLO data set before any label file is read, whatever form it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from packer.sources.pairing import PictureIndex
from packer.sources.walk import Picture, Tree
from packer.sources.yolo.data_yaml import YAML_EXTENSIONS, DataYaml
from packer.sources.yolo.labels import LabelFiles

ANNOTATION_EXTENSIONS = (b".txt", b".names", b".labels", b".data", b".json", *YAML_EXTENSIONS)
"""Of the files that a walk keeps: labels, lists, and what declares data sets and classes."""

NOT_NAMED = "not named by the annotations"
NOT_AMONG_PICTURES = "outside of the folders of pictures"


@dataclass(kw_only=True)
class Layout:
    """A data set, before any label file was read.

    Attributes:
        form: "ultralytics", "darknet" or "bare".
        base: Folder that everything is relative to.
        tree: Of `base`. Its findings have the lines of lists that lead to no picture, and notes.
        index: Its pictures; those of `pictures` are taken.
        labels: Its label files.
        pictures: Each picture with the position of its split, in the order of the store.
        splits: Names of the splits; empty without.
        class_names: Names by the numbers in the label files. None: there is no list of them.
        data_yaml: What the data.yaml says, where there is one.
        used: Paths of files that were read here, or are not to be read as labels.
    """

    form: str
    base: Path
    tree: Tree
    index: PictureIndex
    labels: LabelFiles
    pictures: list[tuple[Picture, int]]
    splits: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None
    data_yaml: DataYaml | None = None
    used: set[bytes] = field(default_factory=set)
