"""Copies of shards on a node's local disk, made while training reads them from far away.

In comes a store, wherever it lies, and a folder on a local disk; out go whole, checked copies of
its shards there, and a door to record bytes (`staged_bytes.py`) that takes each shard from its copy
as soon as there is one. `readers.dataset` and `packer stage` call it. It needs no torch.

    settings.py       what a user says: folder, limit, rate
    cache_folder.py   what lies in the folder, under which names
    byte_locks.py     who uses a copy, who makes one: locks that end with their process
    room.py           limit and free space; the copies that were used least recently go first
    shard_copy.py     one shard: read, hashed, written aside, synced, renamed
    stager.py         all shards of a store, by one process of the node, in the order of need
    background.py     that, in a thread of the training process
    staged_bytes.py   the door: from far, or out of the copy
    status.py         what is there
"""
