r"""Holds what our stores say of annotations against what other libraries read from the same files.

    python scripts/compare_oracles.py --oracle-python ORACLES/bin/python [--data FOLDER ...]

It draws sets of COCO, Pascal VOC, YOLO and masks (scripts/oracle_sets.py), builds stores of them,
has pycocotools, supervision and datumaro read the same files (scripts/oracle_facts.py), and prints
a table. Exit status 1 when anything differs that is not explained. For whoever works on the
sources; no test needs it.

The libraries want other versions of NumPy and OpenCV than we do, so they live in environments of
their own, and are asked through their interpreters:

    python -m venv ORACLES
    ORACLES/bin/pip install pycocotools==2.0.11 supervision==0.31.2 datumaro==1.13.12 \
        opencv-python-headless

One for each library will do as well: give `--oracle-python` several times. A library that is in
none of them is said and left out.

NOTE [ on what libraries do not agree ]
All differences that are no mistake stand in two places. What can be undone is undone where the
library is read, and its docstring says so (supervision takes 1 off VOC's xmin and ymin; datumaro
nothing: numbers are compared as they are written). What cannot is allowed in `EXPLAINED`, with its
reason and its limit: datumaro rounds to hundredths, supervision fills polygons by another rule.
What we reject is counted as ours alone when the store's reject list names it.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from oracle_facts import LIBRARY_MISSING, READERS
from oracle_sets import ALL, SETS

from packer import build
from packer.errors import BuildError
from readers import LMDBDataset
from readers.store.layout import REJECTS_NAME
from readers.store.shapes.affine import invert, map_boxes, map_points
from readers.store.shapes.polygons import Runs

Facts = dict[str, Any]

ORACLE_TIMEOUT_S = 600

POINT_MAX = 0.001
"""Pixels that a coordinate may differ: float32 keeps 0.0005 of one up to 8192."""

AREA_MAX = 1e-6
"""Share that an area may differ: we keep areas as float32."""


OPENCV_MAX = 2.3
"""Pixels from the outline where masks of supervision may differ: half a pixel across, 0.71, each
for rounded points, for points at the middles of pixels, and for lines as wide as a pixel; and 0.14
for the grid of COCO's own rule."""


@dataclass(frozen=True)
class Explanation:
    """A difference that is not a mistake.

    Attributes:
        text: Why.
        limit: Up to where, in the unit of the fact. None: whatever it is.
    """

    text: str
    limit: float | None


EXPLAINED: dict[tuple[str, str, str], Explanation] = {
    **{
        ("datumaro", layout, fact): Explanation("datumaro rounds to hundredths", limit)
        for layout in ("coco", "voc", "yolo")
        for fact, limit in (("boxes, px", 0.02), ("polygons, px", 0.01), ("keypoints, px", 0.01))
    },
    ("supervision", "coco", "masks, px from outline"): Explanation(
        "supervision rounds points to pixels and fills by OpenCV's rule", OPENCV_MAX
    ),
    ("supervision", "yolo", "masks, px from outline"): Explanation(
        "supervision rounds points to pixels and fills by OpenCV's rule", OPENCV_MAX
    ),
    ("pycocotools", "coco", "masks turned, px from outline"): Explanation(
        "COCO's rule for the pixels of a polygon is not the same in all directions", 1
    ),
    ("datumaro", "yolo", "pictures only ours"): Explanation(
        "datumaro lists label files, and of those the ones whose first line is 5 plain numbers",
        None,
    ),
    ("datumaro", "coco", "labels missing"): Explanation(
        "datumaro takes category id 0 for no label", None
    ),
    ("supervision", "voc", "origin"): Explanation("supervision always counts from 1", None),
    ("datumaro", "voc", "origin"): Explanation("datumaro takes numbers as edges", None),
}


@dataclass(frozen=True)
class Row:
    """One line of the table. `difference` is empty when there is none."""

    set: str
    fact: str
    ours: str
    oracle: str
    difference: str = ""
    is_problem: bool = False


@dataclass
class Store:
    """A store that is compared, and what it says beside its samples."""

    name: str
    layout: str
    samples: dict[str, Facts]
    classes: list[str]
    mask_names: tuple[str, ...] | None
    voc_origin: int
    rejected: Counter[str] = field(default_factory=Counter)
    rejected_pictures: set[str] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)


