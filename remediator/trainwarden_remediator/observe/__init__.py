"""What is read of the world: alerts, runs, nodes and schedulers, each source once a round."""
