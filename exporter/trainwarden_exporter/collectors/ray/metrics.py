"""The metrics of this collector."""

from trainwarden_exporter.core.metric import counter, gauge

_JOBS = "Ray's dashboard, GET /api/jobs/"
_ACTORS = "Ray's dashboard, GET /api/v0/actors, and /api/v0/tasks where actors do not hold all of them"
_USAGE = "Ray's dashboard, GET /api/cluster_status: what ray status prints"

RAY_CLUSTER_INFO = gauge(
    "ray_cluster_info",
    "ray_version session",
    "1",
    "Version of Ray, and the session, which is another after each start of the head; always 1.",
    "Ray's dashboard, GET /api/version",
    "count by (instance) (count by (instance, session) (last_over_time(ray_cluster_info[1h]))) > 1",
)
RAY_CLUSTER_JOB_INFO = gauge(
    "ray_cluster_job_info",
    "submission_id run_id job_id ray_error_type",
    "1",
    "A job, active or ended within a day; one without a submission has Ray's job id for both; always 1.",
    _JOBS,
    'ray_cluster_job_info{ray_error_type!="",ray_error_type!="job_entrypoint_command_error"}',
)
RAY_CLUSTER_JOB_STATE = gauge(
    "ray_cluster_job_state",
    "submission_id run_id state",
    "0/1",
    "1 for the state of the job: pending, running, succeeded, failed or stopped (by a user).",
    _JOBS,
    'ray_cluster_job_state{state="failed"} == 1',
)
RAY_CLUSTER_JOB_START_TIMESTAMP_SECONDS = gauge(
    "ray_cluster_job_start_timestamp_seconds",
    "submission_id run_id",
    "Unix seconds",
    "When Ray accepted the job; it may have been pending since.",
    _JOBS,
    (
        "time() - ray_cluster_job_start_timestamp_seconds > 900 "
        'and on (instance, submission_id) ray_cluster_job_state{state="pending"} == 1'
    ),
)
RAY_CLUSTER_JOB_END_TIMESTAMP_SECONDS = gauge(
    "ray_cluster_job_end_timestamp_seconds",
    "submission_id run_id",
    "Unix seconds",
    "When the job ended; absent while it is active.",
    _JOBS,
    "time() - ray_cluster_job_end_timestamp_seconds < 3600",
)
RAY_CLUSTER_JOB_EXIT_CODE = gauge(
    "ray_cluster_job_exit_code",
    "submission_id run_id",
    "",
    "Exit status of the job's command; absent of one that Ray itself ended, or never started.",
    _JOBS,
    "ray_cluster_job_exit_code != 0",
)
RAY_CLUSTER_JOBS = gauge(
    "ray_cluster_jobs",
    "state",
    "jobs",
    "Jobs on the head's list, by state; all since it was started.",
    _JOBS,
    'ray_cluster_jobs{state="pending"} > 0',
)
RAY_CLUSTER_JOBS_DROPPED = gauge(
    "ray_cluster_jobs_dropped",
    "",
    "jobs",
    "Jobs that have no series because there are too many of them.",
    _JOBS,
    "ray_cluster_jobs_dropped > 0",
)
RAY_CLUSTER_GPUS = gauge(
    "ray_cluster_gpus",
    "",
    "GPUs",
    "GPUs that the nodes of the cluster report.",
    _USAGE,
    "ray_cluster_gpus < max_over_time(ray_cluster_gpus[1h])",
)
RAY_CLUSTER_GPUS_ALLOCATED = gauge(
    "ray_cluster_gpus_allocated",
    "",
    "GPUs",
    "GPUs that tasks and actors hold; a placement group without them holds none.",
    _USAGE,
    "ray_cluster_gpus_allocated / ray_cluster_gpus",
)
RAY_CLUSTER_GPUS_RESERVED = gauge(
    "ray_cluster_gpus_reserved",
    "",
    "GPUs",
    "GPUs that placement groups reserve and no task or actor holds.",
    _USAGE,
    "min_over_time(ray_cluster_gpus_reserved[30m]) > 0",
)
RAY_CLUSTER_GPUS_WANTED = gauge(
    "ray_cluster_gpus_wanted",
    "",
    "GPUs",
    "GPUs that pending tasks, actors and placement groups wait for; a lower bound.",
    _USAGE,
    "ray_cluster_gpus_wanted > ray_cluster_gpus",
)
RAY_CLUSTER_JOB_GPUS = gauge(
    "ray_cluster_job_gpus",
    "submission_id run_id",
    "GPUs",
    "GPUs that the actors and tasks of the running job hold; absent where that is unknown.",
    _ACTORS,
    "max_over_time(ray_cluster_job_gpus[15m]) == 0",
)
RAY_CLUSTER_RUNNING_JOBS_WITHOUT_GPU = gauge(
    "ray_cluster_running_jobs_without_gpu",
    "",
    "jobs",
    "Running jobs that hold no GPU, where the cluster has GPUs; else 0. Absent where that is unknown of one.",
    f"{_JOBS}; {_ACTORS}",
    "min_over_time(ray_cluster_running_jobs_without_gpu[15m]) > 0",
)
RAY_CLUSTER_CPUS = gauge(
    "ray_cluster_cpus", "", "CPUs", "CPUs that the nodes of the cluster report.", _USAGE, "ray_cluster_cpus"
)
RAY_CLUSTER_CPUS_ALLOCATED = gauge(
    "ray_cluster_cpus_allocated",
    "",
    "CPUs",
    "CPUs that tasks and actors hold.",
    _USAGE,
    "ray_cluster_cpus_allocated / ray_cluster_cpus",
)
RAY_CLUSTER_NODES = gauge(
    "ray_cluster_nodes",
    "state",
    "nodes",
    "Nodes that are alive, and those that died since the head was started, as long as it lists them.",
    "Ray's dashboard, GET /api/v0/nodes",
    'ray_cluster_nodes{state="dead"} > ray_cluster_nodes{state="dead"} offset 10m',
)
RAY_CLUSTER_NODE_GPU_UTILIZATION_RATIO = gauge(
    "ray_cluster_node_gpu_utilization_ratio",
    "node gpu",
    "ratio",
    "Utilisation of a GPU by any process, as measured by Ray's agent on its node.",
    "Ray's dashboard, GET /nodes?view=summary",
    "avg by (instance, node) (ray_cluster_node_gpu_utilization_ratio) < 0.05",
)
TRAINWARDEN_RAY_ERRORS_TOTAL = counter(
    "trainwarden_ray_errors_total",
    "source",
    "errors",
    "Failed reads of jobs, usage, actors, nodes, gpus or cluster from the dashboard; the log has the reason.",
    "the exporter",
    "increase(trainwarden_ray_errors_total[10m]) > 0",
)
