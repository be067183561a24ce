"""The metrics of this collector."""

from trainwarden_exporter.core.metric import gauge

SLURM_GPU_JOB_INFO = gauge(
    "slurm_gpu_job_info",
    "gpu uuid job_id step_id user partition run_id",
    "1",
    "A SLURM job has this GPU; one for each GPU and job. Labels are empty where no source has them.",
    "the prolog's files, control groups, slurmstepd, environment and device files of processes",
    "slurm_gpu_job_info * on (instance, gpu, uuid) group_left () gpu_power_watts",
)
TRAINING_GPU_INFO = gauge(
    "training_gpu_info",
    "run_id gpu uuid",
    "1",
    "A process of the run has this GPU.",
    "TRAINWARDEN_RUN_ID in `/proc/PID/environ`, and the GPUs of its job, else `/dev/nvidiaN` in `/proc/PID/fd`",
    "training_gpu_info * on (instance, gpu, uuid) group_left () gpu_utilization_ratio",
)
TRAINWARDEN_GPU_JOBS_UNREADABLE = gauge(
    "trainwarden_gpu_jobs_unreadable",
    "source",
    "files, groups or processes",
    "Sources that the last sample could not use: files of the prolog, device control groups, environments of jobs.",
    "the exporter",
    "trainwarden_gpu_jobs_unreadable > 0",
)
