"""What files of one kind hold, whatever the layout they lie in: IDX, CIFAR, Arrow, XML, text.

In: a path or bytes. Out: arrays, rows, trees, lines; errors that name the file. Called by `sources`
and `raw`. Strangers' files: nothing in them is run, and sizes are checked first.
"""
