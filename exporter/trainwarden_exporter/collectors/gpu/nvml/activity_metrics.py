"""Metrics of how busy the parts of a GPU are."""

from trainwarden_exporter.core.metric import gauge

_GPM = "NVML's GPM (Hopper and newer), from the second sample on"
GPU_GRAPHICS_ACTIVE_RATIO = gauge(
    "gpu_graphics_active_ratio",
    "gpu uuid",
    "0..1",
    "Share of the time in which the graphics and compute engine had work on it.",
    _GPM,
    "avg by (instance) (gpu_graphics_active_ratio)",
)
GPU_SM_ACTIVE_RATIO = gauge(
    "gpu_sm_active_ratio",
    "gpu uuid",
    "0..1",
    "Share of the GPU's multiprocessors that held a kernel; a kernel that waits for its peers holds some of them.",
    _GPM,
    "avg by (instance) (gpu_sm_active_ratio)",
)
GPU_SM_OCCUPANCY_RATIO = gauge(
    "gpu_sm_occupancy_ratio",
    "gpu uuid",
    "0..1",
    "Warps that were active, as a share of those that the multiprocessors can have.",
    _GPM,
    "avg by (instance) (gpu_sm_occupancy_ratio)",
)
GPU_TENSOR_ACTIVE_RATIO = gauge(
    "gpu_tensor_active_ratio",
    "gpu uuid",
    "0..1",
    "Share of the time in which the tensor cores worked.",
    _GPM,
    "training_gpu_info * on (instance, gpu, uuid) group_left () gpu_tensor_active_ratio",
)
GPU_MEMORY_BANDWIDTH_RATIO = gauge(
    "gpu_memory_bandwidth_ratio",
    "gpu uuid",
    "0..1",
    "Share of the bandwidth of the GPU's memory that was used.",
    _GPM,
    "gpu_memory_bandwidth_ratio > 0.8",
)
GPU_PIPE_ACTIVE_RATIO = gauge(
    "gpu_pipe_active_ratio",
    "gpu uuid pipe",
    "0..1",
    "Share of the time in which arithmetic units without tensor cores worked: int, fp16, fp32, fp64.",
    _GPM,
    'gpu_pipe_active_ratio{pipe="fp32"} > 0.3',
)
GPU_UNITS_ACTIVE_RATIO = gauge(
    "gpu_units_active_ratio",
    "gpu uuid",
    "0..1",
    "Share of the time in which the busiest of tensor cores, fp16, fp32, fp64 and memory worked; near 0 in a hang.",
    _GPM,
    "gpu_utilization_ratio == 1 and gpu_units_active_ratio < 0.01",
)
GPU_PCIE_BYTES_PER_SECOND = gauge(
    "gpu_pcie_bytes_per_second",
    "gpu uuid direction",
    "bytes per second",
    "Traffic of the GPU on the PCI bus since the sample before: tx is from the GPU.",
    _GPM,
    "sum by (instance, direction) (gpu_pcie_bytes_per_second)",
)
GPU_NVLINK_BYTES_PER_SECOND = gauge(
    "gpu_nvlink_bytes_per_second",
    "gpu uuid direction",
    "bytes per second",
    "Traffic of the GPU on all NVLinks since the sample before: tx is from the GPU.",
    _GPM,
    "sum by (instance, direction) (gpu_nvlink_bytes_per_second)",
)
