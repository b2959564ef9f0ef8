"""COCO's panoptic files: a mask for each image, and what the values in it mean."""

from __future__ import annotations

import msgspec

from packer.items.annotations import Annotations, RawObject, pack_annotations
from packer.items.raw_item import RawFile
from packer.sources.coco.annotations import Gathered
from packer.sources.coco.classes import Classes
from packer.sources.coco.document import CocoFile, CocoPanoptic, CocoSegment, Id, known_id
from packer.sources.coco.files import file_stem
from packer.sources.coco.images import FileImages
from packer.sources.coco.objects import read_area, read_box
from packer.sources.coco.parts import (
    AnnotationError,
    PartProblems,
    part_rejects,
    read_flag,
    read_number,
)
from packer.sources.coco.pictures import find_pictures
from packer.sources.pairing import PictureIndex, normal_path
from packer.sources.walk import Picture, Tree
from readers.store.schema import Field

PANOPTIC_FIELD = Field(name="panoptic", kind="mask", dtype="int32", shape=(None, None))
"""The mask, (height, width): the id of each pixel's segment, 0 for none.

Its file is a PNG in RGB, where an id is R + 256 G + 65536 B.
"""

SEGMENT_ID = "segment_id"
"""Attribute of an object: the value of its pixels in the mask."""


def read_panoptic(
    listed: FileImages, classes: Classes, gathered: Gathered, index: PictureIndex, tree: Tree
) -> dict[bytes, RawFile]:
    """Give each image its segments as objects, and return its mask's file by the image's key.

    Masks lie in a folder that is called like the file, beside it, or in the file's own folder. An
    image without one is rejected.

    Args:
        listed: A file's images.
        classes: Labels of the categories.
        gathered: Takes everything else.
        index: Of all pictures; masks are among them, and taken.
        tree: That the index is of.
    """
    coco_file, images = listed.coco_file, listed.by_id
    entries: dict[Id, tuple[CocoPanoptic, int]] = {}
    for position, (entry, problem) in enumerate(
        coco_file.entries(coco_file.annotations, CocoPanoptic)
    ):
        place = f"{coco_file.name}, annotations[{position}]"
        image_id = known_id(entry.image_id) if entry is not None else None
        if entry is None or not entry.file_name or image_id is None:
            problem = problem or "has no image_id or no file_name; expected both"
        elif image_id not in images:
            problem = f"image_id {image_id!r} is none of the file's images"
        elif image_id in entries:
            problem = f"image {image_id!r} has a mask already; expected one for each image"
        else:
            entries[image_id] = (entry, position)
            continue
        gathered.findings.refuse_annotation(b"", problem, place)

    folders = _mask_folders(coco_file)
    names = [
        (entry.file_name or "").encode("utf-8", "surrogatepass") for entry, _ in entries.values()
    ]
    found = find_pictures(names, folders, index, tree)
    masks: dict[bytes, RawFile] = {}
    for (image_id, (entry, position)), mask in zip(entries.items(), found.pictures, strict=True):
        image = images[image_id]
        if not isinstance(mask, Picture):
            image.problem = image.problem or f"its panoptic mask: {mask}"
            continue
        index.take(mask)
        masks[image.key] = RawFile(mask.path, mask.byte_count, mask.mtime_ns)
        objects: list[RawObject] = []
        image.annotation_count = len(entry.segments_info)
        for number, raw in enumerate(entry.segments_info if not image.problem else ()):
            place = f"annotations[{position}], segments_info[{number}]"
            parts = PartProblems()
            try:
                segment = msgspec.convert(raw, CocoSegment, strict=False)
                place = f"annotations[{position}], segment {segment.id}"
                raw_object = _segment_object(segment, place, coco_file.path, classes, parts)
            except (msgspec.ValidationError, AnnotationError) as error:
                path = f"{coco_file.name}, {place}"
                gathered.findings.refuse_annotation(image.key, str(error), path)
                continue
            lost = part_rejects(parts, image.key, f"{coco_file.name}, {place}")
            gathered.findings.annotation_rejects += lost
            gathered.labels.add(raw_object.label)
            objects.append(raw_object)
        image.annotations = pack_annotations(Annotations(objects=tuple(objects), size=image.size))
    for image_id, image in images.items():
        if image_id not in entries and not image.problem:
            image.problem = f"{coco_file.name} has no mask for it; expected one for each image"
    return masks


def _segment_object(
    segment: CocoSegment, place: str, path: bytes, classes: Classes, parts: PartProblems
) -> RawObject:
    label, problem = classes.label_or_problem(path, known_id(segment.category_id))
    if problem:
        raise AnnotationError(problem)
    if not 0 < segment.id < 2**24:
        raise AnnotationError(f"id {segment.id}; expected [1, 2^24), a colour of the mask")
    box = read_box(segment.bbox)
    if box is None:
        raise AnnotationError("has no bbox; expected [x, y, width, height]")
    return RawObject(
        place=place,
        label=label,
        box=box,
        area=read_area(read_number(segment.area)),
        iscrowd=bool(read_flag(segment.iscrowd, parts)),
        attributes={SEGMENT_ID: segment.id},
    )


def _mask_folders(coco_file: CocoFile) -> list[bytes]:
    """Where masks may lie, the likeliest first."""
    stem = file_stem(coco_file).encode("utf-8", "surrogateescape")
    masks = [coco_file.folder + b"/" + name for name in (stem, stem + b"_masks", b"masks")]
    beside = [coco_file.folder + b"/../" + stem, coco_file.folder]
    paths = [normal_path(path) for path in (*masks, *beside)]
    return list(dict.fromkeys(path for path in paths if not path.startswith(b"..")))
