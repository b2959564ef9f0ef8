"""Shows on a machine with a CUDA device what cannot be shown without one.

    python scripts/gpu_check.py

Prints PASS or FAIL for each check, with what was measured. Exit status: 0 all passed, 1 one failed,
2 there is no CUDA device and nothing was checked. It takes half a minute and 3 GB of the device.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import time
import weakref
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from readers.augment import Augment, Normalize, RandomFlip, RandomResizedCrop
from readers.prefetch import DevicePrefetcher

DEVICE = "cuda"


class CheckError(Exception):
    """A claim does not hold on this machine."""


def recycled_batches(pattern: Tensor, count: int, buffer_count: int) -> Iterator[dict[str, Tensor]]:
    """Batches in pinned buffers that are filled anew as soon as the last tensor on them dies.

    Batch n begins n % 251 bytes into `pattern`, so that bytes of another batch show.
    """
    byte_count = len(pattern) - 251
    free = [torch.empty(byte_count, dtype=torch.uint8).pin_memory() for _ in range(buffer_count)]

    def filled(number: int) -> dict[str, Tensor]:
        if not free:
            raise CheckError("the prefetcher keeps more buffers than it says it does")
        buffer = free.pop()
        buffer.copy_(pattern[number % 251 :][:byte_count])
        # A tensor of its own, whose death gives the buffer back, whatever the GPU is doing.
        image = torch.frombuffer(buffer.numpy(), dtype=torch.uint8)
        weakref.finalize(image, free.append, buffer)
        return {"image": image, "number": torch.tensor([number])}

    return map(filled, range(count))


def keep_busy(seconds: float) -> None:
    """Let the current stream do nothing else for about so long, on a device of about 1.5 GHz."""
    torch.cuda._sleep(int(seconds * 1.5e9))  # type: ignore[no-untyped-call]


def seconds_of(function: Callable[[], object], count: int = 20) -> float:
    """Of one call, with what it starts on the device, on average."""
    function()
    torch.cuda.synchronize()
    start_s = time.perf_counter()
    for _ in range(count):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - start_s) / count


def check_batches_under_load() -> str:
    """Every batch arrives as it was, though buffers are recycled and the GPU lags behind."""
    pattern = torch.arange(16 * 2**20 + 251).remainder(251).to(torch.uint8)
    on_device = pattern.to(DEVICE)
    for depth, added in ((1, 0), (1, 1), (3, 0), (3, 1)):
        loader = recycled_batches(pattern, 200, buffer_count=depth + 1)
        transform = {"image": lambda image: image.add(1)} if added else None
        wrong = torch.zeros((), dtype=torch.int64, device=DEVICE)
        kept = []
        for count, batch in enumerate(DevicePrefetcher(loader, DEVICE, depth, transform)):
            keep_busy(2e-3)  # Longer than a copy: the batch is read long after its hand-out.
            if count % 50 == 0:
                kept.append((count, batch))
            for number, other in [(count, batch), *kept]:
                expected = on_device[number % 251 :][: len(other["image"])] + added
                wrong += (other["image"] != expected).sum() + (other["number"] != number).sum()
        if wrong.item() or count != 199:
            raise CheckError(f"depth {depth}: {wrong.item()} values differ in {count + 1} batches")
    return "4 x 200 batches of 16 MiB"


def check_breaking_off() -> str:
    """An epoch broken off at any batch leaves the next one whole."""
    loader = [torch.full((2**20,), number) for number in range(6)]  # Not pinned.
    prefetcher = DevicePrefetcher(loader, DEVICE)
    for last in range(6):
        batches = iter(prefetcher)
        batch = [next(batches) for _ in range(last + 1)][last]
        del batches
        if batch.device.type != DEVICE or not bool((batch == last).all()):
            raise CheckError(f"broken off at batch {last}: it is {batch}")
    return "6 epochs"


def check_overlap() -> str:
    """Copies run beside the user's kernels, not after them."""
    loader = [torch.empty(64 * 2**20, dtype=torch.uint8, pin_memory=True) for _ in range(2)] * 20
    copy_s = seconds_of(lambda: loader[0].to(DEVICE, non_blocking=True))
    kernel_s = seconds_of(lambda: keep_busy(1.5 * copy_s))

    def epoch() -> None:
        for _ in DevicePrefetcher(loader, DEVICE):
            keep_busy(1.5 * copy_s)

    both_s = seconds_of(epoch, 2) / len(loader)
    times = [f"{seconds * 1e3:.2f} ms" for seconds in (copy_s, kernel_s, both_s)]
    figures = f"64 MiB copied in {times[0]}, kernels {times[1]}, both {times[2]}"
    if both_s > max(kernel_s, copy_s) + 0.5 * min(kernel_s, copy_s):
        raise CheckError(f"they hardly overlap: {figures}")
    return figures


