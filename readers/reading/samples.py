"""The samples of one batch, with the fields that were gathered for all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import torch

Sample = dict[str, Any]


class GatheredSamples(Sequence[Any]):
    """A list of samples that knows it is a batch already.

    Our collate function takes the batch as it is, with no copy. To a user's own it is a sequence of
    samples, each equal to what the dataset gives for one index; they are made when asked for.

    Args:
        batch: Field -> values of all samples: a tensor with one row each, or a list.
        names: Fields of a sample, in order; a tuple is made of them when `as_tuples`.
        count: How many samples there are.
        as_tuples: Whether a sample is a tuple rather than a dict.
        as_numpy: Whether a sample's arrays are numpy's. A batch has tensors all the same.
    """

    def __init__(
        self,
        batch: dict[str, Any],
        names: tuple[str, ...],
        count: int,
        *,
        as_tuples: bool,
        as_numpy: bool = False,
    ) -> None:
        self._batch = batch
        self._names = names
        self._count = count
        self._as_tuples = as_tuples
        self._as_numpy = as_numpy
        self._made: list[Any] | None = None

    @staticmethod
    def joined(
        pieces: Sequence[GatheredSamples], join: Callable[[list[Any]], Any]
    ) -> GatheredSamples:
        """The samples of several pieces as one, whose fields are alike.

        Args:
            pieces: At least one.
            join: Makes one field of all samples of that of each piece.
        """
        first = pieces[0]
        return GatheredSamples(
            {name: join([piece._batch[name] for piece in pieces]) for name in first._batch},
            first._names,
            sum(map(len, pieces)),
            as_tuples=first._as_tuples,
            as_numpy=first._as_numpy,
        )

    def in_order(self) -> GatheredSamples:
        """The same samples, the tensors of the batch contiguous: images are channels-last else."""
        return GatheredSamples.joined(
            [self],
            lambda values: (
                values[0].contiguous() if isinstance(values[0], torch.Tensor) else values[0]
            ),
        )

    def collated(self, join: Callable[[list[Any]], Any] | None = None) -> Any:
        """The whole batch: a dict of fields, or a tuple of them.

        Args:
            join: Makes one value of a field that is a list; None leaves it.
        """
        values = [self._batch[name] for name in self._names]
        if join is not None:
            for at, column in enumerate(values):
                if isinstance(column, list):
                    values[at] = join(column)
        return tuple(values) if self._as_tuples else dict(zip(self._names, values, strict=True))

    def _samples(self) -> list[Any]:
        """All samples, made in one go: a field at a time is far quicker than a value at a time."""
        if self._made is None:
            columns = [self._values(self._batch[name]) for name in self._names]
            rows: Any = zip(*columns, strict=True) if columns else [()] * self._count
            if self._as_tuples:
                self._made = list(rows)
            else:
                self._made = [dict(zip(self._names, row, strict=True)) for row in rows]
        return self._made

    def _values(self, column: Any) -> Sequence[Any]:
        """One field's value for each sample."""
        if not isinstance(column, torch.Tensor):
            return column  # type: ignore[no-any-return]
        if column.ndim == 1:
            return column.tolist()
        return list(column.numpy()) if self._as_numpy else column.unbind(0)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return self._samples()[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._samples())
