"""Stores of real data held against what is known of it; `python -m tests.cases.real_data` for all.

Each checker takes one kind of fact of EXPECTED.json and holds what the store says against it. What
differs is collected, not judged: the table in real_sets.py says which differences may be, and why.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from unittest.mock import patch

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

import packer
from packer import BuildReport, Recipe, SourceOptions
from packer.engines.engine import OnNotice, OnProgress
from packer.engines.local import LocalEngine
from packer.engines.task import build_shard
from readers import LMDBDataset
from readers.store.shapes.polygons import Runs
from tests.cases.real_sets import READ, REFUSED, RealSet, RefusedSet

REAL_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
EXPECTED = REAL_DATA / "EXPECTED.json"

Facts = dict[str, Any]

NOT_HELD = {
    "files": "what was copied into the collection",
    "bytes": "what was copied into the collection",
    "image_files": "how many there are under `images`, each of which is held",
    "datumaro_detects": "information only, as EXPECTED.json says",
    "datumaro_cannot_read": "about datumaro",
    "rle": "results, which no source reads; their runs are held in test_real_data.py",
    "tfrecord_records": "no source reads them",
}
"""Kinds of facts that no checker holds, and why."""


@contextlib.contextmanager
def shards_made_here() -> Iterator[None]:
    """Have builds make their shards in this process.

    Every shard task is one function, and engines only map them: of eighty small stores, starting
    build workers is nine tenths of the time.
    """

    def map_here(
        engine: LocalEngine,
        numbers: Sequence[int],
        scratch: Path,
        on_progress: OnProgress,
        on_notice: OnNotice,
    ) -> None:
        for number in numbers:
            with warnings.catch_warnings():
                # A build worker prints what Pillow warns of; under pytest it would be an error.
                warnings.simplefilter("ignore")
                build_shard(engine.workspace, number, scratch)
            on_progress(0, number)

    with patch.object(LocalEngine, "map", map_here):
        yield


class Store:
    """A store that was built of a real set, and what tests ask of it.

    Attributes:
        real: How it was read.
        report: Of its build.
        dataset: Its samples.
        rejects: Lines of its reject list.
    """

    def __init__(
        self, real: RealSet, out: Path, raw: Path | None = None, recipe: Recipe | None = None
    ) -> None:
        self.real = real
        self.report: BuildReport = packer.build(
            raw or REAL_DATA / real.folder / real.inside,
            out,
            recipe or Recipe(mode=real.mode),  # type: ignore[arg-type]
            source=source_options(real),
            worker_count=1,
            rejects_max="100%",
        )
        self.dataset = LMDBDataset(out, image_as="numpy")
        lines = (out / "rejects.jsonl").read_text().splitlines()
        self.rejects: list[dict[str, str]] = [json.loads(line) for line in lines]
        self.keys = [self.dataset.key_of(at) for at in range(len(self.dataset))]
        names = [name for name in self.dataset.schema.names if name != "image"]
        self._plain = LMDBDataset(out, fields=names, image_as="numpy")

    @property
    def rejected_keys(self) -> dict[str, str]:
        """Key of each item that was rejected, and the reason."""
        return {r["key"]: r["reason"] for r in self.rejects if "kind" not in r}

    @property
    def lost_places(self) -> dict[str, str]:
        """Place of each annotation that was rejected, and the reason."""
        return {r["path"]: r["reason"] for r in self.rejects if "kind" in r}

    def sample(self, at: int) -> dict[str, Any]:
        """All of a sample but its image."""
        sample: dict[str, Any] = self._plain[at]
        return sample

    def samples(self) -> list[dict[str, Any]]:
        """All samples, without images."""
        return [self.sample(at) for at in range(len(self.keys))]

    def picture(self, path: str) -> int | None:
        """Position of the sample of a picture, by its path in the set or the end of it."""
        for at, key in enumerate(self.keys):
            if key == path or path.endswith(f"/{key}") or key.endswith(f"/{path}"):
                return at
        return None

    def named(self, name: str, split: str) -> int | None:
        """Position of the sample that datumaro calls `name`."""
        if self.real.is_numbered:
            return int(name.rsplit("_", 1)[1]) - 1
        name = "/" + name.replace(":", "/")
        stems = [f"/{key}".rsplit(".", 1)[0].removesuffix("_leftImg8bit") for key in self.keys]
        found = [at for at, stem in enumerate(stems) if stem.endswith(name)]
        among = [at for at in found if f"/{split}" in stems[at]] or found
        return min(among, key=lambda at: len(stems[at]), default=None)

    def names_of(self, labels: NDArray[Any]) -> list[str]:
        """Names of classes."""
        return [self.dataset.classes[label] for label in labels.tolist()]


def source_options(real: RealSet | RefusedSet) -> SourceOptions:
    """The options of a set, with a root that is a path."""
    options = dict(real.options)
    if "root" in options:
        options["root"] = REAL_DATA / real.folder / options["root"]
    return SourceOptions(**options)


class Comparison:
    """What a store holds against the facts of its set.

    Attributes:
        count: Facts that were held.
        differences: Fact -> (what the store holds, what was expected).
    """

    def __init__(self) -> None:
        self.count = 0
        self.differences: dict[str, tuple[Any, Any]] = {}

    def hold(self, fact: str, ours: Any, expected: Any) -> None:
        """Hold one fact: equal, or a difference."""
        self.count += 1
        if ours != expected:
            assert fact not in self.differences, fact
            self.differences[fact] = (ours, expected)


def compare(store: Store, facts: Facts) -> Comparison:
    """Hold a store against all facts of its set."""
    found = Comparison()
    check_account(store, facts, found)
    for kind, check in CHECKS.items():
        if kind in facts and kind not in store.real.left_out:
            check(store, facts[kind], found)
    return found


# Counts and pictures.


def check_account(store: Store, facts: Facts, found: Comparison) -> None:
    """Nothing may be missing from the account: found = stored + rejected + ignored."""
    source = store.dataset.manifest.source
    stored, ignored = len(store.keys), sum(source.ignored.values())
    found.hold("found", source.found_count, stored + source.reject_count + ignored)
    found.hold("items in the reject list", len(store.rejected_keys), source.reject_count)
    found.hold("ignored", source.ignored, store.real.ignored)
    annotations = source.annotations or {"found": 0, "stored": 0, "rejected": 0}
    objects = sum(len(sample.get("boxes", ())) for sample in store.samples())
    found.hold("annotations found", annotations["found"], objects + annotations["rejected"])
    found.hold("annotations stored", annotations["stored"], objects)
    found.hold(
        "annotations in the reject list",
        len([r for r in store.rejects if "kind" in r]),
        annotations["rejected"],
    )
    asides: Counter[str] = Counter()
    for path in facts["images"]:
        inside = store.real.inside
        if store.picture(path) is not None or path in store.rejected_keys:
            continue
        if PurePosixPath(path).name in store.rejected_keys:
            continue
        how = next((h for p, h in store.real.aside.items() if fnmatch.fnmatch(path, p)), None)
        if how is None and inside and not path.startswith(f"{inside}/") and "." not in inside:
            continue
        found.hold(f"picture {path}", "not accounted for" if how is None else "aside", "aside")
        asides[how or ""] += 1
    for how, count in asides.items():
        if how != "mask":
            found.hold(f"pictures aside, {how}", source.ignored.get(how), count)


SUMLESS = {
    "1": "Pillow's array holds 0 and 1, the stored pixels 0 and 255",
    "P": "Pillow's array holds positions in a palette, the stored pixels colours",
    "CMYK": "Pillow's array holds ink, the stored pixels colours",
    "LAB": "Pillow's array holds L, a and b, the stored pixels colours",
}
"""Modes whose `decoded_sum` is of something else than colours, under mode "unchanged"."""


def check_pictures(store: Store, facts: Facts, found: Comparison) -> None:
    """Size as stored and upright, and the sum of all pixels, of every picture there is."""
    for path, fact in facts.items():
        at = store.picture(path)
        if "pillow_error" in fact:
            found.hold(f"{path}: rejected", path in store.rejected_keys, True)
            continue
        if at is None:
            if any(fnmatch.fnmatch(path, pattern) for pattern in store.real.aside):
                continue
            if store.real.inside and not path.startswith(f"{store.real.inside}/"):
                continue
            reason = store.rejected_keys.get(path, "")
            found.hold(f"{path}: stored", reason or False, True)
            continue
        sample = store.dataset[at]
        image = sample["image"]
        size = [fact["width"], fact["height"]]
        found.hold(f"{path}: original_size", sample["original_size"].tolist()[::-1], size)
        upright = fact.get("upright_size", size)
        found.hold(f"{path}: upright size", [image.shape[1], image.shape[0]], upright)
        if store.real.mode == "unchanged":
            if fact["mode"] not in SUMLESS and "trns" not in fact:
                found.hold(
                    f"{path}: decoded_sum", int(image.sum(dtype=np.int64)), fact["decoded_sum"]
                )
                found.hold(f"{path}: decoded_dtype", image.dtype.name, fact["decoded_dtype"])
            continue
        found.hold(f"{path}: channels", (image.shape[2], image.dtype.name), (3, "uint8"))
        if "rgb_upright_sum" in fact:
            ours = int(image.sum(dtype=np.int64))
            found.hold(f"{path}: rgb_upright_sum", ours, fact["rgb_upright_sum"])
            if ours == fact["rgb_upright_sum"]:
                # A sum is blind to mirrored pictures and swapped channels.
                file = REAL_DATA / store.real.folder / path
                found.hold(f"{path}: pixels", np.array_equal(image, _by_pillow(file)), True)


def _by_pillow(file: Path) -> NDArray[np.uint8]:
    """(height, width, 3) the picture as EXPECTED.json's sums are of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(file) as image:
            return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


