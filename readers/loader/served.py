"""A loader's dataset and collate function, as other loaders take them from it.

    torch.utils.data.DataLoader(
        loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn
    )

has the loader's batches, with its operations, and `valid` where it pads: so do loaders that
accelerate, Lightning and others build from these. What a sample is drawn for comes with its index
(`SampleIndex`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, get_worker_info

from readers.chance.draws import SampleIndex, is_sent, split_draws, unsaid
from readers.chance.global_seeds import seed_globals
from readers.dataset import LMDBDataset
from readers.loader.contents import Contents, Filler
from readers.reading.filling import MapFiller
from readers.reading.indices import are_in_range
from readers.reading.samples import GatheredSamples
from readers.stats import Watch

_OWN = ("_contents", "_filler", "_transforms", "_total")

_PLAIN = (
    "this dataset is a loader's, which has {what}: they need to know epoch and draw, which the "
    "indices of the loader's samplers say, and these say nothing. Build a loader from it with "
    "batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn; or make a loader of this "
    "sampler: make_loader(dataset, ..., sampler=sampler, ops=ops)"
)


class ServedDataset(Dataset[Any]):
    """A dataset that gives a loader's samples to the loader's samplers.

    To all others it is the dataset: it passes for it, and has all of its attributes.

    Args:
        contents: The loader's contents.
        total: Samples of an epoch over all ranks, where it has not each of them once.
    """

    def __init__(self, contents: Contents, total: int | None = None) -> None:
        vars(self).update(_contents=contents, _filler=None, _transforms=(), _total=total)

    @property
    def total_dataset_length(self) -> int:
        """Samples of an epoch: accelerate leaves out what it has filled up beyond these."""
        total: int | None = self._total
        return len(self) if total is None else total

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """That of the dataset."""
        contents = vars(self).get("_contents")
        return ServedDataset if contents is None else type(contents.dataset)

    def __getattr__(self, name: str) -> Any:
        if name in _OWN or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self._contents.dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._contents.dataset, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._contents.dataset, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return ServedDataset, (self._contents, self._total)

    def __len__(self) -> int:
        return len(self._contents.dataset)

    def __getitem__(self, index: Any) -> Any:
        """The dataset's own sample; with operations for an index of a sampler of the loader."""
        if type(index) is SampleIndex and self._contents.ops:
            return self._samples([index])[0]
        return self._contents.dataset[index]

    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any] | MarkedSamples:
        """The samples of a batch.

        Raises:
            ValueError: They need to know what they are drawn for, and the indices do not say.
        """
        contents = self._contents
        if not all(type(index) is SampleIndex for index in indices):
            what = [name for name in ("ops", "pad") if getattr(contents, name)]
            if what:
                raise ValueError(_PLAIN.format(what=" and ".join(what)))
            if hasattr(type(contents.dataset), "__getitems__"):
                return contents.dataset.__getitems__(indices)  # type: ignore[no-any-return]
            return [contents.dataset[index] for index in indices]
        samples = self._samples(indices)
        if is_sent(indices):
            if isinstance(samples, GatheredSamples):
                samples = samples.in_order()
            else:
                samples = [_in_order(sample) for sample in samples]
        if not contents.pad:
            return samples
        return MarkedSamples(samples, [index.is_valid for index in indices])

    def _samples(self, indices: Sequence[SampleIndex]) -> Sequence[Any]:
        first = indices[0]
        if any(index.epoch != first.epoch for index in indices):
            raise ValueError(
                f"a batch has samples of several epochs: {sorted({at.epoch for at in indices})}. "
                "Its operations draw their chances for one epoch: make batches of one"
            )
        filler, array = self._opened(), unsaid(indices)
        if not isinstance(filler, MapFiller):
            array = in_range(array, self._contents.dataset)
        elif get_worker_info() is not None:
            # As in loader workers of ours. Parts of a batch that was cut have numbers of their own.
            numbers = (first.number, first.turn) if first.turn else (first.number,)
            seed_globals(self._contents.seed, first.epoch, *numbers)
        return filler.samples(array, first.epoch, Watch())

    def _opened(self) -> Filler:
        """Who fills batches: another when a transform was changed."""
        contents = self._contents
        if self._filler is None or not contents.are_same(self._transforms):
            vars(self).update(_filler=contents.filler(), _transforms=contents.transforms())
        filler: Filler = self._filler
        return filler

    def __repr__(self) -> str:
        return repr(self._contents.dataset)


