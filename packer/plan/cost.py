"""What each way of storing images would cost: size, time to build, speed of reading.

Sizes come from a sample of the raw data that is the same each time; times from working on it here,
and from writing and reading a file where the store is to be.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.errors import BuildError
from packer.items.item_columns import byte_counts
from packer.pictures.prepare import Prepared
from packer.plan.arrange import arranged
from packer.plan.estimate import Estimator, recipe_for_target, store_bytes, stored_pixels
from packer.plan.sampling import Sampled, SampleSize
from packer.policies import POLICIES, ImagePolicy
from packer.raw.read_ahead import read_files
from packer.recipe import POLICY_SETTINGS, Recipe
from packer.slow_storage import THREAD_COUNT
from packer.sources import SourceOptions, scan_source
from packer.wording import Summarized, size_text, time_text
from packer.workspace.space import missing_room
from readers.machine import core_count, memory
from readers.store.pictures.decode import decode_image
from readers.store.pictures.image_header import read_header

SPACE_MARGIN = 1.05
"""How much more room than the estimate there must be, for what an estimate cannot see."""

_TIMED = SampleSize(64, 2**26)
_TIMED_COUNT_LEAST, _TIMED_PIXELS = 4, 40_000_000
"""Items that are worked on under each policy to tell its times: 64 photos of up to 0.6 megapixels,
fewer of larger ones. Of 24 the speed of "smart", where few are raw, was a third beside what it
is."""

_PROBE_BYTES = 2**26
_START_S = 1.0
"""Of a build: workers start, shards are synced."""

_CACHE_SHARE = 0.7
"""Of the memory that is free now, what the page cache may keep of a store beside training."""

_NEAR = 0.9
"""Of policies whose speed is as near as this the smallest is recommended, and of those whose size
is as near the first."""


@dataclass(frozen=True, kw_only=True)
class PolicyCost:
    """What one policy would cost.

    Attributes:
        image: The policy.
        quality: Of JPEG or WebP, where there is any.
        raw_share: Share of images stored raw; of "proportion" alone.
        bytes: Size of the store.
        build_s: Wall time of a build with `core_count` workers.
        images_per_s_per_core: Images that one core reads from memory and decodes.
        images_per_s: Images that `core_count` cores read, from the page cache where the store fits,
            else from the disk.
        fits_memory: Whether the page cache can hold the store.
        fits_disk: Whether there is room for it.
    """

    image: ImagePolicy
    quality: int | None
    raw_share: float | None
    bytes: int
    build_s: float
    images_per_s_per_core: float
    images_per_s: float
    fits_memory: bool
    fits_disk: bool


@dataclass(frozen=True, kw_only=True)
class Costs(Summarized):
    """What a build would cost, policy by policy.

    Attributes:
        raw: The raw data.
        target: Folder that the store would be in.
        image_count: Images found.
        raw_bytes: Size of their files.
        core_count: Cores of this job.
        free_bytes: Room on the target's disk.
        memory_bytes: Memory that is free now.
        write_bytes_per_s: Of the target's file system, synced.
        read_bytes_per_s: Of the target's file system, not from the page cache where that can be
            told.
        policies: One for each that the settings allow.
        recommended: The `image` of one of them; None when none fits.
        reason: Why.
    """

    raw: str
    target: str
    image_count: int
    raw_bytes: int
    core_count: int
    free_bytes: int
    memory_bytes: int
    write_bytes_per_s: float
    read_bytes_per_s: float
    policies: list[PolicyCost]
    recommended: ImagePolicy | None
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """The costs by name, as `--json` prints them."""
        return asdict(self)

    def summary(self) -> str:
        """A table for people, and the recommendation."""
        lines = [
            f"{self.raw}: {self.image_count:,} images, {size_text(self.raw_bytes)}",
            f"{self.target}: {size_text(self.free_bytes)} free, writes "
            f"{size_text(self.write_bytes_per_s)}/s, reads {size_text(self.read_bytes_per_s)}/s",
            f"this job: {self.core_count} cores, {size_text(self.memory_bytes)} of memory free",
            "",
            f"{'--image':<27}{'size':>12}{'build':>10}{'images/s a core':>17}{'images/s':>12}",
        ]
        for each in self.policies:
            name: str = each.image
            if each.raw_share is not None:
                name += f", {each.raw_share:.0%} raw"
            if each.quality is not None:
                name += f", q{each.quality}"
            notes = "" if each.fits_memory else "  from disk: larger than memory"
            notes = notes if each.fits_disk else "  NO ROOM"
            lines.append(
                f"{name:<27}{size_text(each.bytes):>12}{time_text(each.build_s):>10}"
                f"{each.images_per_s_per_core:>17,.0f}{each.images_per_s:>12,.0f}{notes}"
            )
        chosen = f"--image {self.recommended}: " if self.recommended is not None else ""
        return "\n".join([*lines, "", chosen + self.reason])


def estimate_costs(
    raw: str | Path,
    out: str | Path | None = None,
    recipe: Recipe | None = None,
    *,
    source: SourceOptions | None = None,
) -> Costs:
    """What a store of `raw` would cost, under each policy that the recipe's other settings allow.

    Args:
        raw: As `packer.build` takes it.
        out: Where the store is to be; its folder is probed. None means the current folder.
        recipe: The settings. Its `image` is left aside; with `target_bytes`, what that leads to is
            one more policy of the table, and recommended.
        source: How to read `raw`. None detects it.

    Raises:
        SourceError: `raw` is not there, or is of no known layout.
        BuildError: Nothing fits into `target_bytes`, or the target cannot be written to.
    """
    recipe = recipe or Recipe()
    scan = arranged(scan_source(Path(raw), source or SourceOptions()), recipe)
    target = _existing_folder(Path(os.path.abspath(out or "store")).parent)
    estimator = Estimator(scan)
    write_rate, read_rate = _probe(target)
    root = os.fsencode(os.path.abspath(scan.root))
    sample = _timed_sample(estimator)
    read_s = _read_seconds(root, sample)
    cores, count = core_count(), len(scan.items)
    free, available = shutil.disk_usage(target).free, memory().usable_bytes
    chosen = recipe_for_target(scan, recipe, lambda r: store_bytes(estimator.record_bytes(r)))
    policies = []
    recipes = _recipes(recipe, chosen)
    for one, (work_s, decode_s) in zip(recipes, _times(sample, recipes), strict=True):
        size = store_bytes(estimator.record_bytes(one))
        # Reads wait in threads beside the work; a disk writes while cores work.
        per_image = max(work_s, read_s / THREAD_COUNT)
        fits_memory = size <= _CACHE_SHARE * available
        warm = 1 / decode_s
        speed = warm * cores
        if not fits_memory:
            speed = min(speed, read_rate / (size / max(1, count)))
        policies.append(
            PolicyCost(
                image=one.image,
                quality=one.quality,
                raw_share=one.raw_share,
                bytes=size,
                build_s=_START_S + max(count * per_image / cores, size / write_rate),
                images_per_s_per_core=warm,
                images_per_s=speed,
                fits_memory=fits_memory,
                fits_disk=size * SPACE_MARGIN <= free,
            )
        )
    recommended, reason = _recommended(policies, recipe, chosen)
    return Costs(
        raw=str(raw),
        target=str(target),
        image_count=count,
        raw_bytes=int(byte_counts(scan.items).sum()),
        core_count=cores,
        free_bytes=free,
        memory_bytes=available,
        write_bytes_per_s=write_rate,
        read_bytes_per_s=read_rate,
        policies=policies,
        recommended=recommended,
        reason=reason,
    )


def missing_space(byte_count: int, out: Path) -> str | None:
    """Why a store has no room beside `out`, and what would make it fit; None when it has.

    Args:
        byte_count: Its size by estimate.
        out: Where it is to be; the folder above it exists.
    """
    need = int(byte_count * SPACE_MARGIN)
    return missing_room(
        out,
        need,
        folder=out.parent,
        what=f"the store will take about {need:,} bytes",
        remedy=lambda free: (
            "Free some, build to another disk, or make it smaller: --target-size "
            f"{int(free / SPACE_MARGIN)} chooses how, --image jpeg takes a tenth of raw pixels, "
            "--size or --max-side take fewer; packer plan shows them all."
        ),
    )


def _recipes(recipe: Recipe, chosen: Recipe) -> list[Recipe]:
    """The recipe with each policy that its other settings allow, and what a budget leads to."""
    found = []
    for image, policy in POLICIES.items():
        settings: dict[str, Any] = {"image": image, "target_bytes": None}
        for name in POLICY_SETTINGS:
            settings[name] = getattr(recipe, name) if name in policy.settings else None
        try:
            one = dataclasses.replace(recipe, **settings)
        except ValueError:
            continue  # Such as a size with "original".
        found.append(one)
    if recipe.target_bytes is not None and chosen not in found:
        found.append(chosen)
    return found


def _recommended(
    policies: list[PolicyCost], recipe: Recipe, chosen: Recipe
) -> tuple[ImagePolicy | None, str]:
    if recipe.target_bytes is not None:
        return chosen.image, f"the best that {size_text(recipe.target_bytes)} allow."
    fitting = [each for each in policies if each.fits_disk]
    if not fitting:
        return None, "no policy fits the disk: use --size, --max-side, or another disk."
    raw = next((each for each in fitting if each.image == "raw" and each.fits_memory), None)
    if raw is not None:
        why = "it fits into memory, where reading pixels is a copy and nothing is left to decode."
        return raw.image, why
    best = max(fitting, key=lambda each: each.images_per_s)
    near = [each for each in fitting if each.images_per_s >= _NEAR * best.images_per_s]
    least = min(each.bytes for each in near)
    # In the order of the table, which begins with what is simplest to read.
    pick = next(each for each in near if each.bytes * _NEAR <= least)
    if pick.fits_memory:
        why = "it fits into memory; pixels would not, and reading them from disk is slower."
    else:
        why = "no policy fits into memory; of what the disk gives, it makes the most images."
    return pick.image, why


def _timed_sample(estimator: Estimator) -> list[Sampled]:
    sample = estimator.sample(_TIMED)
    pixels = sum(stored_pixels(sampled, Recipe()) or 0 for sampled in sample)
    count = max(_TIMED_COUNT_LEAST, len(sample) * _TIMED_PIXELS // max(1, pixels))
    step = max(1, len(sample) // count)
    return sample[::step]


def _times(sample: list[Sampled], recipes: list[Recipe]) -> list[tuple[float, float]]:
    """(to prepare and write an image, to read what is stored of it) under each recipe.

    In seconds of one core. The least of two rounds, since other processes only ever add to it.
    """
    import cv2

    thread_count = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        rounds = [[_times_once(sample, recipe) for recipe in recipes] for _ in range(2)]
    finally:
        cv2.setNumThreads(thread_count)
    return [
        (min(work_s for work_s, _ in found), min(read_s for _, read_s in found))
        for found in zip(*rounds, strict=True)
    ]


def _times_once(sample: list[Sampled], recipe: Recipe) -> tuple[float, float]:
    started = time.thread_time()
    prepared = [p for sampled in sample if (p := sampled.prepared(recipe)) is not None]
    if not prepared:
        raise BuildError(
            "none of the sampled images can be decoded; packer build names the reasons."
        )
    work_s = (time.thread_time() - started) / len(prepared)
    room = np.ones(max(each.pixels.nbytes for each in prepared), np.uint8)
    started = time.thread_time()
    for each in prepared:
        _read(each, recipe, room)
    read_s = (time.thread_time() - started) / len(prepared)
    stored = sum(len(p.image) if isinstance(p.image, bytes) else p.image.nbytes for p in prepared)
    return work_s + _COPY_S * stored / len(prepared), max(read_s, 1e-6)


_COPY_S = 1.7e-9
"""CPU seconds that each stored byte costs on its way through checksums, LMDB and the file system:
2.1 ms for 1.2 MB, in profiles of builds."""


def _read(prepared: Prepared, recipe: Recipe, room: NDArray[np.uint8]) -> None:
    """What a loader does for one image: decode it, or copy it to memory that is in use already."""
    image = prepared.image
    if isinstance(image, bytes):
        decode_image(image, recipe.mode, read_header(image, pixels_max=recipe.pixels_max))
    else:
        room[: image.nbytes] = np.ascontiguousarray(image).reshape(-1).view(np.uint8)


def _read_seconds(root: bytes, sample: list[Sampled]) -> float:
    """Seconds that one reader waits for the files of an item, in the median."""
    times = []
    for sampled in sample:
        started = time.monotonic()
        read_files(root, sampled.item)
        times.append(time.monotonic() - started)
    return float(np.median(times))


def _existing_folder(path: Path) -> Path:
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _probe(folder: Path) -> tuple[float, float]:
    """Bytes a second that a file system writes, synced, and reads."""
    block = os.urandom(2**20)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".packer-plan-") as file:
            started = time.monotonic()
            for _ in range(_PROBE_BYTES // len(block)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            write_s = time.monotonic() - started
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            started = time.monotonic()
            offsets = range(0, _PROBE_BYTES, len(block))
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda at: os.pread(file.fileno(), len(block), at), offsets))
            read_s = time.monotonic() - started
    except OSError as error:
        raise BuildError(
            f"{folder}: cannot be written to ({error.strerror}); name another place as OUT."
        ) from error
    return _PROBE_BYTES / max(write_s, 1e-6), _PROBE_BYTES / max(read_s, 1e-6)
