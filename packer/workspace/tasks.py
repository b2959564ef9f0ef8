"""What a shard task needs to know, as files of the workspace: any node can carry it out with these.

    task-plan       what all tasks of a build have in common; small, so that each may read it
    tasks/00000     file name and raw items of one shard, behind a digest of themselves

Nobody has to scan the raw data again, nor to know of other shards. The digest tells a file that a
power cut has emptied, or that a file server hands out in part, from one that is whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from packer.errors import DamagedTaskError
from packer.items.raw_item import RawItem

_DIGEST_BYTES = 16


class TaskPlan(msgspec.Struct, kw_only=True):
    """What a shard task needs to know beside its items.

    Attributes:
        root: Folder that the items' paths are relative to, as bytes.
        schema: The store's schema.
        recipe: The settings, by name.
        mask_colors: Colour of each value of the masks, where their files hold colours.
        stops_at_reject: Whether the first reject ends the build.
        id: Digest of the facts of the build, which reports carry: whoever still works on an earlier
            build in the same workspace spoils nothing. Empty where nothing is compared.
        is_shared: Whether several nodes may make the same shard at a time. Then each attempt has a
            name of its own, and its report says which.
        versions: Of the libraries whose bytes end up in the store, by name.
        shard_count: How many shards there are.
        item_count: How many items are in them.
    """

    root: bytes
    schema: dict[str, Any]
    recipe: dict[str, Any]
    mask_colors: tuple[tuple[int, int, int], ...] = ()
    stops_at_reject: bool
    id: str = ""
    is_shared: bool = False
    versions: dict[str, str] = {}
    shard_count: int = 0
    item_count: int = 0


class Task(msgspec.Struct, array_like=True):
    """One shard that is to be made.

    Attributes:
        name: File name of the shard.
        items: Its raw items, in order.
    """

    name: str
    items: list[RawItem]


class _Written(msgspec.Struct, array_like=True):
    """`Task`, attribute for attribute, of items in any sequence."""

    name: str
    items: Sequence[RawItem]


def plan_id(facts: dict[str, Any]) -> str:
    """What tells a build of these facts from one of others, in hex."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def task_bytes(name: str, items: Sequence[RawItem]) -> bytes:
    """A task file."""
    data = msgspec.msgpack.encode(_Written(name, items))
    return _digest(data) + data


def read_task(path: Path) -> Task:
    """The task of a file.

    Raises:
        DamagedTaskError: It is not as it was written.
        OSError: It cannot be read.
    """
    data = path.read_bytes()
    digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if digest != _digest(content):
        raise DamagedTaskError(
            f"{path}: {len(data):,} bytes that do not match their digest; the file was damaged "
            "after the plan was made. Plan again: the same packer build, with --plan-only if nodes "
            "are to work on it. Shards that were finished are kept."
        )
    return msgspec.msgpack.decode(content, type=Task)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_DIGEST_BYTES]
