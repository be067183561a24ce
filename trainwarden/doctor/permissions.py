"""Whether the remediator may restart the jobs that it watches."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trainwarden.clients.process import ProcessError, run
from trainwarden.clients.slurm.client import CommandsMissing, SlurmClient, SlurmError, find_commands
from trainwarden.doctor import Finding
from trainwarden.redaction import plain

# Where deploy/systemd/trainwarden-remediator.service has the flags from: FLAGS="…".
ENV_FILE = "/etc/trainwarden/remediator.env"
_PROGRAM = "trainwarden-remediator"
_SECONDS = 5.0
# It asks the scheduler about each job.
_DOCTOR_SECONDS = 60.0
_MISUSE = 2


def check_permissions(env_file: Path) -> Iterator[Finding]:
    """Yield what the remediator may do, by its own `doctor` where it is configured here, else by SLURM alone.

    Args:
        env_file: with the flags of its service.
    """
    beside = Path(sys.executable).with_name(_PROGRAM)
    program = shutil.which(_PROGRAM) or (str(beside) if beside.exists() else None)
    try:
        flags = _flags(env_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        flags = None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        yield Finding("permissions", None, f"{env_file}: {reason}", f"sudo trainwarden doctor, or cat {env_file}")
        flags = None
    if flags is None or program is None:
        yield from check_slurm()
        return
    command = [program, *flags, "doctor"]
    fix = shlex.join(command)
    try:
        done = run([*command, "--format", "json"], _DOCTOR_SECONDS)
    except ProcessError as error:
        yield Finding("permissions", None, f"{_PROGRAM} doctor: {plain(str(error))}", fix)
        return
    if done.status == _MISUSE:
        yield Finding("permissions", False, plain(done.message)[:300], shlex.join([program, *flags, "check-config"]))
        return
    try:
        yield from read_report(json.loads(done.output), fix)
    except (ValueError, KeyError, TypeError, AttributeError):
        yield Finding("permissions", None, f"{_PROGRAM} doctor: {plain(done.message)[:300] or 'no report'}", fix)


def read_report(report: dict[str, Any], fix: str) -> Iterator[Finding]:
    """Yield what is wrong by the report of the remediator's `doctor`; raises KeyError where it is none."""
    for name, reason in report["unknown"].items():
        yield Finding("permissions", None, f"{name} gives no answer: {plain(str(reason))}", fix)
    for name, rights in report["rights"].items():
        if "unknown" in rights:
            yield Finding("permissions", None, f"{name}: {plain(str(rights['unknown']))}", fix)
    jobs = report["jobs"]
    stuck = [each for each in jobs if each["obstacles"]]
    if stuck:
        first = stuck[0]
        message = f"{len(stuck)} of {len(jobs)} jobs could not be brought back; job {first['job_id']}: "
        yield Finding("permissions", False, message + plain(str(first["obstacles"][0]))[:200], fix)
    elif not report["unknown"]:
        yield Finding("permissions", True, f"all {len(jobs)} jobs could be brought back" if jobs else "no job to judge")


def _flags(text: str) -> Sequence[str] | None:
    """Return the words of `FLAGS=`; None where the file has none. Raises ValueError for a quote without its end."""
    for line in text.splitlines():
        if line.strip().startswith("FLAGS="):
            return shlex.split(" ".join(shlex.split(line.strip().removeprefix("FLAGS="))))
    return None


def check_slurm() -> Iterator[Finding]:
    """Yield whose jobs of SLURM this user may restart; nothing where SLURM is not installed."""
    try:
        commands = find_commands(None, ("scontrol", "sacctmgr"))
    except CommandsMissing:
        return
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        rights = SlurmClient(commands, _SECONDS).rights(name, os.geteuid())
    except (SlurmError, KeyError) as error:
        yield Finding("slurm", None, plain(str(error)), "scontrol ping")
        return
    if rights.may_change_all:
        yield Finding("slurm", True, f"{name} may restart every job")
    else:
        accounts = f", and those of {', '.join(sorted(rights.accounts))}" if rights.accounts else ""
        message = f"{name} may restart its own jobs{accounts}; a remediator needs more to restart those of others"
        fix = f"sacctmgr modify user {shlex.quote(name)} set adminlevel=operator"
        yield Finding("slurm", rights.may_change_all if rights.may_change_all is None else True, message, fix)
