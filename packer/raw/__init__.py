"""The bytes of raw items: from files of their own, out of archives, read ahead on slow storage.

In: raw items. Out: bytes or bare pixels, one item after the other. Called by shard tasks, estimates
and `stores.against`.
"""
