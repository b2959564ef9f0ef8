"""What `bench_loader.py` holds a loader against: a bare gather, FFCV, and a machine that is busy.

A bare gather is what is left of loading when nothing is left but the copy: `torch.index_select` out
of the mapped store into a buffer that is kept, with all addresses known before.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from readers import LMDBDataset
from readers.reading.gather import bytes_of
from readers.store.schema import field_bytes


class BareGather:
    """Epochs of a field of fixed size in random order, by gathers alone.

    Args:
        dataset: All samples of a store.
        name: The field.
        batch_size: Samples of a batch.
        thread_count: Threads, each of which makes its share of the batches.
    """

    def __init__(
        self, dataset: LMDBDataset[Any], name: str, batch_size: int, thread_count: int = 1
    ) -> None:
        store = dataset.view.store
        byte_count = field_bytes(dataset.schema[name])
        positions = np.arange(len(dataset), dtype=np.int64)
        wanted = store.located(positions).within(store.layout.fixed_offsets[name], byte_count)
        (pieces,) = store.bytes.fetch([wanted])
        data = bytes_of(pieces.memory)
        self._rows = data.as_strided((len(data) - byte_count + 1, byte_count), (1, 1))
        self._starts = torch.from_numpy(pieces.starts)
        self._batch_size = batch_size
        self._outs = torch.empty((thread_count, batch_size, byte_count), dtype=torch.uint8)
        self._threads = ThreadPoolExecutor(thread_count) if thread_count > 1 else None

    def _gathered(self, indices: list[torch.Tensor], out: torch.Tensor) -> Iterator[torch.Tensor]:
        for index in indices:
            torch.index_select(self._rows, 0, index, out=out)
            yield out

    def _all_gathered(self, indices: list[torch.Tensor], out: torch.Tensor) -> None:
        torch.set_num_threads(1)
        for _ in self._gathered(indices, out):
            pass

    def gather(self, positions: torch.Tensor) -> None:
        """One batch, of the samples at some positions."""
        for _ in self._gathered([self._starts[positions]], self._outs[0][: len(positions)]):
            pass

    def __iter__(self) -> Iterator[tuple[torch.Tensor]]:
        order = self._starts[torch.randperm(len(self._starts))]
        count = len(order) // self._batch_size
        indices = list(order[: count * self._batch_size].view(count, self._batch_size))
        if self._threads is None:
            for out in self._gathered(indices, self._outs[0]):
                yield (out,)
            return
        shares = [indices[number :: len(self._outs)] for number in range(len(self._outs))]
        # They hand nothing over until all is done, so nothing of that is in the figure.
        list(self._threads.map(self._all_gathered, shares, self._outs))
        for _ in indices:
            yield (self._outs[0],)


def has_ffcv() -> bool:
    """Whether FFCV can be imported here."""
    return importlib.util.find_spec("ffcv") is not None


class _Pairs:
    """Images with labels, one by one, as FFCV's writer asks for them."""

    def __init__(self, images: Path, labels: Path) -> None:
        self._images, self._labels = np.load(images, mmap_mode="r"), np.load(labels)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, at: int) -> tuple[Any, int]:
        return np.asarray(self._images[at]), int(self._labels[at])


def ffcv_loader(raw: Path, file: Path, batch_size: int, workers: int) -> Iterable[Any]:
    """FFCV's loader over images of one size, as pixels, written to a file of its own first.

    Args:
        raw: Folder of `images.npy` and `labels.npy`.
        file: To be written.
        batch_size: Samples of a batch.
        workers: Its threads.
    """
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.rgb_image import SimpleRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import Squeeze, ToTensor
    from ffcv.writer import DatasetWriter

    fields = {"image": RGBImageField(write_mode="raw"), "label": IntField()}
    pairs = _Pairs(raw / "images.npy", raw / "labels.npy")
    DatasetWriter(str(file), fields, num_workers=workers).from_indexed_dataset(pairs)
    pipelines = {
        "image": [SimpleRGBImageDecoder(), ToTensor()],
        "label": [IntDecoder(), ToTensor(), Squeeze()],
    }
    loader: Iterable[Any] = Loader(
        str(file),
        batch_size=batch_size,
        num_workers=workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        pipelines=pipelines,
    )
    return loader


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Have so many cores be taken by other programs meanwhile."""
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield
