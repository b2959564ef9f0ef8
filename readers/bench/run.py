"""bench: tries settings of a loader on a store in interleaved rounds, within a budget of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from readers.bench.limits import find_limits
from readers.bench.pass_measure import Pass, measure_pass
from readers.bench.raw_folder import RawFolder, stock_loader
from readers.bench.report import BenchReport, EngineName, Setting, Step, Tried, best_of
from readers.dataset import LMDBDataset
from readers.loader.make import make_loader
from readers.loader.tuned import MachineFacts
from readers.machine import PREFETCH_FACTOR, core_count, loader_worker_count
from readers.ops.operations import Letterbox, RandomResizedCrop
from readers.reading.even_sizes import likely_shape

_TARGETS = (("label",), ("boxes", "labels"), ("labels",), ("caption",), ("captions",))
"""What training takes beside image and masks: the first of which the store has all."""

_CROP_SIDE = 224
_LETTERBOX_SIDE = 640
_SHARES = {"limits": 0.07, "all": 0.35, "best": 0.38, "sizes": 0.1, "step": 0.1}
"""Of the time: limits of the machine, each setting once, the best ones again, other batch sizes of
the best, and the step."""

_FINALIST_COUNT = 3
_ROUND_COUNT = 3
_PASS_S_LEAST = 0.1
_ENGINES: tuple[EngineName, ...] = ("thread", "process")

_Op = RandomResizedCrop | Letterbox


@dataclass
class _Passes:
    """Passes of settings, in rounds, so that what else the machine does meets all alike.

    Attributes:
        make: Makes a loader of a setting.
        found: The passes of each setting so far.
    """

    make: Callable[[Setting], Any]
    found: dict[Setting, list[Pass]] = field(default_factory=dict)

    def run(
        self, settings: Sequence[Setting], round_count: int, seconds: float, *, least: int
    ) -> int:
        """Measure each of them in each round, until time runs out.

        Args:
            settings: Those that matter most come first.
            round_count: How often each is measured.
            seconds: How long this may take.
            least: How many of them are measured once whatever time it takes.

        Returns:
            How many of them were not tried at all.
        """
        end = time.perf_counter() + seconds
        pass_s = max(_PASS_S_LEAST, seconds / max(1, len(settings) * round_count) / 2)
        for number in range(round_count):
            for at, setting in enumerate(settings):
                if time.perf_counter() > end and (number or at >= least):
                    return sum(one not in self.found for one in settings)
                self.found.setdefault(setting, []).append(
                    measure_pass(lambda: self.make(setting), setting.batch_size, pass_s)  # noqa: B023
                )
        return 0


def bench(
    store: str,
    raw: str | None = None,
    *,
    batch_size: int = 64,
    workers: int | None = None,
    seconds: float = 30.0,
    step_ms: float | None = None,
    crop: int | None = None,
) -> BenchReport:
    """Try settings of `make_loader` on a store, on this machine.

    The image and what training takes beside it are read, shuffled. Where images differ in size, a
    random part of each comes at one size.

    Args:
        store: Path or URL of the store.
        raw: Folder of raw images, which a stock DataLoader reads for comparison.
        batch_size: Samples of a batch; a smaller store is one batch.
        workers: Try these alone; None tries from none to as many as there are cores.
        seconds: How long to measure, about.
        step_ms: How long a training step takes: is loader or model the bottleneck?
        crop: Side of what comes of each image, by `ops.RandomResizedCrop`. None: 224 where images
            differ in size (640, by `ops.Letterbox`, with boxes), and whole where they do not.

    Raises:
        StoreError: The store cannot be read.
        ValueError: An argument is out of its range, or `raw` has no pictures.
    """
    _check_range(batch_size, workers, seconds, step_ms, crop)
    begun = time.perf_counter()
    with LMDBDataset(store) as whole:
        path, identity = whole.view.path, whole.view.identity.hex()
        names = _names(whole)
    with LMDBDataset(store, returns=names) as dataset:
        if not len(dataset):
            raise ValueError(f"{path}: there is no sample in this store, so nothing to measure")
        ops = _operations(dataset, crop)
        batch_size = min(batch_size, len(dataset))

        def make(setting: Setting) -> Any:
            assert setting.engine != "stock"
            return make_loader(
                dataset,
                setting.batch_size,
                train=True,
                ops=ops,
                engine=setting.engine,
                workers=setting.workers,
                prefetch_factor=setting.prefetch_factor,
            )

        passes = _Passes(make)
        default, sample_bytes = _default(dataset, ops, batch_size, workers)
        limits = find_limits(dataset, sample_bytes, seconds * _SHARES["limits"])
        untried = passes.run(_settings(default, workers), 1, seconds * _SHARES["all"], least=1)
        first = sorted(passes.found, key=lambda one: -passes.found[one][0].images_per_s)
        finalists = _finalists(first[:_FINALIST_COUNT], default)
        raw_setting = default._replace(engine="stock")
        contenders = [default, *(one for one in finalists if one != default)]
        if raw is not None:
            folder = _raw_folder(raw, dataset, ops)
            raw_setting = raw_setting._replace(batch_size=min(batch_size, len(folder)))

            def make_any(setting: Setting) -> Any:
                if setting.engine != "stock":
                    return make(setting)
                return stock_loader(folder, setting.batch_size, setting.workers)

            passes.make = make_any
            contenders.insert(1, raw_setting)
        passes.run(contenders, _ROUND_COUNT, seconds * _SHARES["best"], least=len(contenders))
        cores = core_count()

        def tried(setting: Setting) -> Tried:
            found = passes.found[setting]
            return Tried.of(setting, found, is_default=setting == default, cores=cores)

        ours = [tried(one) for one in passes.found if one.engine != "stock"]
        again = [one for one in ours if len(one.rates) > 1]
        best = best_of(again or ours)
        sizes = sorted({max(1, batch_size // 2), min(len(dataset), batch_size * 2)} - {batch_size})
        others = [best.setting._replace(batch_size=size) for size in sizes]
        passes.run(others, 1, seconds * _SHARES["sizes"], least=0)
        step = None
        if step_ms is not None:
            taken = measure_pass(
                lambda: make(best.setting), batch_size, seconds * _SHARES["step"], step_ms / 1000
            )
            step = Step.of(step_ms, batch_size, taken)
        return BenchReport(
            store=path,
            identity=identity,
            sample_count=len(dataset),
            fields=names,
            work=", ".join(f"{type(op).__name__} {_shown(op.size)}" for op in ops),
            machine=MachineFacts.read(),
            tried=sorted(ours, key=lambda one: -one.images_per_s),
            best=best,
            batch_sizes=sorted(
                [best, *(tried(one) for one in others if one in passes.found)],
                key=lambda one: one.setting.batch_size,
            ),
            raw=tried(raw_setting) if raw is not None else None,
            untried_count=untried,
            limits=limits,
            step=step,
            seconds=time.perf_counter() - begun,
        )


def _check_range(
    batch_size: int, workers: int | None, seconds: float, step_ms: float | None, crop: int | None
) -> None:
    least: dict[str, tuple[float | None, float]] = {
        "batch_size": (batch_size, 1),
        "workers": (workers, 0),
        "seconds": (seconds, 0),
        "step_ms": (step_ms, 0),
        "crop": (crop, 1),
    }
    for name, (value, bound) in least.items():
        if value is not None and not (value >= bound and (value or name == "workers")):
            more = "more than 0" if name in ("seconds", "step_ms") else f"at least {bound:g}"
            raise ValueError(f"{name} must be {more}; got {value!r}")


def _names(dataset: LMDBDataset[Any]) -> tuple[str, ...]:
    """The fields that training takes."""
    schema = dataset.schema
    if "image" not in schema.names:
        return tuple(schema.names)
    masks = tuple(one.name for one in schema.fields if one.kind == "mask")
    targets = next((wanted for wanted in _TARGETS if set(wanted) <= set(schema.names)), ())
    return ("image", *masks, *targets)


def _operations(dataset: LMDBDataset[Any], crop: int | None) -> tuple[_Op, ...]:
    if "image" not in dataset.view.fields:
        if crop is not None:
            raise ValueError(f"{dataset.view.path}: there is no field image; leave crop out")
        return ()
    if crop is not None:
        return (RandomResizedCrop(crop),)
    image = dataset.schema["image"]
    has_one_kind = image.dtype is not None and None not in (image.shape or ())[2:]
    if not has_one_kind or likely_shape(dataset.view.store, image) is not None:
        return ()
    if "boxes" in dataset.schema.names:
        return (Letterbox(_LETTERBOX_SIDE),)
    return (RandomResizedCrop(_CROP_SIDE),)


def _default(
    dataset: LMDBDataset[Any], ops: tuple[_Op, ...], batch_size: int, workers: int | None
) -> tuple[Setting, float]:
    """What `make_loader` takes by itself, and the bytes of a sample in its batches."""
    count = loader_worker_count() if workers is None else workers
    loader = make_loader(dataset, batch_size, train=True, ops=ops, workers=count)
    engine = loader.stats()["engine"]
    loader.close()
    loader = make_loader(dataset, batch_size, train=True, ops=ops, workers=0)
    next(iter(loader))
    stats = loader.stats()
    loader.close()
    setting = Setting(engine, count, PREFETCH_FACTOR, batch_size)
    return setting, stats["byte_count"] / max(1, stats["sample_count"])


def _settings(default: Setting, workers: int | None) -> list[Setting]:
    """All that are tried: the default first, then few workers and many in turn."""
    cores = core_count()
    counts = {0, 1, cores, *(2**power for power in range(1, 7) if 2**power <= cores)}
    settings = [default]
    for count in sorted(counts) if workers is None else [workers]:
        # Without workers there is no engine.
        engines = _ENGINES if count else (default.engine,)
        settings += [default._replace(engine=engine, workers=count) for engine in engines]
    return list(dict.fromkeys(settings))


def _finalists(best: Sequence[Setting], default: Setting) -> list[Setting]:
    """The best of all, and those of processes with more batches ahead as well."""
    found = [default, *best]
    for one in best:
        if one.engine == "process" and one.workers:
            found.append(one._replace(prefetch_factor=2 * PREFETCH_FACTOR))
            break
    return list(dict.fromkeys(found))


def _raw_folder(raw: str, dataset: LMDBDataset[Any], ops: tuple[_Op, ...]) -> RawFolder:
    """The raw pictures, at the size that those of the store have in a batch."""
    size = (_CROP_SIDE, _CROP_SIDE)
    if ops:
        size = ops[0].size if isinstance(ops[0].size, tuple) else (ops[0].size, ops[0].size)
    elif "image" in dataset.view.fields:
        shape = likely_shape(dataset.view.store, dataset.schema["image"])
        size = size if shape is None else (shape[0], shape[1])
    is_cropped = any(isinstance(op, RandomResizedCrop) for op in ops)
    return RawFolder(raw, size, is_cropped=is_cropped)


def _shown(size: int | tuple[int, int]) -> str:
    """Sides as the command line calls them."""
    height, width = size if isinstance(size, tuple) else (size, size)
    return f"{width}x{height}"
