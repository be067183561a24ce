"""The metrics of this collector."""

from trainwarden_exporter.core.metric import counter, gauge

# Other programs export metrics of these names too.
_OURS = " and on (job, instance) trainwarden_process_children"

PROCESS_CPU_SECONDS_TOTAL = counter(
    "process_cpu_seconds_total",
    "",
    "seconds",
    "CPU time of the exporter, without its child processes.",
    "/proc/self/stat",
    "rate(process_cpu_seconds_total[5m]) + rate(trainwarden_process_children_cpu_seconds_total[5m])",
)
PROCESS_VIRTUAL_MEMORY_BYTES = gauge(
    "process_virtual_memory_bytes",
    "",
    "bytes",
    "Virtual memory of the exporter.",
    "/proc/self/stat",
    "process_virtual_memory_bytes" + _OURS,
)
PROCESS_RESIDENT_MEMORY_BYTES = gauge(
    "process_resident_memory_bytes",
    "",
    "bytes",
    "Memory of the exporter, without its child processes.",
    "/proc/self/stat",
    "process_resident_memory_bytes > 256 * 1024 * 1024" + _OURS,
)
PROCESS_START_TIME_SECONDS = gauge(
    "process_start_time_seconds",
    "",
    "Unix seconds",
    "When the exporter started.",
    "/proc/self/stat, /proc/stat",
    "changes(process_start_time_seconds[1h]) > 2" + _OURS,
)
PROCESS_THREADS = gauge(
    "process_threads",
    "",
    "threads",
    "Threads of the exporter: one for each device, one for each collector, one for each scrape.",
    "/proc/self/stat",
    "process_threads > 500" + _OURS,
)
PROCESS_OPEN_FDS = gauge(
    "process_open_fds",
    "",
    "files",
    "Files and connections that the exporter holds open.",
    "/proc/self/fd",
    "process_open_fds / process_max_fds > 0.8" + _OURS,
)
PROCESS_MAX_FDS = gauge(
    "process_max_fds",
    "",
    "files",
    "How many it may hold open.",
    "getrlimit(2)",
    "process_max_fds - process_open_fds < 100" + _OURS,
)
TRAINWARDEN_PROCESS_CHILDREN = gauge(
    "trainwarden_process_children",
    "",
    "processes",
    "Child processes of the exporter: one for each driver that it asks, and one for S3.",
    "/proc/self/task/*/children",
    "trainwarden_process_children > 4",
)
TRAINWARDEN_PROCESS_CHILDREN_RESIDENT_MEMORY_BYTES = gauge(
    "trainwarden_process_children_resident_memory_bytes",
    "",
    "bytes",
    "Memory of the child processes together; what they share with the exporter is counted in each.",
    "/proc/PID/stat",
    "process_resident_memory_bytes + trainwarden_process_children_resident_memory_bytes",
)
TRAINWARDEN_PROCESS_CHILDREN_CPU_SECONDS_TOTAL = counter(
    "trainwarden_process_children_cpu_seconds_total",
    "",
    "seconds",
    "CPU time of the child processes, of those that ended too.",
    "/proc/PID/stat, getrusage(2)",
    "rate(trainwarden_process_children_cpu_seconds_total[5m])",
)
