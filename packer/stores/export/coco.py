"""COCO: `annotations/instances_train.json`, and pictures where their keys say.

Objects have their boxes, outlines, keypoints and what else COCO has for them. A store with masks of
segments becomes a panoptic file, with the masks beside it; one without objects but with captions a
file of captions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from packer.errors import BuildError
from packer.sources.turned_boxes import CORNERS, is_turn, turn_degrees
from packer.stores.export.files import ExportFiles
from packer.stores.export.job import Job
from packer.stores.export.outlines import coco_outline, outline_area
from packer.stores.export.panoptic import NAME as PANOPTIC
from packer.stores.export.panoptic import is_panoptic, mask_file, segment_id
from packer.stores.export.parts import Part, PartReport
from packer.stores.export.samples import Sample
from packer.stores.export.turned import short_numbers, turned_box
from readers.store.errors import CodecError
from readers.store.record import RecordReader

_BOX_FIELDS = ("boxes", "labels", "area", "iscrowd", "attributes")
_FIELDS = {
    "instances": {*_BOX_FIELDS, "masks", "keypoints"},
    "panoptic": {*_BOX_FIELDS, PANOPTIC},
    "captions": {"captions"},
}
"""By the kind of a file, what it has a place for."""
_IMAGES, _ANNOTATIONS = "images", "annotations"

_SKEWED = "corners"
_ROTATION = "rotation"
_UNNUMBERED = "segment"
_DESCRIBED = "segment attributes"


class FormatWriter:
    """Writes pictures, and JSON files of their objects; see `packer.stores.export.writer.Writer`.

    Raises:
        BuildError: The store has neither boxes nor captions.
    """

    holds_many = False

    def __init__(self, job: Job) -> None:
        self._job = job
        captions = job.field("captions")
        self._kind = "captions"
        if job.object_names:
            self._kind = "panoptic" if is_panoptic(job) else "instances"
        # Masks are called like their pictures, and are PNG all of them.
        self.names_by: Literal["path", "stem"] = "stem" if self._kind == "panoptic" else "path"
        if not job.object_names and (captions is None or captions.kind != "json"):
            raise BuildError(
                f"{job.store.path}: it has neither boxes nor captions, which COCO is for; the "
                f"fields are {', '.join(job.schema.names)}. For classes of pictures give --as "
                "folder."
            )
        wanted = set(_FIELDS[self._kind])
        self._has_points = "keypoints" in job.object_names & wanted
        # A box that is turned is told from one around an outline by having none.
        self._has_corners = CORNERS in job.object_names and not (
            self._has_points or "masks" in job.object_names
        )
        wanted |= {CORNERS} if self._has_corners else set()
        wanted |= {"image_id"} if _has_ids(job) else set()
        self.carried = frozenset(wanted & set(job.schema.names))
        self.reads = tuple(self.carried)
        self._ids = _category_ids(job)
        self.changes = {
            _SKEWED: "turned boxes that are not rectangles are upright boxes",
            _ROTATION: "attributes called rotation are left out, as readers would turn boxes by "
            "them again",
            _UNNUMBERED: "objects without a segment_id are left out: no value of the mask is "
            "theirs",
            _DESCRIBED: "attributes of segments but their segment_id are left out",
        }
        self.notes = _notes(job)

    def stems(self, stem: bytes, split: str, label: int | None) -> Sequence[bytes]:
        """As the key says."""
        return [stem]

    def write(self, part: Part, samples: Iterable[Sample], out: ExportFiles) -> None:
        """Write the pictures, and keep the entries of their images and objects."""
        for sample in samples:
            out.write(sample.path, sample.picture.data)
            image_id = sample.values.get("image_id", sample.index + 1)
            image = {
                "id": image_id,
                "file_name": sample.path.decode(),
                "width": sample.picture.width,
                "height": sample.picture.height,
            }
            out.keep(f"{_IMAGES} {sample.split}", msgspec.json.encode(image) + b"\n")
            entries: Iterable[dict[str, Any]]
            if self._kind == "captions":
                entries = [{"caption": text} for text in sample.values["captions"]]
            elif self._kind == "panoptic":
                entries = [self._segments(sample, out)]
            else:
                entries = self._objects(sample, out)
            for entry in entries:
                line = msgspec.json.encode({"image_id": image_id, **entry})
                out.keep(f"{_ANNOTATIONS} {sample.split}", line + b"\n")

    def _segments(self, sample: Sample, out: ExportFiles) -> dict[str, Any]:
        """The entry of a picture's mask, which is written."""
        segments = []
        for entry in self._objects(sample, out):
            attributes = entry.pop("attributes")
            number = segment_id(attributes)
            out.lose(_DESCRIBED, len(attributes) - (number is not None))
            if number is None:
                out.lose(_UNNUMBERED)
                continue
            segments.append({"id": number, **entry})
        name = sample.path.rpartition(b".")[0] + b".png"
        path = b"annotations/%s/%s" % (self._file_stem(sample.split).encode(), name)
        try:
            out.write(path, mask_file(sample.values[PANOPTIC]))
        except CodecError as error:
            raise BuildError(
                f"{self._job.store.path}, sample {sample.index}: its panoptic mask has {error}, "
                "which COCO's PNG can hold. Give another --as."
            ) from None
        return {"file_name": name.decode(), "segments_info": segments}

    def _objects(self, sample: Sample, out: ExportFiles) -> Iterator[dict[str, Any]]:
        values = sample.values
        for at, box in enumerate(values["boxes"]):
            x0, y0, x1, y1 = short_numbers(box)
            entry: dict[str, Any] = {
                "category_id": self._ids[int(values["labels"][at])],
                "bbox": [x0, y0, x1 - x0, y1 - y0],
                "area": (x1 - x0) * (y1 - y0),
                "iscrowd": int(values["iscrowd"][at]) if "iscrowd" in values else 0,
            }
            if "masks" in values:
                outline = values["masks"][at]
                entry["segmentation"] = coco_outline(
                    outline, values["masks"].height, values["masks"].width
                )
                entry["area"] = outline_area(outline) or entry["area"]
            if "area" in values:
                (entry["area"],) = short_numbers(values["area"][at])
            if self._has_points:
                entry |= _points(values["keypoints"][at])
            attributes = dict(values["attributes"][at]) if "attributes" in values else {}
            degrees = self._turn(entry, values[CORNERS][at], out) if self._has_corners else 0.0
            if not degrees and turn_degrees(attributes.get(_ROTATION)):
                del attributes[_ROTATION]
                out.lose(_ROTATION)
            if "attributes" in values:
                entry["attributes"] = attributes
            yield entry

    def _turn(self, entry: dict[str, Any], corners: Any, out: ExportFiles) -> float:
        """Make the box of an entry that of a turned one, and return by how much it is turned."""
        turned = turned_box(corners)
        if turned is None:
            out.lose(_SKEWED)
            return 0.0
        if not is_turn(round(turned.degrees, 4)):
            return 0.0
        entry["bbox"], entry[_ROTATION] = list(turned.upright), turned.degrees
        entry["area"] = turned.width * turned.height
        return turned.degrees

    def finish(self, out: ExportFiles, reports: Iterable[PartReport]) -> None:
        """Write the JSON file of each split."""
        for split in self._job.filled_splits or ("",):
            name = f"annotations/{self._file_stem(split)}.json"
            out.write_parts(name, self._document(split, reports))

    def _file_stem(self, split: str) -> str:
        """What the file of a split is called."""
        return self._kind + ("_" + self._job.split_files[split].decode() if split else "")

    def _document(self, split: str, reports: Iterable[PartReport]) -> Iterator[bytes]:
        """A file of COCO, line by line: a list of millions is never in memory."""
        yield b'{"info": {"description": "Exported by packer"},\n"licenses": [],\n"categories": '
        yield msgspec.json.encode(self._categories()) + b',\n"images": [\n'
        yield from _listed(_lines(reports, f"{_IMAGES} {split}"))
        yield b'\n],\n"annotations": [\n'
        lines = _lines(reports, f"{_ANNOTATIONS} {split}")
        yield from _listed(b'{"id":%d,' % at + line[1:] for at, line in enumerate(lines, 1))
        yield b"\n]}\n"

    def _categories(self) -> list[dict[str, Any]]:
        pose: dict[str, Any] = {}
        field = self._job.field("keypoints")
        if self._has_points and field is not None:
            count = field.shape[1] or 0
            pose["keypoints"] = list(field.names or map(str, range(1, count + 1)))
            lines = self._job.choice("skeleton")
            pose["skeleton"] = [list(map(int, line.split("-"))) for line in lines]
        things = self._job.choice("isthing") if self._kind == "panoptic" else []
        categories = [
            {"id": number, "name": name, "supercategory": "", **pose}
            for number, name in zip(self._ids, self._job.classes, strict=True)
        ]
        if len(things) == len(categories):
            for category, thing in zip(categories, things, strict=True):
                category |= {"isthing": int(thing)} if thing.isdecimal() else {}
        return categories


