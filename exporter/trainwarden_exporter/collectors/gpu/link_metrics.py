"""Metrics of the links between GPUs: NVLink and its fabric, xGMI."""

from trainwarden_exporter.core.metric import counter, gauge

GPU_NVLINK_UP = gauge(
    "gpu_nvlink_up",
    "gpu uuid link",
    "0/1",
    "1 if the link is active.",
    "nvmlDeviceGetNvLinkState",
    "gpu_nvlink_up == 0",
)
GPU_NVLINK_ERRORS_TOTAL = counter(
    "gpu_nvlink_errors_total",
    "gpu uuid error",
    "",
    (
        "Errors of all links of the GPU together: crc, crc_flit, crc_data, replay, recovery, ecc_data; since Blackwell "
        "malformed_packet, buffer_overrun, receive, receive_remote, receive_general, local_integrity, "
        "transmit_discard, link_recovery, link_recovery_failed, effective, symbol."
    ),
    "NVML fields 38, 45, 52, 59, 160; of each link 161 to 163, 206 to 212, 214, 215, 219, 221",
    'increase(gpu_nvlink_errors_total{error=~"recovery|link_recovery.*"}[15m]) > 0',
)
GPU_NVLINK_BIT_ERROR_RATIO = gauge(
    "gpu_nvlink_bit_error_ratio",
    "gpu uuid kind",
    "0..1",
    "Share of bits with errors on the worst link of the GPU, since Blackwell: effective (after correction), symbol.",
    "NVML fields 220 and 222 of each link",
    'gpu_nvlink_bit_error_ratio{kind="effective"} > 1e-12',
)
GPU_NVLINK_TX_BYTES_TOTAL = counter(
    "gpu_nvlink_tx_bytes_total",
    "gpu uuid",
    "bytes",
    "Data sent over all links of the GPU.",
    "NVML field 138; since Blackwell 202 of each link",
    "sum by (instance) (rate(gpu_nvlink_tx_bytes_total[5m]))",
)
GPU_NVLINK_RX_BYTES_TOTAL = counter(
    "gpu_nvlink_rx_bytes_total",
    "gpu uuid",
    "bytes",
    "Data received over all links of the GPU.",
    "NVML field 139; since Blackwell 204 of each link",
    "sum by (instance) (rate(gpu_nvlink_rx_bytes_total[5m]))",
)
GPU_LINKS_UP = gauge(
    "gpu_links_up",
    "gpu uuid kind",
    "links",
    "Links of the GPU to other GPUs that are up: nvlink, xgmi.",
    "the number of gpu_nvlink_up, gpu_xgmi_link_up that are 1",
    "gpu_links_up < on (instance, kind) group_left () max by (instance, kind) (gpu_links_up)",
)
GPU_FABRIC_STATE = gauge(
    "gpu_fabric_state",
    "gpu uuid",
    "",
    "State of the GPU's registration with the NVSwitch fabric: 1 not started, 2 in progress, 3 completed.",
    "nvmlDeviceGetGpuFabricInfoV",
    "gpu_fabric_state < 3",
)
GPU_FABRIC_HEALTHY = gauge(
    "gpu_fabric_healthy",
    "gpu uuid",
    "0/1",
    "0 if the registration with the fabric ended in an error, or the fabric has a problem; only once it is completed.",
    "nvmlDeviceGetGpuFabricInfoV",
    "gpu_fabric_healthy == 0",
)
GPU_FABRIC_PROBLEM = gauge(
    "gpu_fabric_problem",
    "gpu uuid problem",
    "0/1",
    (
        "1 while the fabric has the problem: degraded_bandwidth, route_recovery, route_unhealthy, "
        "access_timeout_recovery, incorrect_configuration, no_fabric_manager; absent where the driver reports it not."
    ),
    "the health mask of nvmlDeviceGetGpuFabricInfoV",
    "gpu_fabric_problem == 1",
)
GPU_XGMI_LINK_UP = gauge(
    "gpu_xgmi_link_up",
    "gpu uuid link",
    "0/1",
    "1 if the link to another GPU is up; absent for one that is not in use.",
    "amdsmi_get_gpu_xgmi_link_status",
    "gpu_xgmi_link_up == 0",
)
GPU_XGMI_READ_BYTES_TOTAL = counter(
    "gpu_xgmi_read_bytes_total",
    "gpu uuid",
    "bytes",
    "Bytes that the GPU read over its links to other GPUs.",
    "amdsmi_get_link_metrics",
    "sum by (instance) (rate(gpu_xgmi_read_bytes_total[5m]))",
)
GPU_XGMI_WRITE_BYTES_TOTAL = counter(
    "gpu_xgmi_write_bytes_total",
    "gpu uuid",
    "bytes",
    "Bytes that the GPU wrote over its links to other GPUs.",
    "amdsmi_get_link_metrics",
    "sum by (instance) (rate(gpu_xgmi_write_bytes_total[5m]))",
)