# Boxes, outlines and points.


def box_rows(boxes: Any) -> list[list[float]]:
    """Boxes as float32 numbers."""
    rows: list[list[float]] = np.asarray(boxes, np.float32).reshape(-1, 4).tolist()
    return rows


def from_xywh(box: Sequence[float]) -> list[float]:
    """x0 y0 x1 y1 of a box that is written x y width height."""
    return [box[0], box[1], box[0] + box[2], box[1] + box[3]]


def check_coco(store: Store, facts: Facts, found: Comparison) -> None:
    """Boxes, classes, crowds, areas, outlines, pixels of masks and points of every object."""
    for file, fact in facts.items():
        names = {int(number): name for number, name in fact["categories"].items()}
        is_keypoints = any(
            "num_keypoints" in thing
            for picture in fact["per_image"].values()
            for thing in picture["objects"]
        )
        if not is_keypoints:
            found.hold(f"{file}: classes", set(store.dataset.classes), set(names.values()))
        for name, picture in fact["per_image"].items():
            at = store.picture(name)
            assert at is not None, name
            where, sample, things = f"{file} {name}", store.sample(at), picture["objects"]
            found.hold(f"{where}: image_id", int(sample["image_id"]), picture["id"])
            if not is_keypoints:
                found.hold(f"{where}: annotations", len(sample["boxes"]), picture["annotations"])
            # Of pictures with many objects EXPECTED.json has the first few.
            known = picture.get("objects_truncated_to", len(sample["boxes"]))
            if is_keypoints:
                _check_keypoints(where, sample, things, found)
                continue
            boxes = [from_xywh(thing["bbox_xywh"]) for thing in things]
            found.hold(f"{where}: boxes", box_rows(sample["boxes"][:known]), box_rows(boxes))
            labels = store.names_of(sample["labels"][:known])
            found.hold(f"{where}: labels", labels, [names[t["category_id"]] for t in things])
            crowds = [bool(thing["iscrowd"]) for thing in things]
            found.hold(f"{where}: iscrowd", sample["iscrowd"][:known].tolist(), crowds)
            areas = np.array([thing["area_field"] for thing in things], np.float32).tolist()
            found.hold(f"{where}: area", sample["area"][:known].tolist(), areas)
            if any("mask_pixels" in thing for thing in things):
                _check_outlines(where, sample, things, found)


