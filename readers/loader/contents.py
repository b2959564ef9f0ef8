"""What a loader's batches are made of: a dataset, operations on its images, and who joins samples.

It settles who fills them. Samples that a store can give many at a time come from it directly, also
through torch's `Subset` and `ConcatDataset`; all others are asked of the dataset one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Dataset, Subset

from readers.chance.permutation import derived_words
from readers.dataset import LMDBDataset
from readers.ops.operations import ImageOp
from readers.reading.collate import collate
from readers.reading.even_sizes import shape_of_all
from readers.reading.filling import MapFiller, StoreFiller
from readers.reading.joined import JoinedFiller
from readers.reading.worked_images import ImageOps

Filler = StoreFiller | JoinedFiller | MapFiller

_TRANSFORMS = ("transform", "target_transform", "transforms")

_DEPTH_MAX = 8
"""Of datasets in datasets; more are a circle."""

_PARTS = 80
"""Purpose of random numbers; see `derived_words`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Contents:
    """What a loader's batches are made of.

    Attributes:
        dataset: Of samples.
        ops: Operations on its images.
        seed: Of what is random in them, and of the random numbers of processes.
        collate_fn: Joins samples.
        pad: Whether batches say which of their samples are `valid`.
    """

    dataset: Dataset[Any]
    ops: tuple[ImageOp, ...] = ()
    seed: int = 0
    collate_fn: Callable[[Any], Any] = collate
    pad: bool = False

    def transforms(self) -> tuple[Any, ...]:
        """The transforms of all datasets in it, which a user may change at any time."""
        return tuple(_transforms(self.dataset))

    def are_same(self, transforms: tuple[Any, ...]) -> bool:
        """Whether all transforms still are what `transforms` said."""
        now = self.transforms()
        return len(now) == len(transforms) and all(map(_is, now, transforms))

    def filler(self) -> Filler:
        """Who fills batches.

        Raises:
            ValueError: The operations cannot be carried out.
        """
        return self.filler_and_dataset()[0]

    def filler_and_dataset(self) -> tuple[Filler, Dataset[Any]]:
        """Who fills batches, and what with: a part of one store is a dataset of its own.

        Raises:
            ValueError: The operations cannot be carried out.
        """
        flat = self._stores()
        if flat is not None and flat.is_one:
            (store,) = flat.datasets
            return StoreFiller(store.view, image_ops(store, self.ops, self.seed)), store
        return self._other_filler(flat), self.dataset

    def _other_filler(self, flat: _Stores | None) -> Filler:
        if not self.ops:
            return MapFiller(self.dataset, self.collate_fn)
        if flat is None:
            raise ValueError(self._why_not())
        # The same place in another dataset is another sample, with chances of its own.
        others = derived_words(self.seed, 0, _PARTS, len(flat.datasets)).tolist()
        seeds = [self.seed, *others[1:]]
        pairs = zip(flat.datasets, seeds, strict=True)
        worked = [image_ops(dataset, self.ops, seed) for dataset, seed in pairs]
        _check_alike(flat.datasets, worked)
        fillers = [StoreFiller(of.view, op) for of, op in zip(flat.datasets, worked, strict=True)]
        return JoinedFiller(fillers, [len(of) for of in flat.datasets], flat.order)

    def _stores(self) -> _Stores | None:
        return _stores_of(self.dataset) if self.collate_fn is collate else None

    def _why_not(self) -> str:
        """Why operations cannot be carried out, and what to do instead."""
        needs = "ops work on an LMDBDataset without a transform and with our collate"
        if self.collate_fn is not collate:
            return (
                f"{needs}; got collate_fn={self.collate_fn!r}. Leave collate_fn out, and change "
                "the batches that the loader gives; or do what ops do in a transform"
            )
        stores = _stores_of(self.dataset, is_transformed_too=True)
        if stores and any(one.view.image_as == "tv_tensor" for one in stores.datasets):
            return (
                "ops make tensors; take image_as='tensor' or 'numpy', with which boxes, masks and "
                "points follow; or do what ops do in a transform"
            )
        if stores is not None:
            return (
                f"{needs}; got one with a transform. Put what ops do into the transform, or take "
                "the transform out (dataset.transform = None)"
            )
        return (
            f"{needs}, or a torch Subset or ConcatDataset of such; got "
            f"{_kinds(self.dataset)}. Give the LMDBDataset itself (for some of its samples: "
            "dataset.select(subset.indices)), or leave ops out"
        )


def _is(a: Any, b: Any) -> bool:
    return a is b


def _kinds(dataset: Dataset[Any]) -> str:
    """What a dataset is, and what is in it."""
    name = type(dataset).__name__
    if type(dataset) is Subset:
        return f"{name} of {_kinds(dataset.dataset)}"
    if type(dataset) is ConcatDataset:
        return f"{name} of {', '.join(dict.fromkeys(map(_kinds, dataset.datasets)))}"
    return name


def _transforms(dataset: Any, depth: int = 0) -> list[Any]:
    """What is done to samples by a dataset and those in it, under the names that are usual."""
    found = [getattr(dataset, name, None) for name in _TRANSFORMS]
    inside = dataset.datasets if isinstance(dataset, ConcatDataset) else ()
    kept = getattr(dataset, "__dict__", {}) if not isinstance(dataset, LMDBDataset) else {}
    for one in (*inside, *kept.values()):
        if isinstance(one, Dataset) and depth < _DEPTH_MAX:
            found += _transforms(one, depth + 1)
    return found