def read_store(name: str, path: Path) -> Store:
    """All samples of a store, with the `size` of their image for the image, and its rejects."""
    dataset = LMDBDataset(path, image_as="numpy")
    schema, source = dataset.schema, dataset.manifest.source
    samples: dict[str, Facts] = {}
    for at in range(len(dataset)):
        sample = dataset[at]
        height, width, _ = sample.pop("image").shape
        samples[sample["key"]] = {**sample, "size": (width, height)}
    store = Store(
        name,
        source.format,
        samples,
        list(schema["labels"].names or ()) if "labels" in schema else [],
        schema["mask"].names if "mask" in schema else None,
        int(source.choices.get("voc_origin", 0)),
    )
    for line in (path / REJECTS_NAME).read_text().splitlines():
        reject = json.loads(line)
        store.reasons.append(f"{reject['path']}: {reject['reason']}")
        if reject.get("kind") == "annotation":
            store.rejected[reject["key"]] += 1
        else:
            store.rejected_pictures.add(reject["key"])
    return store


# --- one picture, in the coordinates of its annotation file ---------------------------------------


@dataclass
class Picture:
    """Our objects of one picture, as the annotation file had them before the build moved them.

    Attributes:
        objects: As `oracle_facts` has them; `mask` is an array, and `is_runs` says what of.
        turned: Whether the build turned the annotations with the picture.
    """

    objects: list[Facts]
    turned: bool


def our_picture(store: Store, sample: Facts, said: Sequence[int] | None) -> Picture:
    """A sample's objects in the frame of its annotation file.

    Args:
        store: It is from.
        sample: Of the store, which was built without resizing: it is the upright picture.
        said: (width, height) that the annotation file says, if it does.
    """
    width, height = sample["size"]
    raw_height, raw_width = (int(side) for side in sample["original_size"])
    is_upright = said is None or tuple(said) == (width, height) or store.layout == "yolo"
    to_file = np.eye(3)[:2] if is_upright else invert(sample["transform"])
    if not is_upright and tuple(said or ()) != (raw_width, raw_height):
        raise ValueError(f"{store.name}, {sample['key']}: {said} is no size of this picture")
    boxes = map_boxes(sample["boxes"], to_file)
    if store.layout == "voc":
        boxes[:, :2] += store.voc_origin
    outlines = sample.get("masks")
    masks = None if outlines is None else outlines.to_masks()
    objects: list[Facts] = []
    for at, label in enumerate(sample["labels"].tolist()):
        thing: Facts = {"label": store.classes[label], "box": boxes[at]}
        for ours, theirs in (("iscrowd", "crowd"), ("difficult",) * 2, ("truncated",) * 2):
            if ours in sample:
                thing[theirs] = bool(sample[ours][at])
        if "area" in sample:
            thing["area"] = float(sample["area"][at])
        if "keypoints" in sample:
            points = sample["keypoints"][at].astype(np.float64)
            is_there = (points != 0).any(axis=1)
            points[is_there, :2] = map_points(points[is_there, :2], to_file)
            thing["keypoints"] = points.ravel()
        if outlines is not None and masks is not None:
            outline = outlines[at]
            thing["is_runs"] = isinstance(outline, Runs)
            thing["mask"] = masks[at] if is_upright else _in_file(masks[at], sample)
            if outline and not isinstance(outline, Runs):
                parts = [map_points(part, to_file).ravel().tolist() for part in outline]
                thing["polygons"] = sorted(parts)
        objects.append(thing)
    return Picture(objects, not is_upright)


def _in_file(mask: NDArray[np.uint8], sample: Facts) -> NDArray[np.uint8]:
    """A mask of the upright picture on the grid of its file, pixel by pixel."""
    height, width = (int(side) for side in sample["original_size"])
    y, x = np.mgrid[:height, :width] + 0.5
    at = np.floor(map_points(np.stack([x, y], axis=-1), sample["transform"])).astype(int)
    found: NDArray[np.uint8] = mask[at[..., 1], at[..., 0]]
    return found


def unpacked(mask: Facts) -> NDArray[np.uint8]:
    """A mask that `oracle_facts.packed` made."""
    height, width = mask["shape"]
    bits = np.frombuffer(zlib.decompress(base64.b64decode(mask["bits"])), np.uint8)
    return np.unpackbits(bits, count=height * width).reshape(height, width)


# --- the comparison -------------------------------------------------------------------------------


