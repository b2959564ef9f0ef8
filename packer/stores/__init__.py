"""What is done with finished stores: verify, merge, cut, compare, show.

In: paths of stores. Out: reports, or new stores whose records are copied, not encoded again.
Called by the functions of `packer` and by the command line.
"""
