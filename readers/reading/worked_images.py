"""Images of a batch after a loader's operations: out of the bytes of records, each written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from readers.chance.draws import INDEX_BITS
from readers.ops.reduced import reduced_window
from readers.reading.jpeg_window import WindowDecoder, load
from readers.reading.view import StoreView
from readers.stats import Watch
from readers.store.errors import CodecError, ImageError
from readers.store.pictures.reduction import reduced_starts
from readers.store.reader import Located
from readers.store.record import RecordReader
from readers.store.record_bytes import Pieces

if TYPE_CHECKING:
    # It loads OpenCV, which a dataset without operations has no use for.
    from readers.ops.image_plan import ImagePlan, Params

_JPEG_START = b"\xff\xd8\xff"

_Write: TypeAlias = Callable[[NDArray[Any], "Params", int, NDArray[Any]], None]
"""Writes pixels as the row of parameters says, to their place in the batch."""


class _Jpeg(NamedTuple):
    """A stored JPEG.

    Attributes:
        record: That it is in.
        data: Its bytes.
        orientation: EXIF orientation to apply.
        position: Of the sample in the store.
        size: (height, width) of the upright picture.
    """

    record: memoryview
    data: memoryview
    orientation: int
    position: int
    size: tuple[int, int]


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


class WorkedImages:
    """Carries operations out for the batches of a view.

    Args:
        view: The store's view.
        ops: What is done.

    Attributes:
        windows: Decodes the windows of JPEGs, where that is allowed.
    """

    def __init__(self, view: StoreView, ops: ImageOps) -> None:
        self._view = view
        self._plan = ops.plan
        self._seed = ops.seed
        layout = view.store.layout
        self._field = field = layout.schema[ops.field]
        self.windows: WindowDecoder | None = None
        # It follows from its size where an image lies in its record: that of a fixed field is the
        # same in all, and the last variable field ends with the record.
        is_last = field.is_fixed or layout.variable_fields[-1] == field.name
        self._has_known_place = field.codec == "raw" and is_last
        self._fixed_offset = layout.fixed_offsets.get(field.name)
        self._reader = RecordReader(layout, (field.name,), copies=False)

    def allow_windows(self) -> None:
        """Decode windows of JPEGs alone from now on: NOTE [ errors of libjpeg ] says where."""
        if self._field.codec != "raw" and self._field.mode == "rgb":
            self.windows = load()

    def draw(
        self,
        located: Located,
        positions: NDArray[np.int64],
        epoch: int,
        draws: NDArray[np.int64] | None,
    ) -> Params:
        """What is done to each image."""
        heights, widths = (
            located.column(f"{self._field.name}.{name}") if side is None else side
            for name, side in zip(("height", "width"), self._field.shape, strict=False)
        )
        # Chances follow the sample, not its place in a split or choice of samples.
        drawn = positions if draws is None else positions | draws << INDEX_BITS
        return self._plan.draw(heights, widths, self._seed, epoch, drawn)

    def place(
        self, located: Located, params: Params
    ) -> tuple[NDArray[np.int64] | int, NDArray[np.int64]]:
        """What is needed of each record: the rows of pixels in its window, or all of it.

        Returns:
            Where it begins in the record, and its bytes.
        """
        if not self._has_known_place:
            return 0, located.lengths()
        heights, widths = params.sizes.T
        row_bytes = widths * (self._plan.shape[2] * self._plan.dtype.itemsize)
        first = self._fixed_offset
        # Extents were held against the lengths of records when the shard was opened.
        start = located.lengths() - heights * row_bytes if first is None else first
        tops, counts = params.windows[:, 0], params.windows[:, 2]
        return start + tops * row_bytes, counts * row_bytes

    def write(
        self,
        pieces: Pieces,
        lengths: NDArray[np.int64] | int,
        indices: NDArray[np.int64],
        positions: NDArray[np.int64],
        params: Params,
        out: torch.Tensor,
        watch: Watch,
    ) -> torch.Tensor:
        """Write all images.

        Args:
            pieces: What is at `place`.
            lengths: Of the pieces, as they were asked for.
            indices: Of the samples, for the watch.
            positions: Of the samples in the store.
            params: What is done to each.
            out: Where they go, (byte,) uint8.
            watch: Told where time goes.

        Returns:
            `out` as (sample, height, width, channel).
        """
        plan = self._plan
        images = out.view(getattr(torch, plan.dtype.name)).view(len(positions), *plan.shape)
        starts = pieces.starts.tolist()
        ends = (pieces.starts + lengths).tolist()
        spans = list(zip(indices.tolist(), starts, ends, strict=True))
        if self._has_known_place:
            self._write_windows(pieces, spans, params, images.numpy(), watch)
        else:
            self._write_records(pieces, spans, positions, params, images.numpy(), watch)
        return images

    def _write_windows(
        self,
        pieces: Pieces,
        spans: list[tuple[int, int, int]],
        params: Params,
        batch: NDArray[Any],
        watch: Watch,
    ) -> None:
        """Straight from pixels: two slices are all the Python for each image."""
        plan, memory = self._plan, pieces.memory
        dtype, channel_count = plan.dtype, plan.shape[2]
        watch.lap("read")
        for row, (index, start, end) in enumerate(spans):
            watch.sample(index)
            _, width, top, bottom, left, right, *_ = params.rows[row]
            rows = memory[start:end].view(dtype).reshape(bottom - top, width, channel_count)
            plan.apply_window(rows[:, left:right], params, row, batch[row])
        watch.lap("transform")

    def _write_records(
        self,
        pieces: Pieces,
        spans: list[tuple[int, int, int]],
        positions: NDArray[np.int64],
        params: Params,
        batch: NDArray[Any],
        watch: Watch,
    ) -> None:
        """From records whose image has to be found or decoded first."""
        memory = memoryview(pieces.memory)  # type: ignore[arg-type]
        rows = zip(spans, positions.tolist(), strict=True)
        for row, ((index, start, end), position) in enumerate(rows):
            watch.sample(index)
            record = memory[start:end]
            try:
                pixels, write = self._decoded(record, position, params, row)
            except (CodecError, ImageError) as error:
                raise self._view.damaged(position, error) from error
            watch.lap("decode")
            write(pixels, params, row, batch[row])
            watch.lap("transform")

    def _decoded(
        self, record: memoryview, position: int, params: Params, row: int
    ) -> tuple[NDArray[Any], _Write]:
        """As much of an image as is needed, and what writes it."""
        plan, factor = self._plan, params.reductions[row]
        if self._field.codec != "raw" and (factor > 1 or self.windows is not None):
            data, orientation = self._reader.encoded(record)
            if orientation and data[:3] == _JPEG_START:
                jpeg = _Jpeg(record, data, orientation, position, tuple(params.sizes[row].tolist()))
                window = tuple(params.windows[row].tolist())
                if factor > 1:
                    return self._reduced(jpeg, window, factor)
                found = self._window(jpeg, window)
                if found is not None:
                    return found, plan.apply_window
        return self._reader.unpack(record)[self._field.name], plan.apply

    def _reduced(
        self, jpeg: _Jpeg, window: tuple[int, ...], factor: int
    ) -> tuple[NDArray[Any], _Write]:
        """The window of a JPEG of which a part of the pixels is enough."""
        starts = reduced_starts(jpeg.size, jpeg.orientation, factor)
        block, place = reduced_window(window, jpeg.size, factor, starts)

        def write(pixels: NDArray[Any], params: Params, row: int, out: NDArray[Any]) -> None:
            self._plan.apply_reduced(pixels, place, params, row, out)

        found = self._window(jpeg, block, factor)
        if found is not None:
            return found, write
        pixels = self._reader.reduced(jpeg.record, factor)
        if pixels.shape[:2] == jpeg.size:
            return pixels, self._plan.apply
        top, left, height, width = block
        return pixels[top : top + height, left : left + width], write

    def _window(
        self, jpeg: _Jpeg, window: tuple[int, ...], factor: int = 1
    ) -> NDArray[np.uint8] | None:
        """A window of a JPEG, and no more of it; None where it has to be decoded whole."""
        if self.windows is None or jpeg.orientation != 1:
            return None
        # Only bytes that were decoded once, when they were stored: NOTE [ errors of libjpeg ].
        shard, place = self._view.store.locate(jpeg.position)
        shard.check_record(place, jpeg.record)
        return self.windows.decode(bytes(jpeg.data), jpeg.size, window, factor)
