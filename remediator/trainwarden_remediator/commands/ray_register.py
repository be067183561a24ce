"""`ray register`: note what Ray does not return of a job, while it can still be seen, for the job's next start."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwarden.clients.ray import RayError
from trainwarden.clients.ray_jobs import RayReserved
from trainwarden.clients.ray_package import CannotPack, pack
from trainwarden_remediator.config import RemediatorSettings
from trainwarden_remediator.drivers.ray_access import ray_jobs
from trainwarden_remediator.drivers.ray_templates import AMOUNT_TOLERANCE, RayTemplate, RayTemplates, shown
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.incidents.incident import clean

_CANNOT_TELL = 3


@dataclass(frozen=True)
class GivenReservations:
    """What an operator states that an entrypoint reserves; None is not given."""

    num_gpus: float | None = None
    num_cpus: float | None = None
    memory: int | None = None
    resources: Mapping[str, float] | None = None
    labels: Mapping[str, str] | None = None

    def reserved(self) -> RayReserved:
        """Return what is reserved, if nothing is that was not given."""
        return RayReserved(
            self.num_cpus or 0.0, self.num_gpus or 0.0, self.memory or 0, self.resources or {}, self.labels or {}
        )

    def missing(self) -> list[str]:
        """Return the flags that were not given."""
        flags = {
            "--num-gpus": self.num_gpus, "--num-cpus": self.num_cpus, "--memory": self.memory,
            "--resource": self.resources, "--label": self.labels,
        }  # fmt: skip
        return [flag for flag, value in flags.items() if value is None]

    def contradictions(self, shown: RayReserved) -> list[str]:
        """Return a line for each flag that is not what Ray shows."""
        numbers: list[tuple[str, float | None, float]] = [
            ("--num-gpus ", self.num_gpus, shown.num_gpus),
            ("--num-cpus ", self.num_cpus, shown.num_cpus),
            ("--memory ", self.memory, shown.memory),
            *(
                (f"--resource {name}=", each, shown.resources.get(name, 0.0))
                for name, each in (self.resources or {}).items()
            ),
        ]
        wrong = [
            f"{flag}{value:.15g}: Ray shows {real:.15g}"
            for flag, value, real in numbers
            if value is not None and not math.isclose(value, real, rel_tol=AMOUNT_TOLERANCE)
        ]
        return wrong + [
            f"--label {name}={value}: Ray shows {shown.label_selector.get(name, 'none')}"
            for name, value in (self.labels or {}).items()
            if shown.label_selector.get(name) != value
        ]


def add_register_flags(parser: argparse.ArgumentParser) -> None:
    """Add job and flags of `ray register`."""
    parser.add_argument("submission", metavar="SUBMISSION_ID", help="the job, which names its run in its metadata")
    for flag, kind, value in (("--num-gpus", float, "N"), ("--num-cpus", float, "N"), ("--memory", int, "BYTES")):
        parser.add_argument(
            flag, type=kind, metavar=value, help="that its entrypoint reserves, default as Ray shows it"
        )
    parser.add_argument(
        "--resource", action="append", metavar="NAME=N", help="custom one that its entrypoint reserves, repeatable"
    )
    parser.add_argument(
        "--label", action="append", metavar="KEY=VALUE", help="of the nodes that its entrypoint may run on, repeatable"
    )
    parser.add_argument(
        "--train-max-failures", type=int, metavar="N", help="max_failures of Ray Train's FailureConfig, -1 without end"
    )
    parser.add_argument(
        "--working-dir", type=Path, metavar="DIR", help="folder or zip file that it was submitted with: keep a copy"
    )
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="leave out these paths of it, repeatable"
    )


def register(settings: RemediatorSettings, arguments: argparse.Namespace) -> int:
    """Write the template of a job's run, and print what it holds; return 3 where Ray gives no answer.

    Args:
        settings: the flags of the service.
        arguments: those of `add_register_flags`.

    Raises:
        ConfigError: the job has no run, or cannot be registered with what was given.
    """
    given, submission_id, working_dir = _given(arguments), str(arguments.submission), arguments.working_dir
    jobs, templates = ray_jobs(settings), RayTemplates(settings.ray_template_dir)
    if templates.folder is None:
        raise ConfigError(["--ray-template-dir: missing; expected the folder of templates"])
    try:
        found = jobs.some([submission_id])[1][submission_id]
        seen = jobs.reserved(submission_id)
    except RayError as error:
        print(f"Ray's dashboard gives no answer: {clean(str(error), 300)}")
        return _CANNOT_TELL
    if found is None:
        raise ConfigError([f"{submission_id!r}: Ray has no such job"])
    if not found.job.run_id:
        raise ConfigError([f"{submission_id}: its metadata has no trainwarden_run_id: it belongs to no run"])
    if seen is None and given.num_gpus is None:
        raise ConfigError([f"{submission_id}: Ray does not show what its entrypoint reserves; expected --num-gpus N"])
    if seen is not None and (wrong := given.contradictions(seen)):
        raise ConfigError(wrong)
    reserved = given.reserved() if seen is None else seen
    packages: dict[str, bytes] = {}
    names = found.submission.packages()
    if working_dir is not None:
        uri = str(found.submission.runtime_env.get("working_dir") or "")
        name = next((each for each in names if uri == f"gcs://{each}"), None)
        if name is None:
            raise ConfigError([f"--working-dir: job {submission_id} has no working directory that Ray keeps"])
        try:
            packages[name] = pack(working_dir, tuple(arguments.exclude))
        except CannotPack as error:
            raise ConfigError([f"--working-dir: {error}"]) from None
    train_max_failures = arguments.train_max_failures
    if (before := _before(templates, found.job.run_id)) is not None:
        # What is not given this time holds on: another registration would lose it.
        copies = {name: file for name in names if name not in packages and (file := before.copy_of(name))}
        packages |= {name: templates.package(file) for name, file in copies.items()}
        train_max_failures = before.ray_train_max_failures if train_max_failures is None else train_max_failures
    path = templates.write(found.job.run_id, reserved, packages, train_max_failures)
    print(f"{path}: the entrypoint of run {found.job.run_id} reserves {shown(reserved) or 'nothing'}")
    if seen is None and (missing := given.missing()):
        print(f"  Ray does not show it any more; not given: {', '.join(missing)}")
    for name in names:
        kept = "a copy is kept" if name in packages else "no copy: it is kept in Ray while the remediator runs"
        print(f"  package gcs://{name}: {kept}")
    return 0


def _before(templates: RayTemplates, run_id: str) -> RayTemplate | None:
    """Return the template that there is; None also where it cannot be used, and is to be replaced."""
    try:
        return templates.of(run_id)
    except ConfigError:
        return None


def _given(arguments: argparse.Namespace) -> GivenReservations:
    """Return what the flags say; raises ConfigError."""
    problems: list[str] = []
    for flag in ("num_gpus", "num_cpus", "memory"):
        value = getattr(arguments, flag)
        if value is not None and not 0 <= value < math.inf:
            problems.append(f"--{flag.replace('_', '-')} {value:g}: expected 0 or more")
    if arguments.train_max_failures is not None and arguments.train_max_failures < -1:
        problems.append(f"--train-max-failures {arguments.train_max_failures}: expected -1, 0 or more")
    resources: dict[str, float] = {}
    for each in arguments.resource or ():
        name, _, amount = each.partition("=")
        try:
            resources[name] = float(amount)
        except ValueError:
            resources[name] = math.nan
        if not name or not 0 <= resources[name] < math.inf:
            problems.append(f"--resource {each}: expected NAME=N, N 0 or more")
    labels: dict[str, str] = {}
    for each in arguments.label or ():
        name, found, labels[name] = each.partition("=")
        if not name or not found:
            problems.append(f"--label {each}: expected KEY=VALUE")
    if problems:
        raise ConfigError(problems)
    return GivenReservations(
        arguments.num_gpus,
        arguments.num_cpus,
        arguments.memory,
        None if arguments.resource is None else resources,
        None if arguments.label is None else labels,
    )
