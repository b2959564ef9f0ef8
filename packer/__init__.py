"""Compiles trees of images into LMDB stores for PyTorch training.

    from packer import build, Recipe
    report = build("raw", "out.lmdb", Recipe(size=256))

The command line is the same: `packer build raw out.lmdb --size 256`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.building.build import Step as Step
    from packer.building.build import build as build
    from packer.diffing import DiffReport as DiffReport
    from packer.diffing import diff as diff
    from packer.errors import BuildError as BuildError
    from packer.merging import merge as merge
    from packer.recipe import Recipe as Recipe
    from packer.repack import RepackReport as RepackReport
    from packer.report import BuildReport as BuildReport
    from packer.sources import SourceOptions as SourceOptions
    from packer.subsetting import subset as subset
    from packer.verifying import VerifyReport as VerifyReport
    from packer.verifying import verify as verify

_HOMES = {
    "BuildError": "packer.errors",
    "BuildReport": "packer.report",
    "DiffReport": "packer.diffing",
    "Recipe": "packer.recipe",
    "RepackReport": "packer.repack",
    "SourceOptions": "packer.sources",
    "Step": "packer.building.build",
    "VerifyReport": "packer.verifying",
    "build": "packer.building.build",
    "diff": "packer.diffing",
    "merge": "packer.merging",
    "subset": "packer.subsetting",
    "verify": "packer.verifying",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Public names are loaded on first use: build workers and the command line need few of them."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
