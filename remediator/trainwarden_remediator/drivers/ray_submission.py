"""The next submission of a run: its id, and what the attempt changes of the one before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainwarden.clients.ray_jobs import RaySubmission, SubmittedJob, paths_of
from trainwarden_remediator.drivers.driver import RestartTarget
from trainwarden_remediator.incidents.incident import clean

RUN_ID, INCIDENT, ATTEMPT = "trainwarden_run_id", "trainwarden_incident", "trainwarden_attempt"
REPLACES, RESUMES = "trainwarden_replaces", "trainwarden_resume_checkpoint"
RESUME_VARIABLE = "TRAINWARDEN_RESUME_CHECKPOINT"
# What an incident has appended to the id of the first submission.
_SUFFIX = re.compile(r"-a\d{1,9}-[0-9a-f]{8}$")
_MAX_ROOT = 100


def submission_id(target: RestartTarget) -> str:
    """Return the id of the next start."""
    root = _SUFFIX.sub("", target.job_id)[:_MAX_ROOT]
    return f"{root}-a{(target.attempt or 0) + 1}-{target.incident[:8]}"


def environment_objection(found: SubmittedJob) -> str | None:
    """Return why a job that has failed for its runtime environment would fail again, as far as that shows it."""
    variables = found.submission.runtime_env.get("env_vars")
    if not isinstance(variables, (dict, type(None))):
        return f"the runtime_env of job {found.job.submission_id} has env_vars that are no table: Ray fails such a job"
    paths = paths_of(found.submission.runtime_env)
    if not paths:
        return None
    return (
        f"the runtime_env of job {found.job.submission_id} has the plain path {clean(paths[0], 120)}, of which Ray's "
        "job API takes none: its next start would fail, too; submit it with `ray job submit --working-dir`"
    )


def next_submission(found: SubmittedJob, target: RestartTarget, packages: Mapping[str, str]) -> RaySubmission:
    """Return the next submission: as the old one, but for what the attempt changes."""
    old = found.submission
    metadata = {
        **{name: value for name, value in old.metadata.items() if name != RESUMES},
        RUN_ID: target.run_id,
        INCIDENT: target.incident,
        ATTEMPT: str((target.attempt or 0) + 1),
        REPLACES: target.job_id,
    }
    runtime_env: dict[str, Any] = dict(old.runtime_env)
    variables = dict(runtime_env.get("env_vars") or {})
    if variables.get(RESUME_VARIABLE) == old.metadata.get(RESUMES):
        variables.pop(RESUME_VARIABLE, None)  # of the attempt before
    variables |= target.environment
    if RESUME_VARIABLE in target.environment:
        metadata[RESUMES] = target.environment[RESUME_VARIABLE]
    if variables or runtime_env.get("env_vars"):
        runtime_env["env_vars"] = variables

    def renamed(uri: object) -> object:
        name = uri.removeprefix("gcs://") if isinstance(uri, str) and uri.startswith("gcs://") else ""
        return f"gcs://{packages[name]}" if name in packages else uri

    if "working_dir" in runtime_env:
        runtime_env["working_dir"] = renamed(runtime_env["working_dir"])
    if isinstance(runtime_env.get("py_modules"), list):
        runtime_env["py_modules"] = [renamed(each) for each in runtime_env["py_modules"]]
    return RaySubmission(submission_id(target), old.entrypoint, metadata, runtime_env)
