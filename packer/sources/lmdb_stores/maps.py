"""One map of another tool: its images, and what it says of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from packer.errors import SourceError
from packer.files.bare_pixels import pixel_shape
from packer.files.lmdb_file import LmdbEntry, LmdbFile, LmdbFileError
from packer.items.raw_item import RawFile
from packer.sources.container_files import ContainerFiles
from packer.sources.held_images import HeldImage
from packer.sources.lmdb_stores.keys import (
    CLASS_NAMES,
    KeyParts,
    in_order,
    is_count,
    key_parts,
    shown_key,
)
from packer.sources.lmdb_stores.values import (
    Place,
    ValueKind,
    datum_place,
    is_picture,
    kind_of,
    npy_place,
    plain_value,
    sides_of,
    unread_text,
)
from packer.wording import count_text, names_text, readable_path
from readers.store.layout import INDEX_DB, KEYS_DB, SAMPLES_DB
from readers.store.pictures.signatures import START_BYTES

ABOUT_ALL = "entry of a map that is about all of it, not one image"
NOT_AN_IMAGE = "entry of a map that is not an image, nor a label of one"

FROM_PYTHON = "Build from Python, with the Dataset that reads it: packer.build(dataset, out)"

_SAMPLED = 16
"""Of how many images the values are looked into, to tell what all of them are."""

_TEXT_KEY = re.compile(rb"label-\d{9}")
"""Keys of scene-text recognition, whose labels are what stands written in the image."""


@dataclass
class FoundMap:
    """What a map holds.

    Attributes:
        images: In the order of the samples. Where `texts` are read, `values` has them.
        folders: Of each image, by its key: those in the key of its entry.
        has_labels: Whether it has labels.
        has_texts: Whether it has texts about its images.
        class_names: Names of the classes, if it says them.
    """

    images: list[HeldImage] = field(default_factory=list)
    folders: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    has_labels: bool = False
    has_texts: bool = False
    class_names: tuple[str, ...] = ()


def read_map(
    file: RawFile, prefix: bytes, found: ContainerFiles, *, are_classes: bool
) -> FoundMap | None:
    """What a map holds; None where it cannot be read, which is noted.

    Args:
        file: The LMDB file.
        prefix: What the keys of its samples begin with.
        found: All files.
        are_classes: Whether the user says that labels are classes, by naming them.

    Raises:
        SourceError: It is a shard of a store; or its values are of a kind that is not read.
    """
    try:
        lmdb_file = LmdbFile(found.full_path(file.path))
        try:
            return _MapReader(file, prefix, found, lmdb_file).read(are_classes=are_classes)
        finally:
            lmdb_file.close()
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    except LmdbFileError as error:
        reason = f"not an LMDB file that can be read: {error}"
    found.findings.refuse(file.path, reason)
    return None


class _MapReader:
    """Reads one map.

    Args:
        file: The file as it was found.
        prefix: What keys begin with.
        found: All files.
        lmdb_file: The file, open.
    """

    def __init__(
        self, file: RawFile, prefix: bytes, found: ContainerFiles, lmdb_file: LmdbFile
    ) -> None:
        self._file, self._prefix, self._found, self._lmdb = file, prefix, found, lmdb_file
        self._shown = readable_path(file.path)
        self._entries: dict[bytes, LmdbEntry] = {}
        self._parts: dict[bytes, KeyParts] = {}

    def read(self, *, are_classes: bool) -> FoundMap:
        """All of it."""
        for entry in self._lmdb.entries():
            if entry.key in self._entries:
                raise LmdbFileError(f"two entries are called {readable_path(entry.key)!r}")
            self._entries[entry.key] = entry
        if {SAMPLES_DB, KEYS_DB, INDEX_DB} <= set(self._lmdb.database_names):
            raise SourceError(
                f"{self._shown}: this is a shard of a store, which a build makes, and not raw "
                "data. `packer merge` and `packer subset` make stores of stores: give its folder."
            )
        self._parts = {key: key_parts(key) for key in self._entries}
        keys = self._image_keys()
        result = FoundMap()
        places = self._places(keys)
        images: dict[tuple[str, ...], list[HeldImage]] = {}
        for key in in_order(places):
            place, sample_key = places[key], self._prefix + shown_key(key)
            image = HeldImage(
                file=self._file,
                key=sample_key,
                position=place.position,
                byte_count=place.byte_count,
                shape=place.shape,
                label=None if place.label is None else str(place.label),
            )
            result.has_labels |= place.label is not None
            result.images.append(image)
            result.folders[sample_key] = tuple(key.split(b"/")[:-1])
            images.setdefault(self._parts[key].sample, []).append(image)
        known = {self._parts[key].sample for key in keys}
        self._read_labels(result, images, known, are_classes=are_classes)
        self._read_about(result, len(keys))
        return result

    def _place(self, key: bytes) -> str:
        return f"{self._shown}, {readable_path(shown_key(key))}"

    def _refuse(self, key: bytes, reason: str) -> None:
        self._found.findings.refuse(self._prefix + shown_key(key), reason, self._place(key))

    def _of_role(self, *roles: str) -> list[bytes]:
        return [key for key, parts in self._parts.items() if parts.role in roles]

    # --- images -----------------------------------------------------------------------------------

    def _image_keys(self) -> list[bytes]:
        """Keys of the images. A word of another role in the key of a picture is only a word."""
        keys = self._of_role("image")
        samples = {self._parts[key].sample for key in keys}
        masks = []
        for key in self._of_role("label", "text", "shape"):
            if not is_picture(self._lmdb.value(self._entries[key], START_BYTES)):
                continue
            if self._parts[key].sample in samples:
                masks.append(key)
            self._parts[key] = self._parts[key]._replace(role="image")
        if masks:
            raise SourceError(
                f"{self._shown}: labels that are pictures themselves, such as masks "
                f"({names_text(map(readable_path, masks))}), and no source reads them from a map. "
                f"{FROM_PYTHON}."
            )
        return self._of_role("image")

    def _places(self, keys: Sequence[bytes]) -> dict[bytes, Place]:
        """Where each image lies; those that are none are noted."""
        looked_at = keys[:: max(1, len(keys) // _SAMPLED)]
        kinds = {key: kind_of(self._lmdb, self._entries[key]) for key in looked_at}
        read = set(kinds.values()) - {"unread"}
        if not read and keys:
            return self._raw_places(keys)
        places = {}
        for key in keys:
            place = self._read_place(key, read)
            if place is not None:
                places[key] = place
        return places

    def _read_place(self, key: bytes, read: set[ValueKind]) -> Place | None:
        entry = self._entries[key]
        has_number = any(part.isdigit() for part in self._parts[key].sample)
        if read == {"picture"} and (has_number or b"." in key):
            # Whether it is one is seen when it is decoded: a look at each would double the reading.
            return Place(position=entry.position, byte_count=entry.byte_count)
        kind = kind_of(self._lmdb, entry)
        try:
            if kind == "picture":
                return Place(position=entry.position, byte_count=entry.byte_count)
            if kind == "npy":
                return npy_place(self._lmdb, entry)
            if kind == "datum":
                return datum_place(self._lmdb, entry)
        except ValueError as error:
            self._refuse(key, str(error))
            return None
        if has_number or self._parts[key].has_image_word:
            self._refuse(key, f"its value is not an image: {unread_text(self._lmdb, entry)}")
        else:
            self._found.findings.ignored.add(NOT_AN_IMAGE, self._place(key))
        return None

    def _raw_places(self, keys: Sequence[bytes]) -> dict[bytes, Place]:
        """Where pixels lie whose shapes have keys of their own.

        Raises:
            SourceError: There is no shape: what the values are, nobody can say.
        """
        shapes: dict[tuple[str, ...], tuple[int, ...]] = {}
        for key in self._of_role("shape"):
            if re.search(rb"(?i)label|target|lbl", key):
                continue
            entry = self._entries[key]
            sides = sides_of(plain_value(self._lmdb, entry), self._lmdb.value(entry, START_BYTES))
            if sides is not None:
                shapes[self._parts[key].sample] = sides
        if not shapes:
            first = keys[0]
            raise SourceError(
                f"{self._shown}: its values, such as that of {readable_path(first)!r}, are "
                f"{unread_text(self._lmdb, self._entries[first])}. No source reads them: "
                "unpickling runs code that the file brings, and pixels without their shape say "
                f"nothing. {FROM_PYTHON}."
            )
        places = {}
        for key in keys:
            entry, sides = self._entries[key], shapes.get(self._parts[key].sample, shapes.get(()))
            try:
                if sides is None:
                    raise ValueError("no entry says its shape, which other images have")
                shape = pixel_shape(sides)
                if shape.byte_count != entry.byte_count:
                    raise ValueError(
                        f"{entry.byte_count:,} bytes, expected {shape.byte_count:,} of uint8 for "
                        f"the shape {sides}"
                    )
            except ValueError as error:
                self._refuse(key, str(error))
                continue
            places[key] = Place(position=entry.position, byte_count=entry.byte_count, shape=shape)
        self._found.findings.notes.append(
            f"{self._shown}: pixels of uint8 without a file around them; where there are 3 "
            "channels, they are taken for red, green and blue"
        )
        return places

    # --- what is said of them ---------------------------------------------------------------------

    def _read_labels(
        self,
        result: FoundMap,
        images: dict[tuple[str, ...], list[HeldImage]],
        known: set[tuple[str, ...]],
        *,
        are_classes: bool,
    ) -> None:
        """Give each image its label and text."""
        labels = self._of_role("label")
        are_texts = (
            not are_classes
            and bool(labels)
            and all(map(_TEXT_KEY.fullmatch, labels))
            and any(map(is_count, self._entries))
        )
        if are_texts:
            self._found.findings.notes.append(
                f"{self._shown}: labels are texts, as in maps of scene-text recognition; where "
                "they are names of classes, give --classes"
            )
        for key in (*labels, *self._of_role("text")):
            is_label = self._parts[key].role == "label" and not are_texts
            sample = self._parts[key].sample
            if sample not in known:
                if sample:
                    self._refuse(key, "a label without an image: no entry of this name holds one")
                else:
                    self._no_single_label(key)
                continue
            value = self._label_text(key)
            if value is None:
                self._refuse(key, "its value is no label: expected a text or a whole number")
                continue
            for image in images.get(sample, ()):
                if is_label:
                    image.label = value
                else:
                    image.set_value("text", value)
            result.has_labels |= is_label
            result.has_texts |= not is_label

    def _no_single_label(self, key: bytes) -> None:
        raise SourceError(
            f"{self._shown}: {readable_path(key)!r} holds the labels of all images in one value, "
            f"and does not say which is whose. {FROM_PYTHON}."
        )

    def _label_text(self, key: bytes) -> str | None:
        """A label as text: itself, a number of bytes, or what a pickle of plain data holds."""
        entry = self._entries[key]
        value: Any = plain_value(self._lmdb, entry)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str) and value.strip().isprintable():
            return value.strip() or None
        if isinstance(value, (bool, int)):
            return str(int(value))
        if getattr(value, "size", 0) == 1 and getattr(value, "dtype", None) is not None:
            return str(value.item())
        if value is None or isinstance(value, str):
            data = self._lmdb.value(entry, 9)
            if len(data) in (1, 2, 4, 8):
                return str(int.from_bytes(data, "little", signed=True))
        return None

    def _read_about(self, result: FoundMap, image_count: int) -> None:
        """What the map says of all its images, held against what is there."""
        for key in self._of_role("about", "shape"):
            self._found.findings.ignored.add(ABOUT_ALL, self._place(key))
            value = plain_value(self._lmdb, self._entries[key])
            if key.lower() in CLASS_NAMES:
                result.class_names = _names(value)
            if not is_count(key):
                continue
            text = self._label_text(key)
            if text is not None and text.isdecimal() and int(text) != image_count:
                self._found.findings.notes.append(
                    f"{self._shown}: {readable_path(key)} says {int(text):,}, and there are "
                    f"{count_text(image_count, 'image')}"
                )


def _names(value: Any) -> tuple[str, ...]:
    """Class names in a value: a list of texts, or lines."""
    names: Iterable[Any] = value.splitlines() if isinstance(value, str) else value or ()
    if not isinstance(names, (list, tuple)):
        return ()
    texts = [name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in names]
    if not all(isinstance(name, str) and name for name in texts) or len(set(texts)) < len(texts):
        return ()
    return tuple(texts)
