"""Builds that are asked to stop: SIGTERM and Ctrl-C."""

from __future__ import annotations

import os
import re

import pytest

from packer.building.build import Step

LIMIT_S = 2.0

KEPT = r"\d of 4 shards finished and kept: run the same command to go on\."


def said_at(step: Step, out: os.PathLike[str]) -> str:
    if step is Step.LOCKED:
        return "No shard was begun and nothing is left behind: run the same command again."
    return f"{out} is whole." if step in (Step.PUBLISHED, Step.CLEANED) else KEPT


@pytest.mark.parametrize("step", Step)
def test_a_build_stops_at_any_step(builder, whole, is_whole, step):
    """Within two seconds, with the status that shells know, and a word on what is kept."""
    done = builder.run(step=step.name, command="kill -TERM $DRIVER; exec sleep 10")
    assert (done.status, done.said) == (143, "")
    assert done.delay_s < LIMIT_S
    assert re.fullmatch(rf"Stopped\. {said_at(step, builder.out)}\n+", done.errors)
    builder.check_gone()
    assert is_whole(builder.out) == (step in (Step.PUBLISHED, Step.CLEANED))
    if step is Step.LOCKED:
        assert os.listdir(builder.out.parent) == []
    if step is not Step.CLEANED:
        builder.finish(whole)
    builder.check_whole(whole)


@pytest.mark.parametrize("step", [Step.LOCKED, Step.SHARD_FINISHED], ids=lambda step: step.name)
def test_ctrl_c_stops_a_build_and_all_its_workers(builder, whole, step):
    """The terminal sends it to the whole group; no traceback of any process is shown."""
    done = builder.run(step=step.name, command="kill -s INT -- -$DRIVER; exec sleep 10")
    assert (done.status, done.said) == (130, "")
    assert done.delay_s < LIMIT_S
    assert re.fullmatch(rf"Stopped\. {said_at(step, builder.out)}\n+", done.errors)
    builder.check_gone()
    builder.finish(whole)


def test_a_worker_that_does_not_answer_holds_nobody_up(builder, whole):
    """One that is frozen, as if it waited for a file server, is ended with the others."""
    command = "kill -STOP $WORKERS; kill -TERM $DRIVER; exec sleep 10"
    done = builder.run("--workers", "2", step="SHARD_FINISHED", command=command)
    assert done.status == 143
    assert done.delay_s < LIMIT_S
    builder.check_gone()
    builder.finish(whole)
