"""`make_loader` and what it returns: a torch DataLoader whose batches come from an engine.

In: a dataset and settings. Out: batches, in an order of `readers.orders`, filled by
`readers.engines`. Called by training.
"""
