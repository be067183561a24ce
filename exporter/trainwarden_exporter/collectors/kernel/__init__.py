"""The kernel's log: faults of GPUs, hung tasks, processes killed for memory, links that flap."""
