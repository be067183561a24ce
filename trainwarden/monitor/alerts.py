"""The alerts of a monitor without Prometheus: their text, and Slack and SNS, to which they go."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from trainwarden.clients.s3_location import MONITORING_PREFIX, parse_s3_url
from trainwarden.clients.slack import NotSent, SlackWebhook, escape
from trainwarden.clients.sns import SnsTopic
from trainwarden.redaction import label_text, name_text
from trainwarden.runs.assessment import FAILED, PENDING, RUNNING, SUCCEEDED, TIMED_OUT, Assessment

logger = logging.getLogger("trainwarden.monitor")

_MAX_TEXT = 600
# Lines that hold a name, in which nothing is taken for a secret.
_OF_NAMES = ("Run ID", "Instance")
_ICONS = {FAILED: "🔥", TIMED_OUT: "🔥", SUCCEEDED: "✅", RUNNING: "▶️", PENDING: "▶️"}
_COLORS = {FAILED: "danger", TIMED_OUT: "danger", SUCCEEDED: "good", RUNNING: "good", PENDING: "good"}
_CONSOLE = "View in S3 Console"


@dataclass(frozen=True)
class Alert:
    """One alert. `lines` are a name and a text each, not escaped; `link` is the address of the logs."""

    run_id: str
    status: str
    title: str
    lines: tuple[tuple[str, str], ...]
    mark: str
    link: str | None = None

    def text(self) -> str:
        """Return it as plain text, the title first."""
        lines = [f"{name}: {value}" for name, value in self.lines]
        if self.link:
            lines.append(f"📊 S3 Logs: {self.link}")
        return "\n".join((self.title, *lines))

    def slack(self) -> dict[str, Any]:
        """Return the body of a call of an incoming webhook. Of it only our own link is one."""
        lines = [f"*{name}:* {escape(value)}" for name, value in self.lines]
        if self.link:
            lines.append(f"*📊 S3 Logs:* <{escape(self.link)}|{_CONSOLE}>")
        title = escape(self.title)
        return {
            "text": title,
            "unfurl_links": False,
            "unfurl_media": False,
            "attachments": [
                {
                    "color": _COLORS.get(self.status, "warning"),
                    "fallback": title,
                    "text": "\n".join(lines),
                    "mrkdwn_in": ["text"],
                }
            ],
        }


def make_alert(
    run_id: str, status: str, reason: str, context: Mapping[str, Any] | None = None, *, mark: str = "", link: str = ""
) -> Alert:
    """Return the alert about a run.

    Args:
        run_id: of the run.
        status: its new one.
        reason: for it.
        context: of action, instance_id, phase, duration_seconds and last_log, what is known; duration_minutes and
            last_log_line are the names that the S3 monitor has for the latter.
        mark: the same for a message that is sent again.
        link: address of a page with the logs; an address without one is a line of text, `record`, of the context.
    """
    known = dict(context or {})
    duration = known.get("duration_seconds")
    if duration is None and known.get("duration_minutes") is not None:
        duration = 60 * float(known["duration_minutes"])
    lines = [
        ("Run ID", run_id),
        ("Status", status),
        ("Reason", reason),
        ("🔧 Action Required", known.get("action")),
        ("Instance", known.get("instance_id")),
        ("Phase", known.get("phase")),
        ("Duration", None if duration is None else f"{float(duration) / 60:.0f} minutes"),
        ("Last Log", known.get("last_log") or known.get("last_log_line")),
        ("Record", known.get("record")),
    ]
    shown = tuple(
        (name, (name_text if name in _OF_NAMES else label_text)(str(value), _MAX_TEXT))
        for name, value in lines
        if value not in (None, "")
    )
    return Alert(
        name_text(run_id, 128),
        status,
        f"{_ICONS.get(status, '⚠️')} {_name(run_id)} Training {status}",
        shown,
        mark or f"{run_id}-{status}",
        link or None,
    )


def alert_about(assessment: Assessment, *, where: str, console: str | None) -> Alert:
    """Return the alert about the present status of a run, whose record is at `where`."""
    context = {
        "action": assessment.action,
        "instance_id": assessment.instance_id,
        "phase": assessment.phase,
        "duration_seconds": assessment.duration_seconds,
        "last_log": assessment.last_log,
        "record": None if console else where,
    }
    reason = assessment.reason or "The run gives its signs of life again"
    mark = "-".join((assessment.run_id, assessment.status, str(assessment.attempt_key or assessment.attempt or 0)))
    return make_alert(
        assessment.run_id, assessment.status, reason, context, mark=re.sub(r"[^\w.-]", "-", mark)[:128],
        link=console or "",
    )  # fmt: skip


class Channel(Protocol):
    """A way to people."""

    name: str

    def send(self, alert: Alert) -> None:
        """Deliver an alert; raises NotSent."""


class Slack:
    """An incoming webhook: its address, or the file that holds it."""

    name = "slack"

    def __init__(self, webhook: str | Path) -> None:
        self._webhook = SlackWebhook(webhook)
        self._webhook.check()

    def send(self, alert: Alert) -> None:
        """Deliver an alert; raises NotSent."""
        self._webhook.post(alert.slack())


class Sns:
    """A topic of SNS; raises ValueError where the name is none of a topic, or boto3 is not installed."""

    name = "sns"

    def __init__(self, topic: str) -> None:
        self._topic = SnsTopic(topic)

    def send(self, alert: Alert) -> None:
        """Deliver an alert; raises NotSent."""
        self._topic.publish(
            alert.title,
            alert.text(),
            mark=alert.mark,
            group=alert.run_id,
            attributes={"run_id": alert.run_id, "status": alert.status},
        )


class Printed:
    """The terminal, for a monitor that has no other channel."""

    name = "terminal"

    def __init__(self, write: Callable[[str], object] = print) -> None:
        self._write = write

    def send(self, alert: Alert) -> None:
        """Print the alert."""
        self._write(alert.text() + "\n")


class AlertManager:
    """Sends alerts to Slack and SNS.

    Args:
        slack_webhook: address of an incoming webhook, or the path of a file that holds it; "" as None.
        sns_topic: ARN of a topic; "" as None.
        region: of the bucket.
        bucket: with the logs, below `training-runs/`: what `send` sends has a link to them.
        sns_topic_arn: another name of `sns_topic`.

    Raises:
        ValueError: one of them is not usable; the text holds no secret.
    """

    def __init__(
        self,
        slack_webhook: str | Path | None = None,
        sns_topic: str | None = None,
        region: str | None = None,
        bucket: str | None = None,
        *,
        sns_topic_arn: str | None = None,
    ) -> None:
        self.channels: list[Channel] = []
        self._logs = parse_s3_url(f"s3://{bucket}/{MONITORING_PREFIX}", region, source="bucket") if bucket else None
        sns_topic = sns_topic or sns_topic_arn
        if slack_webhook:
            is_url = isinstance(slack_webhook, str) and "://" in slack_webhook
            try:
                self.channels.append(Slack(str(slack_webhook) if is_url else Path(slack_webhook)))
            except NotSent as error:
                raise ValueError(f"the Slack webhook is not usable: {error}") from None
        if sns_topic:
            try:
                self.channels.append(Sns(sns_topic))
            except ValueError as error:
                raise ValueError(f"the SNS topic is not usable: {error}") from None

    def send(
        self,
        run_id: str,
        status: str = "",
        reason: str = "",
        context: Mapping[str, Any] | None = None,
        *,
        new_state: str = "",
    ) -> bool:
        """Send an alert to each channel; return whether all took it. Failures to send are logged.

        Args:
            run_id: of the run.
            status: such as FAILED, as text or as `RunState`.
            reason: for it.
            context: as for `make_alert`.
            new_state: another name of `status`.
        """
        stated = status or new_state
        text = str(stated.value) if isinstance(stated, Enum) else stated
        link = self._logs.console_url(f"{run_id}/logs/") if self._logs else ""
        return not self.deliver(make_alert(run_id, text, reason, context, link=link), self.channels)

    def deliver(self, alert: Alert, channels: Sequence[Channel]) -> dict[str, str]:
        """Send an alert by `channels`; return the reasons of those that did not take it, by name."""
        failed = {}
        for channel in channels:
            try:
                channel.send(alert)
            except NotSent as error:  # noqa: PERF203  # two channels
                logger.warning("%s %s is not sent by %s: %s", alert.run_id, alert.status, channel.name, error)
                failed[channel.name] = str(error)
        return failed


def _name(run_id: str) -> str:
    """Return what the run id begins with, without its date, time and number: `Mistral` of `mistral-20250804-171621`."""
    words = re.split(r"[-_.]", run_id)
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    name = name_text("-".join(words), 64)
    return name[:1].upper() + name[1:]
