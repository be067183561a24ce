"""The metrics of this room: rows of the catalogue."""

from trainwarden_exporter.metric import Entry

CLOCK_ROWS = (
    Entry(
        "clock_synchronized",
        "gauge",
        "",
        "0/1",
        "1 if something keeps the clock, and has told the kernel so lately.",
        "adjtimex(2)",
        "clock_synchronized == 0",
    ),
    Entry(
        "clock_offset_seconds",
        "gauge",
        "source",
        "seconds",
        "How far the clock is ahead of its reference, below 0 behind; absent where none is known.",
        "chronyc tracking, else adjtimex(2)",
        "abs(clock_offset_seconds) > 1",
    ),
    Entry(
        "clock_max_error_seconds",
        "gauge",
        "",
        "seconds",
        "How far the clock may be off at most, by the estimate of what keeps it; absent where nothing does.",
        "adjtimex(2)",
        "clock_max_error_seconds > 0.5",
    ),
    Entry(
        "clock_jumps_total",
        "counter",
        "",
        "",
        "How often the clock was set by more than a second since the exporter started: ages of heartbeats jump along.",
        "clock_gettime(2): CLOCK_REALTIME against CLOCK_BOOTTIME",
        "increase(clock_jumps_total[15m]) > 0",
    ),
    Entry(
        "clock_jump_last_timestamp_seconds",
        "gauge",
        "",
        "Unix seconds",
        "When the exporter saw the last of them; absent where there was none.",
        "clock_gettime(2)",
        "time() - clock_jump_last_timestamp_seconds < 900",
    ),
)
