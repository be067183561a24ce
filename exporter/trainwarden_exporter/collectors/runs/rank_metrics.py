"""The metrics of the ranks of runs."""

from trainwarden_exporter.core.metric import WHILE_RUNNING, gauge

TRAINING_HOST_HEARTBEAT_TIMESTAMP_SECONDS = gauge(
    "training_host_heartbeat_timestamp_seconds",
    "run_id host ranks",
    "Unix seconds",
    "Newest heartbeat of the ranks of the attempt on one host; `ranks` are their numbers, as 0-3,7.",
    "ranks/*.json: time",
    "time() - training_host_heartbeat_timestamp_seconds > 60" + WHILE_RUNNING,
)
TRAINING_HOST_RANK_STEPS = gauge(
    "training_host_rank_steps",
    "run_id host",
    "steps",
    "Sum of the current steps of the ranks on one host: it rises when any of them counts one.",
    "ranks/*.json: step",
    "training_host_rank_steps == training_host_rank_steps offset 5m" + WHILE_RUNNING,
)
TRAINING_SILENT_RANKS_TIMESTAMP_SECONDS = gauge(
    "training_silent_ranks_timestamp_seconds",
    "run_id host ranks",
    "Unix seconds",
    "Oldest heartbeat of the ranks on one host that have not ended and have been silent for longer than the stale "
    "threshold; absent while there is none.",
    "ranks/*.json: time, status",
    "time() - training_silent_ranks_timestamp_seconds" + WHILE_RUNNING,
)
TRAINING_MISSING_RANKS = gauge(
    "training_missing_ranks",
    "run_id ranks world_size",
    "ranks",
    "Ranks of the running attempt of which the exporter reads no file, of `world_size` (with the scope host also "
    "those of other hosts); `ranks` are their numbers, as 0-3,7. Absent while there is none, and where no rank has a "
    "file or the number of ranks is unknown.",
    "metadata.json: world_size; ranks/*.json",
    "training_missing_ranks" + WHILE_RUNNING,
)
TRAINING_RANK_HEARTBEAT_TIMESTAMP_SECONDS = gauge(
    "training_rank_heartbeat_timestamp_seconds",
    "run_id rank",
    "Unix seconds",
    "Last heartbeat of one rank of the attempt.",
    "ranks/*.json: time",
    (
        "time() - training_rank_heartbeat_timestamp_seconds > 60 "
        'and on (run_id) training_run_state{state="running"} == 1'
    ),
)
TRAINING_RANK_STEP = gauge(
    "training_rank_step",
    "run_id rank",
    "steps",
    "Current step of the rank's training loop.",
    "ranks/*.json: step",
    "bottomk by (run_id) (3, training_rank_step)",
)
TRAINING_RANK_INFO = gauge(
    "training_rank_info",
    "run_id rank host gpu uuid pid",
    "1",
    "Host, process and GPU of one rank of the attempt; gpu is the number on the host. Empty where unknown.",
    "ranks/*.json: host, gpu, uuid, pid",
    "training_rank_step * on (instance, run_id, rank) group_left (host, uuid) training_rank_info",
)
TRAINING_RANK_GPU_TAKEN_BYTES = gauge(
    "training_rank_gpu_taken_bytes",
    "run_id rank",
    "bytes",
    "Memory of the rank's GPU that other processes used before training, where that was more than a tenth; absent "
    "where it was less or is unknown.",
    "ranks/*.json: gpu_taken_bytes",
    "training_rank_gpu_taken_bytes * on (instance, run_id, rank) group_left (host, gpu, uuid) training_rank_info",
)
TRAINING_RANK_PROCESS_STATE = gauge(
    "training_rank_process_state",
    "run_id rank state",
    "1",
    "State of the process of a rank of this host that has recorded no end: alive, disk_sleep, stopped, zombie or gone. "
    "Absent where unknown: in a container with pids of its own, or where procfs hides it.",
    "/proc/PID/stat, where pid and start are those in ranks/*.json",
    'training_rank_process_state{state=~"disk_sleep|stopped"} == 1',
)
TRAINING_SECTION_SECONDS = gauge(
    "training_section_seconds",
    "run_id rank section",
    "seconds",
    "Mean time of a step that a rank spends in a section which the script names, over the last minute.",
    "ranks/*.json: sections",
    'topk by (run_id) (1, training_section_seconds{section="data"})',
)
