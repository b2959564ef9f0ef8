"""CIFAR-10 and CIFAR-100, the Python and the binary version.

              python (pickled dicts)                  binary (records of 1 or 2 labels, 3072 bytes)
    CIFAR-10  data_batch_1..5, test_batch,            data_batch_1..5.bin, test_batch.bin,
              batches.meta                            batches.meta.txt
    CIFAR-100 train, test, meta                       train.bin, test.bin, fine_label_names.txt,
                                                      coarse_label_names.txt

What the bytes of one are: cifar_batch.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import SourceError
from packer.files.cifar import (
    BINARY,
    PICKLE_BYTES_MAX,
    PIXEL_BYTES,
    PYTHON,
    SIDE,
    pixel_rows,
    read_python_batch,
)
from packer.files.safe_pickle import UnsafePickleError
from packer.files.start import pointer_reason, pointer_reason_of
from packer.items.raw_item import Member, RawFile, RawItem, Scan, only_size
from packer.sources.class_names import ClassNames, read_class_names
from packer.sources.container_files import ContainerFiles, find_container_files, split_of_path
from packer.sources.pairing import split_path
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.wording import names_text, readable_path
from readers.store.schema import Field

name = "cifar"

_BATCH = re.compile(rb"^(data_batch_\d+|test_batch|train|test)(\.bin)?$")
_NAMES = re.compile(
    rb"^(batches\.meta(\.txt)?|meta|fine_label_names\.txt|coarse_label_names\.txt)$"
)


@dataclass
class _Batch:
    """Labels of one file, and where its images are; the size that all of them have, if any."""

    file: RawFile
    version: str
    labels: list[int]
    coarse_labels: list[int]
    byte_counts: list[int]
    size: tuple[int, int] | None

    def position(self, number: int) -> int:
        """`Member.position` of an image: its number, or in a binary file where its pixels begin."""
        if self.version == PYTHON:
            return number
        label_bytes = 2 if self.coarse_labels else 1
        return number * (label_bytes + PIXEL_BYTES) + label_bytes


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Images and labels of CIFAR batches, in the order of the files' paths and of the images.

    Keys are the file's path and the number of the image: `data_batch_1/00017`. Of CIFAR-100, the
    fine labels are `label`, the others `coarse_label`. Pickles are read without running what they
    hold; see safe_pickle.py.

    Args:
        raw: The folder.
        options: `classes` names the labels, where the files that do are to be overruled.

    Raises:
        SourceError: There is no batch.
    """
    found = find_container_files(raw, _is_cifar)
    found.ignore_pictures()
    if raw.is_file():
        found.files += [
            file
            for file in find_container_files(raw.parent, _is_cifar).files
            if b"/" not in file.path and _NAMES.match(file.path)
        ]
    batch_files = [file for file in found.files if _BATCH.match(split_path(file.path)[1])]
    if not batch_files and not found.findings.rejects:
        raise found.findings.nothing(
            raw,
            "no CIFAR batches found",
            "looked for files named data_batch_1 and test_batch, or train and test, with .bin or "
            "without",
        )
    names = _read_names(found)
    file_names = [split_path(file.path)[1] for file in found.files]
    has_coarse = any(b"coarse" in base for base in file_names) or "coarse" in names
    batches = []
    for file in batch_files:
        try:
            batches.append(_read_batch(file, has_coarse, found))
        except (OSError, ValueError) as error:
            found.findings.refuse(file.path, str(error), split=_split(file.path))

    label_count = 1 + max((max(batch.labels, default=-1) for batch in batches), default=-1)
    numbered = tuple(str(number) for number in range(min(label_count, 256)))
    fine = options.classes or names.get("fine") or numbered
    classes = ClassNames(fine, are_given=options.classes is not None)
    coarse_names = names.get("coarse")
    has_coarse_labels = bool(batches) and all(batch.coarse_labels for batch in batches)
    split_names = {batch.file.path: _split(batch.file.path) for batch in batches}
    splits = ordered_splits(split_names.values())
    for batch in batches:
        shared = {"split": splits.index(split_names[batch.file.path])}
        mark = found.findings.mark()
        _add_items(batch, shared, classes, has_coarse_labels, coarse_names, found)
        found.findings.tag_split(mark, split_names[batch.file.path])
    fields = [Field(name="label", kind="label", dtype="int64", names=classes.names)]
    if has_coarse_labels:
        fields.append(Field(name="coarse_label", kind="scalar", dtype="int64", names=coarse_names))
    fields.append(split_field(splits))
    if options.classes is None and "fine" not in names:
        note = "no file names the classes (such as batches.meta); to name them, give --classes"
    else:
        note = f"class names: {names_text(classes.names)}"
    found.findings.notes.append(note)
    return found.findings.as_scan(
        name,
        found.root,
        classes=classes.names,
        splits=splits,
        fields=tuple(fields),
        image_size=only_size(batch.size for batch in batches if batch.labels),
    )


def _is_cifar(path: bytes) -> bool:
    base = split_path(path)[1]
    return _BATCH.match(base) is not None or _NAMES.match(base) is not None


def _split(path: bytes) -> str:
    base = split_path(path)[1]
    return split_of_path(base) or "train"  # data_batch_1


