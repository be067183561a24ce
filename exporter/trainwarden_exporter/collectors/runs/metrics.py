"""The metrics of runs."""

from trainwarden_exporter.core.metric import WHILE_RUNNING, counter, gauge, histogram, summary

TRAINING_RUN_INFO = gauge(
    "training_run_info",
    "run_id attempt_key job_id scheduler framework model method instance_id host policy",
    "1",
    "Job, host, model and requested restart policy of the run; always 1.",
    "metadata.json",
    "training_step * on (instance, run_id) group_left (job_id, host) training_run_info",
)
TRAINING_RUN_ATTEMPT = gauge(
    "training_run_attempt",
    "run_id",
    "",
    "Number of the attempt that owns the record, from 0.",
    "metadata.json: attempt",
    "changes(training_run_attempt[1d]) > 3",
)
TRAINING_RUN_GPUS = gauge(
    "training_run_gpus",
    "run_id gpu_type",
    "GPUs",
    "How many GPUs the process of rank 0 sees, and the type of the one that it trains on, as PyTorch has them.",
    "metadata.json: gpu_count, gpu_type",
    "sum by (gpu_type) (training_run_gpus)",
)
TRAINING_ATTEMPT_START_TIMESTAMP_SECONDS = gauge(
    "training_attempt_start_timestamp_seconds",
    "run_id",
    "Unix seconds",
    "Start of the attempt; of a folder without a first heartbeat: its last change.",
    "metadata.json: attempt_start_time, else start_time",
    "time() - training_attempt_start_timestamp_seconds" + WHILE_RUNNING,
)
TRAINING_RUN_PLAIN = gauge(
    "training_run_plain",
    "run_id",
    "1",
    "The run is a job without the library: its record is written for it, from its scheduler and its log. Absent for "
    "all other runs.",
    "metadata.json: user_id",
    "training_run_plain" + WHILE_RUNNING,
)
TRAINING_ATTEMPT_INFO = gauge(
    "training_attempt_info",
    "run_id attempt job_id scheduler node instance_id",
    "1",
    "The attempt that owns the record, its job and the host of its rank 0; always 1.",
    "metadata.json",
    "training_step * on (instance, run_id) group_left (attempt, job_id, node) training_attempt_info",
)
TRAINING_SUPERSEDED_ATTEMPT_INFO = gauge(
    "training_superseded_attempt_info",
    "run_id attempt host pid",
    "1",
    "An older attempt that still runs beside the one that owns the record, its host and process; of the last three "
    "before it. Always 1, absent while there is none.",
    "superseded.<attempt>.json: attempt, host, pid, status, and when it was written",
    "max by (run_id, attempt, host) (training_superseded_attempt_info)",
)
TRAINING_LIFE_TIMESTAMP_SECONDS = gauge(
    "training_life_timestamp_seconds",
    "run_id",
    "Unix seconds",
    "Last heartbeat of any kind, those of this host's ranks included; one from before the attempt counts as its start. "
    "Absent before the first.",
    "metadata.json, progress.json, ranks/*.json",
    "time() - training_life_timestamp_seconds > 600" + WHILE_RUNNING,
)
TRAINING_MOTION_TIMESTAMP_SECONDS = gauge(
    "training_motion_timestamp_seconds",
    "run_id phase basis",
    "Unix seconds",
    "Last change of the step, start of the phase or start of the attempt, whichever is latest. `basis` is what is "
    "judged: step, phase (its beginning), log (steps in the log), output (steps that the command prints), none (a "
    "train phase without any step).",
    "metadata.json, progress.json, the logs of the run",
    "time() - training_motion_timestamp_seconds > 600" + WHILE_RUNNING,
)
TRAINING_ADVANCE_TIMESTAMP_SECONDS = gauge(
    "training_advance_timestamp_seconds",
    "run_id",
    "Unix seconds",
    "The same, where only a step counts that passed the high-water mark of its attempt.",
    "metadata.json, progress.json, the logs of the run",
    "training_motion_timestamp_seconds - ignoring (phase, basis) training_advance_timestamp_seconds > 1800",
)
TRAINING_STALL_BUDGET_SECONDS = gauge(
    "training_stall_budget_seconds",
    "run_id",
    "seconds",
    "Stall budget of the run's phase, from its own steps where a factor is given; absent where the phase has none.",
    "metadata.json: phase, thresholds; progress.json: step_durations",
    "time() - training_motion_timestamp_seconds > on (instance, run_id) group_left () training_stall_budget_seconds"
    + WHILE_RUNNING,
)
TRAINING_RUN_STATE = gauge(
    "training_run_state",
    "run_id state",
    "0/1",
    "1 for the state of the run: the one in its record, corrected by its sentinels. 0 for running where it does not "
    "run; absent for all other states.",
    "metadata.json: status; _error and _complete",
    "count by (state) (training_run_state == 1)",
)
TRAINING_RUN_END_TIMESTAMP_SECONDS = gauge(
    "training_run_end_timestamp_seconds",
    "run_id",
    "Unix seconds",
    "End of the attempt; absent while it runs.",
    "metadata.json: end_time; else the time of _error or _complete",
    "time() - training_run_end_timestamp_seconds < 3600",
)
TRAINING_PHASE = gauge(
    "training_phase",
    "run_id phase",
    "1",
    "The phase of the run; an unknown one counts as train. Absent for all other phases.",
    "metadata.json: phase",
    'training_phase{phase="compile"} == 1' + WHILE_RUNNING,
)
TRAINING_PHASE_START_TIMESTAMP_SECONDS = gauge(
    "training_phase_start_timestamp_seconds",
    "run_id",
    "Unix seconds",
    "Last change of the phase.",
    "metadata.json: phase_time",
    "time() - training_phase_start_timestamp_seconds > 1800" + WHILE_RUNNING,
)
TRAINING_RUN_S3_INFO = gauge(
    "training_run_s3_info",
    "run_id url console",
    "1",
    "Where in S3 a record is that is in no folder: its place, and its page in the console of AWS.",
    "the index of the copies from S3",
    "training_run_s3_info",
)
TRAINING_PHASE_INFERRED = gauge(
    "training_phase_inferred",
    "run_id",
    "1",
    "The run reports no phase: it was inferred from what the command prints. Nothing is restarted for such a phase. "
    "Absent where the phase was reported, or its stall budget was given.",
    "metadata.json: phase_source",
    "training_phase_inferred == 1" + WHILE_RUNNING,
)
TRAINING_HEARTBEAT_TIMESTAMP_SECONDS = gauge(
    "training_heartbeat_timestamp_seconds",
    "run_id source",
    "Unix seconds",
    "Last heartbeat: metadata is the process, progress is the training loop.",
    "metadata.json: last_update; progress.json: last_updated; in S3 when the object was written",
    "time() - max by (instance, run_id) (training_heartbeat_timestamp_seconds) > 600" + WHILE_RUNNING,
)
TRAINING_HEARTBEAT_AGE_SECONDS = gauge(
    "training_heartbeat_age_seconds",
    "run_id source",
    "seconds",
    "Time since the last heartbeat, at the moment of the scrape.",
    "training_heartbeat_timestamp_seconds and this host's clock",
    "min by (instance, run_id) (training_heartbeat_age_seconds) > 300" + WHILE_RUNNING,
)
TRAINING_STEP_DURATION_SECONDS = summary(
    "training_step_duration_seconds",
    "run_id quantile",
    "seconds",
    "Duration of a step, of the library's last 512 without those in which the phase changed or a checkpoint was saved: "
    "the median (0.5), the 99th percentile (0.99) and the longest (1).",
    "progress.json: step_durations",
    'training_step_duration_seconds{quantile="0.99"} > on (instance, run_id) '
    '3 * training_step_duration_seconds{quantile="0.5"}',
)
TRAINING_STEP_DURATIONS_OBSERVED = gauge(
    "training_step_durations_observed",
    "run_id",
    "steps",
    "Steps that training_step_duration_seconds stands on, 512 at most.",
    "progress.json: step_durations",
    "training_step_durations_observed < 100" + WHILE_RUNNING,
)
TRAINING_RUN_OBSERVED_TIMESTAMP_SECONDS = gauge(
    "training_run_observed_timestamp_seconds",
    "run_id",
    "Unix seconds",
    "When S3 last confirmed a record that is only there; ages of the run end here. Absent for records on disk.",
    "ListObjectsV2 of the run",
    "time() - training_run_observed_timestamp_seconds > 120" + WHILE_RUNNING,
)
TRAINING_RUN_EXPECTED = gauge(
    "training_run_expected",
    "run_id source",
    "1",
    "A run that is expected and has left no record, and the source that expects it; always 1.",
    "--expect.run, SLURM, Ray",
    'training_run_expected and on (instance, run_id) training_run_state{state="pending"} == 1',
)
TRAINING_RUN_DURATION_SECONDS = histogram(
    "training_run_duration_seconds",
    "state",
    "seconds",
    "Durations of the attempts that ended while this exporter watched, by the state in which they ended.",
    "metadata.json: attempt_start_time, end_time",
    "histogram_quantile(0.5, sum by (le, state) (increase(training_run_duration_seconds_bucket[7d])))",
)
TRAINING_FAILURE_INFO = gauge(
    "training_failure_info",
    "run_id attempt error_type failure subsystem severity",
    "1",
    "The verdict on a failed attempt, one per attempt and never changed; always 1.",
    "_error, completed from the taxonomy and the logs",
    "count by (error_type) (training_failure_info)",
)
TRAINING_FAILURE_TIMESTAMP_SECONDS = gauge(
    "training_failure_timestamp_seconds",
    "run_id",
    "Unix seconds",
    "When the attempt failed.",
    "_error: time",
    "time() - training_failure_timestamp_seconds < 3600",
)
TRAINING_FAILURE_MESSAGE_INFO = gauge(
    "training_failure_message_info",
    "run_id message last_line hint",
    "1",
    "Last messages of the failed, or long silent, attempt, without a log its step; secrets redacted; always 1.",
    "_error: message, hint; the end of logs/training_log_latest.txt",
    'training_failure_message_info{message!=""}',
)
TRAINING_STALE_THRESHOLD_SECONDS = gauge(
    "training_stale_threshold_seconds",
    "run_id",
    "seconds",
    "Without any heartbeat for longer, the run counts as timed out.",
    "metadata.json: thresholds.stale_seconds; else $STALE_MINUTES",
    (
        "min by (instance, run_id) (training_heartbeat_age_seconds) / on (instance, run_id) "
        "training_stale_threshold_seconds > 0.5" + WHILE_RUNNING
    ),
)
TRAINING_STALL_THRESHOLD_SECONDS = gauge(
    "training_stall_threshold_seconds",
    "run_id phase",
    "seconds",
    "Without a new step for longer in this phase, the run counts as stalled.",
    "metadata.json: thresholds.stall_seconds; else $TRAINWARDEN_STALL_SECONDS",
    'training_stall_threshold_seconds{phase="train"}',
)
TRAINWARDEN_RUNS = gauge(
    "trainwarden_runs",
    "outcome",
    "runs",
    "Folders of the runs folder, by outcome.",
    "the runs folder and the copies",
    'trainwarden_runs{outcome="dropped"} > 0',
)
TRAINWARDEN_RUNS_LEFT_OUT = gauge(
    "trainwarden_runs_left_out",
    "reason",
    "runs",
    "Runs of which something is not exported because a limit is reached: all of it (folders, runs, series), its ranks "
    "(ranks), or what changed last (bytes).",
    "the exporter",
    "trainwarden_runs_left_out > 0",
)
TRAINWARDEN_RUNS_UNREADABLE = gauge(
    "trainwarden_runs_unreadable",
    "reason",
    "problems",
    "Files and single values of the records that could not be used; the log names them.",
    "the exporter",
    "trainwarden_runs_unreadable > 0",
)
TRAINING_STEP = gauge(
    "training_step",
    "run_id",
    "steps",
    "Current step of the training loop.",
    "progress.json: step",
    "training_step / training_steps_target",
)
TRAINING_STEPS_TARGET = gauge(
    "training_steps_target",
    "run_id",
    "steps",
    "Step at which the run is complete.",
    "progress.json: total_steps",
    "training_steps_target - training_step",
)
TRAINING_STEPS_COMPLETED_TOTAL = counter(
    "training_steps_completed_total",
    "run_id",
    "steps",
    "Steps done over the whole run; steps repeated after a restart count again.",
    "progress.json: steps_completed",
    "rate(training_steps_completed_total[5m])",
)
TRAINING_STEP_TIMESTAMP_SECONDS = gauge(
    "training_step_timestamp_seconds",
    "run_id",
    "Unix seconds",
    "When the step last passed the high-water mark of its own attempt.",
    "progress.json: step_time; else when the exporter first saw the step",
    "time() - training_step_timestamp_seconds > 600" + WHILE_RUNNING,
)
TRAINING_STEP_CHANGE_TIMESTAMP_SECONDS = gauge(
    "training_step_change_timestamp_seconds",
    "run_id",
    "Unix seconds",
    "When the training loop last reported another step than before, a higher or a lower one.",
    "progress.json: moved_time; else when the exporter saw the step change",
    "time() - training_step_change_timestamp_seconds > 600" + WHILE_RUNNING,
)
TRAINING_STEP_HIGH_WATER = gauge(
    "training_step_high_water",
    "run_id",
    "steps",
    "Highest step of the whole run, across attempts.",
    "progress.json: high_water",
    "training_step_high_water - training_step > 0",
)
TRAINING_EPOCH = gauge(
    "training_epoch", "run_id", "epochs", "Epoch, as reported.", "progress.json: epoch", "training_epoch"
)
TRAINING_LOSS = gauge(
    "training_loss",
    "run_id",
    "",
    "Loss, as reported; absent while it is not a finite number.",
    "progress.json: loss",
    "training_loss > 2 * min_over_time(training_loss[6h])" + WHILE_RUNNING,
)
TRAINING_LEARNING_RATE = gauge(
    "training_learning_rate",
    "run_id",
    "",
    "Learning rate, as reported.",
    "progress.json: learning_rate",
    "training_learning_rate",
)
TRAINING_GRAD_NORM = gauge(
    "training_grad_norm",
    "run_id",
    "",
    "Gradient norm, as reported; absent while it is not finite.",
    "progress.json: grad_norm",
    "training_grad_norm > 10 * avg_over_time(training_grad_norm[1h])" + WHILE_RUNNING,
)
TRAINING_TOKENS_PER_SECOND = gauge(
    "training_tokens_per_second",
    "run_id",
    "tokens/s",
    "Throughput in tokens.",
    "progress.json: tokens_per_second",
    "training_tokens_per_second < 0.8 * avg_over_time(training_tokens_per_second[1d])" + WHILE_RUNNING,
)
TRAINING_SAMPLES_PER_SECOND = gauge(
    "training_samples_per_second",
    "run_id",
    "samples/s",
    "Throughput in samples.",
    "progress.json: samples_per_second",
    "training_samples_per_second" + WHILE_RUNNING,
)
TRAINING_NONFINITE_TOTAL = counter(
    "training_nonfinite_total",
    "run_id",
    "reports",
    "Reports whose loss or gradient norm was NaN or infinite.",
    "progress.json: nonfinite",
    "increase(training_nonfinite_total[15m]) > 0",
)
TRAINING_CHECKPOINT_STEP = gauge(
    "training_checkpoint_step",
    "run_id",
    "steps",
    "Step of the last checkpoint saved.",
    "progress.json: checkpoint.step",
    "training_step - training_checkpoint_step",
)
TRAINING_CHECKPOINT_VERIFIED_STEP = gauge(
    "training_checkpoint_verified_step",
    "run_id",
    "steps",
    "Step of the newest of the last three checkpoints whose writer has read it as a whole and written its digests: "
    "checkpoint_saved(path, verify=True). Absent while there is none.",
    "progress.json: checkpoints, verified_time",
    "training_checkpoint_step - training_checkpoint_verified_step",
)
TRAINING_CHECKPOINT_TIMESTAMP_SECONDS = gauge(
    "training_checkpoint_timestamp_seconds",
    "run_id",
    "Unix seconds",
    "When the last checkpoint was saved.",
    "progress.json: checkpoint.time",
    "time() - training_checkpoint_timestamp_seconds > 7200" + WHILE_RUNNING,
)
TRAINING_CHECKPOINT_SIZE_BYTES = gauge(
    "training_checkpoint_size_bytes",
    "run_id",
    "bytes",
    "Size of the last checkpoint saved.",
    "progress.json: checkpoint.size_bytes",
    "training_checkpoint_size_bytes < 0.9 * max_over_time(training_checkpoint_size_bytes[1d])",
)
TRAINING_CHECKPOINTS_TOTAL = counter(
    "training_checkpoints_total",
    "run_id",
    "checkpoints",
    "Checkpoints saved over the whole run.",
    "progress.json: checkpoint.count",
    "increase(training_checkpoints_total[1d])",
)
TRAINING_CHECKPOINT_COMPLETE = gauge(
    "training_checkpoint_complete",
    "run_id",
    "0/1",
    "1 if the last checkpoint is proven complete, 0 if a part of it is missing; absent where that is unknown.",
    "the listing of the checkpoint, and the ends of its files",
    "training_checkpoint_complete == 0",
)
