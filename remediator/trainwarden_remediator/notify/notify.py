"""Sends messages about decisions, at least once, by a thread for each channel that delays no decision."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from trainwarden.clients.slack import NotSent, SlackWebhook
from trainwarden.clients.sns import SnsTopic
from trainwarden_remediator.database.database import DatabaseUnusable
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.notify.message import Notice, as_notice, as_slack
from trainwarden_remediator.notify.outbox import LONGEST_DELAY_SECONDS, Message, Outbox

log = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0
_PRUNE_ROUNDS = 1800
_FIRST_DELAY, _JITTER = 5.0, 0.2
_TIMEOUT_SECONDS = 10.0
# Slack takes one message a second.
_PACE_SECONDS = 1.0
# A FIFO topic takes no message without a group; a page about several runs is of none.
_OF_NO_RUN = "all-runs"


class Channel(Protocol):
    """A way to people."""

    name: str
    pace: float  # seconds between two messages

    def send(self, notice: Notice, mark: str) -> None:
        """Deliver a message; raises NotSent."""


class Slack:
    """An incoming webhook of Slack's, whose address is a secret in a file.

    Raises:
        ConfigError: the file holds no address.
    """

    name = "slack"
    pace = _PACE_SECONDS

    def __init__(self, url_file: Path) -> None:
        self._webhook = SlackWebhook(url_file)
        try:
            self._webhook.check()
        except NotSent as error:
            raise ConfigError([f"--notify-slack-url-file: {error}"]) from None

    def send(self, notice: Notice, mark: str) -> None:
        """Deliver a message; raises NotSent."""
        self._webhook.post(as_slack(notice, mark))


class Sns:
    """A topic of SNS.

    Raises:
        ConfigError: the name is none of a topic, or boto3 is not installed.
    """

    name = "sns"
    pace = 0.0

    def __init__(self, topic: str) -> None:
        try:
            self._topic = SnsTopic(topic)
        except ValueError as error:
            raise ConfigError([f"--notify-sns-topic: {error}"]) from None

    def send(self, notice: Notice, mark: str) -> None:
        """Publish a message; raises NotSent."""
        attributes = {"mark": mark, "kind": notice.kind, "run_id": notice.run_id}
        group = notice.run_id or _OF_NO_RUN
        self._topic.publish(notice.title, notice.text(), mark=mark, group=group, attributes=attributes)


class Notifier:
    """Delivers the outbox. A way that is closed is tried again after 5 s, then ever later, at most 15 minutes."""

    def __init__(
        self,
        outbox: Outbox,
        channels: Sequence[Channel],
        *,
        monotonic: Callable[[], float],
        state_dir: str = "",
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._outbox = outbox
        self._channels = tuple(channels)
        self._monotonic = monotonic
        self._state_dir = state_dir
        self._jitter = jitter
        self._closed: dict[str, tuple[int, float]] = {}  # failures in a row, and until when it rests
        self._lock = threading.Lock()
        outcomes = ("sent", "failed", "expired")
        self._counts: Counter[tuple[str, str]] = Counter(
            {(channel.name, outcome): 0 for channel in channels for outcome in outcomes}
        )
        self._stop = threading.Event()
        # One each: a file system that does not answer holds up no message to Slack.
        self._threads = [
            threading.Thread(target=self._run, args=(channel,), name=f"notify-{channel.name}", daemon=True)
            for channel in channels
        ]

    def start(self) -> None:
        """Deliver in threads, if there is a channel."""
        self._outbox.prune()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop; what is not delivered yet stays in the outbox."""
        self._stop.set()
        end = self._monotonic() + _TIMEOUT_SECONDS
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, end - self._monotonic()))

    def _run(self, channel: Channel) -> None:
        rounds = 0
        while not self._stop.wait(_LOOK_SECONDS):
            try:
                self._deliver_by(channel)
                if rounds % _PRUNE_ROUNDS == 0:
                    self._outbox.prune()
            except DatabaseUnusable as error:
                # A message that was delivered could not be noted as such, and would be sent for ever.
                log.error("no more messages are sent by %s: %s", channel.name, error)  # noqa: TRY400  # its text says all
                return
            except Exception:  # messages must not end with one error of the database
                log.exception("messages could not be delivered, and are tried again")
            rounds += 1

    def deliver(self) -> None:
        """Send what is due, by each channel that is not resting."""
        for channel in self._channels:
            self._deliver_by(channel)

    def _deliver_by(self, channel: Channel) -> None:
        _, rests = self._closed.get(channel.name, (0, 0.0))
        if self._monotonic() < rests:
            return
        for message in self._outbox.due(channel.name):
            if self._stop.is_set() or not self._send(channel, message):
                break
            if channel.pace and self._stop.wait(channel.pace):
                break

    def _send(self, channel: Channel, message: Message) -> bool:
        """Send one message; return whether the channel takes others."""
        try:
            channel.send(as_notice(message, self._state_dir), message.mark)
        except NotSent as error:
            self._failed(channel, message, error)
            return error.of_message
        # A process that ends here sends it again; its mark shows that it is the same.
        self._outbox.sent(message)
        self._count(channel, "sent")
        if self._closed.pop(channel.name, None):
            log.info("%s takes messages again", channel.name)
        log.info("sent by %s: %s of incident %s", channel.name, message.kind, message.incident["id"])
        return True

    def _failed(self, channel: Channel, message: Message, error: NotSent) -> None:
        failures = message.attempts if error.of_message else self._closed.get(channel.name, (0, 0.0))[0]
        longest = LONGEST_DELAY_SECONDS / (1 + _JITTER)
        delay = min(longest, _FIRST_DELAY * 2 ** min(failures, 10)) * (1 + _JITTER * self._jitter())
        expired = self._outbox.failed(message, str(error), delay if error.of_message else 0.0)
        self._count(channel, "expired" if expired else "failed")
        if not error.of_message:
            self._closed[channel.name] = failures + 1, self._monotonic() + delay
        if failures == 0 or expired:
            log.warning(
                "%s of incident %s %s by %s: %s", message.kind, message.incident["id"],
                "was never sent" if expired else "is not sent yet", channel.name, error,
            )  # fmt: skip

    def _count(self, channel: Channel, outcome: str) -> None:
        with self._lock:
            self._counts[channel.name, outcome] += 1

    def families(self) -> Iterator[Metric]:
        """Return the metrics of the messages."""
        prefix = "trainwarden_remediator_message"
        sent = CounterMetricFamily(
            f"{prefix}s",
            "Messages to people by channel, and by what came of sending them.",
            labels=["channel", "outcome"],
        )
        with self._lock:
            for labels, count in self._counts.items():
                sent.add_metric(labels, count)
        pending = GaugeMetricFamily(f"{prefix}s_pending", "Messages that wait to be sent.", labels=["channel"])
        since = GaugeMetricFamily(
            f"{prefix}_pending_timestamp_seconds", "When the oldest message that waits was written.", labels=["channel"]
        )
        for channel, waiting in self._outbox.waiting().items():
            pending.add_metric([channel], waiting.count)
            if waiting.count:
                since.add_metric([channel], waiting.since)
        yield from (sent, pending, since)
