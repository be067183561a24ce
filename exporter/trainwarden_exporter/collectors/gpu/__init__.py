"""GPUs: one collector with a driver for each vendor's library (nvml, amdsmi), and metrics that the vendors share."""
