"""Runs in a guest system, whose NFS_DIR is an NFS mount of NFS_EXPORT; prints what it found."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import threading
from pathlib import Path

import numpy as np

from readers.dataset import LMDBDataset
from readers.machine import mount_of
from readers.store.errors import ShardError
from scripts.nfs_calls import nfs_calls

MOUNT, EXPORT = Path(os.environ["NFS_DIR"]), Path(os.environ["NFS_EXPORT"])
STORE = MOUNT / "large.lmdb"


def serve(*arguments):
    """Stop the server (0 threads), or start it."""
    subprocess.run(["rpc.nfsd", *arguments], check=True)


def same(dataset, expected, indices):
    found = dataset.__getitems__([int(index) for index in indices])
    return all(
        int(label) == index and np.array_equal(image.permute(1, 2, 0).numpy(), expected[index])
        for (image, label), index in zip(found, indices, strict=True)
    )


def shuffled(dataset, expected):
    """Samples at random, and what they cost."""
    same(dataset, expected, [0, 16, 32, 48])  # Opens the shards.
    order = np.random.default_rng(0).permutation(64)[:32]
    before = nfs_calls(MOUNT)
    is_same = all(same(dataset, expected, order[first : first + 16]) for first in (0, 16))
    calls = nfs_calls(MOUNT).since(before)
    return {"is_same": is_same, "reads": calls.reads, "names": calls.names}


def away(dataset, expected):
    """The server is stopped while samples are read, and started again."""
    serve("0")
    back = threading.Timer(2, serve, ("-H", "127.0.0.1", "8"))
    back.start()
    is_same = same(dataset, expected, range(1, 64, 5))
    back.join()
    return is_same


def replaced(dataset, expected):
    """A shard is replaced on the server, by one of the same size; no sample of it is given out.

    The server keeps the old file for those who have it open, until it is started again.
    """
    shard = EXPORT / "large.lmdb" / "shard-00001.lmdb"
    other = EXPORT / "other"
    other.write_bytes(bytes(shard.stat().st_size))
    other.replace(shard)
    for index in range(16, 32):
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
        if index == 20:
            serve("0")
            serve("-H", "127.0.0.1", "8")
        try:
            if not same(dataset, expected, [index]):
                return f"sample {index} is another"
        except ShardError as error:
            return str(error)
    return "nothing was noticed"


def main():
    expected = np.load(EXPORT / "large.npy")
    dataset = LMDBDataset(STORE, returns=("image", "label"))
    found = {
        "mount": mount_of(STORE).type,
        "access": dataset.view.store.access,
        "shuffled": shuffled(dataset, expected),
        "away": away(dataset, expected),
        "mapped": same(
            LMDBDataset(STORE, returns=("image", "label"), io="map"), expected, [3, 40, 20]
        ),
        "replaced": replaced(dataset, expected),
    }
    del dataset
    gc.collect()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
