"""Pascal VOC: `JPEGImages/1.jpg`, `Annotations/1.xml`, `ImageSets/Main/train.txt`.

Coordinates are by the official rule: pixels count from 1 and a box includes its last one, so that
xmin = x0 + 1, ymin = y0 + 1, xmax = x1 and ymax = y1, as the source takes them. Pictures have one
name each, since the lists name them by it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal
from xml.etree import ElementTree

import msgspec
import numpy as np
from numpy.typing import NDArray

from packer.errors import BuildError
from packer.sources.turned_boxes import CORNERS, is_turn, turn_degrees
from packer.sources.voc.masks import LABEL_MAP, VOC_CLASSES, voc_colors
from packer.sources.walk import is_picture_name
from packer.stores.export.files import ExportFiles
from packer.stores.export.job import Job
from packer.stores.export.parts import Part, PartReport
from packer.stores.export.samples import Sample
from packer.stores.export.turned import TurnedBox, inside, short_numbers, turned_box
from readers.store.schema import Field
from readers.store.shapes.polygons import Runs

_PICTURES, _MASK, _LIST = b"JPEGImages", "mask", "list"
_CUT, _GONE, _RUNS, _SKEWED, _ROTATION = "outside", "no area", "runs", "corners", "rotation"
_TEXTS, _LETTERS = "text", "letters"

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

_ELEMENTS = ("pose", "occluded")
"""Attributes that have an element of their own."""


class FormatWriter:
    """Writes pictures and their XML files; see `packer.stores.export.writer.Writer`.

    Raises:
        BuildError: The store has neither boxes nor masks of classes.
    """

    names_by: Literal["stem"] = "stem"
    holds_many = False

    def __init__(self, job: Job) -> None:
        self._job = job
        self._mask = _mask_field(job)
        if not job.object_names and self._mask is None:
            fields = ", ".join(job.schema.names)
            raise BuildError(
                f"{job.store.path}: it has neither boxes nor masks of at most 256 classes, which "
                f"VOC is for; the fields are {fields}. For classes of pictures give --as folder."
            )
        names = ("boxes", "labels", "difficult", "truncated", "masks", "attributes", CORNERS)
        wanted = job.object_names & set(names)
        self.carried = frozenset(wanted | ({_MASK} if self._mask is not None else set()))
        self.reads = tuple(self.carried)
        self.changes = {
            _CUT: "boxes that stick out of their picture are cut off at its border",
            _GONE: "objects of which nothing is left inside of the picture are left out",
            _RUNS: "outlines that are runs of pixels are left out",
            _SKEWED: "turned boxes that are not rectangles are upright boxes",
            _ROTATION: "attributes called rotation are left out, as readers would turn boxes by "
            "them again",
            _TEXTS: "attributes that are not text are written as text",
            _LETTERS: "letters that XML cannot hold are left out of names and attributes",
        }
        self.notes = self._told()

    def stems(self, stem: bytes, split: str, label: int | None) -> Sequence[bytes]:
        """By its name alone; where that is taken, with the names of its folders."""
        parts = [_plain_name(part) for part in stem.split(b"/")]
        if len(parts) > 1 and parts[0] == _PICTURES:
            parts = parts[1:]
        return [_PICTURES + b"/" + parts[-1], _PICTURES + b"/" + b"_".join(parts)]

    def write(self, part: Part, samples: Iterable[Sample], out: ExportFiles) -> None:
        """Write the pictures, their XML files and masks, and keep their names for the lists."""
        for sample in samples:
            out.write(sample.path, sample.picture.data)
            name = sample.path[len(_PICTURES) + 1 : sample.path.rfind(b".")]
            out.keep(f"{_LIST} {sample.split}", name + b"\n")
            if self._job.object_names:
                out.write(b"Annotations/%s.xml" % name, self._xml(sample, out))
            if self._mask is not None:
                out.write(b"SegmentationClass/%s.png" % name, _mask_file(sample.values[_MASK]))

    def _xml(self, sample: Sample, out: ExportFiles) -> bytes:
        picture, values = sample.picture, sample.values
        root = ElementTree.Element("annotation")
        _add(root, "folder", _PICTURES.decode())
        _add(root, "filename", sample.path[len(_PICTURES) + 1 :].decode())
        size = ElementTree.SubElement(root, "size")
        for name, side in (
            ("width", picture.width),
            ("height", picture.height),
            ("depth", picture.channel_count),
        ):
            _add(size, name, side)
        _add(root, "segmented", int(self._mask is not None))
        boxes, _ = inside(values["boxes"], picture.height, picture.width)
        for at, box in enumerate(boxes):
            turned = self._turned(values, at, out)
            if turned is None and (box[0] >= box[2] or box[1] >= box[3]):
                out.lose(_GONE)
                continue
            if turned is None and (box != values["boxes"][at]).any():
                out.lose(_CUT)
            self._add_object(root, values, at, box, turned, out)
        ElementTree.indent(root)
        data: bytes = ElementTree.tostring(root, "utf-8", xml_declaration=True)
        return data + b"\n"

    def _add_object(
        self,
        root: ElementTree.Element,
        values: dict[str, Any],
        at: int,
        box: NDArray[np.float64],
        turned: TurnedBox | None,
        out: ExportFiles,
    ) -> None:
        element = ElementTree.SubElement(root, "object")
        name = self._job.classes[int(values["labels"][at])]
        _add(element, "name", _writable(name, out))
        attributes = dict(values["attributes"][at]) if "attributes" in values else {}
        if _ROTATION in attributes and turn_degrees(attributes[_ROTATION]):
            del attributes[_ROTATION]
            out.lose(_ROTATION, int(turned is None))
        for key in _ELEMENTS:
            if isinstance(attributes.get(key), str if key == "pose" else bool):
                value = attributes.pop(key)
                _add(element, key, _writable(value, out) if key == "pose" else int(value))
        for key in ("truncated", "difficult"):
            _add(element, key, int(values[key][at]) if key in values else 0)
        if turned is not None:
            around = ElementTree.SubElement(element, "robndbox")
            for tag, number in (
                ("cx", turned.x),
                ("cy", turned.y),
                ("w", turned.width),
                ("h", turned.height),
                ("angle", np.deg2rad(turned.degrees)),
            ):
                _add(around, tag, repr(float(number)))
        else:
            around = ElementTree.SubElement(element, "bndbox")
            x0, y0, x1, y1 = short_numbers(box)
            for tag, number in (("xmin", x0 + 1), ("ymin", y0 + 1), ("xmax", x1), ("ymax", y1)):
                _add(around, tag, _number(number))
        outline = values["masks"][at] if "masks" in values else ()
        if isinstance(outline, Runs):
            out.lose(_RUNS)
            outline = ()
        for part in outline:
            polygon = ElementTree.SubElement(element, "polygon")
            for number, (x, y) in enumerate((part + 1).tolist(), 1):
                _add(polygon, f"x{number}", _number(x))
                _add(polygon, f"y{number}", _number(y))
        if attributes:
            _add_attributes(element, attributes, out)

    def _turned(self, values: dict[str, Any], at: int, out: ExportFiles) -> TurnedBox | None:
        """The turned box of an object; None where it is upright."""
        if CORNERS not in values:
            return None
        turned = turned_box(values[CORNERS][at])
        if turned is None:
            out.lose(_SKEWED)
            return None
        return turned if is_turn(round(turned.degrees, 4)) else None

    def finish(self, out: ExportFiles, reports: Iterable[PartReport]) -> None:
        """Write the lists of splits, and what the values of masks are called."""
        kinds = ["Main"] if self._job.object_names else []
        kinds += ["Segmentation"] if self._mask is not None else []
        for split in self._job.filled_splits:
            name = self._job.split_files[split].decode()
            for kind in kinds:
                lines = (report.pieces.get(f"{_LIST} {split}", b"") for report in reports)
                out.write_parts(f"ImageSets/{kind}/{name}.txt", lines)
        names = self._mask.names if self._mask is not None else None
        if names and not _is_official(names):
            out.write_parts(LABEL_MAP.decode(), _label_map(names))

    def _told(self) -> list[str]:
        notes = ["boxes count from 1, the official rule; build it with --voc-origin 1"]
        if not self._job.object_names:
            notes = []
        if self._mask is not None:
            notes.append("masks are in SegmentationClass; to build with them, give --task segment")
        if not self._job.splits:
            notes.append("the store has no splits: there are no lists in ImageSets")
        return notes


def _mask_field(job: Job) -> Field | None:
    """The field of masks of classes that VOC's PNG can hold."""
    field = job.field(_MASK)
    is_held = field is not None and field.kind == "mask" and field.dtype == "uint8"
    return field if is_held else None


