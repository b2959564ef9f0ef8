"""The unfinished build: its folder beside the target, who holds it, and how it becomes a store.

In: a target path and what finished shard tasks report. Out: shards, reports and a manifest under
the target's name, in an order that a crash cannot spoil. Called by whatever makes stores:
`building`, `stores.repack`, `engines`.
"""