def check_augment() -> str:
    """One seed gives on the GPU what it gives on the CPU, within one level; how fast it is."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (256, 256, 256, 3), dtype=torch.uint8, generator=generator)
    images = images.permute(0, 3, 1, 2)
    on_device = images.to(DEVICE)
    rates = []
    for dtype in (torch.uint8, torch.float32, torch.float16, torch.bfloat16):
        normalize, limit = None, 1.0
        if dtype != torch.uint8:
            normalize = Normalize(0.5, 0.25, dtype)
            # The CPU rounds levels and the GPU may compute in float16; results are up to 2.
            limit = 1.4 / 255 / 0.25 + 2 * torch.finfo(dtype).eps
        for antialias in (False, True):
            crop = RandomResizedCrop(224, antialias=antialias, generator=generator)
            augment = Augment(crop, RandomFlip(generator=generator), normalize)
            generator.manual_seed(2)
            expected = augment(images)
            generator.manual_seed(2)
            result = augment(on_device)
            difference = float((result.cpu().double() - expected.double()).abs().max())
            if not difference <= limit or result.stride() != expected.stride():
                raise CheckError(f"{augment}: {difference:.4f} off; at most {limit:.4f} expected")
        seconds = seconds_of(lambda augment=augment: augment(on_device))  # type: ignore[misc]
        rates.append(f"{str(dtype).removeprefix('torch.')} {len(images) / seconds:,.0f}/s")
    return f"256 images of 256 x 256 to 224 x 224: {', '.join(rates)}"


def check_registered_memory() -> str:
    """Memory of an anonymous mmap, once registered with CUDA, is pinned to torch."""
    memory = mmap.mmap(-1, 64 * 2**20)
    tensor = torch.frombuffer(memory, dtype=torch.uint8)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    status = int(runtime.cudaHostRegister(address, len(memory), 0))
    if status:
        raise CheckError(f"cudaHostRegister returned {status}")
    try:
        if not (tensor.is_pinned() and tensor[4096:].view(-1, 16).is_pinned()):
            raise CheckError("a tensor on registered memory says that it is not pinned")
        tensor.copy_(torch.arange(len(memory)).remainder(251))
        (moved,) = DevicePrefetcher([tensor], DEVICE)
        if not torch.equal(moved.cpu(), tensor):
            raise CheckError("the copy differs")
        seconds = seconds_of(lambda: tensor.to(DEVICE, non_blocking=True))
    finally:
        torch.cuda.synchronize()
        runtime.cudaHostUnregister(address)
    return f"copied at {len(memory) / seconds / 1e9:.1f} GB/s"


CHECKS: tuple[Callable[[], str], ...] = (
    check_batches_under_load,
    check_breaking_off,
    check_overlap,
    check_augment,
    check_registered_memory,
)


def main() -> int:
    """Run all checks, and return the exit status."""
    if not torch.cuda.is_available():
        print("gpu_check needs a CUDA device, and torch finds none: nothing was checked.")
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    failure_count = 0
    for check in CHECKS:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        try:
            print(f"PASS {name}: {check()}")
        except (CheckError, RuntimeError, ValueError) as error:
            failure_count += 1
            print(f"FAIL {name}: {type(error).__name__}: {error}")
    return 1 if failure_count else 0


if __name__ == "__main__":
    sys.exit(main())