def _read_names(found: ContainerFiles) -> dict[str, tuple[str, ...]]:
    """Names of fine and coarse labels, from whatever file there is; a broken one is a reject."""
    names: dict[str, tuple[str, ...]] = {}
    for file in found.files:
        base = split_path(file.path)[1]
        if not _NAMES.match(base):
            continue
        path = found.full_path(file.path)
        try:
            if base.endswith(b".txt"):
                names["coarse" if b"coarse" in base else "fine"] = read_class_names(path)
                continue
            content = read_python_batch(_read_pickle(file, found))
            for key, kind in (
                ("label_names", "fine"),
                ("fine_label_names", "fine"),
                ("coarse_label_names", "coarse"),
            ):
                if key in content:
                    names[kind] = _texts(content[key], key)
        except (OSError, ValueError, SourceError) as error:
            found.findings.refuse(file.path, str(error))
    return names


def _texts(value: Any, key: str) -> tuple[str, ...]:
    entries = value if isinstance(value, (list, tuple)) else [None]
    texts = tuple(
        entry.decode("utf-8", "replace") if isinstance(entry, bytes) else str(entry)
        for entry in entries
    )
    if not all(texts) or not all(isinstance(entry, (bytes, str)) for entry in entries):
        raise ValueError(f"{key!r} is not a list of names")
    if len(set(texts)) < len(texts):
        raise ValueError(f"{key!r} has a name twice")
    return texts


def _read_pickle(file: RawFile, found: ContainerFiles) -> bytes:
    if file.byte_count > PICKLE_BYTES_MAX:
        raise ValueError(f"{file.byte_count:,} bytes; expected at most {PICKLE_BYTES_MAX:,}")
    data = found.full_path(file.path).read_bytes()
    if pointer_reason(data):
        raise ValueError(pointer_reason(data))
    return data


def _read_batch(file: RawFile, has_coarse: bool, found: ContainerFiles) -> _Batch:
    """Labels of a batch.

    Raises:
        ValueError: It is none, or labels and images are not as many.
        OSError: It cannot be read.
    """
    if file.path.endswith(b".bin"):
        return _read_binary(file, has_coarse, found)
    try:
        content = read_python_batch(_read_pickle(file, found))
    except UnsafePickleError as error:
        raise ValueError(
            f"not a CIFAR batch that is safe to read: {error}. Use the binary version instead"
        ) from error
    rows = pixel_rows(content)
    labels = _numbers(content, "fine_labels" if "fine_labels" in content else "labels", len(rows))
    coarse: list[int] = []
    if "coarse_labels" in content:
        coarse = _numbers(content, "coarse_labels", len(rows))
    size = only_size((row.shape[0], row.shape[1]) for row in rows)
    return _Batch(file, PYTHON, labels, coarse, [row.size for row in rows], size)


def _numbers(content: dict[str, Any], key: str, count: int) -> list[int]:
    values = content.get(key)
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, list) or not all(
        isinstance(value, int) and 0 <= value < 2**16 for value in values
    ):
        raise ValueError(f"{key!r} is not a list of numbers in [0, 65536)")
    if len(values) != count:
        raise ValueError(f"{len(values):,} {key!r}, expected one for each of {count:,} images")
    return values


def _read_binary(file: RawFile, has_coarse: bool, found: ContainerFiles) -> _Batch:
    problem = pointer_reason_of(found.full_path(file.path))
    if problem:
        raise ValueError(problem)
    label_bytes = 2 if has_coarse else 1
    record_bytes = label_bytes + PIXEL_BYTES
    count, rest = divmod(file.byte_count, record_bytes)
    if rest:
        raise ValueError(
            f"{file.byte_count:,} bytes, which are not records of {record_bytes:,} bytes "
            f"({label_bytes} of labels, {PIXEL_BYTES:,} of pixels)"
        )
    records = np.memmap(found.full_path(file.path), np.uint8, "r") if count else np.empty(0)
    labels = records.reshape(count, record_bytes)[:, :label_bytes]
    coarse = labels[:, 0].tolist() if has_coarse else []
    byte_counts = [PIXEL_BYTES] * count
    return _Batch(file, BINARY, labels[:, -1].tolist(), coarse, byte_counts, (SIDE, SIDE))


def _add_items(
    batch: _Batch,
    shared: dict[str, int],
    classes: ClassNames,
    has_coarse_labels: bool,
    coarse_names: tuple[str, ...] | None,
    found: ContainerFiles,
) -> None:
    file = batch.file
    digits = max(5, len(str(len(batch.labels) - 1)))
    path = file.path.removesuffix(b".bin")
    for number, label in enumerate(batch.labels):
        key = b"%s/%0*d" % (path, digits, number)
        values = {"label": label, **shared}
        problem = ""
        if label >= len(classes.names):
            problem = f"label {label} is not in [0, {len(classes.names)}), the number of classes"
        if has_coarse_labels:
            values["coarse_label"] = coarse = batch.coarse_labels[number]
            if coarse_names is not None and coarse >= len(coarse_names):
                problem = f"coarse label {coarse} is not in [0, {len(coarse_names)})"
        if problem:
            place = f"{readable_path(file.path)}, image {number}"
            found.findings.refuse(key, problem, place)
            continue
        member = Member("cifar", file.byte_count, batch.position(number), batch.version)
        found.findings.items.append(
            RawItem(key, file.path, batch.byte_counts[number], file.mtime_ns, values, member=member)
        )
