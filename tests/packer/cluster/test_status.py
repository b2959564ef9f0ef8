"""What `packer status` says of a build: before it, in its course, and after it."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from packer.cluster.publish import publish_planned
from packer.cluster.slurm import logs_folder
from packer.cluster.status import status
from packer.cluster.work import work
from packer.errors import BuildError
from packer.workspace.nodes import SILENT_S, NodeFacts, NodeFile
from tests.command import run_packer


def test_a_build_in_its_course(planned):
    """Who makes what and since when, who has failed and where its log is, who is silent."""
    nodes = {
        name: NodeFile(planned.workspace, NodeFacts(name=name, host=host, pid=1, part=part))
        for name, host, part in (("a", "n1", "1/2"), ("b", "n2", "2/2"), ("c", "n3", ""))
    }
    nodes["a"].facts.image_count = 30
    nodes["a"].begin(0)
    nodes["a"].begin(1)
    nodes["a"].end(1, 2)
    nodes["b"].facts.state, nodes["b"].facts.error = "failed", "the disk is full\nsecond line"
    nodes["b"].facts.log = "/logs/work-7_2.log"
    nodes["b"].begin(2)
    nodes["c"].begin(3)
    path = planned.workspace.folder / "nodes" / nodes["c"].id
    long_ago = time.time() - 2 * SILENT_S
    os.utime(path, (long_ago, long_ago))
    found = status(planned.out)
    assert (found.state, found.shard_count, found.finished_count) == ("planned", 4, 0)
    assert found.reject_count == 2
    states = {node.name: (node.state, list(node.making)) for node in found.nodes}
    assert states == {"a": ("working", [0]), "b": ("failed", [2]), "c": ("silent", [3])}
    assert found.left_s == pytest.approx(12 / found.images_per_s)
    text = found.summary()
    for words in (
        "0 of 4 shards finished, 2 rejects so far",
        "running: 1 shard on 1 node",
        "  a on n1, part 1/2: shard 0 for ",
        "  b on n2, part 2/2: the disk is full; log: /logs/work-7_2.log",
        "  c on n3: no word for 6 min: killed, or hung",
    ):
        assert words in text
    assert "second line" not in text


def test_the_states_of_a_build(planned, tmp_path):
    """Nobody has planned it, it is submitted, planned, all made, published: each says what next."""
    other = tmp_path / "other.lmdb"
    with pytest.raises(BuildError, match="nobody has planned or submitted a build"):
        status(other)
    logs_folder(other).mkdir()
    assert "submitted, and not planned yet. Logs: " in run_packer("status", other).stdout
    assert "no node works, or has begun yet" in run_packer("status", planned.out).stdout
    work(planned.out, workers=1)
    said = run_packer("status", planned.out).stdout
    assert "4 of 4 shards finished, 0 rejects so far" in said
    assert f"next: packer publish {planned.out}" in said
    publish_planned(planned.out)
    done = run_packer("status", planned.out, "--watch", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["state"] == "published"


def test_it_needs_few_calls(planned, monkeypatch):
    """Listings, and one file a node: neither shards nor reports are opened."""
    work(planned.out, workers=1)
    opened = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if is_watched and event == "open" and str(planned.out) in str(arguments[0]):
            opened.append(os.path.relpath(str(arguments[0]), planned.workspace.folder))

    is_watched = True
    sys.addaudithook(hook)
    status(planned.out)
    is_watched = False
    folders = {path.split("/")[0] for path in opened}
    assert folders == {"plan.json", "task-plan", "nodes"}
    assert len(opened) < 10
