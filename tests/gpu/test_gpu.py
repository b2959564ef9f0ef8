"""What needs a CUDA device: the checks of scripts/gpu_check.py, and a few small ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from readers.augment import RandomFlip, RandomResizedCrop
from readers.prefetch import DevicePrefetcher
from scripts import gpu_check

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.gpu
@pytest.mark.parametrize("check", gpu_check.CHECKS, ids=lambda check: check.__name__)
def test_what_gpu_check_claims_holds(check):
    """Each check raises when its claim fails, and otherwise says what it measured."""
    assert check()


@pytest.mark.gpu
def test_objects_of_the_user_arrive_whole():
    """One that moves itself is pinned first, moved after the user's kernels, and transformed."""

    class Boxes:
        def __init__(self, tensor):
            self.tensor = tensor

        def pin_memory(self):
            return Boxes(self.tensor.pin_memory())

        def to(self, device, non_blocking=False):
            assert self.tensor.is_pinned()
            return Boxes(self.tensor.to(device, non_blocking=non_blocking))

    batches = [{"boxes": Boxes(torch.full((2**20,), number))} for number in range(20)]
    transform = {"boxes": lambda boxes: boxes.tensor + 1}
    for number, batch in enumerate(DevicePrefetcher(batches, "cuda", transform=transform)):
        gpu_check.keep_busy(1e-3)
        assert (batch["boxes"] == number + 1).all()


@pytest.mark.gpu
def test_a_cuda_tensor_of_a_loader_is_an_error():
    """Workers must not use the device; the message names the field and the device."""
    batch = {"image": torch.zeros(1, device="cuda")}
    for device in ("cpu", "cuda"):
        with pytest.raises(ValueError, match=r"batch\['image'\] .* on cuda:0, expected one on the"):
            list(DevicePrefetcher([batch], device))


@pytest.mark.gpu
def test_a_generator_on_the_device_is_refused():
    """Boxes must be the same on every device, so they are drawn on the CPU."""
    generator = torch.Generator(device="cuda")
    with pytest.raises(ValueError, match=r"generator is on cuda.*expected a CPU generator"):
        RandomResizedCrop(8, generator=generator)
    with pytest.raises(ValueError, match=r"generator is on cuda.*expected a CPU generator"):
        RandomFlip(generator=generator)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a CUDA device")
def test_without_a_device_gpu_check_says_so_and_fails():
    """Nobody must take a run that checked nothing for one that passed."""
    done = subprocess.run(
        [sys.executable, "scripts/gpu_check.py"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == (
        "gpu_check needs a CUDA device, and torch finds none: nothing was checked.\n"
    )
