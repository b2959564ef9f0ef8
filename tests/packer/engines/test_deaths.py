"""Build workers that died: what follows from one death, from two, and from too many."""

from __future__ import annotations

import signal

import pytest

from packer.engines.deaths import Death, Deaths
from packer.engines.worker import NO_MEMORY_STATUS
from packer.errors import WorkerError
from packer.items.raw_item import RawItem
from packer.workspace.folder import Workspace

SEGV = "signal 11: segmentation fault"


@pytest.fixture
def deaths(tmp_path):
    """Of a build with two shards of 60 items each."""
    workspace = Workspace(tmp_path)
    (tmp_path / "tasks").mkdir()
    workspace.write_tasks(
        [[RawItem(b"", b"%d/%d.png" % (shard, n), 1, 1) for n in range(60)] for shard in range(2)]
    )
    return Deaths(workspace)


def death(number, position, status=-signal.SIGSEGV, said=()):
    return Death(number=number, position=position, status=status, said=list(said))


def test_the_second_death_on_an_item_makes_it_a_reject(deaths):
    """The first is told and tried again; deaths on other items of the shard do not count."""
    expected = f"a build worker died while working on 1/7.png ({SEGV}); shard 1 is tried again"
    assert deaths.add(death(1, 7)).startswith(expected)
    deaths.add(death(1, 8))
    deaths.add(death(0, 7))
    assert (deaths.lost_items(0), deaths.lost_items(1)) == ({}, {})
    assert deaths.add(death(1, 7)).endswith("for the second time: it becomes a reject")
    assert deaths.lost_items(1) == {7: f"a build worker died twice while working on it ({SEGV})"}
    assert deaths.lost_items(0) == {}


@pytest.mark.parametrize("position", [-1, 60])
def test_a_worker_that_dies_on_no_item_again_and_again_ends_the_build(deaths, position):
    """It was starting, or writing the shard: there is nothing to leave out."""
    for number in (0, 1):
        text = deaths.add(death(number, position, -signal.SIGKILL))
        assert text.startswith(f"a build worker died while making shard {number} (signal 9: killed")
        assert text.endswith("the shard is tried again")
    with pytest.raises(WorkerError, match=r"as did 2 before it.*fewer --workers") as caught:
        deaths.add(death(0, position, 1, said=["ImportError: no numpy", "goodbye"]))
    assert str(caught.value).endswith("\n  ImportError: no numpy\n  goodbye")
    assert deaths.lost_items(0) == deaths.lost_items(1) == {}


def test_a_hundred_deaths_end_the_build(deaths):
    """Fifty fatal items are no raw data but a broken decoder, or a machine without memory."""
    for position in range(49):
        deaths.add(death(0, position))
        deaths.add(death(0, position))
    deaths.add(death(0, 49))
    with pytest.raises(WorkerError, match=r"0/49\.png .*, the 100th of this build"):
        deaths.add(death(0, 49))


@pytest.mark.parametrize(
    ("status", "how"),
    [
        (-signal.SIGKILL, "signal 9: killed, perhaps by the out-of-memory killer"),
        (-signal.SIGBUS, "signal 7: bus error"),
        (3, "exit status 3"),
        (NO_MEMORY_STATUS, "it ran out of memory"),
    ],
)
def test_what_ended_a_worker_is_said_in_words(status, how):
    """A signal by number and name, and what an out-of-memory killer's victim looks like."""
    assert death(0, 0, status).how == how
