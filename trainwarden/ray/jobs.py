"""One job on Ray: its status, its log and the step in it; and a new job that resumes from a checkpoint."""

from __future__ import annotations

import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from trainwarden.clients import ray_package
from trainwarden.clients.kubernetes import PodExecError
from trainwarden.clients.ray import RUN_ID_KEY, RayError
from trainwarden.clients.ray_jobs import CallAnswer, RayReserved, RaySubmission, paths_of, usable_id
from trainwarden.clients.ray_package import MAX_PACKAGE_BYTES, CannotPack, pack, package_name
from trainwarden.ray.head import open_head
from trainwarden.ray.log import log
from trainwarden.signals.progress import ProgressReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden.clients.ray import RayJob
    from trainwarden.clients.ray_jobs import SubmittedJob
    from trainwarden.ray.head import RayHead

RUNNING, FAILED, SUCCEEDED, PENDING, UNKNOWN = "RUNNING", "FAILED", "SUCCEEDED", "PENDING", "UNKNOWN"
STATUSES = (RUNNING, FAILED, SUCCEEDED, PENDING, UNKNOWN)
# What `monitor_job` may return beyond these.
STOPPED, TIMEOUT, STALLED = "STOPPED", "TIMEOUT", "STALLED"
RESUME_VARIABLE, RESUME_KEY = "TRAINWARDEN_RESUME_CHECKPOINT", "trainwarden_resume_checkpoint"
# An entrypoint with one of these is taken to choose its checkpoint itself.
RESUME_FLAGS = ("--resume_from_checkpoint", "--checkpoint_dir", "--resume")
# Where a head keeps the logs of jobs and workers.
SESSION_LOGS = "/tmp/ray/session_latest/logs"  # noqa: S108  # Ray's own place
_TAIL_BYTES = 2**20
UPLOAD_SECONDS = 300.0
_ENTRYPOINT = "Running entrypoint for job "
_CONFIG = ("entrypoint", "runtime_env", "metadata", "submission_id", "resume_flag")
_RESERVED = ("num_cpus", "num_gpus", "memory", "resources", "label_selector")


class MonitorResult(TypedDict):
    """How a job ended, or why it is monitored no longer.

    `status` is one of SUCCEEDED, FAILED, STOPPED (by somebody), TIMEOUT, STALLED, UNKNOWN (Ray has no such job);
    `duration` in seconds.
    """

    status: str
    duration: float
    final_step: int | None
    job_id: str


def check_job_status(head_pod: str, job_id: str, namespace: str | None = None) -> str:
    """Return RUNNING, FAILED, SUCCEEDED, PENDING or UNKNOWN; the last as well for a job that somebody has stopped.

    Args:
        head_pod: name of the head pod, or `http://…` of the dashboard.
        job_id: submission id, or Ray's own id of a job that was not submitted.
        namespace: of the pod; kubectl's own if None.
    """
    try:
        job = find_job(open_head(head_pod, namespace), job_id)
    except RayError as error:
        log.error("the status of job %s cannot be read: %s", job_id, error)  # the reason says all
        return UNKNOWN
    if job is None:
        log.error("job %s: Ray has no such job", job_id)
        return UNKNOWN
    state = job.job.state.upper()
    return state if state in STATUSES else UNKNOWN


def get_job_logs(head_pod: str, job_id: str, tail: int = 100, namespace: str | None = None) -> str:
    """Return the last `tail` lines of what the job's entrypoint has printed; empty if they cannot be read."""
    text = read_log(open_head(head_pod, namespace), job_id) or ""
    return "".join(text.splitlines(keepends=True)[-tail:]) if tail > 0 else ""


def get_current_step(head_pod: str, job_id: str, namespace: str | None = None) -> int | None:
    """Return the step that the job has reached by its log; None if there is none, or the log cannot be read.

    The step is found as in every log that Trainwarden reads: docs/progress.md lists the formats.
    """
    text = read_log(open_head(head_pod, namespace), job_id)
    return None if text is None else step_in(text)


