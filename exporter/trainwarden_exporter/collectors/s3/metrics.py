"""The metrics of this collector."""

from trainwarden_exporter.core.metric import counter, gauge

TRAINWARDEN_S3_UP = gauge(
    "trainwarden_s3_up",
    "bucket prefix",
    "0/1",
    "1 if the last read of the prefix was answered; 0 does not imply anything about the runs.",
    "the answers of ListObjectsV2 and GetObject",
    "trainwarden_s3_up == 0",
)
TRAINWARDEN_S3_LAST_SUCCESS_TIMESTAMP_SECONDS = gauge(
    "trainwarden_s3_last_success_timestamp_seconds",
    "bucket prefix",
    "Unix seconds",
    "When a read of the prefix was last answered, by this host's clock.",
    "the exporter",
    "time() - trainwarden_s3_last_success_timestamp_seconds > 300",
)
TRAINWARDEN_S3_ERRORS_TOTAL = counter(
    "trainwarden_s3_errors_total",
    "bucket prefix reason",
    "errors",
    "Requests that failed and objects that are no record: unreachable, denied, throttled, missing, invalid.",
    "the answers of S3",
    "sum by (bucket, reason) (rate(trainwarden_s3_errors_total[15m])) > 0",
)
TRAINWARDEN_S3_REQUESTS_TOTAL = counter(
    "trainwarden_s3_requests_total",
    "bucket prefix operation",
    "requests",
    "Requests sent, by operation: list or get. They cost money.",
    "the exporter",
    "sum by (bucket, operation) (rate(trainwarden_s3_requests_total[1h])) * 86400",
)
TRAINWARDEN_S3_CLOCK_OFFSET_SECONDS = gauge(
    "trainwarden_s3_clock_offset_seconds",
    "bucket prefix",
    "seconds",
    "How far S3's clock is ahead of this host's; whole seconds.",
    "the header Date of the answers",
    "abs(trainwarden_s3_clock_offset_seconds) > 30",
)
TRAINWARDEN_S3_RUNS = gauge(
    "trainwarden_s3_runs",
    "bucket prefix outcome",
    "runs",
    "Runs below the prefix, by outcome: copied, incomplete, old, dropped, waiting, invalid_run_id.",
    "ListObjectsV2",
    'trainwarden_s3_runs{outcome="dropped"} > 0',
)