def _has_ids(job: Job) -> bool:
    """Whether pictures have ids that COCO may have: each another one, also in merged stores."""
    field = job.field("image_id")
    if field is None:
        return False
    if field.is_scalar and np.dtype(field.dtype).kind in "iu":
        ids = job.store.located(job.indices).column("image_id")
        return len(np.unique(ids)) == len(ids)
    if field.kind != "text":
        return False
    reader = RecordReader(job.store.layout, ["image_id"])
    places = map(job.store.locate, job.indices.tolist())
    texts = {reader.unpack(shard.record(position))["image_id"] for shard, position in places}
    return len(texts) == len(job.indices)


def _category_ids(job: Job) -> list[int]:
    """The id of each label: as in the data that the store was built of, where labels follow it."""
    said = job.choice("category_ids")
    if len(said) == len(job.classes) and all(text.isdecimal() for text in said):
        ids = list(map(int, said))
        if ids == sorted(set(ids)):
            return ids
    return list(range(1, len(job.classes) + 1))


def _points(points: Any) -> dict[str, Any]:
    """The keypoints of an object: x, y, visibility of each."""
    if points.shape[1] == 2:  # Marked and seen, or not there.
        seen = 2 * (points != 0).any(axis=1, keepdims=True)
        points = np.concatenate([points, seen.astype(np.float32)], axis=1)
    numbers = short_numbers(points)
    whole = [int(number) if number.is_integer() else number for number in numbers]
    return {"keypoints": whole, "num_keypoints": int((points[:, 2] > 0).sum())}


def _lines(reports: Iterable[PartReport], name: str) -> Iterator[bytes]:
    for report in reports:
        yield from report.pieces.get(name, b"").splitlines()


def _listed(lines: Iterable[bytes]) -> Iterator[bytes]:
    for at, line in enumerate(lines):
        yield b",\n" + line if at else line


def _notes(job: Job) -> list[str]:
    notes = []
    field = job.field("keypoints")
    if field is not None and field.shape[-1] == 2:
        notes.append("keypoints without a visibility get one: 2, or 0 at the point 0, 0")
    return notes
