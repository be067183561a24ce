"""Which policy applies to a run: the one the operator assigns, else the one its record requests, else the default."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from trainwarden.checkpoint.verdict import Trust
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.policy import Policy, load_policy, read_policy, shipped

_NAME = re.compile(r"[a-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Choice:
    """The policy that applies; `objection`: why it is not the one that the record requests."""

    policy: Policy
    objection: str | None = None


@dataclass(frozen=True)
class Policies:
    """The available policies. `assigned` pairs patterns of run ids with policies; the first match applies."""

    default: Policy
    named: Mapping[str, Policy] = field(default_factory=dict)
    assigned: Sequence[tuple[str, Policy]] = ()

    def of(self, run_id: str, requested: str | None) -> Choice:
        """Return the policy of a run whose record requests `requested`, which is only a key, never a path."""
        for pattern, policy in self.assigned:
            if fnmatchcase(run_id, pattern):
                return Choice(policy)
        if requested is None or requested == self.default.name:
            return Choice(self.default)
        if not _NAME.fullmatch(requested):
            return self._instead("the record asks for a policy by what is no name of one")
        if requested not in self.named:
            return self._instead(f"the record asks for policy {requested}, which is not installed")
        if not self.default.restarts:
            return self._instead(f"the record asks for policy {requested}, and no record makes this remediator restart")
        return Choice(self.named[requested])

    def checkpoint_trust(self, name: str) -> Trust | None:
        """Return what a run that the policy of that name restarts takes for a complete checkpoint; None if unset."""
        policies = (*(policy for _, policy in self.assigned), self.default, *self.named.values())
        return next((policy.checkpoint_trust for policy in policies if policy.name == name), None)

    def _instead(self, why: str) -> Choice:
        return Choice(self.default, f"{why}: policy {self.default.name} is used")

    def warnings(self) -> list[str]:
        """Return what is allowed but may surprise its author, each once."""
        policies = (self.default, *self.named.values())
        return list(dict.fromkeys(warning for policy in policies for warning in policy.warnings()))


def load_policies(default: str, folder: Path | None, assignments: Sequence[str]) -> Policies:
    """Load the policies of `--policy`, `--policy-dir` and `--run-policy`; raise ConfigError with every problem."""
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
    return Policies(chosen, named, tuple(assigned))


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
