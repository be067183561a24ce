"""The metrics of the exporter itself: rows of the catalogue."""

from trainwarden_exporter.metric import Entry

OWN_ROWS = (
    Entry(
        "trainwarden_collector_success",
        "gauge",
        "collector",
        "0/1",
        "1 if the last sample of each of the collector's devices is good.",
        "the exporter",
        "trainwarden_collector_success == 0",
    ),
    Entry(
        "trainwarden_collector_duration_seconds",
        "gauge",
        "collector",
        "seconds",
        "Time the last sample took, of the slowest device; of one that hangs: so far.",
        "the exporter",
        "topk(3, trainwarden_collector_duration_seconds)",
    ),
    Entry(
        "trainwarden_collector_last_success_timestamp_seconds",
        "gauge",
        "collector",
        "Unix seconds",
        "When the last good sample was finished, of the device for which that is longest ago.",
        "the exporter",
        "time() - trainwarden_collector_last_success_timestamp_seconds > 60",
    ),
    Entry(
        "trainwarden_collector_stuck",
        "gauge",
        "collector device call",
        "1",
        "A device that has not answered within its deadline, and the call it is in; absent while all answer.",
        "the exporter",
        "trainwarden_collector_stuck == 1",
    ),
    Entry(
        "trainwarden_exporter_released",
        "gauge",
        "",
        "0/1",
        "1 while the exporter has let go of the devices, so that they can be reset.",
        "the exporter",
        "trainwarden_exporter_released == 1",
    ),
    Entry(
        "trainwarden_build_info",
        "gauge",
        "version component python",
        "1",
        "What is running; always 1.",
        "the exporter",
        "count by (version) (trainwarden_build_info)",
    ),
)
