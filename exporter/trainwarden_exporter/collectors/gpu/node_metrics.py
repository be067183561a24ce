"""Metrics of all GPUs of a vendor on the node together."""

from trainwarden_exporter.core.metric import counter, gauge

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
GPU_NODE_ECC_ERRORS_TOTAL = counter(
    "gpu_node_ecc_errors_total",
    "vendor kind",
    "",
    "Sum of gpu_ecc_errors_total over the GPUs of the node since their collector began; it never falls.",
    "the samples of the GPUs",
    'increase(gpu_node_ecc_errors_total{kind="uncorrected"}[1h]) > 0',
)
GPU_NODE_THROTTLE_SECONDS_TOTAL = counter(
    "gpu_node_throttle_seconds_total",
    "vendor reason",
    "seconds",
    "Sum of gpu_throttle_seconds_total over the GPUs of the node since their collector began; it never falls.",
    "the samples of the GPUs",
    "rate(gpu_node_throttle_seconds_total[5m]) > 0.5",
)
GPU_NODE_NVLINK_ERRORS_TOTAL = counter(
    "gpu_node_nvlink_errors_total",
    "vendor error",
    "",
    "Sum of gpu_nvlink_errors_total over the GPUs of the node since their collector began; it never falls.",
    "the samples of the GPUs",
    'increase(gpu_node_nvlink_errors_total{error="recovery"}[15m]) > 0',
)
TRAINWARDEN_DRIVER_SECONDS_TOTAL = counter(
    "trainwarden_driver_seconds_total",
    "collector tier",
    "seconds",
    "Time that samples of GPUs took, nearly all of it in the driver; fast is every interval, slow every 30 s.",
    "the exporter",
    "rate(trainwarden_driver_seconds_total[5m])",
)
