"""Metrics of the errors that NVIDIA's driver reports by a code (Xid)."""

from trainwarden_exporter.core.metric import counter, gauge

GPU_NODE_XID_ERRORS_TOTAL = counter(
    "gpu_node_xid_errors_total",
    "action",
    "",
    (
        "Sum of gpu_xid_errors_total over the GPUs of the node, by the action of gpu_xid_info; unknown for a code "
        "without one; 0 from the start."
    ),
    "nvmlEventSetWait_v2, /dev/kmsg",
    'increase(gpu_node_xid_errors_total{action=~"reset_gpu|reboot"}[1h]) > 0',
)
GPU_XID_ERRORS_TOTAL = counter(
    "gpu_xid_errors_total",
    "gpu uuid xid",
    "",
    "Errors that the driver reported, by code; from NVML and from the kernel's log, counted once.",
    "nvmlEventSetWait_v2, /dev/kmsg",
    (
        "increase(gpu_xid_errors_total[10m]) * on (instance, xid) group_left (action) "
        'gpu_xid_info{action=~"reset_gpu|reboot|check_nvlink"} > 0'
    ),
)
GPU_XID_INFO = gauge(
    "gpu_xid_info",
    "xid meaning action",
    "1",
    (
        "What the code of an error that this node had means, and what clears it: none, restart_job, reset_gpu, reboot, "
        "check_nvlink, recovery_action (what gpu_recovery_action requests); always 1."
    ),
    "NVIDIA's catalogue of XIDs",
    ("increase(gpu_xid_errors_total[10m]) * on (instance, xid) group_left (meaning, action) gpu_xid_info > 0"),
)
GPU_XID_LAST_TIMESTAMP_SECONDS = gauge(
    "gpu_xid_last_timestamp_seconds",
    "gpu uuid xid",
    "Unix seconds",
    "When the error was reported last.",
    "nvmlEventSetWait_v2, /dev/kmsg",
    "time() - gpu_xid_last_timestamp_seconds < 600",
)
GPU_XID_ERRORS_SINCE_TIMESTAMP_SECONDS = gauge(
    "gpu_xid_errors_since_timestamp_seconds",
    "vendor",
    "Unix seconds",
    "Since when gpu_xid_errors_total counts: the first start of an exporter, or the last one where no state was kept.",
    "the exporter",
    "changes(gpu_xid_errors_since_timestamp_seconds[1d]) > 0",
)
GPU_KERNEL_LOG_READABLE = gauge(
    "gpu_kernel_log_readable",
    "vendor",
    "0/1",
    "1 if errors of the driver are read from the kernel's log as well; 0 if from NVML alone.",
    "/dev/kmsg",
    "gpu_kernel_log_readable == 0",
)
