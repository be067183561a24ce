"""How processes, launchers, schedulers and nodes end a training, and how a training stops advancing."""

from trainwarden.failures.failure import Failure

_STOP, _AGAIN = False, True

PROCESS: tuple[Failure, ...] = (
    Failure(
        "crash_signal", "exception", "unknown", "process", "unknown",
        "critical", "restart", _AGAIN,
        "The process crashed in native code. If it is one rank, note its node; if all ranks, suspect the image or an "
        "extension. PYTHONFAULTHANDLER=1 shows where.",
    ),
    Failure(
        "killed", "unknown", "unknown", "process", "unknown",
        "critical", "restart", _AGAIN,
        "The process was killed from outside. Look for an out-of-memory kill in the kernel's log, and at the "
        "scheduler.",
    ),
    Failure(
        "terminated", "unknown", "unknown", "process", "unknown",
        "error", "restart", _AGAIN,
        "The ranks were ended by SIGTERM, and none recorded why. Launchers do that when a rank or a node elsewhere is "
        "lost: look at the launcher's output for the rank that ended first, and at the scheduler for a cancel.",
    ),
    Failure(
        "nonzero_exit", "exception", "unknown", "user", "unknown",
        "error", "stop", _STOP,
        "The training ended with an error status and left no other evidence. Read the end of its log.",
    ),
    Failure(
        "launcher_child", "exception", "unknown", "launcher", "unknown",
        "error", "restart", _AGAIN,
        "The launcher saw one of its processes fail. It names the first one that did: read that rank's log, and put "
        "@record (torch.distributed.elastic) around main() to see its traceback here.",
        cascade=True,
    ),
    Failure(
        "launcher_stop", "exception", "unknown", "launcher", "user",
        "critical", "stop", _STOP,
        "The training or its launcher requested not to be started again (exit status 93). Read the end of its log.",
    ),
    Failure(
        "in_job_recovered", "unknown", "unknown", "launcher", "unknown",
        "warning", "wait", _STOP,
        "The launcher is restarting the workers by itself and has attempts left. Leave the job alone until it ends or "
        "the attempts are used up.",
    ),
)  # fmt: skip

SCHEDULER: tuple[Failure, ...] = (
    Failure(
        "cancelled", "cancelled", "unknown", "scheduler", "scheduler",
        "warning", "stop", _STOP,
        "The run was ended on request. Start it again if that was not meant.",
    ),
    Failure(
        "preempted", "preempted", "unknown", "scheduler", "scheduler",
        "warning", "wait", _AGAIN,
        "A job of higher priority took the nodes. The scheduler requeues the job if it may (`sbatch --requeue`); "
        "otherwise submit it again. Save a checkpoint on the warning signal (`--signal`).",
    ),
    Failure(
        "time_limit", "time_limit", "unknown", "scheduler", "scheduler",
        "warning", "restart", _AGAIN,
        "The job reached its time limit. Continue from the last checkpoint, unless a following job does so already; "
        "ask for more time (`--time`) or save more often.",
    ),
    Failure(
        "node_fail", "node_failure", "unknown", "scheduler", "hardware",
        "critical", "exclude_node", _AGAIN,
        "A node of the job failed. Keep it out and see whether the scheduler has requeued the job by itself. The node "
        "in SLURM's `*** JOB … ON` banner is the batch host, not the one that failed.",
    ),
    Failure(
        "ray_node_died", "node_failure", "unknown", "scheduler", "hardware",
        "critical", "exclude_node", _AGAIN,
        "Ray lost a node. Look at that host and its raylet.log to see whether it was taken back, rebooted or out of "
        "memory.",
    ),
    Failure(
        "ray_worker_died", "node_failure", "unknown", "scheduler", "unknown",
        "error", "restart", _AGAIN,
        "A worker process of Ray died. The cause is in its own log (python-core-worker, worker-….err) on that node: a "
        "crash in native code or an out-of-memory kill most often.",
        cascade=True,
    ),
    Failure(
        "straggler", "node_failure", "training", "scheduler", "hardware",
        "error", "exclude_node", _AGAIN,
        "A node was thrown out because it is much slower than the others. Keep it out, and test its GPUs, clocks, "
        "temperature and links.",
    ),
    Failure(
        "prolog_failed", "slurm_failure", "unknown", "scheduler", "hardware",
        "critical", "exclude_node", _AGAIN,
        "The node could not prepare the job: its prolog or health check failed or it did not boot. Keep it out; its "
        "slurmd.log says what failed.",
    ),
    Failure(
        "slurm_failure", "slurm_failure", "unknown", "scheduler", "scheduler",
        "error", "restart", _AGAIN,
        "SLURM could not carry out a request. Look at the state of slurmctld and of the nodes (`scontrol ping`, "
        "`sinfo -R`), then submit again.",
        retryable_in_process=True,
    ),
    Failure(
        "slurm_refused", "slurm_failure", "configuration", "scheduler", "configuration",
        "error", "stop", _STOP,
        "SLURM refused the request. Correct account, partition, QOS, node count, GPUs or time in the job script; "
        "`scontrol show partition` and `sacctmgr show assoc` list what is allowed.",
    ),
    Failure(
        "ray_setup", "configuration", "configuration", "scheduler", "configuration",
        "error", "stop", _STOP,
        "Ray could not set up the job: its runtime environment failed or no node has the resources it asks for. "
        "Correct `runtime_env` or `num_gpus`, and compare with `ray status`.",
    ),
    Failure(
        "scheduler_unknown", "unknown", "unknown", "scheduler", "scheduler",
        "warning", "wait", _STOP,
        "The state of the job at the scheduler is unknown. That is no end: query it again, and look at slurmctld, "
        "slurmdbd or the head node of Ray.",
    ),
)  # fmt: skip

BEHAVIOUR: tuple[Failure, ...] = (
    Failure(
        "stall", "hang", "training", "distributed", "unknown",
        "critical", "check_node", _AGAIN,
        "The run is alive and does not advance. Dump the stacks of its ranks; the one outside the collective is the "
        "cause.",
    ),
    Failure(
        "startup_hang", "hang", "unknown", "launcher", "unknown",
        "critical", "restart", _AGAIN,
        "No first step within the budget for starting. Look which rank has not joined, at the data preparation and at "
        "the compilation; raise the budget of the init or compile phase if it is only slow.",
    ),
    Failure(
        "livelock", "hang", "training", "launcher", "unknown",
        "critical", "restart", _AGAIN,
        "The run starts over and over and passes no new step. Read what ends each round in its log; a restart of the "
        "job does not cure what its own launcher could not.",
    ),
    Failure(
        "slow", "unknown", "training", "distributed", "unknown",
        "warning", "wait", _STOP,
        "Steps take longer than this run's own usual time. Look for one slow rank: throttled clocks, a degraded link, "
        "a busy file system, a neighbour on the node.",
    ),
    Failure(
        "heartbeat_lost", "hang", "unknown", "monitoring", "unknown",
        "critical", "wait", _AGAIN,
        "Nothing was heard of the run. See whether its processes, its node and its file system still live.",
    ),
)  # fmt: skip