class MarkedSamples:
    """The samples of a batch, some of which only fill it up: for the loader's collate function.

    Args:
        samples: As the loader's dataset gives them.
        valid: For each, whether it counts.
    """

    def __init__(self, samples: Sequence[Any], valid: list[bool]) -> None:
        self.samples = samples
        self.valid = torch.tensor(valid, dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.valid)

    def __iter__(self) -> Iterator[Any]:
        raise self._error()

    def __getitem__(self, at: Any) -> Any:
        raise self._error()

    @staticmethod
    def _error() -> TypeError:
        return TypeError(
            "these samples are of a loader with pad=True: some only fill the batch up, and its "
            "collate function says which. Take collate_fn=loader.collate_fn (to join samples in "
            "your own way, give make_loader your collate_fn)"
        )


class MarkingCollate:
    """A loader's collate function where it pads: adds `valid` to a batch.

    Args:
        collate_fn: Joins the samples.
    """

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self.collate_fn = collate_fn

    def __call__(self, samples: Any) -> Any:
        """The batch of the samples, with `valid`."""
        if not isinstance(samples, MarkedSamples):
            raise TypeError(
                "this collate function is of a loader with pad=True, and takes what the loader's "
                f"dataset gives; got {type(samples).__name__}. Build a loader with "
                "dataset=loader.dataset as well"
            )
        return marked(self.collate_fn(samples.samples), samples.valid)


def marked(batch: Any, valid: torch.Tensor) -> Any:
    """A batch with the field `valid`: false for samples that only fill it up.

    Raises:
        ValueError: It is nothing that a field can be added to.
    """
    if type(batch) is dict and "valid" not in batch:
        return {**batch, "valid": valid}
    if type(batch) in (tuple, list):
        return type(batch)([*batch, valid])
    found = "a dict that has one" if type(batch) is dict else type(batch).__name__
    raise ValueError(
        "pad=True adds a field 'valid' to batches that are dicts, tuples or lists; "
        f"got {found}. Have collate_fn return one of these, or leave pad out"
    )


def _in_order(value: Any) -> Any:
    """A sample, its tensors contiguous: batches are as their samples are."""
    if isinstance(value, torch.Tensor):
        return value.contiguous()
    if type(value) is dict:
        return {name: _in_order(part) for name, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)([_in_order(part) for part in value])
    return value


def in_range(indices: NDArray[np.int64], dataset: Dataset[Any]) -> NDArray[np.int64]:
    """What a sampler yields, as indices in [0, len) of a store: it is not looked at again.

    Args:
        indices: They may carry draws, or count from the end.
        dataset: Of which they are.

    Raises:
        IndexError: One is of another dataset.
    """
    count = len(dataset)  # type: ignore[arg-type]
    if are_in_range(indices, count):
        return indices
    given, (indices, draws) = indices, split_draws(indices)
    wrong = (indices < -count) | (indices >= count)
    if wrong.any():
        raise IndexError(
            f"the sampler yields {indices[wrong.argmax()]} for {dataset!r}, expected [0, {count})"
        )
    return given if draws is not None else np.where(indices < 0, indices + count, indices)


def all_in_range(
    parts: Iterable[NDArray[np.int64]], dataset: Dataset[Any]
) -> Iterator[NDArray[np.int64]]:
    """The indices of batches, each as `in_range` gives them."""
    count = len(dataset)  # type: ignore[arg-type]
    for indices in parts:
        yield indices if are_in_range(indices, count) else in_range(indices, dataset)


def inner(dataset: Dataset[Any]) -> Dataset[Any]:
    """The dataset itself, of one that a loader shows."""
    if type(dataset) is ServedDataset:
        contents: Contents = dataset._contents
        return contents.dataset
    return dataset


def served(contents: Contents, total: int | None = None) -> Dataset[Any]:
    """The dataset that a loader shows: itself, where nothing is added to what it gives.

    Args:
        contents: The loader's contents.
        total: Samples of an epoch over all ranks; None where that is not known.
    """
    dataset = contents.dataset
    total = None if total == len(dataset) else total  # type: ignore[arg-type]
    adds = contents.ops or contents.pad or total is not None
    if isinstance(dataset, LMDBDataset) and dataset.is_plain and not adds:
        return dataset
    return ServedDataset(contents, total)
