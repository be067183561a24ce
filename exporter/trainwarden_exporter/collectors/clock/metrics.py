"""The metrics of this collector."""

from trainwarden_exporter.core.metric import counter, gauge

CLOCK_SYNCHRONIZED = gauge(
    "clock_synchronized",
    "",
    "0/1",
    "1 if something keeps the clock, and has told the kernel so lately.",
    "adjtimex(2)",
    "clock_synchronized == 0",
)
CLOCK_OFFSET_SECONDS = gauge(
    "clock_offset_seconds",
    "source",
    "seconds",
    "How far the clock is ahead of its reference, below 0 behind; absent where none is known.",
    "chronyc tracking, else adjtimex(2)",
    "abs(clock_offset_seconds) > 1",
)
CLOCK_MAX_ERROR_SECONDS = gauge(
    "clock_max_error_seconds",
    "",
    "seconds",
    "How far the clock may be off at most, by the estimate of what keeps it; absent where nothing does.",
    "adjtimex(2)",
    "clock_max_error_seconds > 0.5",
)
CLOCK_JUMPS_TOTAL = counter(
    "clock_jumps_total",
    "",
    "",
    "How often the clock was set by more than a second since the exporter started: ages of heartbeats jump along.",
    "clock_gettime(2): CLOCK_REALTIME against CLOCK_BOOTTIME",
    "increase(clock_jumps_total[15m]) > 0",
)
CLOCK_JUMP_LAST_TIMESTAMP_SECONDS = gauge(
    "clock_jump_last_timestamp_seconds",
    "",
    "Unix seconds",
    "When the exporter saw the last of them; absent where there was none.",
    "clock_gettime(2)",
    "time() - clock_jump_last_timestamp_seconds < 900",
)