def _mask_file(ids: NDArray[np.uint8]) -> bytes:
    """A PNG with VOC's palette, whose numbers are the values of the mask."""
    from PIL import Image

    height, width = ids.shape
    image = Image.frombytes("P", (width, height), np.ascontiguousarray(ids).tobytes())
    image.putpalette([channel for color in voc_colors() for channel in color])
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def _is_official(names: Sequence[str]) -> bool:
    """Whether the values of masks are those that everybody knows."""
    return tuple(names) == VOC_CLASSES


def _label_map(names: Sequence[str]) -> Iterator[bytes]:
    """Names and colours of values, as CVAT and Datumaro write them."""
    yield b"# label:color_rgb:parts:actions\n"
    for name, (red, green, blue) in zip(names, voc_colors(), strict=False):
        yield f"{name}:{red},{green},{blue}::\n".encode()


def _plain_name(name: bytes) -> bytes:
    """A name that a list of names holds, which takes off the end of a picture's name."""
    return name.replace(b".", b"_") if is_picture_name(name) else name


def _add(parent: ElementTree.Element, tag: str, value: object) -> None:
    ElementTree.SubElement(parent, tag).text = str(value)


def _number(value: float) -> str:
    """A number as it is read back, whole ones without a point."""
    return str(int(value)) if value.is_integer() else repr(value)


def _add_attributes(
    element: ElementTree.Element, attributes: dict[str, Any], out: ExportFiles
) -> None:
    inner = ElementTree.SubElement(element, "attributes")
    for key, value in attributes.items():
        attribute = ElementTree.SubElement(inner, "attribute")
        _add(attribute, "name", _writable(key, out))
        if not isinstance(value, str):
            out.lose(_TEXTS)
            value = msgspec.json.encode(value).decode()
        _add(attribute, "value", _writable(value, out))


def _writable(text: str, out: ExportFiles) -> str:
    """A text without what XML 1.0 has no way to write."""
    kept, count = _NOT_XML.subn("", text)
    out.lose(_LETTERS, count)
    return kept
