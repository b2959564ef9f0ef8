"""Builds whose processes are killed outright: the driver, a build worker, or all at once."""

from __future__ import annotations

import signal

import pytest

from packer.building.build import Step

DEATHS = [
    *((step, 1, "driver") for step in Step),
    (Step.SHARD_FINISHED, 3, "driver"),
    (Step.SHARD_FINISHED, 1, "all"),
    (Step.SHARD_FINISHED, 3, "all"),
    (Step.MANIFEST_WRITTEN, 1, "all"),
]
IDS = [f"{step.name}-{turn}-{victim}" for step, turn, victim in DEATHS]

KILLS = {"driver": "kill -KILL $DRIVER", "all": "kill -s KILL -- -$DRIVER"}


@pytest.mark.parametrize(("step", "turn", "victim"), DEATHS, ids=IDS)
def test_a_killed_build_is_refused_and_can_be_finished(
    builder, whole, is_whole, step, turn, victim
):
    """Dead at any step, it is no store yet; the same command completes it; nothing is left."""
    # With one worker no other shard than the last one told is finished.
    options = ["--workers", "1"]
    options += ["--scratch", builder.scratch] if turn == 3 else []
    done = builder.run(*options, step=step.name, turn=turn, command=KILLS[victim])
    assert done.status == -signal.SIGKILL
    builder.check_gone()
    assert is_whole(builder.out) == (step in (Step.PUBLISHED, Step.CLEANED))
    if step is not Step.CLEANED:
        kept = {Step.LOCKED: 0, Step.PLANNED: 0, Step.SHARD_FINISHED: turn}.get(step, 4)
        said = builder.finish(whole, *options).said
        assert f"{kept} shard{'s' if kept > 1 else ''} kept" in said or kept == 0
    builder.check_whole(whole)


@pytest.mark.parametrize("turn", [1, 2, 4])
def test_a_killed_build_worker_is_replaced(builder, whole, turn):
    """One of two, in the middle of its shard or between two: the build makes up for it."""
    done = builder.run(
        "--workers",
        "2",
        step="SHARD_FINISHED",
        turn=turn,
        command="set -- $WORKERS; kill -KILL $1",
    )
    assert done.status == 0
    builder.check_whole(whole)
    for line in done.errors.splitlines():
        assert line.startswith("a build worker died while ")
        assert "(signal 9: killed, perhaps by the out-of-memory killer)" in line
        assert "tried again" in line


def test_a_build_whose_workers_always_die_ends(builder, whole):
    """It does not go on for ever; and once the cause is gone, the same command finishes it."""
    kill = "kill -KILL $(cat /proc/$DRIVER/task/$DRIVER/children) || true"
    killer = f"while kill -0 $DRIVER; do {kill}; sleep 0.01; done"
    done = builder.run(step="PLANNED", command=f"({killer}) >/dev/null 2>&1 &")
    *notices, last = done.errors.splitlines()
    assert (done.status, len(notices)) == (1, 2)
    for notice in notices:
        assert notice.endswith("the shard is tried again")
    assert last.startswith("Error: a build worker died while making shard ")
    for words in ("as did 2 before it", "fewer --workers", "run the same command"):
        assert words in last
    assert "kept" not in last
    builder.check_gone()
    builder.finish(whole)