class _Stores(NamedTuple):
    """Datasets of stores, one behind the other.

    Attributes:
        datasets: At least one.
        order: For each sample, where it is in the datasets; None where it is all, as they are.
    """

    datasets: list[LMDBDataset]
    order: NDArray[np.int64] | None

    @property
    def is_one(self) -> bool:
        """Whether it is one dataset as it is."""
        return len(self.datasets) == 1 and self.order is None


def _stores_of(dataset: Dataset[Any], *, is_transformed_too: bool = False) -> _Stores | None:
    """The stores that a dataset is made of.

    None where Python has a hand in its samples: a transform, or a class of the user's.

    Args:
        dataset: Of samples.
        is_transformed_too: Whether a transform is not looked at.
    """
    if isinstance(dataset, LMDBDataset):
        is_plain = dataset.is_plain or (is_transformed_too and not dataset.is_overridden)
        return _Stores([dataset], None) if is_plain else None
    if type(dataset) is Subset:
        inner = _stores_of(dataset.dataset, is_transformed_too=is_transformed_too)
        if inner is None:
            return None
        count = sum(map(len, inner.datasets)) if inner.order is None else len(inner.order)
        chosen = _whole_numbers(dataset.indices, count)
        if chosen is None:
            return None
        if inner.is_one:
            return _Stores([inner.datasets[0].select(chosen)], None)
        return _Stores(inner.datasets, chosen if inner.order is None else inner.order[chosen])
    if type(dataset) is ConcatDataset:
        given = {"is_transformed_too": is_transformed_too}
        parts = [_stores_of(part, **given) for part in dataset.datasets]
        found = [part for part in parts if part is not None]
        return _behind_each_other(found) if len(found) == len(parts) else None
    return None


def _behind_each_other(parts: list[_Stores]) -> _Stores:
    datasets = [dataset for part in parts for dataset in part.datasets]
    if all(part.order is None for part in parts):
        return _Stores(datasets, None)
    orders, before = [], 0
    for part in parts:
        count = sum(map(len, part.datasets))
        order = np.arange(count, dtype=np.int64) if part.order is None else part.order
        orders.append(order + before)
        before += count
    return _Stores(datasets, np.concatenate(orders))


def _whole_numbers(indices: Sequence[int], count: int) -> NDArray[np.int64] | None:
    """A subset's indices, counted from the start; None where they are something else."""
    array = np.asarray(indices)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        return None
    array = array.astype(np.int64)
    if ((array < -count) | (array >= count)).any():
        return None  # The dataset says so itself when it is asked.
    return np.where(array < 0, array + count, array)


def _check_alike(datasets: Sequence[LMDBDataset], worked: Sequence[ImageOps | None]) -> None:
    """Samples of several stores make one batch if they are alike.

    Raises:
        ValueError: They are not.
    """
    found = []
    for dataset, ops in zip(datasets, worked, strict=True):
        view = dataset.view
        assert ops is not None
        kind = (ops.plan.shape, ops.plan.dtype.name)
        found.append((view.fields, view.returns, view.image_as, ops.field, kind))
    names = ("fields", "returns", "image_as", "the image field", "the images (shape, element type)")
    for dataset, facts in zip(datasets[1:], found[1:], strict=True):
        for name, first, other in zip(names, found[0], facts, strict=True):
            if first != other:
                raise ValueError(
                    f"ops work on datasets of one kind, and {name} differ: {first!r} of "
                    f"{datasets[0].view.path}, {other!r} of {dataset.view.path}. Make them alike "
                    "with fields=, returns= and image_as="
                )


def image_ops(dataset: LMDBDataset, ops: Sequence[ImageOp], seed: int) -> ImageOps | None:
    """The operations, worked out for the dataset's images.

    Raises:
        ValueError: They cannot be carried out on these.
    """
    if not ops:
        return None
    from readers.ops.image_plan import compile_ops  # Loads OpenCV.
    from readers.ops.table import SIZE_ROWS

    view = dataset.view
    images = [f for f in dataset.schema.fields if f.kind == "image" and f.name in view.fields]
    if len(images) != 1:
        names = [field.name for field in images]
        raise ValueError(f"ops need one image among the fields; got {names!r}. Choose with fields=")
    field = images[0]
    if field.dtype is None or field.shape[2] is None:
        raise ValueError(
            f"ops need images of one kind, and each sample of {field.name!r} has its own channels "
            "and element type. Build the store with --mode rgb"
        )
    if view.image_as == "pil":
        raise ValueError("ops make tensors; take image_as='tensor' or 'numpy'")
    height, width, channel_count = field.shape
    size = None if height is None or width is None else (height, width)
    if size is None and not isinstance(ops[0], tuple(SIZE_ROWS)):
        # Such ops need images of one size, which these may have all the same.
        shape = shape_of_all(view, field)
        size = None if shape is None else (shape[0], shape[1])
    plan = compile_ops(ops, channel_count or 0, field.dtype, image_size=size)
    return ImageOps(field.name, plan, seed)
