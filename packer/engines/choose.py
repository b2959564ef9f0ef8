"""Which engine a build asks for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, get_args

from packer.engines.engine import Engine
from packer.engines.local import LocalEngine
from packer.errors import BuildError
from packer.workspace.folder import Workspace
from readers.machine import core_count, local_rank_count
from readers.store.place import Place, Url

EngineName = Literal["local", "dask"]


def check_engine(engine: EngineName, scheduler: Any, worker_count: int | None, out: Place) -> None:
    """See that an engine is asked for in terms that are its own, and can build at a target.

    Raises:
        ValueError: It is not.
    """
    if engine not in get_args(EngineName):
        raise ValueError(f"engine must be 'local' or 'dask'; got {engine!r}")
    if scheduler is not None and engine != "dask":
        raise ValueError("scheduler is of a Dask cluster: give engine 'dask' as well")
    if engine != "local" and isinstance(out, Url):
        raise ValueError(
            f"{out}: the nodes of engine {engine!r} build into a folder that all of them see; copy "
            "the finished store to the bucket"
        )
    if scheduler is not None and worker_count is not None:
        raise ValueError(
            "the workers of a scheduler are how many it has; give the number of workers or a "
            "scheduler, not both"
        )


def make_engine(
    engine: EngineName,
    workspace: Workspace,
    *,
    scheduler: Any,
    worker_count: int | None,
    scratch: str | Path | None,
) -> Engine:
    """The engine of a build; see `packer.building.build.build` for what is asked for.

    Raises:
        BuildError: It needs a library that is not installed.
    """
    workers = worker_count or max(1, core_count() // local_rank_count())
    if engine == "local":
        return LocalEngine(workspace, workers)
    try:
        from packer.engines.dask import DaskEngine
    except ImportError as error:
        raise BuildError(
            f"the engine dask needs distributed, which cannot be imported: {error}. "
            "Install it, here and on the workers, with: pip install 'lmdb-packer[dask]'"
        ) from error
    folder = None if scratch is None else os.path.abspath(scratch)
    return DaskEngine(workspace, scheduler, workers, folder)