class Comparison:
    """Gathers the differences of one set and one library, and makes rows of them."""

    def __init__(self, store: Store, library: str, facts: Facts) -> None:
        self._store = store
        self._library = f"{library} {facts['version']}"
        self._name = library
        self._facts = facts
        self._ours: Counter[str] = Counter()
        self._theirs: Counter[str] = Counter()
        self._differing: Counter[str] = Counter()
        self._worst: dict[str, float] = {}
        self._first: dict[str, str] = {}
        self.rows: list[Row] = []

    def run(self) -> list[Row]:
        """All rows."""
        theirs = self._facts["pictures"]
        self._pictures(theirs)
        if self._store.layout == "voc":
            origin = 1 if self._name == "supervision" else 0
            self._add("origin", self._store.voc_origin, origin, self._store.voc_origin != origin)
        for key in sorted(theirs.keys() & self._store.samples.keys()):
            self._picture(key, self._store.samples[key], theirs[key])
        if self._store.layout != "mask-pairs":
            for fact in ("objects", "rejected by us", "picture sizes", "labels missing"):
                self._count_row(fact)
        for fact, worst in self._worst.items():
            self._add(fact, f"{self._ours[fact]} compared", f"worst {worst:.4g}", worst)
        return self.rows

    def _pictures(self, theirs: Facts) -> None:
        ours = set(self._store.samples)
        self._add("pictures", len(ours), len(theirs), 0)
        lost = theirs.keys() - ours - self._store.rejected_pictures
        self._add("pictures only theirs", "", len(lost), len(lost), min(lost, default=""))
        alone = ours - theirs.keys()
        self._add("pictures only ours", len(alone), "", len(alone), min(alone, default=""))

    def _picture(self, key: str, sample: Facts, facts: Facts) -> None:
        """Compare one picture."""
        size, said = sample["size"], facts["size"]
        if self._store.layout == "yolo":
            self._note("picture sizes", key, tuple(size) != tuple(said))
            scale = np.tile(np.array(size) / np.array(said), 2)
            for thing in facts["objects"]:
                thing["box"] = (np.array(thing["box"]) * scale).tolist()
        if "segments" in facts:
            self._segments(key, sample, facts["segments"])
            return
        if "boxes" not in sample:
            return
        ours = our_picture(self._store, sample, said)
        pairs, lost = matched(ours.objects, facts["objects"])
        self._ours["objects"] += len(ours.objects)
        self._theirs["objects"] += len(facts["objects"])
        rejected = min(lost, self._store.rejected[key])
        self._ours["rejected by us"] += rejected
        self._note("objects", key, lost - rejected + len(ours.objects) - len(pairs))
        for mine, other in pairs:
            self._object(key, mine, other, turned=ours.turned)

    def _object(self, key: str, mine: Facts, other: Facts, *, turned: bool) -> None:
        """Compare one object."""
        self._note("labels missing", key, other["label"] is None)
        self._distance("boxes, px", key, mine["box"], other.get("box", mine["box"]))
        for fact in ("crowd", "difficult", "truncated"):
            if fact in mine and fact in other:
                self._measure(fact, key, float(mine[fact] != other[fact]))
        if other.get("area") is not None:
            self._measure("area, relative", key, abs(mine["area"] / max(other["area"], 1e-9) - 1))
        if other.get("keypoints"):
            self._distance("keypoints, px", key, mine.get("keypoints", ()), other["keypoints"])
        if other.get("polygons"):
            self._polygons(key, mine.get("polygons", []), other["polygons"])
        if other.get("mask"):
            self._mask(key, mine, unpacked(other["mask"]), turned=turned)

    def _polygons(self, key: str, mine: list[Any], other: list[Any]) -> None:
        if [len(part) for part in mine] != [len(part) for part in other]:
            self._measure("polygons, px", key, np.inf)
            return
        for a, b in zip(mine, other, strict=True):
            self._distance("polygons, px", key, a, b)

    def _mask(self, key: str, mine: Facts, other: NDArray[np.uint8], *, turned: bool) -> None:
        """Runs are the same, pixel for pixel; polygons by the same rule on the same grid too."""
        mask = mine.get("mask")
        if mask is None or mask.shape != other.shape:
            self._measure("masks, px", key, np.inf)
        elif mine["is_runs"] or (self._name == "pycocotools" and not turned):
            self._measure("masks, px", key, float((mask != other).sum()))
        else:
            fact = "masks turned, px from outline" if turned else "masks, px from outline"
            fact = "masks, px from outline" if self._name == "supervision" else fact
            self._measure(fact, key, distance_from_outline(mask != other, mine["polygons"]))

    def _segments(self, key: str, sample: Facts, segments: Facts) -> None:
        ids = np.asarray(sample["mask"])
        names = self._store.mask_names or ()
        for at, class_name in enumerate(names):
            mine = ids == at
            other = unpacked(segments[class_name]) if class_name in segments else np.zeros_like(ids)
            self._measure(f"pixels of {class_name!r}", key, float((mine != other).sum()))

    def _distance(self, fact: str, key: str, mine: Any, other: Any) -> None:
        a, b = np.asarray(mine, np.float64), np.asarray(other, np.float64)
        apart = float(np.abs(a - b).max(initial=0)) if a.shape == b.shape else np.inf
        self._measure(fact, key, apart)

    def _measure(self, fact: str, key: str, difference: float) -> None:
        """Keep the worst of a fact's differences."""
        self._ours[fact] += 1
        difference = np.inf if np.isnan(difference) else difference
        if fact not in self._worst or difference > self._worst[fact]:
            self._worst[fact] = difference
            self._first[fact] = key

    def _note(self, fact: str, key: str, count: int) -> None:
        """Add to a fact's count of differences."""
        if count:
            self._differing[fact] += count
            self._first.setdefault(fact, key)

    def _count_row(self, fact: str) -> None:
        difference, ours, theirs = self._differing[fact], self._ours[fact], self._theirs[fact]
        if fact == "rejected by us":
            if ours:
                reason = "explained: the reject list names them"
                self.rows.append(self._row(fact, ours, "", reason))
        elif fact == "objects" or difference:
            self._add(fact, ours or "", theirs or difference, difference)

    def _add(
        self, fact: str, ours: object, theirs: object, difference: float, at: str = ""
    ) -> None:
        """A row for a fact, if it is worth one."""
        at = at or self._first.get(fact, "")
        limit = POINT_MAX if fact.endswith("px") and not fact.startswith("masks") else 0
        limit = AREA_MAX if fact.startswith("area") else limit
        if difference <= limit:
            if "only" not in fact:
                self.rows.append(self._row(fact, ours, theirs, ""))
            return
        known = EXPLAINED.get((self._name, self._store.layout, fact))
        if known is not None and (known.limit is None or difference <= known.limit):
            self.rows.append(self._row(fact, ours, theirs, f"explained: {known.text}"))
            return
        text = f"DIFFERENT by {difference:.6g}, first or most at {at}"
        self.rows.append(self._row(fact, ours, theirs, text, is_problem=True))

    def _row(
        self, fact: str, ours: object, theirs: object, text: str, *, is_problem: bool = False
    ) -> Row:
        oracle = f"{self._library}: {theirs}"
        return Row(self._store.name, fact, str(ours), oracle, text, is_problem)


