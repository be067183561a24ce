"""Which policy applies to a run: the one the operator assigns, else the one its record requests, else the default."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from trainwarden.checkpoint.verdict import Trust
from trainwarden.record.clock import to_iso
from trainwarden_remediator.canary_job.canary_job import POLICY as CANARY_JOB_POLICY
from trainwarden_remediator.canary_job.canary_job import RUN_ID as CANARY_JOB
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.policies.modes import MODES, OPT_IN, CanaryRuns, most_cautious
from trainwarden_remediator.policies.policy import Policy, load_policy, read_policy, shipped

_NAME = re.compile(r"[a-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Choice:
    """The policy that applies; `objection`: why it is not the one that the record requests.

    `opted_in`: the operator has assigned it to the run, or the run's record requests it by name.
    """

    policy: Policy
    objection: str | None = None
    opted_in: bool = False


@dataclass
class Policies:
    """The available policies. `assigned` pairs patterns of run ids with policies; the first match applies.

    `mode` is that of the cluster: a mode, or OPT_IN. `canary_job`: the operator keeps one, acted upon in every mode.
    """

    default: Policy
    named: Mapping[str, Policy] = field(default_factory=dict)
    assigned: Sequence[tuple[str, Policy]] = ()
    mode: str = OPT_IN
    canary_job: bool = False

    def of(self, run_id: str, requested: str | None) -> Choice:
        """Return the policy of a run whose record requests `requested`, which is only a key, never a path."""
        if self.canary_job and run_id == CANARY_JOB:
            return Choice(self.named[CANARY_JOB_POLICY], opted_in=True)
        for pattern, policy in self.assigned:
            if fnmatchcase(run_id, pattern):
                return Choice(policy, opted_in=True)
        if requested is None or requested == self.default.name:
            return Choice(self.default, opted_in=requested is not None)
        if not _NAME.fullmatch(requested):
            return self._instead("the record requests a policy by an invalid name")
        if requested not in self.named:
            return self._instead(f"the record requests policy {requested}, which is not installed")
        if not self.default.restarts:
            return self._instead(f"the record requests policy {requested}, and no record makes this remediator restart")
        return Choice(self.named[requested], opted_in=True)

    def observed(self, run_id: str, choice: Choice) -> str | None:
        """Return why the policy of a run is only observed; None where it is acted upon.

        The more cautious of the modes of the cluster and of the policy counts. Where neither is set, a run that has not
        opted in is observed.
        """
        if self.canary_job and run_id == CANARY_JOB:
            return None
        policy = choice.policy
        of_cluster = next((mode for mode in MODES if mode == self.mode), None)
        mode = most_cautious(each for each in (of_cluster, policy.mode_of_action) if each is not None)
        if mode is None:
            return None if choice.opted_in else "the run has not opted in, and is only observed"
        if mode == "observe":
            where = "the cluster" if of_cluster == "observe" else f"policy {policy.name}"
            return f"{where} is in the mode observe"
        if mode == "canary" and not (policy.canary_runs or CanaryRuns()).includes(run_id):
            return "the mode is canary, and the run is none of its runs"
        return None

    def withheld(self, run_id: str, requested: str | None, mode: str, now: float) -> str | None:
        """Return why a restart that was decided must not be made now; None if it may be.

        A mode of action or a maintenance forbids it, or the policy that applies by now restarts no such failure.

        Args:
            run_id: of the run.
            requested: the policy that its record requests.
            mode: failure mode for which it was decided.
            now: Unix seconds.
        """
        choice = self.of(run_id, requested)
        if not choice.policy.restarts_after(mode):
            return f"policy {choice.policy.name} never restarts after a {mode}"
        until = choice.policy.limits.maintained_until(now)
        if until is not None:
            return f"maintenance until {to_iso(until)}: nothing is restarted before"
        return self.observed(run_id, choice)

    def checkpoint_trust(self, name: str) -> Trust | None:
        """Return what a run that the policy of that name restarts takes for a complete checkpoint; None if unset."""
        policy = self._called(name)
        return policy.checkpoint_trust if policy else None

    def stops_unverified(self, name: str) -> bool:
        """Return whether the policy of that name ends nothing where no checkpoint could be verified."""
        policy = self._called(name)
        return policy is not None and policy.unverified == "stop"

    def _called(self, name: str) -> Policy | None:
        policies = (*(policy for _, policy in self.assigned), self.default, *self.named.values())
        return next((policy for policy in policies if policy.name == name), None)

    def take(self, newer: Policies) -> None:
        """Become another set, between two decisions."""
        vars(self).update(vars(newer))

    def _instead(self, why: str) -> Choice:
        return Choice(self.default, f"{why}: policy {self.default.name} is used")

    def warnings(self) -> list[str]:
        """Return what is allowed but may surprise its author, each once."""
        policies = (self.default, *self.named.values())
        return list(dict.fromkeys(warning for policy in policies for warning in policy.warnings()))


def load_policies(
    default: str, folder: Path | None, assignments: Sequence[str], mode: str = OPT_IN, *, canary_job: bool = False
) -> Policies:
    """Load the policies of `--policy`, `--policy-dir` and `--run-policy`; raise ConfigError with every problem.

    `mode` is that of the cluster, of `--mode-of-action`; `canary_job` is `--canary`.
    """
    problems: list[str] = []
    named = {name: load_policy(name) for name in shipped()} | _installed(folder, problems)
    chosen = None
    try:
        chosen = named[default] if default in named else load_policy(default)
        named[chosen.name] = chosen
    except ConfigError as error:
        problems += error.problems
    assigned = []
    for assignment in assignments:
        pattern, _, name = assignment.rpartition("=")
        if pattern and name in named:
            assigned.append((pattern, named[name]))
        else:
            expected = ", ".join(sorted(named))
            problems.append(f"--run-policy: {assignment!r}: expected GLOB=NAME, with a name of {expected}")
    if chosen is None or problems:
        raise ConfigError(problems)
    return Policies(chosen, named, tuple(assigned), mode, canary_job)


def _installed(folder: Path | None, problems: list[str]) -> dict[str, Policy]:
    found: dict[str, Policy] = {}
    try:
        files = sorted(folder.iterdir()) if folder else []
    except OSError as error:
        problems.append(f"--policy-dir: {folder}: {error.strerror}")
        return {}
    for file in files:
        if file.suffix not in (".yaml", ".yml") or file.name.startswith("."):
            continue
        if not _NAME.fullmatch(file.stem):
            problems.append(f"--policy-dir: {file}: expected a name of 1 to 64 of a-z, 0-9, _ and -")
        elif file.stem in found or file.stem in shipped():
            problems.append(f"--policy-dir: {file}: there is another policy {file.stem!r} already")
        else:
            try:
                found[file.stem] = read_policy(file, file.stem)
            except ConfigError as error:
                problems += error.problems
    return found
