"""Batches on the device before they are needed.

    for images, labels in DevicePrefetcher(loader, "cuda", transform={0: augment}):
        ...

Copies and the transform run on a stream of their own, beside the user's kernels. With a depth of 2:

    this thread      takes n+2, hands out n     takes n+3, hands out n+1
    copying stream   copies, transforms n+2     copies, transforms n+3
    user's stream    works on n                 works on n+1

NOTE [ who may use memory, and until when ]

Hardly anything here waits for the GPU, so Python drops references that kernels still read by.
- A host batch is kept until its copy is done. A loader that recycles pinned memory takes it back
  when the last tensor on it dies, and may fill it at once. No more than `depth` are kept so while
  the loader is asked for another, so that one with `depth` + 1 buffers never waits for us in vain.
- A device batch is allocated on the copying stream and used on the user's. `record_stream` tells
  torch, which otherwise would hand the memory to a later copy while a kernel still reads it.
- Memory so recorded comes back only when the GPU has passed the point where it was dropped. Lest
  there be more and more of it, this thread never runs far ahead of the GPU: before it hands out a
  batch, it waits until the one `depth` + 1 before has been used.
- Tensors inside an object of the user's cannot be recorded. It is moved on the user's stream, as he
  would move it, and the copying stream waits for that.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from readers.nesting import mapped, moves_itself, parts_of, rebuilt

Transform = Callable[[Any], Any]
FieldTransforms = Mapping[Any, Transform]

_Path = tuple[Any, ...]
"""Where in a batch a value is: the keys, names and positions that lead there."""

_END = object()


class DevicePrefetcher:
    """The batches of a loader, on a device, ahead of their use.

    Each epoch iterates the loader anew, in this thread, `depth` batches ahead of the one in use.
    An error of the loader or the transform is raised where its batch would have come, after the
    batches before it. Breaking off is clean at any time.

    On a CPU batches pass through as they are, and equally far ahead: what is written for a GPU does
    the same without one, and calls nothing of CUDA.

    Batches may be tensors, or dicts, tuples, named tuples, lists and dataclasses of them, nested;
    types are kept. An object with a method `to` moves itself, after the kernels that the user has
    started; first to pinned memory, if it has a method `pin_memory`. All else stays as it is.

    Args:
        loader: Any iterable of batches of CPU tensors. In pinned memory they are copied as they
            are; others are copied to pinned memory here first, which costs this thread's time.
        device: Where batches go: "cuda", "cuda:1", "cpu". On other devices than these, copies do
            not overlap.
        depth: Batches that are under way while one is in use.
        transform: Called with each batch on the device, beside the user's kernels; what it returns
            are tensors, nested in the same ways. Or a dict of such functions: by field, for batches
            that are dicts, named tuples or dataclasses; by position, for tuples and lists.

    Attributes:
        loader: As given. It is ahead of the batches handed out by `depth`.

    Raises:
        ValueError: An argument is out of its range, or there is no such device. In an epoch: a
            batch has a tensor that is not on the CPU, or lacks a field to transform.

    Example:
        >>> loader = [(torch.zeros((2, 3, 8, 8), dtype=torch.uint8), torch.tensor([0, 1]))]
        >>> batches = DevicePrefetcher(loader, "cpu", transform={0: torch.Tensor.half})
        >>> [(images.dtype, labels) for images, labels in batches]
        [(torch.float16, tensor([0, 1]))]
    """

    def __init__(
        self,
        loader: Iterable[Any],
        device: str | torch.device,
        depth: int = 2,
        transform: Transform | FieldTransforms | None = None,
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1; got {depth!r}")
        self.loader = loader
        self.device = torch.device(device)
        self.depth = depth
        self.transform = transform
        self._state: Any = None  # Of the loader, when it gave the batch in use.
        # Kept over epochs: torch keeps free memory for each stream apart.
        self._stream: torch.cuda.Stream | None = None
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(
                f"device={str(device)!r}, but torch finds no CUDA device. See what nvidia-smi and "
                "torch.version.cuda say, or use device='cpu'."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Settings and place: a stream of a device is of one process."""
        return {**self.__dict__, "_stream": None}

    def __len__(self) -> int:
        """Batches of an epoch, as the loader says."""
        if not isinstance(self.loader, Sized):
            raise TypeError(f"the loader, a {type(self.loader).__name__}, has no length")
        return len(self.loader)

    def state_dict(self) -> Any:
        """The loader's state when it gave the batch in use; see `Loader.state_dict`.

        The loader itself is ahead of it.

        Raises:
            TypeError: The loader has no `state_dict`.
        """
        self._check_has_state()
        return _state_of(self.loader) if self._state is None else self._state

    def load_state_dict(self, state_dict: Any) -> None:
        """Have the next epoch go on where a state was taken.

        Raises:
            TypeError: The loader has no `load_state_dict`.
        """
        self._check_has_state()
        self.loader.load_state_dict(state_dict)  # type: ignore[attr-defined]
        self._state = None

    def _check_has_state(self) -> None:
        if not hasattr(self.loader, "state_dict"):
            raise TypeError(
                f"the loader, a {type(self.loader).__name__}, has no state_dict. make_loader and "
                "torchdata's StatefulDataLoader have one"
            )

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        lane = self._lane()
        under_way: deque[Any] = deque()
        states: deque[Any] = deque()
        self._state = _state_of(self.loader)
        failure: Exception | None = None
        is_ended = False
        try:
            while True:
                while not is_ended and len(under_way) <= self.depth:
                    try:
                        is_ended = not _send_next(batches, lane, under_way)
                        states.append(_state_of(self.loader))
                    except Exception as error:  # Raised below, whole, in its batch's place.
                        failure, is_ended = error, True
                if not under_way:
                    break
                self._state = states.popleft()
                yield lane.receive(under_way.popleft())
            self._state = None
            if failure is not None:
                raise failure
        finally:
            # Reached as well when the user breaks off, since that closes the generator.
            lane.close()
            failure = None  # Its traceback refers to this frame: a circle that would keep it all.

    def _lane(self) -> _Lane:
        if self.device.type != "cuda":
            return _PlainLane(self.device, self.transform)
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        return _CudaLane(self._stream, self.depth, self.transform)

    def __repr__(self) -> str:
        return f"DevicePrefetcher({self.loader!r}, {str(self.device)!r}, depth={self.depth})"