def matched(ours: list[Facts], theirs: list[Facts]) -> tuple[list[tuple[Facts, Facts]], int]:
    """Pairs of objects of one label whose boxes are nearest, and how many of theirs are left."""
    left = list(theirs)
    pairs = []
    for mine in ours:
        alike = [t for t in left if t["label"] in (mine["label"], None)]
        if alike:
            best = min(alike, key=lambda t: _apart(mine, t))
            left = [t for t in left if t is not best]
            pairs.append((mine, best))
    return pairs, len(left)


def _apart(mine: Facts, other: Facts) -> tuple[float, float]:
    """How far two objects are apart: by their boxes, and for equal boxes by their points."""
    boxes = np.abs(np.asarray(mine["box"]) - np.asarray(other.get("box", mine["box"]))).max()
    a, b = np.ravel(mine.get("polygons", [[]])[0]), np.ravel(other.get("polygons", [[]])[0])
    return float(boxes), float(np.abs(a - b).max(initial=0)) if a.shape == b.shape else np.inf


def distance_from_outline(is_different: NDArray[np.bool_], polygons: list[list[float]]) -> float:
    """How far, in pixels, the middle of any of these pixels is from the outline at most."""
    y, x = np.nonzero(is_different)
    middles = np.stack([x, y], axis=1) + 0.5
    nearest = np.full(len(middles), np.inf)
    for polygon in polygons:
        starts = np.reshape(polygon, (-1, 2))
        for start, edge in zip(starts, np.roll(starts, -1, axis=0) - starts, strict=True):
            along = (middles - start) @ edge / max(float(edge @ edge), 1e-12)
            feet = start + np.clip(along, 0, 1)[:, None] * edge
            nearest = np.minimum(nearest, np.linalg.norm(middles - feet, axis=1))
    return float(nearest.max(initial=0))


# --- running it -----------------------------------------------------------------------------------


def interpreter_of(library: str, pythons: Iterable[Path]) -> Path | None:
    """The first interpreter that has a library."""
    for python in pythons:
        code = f"import {library}"
        if subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0:
            return python
    return None


