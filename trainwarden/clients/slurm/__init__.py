"""SLURM: its client commands, the JSON that they print since 22.05, and its records of jobs and nodes."""
