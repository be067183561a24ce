"""Monitor and restart training jobs on Ray: the functions that users of the Ray training monitor have, by their names.

    from trainwarden.ray import auto_restart

Needs no package but this one; see docs/ray-api.md.
"""

from trainwarden.ray.checkpoints import find_latest_checkpoint
from trainwarden.ray.health import TrainingHealth, get_training_health, print_training_health
from trainwarden.ray.jobs import (
    MonitorResult,
    check_job_status,
    get_current_step,
    get_job_logs,
    submit_job_with_resume,
)
from trainwarden.ray.log import setup_logging
from trainwarden.ray.monitor import detect_stall, monitor_job, start_background_monitor
from trainwarden.ray.resources import (
    EfaUtilization,
    GpuUtilization,
    RayResources,
    check_efa_utilization,
    check_gpu_utilization,
    verify_ray_resources,
)
from trainwarden.ray.restart import RestartResult, auto_restart

__all__ = [
    "EfaUtilization",
    "GpuUtilization",
    "MonitorResult",
    "RayResources",
    "RestartResult",
    "TrainingHealth",
    "auto_restart",
    "check_efa_utilization",
    "check_gpu_utilization",
    "check_job_status",
    "detect_stall",
    "find_latest_checkpoint",
    "get_current_step",
    "get_job_logs",
    "get_training_health",
    "monitor_job",
    "print_training_health",
    "setup_logging",
    "start_background_monitor",
    "submit_job_with_resume",
    "verify_ray_resources",
]
