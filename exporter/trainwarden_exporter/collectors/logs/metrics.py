"""The metrics of logs."""

from trainwarden_exporter.core.metric import WHILE_RUNNING, counter, gauge

TRAINING_LOG_SIGNALS_TOTAL = counter(
    "training_log_signals_total",
    "run_id signal error_type role",
    "records",
    "Records of the run's logs in which a signal was found.",
    "the logs of the run",
    "sum by (instance, run_id, signal) (increase(training_log_signals_total[15m])) > 0",
)
TRAINING_LOG_SIGNAL_LAST_TIMESTAMP_SECONDS = gauge(
    "training_log_signal_last_timestamp_seconds",
    "run_id signal error_type role",
    "Unix seconds",
    "When the last record with the signal was written, at the latest.",
    "the logs of the run",
    "time() - training_log_signal_last_timestamp_seconds < 300",
)
TRAINING_LOG_STATE_TIMESTAMP_SECONDS = gauge(
    "training_log_state_timestamp_seconds",
    "run_id attempt state signal error_type",
    "Unix seconds",
    "When a signal of the user's own pack was written whose state is crash, stall, timeout or success: the first that "
    "the attempt has not survived, of an attempt that runs. Absent once three higher steps came after it.",
    "the logs of the run: CrashState, StalledState, TimeoutState and SuccessState of its signal pack",
    "time() - training_log_state_timestamp_seconds" + WHILE_RUNNING,
)
TRAINING_LOG_LAST_WRITE_TIMESTAMP_SECONDS = gauge(
    "training_log_last_write_timestamp_seconds",
    "run_id",
    "Unix seconds",
    "When one of the run's logs last grew.",
    "when the logs of the run were changed",
    "time() - training_log_last_write_timestamp_seconds > 600" + WHILE_RUNNING,
)
TRAINING_LOG_SILENCE_THRESHOLD_SECONDS = gauge(
    "training_log_silence_threshold_seconds",
    "run_id",
    "seconds",
    "How long the run's logs may be silent, from its signal pack.",
    "the signal pack: silence",
    "time() - training_log_last_write_timestamp_seconds > training_log_silence_threshold_seconds" + WHILE_RUNNING,
)
TRAINWARDEN_LOG_LAG_BYTES = gauge(
    "trainwarden_log_lag_bytes",
    "run_id",
    "bytes",
    "Bytes of the run's logs that have not been read yet.",
    "sizes of the logs",
    "trainwarden_log_lag_bytes > 10e6",
)
TRAINWARDEN_LOG_SKIPPED_BYTES_TOTAL = counter(
    "trainwarden_log_skipped_bytes_total",
    "run_id",
    "bytes",
    "Bytes of the run's logs that are never read: all but the end of those that were long when first seen.",
    "sizes of the logs",
    "increase(trainwarden_log_skipped_bytes_total[1h]) > 0",
)
TRAINWARDEN_LOG_READ_BYTES_TOTAL = counter(
    "trainwarden_log_read_bytes_total",
    "",
    "bytes",
    "Bytes of logs that this exporter has read.",
    "the exporter",
    "rate(trainwarden_log_read_bytes_total[5m])",
)
TRAINWARDEN_LOG_RECORDS_CUT_TOTAL = counter(
    "trainwarden_log_records_cut_total",
    "",
    "records",
    "Records that were searched only in part, because they are too long.",
    "the exporter",
    "increase(trainwarden_log_records_cut_total[1h]) > 0",
)
TRAINWARDEN_LOG_RESTARTS_TOTAL = counter(
    "trainwarden_log_restarts_total",
    "reason",
    "files",
    "How often a log began anew: rotated, truncated, removed, replaced.",
    "inode and size of the logs",
    'increase(trainwarden_log_restarts_total{reason="truncated"}[1h]) > 0',
)
TRAINWARDEN_LOG_ERRORS_TOTAL = counter(
    "trainwarden_log_errors_total",
    "reason",
    "errors",
    "Errors of logs and of their state, by reason; the log names the files.",
    "the exporter",
    "increase(trainwarden_log_errors_total[15m]) > 0",
)
TRAINWARDEN_LOG_FILES = gauge(
    "trainwarden_log_files",
    "outcome",
    "files",
    "Logs, by whether they are followed or beyond a limit.",
    "the exporter",
    'trainwarden_log_files{outcome="dropped"} > 0',
)
TRAINWARDEN_LOG_SERIES_DROPPED = gauge(
    "trainwarden_log_series_dropped",
    "",
    "series",
    "Series of signals that are not exported, because there are too many.",
    "the exporter",
    "trainwarden_log_series_dropped > 0",
)
TRAINWARDEN_LOG_SIGNAL_OFF = gauge(
    "trainwarden_log_signal_off",
    "pack signal",
    "1",
    "A signal that is switched off, because its pattern takes too long; always 1.",
    "the exporter",
    "trainwarden_log_signal_off == 1",
)
