"""Compiles trees of images into LMDB stores for PyTorch training.

    from packer import build
    report = build("raw", "out.lmdb", size=256)

The command line is the same: `packer build raw out.lmdb --size 256`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.building.build import build as build
    from packer.building.planned import plan_build as plan_build
    from packer.cluster.publish import publish_planned as publish_planned
    from packer.cluster.status import status as status
    from packer.cluster.work import work as work
    from packer.errors import BuildError as BuildError
    from packer.recipe import Recipe as Recipe
    from packer.report import BuildReport as BuildReport
    from packer.sources import SourceOptions as SourceOptions
    from packer.stores.diff import DiffReport as DiffReport
    from packer.stores.diff import diff as diff
    from packer.stores.export.report import ExportPlan as ExportPlan
    from packer.stores.export.report import ExportReport as ExportReport
    from packer.stores.export.run import export as export
    from packer.stores.export.run import plan_export as plan_export
    from packer.stores.merge import merge as merge
    from packer.stores.rejects import RejectSummary as RejectSummary
    from packer.stores.rejects import rejects as rejects
    from packer.stores.repack import RepackReport as RepackReport
    from packer.stores.stage import StageReport as StageReport
    from packer.stores.stage import stage as stage
    from packer.stores.subset import subset as subset
    from packer.stores.verify import VerifyReport as VerifyReport
    from packer.stores.verify import verify as verify
    from packer.view.make import view_raw as view_raw
    from packer.view.make import view_store as view_store
    from packer.view.page import ViewReport as ViewReport
    from packer.workspace.step import Step as Step


def _check_readers() -> None:
    """See that `readers` is ours: a folder or file of the user's own may come before it.

    Raises:
        ImportError: It is not.
    """
    found = importlib.util.find_spec("readers")
    inside = [] if found is None else list(found.submodule_search_locations or ())
    # By their folder: an editable install finds parts of ours also within a package of theirs.
    store = importlib.machinery.PathFinder.find_spec("readers.store", inside) if inside else None
    if store is not None and store.origin is not None:
        return
    places = [*inside, None if found is None else found.origin]
    where = next(filter(None, places), "none")
    raise ImportError(
        f"expected the package readers that comes with packer, and found {where}: a folder or file "
        "called readers, of yours perhaps, comes first on Python's path. Rename it, or run Python "
        "elsewhere."
    )


_check_readers()

_HOMES = {
    "BuildError": "packer.errors",
    "BuildReport": "packer.report",
    "DiffReport": "packer.stores.diff",
    "ExportPlan": "packer.stores.export.report",
    "ExportReport": "packer.stores.export.report",
    "Recipe": "packer.recipe",
    "RejectSummary": "packer.stores.rejects",
    "RepackReport": "packer.stores.repack",
    "SourceOptions": "packer.sources",
    "StageReport": "packer.stores.stage",
    "Step": "packer.workspace.step",
    "VerifyReport": "packer.stores.verify",
    "ViewReport": "packer.view.page",
    "build": "packer.building.build",
    "diff": "packer.stores.diff",
    "export": "packer.stores.export.run",
    "merge": "packer.stores.merge",
    "plan_build": "packer.building.planned",
    "plan_export": "packer.stores.export.run",
    "publish_planned": "packer.cluster.publish",
    "rejects": "packer.stores.rejects",
    "stage": "packer.stores.stage",
    "status": "packer.cluster.status",
    "subset": "packer.stores.subset",
    "verify": "packer.stores.verify",
    "view_raw": "packer.view.make",
    "view_store": "packer.view.make",
    "work": "packer.cluster.work",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Public names are loaded on first use: build workers and the command line need few of them."""
    if name == "__version__":
        return importlib.metadata.version("lmdb-packer")
    if name in _HOMES:
        found = getattr(importlib.import_module(_HOMES[name]), name)
        if isinstance(found, type):
            return found
        return importlib.import_module("packer.python_words").in_python(found)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
