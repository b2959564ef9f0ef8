"""Batches ahead of the loop that takes them: by threads or by processes, and their memory.

In: the indices of each batch, and a filler that fills one. Out: batches in order.
Called by `readers.loader.make`.
"""
