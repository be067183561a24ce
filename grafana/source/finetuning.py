"""Fine-tuning: jobs by the metric names of the fine-tuning exporter (`--compat.finetuning`, `metrics-server`)."""

from __future__ import annotations

from grafana.source.frame import annotation, board, cluster, variable
from grafana.source.panels import Column, Query, Row, bands, graph, rows, stats
from grafana.source.style import BAD, NONE_IS_GOOD, ONE_IS_GOOD, PLAIN, Unit

C = 'cluster=~"$cluster"'
M = C + ',model_id=~"$model"'
J = M + ',job_name=~"$job"'
BY = "job_name, model_id, method"
NAMES = "{{job_name}} ({{method}})"

FINETUNING = board(
    "train-finetuning",
    "Fine-tuning jobs",
    "Which jobs run, how good are they, and what do they cost the GPUs?",
    [
        cluster(),
        variable(
            "model",
            "Model",
            f"max by (model_id) (max_over_time(finetuning_job_status{{{C}}}[$__range]))",
            "model_id",
            every=True,
            several=True,
        ),
        variable(
            "job",
            "Job",
            f"max by (job_name) (max_over_time(finetuning_job_status{{{M}}}[$__range]))",
            "job_name",
            every=True,
            several=True,
        ),
    ],
    [
        annotation(
            "Failed",
            f"max by ({BY}) (finetuning_job_status{{{J}}} == 3) unless max by ({BY}) (finetuning_job_status{{{J}}} offset 1m == 3)",
            "{{job_name}} failed",
            color=BAD,
        )
    ],
    [
        Row(
            "Now",
            [
                stats(
                    title,
                    description,
                    Query(f"count(finetuning_job_status{{{J}}} == {status})", title.lower()),
                    none="0",
                    scale=NONE_IS_GOOD if status == 3 else PLAIN,
                )
                for status, title, description in (
                    (0, "Pending", "Jobs that have not started."),
                    (1, "Running", "Jobs that train."),
                    (2, "Succeeded", "Jobs that are complete, and still shown."),
                    (3, "Failed", "Failed or cancelled, and still shown."),
                    (4, "Paused", "Jobs that run in the phase idle."),
                )
            ]
            + [
                stats(
                    "Typical duration",
                    "Median of the attempts that ended.",
                    Query(
                        f"histogram_quantile(0.5, sum by (le) (finetuning_job_duration_seconds_bucket{{{J}}}))",
                        "median",
                    ),
                    unit=Unit.SECONDS,
                    none="none has ended",
                )
            ],
        ),
        Row(
            "Jobs",
            [
                rows(
                    "Jobs",
                    "All that are shown now.",
                    [
                        Column("job_name", "Job"),
                        Column("model_id", "Model"),
                        Column("method", "Method"),
                        Column("Value #A", "Progress", Unit.PERCENT),
                        Column("Value #B", "Step"),
                        Column("Value #C", "Epoch"),
                        Column("Value #D", "Loss"),
                        Column("Value #E", "Checkpoints"),
                    ],
                    Query(f"max by ({BY}) (finetuning_training_progress{{{J}}})"),
                    Query(f"max by ({BY}) (finetuning_training_step{{{J}}})"),
                    Query(f"max by ({BY}) (finetuning_training_epoch{{{J}}})"),
                    Query(f"min by ({BY}) (finetuning_train_loss{{{J}}})"),
                    Query(f"max by ({BY}) (finetuning_checkpoints_total{{{J}}})"),
                ),
                bands(
                    "When each job ran",
                    "Gaps are pauses and failures.",
                    Query(f"max by ({BY}) (finetuning_job_status{{{J}}} == 1)", NAMES),
                ),
            ],
        ),
        Row(
            "How good",
            [
                graph(
                    "Loss",
                    "One line for each job; a rise after a fall is a learning rate that is too high, or bad data.",
                    Query(f"max by ({BY}) (finetuning_train_loss{{{J}}})", NAMES),
                ),
                graph(
                    "Progress",
                    "A flat line of a job that runs is a stall.",
                    Query(f"max by ({BY}) (finetuning_training_progress{{{J}}})", NAMES),
                    unit=Unit.PERCENT,
                    most=100,
                ),
                graph(
                    "Learning rate",
                    "Warm-up and decay, as planned.",
                    Query(f"max by ({BY}) (finetuning_learning_rate{{{J}}})", NAMES),
                ),
                graph(
                    "Throughput",
                    "Tokens each second, and samples at the right.",
                    Query(f"sum by ({BY}) (finetuning_tokens_per_second{{{J}}})", NAMES + " tokens"),
                    Query(f"sum by ({BY}) (finetuning_samples_per_second{{{J}}})", NAMES + " samples"),
                ),
            ],
        ),
        Row(
            "Checks of finished jobs",
            [
                rows(
                    "Checks",
                    "What `trainwarden validate-job` found, at its last call: passed is 1, failed is 0.",
                    [
                        Column("job_name", "Job"),
                        Column("model_id", "Model"),
                        Column("check", "Check"),
                        Column("Value #A", "Passed", scale=ONE_IS_GOOD),
                        Column("Value #B", "Score"),
                    ],
                    Query(f"max by ({BY}, check) (finetuning_validation_passed{{{J}}})"),
                    Query(f"max by ({BY}, check) (finetuning_validation_score{{{J}}})"),
                    none="no job was checked",
                    width=16,
                ),
                rows(
                    "Last check",
                    "How long ago each job was checked.",
                    [Column("job_name", "Job"), Column("Value", "Ago", Unit.SECONDS)],
                    Query(f"time() - max by ({BY}) (finetuning_validation_timestamp_seconds{{{J}}})"),
                    none="no job was checked",
                    width=8,
                ),
            ],
        ),
        Row(
            "GPUs and checkpoints",
            [
                graph(
                    "GPUs at work",
                    "Of each job's GPUs on a node, their mean. Low while the job runs is data that comes too slowly.",
                    Query(f"avg by ({BY}) (finetuning_gpu_utilization_percent{{{J}}})", NAMES),
                    unit=Unit.PERCENT,
                    most=100,
                    width=8,
                ),
                graph(
                    "Memory of the GPUs in use",
                    "Near 100 % the next longer sequence is out of memory; far below it the batch may grow.",
                    Query(
                        f"sum by ({BY}) (finetuning_gpu_memory_used_bytes{{{J}}})"
                        f" / sum by ({BY}) (finetuning_gpu_memory_total_bytes{{{J}}})",
                        NAMES,
                    ),
                    unit=Unit.RATIO,
                    most=1,
                    width=8,
                ),
                graph(
                    "Size of a checkpoint",
                    "Mean of those that were seen.",
                    Query(
                        f"sum by ({BY}) (finetuning_checkpoint_size_bytes_sum{{{J}}})"
                        f" / sum by ({BY}) (finetuning_checkpoint_size_bytes_count{{{J}}})",
                        NAMES,
                    ),
                    unit=Unit.BYTES,
                    width=8,
                ),
                graph(
                    "Since the job's file was written",
                    "Of the file that a metrics-server follows. One that climbs while the job runs has been forgotten.",
                    Query(f"time() - max by ({BY}) (finetuning_info_file_timestamp_seconds{{{J}}})", NAMES),
                    unit=Unit.SECONDS,
                ),
                graph(
                    "Reads of that file without a value",
                    "Missing, unreadable, or with a value that is none.",
                    Query(
                        f"sum by (reason) (increase(finetuning_info_file_errors_total{{{J}}}[$__rate_interval]))",
                        "{{reason}}",
                    ),
                ),
            ],
        ),
    ],
)
