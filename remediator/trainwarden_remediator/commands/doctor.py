"""The command `doctor`: what SLURM lets this user do, and whether each job could be brought back. Changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from trainwarden.clients.prometheus import PrometheusClient
from trainwarden.clients.ray import OLDEST_VERSION, is_older
from trainwarden.clients.slurm.rights import Rights
from trainwarden_remediator.act.resume_point import ResumePoints
from trainwarden_remediator.app import build_drivers
from trainwarden_remediator.config import RemediatorSettings
from trainwarden_remediator.drivers.ray import RayDriver
from trainwarden_remediator.drivers.slurm import SlurmDriver
from trainwarden_remediator.errors import ConfigError, Unknown
from trainwarden_remediator.examine.choice import load_policies
from trainwarden_remediator.examine.recoverability import Prospect, prospects
from trainwarden_remediator.observe.evidence import PrometheusRuns
from trainwarden_remediator.web.http_config import http_client

_ALL_WELL, _SOME_NOT, _CANNOT_TELL = 0, 1, 3
_KNOWN = {True: "yes", False: "no", None: "unknown: sacctmgr gives no answer"}


def examine(settings: RemediatorSettings, form: str) -> int:
    """Print the report; return 0 if each job could be brought back, 1 if one could not, 3 if that cannot be seen."""
    policies = load_policies(
        settings.policy,
        settings.policy_dir,
        settings.run_policy,
        settings.mode_of_action,
        canary_job=settings.canary,
    )
    http = http_client(
        "--prometheus-http-config-file",
        settings.prometheus_url,
        settings.prometheus_http_config_file,
        settings.http_timeout,
    )
    runs = PrometheusRuns(PrometheusClient(http), settings.cluster)
    points = ResumePoints(settings.runs_dir)
    found: list[Prospect] = []
    unknown: dict[str, str] = {}
    rights: dict[str, Rights | Unknown] = {}
    warnings: list[str] = []
    drivers = build_drivers(settings)
    if not drivers:
        raise ConfigError(["--driver: none is given: nothing could be brought back"])
    for name, driver in drivers.items():
        jobs = driver.jobs()
        if isinstance(jobs, Unknown):
            unknown[name] = jobs.reason
            continue
        if isinstance(driver, RayDriver):
            warnings += _of_version(name, driver.version())
        slurm = driver if isinstance(driver, SlurmDriver) else None
        if slurm is not None:
            rights[name] = slurm.rights()
        listed = [*jobs, *(slurm.unmarked() if slurm else ())]
        found += prospects(
            driver, listed, runs, policies, lambda run, trust: points.stops(run.run_id, run.attempt_key, trust)
        )
    if form == "json":
        print(_as_json(rights, found, unknown, warnings))
    else:
        print("\n".join([*warnings, *_as_text(rights, found, unknown)]))
    if unknown:
        return _CANNOT_TELL
    return _SOME_NOT if any(each.obstacles for each in found) else _ALL_WELL


def _of_version(name: str, version: str | Unknown) -> list[str]:
    if isinstance(version, Unknown) or not is_older(version, OLDEST_VERSION):
        return []
    oldest = ".".join(map(str, OLDEST_VERSION))
    return [f"{name}: Ray {version} is older than {oldest}, the oldest that is supported: it has no tokens"]


def _as_json(
    rights: dict[str, Rights | Unknown], found: Sequence[Prospect], unknown: dict[str, str], warnings: Sequence[str]
) -> str:
    shown = {
        name: {"unknown": each.reason}
        if isinstance(each, Unknown)
        else {**asdict(each), "accounts": sorted(each.accounts)}
        for name, each in rights.items()
    }
    jobs = [each.as_json() for each in found]
    return json.dumps({"rights": shown, "jobs": jobs, "unknown": unknown, "warnings": list(warnings)}, indent=2)


def _as_text(rights: dict[str, Rights | Unknown], found: Sequence[Prospect], unknown: dict[str, str]) -> Iterator[str]:
    for name, each in rights.items():
        yield from (
            [f"{name}: the rights of this user are unknown: {each.reason}"]
            if isinstance(each, Unknown)
            else _of_rights(name, each)
        )
    for name, reason in unknown.items():
        yield f"{name}: gives no answer: {reason}"
    for prospect in found:
        verdict = "could be brought back" if not prospect.obstacles else "could NOT be brought back"
        verdict += ", as a new job" if prospect.new_job and not prospect.obstacles else ""
        yield f"{prospect.scheduler} job {prospect.job.job_id} of run {prospect.job.run_id or '?'}: {verdict}"
        for obstacle in prospect.obstacles:
            yield f"  - {obstacle}"
    if not found and not unknown:
        yield "no job runs or waits that is marked with a run"


def _of_rights(name: str, rights: Rights) -> Iterator[str]:
    level = f", AdminLevel {rights.level}" if rights.level else ""
    yield f"{name}: runs as {rights.user} (uid {rights.uid}{level})"
    if os.geteuid() == 0:
        yield "  it need not be root: an ordinary user restarts its own jobs, an Operator those of others"
    yield "  hold, edit and requeue its own jobs: yes"
    if rights.accounts:
        yield f"  hold, edit and requeue jobs of the accounts {', '.join(sorted(rights.accounts))}: yes"
    yield f"  hold, edit and requeue the jobs of others: {_KNOWN[rights.may_change_all]}"
    yield f"  submit jobs again as their owner (--slurm-resubmit): {'any' if os.geteuid() == 0 else 'its own'}"
    yield f"  drain nodes: {_KNOWN[rights.may_drain]}"
    if rights.min_job_age is not None:
        yield f"  slurmctld forgets an ended job after {rights.min_job_age:g} s (MinJobAge)"
