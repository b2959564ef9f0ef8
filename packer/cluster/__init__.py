"""A planned build carried out by many nodes, whatever starts their processes.

In: a workspace that `packer.building.planned` has left beside its target. Out: its shards, made by
any number of `work` processes; the published store; and an account of who does what. `slurm`
submits all of it as three jobs, and knows nothing of stores. Called by the command line.
"""