def _check_outlines(where: str, sample: Facts, things: list[Facts], found: Comparison) -> None:
    masks = sample["masks"].to_masks()
    pixels = masks.sum(axis=(1, 2), dtype=np.int64).tolist()
    found.hold(f"{where}: mask_pixels", pixels, [thing["mask_pixels"] for thing in things])
    # Counts are blind to where the pixels are: their bounds are the boxes, to two pixels, since
    # the tip of a polygon that is thinner than one has none.
    bounds = [_bounds(mask) for mask in masks]
    near = np.abs(np.array(bounds) - sample["boxes"]).max(axis=1) <= 2 if bounds else np.ones(0)
    found.hold(f"{where}: masks that fill their box", int(near.sum()), len(things))
    kinds = [
        ("rle", 1) if isinstance(outline, Runs) else ("polygons", len(outline))
        for outline in sample["masks"]
    ]
    expected = [(thing["segmentation_kind"], thing["parts"]) for thing in things]
    found.hold(f"{where}: outlines", kinds, expected)


def _bounds(mask: NDArray[np.uint8]) -> list[int]:
    """x0 y0 x1 y1 of the pixels of a mask."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return [int(n) for n in (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)]


def _check_keypoints(where: str, sample: Facts, things: list[Facts], found: Comparison) -> None:
    boxes = box_rows(sample["boxes"])
    for thing in things:
        box = box_rows(from_xywh(thing["bbox_xywh"]))[0]
        points = sample["keypoints"][boxes.index(box)]
        marked = int((points[:, 2] > 0).sum())
        found.hold(f"{where} {thing['id']}: num_keypoints", marked, thing["num_keypoints"])
        total = float(points.sum())
        found.hold(f"{where} {thing['id']}: keypoints_sum", total, thing["keypoints_sum"])


def check_voc(store: Store, facts: Facts, found: Comparison) -> None:
    """Every object of every XML file: coordinates as written, less the origin that was taken."""
    origin = int(store.dataset.manifest.source.choices["voc_origin"])
    has_zero = any(fact["has_zero_coordinate"] for fact in facts.values())
    if "voc_origin" not in store.real.options:
        # By the rule for ambiguous data: a coordinate of 0 proves that the tool counted from 0.
        found.hold("voc_origin", origin, 0 if has_zero else 1)
    for file, fact in facts.items():
        at = store.named(PurePosixPath(file).stem, file.split("/")[0])
        assert at is not None, file
        sample = store.sample(at)
        lost = [
            int(place.rsplit(" ", 1)[1]) - 1
            for place in store.lost_places
            if f"{file}, object " in place
        ]
        found.hold(f"{file}: degenerate", lost, fact["degenerate"])
        things = [thing for n, thing in enumerate(fact["objects"]) if n not in lost]
        boxes = [np.subtract(thing["xyxy_raw"], [origin, origin, 0, 0]) for thing in things]
        found.hold(f"{file}: boxes", box_rows(sample["boxes"]), box_rows(boxes))
        names = [thing["name"] for thing in things]
        found.hold(f"{file}: labels", store.names_of(sample["labels"]), names)
        for flag in ("difficult", "truncated"):
            ours = sample[flag].astype(int).tolist()
            found.hold(f"{file}: {flag}", ours, [thing[flag] for thing in things])
        width, height = fact["size_field"][:2]
        raw = sample["boxes"] - [0, 0, width, height]
        outside = np.flatnonzero((raw[:, :2] < 0).any(1) | (raw[:, 2:] > 0).any(1)).tolist()
        found.hold(f"{file}: outside_image", outside, fact["outside_image"])


def check_voc_totals(store: Store, facts: Facts, found: Comparison) -> None:
    """Objects in all, and of each class."""
    lost = len(store.lost_places)
    objects = sum(len(sample["boxes"]) for sample in store.samples())
    found.hold("voc_totals: objects", objects + lost, facts["objects"])
    found.hold("voc_totals: degenerate", lost, facts["degenerate"])
    names = Counter(n for sample in store.samples() for n in store.names_of(sample["labels"]))
    found.hold("voc_totals: classes", dict(names), facts["classes"])
    found.hold("voc_totals: report", store.report.classes, facts["classes"])


def check_supervision(store: Store, facts: Facts, found: Comparison) -> None:
    """Boxes and classes of each picture, in order, as supervision counts them."""
    for split, fact in facts.items():
        where = f"supervision {split}"
        found.hold(f"{where}: classes", set(store.dataset.classes), set(fact["classes"]))
        splits = store.dataset.manifest.splits
        count = len(store.keys) if split == "all" else splits[split]
        found.hold(f"{where}: images", count, fact["images"])
        total = 0
        for name, picture in fact["per_image"].items():
            at = store.picture(name)
            assert at is not None, name
            labels = store.names_of(store.sample(at)["labels"])
            total += len(labels)
            found.hold(f"{where} {name}: classes", labels, picture["classes"])
            found.hold(f"{where} {name}: boxes", len(labels), picture["boxes"])
        found.hold(f"{where}: boxes", total, fact["boxes"])


BOX_TYPES = ("bbox", "polygon", "rotated_bbox")


def check_datumaro(store: Store, facts: Facts, found: Comparison) -> None:
    """Subsets, classes, and the annotations of each item, as datumaro reads them."""
    found.hold("datumaro: items", len(store.keys), facts["items"])
    splits = store.dataset.manifest.splits
    if splits or len(facts["subsets"]) > 1:  # A single one is the name of the whole.
        found.hold("datumaro: subsets", splits, facts["subsets"])
    names = set(store.dataset.classes) | set(_mask_names(store))
    found.hold("datumaro: labels", names, set(facts["labels"]))
    for item in facts.get("per_item", ()):
        at = store.named(item["id"], item["subset"])
        where = f"datumaro {item['subset']}/{item['id']}"
        if at is None:
            found.hold(f"{where}: stored", False, True)
            continue
        sample, things = store.sample(at), item["annotations"]
        _check_labels(where, store, sample, things, found)
        _check_boxes(where, store, sample, things, found)
        counts = {
            thing.get("label"): thing["pixels"] for thing in things if thing["type"] == "mask"
        }
        if counts:
            # Where the store names no classes, values are those of the data set's own list.
            values = _mask_names(store) or facts["labels"]
            found.hold(f"{where}: masks", _mask_counts(store, sample, values), counts)
        others = [t["type"] for t in things if t["type"] in ("points", "polyline", "caption")]
        found.hold(f"{where}: other objects", [], others)


def _mask_names(store: Store) -> tuple[str, ...]:
    return next((f.names or () for f in store.dataset.schema.fields if f.kind == "mask"), ())


def _mask_counts(store: Store, sample: Facts, names: Sequence[str]) -> dict[str, int]:
    """Pixels of each class in the masks of a sample."""
    if "panoptic" in sample:
        pixels: Counter[str] = Counter()
        for label, extra in zip(sample["labels"], sample["attributes"], strict=True):
            segment = extra["segment_id"]
            pixels[store.dataset.classes[label]] += int((sample["panoptic"] == segment).sum())
        return dict(pixels)
    if "mask" not in sample:
        return {}
    values, counts = np.unique(sample["mask"], return_counts=True)
    return {names[value]: int(n) for value, n in zip(values.tolist(), counts, strict=True)}


def _check_labels(
    where: str, store: Store, sample: Facts, things: list[Facts], found: Comparison
) -> None:
    expected = sorted(thing["label"] for thing in things if thing["type"] == "label")
    if "boxes" in sample:
        ours = []
    elif "labels" in sample:
        ours = sorted(store.names_of(sample["labels"]))
    elif "label" in sample:
        ours = [store.dataset.classes[sample["label"]]]
    else:
        ours = []
    found.hold(f"{where}: labels", ours, expected)


def _check_boxes(
    where: str, store: Store, sample: Facts, things: list[Facts], found: Comparison
) -> None:
    """Bounds of boxes and outlines, to the hundredth: shares of sides do not come out even."""
    if "panoptic" in sample:
        return  # Datumaro has its segments as masks alone; their boxes are COCO's.
    things = [thing for thing in things if thing["type"] in BOX_TYPES]
    # Datumaro takes VOC's numbers as they are written.
    origin = int(store.dataset.manifest.source.choices.get("voc_origin", "0"))
    expected = [
        (thing.get("label"), *np.subtract(from_xywh(thing["bbox_xywh"]), [origin, origin, 0, 0]))
        for thing in things
    ]
    names = store.names_of(sample["labels"]) if "boxes" in sample else []
    boxes = sample.get("boxes", ())
    ours = [
        (name if any(e[0] for e in expected) else None, *box)
        for name, box in zip(names, boxes, strict=True)
    ]
    found.hold(f"{where}: boxes", _rounded(ours), _rounded(expected))


def _rounded(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(
        (row[0] or "", *(round(float(value), 2) + 0.0 for value in row[1:])) for row in rows
    )


# Masks.


def check_masks(store: Store, facts: Facts, found: Comparison) -> None:
    """Pixels of every value of every mask that is stored, and that no mask is left over."""
    held = set()
    for at, key in enumerate(store.keys):
        for name, (pattern, replacement) in store.real.masks.items():
            path = re.sub(pattern, replacement, key)
            held.add(path)
            mask = store.sample(at)[name]
            values, counts = np.unique(mask, return_counts=True)
            ours = dict(zip(map(str, values.tolist()), counts.tolist(), strict=True))
            expected = facts[path]["pixels_by_value"]
            if store.real.colors:
                expected = {str(store.real.colors[color]): n for color, n in expected.items()}
            elif name == "panoptic":
                expected = {_segment_id(color): count for color, count in expected.items()}
            found.hold(f"{path}: pixels_by_value", ours, expected)
            size = facts[path]["size"]
            found.hold(f"{path}: size", list(mask.shape[::-1]), size)
            # Counts are blind to where the pixels are.
            truth = _mask_file(REAL_DATA / store.real.folder / path, store.real.colors)
            found.hold(f"{path}: pixels", np.array_equal(mask, truth), True)
    for path in facts:
        if path not in held:
            found.hold(f"{path}: mask", "not stored", "stored")


def _mask_file(file: Path, colors: dict[str, int]) -> NDArray[Any]:
    """(height, width) values of a mask as Pillow reads them, or those of its colours."""
    with Image.open(file) as image:
        pixels = np.asarray(image).astype(np.int64)
    if pixels.ndim == 2:
        return pixels
    codes = pixels @ [1, 256, 65536]
    if not colors:
        return codes
    values = np.full(codes.shape, -1)
    for color, value in colors.items():
        values[codes == int(_segment_id(color))] = value
    return values


def _segment_id(color: str) -> str:
    red, green, blue = (int(value) for value in color.strip("()").split(","))
    return str(red + 256 * green + 65536 * blue)


# Lists, tables and archives.


def check_csv(store: Store, facts: Facts, found: Comparison) -> None:
    """Each row is an object, a picture, or a picture's several labels; none is lost."""
    inside = store.real.inside
    rows = sum(fact["rows"] for name, fact in facts.items() if inside in ("", name))
    if "boxes" in store.dataset.schema.names:
        ours = store.dataset.manifest.source.annotations["found"]
    else:
        ours = len(store.keys) + len(store.rejected_keys)
    found.hold("csv: rows", ours, rows)


