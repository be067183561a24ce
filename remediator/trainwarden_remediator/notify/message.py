"""The text of a message to people: the decision, why, on what evidence, at what price, and how to stop it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwarden.clients.slack import escape
from trainwarden_remediator.incidents.incident import STORM, State, clean
from trainwarden_remediator.incidents.price import CONTRADICTED, Approval
from trainwarden_remediator.notify.outbox import DECISION, HAND_OVER, NOT_RESTARTED, REFUSAL, Message

_MAX_LINE = 600
_COLORS = {DECISION: "warning", REFUSAL: "warning", HAND_OVER: "danger"}
_OUTCOMES = {
    State.DONE.value: "has recovered",
    State.FAILED.value: "was restarted, and that did not help",
    State.ADOPTED.value: "was restarted or ended by somebody else",
}


@dataclass(frozen=True)
class Notice:
    """A message as people read it: a title, and lines of a name and a text each.

    Texts are printable, on one line, and not escaped.
    """

    kind: str
    run_id: str
    title: str
    color: str
    lines: tuple[tuple[str, str], ...]
    attempt_key: str = ""

    def text(self) -> str:
        """Return the message as plain text."""
        return "\n".join((self.title, "", *(f"{name}: {value}" for name, value in self.lines))) + "\n"


def as_notice(message: Message, state_dir: str = "") -> Notice:
    """Return what a message of the outbox says; `state_dir` is where the commands that it names find the database."""
    incident = message.incident
    run_id = clean(incident["run_id"], 128)
    return Notice(
        message.kind,
        run_id,
        f"{_title(message.kind, incident, run_id)}{_cluster(incident)}",
        "good"
        if incident["state"] == State.DONE.value and not incident.get("degraded")
        else _COLORS.get(message.kind, "warning"),
        tuple((name, clean(value, _MAX_LINE)) for name, value in _lines(message, run_id, state_dir) if value),
        clean(incident.get("attempt_key") or "", 128),
    )


def _title(kind: str, incident: Mapping[str, Any], run_id: str) -> str:
    if kind == DECISION:
        waits = _approval(incident)
        if waits is None:
            return f"Restarting run {run_id}"
        seconds = waits.veto_seconds
        return (
            f"Run {run_id} is restarted in {seconds:g} s unless somebody vetoes it"
            if seconds
            else f"Run {run_id} waits for an approval"
        )
    if kind in (REFUSAL, NOT_RESTARTED):
        return f"Run {run_id} is not restarted"
    if kind == HAND_OVER:
        if incident["alert"] == STORM:
            return "No run is restarted: a storm needs a person"
        return f"Run {run_id} needs a person" if run_id else "Several runs need a person"
    worse = ", degraded" if incident.get("degraded") else ""
    return f"Run {run_id} {_OUTCOMES.get(incident['state'], incident['state'])}{worse}"


def _cluster(incident: Mapping[str, Any]) -> str:
    cluster = incident.get("cluster")
    return f" · {clean(cluster, 128)}" if cluster else ""


def _lines(message: Message, run_id: str, state_dir: str) -> list[tuple[str, str]]:
    incident = message.incident
    words = [f"--state-dir={state_dir}"] if state_dir else []
    answer = shlex.join([*words, incident["id"]])
    options = shlex.join([*words, f"--run-id={run_id}"]) if run_id else answer  # it is about several runs
    stop = f"trainwarden-remediator freeze {options}" if message.kind == DECISION else ""
    taken = f"trainwarden-remediator ack {options}" if message.kind == HAND_OVER else ""
    is_storm = incident["alert"] == STORM
    contradicted = incident.get("approval") == CONTRADICTED
    waits = message.kind == DECISION and _approval(incident) is not None
    detail, capture = incident["detail"], incident.get("capture") or {}
    return [
        ("Outcome", detail if detail != incident["reason"] else ""),
        ("Reason", incident["reason"]),
        ("Alert", f"{incident['alert']} ({failure_of(incident)})" if run_id else ""),
        ("All alerts", "; ".join(message.alerts) if len(message.alerts) > 1 else ""),
        ("Attempt", attempt_of(incident)),
        ("Suspect", "; ".join((*message.suspects, *filter(None, (capture.get("suspect"),))))),
        ("Stacks", capture.get("stacks") or ""),
        ("Captured", capture.get("folder") or ""),
        ("Evidence", "; ".join(message.evidence)),
        ("Lost work", lost_work(incident)),
        ("Budget", budget_left(incident)),
        ("Policy", incident["policy"]),
        ("Stop it", stop),
        ("Restart it", f"trainwarden-remediator approve {answer}" if contradicted or waits else ""),
        ("Leave this attempt", f"trainwarden-remediator veto {answer}" if waits else ""),
        ("Restart them", f"trainwarden-remediator resume {shlex.join(words)}".rstrip() if is_storm else ""),
        ("Taken over", taken),
        ("Runbook", "rules/runbooks/TrainRunRestartExhausted.md" if message.kind == HAND_OVER else ""),
        ("More", f"trainwarden-remediator explain {shlex.join([*words, run_id or incident['id']])}"),
        ("Incident", incident["id"]),
        ("Audit", incident.get("audit") or ""),
    ]


def _approval(incident: Mapping[str, Any]) -> Approval | None:
    """Return what a person must or may do before the restart begins; None where that is nothing."""
    kept = incident.get("approval") or ""
    return None if kept == CONTRADICTED else Approval.parse(kept)


def failure_of(incident: Mapping[str, Any]) -> str:
    """Return failure mode and error type."""
    return " ".join(str(part) for part in (incident["failure_mode"], incident["error_type"]) if part)


def _after(incident: Mapping[str, Any]) -> str:
    """Return the new job that a job came back as, where it has."""
    new = incident.get("successor")
    return f", come back as job {new}" if new else ""


def attempt_of(incident: Mapping[str, Any]) -> str:
    """Return attempt, job and scheduler, as far as they are known."""
    parts = [
        None if incident["attempt"] is None else str(incident["attempt"]),
        f"job {incident['job_id']}{_after(incident)}" if incident["job_id"] else None,
        incident["scheduler"],
    ]
    return ", ".join(part for part in parts if part)


def lost_work(incident: Mapping[str, Any]) -> str:
    """Return what a restart loses, in steps."""
    reached, saved = incident["step_before"], incident["checkpoint_step"]
    if reached is None:
        return ""
    if saved is None:
        return f"all {reached:g} steps, as far as is known: no checkpoint was reported"
    return f"{max(0.0, reached - saved):g} steps, from {saved:g} to {reached:g}"


def budget_left(incident: Mapping[str, Any]) -> str:
    """Return how many restarts are left."""
    budget = incident["budget"]
    left, limit = budget.get("left"), budget["limit"]  # a message that was noted by an older version lacks it
    if left is None or limit is None:
        return ""
    counts = left < limit - (budget["used"] or 0)
    return f"{left} of {limit} restarts left{' after this one' if counts else ''}"


def slack_text(text: str, limit: int = _MAX_LINE) -> str:
    """Return text of others for Slack, on one line."""
    return escape(clean(text, limit))


def as_slack(notice: Notice, mark: str) -> dict[str, Any]:
    """Return the body of a call of an incoming webhook. No part of it is a link or a mention."""
    title = slack_text(notice.title)
    lines = [f"*{name}:* {slack_text(value)}" for name, value in notice.lines]
    return {
        "text": title,
        "unfurl_links": False,
        "unfurl_media": False,
        "attachments": [
            {
                "color": notice.color,
                "fallback": title,
                "text": "\n".join(lines),
                "mrkdwn_in": ["text"],
                "footer": f"trainwarden-remediator {slack_text(mark)}",
            }
        ],
    }
