"""What `trainwarden up` watches a command for, and what may restart it: the budgets of thresholds and of the policy."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from trainwarden.clients.process import ProcessError, run
from trainwarden.errors import UsageError
from trainwarden.record import thresholds

_CHECK_SECONDS = 120
# The failure modes of policies, in words; a policy says nothing about a success.
_MODES = {"crash": "a crash", "stall": "a standstill", "timeout": "no sign of life"}


@dataclass(frozen=True)
class RestartPolicy:
    """The policy of a command, as the remediator has read it.

    Attributes:
        name: of a shipped policy, or the path of its file.
        limits: restarts by failure mode; a mode that is never restarted is absent.
        selective: modes in which the cause decides, too.
        mode_of_action: observe, where nothing is carried out, canary, where it is for a part of the runs, or act.
    """

    name: str
    limits: Mapping[str, int] = field(default_factory=dict)
    selective: frozenset[str] = frozenset()
    mode_of_action: str = "act"

    @property
    def restarts(self) -> bool:
        """Whether it ever restarts anything."""
        return bool(self.limits) and self.mode_of_action != "observe"

    @classmethod
    def parse(cls, name: str, document: bytes) -> RestartPolicy:
        """Return the policy that `trainwarden-remediator check-policy --json` printed."""
        values = json.loads(document)
        rules = values["rules"]
        restarting = {mode: rule for mode, rule in rules.items() if rule["class_name"] != "NoRestartPolicy"}
        return cls(
            name,
            {mode: int(rule["max_retries"]) for mode, rule in restarting.items()},
            frozenset(mode for mode, rule in restarting.items() if rule["class_name"] == "SelectiveRestartPolicy"),
            values["mode_of_action"] or "act",
        )


def choose_policy(given: str, environ: Mapping[str, str]) -> tuple[str, RestartPolicy]:
    """Return the remediator's policy, a file by its whole path, and the policy that the run then has.

    Raises:
        UsageError: it is none, by the remediator's own command.
    """
    is_file = "/" in given or given.endswith((".yaml", ".yml"))
    policy = str(Path(given).expanduser().absolute()) if is_file else given
    restarts = _read_policy(policy, f"--policy {given}")
    requested = environ.get("TRAINWARDEN_POLICY", "")
    # As the remediator chooses: a run may request a shipped policy, where the default restarts at all.
    if not re.fullmatch(r"[a-z0-9_-]{1,64}", requested) or not restarts.limits:
        return policy, restarts
    try:
        return policy, _read_policy(requested, "TRAINWARDEN_POLICY")
    except UsageError:
        return policy, restarts


def _read_policy(policy: str, source: str) -> RestartPolicy:
    command = [sys.executable, "-m", "trainwarden_remediator", "check-policy", "--json", policy]
    cannot = f"the remediator, which would read --policy {policy}, cannot be started"
    try:
        done = run(command, _CHECK_SECONDS, cwd="/")
    except ProcessError as error:
        raise UsageError(f"{cannot}: {error}") from None
    if done.status != 0:
        message = (done.errors or done.output).decode("utf-8", "replace").strip()
        message = re.sub(r"^trainwarden-remediator: ", "", message, flags=re.MULTILINE)
        if "Traceback (most recent call last)" in message:
            raise UsageError(f"{cannot}: {message.splitlines()[-1]}")
        raise UsageError(message if message.startswith("--policy") else f"{source}: {message}")
    return RestartPolicy.parse(policy, done.output)


def watched(environment: Mapping[str, str]) -> str:
    """Return the sentence that states when a standstill is noticed, what is not judged, and the remedy."""
    stall, given = thresholds.choose(None, environment).stall_seconds, thresholds.given_stall(environment)
    step = f"a standstill is noticed {stall['train']:g} s after the last step that is reported or printed"
    if "init" in given:
        return f"{step}, {stall['init']:g} s after the start where there is none"
    remedy = f"--stall-seconds {'' if 'train' in given else 'S,'}init=S"
    if "train" in given:
        first = f"{given['train']:g} s after the start where nothing was printed"
        return (
            f"{step}; before the first one {first}, {stall['init']:g} s where the training uses the library: {remedy}"
        )
    return (
        f"{step}. Not judged: a hang before the first step, and a command that shows no steps at all, unless it "
        f"uses the library ({stall['init']:g} s): {remedy}"
    )


def restartable(policy: RestartPolicy, incidents: Sequence[Mapping[str, Any]]) -> str:
    """Return the sentence that states what may restart a run, how often still, and what alerts people only.

    Args:
        policy: of the run.
        incidents: of the run so far, the oldest first, as the remediator's API has them: a run that is started again
            under its name has used up restarts.
    """
    name = PurePath(policy.name).name
    if not policy.restarts:
        why = "restarts nothing" if not policy.limits else "is in the mode observe"
        return f"everything alerts people only: the policy {name} {why}"
    left = {**policy.limits, **_left(incidents)}
    allowed, other = [], []
    for mode, words in _MODES.items():
        limit = policy.limits.get(mode, 0)
        cause = " whose cause the policy lists" if mode in policy.selective else ""
        number = min(limit, left.get(mode, 0))
        if number > 0:
            allowed.append(f"{words}{cause} ({number}{f' of {limit}' if number < limit else ''} left)")
        else:
            other.append(f"{words} (none of {limit} left)" if limit else words)
    people = f"{', '.join(other)} and all else alert people only" if other else "all else alerts people only"
    if not allowed:
        return f"everything alerts people only: of the policy {name} no restart of this run is left"
    name += ", in the mode canary for a part of the runs," if policy.mode_of_action == "canary" else ""
    return f"the policy {name} may restart it after {', '.join(allowed)}; {people}"


def _left(incidents: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    left = {}
    for incident in incidents:
        budget = incident.get("budget") or {}
        if isinstance(budget.get("left"), int):
            left[str(incident.get("failure_mode"))] = budget["left"]
    return left