def check_hf(store: Store, facts: Facts, found: Comparison) -> None:
    """Rows, boxes, names and counts of each split, as datasets reads them."""
    if "rows" in facts:
        facts = {"train": facts}
    splits = store.dataset.manifest.splits
    for split, fact in facts.items():
        name = split if split in splits else "val"  # `datasets` renames val to validation.
        found.hold(f"hf {split}: rows", splits[name], fact["rows"])
        part = [sample for sample in store.samples() if sample["split"] == name]
        if "boxes" in fact:
            boxes = sum(len(sample["boxes"]) for sample in part)
            found.hold(f"hf {split}: boxes", boxes, fact["boxes"])
        if "names" in fact:
            found.hold(f"hf {split}: names", store.dataset.classes, fact["names"])
        if "counts" in fact:
            counts = Counter(str(sample["label"]) for sample in part)
            found.hold(f"hf {split}: counts", dict(counts), fact["counts"])
        if "features" in fact:
            names = re.search(r"ClassLabel\(names=(\[[^\]]*\])", fact["features"])
            assert names is not None
            expected = json.loads(names[1].replace("'", '"'))
            found.hold(f"hf {split}: names", store.dataset.classes, expected)
        if "first_image_size" in fact:
            height, width = part[0]["original_size"].tolist()
            found.hold(f"hf {split}: first_image_size", [width, height], fact["first_image_size"])


