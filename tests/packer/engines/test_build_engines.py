"""Each engine of the build holds the laws of all of them."""

from __future__ import annotations

from packer.engines.dask import DaskEngine
from packer.engines.engine import Engine
from packer.engines.local import LocalEngine
from packer.workspace.folder import Workspace
from tests.packer.engines.engine_conformance import EngineConformance


class TestLocal(EngineConformance):
    """Processes of this machine."""

    def make(self, workspace: Workspace, worker_count: int) -> Engine:
        return LocalEngine(workspace, worker_count)


class TestDask(EngineConformance):
    """A Dask cluster of this machine."""

    def make(self, workspace: Workspace, worker_count: int) -> Engine:
        return DaskEngine(workspace, None, worker_count)
