"""What the kernel says: faults of GPUs, hung tasks, processes killed for memory, links that flap."""