def check_classes(store: Store, facts: Facts, found: Comparison) -> None:
    """Pictures of each class of each split."""
    for split, fact in facts.items():
        part = [sample["label"] for sample in store.samples() if sample["split"] == split]
        counts = Counter(store.names_of(np.array(part)))
        found.hold(f"classes {split}", dict(counts), fact)


def check_labelme(store: Store, facts: Facts, found: Comparison) -> None:
    """Bounds, points and area of each shape."""
    sample = store.sample(0)
    shapes = facts["shapes"]
    found.hold("labelme: labels", store.names_of(sample["labels"]), [s["label"] for s in shapes])
    bounds = box_rows([shape["bounds_xyxy"] for shape in shapes])
    found.hold("labelme: bounds", box_rows(sample["boxes"]), bounds)
    outlines = [outline for (outline,) in sample["masks"]]
    points = [shape["points"] for shape in shapes]
    found.hold("labelme: points", [len(outline) for outline in outlines], points)
    # EXPECTED.json has OpenCV's areas, of the points as float32.
    areas = [cv2.contourArea(outline.astype(np.float32)) for outline in outlines]
    found.hold("labelme: areas", areas, [shape["polygon_area"] for shape in shapes])
    size = [sample["original_size"][1], sample["original_size"][0]]
    found.hold("labelme: size", size, [facts["width"], facts["height"]])


