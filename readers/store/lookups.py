"""LMDB's own look-ups in the shards of a store, by a process that may die of them.

Its argument is the store; it is given numbers of shards on stdin, a line each, and answers with a
line of JSON: null, or what is wrong. It is here, and not beside
`packer.stores.lmdb_children` which starts it, so that it loads nothing that building needs.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from readers.store.child_process import end_with_parent
from readers.store.errors import StoreError
from readers.store.reader import StoreReader, open_store
from readers.store.shard import check_against_lmdb

_MEMORY_BYTES = 2**30
_MEMORY_PER_SAMPLE_BYTES = 512
"""Memory that it may take, beside the files that it maps: it keeps all keys of one shard."""


def main(parent: int) -> None:
    """What a child runs, until stdin or the parent process ends."""
    # Not by the kernel: the thread that starts it may end before another that goes on asking it.
    # LMDB lets go of the interpreter lock, so that this ends even a look-up that goes in circles.
    end_with_parent(parent, by_kernel=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    store = open_store(sys.argv[1], checks_files=False)
    most = max(info.sample_count for info in store.manifest.shards)
    limit = _MEMORY_BYTES + _MEMORY_PER_SAMPLE_BYTES * most
    # Of memory of its own: what LMDB maps of a file is not counted.
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    for line in sys.stdin:
        answer = _problem(store, int(line))
        os.write(1, (json.dumps(answer) + "\n").encode())


def _problem(store: StoreReader, number: int) -> str | None:
    try:
        shard = store.shard(number)
        assert isinstance(shard.path, Path)  # LMDB opens files alone.
        check_against_lmdb(shard.path, shard)
    except StoreError as error:
        return str(error)
    except MemoryError:
        return f"{store.path}: LMDB takes more memory reading shard {number} than its keys need."
    return None
