"""Metrics of one GPU, of every vendor. `gpu` is the index in the roster; `uuid` is the GPU's own."""

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
GPU_SUSPENDED = gauge(
    "gpu_suspended",
    "gpu uuid",
    "0/1",
    "1 while the kernel has suspended the idle GPU; it is not read then, because that would wake it.",
    "power/runtime_status of the device in sysfs",
    "gpu_suspended == 1",
)
GPU_RETIRED_PAGES = gauge(
    "gpu_retired_pages",
    "gpu uuid state",
    "pages",
    "Pages of the GPU's memory that are out of use for errors: reserved, pending (until a reset), unreservable.",
    "amdsmi_get_gpu_bad_page_info",
    'gpu_retired_pages{state="pending"} > 0',
)
