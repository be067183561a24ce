"""Restart a job from its newest checkpoint each time that it fails or stalls."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any, TypedDict

from trainwarden.clients.ray import UNDER_WAY, RayError
from trainwarden.clients.ray_jobs import KEEP_SECONDS, packages_of
from trainwarden.ray.checkpoints import latest
from trainwarden.ray.head import open_head
from trainwarden.ray.jobs import STOPPED, UNKNOWN, find_by_name, find_job, submit
from trainwarden.ray.log import log
from trainwarden.ray.monitor import monitor_job, stop_job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwarden.ray.head import RayHead

MAX_DELAY_SECONDS = 3600.0
# In the metadata of a job: how many restarts it had before it.
RETRIES_KEY = "trainwarden_retries"
# Until a job that was ended, and all of its actors, are gone.
STOP_SECONDS = 300.0


class RestartResult(TypedDict):
    """How it ended: `reason` is completed, stopped, no_checkpoint_found, or begins with what went wrong."""

    success: bool
    final_step: int | None
    total_retries: int
    reason: str
    job_id: str


def auto_restart(
    head_pod: str,
    job_name: str,
    checkpoint_dir: str,
    max_retries: int = 10,
    retry_delay: float = 60,
    stagnation_threshold: float = 300,
    check_interval: float = 30,
    job_config: Mapping[str, Any] | None = None,
    initial_job_id: str | None = None,
    backoff: float = 2.0,
    namespace: str | None = None,
) -> RestartResult:
    """Follow a job, and restart it from its newest checkpoint when it fails or stalls, until it succeeds.

    A job that stalls is ended first, and nothing of it lives before the next one starts. One that somebody has stopped
    is not restarted; neither is one of which nothing is known. The id of each new job follows from the one before it:
    a lost answer, or two of these loops, start one job. A call that takes up after one whose process has died goes on
    with its newest job, and the restarts before count.

    Args:
        head_pod: name of the head pod, or `http://…` of the dashboard.
        job_name: of the job: its submission id, its run id, or `job_name` or `name` of its metadata.
        checkpoint_dir: folder with its checkpoints, in the pod, or `s3://…`.
        max_retries: limit of the restarts.
        retry_delay: seconds before the first restart.
        stagnation_threshold: seconds without a step after which it counts as stalled.
        check_interval: seconds between two readings.
        job_config: as of `submit_job_with_resume`; without it the job is submitted as it was.
        initial_job_id: the job to follow, instead of looking for `job_name`. Where there is neither, or with a
            `job_config` none that is under way, that is submitted.
        backoff: factor of the delay from one restart to the next; the delay is an hour at most.
        namespace: of the pod; kubectl's own if None.

    Raises:
        ValueError: there is no such job, and no `job_config`.
        RuntimeError: the first job cannot be found or submitted.
    """
    head = open_head(head_pod, namespace)
    if job_config is not None:
        job_config = {**job_config, "metadata": {"job_name": job_name, **(job_config.get("metadata") or {})}}
    job_id, retries = _newest(head, _first(head, job_name, checkpoint_dir, job_config, initial_job_id))
    step: int | None = None

    def ended(reason: str, *, success: bool = False) -> RestartResult:
        (log.info if success else log.error)("%s: %s, after %d restarts", job_name, reason, retries)
        return {
            "success": success, "final_step": step, "total_retries": retries, "reason": reason, "job_id": job_id,
        }  # fmt: skip

    while True:
        result = monitor_job(
            head_pod, job_id, check_interval, stagnation_threshold=stagnation_threshold, namespace=namespace
        )
        step = result["final_step"] if result["final_step"] is not None else step
        status = result["status"]
        if status == "SUCCEEDED":
            return ended("completed", success=True)
        if status == STOPPED:
            return ended("stopped: somebody has stopped the job")
        if status == UNKNOWN:
            return ended("job_lost: Ray has no such job any more, and whether it still works is unknown")
        if retries >= max_retries:
            return ended(f"max_retries_reached after {status}")
        config = job_config or _as_it_was(head, job_id)
        if config is None:
            return ended("restart_failed: the job cannot be read as it was submitted; expected job_config")
        # A job that failed may leave actors behind, which would write the same checkpoints.
        if not stop_job(head, job_id, STOP_SECONDS):
            return ended(f"restart_failed: {job_id} {status}, and that all of it has ended is not known")
        delay = min(retry_delay * backoff**retries, MAX_DELAY_SECONDS)
        log.warning("%s: job %s %s at step %s; restart %d of %d in %g s", job_name, job_id, status, step, retries + 1,
                    max_retries, delay)  # fmt: skip
        packages = packages_of(config.get("runtime_env") or {})
        _wait(head, delay, packages)
        checkpoint = latest(head, checkpoint_dir)
        if checkpoint is None:
            return ended("no_checkpoint_found")
        if gone := _missing(head, packages):
            return ended(f"restart_failed: Ray has deleted package gcs://{gone}; give job_config, with another")
        metadata = {**(config.get("metadata") or {}), RETRIES_KEY: str(retries + 1)}
        try:
            job_id = submit(head, checkpoint, {**config, "metadata": metadata, "submission_id": _next_id(job_id)})
        except (RuntimeError, ValueError) as error:
            return ended(f"restart_failed: {error}")
        retries += 1


def _wait(head: RayHead, seconds: float, packages: Sequence[str]) -> None:
    """Wait, and let Ray keep the packages of the job that has ended meanwhile."""
    while True:
        _missing(head, packages)
        piece = min(seconds, KEEP_SECONDS)
        time.sleep(piece)
        seconds -= piece
        if seconds <= 0:
            return


def _missing(head: RayHead, packages: Sequence[str]) -> str | None:
    """Return a package that Ray does not have any more; let it keep the others. Without an answer none is missing."""
    try:
        gone = [name for name in packages if not head.jobs.keep_package(name)]
    except RayError as error:
        log.warning("%s: its packages cannot be looked for: %s", head.name, error)
        return None
    return gone[0] if gone else None


def _first(
    head: RayHead, job_name: str, checkpoint_dir: str, config: Mapping[str, Any] | None, job_id: str | None
) -> str:
    """Return the id of the job to follow first; submit it where there is none and a configuration."""
    if job_id is not None:
        return job_id
    try:
        found = find_by_name(head, job_name)
    except RayError as error:
        raise RuntimeError(f"{head.name}: its jobs cannot be read: {error}") from None
    if found is not None and (not config or found.state in UNDER_WAY):
        log.info("%s is job %s", job_name, found.submission_id)
        return found.submission_id
    if not config:
        raise ValueError(
            f"{job_name!r}: no job has this id, run or name in its metadata; expected one, initial_job_id or job_config"
        )
    return submit(head, latest(head, checkpoint_dir), config)


def _newest(head: RayHead, job_id: str) -> tuple[str, int]:
    """Return the last job that this one was restarted as, and how many restarts that had; raises RuntimeError."""
    try:
        _, jobs = head.jobs.all()
    except RayError as error:
        raise RuntimeError(f"{head.name}: its jobs cannot be read: {error}") from None
    first = job_id
    while (following := _next_id(job_id)) in jobs:
        job_id = following
    count = jobs[job_id].submission.metadata.get(RETRIES_KEY, "") if job_id in jobs else ""
    if job_id != first:
        log.info("job %s was restarted before, the last time as %s", first, job_id)
    return job_id, int(count) if count.isdecimal() else 0


def _as_it_was(head: RayHead, job_id: str) -> dict[str, Any] | None:
    """Return the configuration of a job that runs or ran; None if Ray does not have all of it."""
    try:
        found = find_job(head, job_id)
        reserved = None if found is None else head.jobs.reserved(found.job.submission_id)
    except RayError as error:
        log.warning("job %s: Ray gives no answer: %s", job_id, error)
        return None
    # Without what it reserves it would come back without its GPUs.
    if found is None or reserved is None:
        return None
    submission = found.submission
    return {
        "entrypoint": submission.entrypoint,
        "runtime_env": dict(submission.runtime_env),
        "metadata": dict(submission.metadata),
        **reserved.as_request(),
    }


def _next_id(job_id: str) -> str:
    """Return the id of the job after this one: always the same."""
    return f"raysubmit_{hashlib.sha256(job_id.encode()).hexdigest()[:16]}"
