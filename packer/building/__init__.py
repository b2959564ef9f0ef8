"""A raw tree becomes a store: scan, plan, map the shard tasks, publish.

In: a raw path, a recipe, source options. Out: a published store and its `BuildReport`.
Called by `packer.build` and the command line. What an interrupted build left is the business of
`packer.workspace`, what a shard is made of that of `packer.plan`, and how tasks are mapped over
processes that of `packer.engines`.
"""
