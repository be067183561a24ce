"""NVIDIA GPUs, through NVML in a process of its own."""
