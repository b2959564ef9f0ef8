"""Folders that a build needs while it runs are its own, and leave nothing."""

from __future__ import annotations

import threading

from packer.workspace.folder import Workspace
from packer.workspace.scratch import node_scratch_folder


def test_a_folder_of_a_node_is_never_taken_for_one_that_was_left(tmp_path):
    """Many begin at once, each of which clears what killed ones left: all keep their own."""
    workspace = Workspace(tmp_path / "out.lmdb.building")
    workspace.scratch.mkdir(parents=True)
    missing = []

    def work():
        for _ in range(40):
            with node_scratch_folder(workspace, None) as folder:
                missing.extend([folder] * (not folder.is_dir()))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missing == []
    assert list(workspace.scratch.iterdir()) == []
