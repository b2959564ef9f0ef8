"""Positions -> one batch: all that it needs is asked for at once, and each field made of what came.

Fields of fixed size come by one gather, scalars by one look-up in the index; images with operations
go from the store's bytes to their place in the batch, written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from readers.ops.followers import Followers
from readers.reading.buffers import SMALL_BYTES, BufferPool, take_plain, take_pooled
from readers.reading.even_sizes import EvenFields
from readers.reading.fixed_batches import FixedBatches, parts_of_batch, scalar_column
from readers.reading.gather import Gatherer, empty_batch
from readers.reading.request import RECORDS, Extent, Request
from readers.reading.samples import GatheredSamples
from readers.reading.show import Shows, images_shown
from readers.reading.view import StoreView
from readers.reading.worked_images import ImageOps, WorkedImages
from readers.stats import Watch
from readers.store.errors import CodecError, ImageError
from readers.store.reader import Located
from readers.store.record import RecordReader
from readers.store.record_bytes import Pieces
from readers.store.schema import Field, field_bytes

if TYPE_CHECKING:
    # It loads OpenCV, which a dataset without operations has no use for.
    from readers.ops.image_plan import ImagePlan, Params

Take = Callable[[int], torch.Tensor]
"""Gives so many uninitialised bytes, as a uint8 tensor."""

_Fixed = tuple[Field, Extent, int]

_IMAGES = "<images>"
"""Among what is asked for by the names of fields, as `RECORDS` is."""


@dataclass(kw_only=True, eq=False)
class PreparedBatch:
    """Samples that were found, and what they need.

    Attributes:
        positions: Of the samples in the store.
        located: The samples.
        params: What is done to their images, if anything is.
        fixed: Fields that have one size in this batch, with their place in a record and bytes.
        ragged: Names of the others, which are taken out of whole records.
        request: What is needed of their records.
    """

    positions: NDArray[np.int64]
    located: Located
    params: Params | None
    fixed: list[_Fixed]
    ragged: list[str]
    request: Request


class _WholeReader(NamedTuple):
    """What takes fields out of whole records."""

    unpack: Callable[[memoryview], dict[str, Any]]
    show: Shows


class BatchReader:
    """Reads batches of a view.

    Args:
        view: Which samples and fields.
        ops: Operations on its images.

    Attributes:
        images: What carries the operations out, if there are any.
        is_fixed: Whether all fields have one size, and lie in mapped files.
    """

    def __init__(self, view: StoreView, ops: ImageOps | None = None) -> None:
        self._view = view
        self._ops = ops
        self.images = None if ops is None else WorkedImages(view, ops)
        layout = view.store.layout
        schema = layout.schema
        fields = [schema[name] for name in view.fields]
        self._followers = None if ops is None else Followers(schema, view.fields, ops.plan)
        self._masks = [] if self._followers is None else self._followers.masks
        extra = [] if self._followers is None else self._followers.extra
        worked = None if ops is None else ops.field
        rest = [f for f in fields if f.name != worked and f not in self._masks]
        self._scalars = [field for field in rest if field.is_scalar]
        # With their place in a record, and their bytes.
        self._fixed: list[_Fixed] = [
            (field, layout.fixed_offsets[field.name], field_bytes(field))
            for field in rest
            if field.is_fixed and not field.is_scalar
        ]
        self._ragged = [field.name for field in rest if not field.is_fixed] + extra
        self._ragged += [field.name for field in self._masks]
        # With operations records are read whole anyway, or windows of their images alone.
        self._even = EvenFields(layout, self._ragged if ops is None else [])
        self._whole: dict[tuple[str, ...], _WholeReader] = {}
        self._fixed_batches: FixedBatches | None = None
        fixed = [field for field, _, _ in self._fixed]
        if ops is None and not self._ragged and FixedBatches.serves(view, fixed):
            self._fixed_batches = FixedBatches(view, self._scalars, fixed)
        self.is_fixed = self._fixed_batches is not None
        self._selection = view.selection
        self._gather = Gatherer()
        self._pools: dict[int, BufferPool] = {}

    def read(
        self,
        indices: NDArray[np.int64],
        epoch: int = 0,
        take: Take | None = None,
        watch: Watch | None = None,
        draws: NDArray[np.int64] | None = None,
        prepared: PreparedBatch | None = None,
    ) -> GatheredSamples:
        """The samples at `indices`, which are in [0, len(view)), as one batch.

        Args:
            indices: The samples' indices.
            epoch: On which the chances of operations depend, as they do on the sample.
            take: Gives memory for what is large in the batch. None: memory that is used again when
                the batch is gone; in a DataLoader's worker, shared memory.
            watch: Told where time goes.
            draws: On which they depend as well, if there are any; see `readers.chance.draws`.
            prepared: What `prepare` has given for them, which is used up.

        Raises:
            ShardError: A shard or record is missing or damaged.
        """
        take, counts = take or self._take, [len(indices)]
        watch = watch or Watch()
        (samples,) = self.read_parts(indices, counts, epoch, take, watch, draws, prepared)
        return samples

    def prepare(
        self, indices: NDArray[np.int64], epoch: int, draws: NDArray[np.int64] | None
    ) -> PreparedBatch:
        """Find the samples, and what is needed of their records. See `read`."""
        view, images = self._view, self.images
        positions = view.selection.positions(indices)
        located = view.store.located(positions)
        params = None if images is None else images.draw(located, positions, epoch, draws)
        even = self._even.of(located)
        ragged = [name for name in self._ragged if name not in even]
        fixed = [*self._fixed, *(self._as_fixed(name, *found) for name, found in even.items())]
        request = Request(located, is_whole=bool(ragged))
        for field, first, byte_count in fixed:
            request.add(field.name, first, byte_count)
        if images is not None and params is not None:
            request.add(_IMAGES, *images.place(located, params))
        return PreparedBatch(
            positions=positions,
            located=located,
            params=params,
            fixed=fixed,
            ragged=ragged,
            request=request,
        )

    def _take(self, byte_count: int) -> torch.Tensor:
        if get_worker_info() is not None:
            return empty_batch((byte_count,))
        return take_pooled(self._pools, byte_count, kept_count=2, is_pinned=False)

    def read_parts(
        self,
        indices: NDArray[np.int64],
        counts: list[int],
        epoch: int,
        take: Take,
        watch: Watch,
        draws: NDArray[np.int64] | None,
        prepared: PreparedBatch | None = None,
    ) -> list[GatheredSamples]:
        """Several batches, read together. Of so many samples each; else as `read`.

        NOTE [ a small tensor keeps no batch ]: labels are kept for a whole epoch, boxes are saved
        to a file. Over memory that they share with images they would keep it, and be saved with it.
        So each field of each batch has storage of its own: of a large field a part of the piece
        from `take` that it lies in, which ends where it ends; of a small one ordinary memory.
        """
        view = self._view
        if self.is_fixed and prepared is None:
            parts = self._read_fixed(indices, counts, take, watch)
        else:
            prepared = prepared or self.prepare(indices, epoch, draws)
            batch: dict[str, Any] = dict.fromkeys(view.fields)
            self._read_prepared(prepared, batch, indices, max(counts), take, watch)
            parts = [batch] if len(counts) == 1 else parts_of_batch(batch, counts)
        names, as_tuples = view.result_names, view.returns is not None
        as_numpy = view.image_as == "numpy"
        return [
            GatheredSamples(part, names, count, as_tuples=as_tuples, as_numpy=as_numpy)
            for part, count in zip(parts, counts, strict=True)
        ]

    def batches(
        self, indices: NDArray[np.int64], counts: list[int], take: Take, watch: Watch
    ) -> list[Any]:
        """What `collate` makes of `read_parts`, by a shorter way, where `is_fixed`."""
        parts, returns = self._read_fixed(indices, counts, take, watch), self._view.returns
        if returns is None:
            return parts
        return [tuple([part[name] for name in returns]) for part in parts]

    def _read_fixed(
        self, indices: NDArray[np.int64], counts: list[int], take: Take, watch: Watch
    ) -> list[dict[str, Any]]:
        assert self._fixed_batches is not None
        positions = self._selection.positions(indices)
        parts, waited = self._fixed_batches.read(positions, counts, take)
        watch.storage_batch_count += waited
        watch.lap("read")
        return parts

    def _read_prepared(
        self,
        prepared: PreparedBatch,
        batch: dict[str, Any],
        indices: NDArray[np.int64],
        count_max: int,
        take: Take,
        watch: Watch,
    ) -> None:
        """Put all fields of a batch that was prepared into it."""
        images = self.images
        positions, located, params = prepared.positions, prepared.located, prepared.params
        request = prepared.request

        for field in self._scalars:
            batch[field.name] = scalar_column(field, located.column(field.name))
        rows: dict[str, torch.Tensor] = {}
        for field, _, byte_count in prepared.fixed:
            is_small = byte_count * count_max < SMALL_BYTES
            memory = (take_plain if is_small else take)(len(positions) * byte_count)
            rows[field.name] = memory.view(len(positions), byte_count)
            request.put(field.name, rows[field.name])
        request.fetch(self._view.store.bytes)
        watch.storage_batch_count += request.waited
        watch.reads += request.reads

        for field, _, _ in prepared.fixed:
            gathered = self._gather(request.pieces(field.name), rows[field.name])
            batch[field.name] = self._values(field, gathered)
        watch.lap("read")
        if images is not None and params is not None and self._ops is not None:
            plan = self._ops.plan
            out = take(len(positions) * math.prod(plan.shape) * plan.dtype.itemsize)
            pieces, lengths = request.pieces(_IMAGES), request.lengths(_IMAGES)
            worked = images.write(pieces, lengths, indices, positions, params, out, watch)
            batch[self._ops.field] = images_shown(worked, self._view.image_as)
        if prepared.ragged:
            pieces, lengths = request.pieces(RECORDS), request.lengths(RECORDS)
            samples = self._samples(prepared.ragged, pieces, lengths, indices, positions, watch)
            for name in prepared.ragged:
                batch[name] = [sample[name] for sample in samples]
            watch.lap("decode")
        if self._followers is not None and params is not None and self._ops is not None:
            self._follow(self._followers, self._ops.plan, batch, params, take)
            watch.lap("transform")

    def _as_fixed(
        self, name: str, shape: tuple[int, ...], start: NDArray[np.int64], byte_count: int
    ) -> _Fixed:
        """A field of one size in this batch, like those of `_fixed`."""
        field = self._view.store.layout.schema[name]
        return msgspec.structs.replace(field, shape=shape), start, byte_count

    def _values(self, field: Field, rows: torch.Tensor) -> Any:
        """A field of fixed size of many samples: (sample, byte) -> (sample, ...)."""
        shape = (len(rows), *(side or 0 for side in field.shape))
        values = rows.view(-1).view(getattr(torch, field.dtype or "")).view(shape)
        return images_shown(values, self._view.image_as) if field.kind == "image" else values

    def _samples(
        self,
        names: list[str],
        pieces: Pieces,
        lengths: Extent,
        indices: NDArray[np.int64],
        positions: NDArray[np.int64],
        watch: Watch,
    ) -> list[dict[str, Any]]:
        """The fields without a fixed size, out of whole records, one by one."""
        memory = memoryview(pieces.memory)  # type: ignore[arg-type]
        ends = (pieces.starts + lengths).tolist()
        whole = self._whole.get(tuple(names))
        if whole is None:
            view = self._view
            unpack = RecordReader(view.store.layout, names).unpack
            whole = _WholeReader(unpack, Shows(view.store.layout.schema, names, view.image_as))
            self._whole[tuple(names)] = whole
        samples = []
        for row, (start, end) in enumerate(zip(pieces.starts.tolist(), ends, strict=True)):
            watch.sample(int(indices[row]))
            try:
                sample = whole.unpack(memory[start:end])
            except (CodecError, ImageError) as error:
                raise self._view.damaged(int(positions[row]), error) from error
            samples.append(whole.show(sample))
        return samples

    def _follow(
        self,
        followers: Followers,
        plan: ImagePlan,
        batch: dict[str, Any],
        params: Params,
        take: Take,
    ) -> None:
        """Move what follows the images, in place."""
        followers.move(batch, params)
        for field in self._masks:
            masks, dtype = batch[field.name], getattr(torch, field.dtype or "")
            shape = (len(masks), *plan.size)
            moved = take(math.prod(shape) * dtype.itemsize).view(dtype).view(shape)
            for row, (ids, place) in enumerate(zip(masks, moved.numpy(), strict=True)):
                followers.mask(ids, params, row, field, place)
            batch[field.name] = moved
        for name in followers.extra:
            del batch[name]