def check_idx(store: Store, facts: Facts, found: Comparison) -> None:
    """Pixels and labels of the records of both files."""
    columns = store.dataset.columns
    for part, fact in facts.items():
        split = {"t10k": "test"}.get(part, part)
        number = list(store.dataset.manifest.splits).index(split)
        chosen = np.flatnonzero(columns["split"] == number)
        labels = columns["label"][chosen]
        found.hold(f"idx {part}: n", len(chosen), fact["n"])
        counts = np.bincount(labels, minlength=10).tolist()
        found.hold(f"idx {part}: label_counts", counts, fact["label_counts"])
        found.hold(f"idx {part}: first10_labels", labels[:10].tolist(), fact["first10_labels"])
        pixels = store.dataset.select(chosen.tolist())
        total, sizes = 0, set()
        for first in range(0, len(chosen), 1000):
            for sample in pixels.__getitems__(range(first, min(first + 1000, len(chosen)))):
                # Gray became three equal channels.
                total += int(sample["image"][..., 0].sum(dtype=np.int64))
                sizes.add(sample["image"].shape)
        found.hold(f"idx {part}: pixel_sum", total, fact["pixel_sum"])
        found.hold(f"idx {part}: sizes", sizes, {(fact["rows"], fact["cols"], 3)})


def check_tar(store: Store, facts: Facts, found: Comparison) -> None:
    """Samples of an archive, what each has, and which is the first."""
    fact = facts[store.real.inside]
    found.hold("tar: samples", len(store.keys), fact["samples"])
    found.hold("tar: members", len(store.keys) * len(fact["suffixes"]), fact["members"])
    stem = fact["first"].split(".")[0]
    first = store.keys[0].rsplit("/", 1)[1].split(".")[0]
    found.hold("tar: first", first, stem)
    fields = {"jpg": "image", "png": "image", "cls": "label", "json": "json"}
    names = {fields[suffix] for suffix in fact["suffixes"]}
    common = {"key", "original_size", "transform"}
    found.hold("tar: fields", set(store.dataset.schema.names) - common, names)


