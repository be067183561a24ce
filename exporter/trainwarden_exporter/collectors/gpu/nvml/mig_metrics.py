"""Metrics of the instances of a GPU that is divided."""

from trainwarden_exporter.core.metric import gauge

_GPM_OF_INSTANCE = "nvmlGpmMigSampleGet (Hopper and newer), over 30 s, from the second sample on"
GPU_MIG_ENABLED = gauge(
    "gpu_mig_enabled",
    "gpu uuid",
    "0/1",
    "1 if the GPU is divided into instances.",
    "nvmlDeviceGetMigMode",
    "gpu_mig_enabled == 1",
)
GPU_MIG_INFO = gauge(
    "gpu_mig_info",
    "gpu uuid mig_uuid profile gpu_instance compute_instance",
    "1",
    "An instance of a divided GPU; always 1.",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "count by (instance, profile) (gpu_mig_info)",
)
GPU_MIG_MEMORY_USED_BYTES = gauge(
    "gpu_mig_memory_used_bytes",
    "gpu uuid mig_uuid",
    "bytes",
    "Memory of the instance in use.",
    "nvmlDeviceGetMemoryInfo_v2",
    "gpu_mig_memory_used_bytes / gpu_mig_memory_size_bytes",
)
GPU_MIG_MEMORY_SIZE_BYTES = gauge(
    "gpu_mig_memory_size_bytes",
    "gpu uuid mig_uuid",
    "bytes",
    "Memory of the instance.",
    "nvmlDeviceGetMemoryInfo_v2",
    "sum by (instance, gpu, uuid) (gpu_mig_memory_size_bytes)",
)
GPU_MIG_SM_ACTIVE_RATIO = gauge(
    "gpu_mig_sm_active_ratio",
    "gpu uuid mig_uuid",
    "0..1",
    "Share of the instance's multiprocessors that were busy.",
    _GPM_OF_INSTANCE,
    "gpu_mig_sm_active_ratio < 0.05",
)
GPU_MIG_SM_OCCUPANCY_RATIO = gauge(
    "gpu_mig_sm_occupancy_ratio",
    "gpu uuid mig_uuid",
    "0..1",
    "Share of the warps that the instance's multiprocessors can hold.",
    _GPM_OF_INSTANCE,
    "gpu_mig_sm_occupancy_ratio",
)
GPU_MIG_TENSOR_ACTIVE_RATIO = gauge(
    "gpu_mig_tensor_active_ratio",
    "gpu uuid mig_uuid",
    "0..1",
    "Share of the time in which the instance's tensor cores worked.",
    _GPM_OF_INSTANCE,
    "gpu_mig_tensor_active_ratio",
)
GPU_MIG_MEMORY_BANDWIDTH_RATIO = gauge(
    "gpu_mig_memory_bandwidth_ratio",
    "gpu uuid mig_uuid",
    "0..1",
    "Share of the bandwidth of the instance's memory in use.",
    _GPM_OF_INSTANCE,
    "gpu_mig_memory_bandwidth_ratio",
)