def _state_of(loader: Iterable[Any]) -> Any:
    """The loader's state, if it has one."""
    return loader.state_dict() if hasattr(loader, "state_dict") else None


class _Lane(Protocol):
    """The way of batches to a device, for one epoch."""

    def make_room(self) -> None:
        """Called before the loader is asked for a batch."""

    def send(self, batch: Any) -> Any:
        """Start a batch on its way. What is returned goes to `receive`, in the same order."""

    def receive(self, sent: Any) -> Any:
        """The batch on the device, for the user's next kernels."""

    def close(self) -> None:
        """Let go of everything, when the GPU is done with it."""


def _send_next(batches: Iterator[Any], lane: _Lane, under_way: deque[Any]) -> bool:
    """Take a batch from the loader and send it; False when there was none.

    A function, so that no variable keeps the batch, and its buffer, until the next one is taken.
    """
    lane.make_room()
    batch = next(batches, _END)
    if batch is _END:
        return False
    under_way.append(lane.send(batch))
    return True


class _PlainLane:
    """To the CPU, where batches are already, or to a device by copies that do not overlap."""

    def __init__(self, device: torch.device, transform: Transform | FieldTransforms | None) -> None:
        self._device = device
        self._transform = transform

    def make_room(self) -> None:
        pass

    def send(self, batch: Any) -> Any:
        if self._device.type == "cpu":
            _converted(batch, _checked_on_cpu)
        else:
            batch = _converted(batch, self._moved)
        return _transformed(batch, self._transform)

    def _moved(self, value: Any, path: _Path) -> Any:
        return _moved(_checked_on_cpu(value, path), self._device)

    def receive(self, sent: Any) -> Any:
        return sent

    def close(self) -> None:
        pass


class _Sent(NamedTuple):
    batch: Any
    ready: torch.cuda.Event


