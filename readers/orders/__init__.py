"""What an epoch is: which samples, in which order, on which rank, in which batches.

In: numbers of samples, seed, epoch, rank, position. Out: indices; nothing here reads a store.
Called by `readers.loader.make`, and by users as samplers.
"""
