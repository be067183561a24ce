"""The metrics of logs: rows of the catalogue."""

from trainwarden_exporter.metric import Entry

LOG_ROWS = (
    Entry(
        "training_log_signals_total",
        "counter",
        "run_id signal error_type role",
        "records",
        "Records of the run's logs in which a signal was found.",
    ),
    Entry(
        "training_log_signal_last_timestamp_seconds",
        "gauge",
        "run_id signal error_type role",
        "Unix seconds",
        "When the last record with the signal was written, at the latest.",
    ),
    Entry(
        "training_log_last_write_timestamp_seconds",
        "gauge",
        "run_id",
        "Unix seconds",
        "When one of the run's logs last grew.",
    ),
    Entry(
        "training_log_silence_threshold_seconds",
        "gauge",
        "run_id",
        "seconds",
        "How long the run's logs may be silent, as its signal pack says.",
    ),
    Entry(
        "trainwarden_log_lag_bytes",
        "gauge",
        "run_id",
        "bytes",
        "What is in the run's logs and has not been read yet.",
    ),
    Entry(
        "trainwarden_log_skipped_bytes_total",
        "counter",
        "run_id",
        "bytes",
        "What was never read of the run's logs: all but the end of those that were long when first seen.",
    ),
    Entry(
        "trainwarden_log_read_bytes_total",
        "counter",
        "",
        "bytes",
        "What this exporter has read of logs.",
    ),
    Entry(
        "trainwarden_log_records_cut_total",
        "counter",
        "",
        "records",
        "Records that were searched only in part: too long.",
    ),
    Entry(
        "trainwarden_log_restarts_total",
        "counter",
        "reason",
        "files",
        "How often a log began anew: rotated, truncated, removed, replaced.",
    ),
    Entry(
        "trainwarden_log_errors_total",
        "counter",
        "reason",
        "errors",
        "What went wrong with logs and their state, by kind; the log names the files.",
    ),
    Entry(
        "trainwarden_log_files",
        "gauge",
        "outcome",
        "files",
        "Logs, by whether they are followed or beyond a limit.",
    ),
    Entry(
        "trainwarden_log_series_dropped",
        "gauge",
        "",
        "series",
        "Series of signals that are not shown: beyond a limit.",
    ),
    Entry(
        "trainwarden_log_signal_off",
        "gauge",
        "pack signal",
        "1",
        "A signal that is not looked for any more, because its pattern takes too long; always 1.",
    ),
)
