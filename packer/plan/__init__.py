"""Which items are stored, in which shards, how large that will be and what it costs.

In: the raw items that a source found, and the recipe. Out: a `BuildPlan` and estimates. Before the
estimates no pixel is read; the plan itself is a pure function of items and recipe.
Called by `building`, `stores` and the `plan` command.
"""
