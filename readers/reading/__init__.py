"""Indices become one batch: located, gathered or decoded, put together.

In: indices of a view's samples, and memory to write to. Out: a batch, or one sample.
Called by `readers.dataset` and `readers.engines`.
"""
