"""Whether the files of a store's shards are all there, told by one look at each."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path

from readers.store.errors import RemoteError, ShardError
from readers.store.manifest import ShardInfo
from readers.store.place import Place, Url
from readers.store.read_policy import ReadPolicy, tried
from readers.store.read_threads import for_each, read_threads
from readers.store.remote import RemoteFile, files_of
from readers.store.wording import few

_NAMED_MAX = 5


class Listing:
    """The names of the files in a folder, which are asked for while its manifest is read.

    Args:
        folder: The folder.
        policy: How often it is tried again when its server fails.
    """

    def __init__(self, folder: Path, policy: ReadPolicy) -> None:
        self._list = partial(tried, partial(os.listdir, folder), policy)
        self._threads = read_threads()
        self._found: Future[list[str]] | None = None
        with suppress(RuntimeError):  # The process is ending.
            self._found = self._threads.submit(self._list)

    def names(self) -> frozenset[str]:
        """All of them. Raises OSError."""
        return frozenset(self._list() if self._found is None else self._found.result())


def check_shard_files(
    folder: Place, shards: Sequence[ShardInfo], names: Collection[str] | None = None
) -> None:
    """See that each shard has a file of the size that the manifest says, with one stat a shard.

    A bucket is asked for a list of its files; a web server, which has none, for each of them.

    Of a store that is still being copied, or was copied in part, training would notice when it
    asks for a sample that is not there, hours later.

    Args:
        folder: The store's folder or URL.
        shards: From its manifest.
        names: Of the files in the folder, where a look at each would take too long: a thousand
            round trips for a thousand shards. Then no more than their being there is seen.

    Raises:
        ShardError: Files are missing or of another size. The message names the first of them.
        RemoteError: A bucket or server refuses, fails or does not answer.
    """
    if isinstance(folder, Url):
        found = _remote_problems(folder, shards)
    elif names is not None:
        found = [None if info.file in names else "missing" for info in shards]
    else:
        found = [_problem(folder / info.file, info) for info in shards]
    problems = [
        (info.file, problem)
        for info, problem in zip(shards, found, strict=True)
        if problem is not None
    ]
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


def _remote_problems(url: Url, shards: Sequence[ShardInfo]) -> list[str | None]:
    """What is wrong with the file of each shard in a bucket or on a web server, or None."""
    files = files_of(url)
    listed = files.listing()
    found: list[RemoteFile | None] = [None] * len(shards)
    if listed is not None:
        found = [listed.get(info.file) for info in shards]
    else:

        def look(number: int) -> None:
            try:
                found[number] = files.find(shards[number].file)
            except RemoteError as error:
                if not error.is_missing:
                    raise

        for_each(read_threads(), look, range(len(shards)))
    return [
        "missing" if file is None else _size_problem(file.size, info)
        for file, info in zip(found, shards, strict=True)
    ]


def _size_problem(size: int, info: ShardInfo) -> str | None:
    return None if size == info.bytes else f"{size} bytes, expected {info.bytes}"


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
    return _size_problem(found.st_size, info)
