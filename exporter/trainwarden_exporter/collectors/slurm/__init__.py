"""Jobs and nodes of a SLURM cluster, for a head node."""
