"""Metrics of GPUs of every vendor. `gpu` is the index in the roster; `uuid` is the GPU's own."""

from trainwarden_exporter.core.metric import counter, gauge

GPU_INFO = gauge(
    "gpu_info",
    "gpu uuid vendor model pci_bus_id serial driver vbios",
    "1",
    "Properties of the GPU; always 1.",
    "nvmlDeviceGetName and others; amdsmi_get_gpu_asic_info and others",
    "count by (model, driver) (gpu_info)",
)
GPU_UP = gauge(
    "gpu_up",
    "gpu uuid",
    "0/1",
    "1 if the GPU answers, 0 for one that is on the PCI bus, or was, and does not; uuid is empty where unknown.",
    "the last fast sample of the GPU",
    "gpu_up == 0",
)
GPU_ERROR_INFO = gauge(
    "gpu_error_info",
    "gpu uuid error",
    "1",
    "Why the GPU does not answer; absent while it does.",
    "return codes of the driver's library",
    "gpu_error_info * on (instance, gpu, uuid) group_left (model) gpu_info",
)
GPU_DEVICES_EXPECTED = gauge(
    "gpu_devices_expected",
    "vendor",
    "",
    "GPUs expected on the node: by its flag, its instance type, else all that it had since they were numbered.",
    "--expect.gpus, /sys/class/dmi, /sys/bus/pci, the roster in --path.state",
    "gpu_devices_visible < gpu_devices_expected",
)
GPU_DEVICES_VISIBLE = gauge(
    "gpu_devices_visible",
    "vendor",
    "",
    "GPUs that the driver shows and can open.",
    "nvmlDeviceGetHandleByPciBusId_v2; amdsmi_get_processor_handles",
    "gpu_devices_visible < gpu_devices_expected",
)
GPU_DRIVER_ERROR_INFO = gauge(
    "gpu_driver_error_info",
    "vendor error",
    "1",
    "Why no GPU of the vendor can be read: the driver, or its library, does not work; absent while it does.",
    "nvmlInit_v2; amdsmi_init",
    "gpu_driver_error_info",
)
GPU_UTILIZATION_RATIO = gauge(
    "gpu_utilization_ratio",
    "gpu uuid",
    "0..1",
    "Share of the time in which some kernel ran; 1 is no proof of progress: a kernel that waits counts too.",
    "nvmlDeviceGetUtilizationRates; amdsmi_get_gpu_activity",
    "avg by (instance) (gpu_utilization_ratio)",
)
GPU_MEMORY_BUSY_RATIO = gauge(
    "gpu_memory_busy_ratio",
    "gpu uuid",
    "0..1",
    "Share of the time in which the GPU's memory was read or written.",
    "nvmlDeviceGetUtilizationRates; amdsmi_get_gpu_activity",
    "avg by (instance) (gpu_memory_busy_ratio)",
)
_GPM = "NVML's GPM (Hopper and newer), from the second sample on"
GPU_SM_ACTIVE_RATIO = gauge(
    "gpu_sm_active_ratio",
    "gpu uuid",
    "0..1",
    "Share of the GPU's multiprocessors that were busy: unlike gpu_utilization_ratio it is low while a kernel waits.",
    _GPM,
    "gpu_sm_active_ratio < 0.2 and gpu_utilization_ratio > 0.9",
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
GPU_MEMORY_USED_BYTES = gauge(
    "gpu_memory_used_bytes",
    "gpu uuid",
    "bytes",
    "Memory of the GPU in use, without the driver's own.",
    "nvmlDeviceGetMemoryInfo_v2; amdsmi_get_gpu_memory_usage",
    "gpu_memory_used_bytes / gpu_memory_size_bytes > 0.95",
)
GPU_MEMORY_SIZE_BYTES = gauge(
    "gpu_memory_size_bytes",
    "gpu uuid",
    "bytes",
    "Memory of the GPU.",
    "nvmlDeviceGetMemoryInfo_v2; amdsmi_get_gpu_memory_total",
    "sum by (instance) (gpu_memory_size_bytes)",
)
GPU_MEMORY_RESERVED_BYTES = gauge(
    "gpu_memory_reserved_bytes",
    "gpu uuid",
    "bytes",
    "Memory of the GPU that the driver keeps for itself.",
    "nvmlDeviceGetMemoryInfo_v2",
    "gpu_memory_size_bytes - gpu_memory_used_bytes - gpu_memory_reserved_bytes",
)
GPU_TEMPERATURE_CELSIUS = gauge(
    "gpu_temperature_celsius",
    "gpu uuid sensor",
    "degrees Celsius",
    "Temperature at a sensor: gpu, memory, junction.",
    "nvmlDeviceGetTemperature, field 82; amdsmi_get_temp_metric",
    (
        "gpu_temperature_celsius - on (instance, sensor) group_left () avg by (instance, sensor) "
        "(gpu_temperature_celsius) > 15"
    ),
)
GPU_TEMPERATURE_MARGIN_CELSIUS = gauge(
    "gpu_temperature_margin_celsius",
    "gpu uuid",
    "degrees Celsius",
    "How much hotter the GPU may become before it slows down.",
    "nvmlDeviceGetMarginTemperature",
    "gpu_temperature_margin_celsius < 5",
)
GPU_POWER_WATTS = gauge(
    "gpu_power_watts",
    "gpu uuid",
    "watts",
    "Power that the GPU draws.",
    "nvmlDeviceGetPowerUsage; amdsmi_get_power_info",
    "gpu_power_watts / gpu_power_limit_watts < 0.3 and gpu_utilization_ratio > 0.95",
)
GPU_POWER_LIMIT_WATTS = gauge(
    "gpu_power_limit_watts",
    "gpu uuid",
    "watts",
    "Power above which the GPU slows itself down, as it is enforced now.",
    "nvmlDeviceGetEnforcedPowerLimit; amdsmi_get_power_cap_info",
    'count_values("watts", gpu_power_limit_watts)',
)
GPU_ENERGY_JOULES_TOTAL = counter(
    "gpu_energy_joules_total",
    "gpu uuid",
    "joules",
    "Energy that the GPU used since its driver was loaded.",
    "nvmlDeviceGetTotalEnergyConsumption; amdsmi_get_energy_count",
    "sum by (instance) (increase(gpu_energy_joules_total[1h])) / 3.6e6",
)
GPU_CLOCK_HERTZ = gauge(
    "gpu_clock_hertz",
    "gpu uuid domain",
    "hertz",
    "Clock of a part of the GPU: graphics, sm, memory, video, soc.",
    "nvmlDeviceGetClockInfo; amdsmi_get_clock_info",
    'min by (instance) (gpu_clock_hertz{domain="graphics"})',
)
GPU_THROTTLE_ACTIVE = gauge(
    "gpu_throttle_active",
    "gpu uuid reason",
    "0/1",
    "1 while the reason holds the GPU's clocks down.",
    "nvmlDeviceGetCurrentClocksEventReasons; amdsmi_get_violation_status",
    'gpu_throttle_active{reason=~"hw_.*|.*thermal|prochot"} == 1',
)
GPU_THROTTLE_SECONDS_TOTAL = counter(
    "gpu_throttle_seconds_total",
    "gpu uuid reason",
    "seconds",
    "Time for which the reason held the GPU's clocks down.",
    "NVML fields 74, 76, 269, 270, 271; amdsmi_get_violation_status",
    'rate(gpu_throttle_seconds_total{reason=~"hw_.*|.*thermal|prochot"}[5m]) > 0.1',
)
GPU_ECC_ERRORS_TOTAL = counter(
    "gpu_ecc_errors_total",
    "gpu uuid kind",
    "",
    "Errors of memory since the driver was loaded: corrected, uncorrected, deferred.",
    "NVML fields 3 and 4 (volatile); amdsmi_get_gpu_total_ecc_count",
    'increase(gpu_ecc_errors_total{kind="uncorrected"}[1h]) > 0',
)
GPU_ECC_LIFETIME_ERRORS_TOTAL = counter(
    "gpu_ecc_lifetime_errors_total",
    "gpu uuid kind",
    "",
    "Errors of memory since the GPU was made, including those since the driver was loaded.",
    "NVML fields 5 and 6 (aggregate)",
    'gpu_ecc_lifetime_errors_total{kind="uncorrected"} > 0',
)
GPU_PCIE_REPLAYS_TOTAL = counter(
    "gpu_pcie_replays_total",
    "gpu uuid",
    "",
    "Transfers that were repeated on the PCI bus.",
    "nvmlDeviceGetPcieReplayCounter; amdsmi_get_pcie_info",
    "rate(gpu_pcie_replays_total[15m]) > 1",
)
GPU_PCIE_LINK_WIDTH = gauge(
    "gpu_pcie_link_width",
    "gpu uuid",
    "lanes",
    "Lanes of the PCI link in use.",
    "nvmlDeviceGetCurrPcieLinkWidth; amdsmi_get_pcie_info",
    "gpu_pcie_link_width < on (instance) group_left () max by (instance) (gpu_pcie_link_width)",
)
GPU_PCIE_LINK_GENERATION = gauge(
    "gpu_pcie_link_generation",
    "gpu uuid",
    "",
    "Generation of the PCI link in use; an idle GPU may lower it.",
    "nvmlDeviceGetCurrPcieLinkGeneration; amdsmi_get_pcie_info",
    (
        "gpu_pcie_link_generation < on (instance) group_left () max by (instance) (gpu_pcie_link_generation) "
        "and on (instance, gpu, uuid) gpu_utilization_ratio > 0.5"
    ),
)
GPU_PCIE_TX_BYTES_TOTAL = counter(
    "gpu_pcie_tx_bytes_total",
    "gpu uuid",
    "bytes",
    "Bytes that the GPU sent over the PCI bus.",
    "NVML field 197",
    "rate(gpu_pcie_tx_bytes_total[5m])",
)
GPU_PCIE_RX_BYTES_TOTAL = counter(
    "gpu_pcie_rx_bytes_total",
    "gpu uuid",
    "bytes",
    "Bytes that the GPU received over the PCI bus.",
    "NVML field 198",
    "rate(gpu_pcie_rx_bytes_total[5m])",
)
GPU_READ_ERRORS_TOTAL = counter(
    "gpu_read_errors_total",
    "gpu uuid error",
    "",
    "Failed calls of the driver's library for a GPU that answers others; unsupported calls are not counted.",
    "return codes of the driver's library",
    "rate(gpu_read_errors_total[15m]) > 0",
)
GPU_NODE_UTILIZATION_RATIO = gauge(
    "gpu_node_utilization_ratio",
    "vendor stat",
    "0..1",
    "gpu_utilization_ratio over the GPUs of the node that answer: min, avg, max.",
    "the last good samples of the GPUs",
    'gpu_node_utilization_ratio{stat="max"} < 0.05 and on (instance) training_run_state{state="running"} == 1',
)
GPU_NODE_POWER_WATTS = gauge(
    "gpu_node_power_watts",
    "vendor stat",
    "watts",
    "gpu_power_watts over the GPUs of the node that answer: min, avg, max, sum.",
    "the last good samples of the GPUs",
    'gpu_node_power_watts{stat="max"} / ignoring (stat) gpu_node_power_watts{stat="min"} > 2',
)
GPU_NODE_TEMPERATURE_CELSIUS = gauge(
    "gpu_node_temperature_celsius",
    "vendor stat",
    "degrees Celsius",
    "The highest gpu_temperature_celsius of the node, of any sensor: max.",
    "the last good samples of the GPUs",
    'topk(5, gpu_node_temperature_celsius{stat="max"})',
)
GPU_NODE_MEMORY_USED_BYTES = gauge(
    "gpu_node_memory_used_bytes",
    "vendor",
    "bytes",
    "Sum of gpu_memory_used_bytes over the GPUs of the node that answer.",
    "the last good samples of the GPUs",
    "gpu_node_memory_used_bytes / on (instance) group_left () sum by (instance) (gpu_memory_size_bytes)",
)
GPU_NODE_DEVICES_DOWN = gauge(
    "gpu_node_devices_down",
    "vendor",
    "",
    "GPUs whose gpu_up is 0.",
    "the last samples of the GPUs",
    "gpu_node_devices_down > 0",
)
TRAINWARDEN_DRIVER_SECONDS_TOTAL = counter(
    "trainwarden_driver_seconds_total",
    "collector tier",
    "seconds",
    "Time that samples of GPUs took, nearly all of it in the driver; fast is every interval, slow every 30 s.",
    "the exporter",
    "rate(trainwarden_driver_seconds_total[5m])",
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
GPU_SRAM_ECC_THRESHOLD_EXCEEDED = gauge(
    "gpu_sram_ecc_threshold_exceeded",
    "gpu uuid",
    "0/1",
    "1 if the GPU's SRAM had more uncorrected errors than NVIDIA tolerates: test the GPU, and exchange it if it fails.",
    "nvmlDeviceGetSramEccErrorStatus",
    "gpu_sram_ecc_threshold_exceeded == 1",
)
GPU_REMAPPED_ROWS = gauge(
    "gpu_remapped_rows",
    "gpu uuid cause",
    "rows",
    "Rows of memory that were replaced by spare ones, after corrected or uncorrected errors.",
    "nvmlDeviceGetRemappedRows",
    'gpu_remapped_rows{cause="uncorrected"} > 0',
)
GPU_REMAPPED_ROWS_PENDING = gauge(
    "gpu_remapped_rows_pending",
    "gpu uuid",
    "0/1",
    "1 if rows are replaced at the next reset.",
    "nvmlDeviceGetRemappedRows",
    "gpu_remapped_rows_pending == 1",
)
GPU_ROW_REMAP_FAILURE = gauge(
    "gpu_row_remap_failure",
    "gpu uuid",
    "0/1",
    "1 if a row could not be replaced: exchange the GPU.",
    "nvmlDeviceGetRemappedRows",
    "gpu_row_remap_failure == 1",
)
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
GPU_RECOVERY_ACTION = gauge(
    "gpu_recovery_action",
    "gpu uuid",
    "",
    (
        "Action that the driver (570 or newer) requests: 0 nothing, 1 reset of the GPU, 2 reboot, 3 drain peers, "
        "4 drain and reset, 5 recover the IMEX domain, 6 reset of the bus, 7 reboot of the system."
    ),
    "NVML field 230",
    "gpu_recovery_action > 0",
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
GPU_SUSPENDED = gauge(
    "gpu_suspended",
    "gpu uuid",
    "0/1",
    "1 while the kernel has suspended the idle GPU; it is not read then, because that would wake it.",
    "power/runtime_status of the device in sysfs",
    "gpu_suspended == 1",
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
GPU_RETIRED_PAGES = gauge(
    "gpu_retired_pages",
    "gpu uuid state",
    "pages",
    "Pages of the GPU's memory that are out of use for errors: reserved, pending (until a reset), unreservable.",
    "amdsmi_get_gpu_bad_page_info",
    'gpu_retired_pages{state="pending"} > 0',
)
