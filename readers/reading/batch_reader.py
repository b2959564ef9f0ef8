"""Positions -> one batch: all that it needs is asked for at once, and each field made of what came.

Fields of fixed size come by one gather, scalars by one look-up in the index; images with operations
go from the store's bytes to their place in the batch, written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from readers.ops.followers import Followers
from readers.reading.buffers import SMALL_BYTES, BufferPool, take_plain, take_pooled
from readers.reading.gather import Gatherer, empty_batch
from readers.reading.request import RECORDS, Extent, Request
from readers.reading.samples import GatheredSamples
from readers.reading.show import Shows, pil_image
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

_IMAGES = "<images>"
"""Among what is asked for by the names of fields, as `RECORDS` is."""


@dataclass(kw_only=True, eq=False)
class PreparedBatch:
    """Samples that were found, and what they need.

    Attributes:
        positions: Of the samples in the store.
        located: The samples.
        params: What is done to their images, if anything is.
        request: What is needed of their records.
    """

    positions: NDArray[np.int64]
    located: Located
    params: Params | None
    request: Request


class BatchReader:
    """Reads batches of a view.

    Args:
        view: Which samples and fields.
        ops: Operations on its images.

    Attributes:
        images: What carries the operations out, if there are any.
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
        self._fixed = [
            (field, layout.fixed_offsets[field.name], field_bytes(field))
            for field in rest
            if field.is_fixed and not field.is_scalar
        ]
        self._ragged = [field.name for field in rest if not field.is_fixed] + extra
        self._ragged += [field.name for field in self._masks]
        self._unpack = RecordReader(layout, self._ragged).unpack
        self._show = Shows(schema, self._ragged, view.image_as)
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
        request = Request(located, is_whole=bool(self._ragged))
        for field, offset, byte_count in self._fixed:
            request.add(field.name, offset, byte_count)
        if images is not None and params is not None:
            request.add(_IMAGES, *images.place(located, params))
        return PreparedBatch(positions=positions, located=located, params=params, request=request)

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
        view, images = self._view, self.images
        prepared = prepared or self.prepare(indices, epoch, draws)
        positions, located, params = prepared.positions, prepared.located, prepared.params
        request = prepared.request

        batch: dict[str, Any] = dict.fromkeys(view.fields)
        for field in self._scalars:
            batch[field.name] = _column(located, field)
        rows: dict[str, torch.Tensor] = {}
        for field, _, byte_count in self._fixed:
            is_small = byte_count * max(counts) < SMALL_BYTES
            memory = (take_plain if is_small else take)(len(positions) * byte_count)
            rows[field.name] = memory.view(len(positions), byte_count)
            request.put(field.name, rows[field.name])
        request.fetch(view.store.bytes)
        watch.storage_batch_count += request.waited
        watch.reads += request.reads

        for field, _, _ in self._fixed:
            gathered = self._gather(request.pieces(field.name), rows[field.name])
            batch[field.name] = self._values(field, gathered)
        watch.lap("read")
        if images is not None and params is not None and self._ops is not None:
            plan = self._ops.plan
            out = take(len(positions) * math.prod(plan.shape) * plan.dtype.itemsize)
            pieces, lengths = request.pieces(_IMAGES), request.lengths(_IMAGES)
            worked = images.write(pieces, lengths, indices, positions, params, out, watch)
            batch[self._ops.field] = self._images(worked)
        if self._ragged:
            pieces, lengths = request.pieces(RECORDS), request.lengths(RECORDS)
            samples = self._samples(pieces, lengths, indices, positions, watch)
            for name in self._ragged:
                batch[name] = [sample[name] for sample in samples]
            watch.lap("decode")
        if self._followers is not None and params is not None and self._ops is not None:
            self._follow(self._followers, self._ops.plan, batch, params, take)
            watch.lap("transform")

        bounds = list(pairwise(accumulate(counts, initial=0)))
        parts = {name: _cut(values, bounds) for name, values in batch.items()}
        return [
            GatheredSamples(
                {name: values[turn] for name, values in parts.items()},
                view.result_names,
                count,
                as_tuples=view.returns is not None,
                as_numpy=view.image_as == "numpy",
            )
            for turn, count in enumerate(counts)
        ]

    def _values(self, field: Field, rows: torch.Tensor) -> Any:
        """A field of fixed size of many samples: (sample, byte) -> (sample, ...)."""
        shape = (len(rows), *(side or 0 for side in field.shape))
        values = rows.view(-1).view(getattr(torch, field.dtype or "")).view(shape)
        return self._images(values) if field.kind == "image" else values

    def _images(self, pixels: torch.Tensor) -> Any:
        """(sample, height, width, channel) as the view wants images."""
        if self._view.image_as == "numpy":
            return pixels
        if self._view.image_as == "pil":
            return [pil_image(image) for image in pixels.numpy()]
        return pixels.permute(0, 3, 1, 2)

    def _samples(
        self,
        pieces: Pieces,
        lengths: Extent,
        indices: NDArray[np.int64],
        positions: NDArray[np.int64],
        watch: Watch,
    ) -> list[dict[str, Any]]:
        """The fields without a fixed size, out of whole records, one by one."""
        memory = memoryview(pieces.memory)  # type: ignore[arg-type]
        ends = (pieces.starts + lengths).tolist()
        samples = []
        for row, (start, end) in enumerate(zip(pieces.starts.tolist(), ends, strict=True)):
            watch.sample(int(indices[row]))
            try:
                sample = self._unpack(memory[start:end])
            except (CodecError, ImageError) as error:
                raise self._view.damaged(int(positions[row]), error) from error
            samples.append(self._show(sample))
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


def _column(located: Located, field: Field) -> Any:
    """A scalar field of many samples: a tensor, or a list of names."""
    values = located.column(field.name)
    if field.kind == "scalar" and field.names is not None:
        return [field.names[value] for value in values.tolist()]
    return torch.from_numpy(values)


def _cut(values: Any, bounds: list[tuple[int, int]]) -> list[Any]:
    """Parts of a field: NOTE [ a small tensor keeps no batch ]."""
    if len(bounds) == 1:
        return [values]
    if not isinstance(values, torch.Tensor):
        return [values[start:end] for start, end in bounds]
    # Slices of the tensor would have all of its storage.
    array = values.numpy()
    parts = [array[start:end] for start, end in bounds]
    if max(part.nbytes for part in parts) < SMALL_BYTES:
        parts = [part.copy(order="K") for part in parts]
    return [torch.from_numpy(part) for part in parts]
