"""Compiles trees of images into LMDB stores for PyTorch training.

    from packer import build, Recipe
    report = build("raw", "out.lmdb", Recipe(size=256))

The command line is the same: `packer build raw out.lmdb --size 256`.
"""

# Not on first use, as in `readers`: the functions are named as their modules, and an import
# of a module that comes later than the function would take its name.
from packer.build import Step, build
from packer.diff import DiffReport, diff
from packer.errors import BuildError
from packer.merge import merge
from packer.recipe import Recipe
from packer.repack import RepackReport
from packer.report import BuildReport
from packer.sources import SourceOptions
from packer.subset import subset
from packer.verify import VerifyReport, verify

__all__ = [
    "BuildError",
    "BuildReport",
    "DiffReport",
    "Recipe",
    "RepackReport",
    "SourceOptions",
    "Step",
    "VerifyReport",
    "build",
    "diff",
    "merge",
    "subset",
    "verify",
]
