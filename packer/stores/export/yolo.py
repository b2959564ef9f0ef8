"""YOLO as ultralytics reads it: a data.yaml, `images/train/1.jpg` and `labels/train/1.txt`.

What a line says is decided for the whole store: keypoints where it has some, else turned boxes,
else outlines, else boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray

from packer.errors import BuildError
from packer.sources.turned_boxes import CORNERS
from packer.stores.export.files import ExportFiles
from packer.stores.export.job import Job
from packer.stores.export.outlines import BOXED, JOINED, TRACED, one_polygon
from packer.stores.export.parts import Part, PartReport
from packer.stores.export.samples import Sample
from packer.stores.export.turned import inside
from readers.store.splits import canonical_split

_IMAGES, _LABELS = b"images", b"labels"
_PICTURE_FOLDERS = frozenset((b"images", b"image", b"imgs", b"img", b"jpegimages"))

_CUT, _GONE = "outside", "no area"

Task = Literal["detect", "segment", "pose", "obb"]


class FormatWriter:
    """Writes pictures and their label files; see `packer.stores.export.writer.Writer`.

    Raises:
        BuildError: The store has no boxes.
    """

    names_by: Literal["stem"] = "stem"
    holds_many = False

    def __init__(self, job: Job) -> None:
        if not job.object_names:
            raise BuildError(
                f"{job.store.path}: it has no boxes, which YOLO's label files are for; the fields "
                f"are {', '.join(job.schema.names)}. For classes of pictures give --as folder."
            )
        self._job = job
        self._task = _task(job)
        more = {"pose": "keypoints", "obb": CORNERS, "segment": "masks"}.get(self._task)
        self.carried = frozenset(filter(None, ("boxes", "labels", more)))
        self.reads = tuple(self.carried)
        self._splits = job.split_files
        self.changes = {
            _CUT: "boxes and points outside of their picture are cut off at its border",
            _GONE: "objects of which nothing is left inside of the picture are left out",
            JOINED: "outlines of several polygons are one, joined by lines that go there and back",
            TRACED: "outlines that are runs of pixels are polygons along their outer edge, without "
            "holes",
            BOXED: "objects without an outline have that of their box",
        }
        self.notes = self._told()

    def stems(self, stem: bytes, split: str, label: int | None) -> Sequence[bytes]:
        """In the folder of pictures of its split, without such folders of its key."""
        head = [_IMAGES, *([self._splits[split]] if split else [])]
        rest = stem.split(b"/")
        while len(rest) > 1 and (rest[0].lower() in _PICTURE_FOLDERS or rest[0] in head):
            rest = rest[1:]
        # The last folder of this name is where readers look for the labels.
        rest = [part + b"_" if part.lower() == _IMAGES else part for part in rest]
        return [b"/".join([*head, *rest])]

    def write(self, part: Part, samples: Iterable[Sample], out: ExportFiles) -> None:
        """Write the pictures and their label files, also those of pictures without objects."""
        for sample in samples:
            out.write(sample.path, sample.picture.data)
            stem = sample.path[: sample.path.rfind(b".")]
            text = "".join(f"{line}\n" for line in self._lines(sample, out))
            out.write(_LABELS + stem[len(_IMAGES) :] + b".txt", text.encode())

    def _lines(self, sample: Sample, out: ExportFiles) -> Iterator[str]:
        picture, values = sample.picture, sample.values
        sides = np.array([picture.width, picture.height], np.float64)
        boxes, cut_count = inside(values["boxes"], picture.height, picture.width)
        # The other tasks say nothing of the box, or points beside it.
        out.lose(_CUT, cut_count if self._task in ("detect", "pose") else 0)
        for at, (x0, y0, x1, y1) in enumerate(boxes.tolist()):
            if x0 >= x1 or y0 >= y1:
                out.lose(_GONE)
                continue
            middle = np.array([[(x0 + x1) / 2, (y0 + y1) / 2], [x1 - x0, y1 - y0]]) / sides
            if self._task == "detect":
                numbers = middle.reshape(-1)
            elif self._task == "pose":
                points = self._points(values["keypoints"][at], sides, out)
                numbers = np.concatenate([middle.reshape(-1), points])
            else:
                numbers = self._outline(sample, at, boxes[at], sides, out)
            yield " ".join([str(int(values["labels"][at])), *(f"{n:.15g}" for n in numbers)])

    def _points(
        self, points: NDArray[Any], sides: NDArray[np.float64], out: ExportFiles
    ) -> NDArray[np.float64]:
        shares = points.astype(np.float64)
        shares[:, :2] = _shares(shares[:, :2], sides, out)
        return shares.reshape(-1)

    def _outline(
        self,
        sample: Sample,
        at: int,
        box: NDArray[np.float64],
        sides: NDArray[np.float64],
        out: ExportFiles,
    ) -> NDArray[np.float64]:
        if self._task == "obb":
            points = sample.values[CORNERS][at].astype(np.float64)
        else:
            outlines = sample.values["masks"]
            points, how = one_polygon(outlines[at], box, outlines.height, outlines.width)
            if how in self.changes:
                out.lose(how)
        return _shares(points, sides, out).reshape(-1)

    def finish(self, out: ExportFiles, reports: Iterable[PartReport]) -> None:
        """Write the data.yaml."""
        entries: dict[str, Any] = {}
        for split in self._job.filled_splits:
            folder = self._splits[split]
            entries.setdefault(canonical_split(split) or split, []).append(
                f"images/{folder.decode()}"
            )
        entries = {key: found[0] if len(found) == 1 else found for key, found in entries.items()}
        content: dict[str, Any] = {**(entries or {"train": "images"}), "task": self._task}
        field = self._job.field("keypoints")
        if self._task == "pose" and field is not None:
            content["kpt_shape"] = list(field.shape[1:])
            flip = " ".join(self._job.choice("flip_idx")).split()
            content |= {"flip_idx": list(map(int, flip))} if flip else {}
            content |= {"kpt_names": {0: list(field.names)}} if field.names else {}
        content["names"] = dict(enumerate(self._job.classes))
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=2**20)
        out.write_parts("data.yaml", [text.encode()])

    def _told(self) -> list[str]:
        notes = [f"a line is what task {self._task} has"]
        if self._task in ("obb", "segment"):
            notes.append("boxes are those around the corners or outlines")
        if not self._job.splits:
            notes.append("the store has no splits: data.yaml calls all of it train")
        meanings = {canonical_split(split) for split in self._job.filled_splits}
        missing = [name for name in ("train", "val") if name not in meanings]
        if missing and self._job.splits:
            wanted = " and ".join(missing)
            notes.append(f"no split is {wanted}, which ultralytics wants in data.yaml")
        return notes


def _task(job: Job) -> Task:
    """What a line says."""
    if "keypoints" in job.object_names:
        return "pose"
    if CORNERS in job.object_names:
        return "obb"
    return "segment" if "masks" in job.object_names else "detect"


def _shares(
    points: NDArray[np.float64], sides: NDArray[np.float64], out: ExportFiles
) -> NDArray[np.float64]:
    """Points as shares of the picture's sides, in [0, 1]; those that are not are counted."""
    shares = points / sides
    cut = np.clip(shares, 0, 1)
    out.lose(_CUT, int((cut != shares).any(axis=1).sum()))
    return cut
