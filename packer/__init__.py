"""Compiles trees of images into LMDB stores for PyTorch training.

    from packer import build, Recipe
    report = build("raw", "out.lmdb", Recipe(size=256))

The command line is the same: `packer build raw out.lmdb --size 256`.
"""

# Not on first use, as in `readers`: two of the functions are named as their modules, and an import
# of a module that comes later than the function would take its name.
from packer.build import BuildReport, Step, build
from packer.errors import BuildError
from packer.recipe import Recipe
from packer.sources import SourceOptions
from packer.verify import VerifyReport, verify

__all__ = [
    "BuildError",
    "BuildReport",
    "Recipe",
    "SourceOptions",
    "Step",
    "VerifyReport",
    "build",
    "verify",
]
