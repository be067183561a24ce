"""The collector of the networks that NCCL uses for a run."""
