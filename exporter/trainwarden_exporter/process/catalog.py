"""The metrics of this room: rows of the catalogue."""

from trainwarden_exporter.metric import Entry

# Other programs export metrics of these names too.
_OURS = " and on (job, instance) trainwarden_process_children"

PROCESS_ROWS = (
    Entry(
        "process_cpu_seconds_total",
        "counter",
        "",
        "seconds",
        "CPU time of the exporter, without its child processes.",
        "/proc/self/stat",
        "rate(process_cpu_seconds_total[5m]) + rate(trainwarden_process_children_cpu_seconds_total[5m])",
    ),
    Entry(
        "process_virtual_memory_bytes",
        "gauge",
        "",
        "bytes",
        "Virtual memory of the exporter.",
        "/proc/self/stat",
        "process_virtual_memory_bytes" + _OURS,
    ),
    Entry(
        "process_resident_memory_bytes",
        "gauge",
        "",
        "bytes",
        "Memory of the exporter, without its child processes.",
        "/proc/self/stat",
        "process_resident_memory_bytes > 256 * 1024 * 1024" + _OURS,
    ),
    Entry(
        "process_start_time_seconds",
        "gauge",
        "",
        "Unix seconds",
        "When the exporter started.",
        "/proc/self/stat, /proc/stat",
        "changes(process_start_time_seconds[1h]) > 2" + _OURS,
    ),
    Entry(
        "process_threads",
        "gauge",
        "",
        "threads",
        "Threads of the exporter: one for each device, one for each collector, one for each scrape.",
        "/proc/self/stat",
        "process_threads > 500" + _OURS,
    ),
    Entry(
        "process_open_fds",
        "gauge",
        "",
        "files",
        "Files and connections that the exporter holds open.",
        "/proc/self/fd",
        "process_open_fds / process_max_fds > 0.8" + _OURS,
    ),
    Entry(
        "process_max_fds",
        "gauge",
        "",
        "files",
        "How many it may hold open.",
        "getrlimit(2)",
        "process_max_fds - process_open_fds < 100" + _OURS,
    ),
    Entry(
        "trainwarden_process_children",
        "gauge",
        "",
        "processes",
        "Child processes of the exporter: one for each driver that it asks, and one for S3.",
        "/proc/self/task/*/children",
        "trainwarden_process_children > 4",
    ),
    Entry(
        "trainwarden_process_children_resident_memory_bytes",
        "gauge",
        "",
        "bytes",
        "Memory of the child processes together; what they share with the exporter is counted in each.",
        "/proc/PID/stat",
        "process_resident_memory_bytes + trainwarden_process_children_resident_memory_bytes",
    ),
    Entry(
        "trainwarden_process_children_cpu_seconds_total",
        "counter",
        "",
        "seconds",
        "CPU time of the child processes, of those that ended too.",
        "/proc/PID/stat, getrusage(2)",
        "rate(trainwarden_process_children_cpu_seconds_total[5m])",
    ),
)
