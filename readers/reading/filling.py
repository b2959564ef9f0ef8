"""Indices -> one batch, in memory that the caller chooses. Both engines fill their batches here.

Fields of fixed size come by one gather, scalars by one look-up in the index; images with operations
go from the mapped store to their place in the batch, written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, get_worker_info

from readers.chance.draws import INDEX_BITS, split_draws
from readers.ops.followers import Followers
from readers.reading.buffers import SMALL_BYTES, BufferPool, take_plain, take_pooled
from readers.reading.collate import collate
from readers.reading.gather import empty_batch, gather
from readers.reading.jpeg_window import WindowDecoder, load
from readers.reading.page_in import page_in
from readers.reading.samples import GatheredSamples
from readers.reading.show import SampleReader, pil_image
from readers.reading.view import StoreView
from readers.stats import Watch
from readers.store.errors import CodecError, ImageError
from readers.store.reader import Located, StoreReader
from readers.store.record import RecordReader
from readers.store.schema import Field, field_bytes
from readers.store.shard_reader import ShardReader

if TYPE_CHECKING:
    # It loads OpenCV, which a dataset without operations has no use for.
    from readers.ops.image_plan import ImagePlan, Params

Take = Callable[[int], torch.Tensor]
"""Gives so many uninitialised bytes, as a uint8 tensor."""

_JPEG_START = b"\xff\xd8\xff"


class ImageOps:
    """Operations on a field of images, as one batch after another is filled.

    Args:
        field: Name of the field.
        plan: What is done.
        seed: Of what is random in it.
    """

    def __init__(self, field: str, plan: ImagePlan, seed: int) -> None:
        self.field = field
        self.plan = plan
        self.seed = seed


class BatchReader:
    """Reads batches of a view.

    Args:
        view: Which samples and fields.
        ops: Operations on its images.
    """

    def __init__(self, view: StoreView, ops: ImageOps | None = None) -> None:
        self._view = view
        self._ops = ops
        self.windows: WindowDecoder | None = None
        schema = view.store.manifest.schema
        fields = [schema[name] for name in view.fields]
        worked = None if ops is None else ops.field
        self._image = None if worked is None else schema[worked]
        self._followers = None if ops is None else Followers(schema, view.fields, ops.plan)
        self._masks = [] if self._followers is None else self._followers.masks
        extra = [] if self._followers is None else self._followers.extra
        rest = [f for f in fields if f.name != worked and f not in self._masks]
        self._scalars = [field for field in rest if field.is_scalar]
        self._fixed = [field for field in rest if field.is_fixed and not field.is_scalar]
        self._ragged = [field.name for field in rest if not field.is_fixed] + extra
        self._ragged += [field.name for field in self._masks]
        self._readers: tuple[SampleReader, RecordReader | None] | None = None
        self._pools: dict[int, BufferPool] = {}

    def read(
        self,
        indices: NDArray[np.int64],
        epoch: int = 0,
        take: Take | None = None,
        watch: Watch | None = None,
        draws: NDArray[np.int64] | None = None,
    ) -> GatheredSamples:
        """The samples at `indices`, which are in [0, len(view)), as one batch.

        Args:
            indices: Of the samples.
            epoch: On which the chances of operations depend, as they do on the sample.
            take: Gives memory for what is large in the batch. None: memory that is used again when
                the batch is gone; in a DataLoader's worker, shared memory.
            watch: Told where time goes.
            draws: On which they depend as well, if there are any; see `readers.chance.draws`.

        Raises:
            ShardError: A shard or record is missing or damaged.
        """
        take = take or self._take
        (samples,) = self.read_parts(indices, [len(indices)], epoch, take, watch or Watch(), draws)
        return samples

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
    ) -> list[GatheredSamples]:
        """Several batches, read together. Of so many samples each; else as `read`.

        NOTE [ a small tensor keeps no batch ]: labels are kept for a whole epoch, boxes are saved
        to a file. Over memory that they share with images they would keep it, and be saved with it.
        So each field of each batch has storage of its own: of a large field a part of the piece
        from `take` that it lies in, which ends where it ends; of a small one ordinary memory.
        """
        watch.start()
        view, store = self._view, self._view.store
        ends = np.cumsum(counts, dtype=np.int64).tolist()
        positions = view.selection.positions(indices)
        located = store.located(positions)
        starts, lengths = located.spans()
        if page_in(store.range, starts, lengths):
            watch.storage_batch_count += 1
        batch: dict[str, Any] = dict.fromkeys(view.fields)
        for field in self._scalars:
            batch[field.name] = self._column(located, field)
        for field in self._fixed:
            is_small = field_bytes(field) * max(counts) < SMALL_BYTES
            batch[field.name] = self._rows(store, field, starts, take_plain if is_small else take)
        watch.lap("read")
        params = None
        if self._ops is not None:
            params = self._drawn(self._ops, located, positions, epoch, draws)
            batch[self._ops.field] = self._worked(
                self._ops, store, indices, positions, (starts, lengths), params, take, watch
            )
        if self._ragged:
            samples = self._ragged_samples(indices, positions, watch)
            for name in self._ragged:
                batch[name] = [sample[name] for sample in samples]
            watch.lap("decode")
        if self._followers is not None and params is not None:
            self._followers.move(batch, params)
            for field in self._masks:
                batch[field.name] = self._moved_masks(field, batch[field.name], params, take)
            for name in self._followers.extra:
                del batch[name]
            watch.lap("transform")
        bounds = list(zip([0, *ends[:-1]], ends, strict=True))
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

    @staticmethod
    def _column(located: Located, field: Field) -> Any:
        """A scalar field of many samples: a tensor, or a list of names."""
        values = located.column(field.name)
        if field.kind == "scalar" and field.names is not None:
            return [field.names[value] for value in values.tolist()]
        return torch.from_numpy(values)

    def _rows(self, store: StoreReader, field: Field, starts: NDArray[np.int64], take: Take) -> Any:
        """A field of fixed size of many samples, gathered: (sample, ...)."""
        byte_count = field_bytes(field)
        out = take(len(starts) * byte_count)
        rows = out.view(len(starts), byte_count)
        gather(self._view.data, starts + store.layout.fixed_offsets[field.name], byte_count, rows)
        shape = (len(starts), *(side or 0 for side in field.shape))
        values = out.view(getattr(torch, field.dtype or "")).view(shape)
        if field.kind != "image":
            return values
        return self._images(values)

    def _images(self, pixels: torch.Tensor) -> Any:
        """(sample, height, width, channel) as the view wants images."""
        if self._view.image_as == "numpy":
            return pixels
        if self._view.image_as == "pil":
            return [pil_image(image) for image in pixels.numpy()]
        return pixels.permute(0, 3, 1, 2)

    def _opened_readers(self) -> tuple[SampleReader, RecordReader | None]:
        if self._readers is None:
            store, view = self._view.store, self._view
            image = None
            if self._ops is not None:
                image = RecordReader(store.layout, (self._ops.field,), copies=False)
            self._readers = SampleReader(store, self._ragged, view.image_as), image
        return self._readers

    def _ragged_samples(
        self, indices: NDArray[np.int64], positions: NDArray[np.int64], watch: Watch
    ) -> list[dict[str, Any]]:
        reader = self._opened_readers()[0]
        samples = []
        for index, position in zip(indices.tolist(), positions.tolist(), strict=True):
            watch.sample(index)
            samples.append(reader.at(position))
        return samples

    def _drawn(
        self,
        ops: ImageOps,
        located: Located,
        positions: NDArray[np.int64],
        epoch: int,
        draws: NDArray[np.int64] | None,
    ) -> Params:
        """What is done to each image."""
        image = self._image
        assert image is not None
        heights, widths = (
            located.column(f"{image.name}.{name}") if side is None else side
            for name, side in zip(("height", "width"), image.shape, strict=False)
        )
        # Chances follow the sample, not its place in a split or choice of samples.
        drawn = positions if draws is None else positions | draws << INDEX_BITS
        return ops.plan.draw(heights, widths, ops.seed, epoch, drawn)

    def _moved_masks(
        self, field: Field, masks: list[Any], params: Params, take: Take
    ) -> torch.Tensor:
        """Masks where their images went, (sample, height, width)."""
        assert self._ops is not None
        assert self._followers is not None
        dtype = getattr(torch, field.dtype or "")
        batch = _taken((len(masks), *self._ops.plan.size), dtype, take)
        for row, (ids, place) in enumerate(zip(masks, batch.numpy(), strict=True)):
            self._followers.mask(ids, params, row, field, place)
        return batch

    def _worked(
        self,
        ops: ImageOps,
        store: StoreReader,
        indices: NDArray[np.int64],
        positions: NDArray[np.int64],
        spans: tuple[NDArray[np.int64], NDArray[np.int64]],
        params: Params,
        take: Take,
        watch: Watch,
    ) -> Any:
        """The images after operations, each written once into its place."""
        plan, image = ops.plan, self._image
        assert image is not None
        images = _taken((len(positions), *plan.shape), getattr(torch, plan.dtype.name), take)
        batch = images.numpy()
        if self._has_known_places(store, image):
            self._work_on_mapped(store, image, indices, spans, params, batch, watch)
        else:
            self._work_on_records(store, image, indices, positions, params, batch, watch)
        return self._images(images)

    @staticmethod
    def _has_known_places(store: StoreReader, image: Field) -> bool:
        """Whether it follows from its size where an image lies in its record.

        That of a fixed field is the same in all; the last variable field ends with the record.
        """
        variable = store.layout.variable_fields
        return image.codec == "raw" and (image.is_fixed or variable[-1] == image.name)

    def _work_on_mapped(
        self,
        store: StoreReader,
        image: Field,
        indices: NDArray[np.int64],
        spans: tuple[NDArray[np.int64], NDArray[np.int64]],
        params: Params,
        batch: NDArray[Any],
        watch: Watch,
    ) -> None:
        """Straight from the mapped shards: a slice is all the Python for each image."""
        assert self._ops is not None
        plan, data = self._ops.plan, store.range.data
        starts, lengths = spans
        shapes = np.concatenate(
            [params.sizes, np.full((len(params), 1), plan.shape[2])], axis=1, dtype=np.int64
        )
        byte_counts = shapes.prod(axis=1) * plan.dtype.itemsize
        if image.is_fixed:
            starts = starts + store.layout.fixed_offsets[image.name]
        else:
            # Extents were held against the lengths of records when the shard was opened.
            starts = starts + lengths - byte_counts
        ends = (starts + byte_counts).tolist()
        rows = zip(indices.tolist(), starts.tolist(), ends, shapes.tolist(), strict=True)
        watch.lap("read")
        for row, (index, start, end, shape) in enumerate(rows):
            watch.sample(index)
            pixels = data[start:end].view(plan.dtype).reshape(shape)
            plan.apply(pixels, params, row, batch[row])
        watch.lap("transform")

    def _work_on_records(
        self,
        store: StoreReader,
        image: Field,
        indices: NDArray[np.int64],
        positions: NDArray[np.int64],
        params: Params,
        batch: NDArray[Any],
        watch: Watch,
    ) -> None:
        """From records whose image has to be found or decoded first."""
        assert self._ops is not None
        plan, reader = self._ops.plan, self._opened_readers()[1]
        assert reader is not None
        windows = self.windows if image.codec != "raw" and image.mode == "rgb" else None
        rows = zip(indices.tolist(), positions.tolist(), strict=True)
        for row, (index, position) in enumerate(rows):
            watch.sample(index)
            shard, place = store.locate(position)
            try:
                found = None
                if windows is not None:
                    found = self._window(windows, shard, place, reader, params, row)
                if found is None:
                    pixels = reader.unpack(shard.record(place))[image.name]
            except (CodecError, ImageError) as error:
                raise self._view.damaged(shard, place, error) from error
            watch.lap("decode")
            if found is None:
                plan.apply(pixels, params, row, batch[row])
            else:
                plan.apply_window(found, params, row, batch[row])
            watch.lap("transform")

    @staticmethod
    def _window(
        windows: WindowDecoder,
        shard: ShardReader,
        place: int,
        reader: RecordReader,
        params: Params,
        row: int,
    ) -> NDArray[np.uint8] | None:
        """The window of a JPEG that an operation uses, or None when all of the image is needed."""
        data, orientation = reader.encoded(shard.record(place))
        if orientation != 1 or data[:3] != _JPEG_START:
            return None
        # Only bytes that were decoded once, when they were stored: NOTE [ errors of libjpeg ].
        shard.check_record(place)
        size = tuple(params.sizes[row].tolist())
        return windows.decode(bytes(data), size, tuple(params.windows[row].tolist()))


def _taken(shape: tuple[int, ...], dtype: torch.dtype, take: Take) -> torch.Tensor:
    """Uninitialised memory for a field of many samples."""
    return take(math.prod(shape) * dtype.itemsize).view(dtype).view(shape)


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


class StoreFiller:
    """Batches of a store, for the engines.

    Args:
        view: Which samples and fields.
        ops: Operations on its images.
    """

    def __init__(self, view: StoreView, ops: ImageOps | None = None) -> None:
        self._view = view
        self._ops = ops
        self._reader: BatchReader | None = None
        self._is_in_worker = False

    def __getstate__(self) -> dict[str, Any]:
        """Settings alone."""
        return {**self.__dict__, "_reader": None}

    def enter_worker(self) -> None:
        """From now on this is a loader worker, which may end when native code cannot go on."""
        self._is_in_worker = True
        self._reader = None

    def _opened(self) -> BatchReader:
        if self._reader is None:
            reader = BatchReader(self._view, self._ops)
            if self._is_in_worker and self._ops is not None:
                field = self._view.store.manifest.schema[self._ops.field]
                reader.windows = load() if field.codec != "raw" else None
            self._reader = reader
        return self._reader

    def samples(self, indices: NDArray[np.int64], epoch: int, watch: Watch) -> GatheredSamples:
        """The samples of one batch, in memory of the reader: for other loaders than ours.

        Args:
            indices: They may carry draws.
            epoch: Its number.
            watch: Told where time goes.
        """
        indices, draws = split_draws(indices)
        return self._opened().read(indices, epoch, None, watch, draws)

    def fill(self, indices: NDArray[np.int64], epoch: int, take: Take, watch: Watch) -> Any:
        """One batch, its tensors in memory from `take`."""
        indices, draws = split_draws(indices)
        samples = self._opened().read(indices, epoch, take, watch, draws)
        batch = collate(samples)
        watch.lap("collate")
        return batch

    def fill_group(
        self, parts: list[NDArray[np.int64]], epoch: int, take: Take, watch: Watch
    ) -> list[Any]:
        """Several batches by one call: small ones are cheaper together."""
        if len(parts) == 1:
            return [self.fill(parts[0], epoch, take, watch)]
        indices, draws = split_draws(np.concatenate(parts))
        counts = [len(part) for part in parts]
        read = self._opened().read_parts(indices, counts, epoch, take, watch, draws)
        batches = [collate(samples) for samples in read]
        watch.lap("collate")
        return batches


class MapFiller:
    """Batches of any map-style dataset: its samples one by one, joined.

    Args:
        dataset: Yields samples by index.
        collate_fn: Joins them.
    """

    def __init__(self, dataset: Dataset[Any], collate_fn: Callable[[Any], Any] = collate) -> None:
        self._dataset = dataset
        self._collate = collate_fn

    def enter_worker(self) -> None:
        """From now on this is a loader worker."""

    def samples(self, indices: NDArray[np.int64], epoch: int, watch: Watch) -> list[Any]:
        """The samples of one batch, for other loaders than ours."""
        return [self._dataset[index] for index in split_draws(indices)[0].tolist()]

    def fill(self, indices: NDArray[np.int64], epoch: int, take: Take, watch: Watch) -> Any:
        """One batch. What is not in memory from `take` is copied there by who needs it to be."""
        watch.start()
        samples = []
        for index in split_draws(indices)[0].tolist():
            watch.sample(index)
            samples.append(self._dataset[index])
        watch.lap("transform")
        batch = self._collate(samples)
        watch.lap("collate")
        return batch

    def fill_group(
        self, parts: list[NDArray[np.int64]], epoch: int, take: Take, watch: Watch
    ) -> list[Any]:
        """Several batches."""
        return [self.fill(indices, epoch, take, watch) for indices in parts]
