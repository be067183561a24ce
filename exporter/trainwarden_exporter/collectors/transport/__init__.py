"""Which network NCCL really uses for a run."""