class _CudaLane:
    """To a CUDA device, on a stream of its own: NOTE [ who may use memory, and until when ]."""

    def __init__(
        self,
        stream: torch.cuda.Stream,
        depth: int,
        transform: Transform | FieldTransforms | None,
    ) -> None:
        self._stream = stream
        self._depth = depth
        self._transform = transform
        # Host batches whose copies may not be done, the oldest first.
        self._copying: deque[tuple[torch.cuda.Event, Any]] = deque()
        # Points of the user's stream at which batches were handed out.
        self._handed_out: deque[torch.cuda.Event] = deque()
        # What the transform reads, such as weights, may still be under way on the user's stream.
        stream.wait_stream(torch.cuda.current_stream(stream.device))

    def make_room(self) -> None:
        while len(self._copying) > self._depth:
            self._copying[0][0].synchronize()
            self._copying.popleft()
        self._drop_copied()

    def _drop_copied(self) -> None:
        while self._copying and self._copying[0][0].query():  # type: ignore[no-untyped-call]
            self._copying.popleft()

    def send(self, batch: Any) -> _Sent:
        users_stream = torch.cuda.current_stream(self._stream.device)

        def copied(value: Any, path: _Path) -> Any:
            return self._copied(_checked_on_cpu(value, path), users_stream)

        with torch.cuda.stream(self._stream):
            try:
                moved = _converted(batch, copied)
            finally:
                # Also when it broke off half-way, as where the device's memory ran out.
                self._copying.append((self._stream.record_event(), batch))
            moved = _transformed(moved, self._transform)
            return _Sent(moved, self._stream.record_event())

    def _copied(self, value: Any, users_stream: torch.cuda.Stream) -> Any:
        if isinstance(value, Tensor):
            pinned = value if value.is_pinned() else value.pin_memory()
            return pinned.to(self._stream.device, non_blocking=True)
        with torch.cuda.stream(users_stream):
            pinned = value.pin_memory() if callable(getattr(value, "pin_memory", None)) else value
            moved = _moved(pinned, self._stream.device)
        self._stream.wait_stream(users_stream)
        return moved

    def receive(self, sent: _Sent) -> Any:
        users_stream = torch.cuda.current_stream(self._stream.device)
        # `blocking` sleeps, where the default would spin on a core that loader workers need.
        point = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        point.record(users_stream)
        self._handed_out.append(point)
        if len(self._handed_out) > self._depth:
            self._handed_out.popleft().synchronize()

        users_stream.wait_event(sent.ready)

        def recorded(value: Any, path: _Path) -> Any:
            if isinstance(value, Tensor) and value.is_cuda:
                value.record_stream(users_stream)
            return value

        _converted(sent.batch, recorded)
        self._drop_copied()
        return sent.batch

    def close(self) -> None:
        for copied, _ in self._copying:
            copied.synchronize()
        self._copying.clear()


def _checked_on_cpu(value: Any, path: _Path) -> Any:
    if isinstance(value, Tensor) and value.device.type != "cpu":
        place = f"batch{''.join(f'[{key!r}]' for key in path)}"
        raise ValueError(
            f"{place} of the loader is a tensor on {value.device}, expected one on the CPU. Let "
            "dataset, collate and loader workers use CPU tensors alone, and give work on the "
            "device to DevicePrefetcher as its transform."
        )
    return value


def _moved(value: Any, device: torch.device) -> Any:
    """A tensor, or an object with a method `to`, on another device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if "non_blocking" in inspect.signature(value.to).parameters:
        moved = value.to(device, non_blocking=True)
    else:
        moved = value.to(device)
    # Some such methods change the object and return nothing.
    return value if moved is None else moved


def _converted(value: Any, change: Callable[[Any, _Path], Any], path: _Path = ()) -> Any:
    """A batch with `change` done to each tensor, and each object that can move, in it.

    Containers in which something changes are rebuilt; those given stay as they are.
    """
    if isinstance(value, Tensor) or moves_itself(value):
        return change(value, path)
    return mapped(value, lambda part, key: _converted(part, change, (*path, key)))


def _transformed(batch: Any, transform: Transform | FieldTransforms | None) -> Any:
    """The batch, with a transform done to the whole of it or to some fields."""
    if transform is None:
        return batch
    if not isinstance(transform, Mapping):
        return transform(batch)
    parts = parts_of(batch)
    if parts is None:
        raise ValueError(
            f"transform={transform!r} is by field, but a batch is a {type(batch).__name__}, "
            "expected a dict, tuple, list or dataclass. Give one function, which takes the whole "
            "batch."
        )
    names = getattr(batch, "_fields", ())
    for field, function in transform.items():
        key = names.index(field) if field in names else field
        if key not in parts:
            known = ", ".join(map(repr, (*names, *parts)))
            raise ValueError(f"transform names the field {field!r}, but a batch has {known}")
        parts[key] = function(parts[key])
    return rebuilt(batch, parts)
