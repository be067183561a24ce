"""The metrics of this room: rows of the catalogue."""

from trainwarden_exporter.metric import Entry

_LOG = "/dev/kmsg, else the journal"

KERNEL_ROWS = (
    Entry(
        "kernel_events_total",
        "counter",
        "event",
        "events",
        "Faults that the kernel told of, since five minutes before the exporter started; 0 for what did not happen.",
        _LOG,
        'increase(kernel_events_total{event=~"xid|gpu_fallen_off_bus|amdgpu_reset"}[10m]) > 0',
    ),
    Entry(
        "kernel_event_last_timestamp_seconds",
        "gauge",
        "event",
        "Unix seconds",
        "When the kernel told of it last, as far back as its log reaches; a node long up is off by seconds.",
        _LOG,
        'time() - kernel_event_last_timestamp_seconds{event="hung_task"} < 600',
    ),
    Entry(
        "kernel_oom_kill_timestamp_seconds",
        "gauge",
        "process job_id",
        "Unix seconds",
        "When a process of this name, and of this SLURM job, was last killed for want of memory; the last eight names.",
        _LOG,
        "time() - kernel_oom_kill_timestamp_seconds < 3600",
    ),
    Entry(
        "kernel_log_lines_lost_total",
        "counter",
        "",
        "lines",
        "Lines that the ring dropped before they were read: events may be missing; absent where that is not known.",
        "/dev/kmsg",
        "increase(kernel_log_lines_lost_total[10m]) > 0",
    ),
    Entry(
        "kernel_log_info",
        "gauge",
        "source",
        "1",
        "Where the kernel's log is read: kmsg or journal.",
        "the exporter",
        "count by (source) (kernel_log_info)",
    ),
)
