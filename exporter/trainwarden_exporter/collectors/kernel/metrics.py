"""The metrics of this collector."""

from trainwarden_exporter.core.metric import counter, gauge

_LOG = "/dev/kmsg, else the journal"

KERNEL_EVENTS_TOTAL = counter(
    "kernel_events_total",
    "event",
    "events",
    "Faults that the kernel reported, also while the exporter was restarted; 0 for those that did not happen.",
    _LOG,
    'increase(kernel_events_total{event=~"xid|gpu_fallen_off_bus|amdgpu_reset"}[10m]) > 0',
)
KERNEL_EVENT_LAST_TIMESTAMP_SECONDS = gauge(
    "kernel_event_last_timestamp_seconds",
    "event",
    "Unix seconds",
    "When the kernel last reported it, as far back as its log reaches.",
    _LOG,
    'time() - kernel_event_last_timestamp_seconds{event="hung_task"} < 600',
)
KERNEL_EVENTS_SINCE_TIMESTAMP_SECONDS = gauge(
    "kernel_events_since_timestamp_seconds",
    "",
    "Unix seconds",
    "Since when kernel_events_total counts: the first start of an exporter, or the last one where no state was kept.",
    "the exporter",
    "changes(kernel_events_since_timestamp_seconds[1d]) > 0",
)
KERNEL_OOM_KILL_TIMESTAMP_SECONDS = gauge(
    "kernel_oom_kill_timestamp_seconds",
    "process job_id",
    "Unix seconds",
    "When a process of this name, and of this SLURM job, was last killed for want of memory; the last eight names.",
    _LOG,
    "time() - kernel_oom_kill_timestamp_seconds < 3600",
)
KERNEL_LOG_LINES_LOST_TOTAL = counter(
    "kernel_log_lines_lost_total",
    "",
    "lines",
    "Lines that the ring dropped before they were read: events may be missing; absent where that is unknown.",
    "/dev/kmsg",
    "increase(kernel_log_lines_lost_total[10m]) > 0",
)
KERNEL_LOG_INFO = gauge(
    "kernel_log_info",
    "source",
    "1",
    "Where the kernel's log is read: kmsg or journal.",
    "the exporter",
    "count by (source) (kernel_log_info)",
)
