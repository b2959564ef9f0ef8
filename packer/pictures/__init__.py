"""A raw item's bytes become the values of its sample: image, masks and objects on one grid.

In: one raw item and the recipe. Out: decoded, upright, resized, encoded values. Pure functions: no
state is kept between items, apart from the statistics. Called by shard tasks and by estimates.
"""
