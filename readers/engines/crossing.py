"""Batches and errors on their way between processes: what of them is sent, and made of it again."""

from __future__ import annotations

import traceback
from multiprocessing import reduction
from typing import Any

import numpy as np
import torch

from readers.engines.slots import Place, SlotReader, SlotWriter
from readers.nesting import mapped


class RemoteError(Exception):
    """Where an exception was raised in a loader worker, as text. It is that exception's cause."""

    def __init__(self, text: str) -> None:
        super().__init__(f"in a loader worker:\n{text}")


def described(value: Any, writer: SlotWriter) -> Any:
    """A batch with its tensors and arrays replaced by their places in the slot."""
    if type(value) is torch.Tensor and value.layout is torch.strided:
        if value.device.type != "cpu":
            raise ValueError(
                f"a sample holds a tensor on {value.device}; loader workers hand out CPU tensors. "
                "Move batches in the training loop: DevicePrefetcher(loader, device)"
            )
        return writer.place(value)
    if type(value) is np.ndarray and _has_tensor_type(value.dtype):
        return writer.place(value)
    return mapped(value, lambda part, _: described(part, writer))


def _has_tensor_type(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biuf" and dtype.itemsize <= 8 and dtype.isnative


def resolved(layout: Any, reader: SlotReader) -> Any:
    """The batch again, out of its slot."""
    if isinstance(layout, Place):
        return reader.at(layout)
    return mapped(layout, lambda part, _: resolved(part, reader))


def crossing(error: Exception) -> tuple[Exception, Exception | None, str]:
    """An exception, its cause and its traceback, in a form that can be sent."""
    text = "".join(traceback.format_exception(error))
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else None
    return _sendable(error), None if cause is None else _sendable(cause), text


def _sendable(error: Exception) -> Exception:
    try:
        copy = reduction.ForkingPickler.loads(reduction.ForkingPickler.dumps(error))
        if isinstance(copy, Exception):
            return error
    except Exception:
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")


def rebuilt(error: Exception, cause: Exception | None, text: str) -> Exception:
    """The exception as it was raised, with its cause, and the traceback of the worker behind."""
    remote = RemoteError(text)
    if cause is None:
        error.__cause__ = remote
    else:
        cause.__cause__ = remote
        error.__cause__ = cause
    return error
