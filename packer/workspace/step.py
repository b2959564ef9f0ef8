"""The steps of making a store, by name: what progress is told, and where crash tests kill it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeAlias


class Step(enum.Enum):
    """What a build does, in order. A build that dies at any of them can be run again."""

    LOCKED = "the target is held by this build"
    PLANNED = "the plan and its tasks are written"
    SHARD_FINISHED = "a shard is in place"
    SHARDS_FINISHED = "all shards are in place"
    MANIFEST_WRITTEN = "the manifest is written"
    PUBLISHED = "the store has its name"
    CLEANED = "the workspace is gone"


OnStep: TypeAlias = Callable[[Step], None]
"""Told of each step as it is done."""


def untold(step: Step) -> None:
    """Nobody wants to know."""
