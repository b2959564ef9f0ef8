"""torchvision for tests, also beside a torch for which its native operations were not built.

PyPI has torchvision for CUDA alone; beside torch for CPUs the library of its operations cannot be
loaded, and importing it fails. Its transforms need none of them, and its detectors two: `nms` is
written here, and of `roi_align` it has a form in Python. Tests call this before they import it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch


def need_torchvision() -> None:
    """Have torchvision importable, or skip what is under way."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        pytest.skip("needs torchvision", allow_module_level=True)
    stands_in = not hasattr(torch.ops.torchvision, "nms") and not _loads(Path(spec.origin).parent)
    if stands_in:
        _define_nms()
    try:
        import torchvision.ops as ops
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision cannot be imported: {error}", allow_module_level=True)
    if stands_in:
        ops.boxes._assert_has_ops = lambda: None
        # The rule in Python that it has for such a case, which it would compile first.
        names = ops.roi_align.__globals__
        names["_roi_align"] = names["_roi_align"].__wrapped__


def _loads(folder: Path) -> bool:
    """Whether the native operations can be loaded."""
    try:
        for library in folder.glob("_C*.so"):
            torch.ops.load_library(str(library))
    except OSError:
        return False
    return True


def _define_nms() -> None:
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):  # The second is only named while torchvision is imported.
        library.define(f"{name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", _nms, "CPU")
    _LIBRARY.append(library)  # Gone with it are its operations.


_LIBRARY: list[torch.library.Library] = []


def _nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """The boxes of the highest scores, without those that overlap with one that was kept."""
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    waiting, kept = scores.argsort(descending=True, stable=True), []
    while len(waiting):
        first, waiting = waiting[0], waiting[1:]
        kept.append(first)
        shared = torch.minimum(boxes[first, 2:], boxes[waiting, 2:])
        shared = shared - torch.maximum(boxes[first, :2], boxes[waiting, :2])
        overlap = shared.clamp(min=0).prod(1)
        ious = overlap / (areas[first] + areas[waiting] - overlap)
        waiting = waiting[ious <= iou_threshold]
    return torch.stack(kept) if kept else torch.zeros(0, dtype=torch.int64)
