"""bench: tries settings of a loader on a store in interleaved rounds, within a budget of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from readers.bench.limits import find_limits
from readers.bench.pass_measure import Pass, measure_pass
from readers.bench.report import BenchReport, EngineName, Setting, Step, Tried, best_of
from readers.bench.subject import Subject, names_taken
from readers.dataset import LMDBDataset
from readers.loader.make import make_loader
from readers.loader.tuned import MachineFacts
from readers.machine import PREFETCH_FACTOR, core_count, loader_worker_count

_SHARES = {"limits": 0.07, "all": 0.35, "best": 0.38, "sizes": 0.1, "step": 0.1}
"""Of the time: limits of the machine, each setting once, the best ones again, other batch sizes of
the best, and the step."""

_FINALIST_COUNT = 3
_ROUND_COUNT = 3
_PASS_S_LEAST = 0.1
_ENGINES: tuple[EngineName, ...] = ("thread", "process")


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

    def tried(self, settings: Sequence[Setting], default: Setting) -> list[Tried]:
        """What they showed: once each, without those for which there was no time."""
        cores = core_count()
        return [
            Tried.of(one, self.found[one], is_default=one == default, cores=cores)
            for one in dict.fromkeys(settings)
            if one in self.found
        ]


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
        names = names_taken(whole)
    with LMDBDataset(store, returns=names) as dataset:
        subject = Subject.of(dataset, raw, crop)
        default, sample_bytes = _default(subject, min(batch_size, len(dataset)), workers)
        limits = find_limits(dataset, sample_bytes, seconds * _SHARES["limits"])
        passes = _Passes(subject.make)
        settings = _settings(default, workers)
        untried = passes.run(settings, 1, seconds * _SHARES["all"], least=1)
        contenders = _finalists(passes, default)
        raw_setting = None
        if subject.folder is not None:
            size = min(default.batch_size, len(subject.folder))
            raw_setting = default._replace(engine="stock", batch_size=size)
            contenders.insert(1, raw_setting)
        passes.run(contenders, _ROUND_COUNT, seconds * _SHARES["best"], least=len(contenders))
        ours = passes.tried([*settings, *contenders], default)
        ours = [one for one in ours if one.setting.engine != "stock"]
        best = best_of([one for one in ours if one.setting in contenders])
        others = _other_sizes(best.setting, len(dataset))
        passes.run(others, 1, seconds * _SHARES["sizes"], least=0)
        step = None
        if step_ms is not None:
            step_s = seconds * _SHARES["step"]
            step = _try_step(subject, best.setting, step_ms, step_s)
        return BenchReport(
            store=dataset.view.path,
            identity=dataset.view.identity.hex(),
            sample_count=len(dataset),
            fields=names,
            work=subject.work(),
            machine=MachineFacts.read(),
            tried=sorted(ours, key=lambda one: -one.images_per_s),
            best=best,
            batch_sizes=sorted(
                [best, *passes.tried(others, default)], key=lambda one: one.setting.batch_size
            ),
            raw=passes.tried([raw_setting], default)[0] if raw_setting is not None else None,
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


def _default(subject: Subject, batch_size: int, workers: int | None) -> tuple[Setting, float]:
    """What `make_loader` takes by itself, and the bytes of a sample in its batches."""
    count = loader_worker_count() if workers is None else workers
    loader = make_loader(subject.dataset, batch_size, train=True, ops=subject.ops, workers=0)
    try:
        next(iter(loader))
        stats = loader.stats()
    finally:
        loader.close()
    setting = Setting(stats["engine"], count, PREFETCH_FACTOR, batch_size)
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


def _finalists(passes: _Passes, default: Setting) -> list[Setting]:
    """The default, the best of all that have workers, and processes with more batches ahead."""
    order = sorted(passes.found, key=lambda one: -passes.found[one][0].images_per_s)
    best = [one for one in order if one.workers][:_FINALIST_COUNT]
    more = [
        one._replace(prefetch_factor=2 * PREFETCH_FACTOR) for one in best if one.engine == "process"
    ]
    return list(dict.fromkeys([default, *best, *more[:1]]))


def _other_sizes(best: Setting, sample_count: int) -> list[Setting]:
    """Half and twice the batch, as far as the store has samples."""
    size = best.batch_size
    sizes = sorted({max(1, size // 2), min(sample_count, size * 2)} - {size})
    return [best._replace(batch_size=size) for size in sizes]


def _try_step(subject: Subject, best: Setting, step_ms: float, seconds: float) -> Step:
    found = measure_pass(lambda: subject.make(best), best.batch_size, seconds, step_ms / 1000)
    return Step.of(step_ms, best.batch_size, found)
