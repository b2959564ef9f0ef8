"""Which layout raw data has: the evidence for each, and the decision."""
