"""Claims of nodes, and what they say of themselves: advice, and never in the way."""

from __future__ import annotations

import os
import time

import pytest

from packer.errors import TargetBusyError
from packer.workspace.folder import Workspace
from packer.workspace.nodes import (
    CLAIMS_MAX,
    SILENT_S,
    Claims,
    NodeFacts,
    NodeFile,
    check_nobody_works,
    read_nodes,
)


@pytest.fixture
def workspace(tmp_path):
    """Of a build that was just planned."""
    made = Workspace(tmp_path / "out.lmdb.building")
    made.folder.mkdir()
    made.begin([], {})
    made.open_to_nodes()
    return made


@pytest.fixture
def join(workspace):
    """A function that adds a node: its file, and its claims."""

    def node(host):
        file = NodeFile(workspace, NodeFacts(host=host, pid=1))
        file.write()
        return file, Claims(workspace, file.id)

    return node


def test_a_shard_is_taken_once_and_helped_with_once(join):
    """While both are alive, a third has nothing to do with it; nor has one a second time."""
    (_, a), (_, b), (_, c) = join("a"), join("b"), join("c")
    assert [a.take_first(5), b.take_first(5)] == [True, False]
    assert [a.help_with(5), b.help_with(5), c.help_with(5)] == [False, True, False]
    assert a.claimed() == {5}


def test_a_claim_of_one_that_is_gone_counts_no_more(join, workspace):
    """It ended, or was silent for minutes; what it gave back counts neither."""
    (first, a), (silent, b), (_, c) = join("a"), join("b"), join("c")
    a.take_first(1)
    b.help_with(1)
    assert not c.help_with(1)
    first.facts.state = "failed"
    first.write()
    assert Claims(workspace, "d").help_with(1)
    long_ago = time.time() - 2 * SILENT_S
    os.utime(workspace.folder / "nodes" / silent.id, (long_ago, long_ago))
    assert Claims(workspace, "e").help_with(1)
    a.release([1, 2])
    assert a.take_first(1)


def test_what_kills_every_node_is_left_alone(join, workspace):
    """After so many tries."""
    for number in range(CLAIMS_MAX + 2):
        node, claims = join(f"n{number}")
        claims.take_first(0) or claims.help_with(0)
        node.facts.state = "failed"
        node.write()
    assert len(os.listdir(workspace.folder / "claims")) == CLAIMS_MAX


def test_a_node_is_seen_as_it_says_and_by_the_time_of_the_file_system(join, workspace):
    """Its clock plays no part: ages are differences of times that the file system set."""
    file, _ = join("far")
    file.begin(3)
    (seen,) = read_nodes(workspace)
    assert (seen.id, seen.facts.host, list(seen.facts.making), seen.is_live) == (
        file.id,
        "far",
        [3],
        True,
    )
    assert seen.age_s < 60
    file.end(3, 1)
    (seen,) = read_nodes(workspace)
    assert (seen.facts.finished_count, seen.facts.rejects, seen.facts.making) == (1, {3: 1}, {})


def test_a_build_that_nodes_work_on_is_not_discarded(join, workspace, tmp_path):
    """It is said which; once they have ended it may be."""
    file, _ = join("n7")
    with pytest.raises(TargetBusyError, match=r"'n7' still work .*scancel"):
        check_nobody_works(workspace, tmp_path / "out.lmdb")
    file.facts.state = "stopped"
    file.write()
    check_nobody_works(workspace, tmp_path / "out.lmdb")


def test_a_workspace_that_is_gone_is_no_error_to_a_node(join, workspace):
    """It was published, or planned anew: whoever is late has nothing to say to anybody."""
    file, claims = join("late")
    workspace.remove()
    file.begin(1)
    assert claims.take_first(1)
    assert (claims.claimed(), read_nodes(workspace)) == (set(), [])
    claims.release([1])
    assert not workspace.folder.exists()
