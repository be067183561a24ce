"""Jobs and resources of a Ray cluster, for a head node."""
