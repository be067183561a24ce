"""What only AMD GPUs are said to do: rows of the catalogue."""

from trainwarden_exporter.metric import Entry

AMD_ROWS = (
    Entry(
        "gpu_suspended",
        "gauge",
        "gpu uuid",
        "0/1",
        "1 while the kernel has put the GPU to sleep for want of work; it is not asked then, for that would wake it.",
        "power/runtime_status of the device in sysfs",
        "gpu_suspended == 1",
    ),
    Entry(
        "gpu_xgmi_link_up",
        "gauge",
        "gpu uuid link",
        "0/1",
        "1 if the link to another GPU is up; absent for one that is not in use.",
        "amdsmi_get_gpu_xgmi_link_status",
        "gpu_xgmi_link_up == 0",
    ),
    Entry(
        "gpu_xgmi_read_bytes_total",
        "counter",
        "gpu uuid",
        "bytes",
        "Bytes that the GPU read over its links to other GPUs.",
        "amdsmi_get_link_metrics",
        "sum by (instance) (rate(gpu_xgmi_read_bytes_total[5m]))",
    ),
    Entry(
        "gpu_xgmi_write_bytes_total",
        "counter",
        "gpu uuid",
        "bytes",
        "Bytes that the GPU wrote over its links to other GPUs.",
        "amdsmi_get_link_metrics",
        "sum by (instance) (rate(gpu_xgmi_write_bytes_total[5m]))",
    ),
    Entry(
        "gpu_retired_pages",
        "gauge",
        "gpu uuid state",
        "pages",
        "Pages of the GPU's memory that are out of use for errors: reserved, pending (until a reset), unreservable.",
        "amdsmi_get_gpu_bad_page_info",
        'gpu_retired_pages{state="pending"} > 0',
    ),
)
