"""One XML dump of CVAT: what it says of images, and of frames through tracks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element

from packer.files.xml import stream_xml
from packer.items.raw_item import Reject
from packer.sources.cvat.shapes import read_shape
from packer.sources.named_objects import NamedObject, pack_named
from packer.sources.turned_boxes import is_turned
from readers.store.schema import SIDE_MAX

_Size = tuple[int, int]


@dataclass
class CvatImage:
    """What a dump says of one image, or of one frame of a video.

    Attributes:
        place: How reports name it: `annotations.xml, image 'a.jpg'`.
        name: Path of the picture; of a frame `frame_000010`, without extension.
        split: Subset that the dump puts it into, or "".
        size: (width, height), or None.
        objects: Packed.
        object_count: How many of them.
        rejects: Place of each shape that is no object, and why.
        lost_parts: Parts of objects that cannot be used; the picture's key is not known yet.
        tags: Labels of the whole image.
    """

    place: str
    name: str
    split: str
    size: _Size | None
    objects: bytes = b""
    object_count: int = 0
    rejects: list[tuple[str, str]] = field(default_factory=list)
    lost_parts: list[Reject] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)


@dataclass
class CvatFile:
    """A whole dump.

    Attributes:
        labels: In the order of its `<meta>`, which may lack them.
        images: Images that it lists.
        frames: Frames on which a track shows.
        class_names: Of all objects.
        has_outlines: Whether an object has one.
        has_attributes: Whether an object has one.
        object_count: How many there are.
        turned_count: How many of them are turned boxes.
        rejects: Place of each shape of a track that is on no frame, and why.
        outside_count: Shapes of tracks where the object is outside of the frame.
    """

    labels: list[str] = field(default_factory=list)
    images: list[CvatImage] = field(default_factory=list)
    frames: list[CvatImage] = field(default_factory=list)
    class_names: set[str] = field(default_factory=set)
    has_outlines: bool = False
    has_attributes: bool = False
    object_count: int = 0
    turned_count: int = 0
    rejects: list[tuple[str, str]] = field(default_factory=list)
    outside_count: int = 0

    def note(self, objects: list[NamedObject]) -> bytes:
        """Remember what the objects of an image have, and pack them."""
        for named in objects:
            self.class_names.add(named.class_name)
            self.has_outlines |= bool(named.object.polygons or named.object.runs)
            self.has_attributes |= bool(named.object.attributes)
            self.turned_count += is_turned(named.object)
        self.object_count += len(objects)
        return pack_named(objects)


def read_cvat(path: bytes, place: str) -> CvatFile | None:
    """What a dump says; None for an XML file that is none.

    Args:
        path: Of the XML file.
        place: What reports call it.

    Raises:
        ValueError: Why the file cannot be used, without its name.
    """
    found = CvatFile()
    frames: dict[int, tuple[CvatImage, list[NamedObject]]] = {}
    split, size = "", None
    children = stream_xml(path)
    if next(children).tag != "annotations":
        return None
    for child in children:
        if child.tag == "meta":
            found.labels = list(_labels(child))
            split = (child.findtext(".//subset") or "").strip()
            size = _meta_size(child)
        elif child.tag == "image":
            found.images.append(_read_image(found, child, place, split))
        elif child.tag == "track":
            for number, element in _shown(found, child, place):
                if number not in frames:
                    image = CvatImage(
                        f"{place}, frame {number}", f"frame_{number:06d}", split, size
                    )
                    frames[number] = (image, [])
                image, objects = frames[number]
                _add_track(child, element, image, objects, place)
    for _, (image, objects) in sorted(frames.items()):
        image.objects, image.object_count = found.note(objects), len(objects)
        found.frames.append(image)
    return found


def _labels(meta: Element) -> Iterator[str]:
    """Names of labels, without the points that skeletons consist of."""
    for label in meta.iter("label"):
        name = (label.findtext("name") or "").strip()
        if name and label.find("parent") is None:
            yield name


def _meta_size(meta: Element) -> _Size | None:
    for element in meta.iter("original_size"):
        return _size(element.findtext("width"), element.findtext("height"))
    return None


def _size(width: str | None, height: str | None) -> _Size | None:
    try:
        size = int(width or 0), int(height or 0)
    except ValueError:
        return None
    return size if min(size) > 0 and max(size) <= SIDE_MAX else None


def _read_image(found: CvatFile, element: Element, place: str, split: str) -> CvatImage:
    name = element.get("name", "").strip()
    image = CvatImage(
        place=f"{place}, image {name!r}",
        name=name,
        split=element.get("subset", "").strip() or split,
        size=_size(element.get("width"), element.get("height")),
    )
    objects: list[NamedObject] = []
    for number, shape in enumerate(element, 1):
        label = shape.get("label", "").strip()
        if shape.tag == "tag":
            image.tags.append(label)
            continue
        shape_place = f"{image.place}, {shape.tag} {number}"
        try:
            found_object = read_shape(shape, label, image.size, shape_place, {}, image.lost_parts)
            objects.append(found_object)
        except ValueError as error:
            image.rejects.append((shape_place, str(error)))
    image.objects, image.object_count = found.note(objects), len(objects)
    return image


def _shown(found: CvatFile, track: Element, place: str) -> Iterator[tuple[int, Element]]:
    """Shapes of a track by frame, but for those where it has left the frame."""
    for element in track:
        if element.get("outside") == "1":
            found.outside_count += 1
            continue
        try:
            number = int(element.get("frame", ""))
        except ValueError:
            reason = f"frame {element.get('frame')!r}, expected a whole number"
            found.rejects.append((f"{place}, track {track.get('id')}", reason))
            continue
        yield number, element


def _add_track(
    track: Element, element: Element, image: CvatImage, objects: list[NamedObject], place: str
) -> None:
    shape_place = f"{place}, track {track.get('id')}, frame {element.get('frame')}"
    more: dict[str, Any] = {"track_id": track.get("id", "")}
    label = track.get("label", "").strip()
    try:
        objects.append(read_shape(element, label, image.size, shape_place, more, image.lost_parts))
    except ValueError as error:
        image.rejects.append((shape_place, str(error)))