def submit_job_with_resume(
    head_pod: str, checkpoint_path: str | None, config: Mapping[str, Any], namespace: str | None = None
) -> str:
    """Submit a job that resumes from a checkpoint, and return its submission id.

    The checkpoint is in its environment as `TRAINWARDEN_RESUME_CHECKPOINT`, in its metadata, and behind the entrypoint
    as `--resume_from_checkpoint PATH`, unless the entrypoint has a flag for that already.

    Args:
        head_pod: name of the head pod, or `http://…` of the dashboard.
        checkpoint_path: None for a start from the beginning.
        config: `entrypoint`, and where wanted `runtime_env`, `metadata`, `submission_id`, `entrypoint_num_gpus`,
            `entrypoint_num_cpus`, `entrypoint_memory`, `entrypoint_resources`, `entrypoint_label_selector`;
            `resume_flag` is the name of another flag than the above, or None for none. A `working_dir` that is a plain
            path, in the pod where one is named, is packed and uploaded.
        namespace: of the pod; kubectl's own if None.

    Raises:
        ValueError: the configuration is wrong.
        RuntimeError: the job was not submitted.
    """
    return submit(open_head(head_pod, namespace), checkpoint_path, config)


def submit(head: RayHead, checkpoint_path: str | None, config: Mapping[str, Any]) -> str:
    """Do what `submit_job_with_resume` does. The same `submission_id` leads to one job, however often it is used."""
    entrypoint, variables, metadata = _resumed(config, checkpoint_path)
    runtime_env = _uploaded(head, config.get("runtime_env") or {})
    if variables:
        runtime_env["env_vars"] = {**(runtime_env.get("env_vars") or {}), **variables}
    name = config.get("submission_id") or f"raysubmit_{secrets.token_hex(8)}"
    if not isinstance(name, str) or not usable_id(name):
        raise ValueError(f"submission_id: {name!r:.80}, expected letters, digits and . _ + -")
    reserved = RayReserved(**{key: config[f"entrypoint_{key}"] for key in _RESERVED if config.get(f"entrypoint_{key}")})
    job = RaySubmission(name, entrypoint, metadata, runtime_env)
    try:
        answer = head.jobs.submit(job, reserved)
        if answer.answer is CallAnswer.UNCLEAR and head.jobs.submission(name) is None:
            raise RuntimeError(f"job {name} was not submitted: {answer.detail}")
    except RayError as error:
        raise RuntimeError(f"whether job {name} was submitted is unknown: {error}") from None
    if answer.answer is CallAnswer.REFUSED:
        raise RuntimeError(f"job {name} was not submitted: {answer.detail}")
    log.info("job %s submitted%s", name, f", to resume from {checkpoint_path}" if checkpoint_path else "")
    return name