def check_tar_count(store: Store, facts: Facts, found: Comparison) -> None:
    """Samples of an archive, as webdataset counts them."""
    found.hold("webdataset_lib", len(store.keys), facts[store.real.inside])


CHECKS: dict[str, Callable[[Store, Facts, Comparison], None]] = {
    "images": check_pictures,
    "coco": check_coco,
    "voc_raw": check_voc,
    "voc_totals": check_voc_totals,
    "supervision": check_supervision,
    "datumaro": check_datumaro,
    "masks": check_masks,
    "csv": check_csv,
    "hf": check_hf,
    "classes": check_classes,
    "labelme": check_labelme,
    "idx": check_idx,
    "tar": check_tar,
    "webdataset_lib": check_tar_count,
}
"""Kind of fact -> what holds it."""


def main() -> None:
    """Print what comes of every set, a line each."""
    expected = json.loads(EXPECTED.read_bytes())["datasets"]
    print("set | detected format | images stored/rejected/ignored | ", end="")
    print("annotations found/stored/rejected | differences")
    with tempfile.TemporaryDirectory() as folder, shards_made_here():
        for number, real in enumerate(READ):
            store = Store(real, Path(folder) / f"{number}.lmdb")
            found = compare(store, expected[real.folder])
            report = store.report
            images = f"{report.sample_count}/{report.reject_count}/{report.ignored_count}"
            counts = [str(report.annotations[k]) for k in report.annotations]
            annotations = "/".join(counts) or "-"
            differences = "; ".join(found.differences) or "none"
            line = (real.name, report.format, images, annotations, differences)
            print(*line, sep=" | ", flush=True)
    for refused in REFUSED:
        print(refused.name, "refused", "-", "-", refused.says[0], sep=" | ")


if __name__ == "__main__":
    main()
