"""NVIDIA GPUs, through NVML. The modules that import pynvml are imported once NVML is opened."""
