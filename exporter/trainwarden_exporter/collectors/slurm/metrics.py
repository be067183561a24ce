"""The metrics of this collector."""

from trainwarden_exporter.core.metric import counter, gauge

_JOB = "run_id job_id"
_QUEUE = "`squeue --json`"
_NODES = "`scontrol show nodes --json`, before 23.02 `sinfo --json`"

SLURM_JOB_INFO = gauge(
    "slurm_job_info",
    f"{_JOB} queue_id name user partition",
    "1",
    "A job that works for a run, as long as slurmctld has a record of it; `queue_id` is the id that squeue shows.",
    _QUEUE,
    'slurm_job_state == 1 and on (instance, job_id) slurm_job_info{user="alice"}',
)
SLURM_JOB_STATE = gauge(
    "slurm_job_state",
    f"{_JOB} state",
    "0/1",
    "1 for the state that the job is in.",
    f"{_QUEUE}, job_state",
    'slurm_job_state{state=~"timeout|node_fail|preempted"} == 1',
)
SLURM_JOB_RESTARTS = gauge(
    "slurm_job_restarts",
    _JOB,
    "requeues",
    "Requeues of the job, for any cause. The count rises at the requeue, not at the next start.",
    f"{_QUEUE}, restart_cnt",
    "changes(slurm_job_restarts[1h]) > 2",
)
SLURM_JOB_HELD_BY_US = gauge(
    "slurm_job_held_by_us",
    _JOB,
    "0/1",
    "1 between the `requeuehold` and the `release` that make up a restart; a user's own hold does not count.",
    f"{_QUEUE}, state_reason and state_description",
    "min_over_time(slurm_job_held_by_us[10m]) == 1",
)
SLURM_JOB_PENDING_INFO = gauge(
    "slurm_job_pending_info",
    f"{_JOB} reason",
    "1",
    "Why the job waits, as SLURM names it.",
    f"{_QUEUE}, state_reason",
    'slurm_job_pending_info{reason=~"JobHeld.*|ReqNodeNotAvail.*|BadConstraints"}',
)
SLURM_JOB_END_INFO = gauge(
    "slurm_job_end_info",
    f"{_JOB} state reason",
    "1",
    "How the job ended. SLURM distinguishes a time limit from a cancel; a rank cannot.",
    f"{_QUEUE}, job_state and state_reason",
    'slurm_job_end_info{state="timeout"}',
)
SLURM_JOB_EXIT_CODE = gauge(
    "slurm_job_exit_code",
    _JOB,
    "exit status",
    "Exit status of the batch script of a job that has ended.",
    f"{_QUEUE}, exit_code",
    "slurm_job_exit_code > 0",
)
SLURM_JOB_EXIT_SIGNAL = gauge(
    "slurm_job_exit_signal",
    _JOB,
    "signal",
    "The signal that ended the batch script of a job that has ended; 0 if none did.",
    f"{_QUEUE}, exit_code",
    "slurm_job_exit_signal == 9",
)
SLURM_JOB_NODES = gauge(
    "slurm_job_nodes",
    _JOB,
    "nodes",
    "Nodes that the job has or requests.",
    f"{_QUEUE}, node_count",
    'sum by (instance, run_id) (slurm_job_nodes and on (instance, job_id) slurm_job_state{state="running"} == 1)',
)
SLURM_JOB_NODE_INFO = gauge(
    "slurm_job_node_info",
    "job_id node",
    "1",
    "A job of a run has this node, by its name in SLURM; one for each node, absent before it starts and after its end.",
    f"{_QUEUE}, nodes",
    "count by (job_id) (slurm_job_node_info * on (instance, node) group_left () slurm_node_drain_info)",
)
SLURM_JOB_GPUS = gauge(
    "slurm_job_gpus",
    _JOB,
    "GPUs",
    "GPUs allocated to the job now; absent where SLURM does not show them.",
    f"{_QUEUE}, tres_alloc_str, else gres_detail",
    "sum by (instance, run_id) (slurm_job_gpus)",
)
SLURM_JOB_SUBMIT_TIMESTAMP_SECONDS = gauge(
    "slurm_job_submit_timestamp_seconds",
    _JOB,
    "Unix seconds",
    "When the job was submitted or last requeued.",
    f"{_QUEUE}, submit_time",
    (
        "time() - slurm_job_submit_timestamp_seconds > 3600 "
        'and on (instance, job_id) slurm_job_state{state="pending"} == 1'
    ),
)
SLURM_JOB_START_TIMESTAMP_SECONDS = gauge(
    "slurm_job_start_timestamp_seconds",
    _JOB,
    "Unix seconds",
    "When the job last started; absent while it waits.",
    f"{_QUEUE}, start_time",
    'time() - slurm_job_start_timestamp_seconds and on (instance, job_id) slurm_job_state{state="running"} == 1',
)
SLURM_JOB_DEADLINE_TIMESTAMP_SECONDS = gauge(
    "slurm_job_deadline_timestamp_seconds",
    _JOB,
    "Unix seconds",
    "When the time limit ends a job that runs.",
    f"{_QUEUE}, end_time",
    (
        "slurm_job_deadline_timestamp_seconds - time() < 1800 "
        'and on (instance, job_id) slurm_job_state{state="running"} == 1'
    ),
)
SLURM_JOB_END_TIMESTAMP_SECONDS = gauge(
    "slurm_job_end_timestamp_seconds",
    _JOB,
    "Unix seconds",
    "When the job ended.",
    f"{_QUEUE}, end_time",
    "time() - slurm_job_end_timestamp_seconds < 300",
)
SLURM_JOBS = gauge(
    "slurm_jobs",
    "state",
    "jobs",
    "Jobs of the whole queue by state; the tasks of a job array that wait count as one job.",
    _QUEUE,
    'slurm_jobs{state="pending"}',
)
SLURM_NODE_STATE = gauge(
    "slurm_node_state",
    "node state",
    "1",
    "1 for the state of a node: one series for each node.",
    f"{_NODES}, state",
    'slurm_node_state{state=~"down|fail|not_responding|drained"}',
)
SLURM_NODE_DRAIN_INFO = gauge(
    "slurm_node_drain_info",
    "node reason user",
    "1",
    "Why a node is drained, down or failing, and the user that gave the reason.",
    f"{_NODES}, reason",
    'slurm_node_drain_info{reason=~"(?i).*(gpu|xid|ecc).*"}',
)
SLURM_NODE_DRAIN_SINCE_TIMESTAMP_SECONDS = gauge(
    "slurm_node_drain_since_timestamp_seconds",
    "node",
    "Unix seconds",
    "When that reason was given.",
    f"{_NODES}, reason_changed_at",
    "time() - slurm_node_drain_since_timestamp_seconds > 86400",
)
SLURM_NODE_GPUS = gauge(
    "slurm_node_gpus",
    "node",
    "GPUs",
    "GPUs that SLURM counts on a node; absent where it counts none.",
    f"{_NODES}, gres",
    (
        "sum by (instance) (slurm_node_gpus - slurm_node_gpus_allocated "
        'and on (instance, node) slurm_node_state{state=~"idle|mixed"})'
    ),
)
SLURM_NODE_GPUS_ALLOCATED = gauge(
    "slurm_node_gpus_allocated",
    "node",
    "GPUs",
    "GPUs of a node that are allocated to jobs.",
    f"{_NODES}, gres_used",
    "slurm_node_gpus_allocated / slurm_node_gpus",
)
SLURM_NODES = gauge(
    "slurm_nodes", "state", "nodes", "Nodes of the whole cluster by state.", _NODES, 'slurm_nodes{state="down"} > 0'
)
SLURM_GPUS = gauge(
    "slurm_gpus",
    "",
    "GPUs",
    "GPUs of the whole cluster, in nodes of any state but future.",
    _NODES,
    "slurm_gpus < max_over_time(slurm_gpus[1d])",
)
SLURM_GPUS_ALLOCATED = gauge(
    "slurm_gpus_allocated",
    "",
    "GPUs",
    "GPUs of the whole cluster that are allocated to jobs.",
    _NODES,
    "slurm_gpus_allocated / slurm_gpus",
)
SLURM_PARTITION_JOBS = gauge(
    "slurm_partition_jobs",
    "partition state",
    "jobs",
    "Jobs of the partition that are allocated (running) or wait (pending); beyond the limit, the rest is _others.",
    _QUEUE,
    'topk(5, slurm_partition_jobs{state="pending"})',
)
SLURM_PARTITION_GPUS_ALLOCATED = gauge(
    "slurm_partition_gpus_allocated",
    "partition",
    "GPUs",
    "GPUs allocated to jobs of the partition; absent where SLURM shows no job's GPUs.",
    f"{_QUEUE}, tres_alloc_str, else gres_detail",
    "topk(5, slurm_partition_gpus_allocated)",
)
SLURM_ACCOUNT_JOBS = gauge(
    "slurm_account_jobs",
    "account state",
    "jobs",
    "Jobs of the account that are allocated (running) or wait (pending); beyond the limit, the rest is _others.",
    _QUEUE,
    'topk(5, slurm_account_jobs{state="pending"})',
)
SLURM_ACCOUNT_GPUS_ALLOCATED = gauge(
    "slurm_account_gpus_allocated",
    "account",
    "GPUs",
    "GPUs allocated to jobs of the account; absent where SLURM shows no job's GPUs.",
    f"{_QUEUE}, tres_alloc_str, else gres_detail",
    "topk(5, slurm_account_gpus_allocated)",
)
SLURM_USER_JOBS = gauge(
    "slurm_user_jobs",
    "user state",
    "jobs",
    "Jobs of the user that are allocated (running) or wait (pending); beyond the limit, the rest is _others.",
    _QUEUE,
    'topk(5, slurm_user_jobs{state="pending"})',
)
SLURM_USER_GPUS_ALLOCATED = gauge(
    "slurm_user_gpus_allocated",
    "user",
    "GPUs",
    "GPUs allocated to jobs of the user; absent where SLURM shows no job's GPUs.",
    f"{_QUEUE}, tres_alloc_str, else gres_detail",
    "topk(5, slurm_user_gpus_allocated)",
)
SLURM_PENDING_JOBS = gauge(
    "slurm_pending_jobs",
    "reason",
    "jobs",
    "Jobs that wait, by the reason that SLURM names.",
    f"{_QUEUE}, state_reason",
    'slurm_pending_jobs{reason=~"ReqNodeNotAvail.*|BadConstraints"} > 0',
)
TRAINWARDEN_SLURM_RECORDS = gauge(
    "trainwarden_slurm_records",
    "kind outcome",
    "records",
    "Records of the last complete answer: exported, of other jobs, dropped because there are too many, or unreadable.",
    "the exporter",
    'trainwarden_slurm_records{outcome=~"dropped|unreadable"} > 0',
)
TRAINWARDEN_SLURM_ERRORS_TOTAL = counter(
    "trainwarden_slurm_errors_total",
    "source reason",
    "errors",
    "Failed attempts to read SLURM, by source and reason.",
    "the exporter",
    'increase(trainwarden_slurm_errors_total{reason="authentication"}[15m]) > 0',
)
