"""What a bench found: facts, text, and the settings that are best."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from readers.bench.limits import Limits
from readers.bench.pass_measure import Pass
from readers.loader.tuned import MachineFacts, Tuned

_AS_FAST_SHARE = 0.97
"""Settings this near to the fastest differ by chance: of these that of least workers is best."""

_BATCH_COUNT_LEAST = 20

_WAITING_SHARE_LEAST = 0.1
"""From here on training is said to wait for the loader, as `LoaderStats` has it."""


EngineName = Literal["thread", "process", "stock"]


class Setting(NamedTuple):
    """What was tried.

    Attributes:
        engine: "thread" or "process" of `make_loader`; "stock": a DataLoader of torch over RAW.
        workers: Threads or processes.
        prefetch_factor: Batches that each of them is ahead.
        batch_size: Samples of a batch.
    """

    engine: EngineName
    workers: int
    prefetch_factor: int
    batch_size: int

    def name(self) -> str:
        """In words."""
        if self.engine == "stock":
            return f"raw folder, stock DataLoader, {_count(self.workers, 'worker')}"
        if not self.workers:
            return "in the loop itself"
        ahead = f", {self.prefetch_factor} ahead" if self.engine == "process" else ""
        return f"{_count(self.workers, self.engine)}{ahead}"


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A setting, and what all its passes showed.

    Attributes:
        setting: What was tried.
        is_default: Whether `make_loader` takes it by itself.
        rates: Images a second of each pass.
        images_per_s: Their median.
        images_per_s_least: The least of them.
        images_per_s_most: The most of them.
        used_cores: Seconds on cores in each second; the median.
        cpu_share: The same, as a share of all cores of the job.
        first_batch_s: From the making of the loader to its first batch; the median.
        memory_bytes: Of this process and its workers, what they share counted once (PSS); the most.
    """

    setting: Setting
    is_default: bool
    rates: list[float]
    images_per_s: float
    images_per_s_least: float
    images_per_s_most: float
    used_cores: float
    cpu_share: float
    first_batch_s: float
    memory_bytes: int

    @classmethod
    def of(cls, setting: Setting, passes: Sequence[Pass], *, is_default: bool, cores: int) -> Tried:
        """From its passes."""
        rates = [one.images_per_s for one in passes]
        used = statistics.median(one.used_cores for one in passes)
        return cls(
            setting=setting,
            is_default=is_default,
            rates=rates,
            images_per_s=statistics.median(rates),
            images_per_s_least=min(rates),
            images_per_s_most=max(rates),
            used_cores=used,
            cpu_share=used / cores,
            first_batch_s=statistics.median(one.first_batch_s for one in passes),
            memory_bytes=max(one.memory_bytes for one in passes),
        )


