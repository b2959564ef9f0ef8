"""Whether the files of a store's shards are all there, told by one look at each."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path

from readers.store.errors import ShardError
from readers.store.manifest import ShardInfo
from readers.store.wording import few

_NAMED_MAX = 5


def check_shard_files(
    folder: Path, shards: Sequence[ShardInfo], names: Collection[str] | None = None
) -> None:
    """See that each shard has a file of the size that the manifest says, with one stat a shard.

    Of a store that is still being copied, or was copied in part, training would notice when it
    asks for a sample that is not there, hours later.

    Args:
        folder: The store's folder.
        shards: From its manifest.
        names: Of the files in the folder, where a look at each would take too long: a thousand
            round trips for a thousand shards. Then no more than their being there is seen.

    Raises:
        ShardError: Files are missing or of another size. The message names the first of them.
    """
    problems = []
    for info in shards:
        if names is None:
            problem = _problem(folder / info.file, info)
        else:
            problem = None if info.file in names else "missing"
        if problem is not None:
            problems.append((info.file, problem))
    if not problems:
        return
    named = "; ".join(few(problems, _NAMED_MAX, lambda one: f"{folder / one[0]}: {one[1]}"))
    error = ShardError(
        f"{folder}: {len(problems):,} of {len(shards):,} shards are not there as the manifest "
        f"says: {named}. Is the store still being copied? Wait for the end or copy it again, "
        f"then check it with: packer verify {folder}"
    )
    error.path = folder / problems[0][0]
    raise error


def _problem(path: Path, info: ShardInfo) -> str | None:
    """What is wrong with the file of a shard, or None."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return error.strerror or "cannot be looked at"
    if stat.S_ISLNK(found.st_mode):
        return "a symbolic link"
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    if found.st_size != info.bytes:
        return f"{found.st_size} bytes, expected {info.bytes}"
    return None