def _uploaded(head: RayHead, runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """Return a runtime environment whose working directory Ray has: a plain path is packed and uploaded.

    Raises:
        ValueError: it cannot be packed.
        RuntimeError: it was not uploaded.
    """
    for path in paths_of({**runtime_env, "working_dir": None}):
        raise ValueError(f"config: runtime_env: py_modules: {path!r:.120}: expected an URI, for Ray uploads no path")
    folder = runtime_env.get("working_dir")
    if not isinstance(folder, str) or "://" in folder:
        return dict(runtime_env)
    excluded = [str(each) for each in runtime_env.get("excludes") or ()]
    try:
        if head.pod is None:
            content = pack(Path(folder), tuple(excluded))
        else:
            argv = ["python3", "-c", Path(ray_package.__file__).read_text(encoding="utf-8"), folder, *excluded]
            content = head.read(argv, seconds=UPLOAD_SECONDS, limit=MAX_PACKAGE_BYTES)
    except (CannotPack, PodExecError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        raise ValueError(f"config: runtime_env: working_dir: {reason}") from None
    name = package_name(content)
    try:
        if not head.jobs.keep_package(name):
            answer = head.jobs.upload_package(name, content)
            if answer.answer is not CallAnswer.ACCEPTED and not head.jobs.keep_package(name):
                raise RuntimeError(f"working_dir {folder} was not uploaded: {answer.detail}")
    except RayError as error:
        raise RuntimeError(f"working_dir {folder} was not uploaded: {error}") from None
    log.info("working_dir %s of %s is package %s, %d bytes", folder, head.name, name, len(content))
    return {**runtime_env, "working_dir": f"gcs://{name}"}


def _resumed(config: Mapping[str, Any], checkpoint: str | None) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return entrypoint, variables and metadata of the job that resumes from a checkpoint."""
    known = {*_CONFIG, *(f"entrypoint_{key}" for key in _RESERVED)}
    for key in config:
        if key not in known:
            raise ValueError(f"config: there is no key {key!r}, expected one of {', '.join(sorted(known))}")
    entrypoint = config.get("entrypoint")
    if not isinstance(entrypoint, str) or not entrypoint.strip():
        raise ValueError(f"config: entrypoint: {entrypoint!r:.80}, expected a command")
    metadata = {str(key): str(value) for key, value in (config.get("metadata") or {}).items()}
    if not checkpoint:
        return entrypoint, {}, metadata
    flag = config.get("resume_flag", RESUME_FLAGS[0])
    # A job that was itself made so names the checkpoint before.
    if flag and (before := metadata.get(RESUME_KEY)):
        entrypoint = entrypoint.removesuffix(f" {flag} {shlex.quote(before)}")
    words = entrypoint.replace("=", " ").split()
    if flag and not any(each in words for each in (flag, *RESUME_FLAGS)):
        entrypoint = f"{entrypoint} {flag} {shlex.quote(checkpoint)}"
    return entrypoint, {RESUME_VARIABLE: checkpoint}, {**metadata, RESUME_KEY: checkpoint}


def find_job(head: RayHead, job_id: str) -> SubmittedJob | None:
    """Return a job by either of its ids; None where Ray answers that it has none. Raises RayError."""
    _, jobs = head.jobs.all()
    return next((each for each in jobs.values() if job_id in (each.job.submission_id, each.job.job_id)), None)


def find_by_name(head: RayHead, job_name: str) -> RayJob | None:
    """Return the newest job that is called so: by its id, its run or `job_name` or `name` of its metadata.

    Raises:
        RayError: there is no usable answer.
    """
    _, jobs = head.jobs.all()
    for each in sorted(jobs.values(), key=lambda each: each.job.start or 0.0, reverse=True):
        metadata = each.submission.metadata
        names = (metadata.get("job_name"), metadata.get("name"), metadata.get(RUN_ID_KEY))
        if job_name in (each.job.submission_id, each.job.run_id, *names):
            return each.job
    return None


def read_log(head: RayHead, job_id: str) -> str | None:
    """Return the log of a job, the last MiB of it where its file is in the pod; None if it cannot be read."""
    if head.pod is not None and usable_id(job_id):
        try:
            return head.run(["tail", "-c", str(_TAIL_BYTES), f"{SESSION_LOGS}/job-driver-{job_id}.log"])
        except PodExecError:
            log.debug("job %s: its log is not at %s of the head pod", job_id, SESSION_LOGS)
    try:
        return head.jobs.logs(job_id)
    except RayError as error:
        log.warning("the log of job %s cannot be read: %s", job_id, error)
        return None


def step_in(text: str) -> int | None:
    """Return the step that a log has reached."""
    reader = ProgressReader()
    # Ray begins the log with the entrypoint, which may well have a number of steps in it.
    lines = (line for line in text.splitlines(keepends=True) if _ENTRYPOINT not in line)
    reader.feed("".join(lines).encode("utf-8", "replace"))
    reader.finish()
    progress = reader.progress()
    return progress.step if progress.high_water is None else progress.high_water