@dataclass(frozen=True, kw_only=True)
class Step:
    """Whether the loader or the model is the bottleneck, for a training step of some length.

    It was tried: the loop slept that long after each batch, so that cores were free, as they are
    beside a GPU.

    Attributes:
        step_ms: How long a step takes.
        needed_images_per_s: What training takes when it never waits.
        images_per_s: What it got.
        waiting_share: Of the time, how much it waited for a batch.
        bottleneck: "loader" or "model".
    """

    step_ms: float
    needed_images_per_s: float
    images_per_s: float
    waiting_share: float
    bottleneck: Literal["loader", "model"]

    @classmethod
    def of(cls, step_ms: float, batch_size: int, found: Pass) -> Step:
        """From a pass with a sleep of that length."""
        is_waiting = found.waiting_share >= _WAITING_SHARE_LEAST
        return cls(
            step_ms=step_ms,
            needed_images_per_s=batch_size * 1000 / step_ms,
            images_per_s=found.images_per_s,
            waiting_share=found.waiting_share,
            bottleneck="loader" if is_waiting else "model",
        )

    def text(self) -> str:
        """In a sentence."""
        facts = (
            f"steps of {self.step_ms:g} ms take {self.needed_images_per_s:,.0f} images/s and got "
            f"{self.images_per_s:,.0f}; the loop waited {self.waiting_share:.0%} of the time"
        )
        if self.bottleneck == "model":
            return f"The model is the bottleneck: {facts}. A faster loader would change nothing."
        return f"The loader is the bottleneck: {facts}."


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """What was found.

    Attributes:
        store: Path or URL of the store.
        identity: Digest of the store, in hex.
        sample_count: Samples in it.
        fields: What a batch holds.
        work: Operations on images, in words; empty without.
        machine: Where it was measured.
        tried: All settings of the batch size that was asked for, the fastest first.
        best: The best of them, as `best_of` has it.
        batch_sizes: The best with other batch sizes.
        raw: The raw folder by a stock DataLoader; None without RAW.
        untried_count: Settings for which there was no time.
        limits: What the machine can do.
        step: Loader or model; None where no step was given.
        seconds: How long all of it took.
    """

    store: str
    identity: str
    sample_count: int
    fields: tuple[str, ...]
    work: str
    machine: MachineFacts
    tried: list[Tried]
    best: Tried
    batch_sizes: list[Tried]
    raw: Tried | None
    untried_count: int
    limits: Limits
    step: Step | None
    seconds: float
    format: str = field(default="lmdb-packer bench 1", init=False)

    def best_settings(self) -> Tuned:
        """For `make_loader(tuned=)`."""
        best = self.best.setting
        assert best.engine != "stock"
        return Tuned(
            store=self.identity,
            store_path=self.store,
            machine=self.machine,
            batch_size=best.batch_size,
            has_work=bool(self.work),
            engine=best.engine,
            workers=best.workers,
            prefetch_factor=best.prefetch_factor,
            images_per_s=self.best.images_per_s,
        )

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""

        def plain(tried: Tried | None) -> dict[str, Any] | None:
            return None if tried is None else {**asdict(tried), "setting": tried.setting._asdict()}

        return {
            **asdict(self),
            "machine": msgspec.to_builtins(self.machine),
            "tried": [plain(one) for one in self.tried],
            "best": plain(self.best),
            "batch_sizes": [plain(one) for one in self.batch_sizes],
            "raw": plain(self.raw),
        }

    def summary(self) -> str:
        """For people."""
        work = f", {self.work}" if self.work else ""
        size = self.best.setting.batch_size
        head = (
            f"{self.store}: {_count(self.sample_count, 'sample')}, batches of {size}"
            f"{work}; {_count(self.machine.core_count, 'core')}"
        )
        titles = (
            f"{'':44}{'images/s':>10}{'least':>10}{'most':>10}"
            f"{'cores':>7}{'first':>9}{'memory':>12}"
        )
        lines = [head, "", titles, *map(self._row, self.tried)]
        if self.raw is not None:
            lines.append(self._row(self.raw))
        if len(self.batch_sizes) > 1:
            lines += ["", "The best, with other batch sizes:"]
            lines += [
                self._row(one, f"batches of {one.setting.batch_size}") for one in self.batch_sizes
            ]
        lines += ["", *self._sentences()]
        return "\n".join(lines)

    def _row(self, one: Tried, name: str = "") -> str:
        marks = ["best"] * (one is self.best) + ["default"] * one.is_default
        shown = name or one.setting.name() + (f" ({', '.join(marks)})" if marks else "")
        return (
            f"{shown:44}{one.images_per_s:10,.0f}{one.images_per_s_least:10,.0f}"
            f"{one.images_per_s_most:10,.0f}{one.used_cores:7.1f}{one.first_batch_s:8.2f}s"
            f"{one.memory_bytes / 2**20:8,.0f} MiB"
        )

    def _sentences(self) -> list[str]:
        limits, rate, lines = self.limits, self.best.images_per_s, []
        default = next((one for one in self.tried if one.is_default), None)
        if default is not None and default is not self.best:
            overlap = self.best.images_per_s_least <= default.images_per_s_most
            lines.append(
                f"The best gives {rate / default.images_per_s:.2f} times what make_loader takes by "
                f"itself{'; their spreads overlap, so that it may be chance' if overlap else ''}."
            )
        if self.raw is not None:
            lines.append(
                f"It gives {rate / self.raw.images_per_s:.1f} times what the raw folder gives."
            )
        lines.append(
            f"One core copies {limits.copied_bytes_per_s / 1e9:.1f} GB/s: "
            f"{limits.copied_images_per_s:,.0f} images/s of these batches."
        )
        if limits.whole_images_per_s is not None:
            lines.append(
                f"One core {'decodes' if limits.is_decoded else 'reads'} "
                f"{limits.whole_images_per_s:,.0f} whole images/s, one by one."
            )
        batch_count = self.sample_count // self.best.setting.batch_size
        if batch_count < _BATCH_COUNT_LEAST:
            lines.append(
                f"An epoch is {_count(batch_count, 'batch')} here, so that its start is much of "
                "every figure: measure a larger store."
            )
        if self.untried_count:
            lines.append(
                f"{_count(self.untried_count, 'setting')} not tried: there was no time; give "
                "more --seconds."
            )
        if self.step is not None:
            lines.append(self.step.text())
        return lines


def best_of(tried: Sequence[Tried]) -> Tried:
    """The fastest; of those that are as fast, the one with least workers, least batches ahead.

    One without workers is best only where no other was tried: batches that the loop makes itself
    are never made beside a training step.
    """
    beside = [one for one in tried if one.setting.workers] or tried
    most = max(one.images_per_s for one in beside)
    near = [one for one in beside if one.images_per_s >= _AS_FAST_SHARE * most]
    return min(near, key=lambda one: (one.setting.workers, one.setting.prefetch_factor))


def _count(count: int, word: str) -> str:
    plural = f"{word}es" if word.endswith(("s", "ch")) else f"{word}s"
    return f"{count:,} {word if count == 1 else plural}"
