"""Which layout raw data has: what speaks for each, and the decision."""