def ask(python: Path, library: str, layout: str, raw: Path, out: Path) -> Facts | str:
    """What a library reads of a set; or what went wrong."""
    program = Path(__file__).with_name("oracle_facts.py")
    command = list(map(str, (python, program, library, layout, raw, out)))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=ORACLE_TIMEOUT_S, check=False
    )
    if done.returncode == 0:
        answer: Facts = json.loads(out.read_text())
        return answer
    assert done.returncode != LIBRARY_MISSING, done.stderr
    return done.stderr.strip().splitlines()[-1]


def compare_set(
    name: str, raw: Path, work: Path, pythons: dict[str, Path], expected: Iterable[str] | None
) -> list[Row]:
    """Build a set and compare it with each library that reads its layout.

    Args:
        name: Of the set.
        raw: The set.
        work: Folder for the store and for what libraries answer.
        pythons: Interpreter of each library.
        expected: Libraries that must be able to read it; None: whichever can.
    """
    try:
        build(raw, work / f"{name}.lmdb", rejects_max="100%")
    except BuildError as error:
        return [Row(name, "build", "refused", "", str(error).splitlines()[0], expected is not None)]
    store = read_store(name, work / f"{name}.lmdb")
    if not any(layout == store.layout for _, layout in READERS):
        return [Row(name, f"format {store.layout}", f"{len(store.samples)} samples", "no oracle")]
    rows: list[Row] = []
    for library, python in pythons.items():
        if (library, store.layout) not in READERS or library not in (expected or pythons):
            continue
        facts = ask(python, library, store.layout, raw, work / f"{name}-{library}.json")
        if isinstance(facts, str):
            rows.append(Row(name, "read", "", library, facts, expected is not None))
            continue
        for text in facts["unread"]:
            rows.append(Row(name, "read", "", library, f"refused: {text}", expected is not None))
        if not facts["part_count"]:
            text = "not compared: no files in a layout that it reads"
            rows.append(Row(name, "read", "", library, text, expected is not None))
        elif not facts["unread"]:
            rows += Comparison(store, library, facts).run()
    for reason in store.reasons[:5]:
        rows.append(Row(name, "reject", reason, "", ""))
    return rows


def draw_and_compare(work: Path, seed: int, pythons: dict[str, Path]) -> list[Row]:
    """All drawn sets."""
    rows: list[Row] = []
    for number, (name, drawn) in enumerate(SETS.items()):
        raw = work / name
        raw.mkdir()
        drawn.draw(raw, np.random.default_rng([seed, number]))
        rows += compare_set(name, raw, work, pythons, drawn.oracles)
        if (work / f"{name}.lmdb").exists():
            count = sum(read_store(name, work / f"{name}.lmdb").rejected.values())
            if count != drawn.reject_count:
                text = f"DIFFERENT: {drawn.reject_count} were drawn"
                rows.append(Row(name, "rejects", str(count), "", text, is_problem=True))
    return rows


def table(rows: Sequence[Row]) -> str:
    """The rows as text."""
    heads = ("set", "fact", "ours", "oracle", "difference")
    cells = [heads, *((r.set, r.fact, r.ours, r.oracle, r.difference or "-") for r in rows)]
    widths = [min(60, max(len(row[column]) for row in cells)) for column in range(4)]
    return "\n".join(
        " | ".join([*(text.ljust(n) for text, n in zip(row, widths, strict=False)), row[4]])
        for row in cells
    )


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--oracle-python",
        type=Path,
        action="append",
        default=[],
        metavar="PYTHON",
        help="Interpreter that has some of the libraries; more than once, if need be.",
    )
    parser.add_argument(
        "--data", type=Path, nargs="+", default=[], metavar="FOLDER", help="Real sets, each one."
    )
    parser.add_argument("--seed", type=int, default=0, help="Of the drawn sets. [default: 0]")
    arguments = parser.parse_args()
    asked = [*arguments.oracle_python, Path(sys.executable)]
    found = {library: interpreter_of(library, asked) for library in ALL}
    pythons = {library: python for library, python in found.items() if python is not None}
    for library in sorted(found.keys() - pythons.keys()):
        print(f"{library} is not installed in any of the interpreters: left out", file=sys.stderr)
    if not pythons:
        print("There is nothing to compare with; --help says how to get it", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder).resolve()
        rows = draw_and_compare(work, arguments.seed, pythons)
        (work / "data").mkdir()
        for raw in arguments.data:
            rows += compare_set(raw.name, raw.resolve(), work / "data", pythons, None)
    print(table(rows))
    problem_count = sum(row.is_problem for row in rows)
    print(f"{len(rows)} facts, seed {arguments.seed}: {problem_count} unexplained differences")
    return 1 if problem_count else 0


if __name__ == "__main__":
    sys.exit(main())
