"""Compiles trees of images into LMDB stores for PyTorch training.

    from packer import build, Recipe
    report = build("raw", "out.lmdb", Recipe(size=256))

The command line is the same: `packer build raw out.lmdb --size 256`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.build import BuildReport as BuildReport
    from packer.build import Step as Step
    from packer.build import build as build
    from packer.errors import BuildError as BuildError
    from packer.recipe import Recipe as Recipe
    from packer.sources import SourceOptions as SourceOptions
    from packer.verify import VerifyReport as VerifyReport
    from packer.verify import verify as verify

_HOMES = {
    "BuildReport": "packer.build",
    "Step": "packer.build",
    "build": "packer.build",
    "BuildError": "packer.errors",
    "Recipe": "packer.recipe",
    "SourceOptions": "packer.sources",
    "VerifyReport": "packer.verify",
    "verify": "packer.verify",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Public names are loaded on first use, so that a build worker starts fast."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
