"""The metrics by the names of the fine-tuning exporter."""

from trainwarden_exporter.core.metric import counter, gauge, histogram

JOB = "job_name model_id method"
_RUNS = "the run's series, with --compat.finetuning; the file of metrics-server; MetricsExporter"
_GPUS = "the node's GPU collectors, with --compat.finetuning; NVML or amdsmi in metrics-server; MetricsExporter"
_FILE = "the file of metrics-server"
_VALIDATION = "trainwarden validate-job --metrics-file, through node_exporter's textfile collector"

FINETUNING_JOB_STATUS = gauge(
    "finetuning_job_status",
    JOB,
    "",
    "0 pending, 1 running, 2 succeeded, 3 failed or cancelled, 4 paused: running in the phase idle.",
    _RUNS,
    "finetuning_job_status == 3",
)
FINETUNING_JOB_DURATION_SECONDS = histogram(
    "finetuning_job_duration_seconds",
    JOB,
    "seconds",
    "Duration of the job: each attempt once, at its end.",
    _RUNS,
    "histogram_quantile(0.9, sum by (le, method) (increase(finetuning_job_duration_seconds_bucket[7d])))",
)
FINETUNING_TRAINING_EPOCH = gauge(
    "finetuning_training_epoch", JOB, "epochs", "Epoch, as reported.", _RUNS, "finetuning_training_epoch"
)
FINETUNING_TRAINING_STEP = gauge(
    "finetuning_training_step",
    JOB,
    "steps",
    "Step, as reported.",
    _RUNS,
    (
        "changes(finetuning_training_step[10m]) == 0 and finetuning_job_status == 1 and "
        "finetuning_job_status offset 10m == 1"
    ),
)
FINETUNING_TRAINING_PROGRESS = gauge(
    "finetuning_training_progress",
    JOB,
    "percent",
    "Progress of the job, 0 to 100.",
    _RUNS,
    "finetuning_training_progress < 100 and finetuning_job_status == 2",
)
FINETUNING_TRAIN_LOSS = gauge(
    "finetuning_train_loss",
    f"{JOB} epoch",
    "",
    "Training loss; one series for each job, with the epoch that it is in.",
    _RUNS,
    "min without (epoch) (finetuning_train_loss)",
)
FINETUNING_LEARNING_RATE = gauge(
    "finetuning_learning_rate", JOB, "", "Learning rate.", _RUNS, "finetuning_learning_rate"
)
FINETUNING_SAMPLES_PER_SECOND = gauge(
    "finetuning_samples_per_second",
    JOB,
    "samples per second",
    "Samples trained on, per second.",
    _RUNS,
    "sum by (model_id) (finetuning_samples_per_second)",
)
FINETUNING_TOKENS_PER_SECOND = gauge(
    "finetuning_tokens_per_second",
    JOB,
    "tokens per second",
    "Tokens trained on, per second.",
    _RUNS,
    "sum by (model_id) (finetuning_tokens_per_second)",
)
FINETUNING_GPU_UTILIZATION_PERCENT = gauge(
    "finetuning_gpu_utilization_percent",
    JOB,
    "percent",
    "Utilisation of the job's GPUs on this node, their mean, 0 to 100.",
    _GPUS,
    "finetuning_gpu_utilization_percent < 10 and finetuning_job_status == 1",
)
FINETUNING_GPU_MEMORY_USED_BYTES = gauge(
    "finetuning_gpu_memory_used_bytes",
    JOB,
    "bytes",
    "Memory in use on the job's GPUs on this node, their sum.",
    _GPUS,
    "finetuning_gpu_memory_used_bytes / finetuning_gpu_memory_total_bytes > 0.95",
)
FINETUNING_GPU_MEMORY_TOTAL_BYTES = gauge(
    "finetuning_gpu_memory_total_bytes",
    JOB,
    "bytes",
    "Memory of the job's GPUs on this node, their sum.",
    _GPUS,
    "finetuning_gpu_memory_used_bytes / finetuning_gpu_memory_total_bytes > 0.95",
)
FINETUNING_CHECKPOINTS_TOTAL = counter(
    "finetuning_checkpoints_total",
    JOB,
    "checkpoints",
    "Checkpoints saved.",
    _RUNS,
    (
        "increase(finetuning_checkpoints_total[2h]) == 0 and finetuning_job_status == 1 and "
        "finetuning_job_status offset 2h == 1"
    ),
)
FINETUNING_CHECKPOINT_SIZE_BYTES = histogram(
    "finetuning_checkpoint_size_bytes",
    JOB,
    "bytes",
    "Sizes of the checkpoints that were seen.",
    _RUNS,
    "finetuning_checkpoint_size_bytes_sum / finetuning_checkpoint_size_bytes_count",
)
FINETUNING_INFO_FILE_TIMESTAMP_SECONDS = gauge(
    "finetuning_info_file_timestamp_seconds",
    JOB,
    "Unix seconds",
    "Last change of the file that a metrics-server follows, as it was last read; absent while there was none.",
    _FILE,
    "time() - finetuning_info_file_timestamp_seconds > 600 and finetuning_job_status == 1",
)
FINETUNING_INFO_FILE_ERRORS_TOTAL = counter(
    "finetuning_info_file_errors_total",
    f"{JOB} reason",
    "",
    "Reads of that file without a usable value: missing after it existed, unreadable, unexpected_value.",
    _FILE,
    "increase(finetuning_info_file_errors_total[10m]) > 0",
)
FINETUNING_VALIDATION_PASSED = gauge(
    "finetuning_validation_passed",
    f"{JOB} check",
    "",
    "Whether a check of the finished job passed, 1 or 0; absent where it could not be made.",
    _VALIDATION,
    "finetuning_validation_passed == 0",
)
FINETUNING_VALIDATION_SCORE = gauge(
    "finetuning_validation_score",
    f"{JOB} check",
    "",
    "The number of the check: the final loss, or the share of the keywords that the model's answers contain.",
    _VALIDATION,
    'finetuning_validation_score{check="model_output"} < 0.8',
)
FINETUNING_VALIDATION_TIMESTAMP_SECONDS = gauge(
    "finetuning_validation_timestamp_seconds",
    JOB,
    "Unix seconds",
    "When the job was checked.",
    _VALIDATION,
    "finetuning_job_status == 2 unless on (job_name) finetuning_validation_timestamp_seconds",
)
