"""Messages to people: each decision at least once, delaying none, and without markup from the texts of others."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from tests.unit.clients.scripted import Scripted
from tests.unit.remediator.simulated_cluster import RUN, FakeClock
from tests.unit.remediator.simulation import Simulation
from trainwarden.clients.slack import NotSent
from trainwarden.stack.slack_sink import SlackSink
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.drivers.driver import Shape
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.incidents.incident import Action, Incident, State, as_json
from trainwarden_remediator.metrics import RemediatorCollector
from trainwarden_remediator.notify.message import Notice, as_notice, as_slack, slack_text
from trainwarden_remediator.notify.notify import Notifier, Slack, Sns
from trainwarden_remediator.notify.outbox import EXPIRES_SECONDS, Message, Outbox

HOSTILE = "<!channel> & <https://evil|click> ```\n\x00*bold*"


class FakeChannel:
    """Takes messages, unless `fault` says otherwise."""

    name = "fake"
    pace = 0.0

    def __init__(self) -> None:
        self.told: list[tuple[Notice, str]] = []
        self.fault: NotSent | None = None
        self.attempts = 0

    def send(self, told: Notice, mark: str) -> None:
        self.attempts += 1
        if self.fault is not None:
            raise self.fault
        self.told.append((told, mark))

    @property
    def titles(self) -> list[str]:
        return [told.title for told, _ in self.told]


class Told2People:
    """A simulated remediator whose messages go to one channel."""

    def __init__(self, folder: Path, policy: str = "default", shape: Shape | None = None, runs: int = 1) -> None:
        self.simulation = Simulation(folder / "simulated", two_phase=True, policy=policy, shape=shape, runs=runs)
        self.channel = FakeChannel()
        self.engine = open_database(folder / "simulated")
        self.connect()

    def close(self) -> None:
        self.engine.dispose()
        self.simulation.close()

    def connect(self) -> None:
        """Build what a new process builds."""
        clock = self.simulation.clock
        self.outbox = Outbox(self.engine, clock, ["fake"])
        self.simulation.store.note_message = self.outbox.note
        self.notifier = Notifier(
            self.outbox, [self.channel], monotonic=clock.monotonic, state_dir="/s", jitter=lambda: 0.0
        )

    def metric(self, name: str, **labels: str) -> float | None:
        registry = CollectorRegistry(auto_describe=False)
        simulation = self.simulation
        registry.register(RemediatorCollector(simulation.metrics, simulation.store, more=[self.notifier.families]))
        return registry.get_sample_value(f"trainwarden_remediator_{name}", {"channel": "fake", **labels})


@pytest.fixture
def people(tmp_path: Path) -> Iterator[Told2People]:
    made = Told2People(tmp_path)
    yield made
    made.close()


def lines(told: Notice) -> dict[str, str]:
    return dict(told.lines)


def test_a_restart_and_its_outcome_are_told_with_reason_loss_budget_and_how_to_stop_it(people: Told2People) -> None:
    people.simulation.checkpoint_step = 30.0
    people.simulation.tick(1)
    people.notifier.deliver()
    [(told, mark)] = people.channel.told
    assert told.title == f"Restarting run {RUN}"
    said = lines(told)
    assert said["Lost work"] == "10 steps, from 30 to 40"
    assert said["Budget"] == "2 of 3 restarts left after this one"
    assert said["Stop it"] == f"trainwarden-remediator freeze --state-dir=/s --run-id={RUN}"
    assert said["Audit"].startswith("2:"), "the second row of the log is the decision"
    assert said["Alert"] == "TrainRunStalled (stall)"
    assert said["Attempt"] == "0, job 17, sim"
    assert "10 steps" in said["Reason"]
    assert mark == f"{said['Incident']}-proposed"
    people.simulation.tick(60, every=5)
    people.notifier.deliver()
    assert people.channel.titles == [f"Restarting run {RUN}", f"Run {RUN} has recovered"]
    ended, _ = people.channel.told[1]
    assert ended.color == "good"
    assert "step" in lines(ended)["Outcome"]


@pytest.mark.parametrize("shape", [Shape.SUBMIT, Shape.RESUBMIT], ids=["submit", "resubmit"])
def test_the_outcome_names_the_job_that_came_back_under_a_new_id(tmp_path: Path, shape: Shape) -> None:
    people = Told2People(tmp_path, shape=shape)
    people.simulation.settle()
    people.notifier.deliver()
    first, last = (lines(told) for told, _ in people.channel.told)
    new = people.simulation.cluster.job_id
    assert first["Attempt"] == "0, job 17, sim"
    assert last["Attempt"] == f"0, job 17, come back as job {new}, sim"
    people.close()


def test_a_refusal_is_told_and_an_alert_that_needs_nothing_is_not(tmp_path: Path) -> None:
    people = Told2People(tmp_path, "megatron_conservative")
    people.simulation.cluster.crash()
    people.simulation.tick(5)
    people.notifier.deliver()
    assert people.channel.titles == [f"Run {RUN} is not restarted"]
    people.simulation.silenced = True
    people.simulation.tick(5)
    people.notifier.deliver()
    assert len(people.channel.told) == 1
    people.close()


def test_what_a_person_must_do_is_handed_over(people: Told2People) -> None:
    people.simulation.driver.faults = ["refused"]
    people.simulation.tick(5)
    people.notifier.deliver()
    assert people.channel.titles == [f"Restarting run {RUN}", f"Run {RUN} needs a person"]
    told, _ = people.channel.told[-1]
    assert "permission denied" in lines(told)["Reason"]
    assert lines(told)["Taken over"] == f"trainwarden-remediator ack --state-dir=/s --run-id={RUN}"
    assert lines(told)["Runbook"] == "rules/runbooks/TrainRunRestartExhausted.md"
    assert told.color == "danger"


def test_a_storm_is_one_message_with_the_command_that_ends_it(tmp_path: Path) -> None:
    people = Told2People(tmp_path, runs=7)
    people.simulation.tick(5)
    people.notifier.deliver()
    [(told, _)] = people.channel.told
    assert told.title == "No run is restarted: a storm needs a person"
    said = lines(told)
    assert said["Restart them"] == "trainwarden-remediator resume --state-dir=/s"
    assert said["Taken over"] == f"trainwarden-remediator ack --state-dir=/s {said['Incident']}"
    assert said["More"] == f"trainwarden-remediator explain --state-dir=/s {said['Incident']}"
    assert people.metric("messages_pending") == 0, "those about restarts that are not made are none"
    gone, *others = people.simulation.clusters
    gone.step = gone.high_water = 50.0
    people.simulation.tick(5)
    people.simulation.resume()
    people.simulation.tick(60, every=5)
    for _ in range(3):
        people.notifier.deliver()
    restarting = {f"Restarting run {each.run_id}" for each in others}
    assert {title for title in people.channel.titles if title.startswith("Restarting")} == restarting
    assert f"Run {gone.run_id} is not restarted" in people.channel.titles
    people.close()


def test_runs_that_wait_for_the_same_are_one_message_of_no_storm(tmp_path: Path) -> None:
    people = Told2People(tmp_path, runs=3)
    people.simulation.driver.down = True
    people.simulation.tick(3)
    people.simulation.clock.elapsed += 1800
    people.simulation.tick(3)
    people.notifier.deliver()
    [(told, _)] = people.channel.told
    assert told.title == "Several runs need a person"
    said = lines(told)
    assert "Restart them" not in said
    assert said["Reason"].endswith("about 3 runs: the scheduler is down (run-1); likewise run-2, run-3")
    assert said["Taken over"] == f"trainwarden-remediator ack --state-dir=/s {said['Incident']}"
    people.close()


def test_a_channel_that_is_away_delays_no_decision_and_gets_everything_later(
    people: Told2People, caplog: pytest.LogCaptureFixture
) -> None:
    people.channel.fault = NotSent("no answer")
    for _ in range(60):
        people.simulation.tick(1)
        people.notifier.deliver()
    assert people.simulation.store.of_run(RUN)[0].state is State.DONE
    assert people.channel.attempts == 4, "at 0, 5, 15 and 35 s"
    assert people.metric("messages_pending") == 2
    assert people.metric("message_pending_timestamp_seconds") is not None
    assert len([each for each in caplog.records if each.name.endswith("notify") and each.levelname == "WARNING"]) == 1
    people.channel.fault = None
    people.simulation.clock.elapsed += 900
    people.notifier.deliver()
    assert people.channel.titles == [f"Restarting run {RUN}", f"Run {RUN} has recovered"]
    assert people.metric("messages_pending") == 0
    assert people.metric("messages_total", outcome="sent") == 2
    assert people.metric("messages_total", outcome="failed") == 4


def test_a_clock_that_is_set_back_delays_no_message(people: Told2People) -> None:
    people.simulation.tick(1)
    people.channel.fault = NotSent("Slack answered 400", of_message=True)
    people.notifier.deliver()
    people.channel.fault = None
    people.simulation.clock.jump -= 6 * 3600
    people.notifier.deliver()
    assert people.channel.titles == [f"Restarting run {RUN}"]


def test_a_message_that_is_refused_keeps_no_other_from_being_sent(people: Told2People) -> None:
    people.simulation.tick(1)
    people.channel.fault = NotSent("Slack answered 400", of_message=True)
    people.notifier.deliver()
    people.channel.fault = None
    people.simulation.tick(3)
    people.simulation.driver.faults = ["refused"]
    people.simulation.tick(60, every=5)
    people.notifier.deliver()
    assert len(people.channel.told) == 2


def test_a_new_process_sends_what_the_old_one_did_not_with_the_same_mark(people: Told2People) -> None:
    people.simulation.tick(1)
    [message] = people.outbox.due("fake")
    people.channel.send(as_notice(message), message.mark)  # delivered, and killed before that was noted
    people.connect()
    people.notifier.deliver()
    people.notifier.deliver()
    assert [mark for _, mark in people.channel.told] == [message.mark, message.mark]


def test_what_is_a_day_old_is_given_up_and_counted(people: Told2People) -> None:
    people.simulation.tick(1)
    people.channel.fault = NotSent("no answer")
    people.simulation.clock.elapsed += EXPIRES_SECONDS
    people.notifier.deliver()
    assert people.metric("messages_total", outcome="expired") == 1
    assert people.metric("messages_pending") == 0
    people.simulation.clock.elapsed += 8 * 24 * 3600
    people.outbox.prune()
    with people.engine.begin() as connection:
        assert connection.execute(sa.text("SELECT COUNT(*) FROM outbox")).scalar_one() == 0


def test_that_a_person_is_needed_is_told_for_as_long_as_it_pages(people: Told2People) -> None:
    people.simulation.driver.faults = ["refused"]
    people.simulation.settle()
    [page] = people.simulation.store.escalations()
    people.channel.fault = NotSent("no answer")
    for _ in range(3):
        people.simulation.clock.elapsed += EXPIRES_SECONDS
        people.notifier.deliver()
    assert {each.kind for each in people.outbox.due("fake")} == {"hand-over"}
    people.channel.fault = None
    people.simulation.clock.elapsed += 1200
    people.notifier.deliver()
    assert [told.kind for told, _ in people.channel.told] == ["hand-over"]
    assert page.paging


def test_that_a_person_is_needed_is_not_told_once_its_page_has_ended(people: Told2People) -> None:
    """Slack was away meanwhile."""
    people.simulation.driver.faults = ["refused"]
    people.simulation.settle()
    people.channel.fault = NotSent("no answer")
    people.notifier.deliver()
    people.simulation.cluster.cancel()
    people.simulation.tick(5)
    assert people.simulation.store.escalations() == []
    people.channel.fault = None
    people.simulation.clock.elapsed += 60
    people.notifier.deliver()
    assert people.channel.titles == [f"Restarting run {RUN}"]
    assert people.metric("messages_pending") == 0
    people.simulation.clock.elapsed += 9 * 24 * 3600
    people.outbox.prune()
    people.outbox.prune()
    with people.engine.begin() as connection:
        assert connection.execute(sa.text("SELECT COUNT(*) FROM outbox")).scalar_one() == 0


def test_that_a_page_has_ended_is_no_hand_over(people: Told2People) -> None:
    """After a week the message of then is deleted, and its mark with it: it went out once more."""
    people.simulation.driver.faults = ["refused"]
    people.simulation.settle()
    people.notifier.deliver()
    people.simulation.clock.elapsed += 8 * 24 * 3600
    people.outbox.prune()
    before = len(people.channel.told)
    people.simulation.cluster.cancel()
    people.simulation.tick(5)
    people.notifier.deliver()
    assert people.simulation.store.escalations() == []
    assert people.channel.titles[before:] == []


def test_what_was_for_a_channel_that_is_gone_is_given_up_after_a_day(people: Told2People) -> None:
    people.simulation.tick(1)
    other = Outbox(people.engine, people.simulation.clock, ["another"])
    other.prune()
    assert people.outbox.waiting()["fake"].count == 1, "it may be back after the next restart"
    people.simulation.clock.elapsed += EXPIRES_SECONDS
    Notifier(other, [], monotonic=people.simulation.clock.monotonic).start()
    assert people.outbox.waiting()["fake"].count == 0


def incident(**changes: Any) -> Incident:
    values: dict[str, Any] = {
        "id": "1", "run_id": RUN, "attempt": 0, "attempt_key": "slurm:17:0", "job_id": "17", "scheduler": "slurm",
        "alert": "TrainRunFailed", "failure_mode": "crash", "error_type": "nccl", "state": State.ESCALATED,
        "action": Action.ESCALATE, "reason": "because", "policy": "default", "budget_used": 1, "budget_limit": 3,
        "step_before": 40.0, "created": 1.0, "updated": 1.0, "paging": True,
    }  # fmt: skip
    return Incident(**{**values, **changes})


def test_text_of_others_is_no_markup_and_no_mention() -> None:
    shown = slack_text(HOSTILE)
    assert shown == "&lt;!channel&gt; &amp; &lt;https://evil|click&gt; '''  *bold*"
    message = Message(
        1, "slack", "mark", "decision",
        {"id": "1", "run_id": HOSTILE, "attempt": 0, "job_id": HOSTILE, "scheduler": "slurm", "alert": HOSTILE,
         "failure_mode": "crash", "error_type": HOSTILE, "state": "PROPOSED", "reason": HOSTILE, "action": "restart",
         "policy": HOSTILE,
         "budget": {"used": 0, "limit": 3}, "step_before": 1.0, "checkpoint_step": None, "detail": HOSTILE},
        0.0, 0, (HOSTILE,), (HOSTILE,),
    )  # fmt: skip
    body = json.dumps(as_slack(as_notice(message), HOSTILE), ensure_ascii=False)
    assert "<" not in body
    assert ">" not in body
    assert "\\u0000" not in body
    assert "```" not in body
    told = as_notice(message)
    assert len(told.text().splitlines()) == len(told.lines) + 2, "no text of others begins a line"


@pytest.mark.parametrize(
    ("approval", "title", "commands"),
    [
        ("", f"Restarting run {RUN}", ()),
        ("approval", f"Run {RUN} waits for an approval", ("approve", "veto")),
        ("veto:300", f"Run {RUN} is restarted in 300 s unless somebody vetoes it", ("approve", "veto")),
    ],
)
def test_a_decision_that_a_person_may_answer_names_the_commands(
    approval: str, title: str, commands: tuple[str, ...]
) -> None:
    shown = {**as_json(replace(incident(), approval=approval), []), "detail": "because"}
    told = as_notice(Message(1, "slack", "mark", "decision", shown, 0.0, 0, (), ()), "/a folder")
    assert told.title == title
    assert [name for name in ("approve", "veto") if f"-remediator {name} '--state-dir=/a folder' 1" in told.text()] == [
        *commands
    ]


def test_a_run_whose_user_has_cancelled_it_is_not_said_to_go_on() -> None:
    shown = {**as_json(replace(incident(), state=State.ADOPTED), []), "detail": "the job is over, and not by us"}
    assert as_notice(Message(1, "slack", "mark", "outcome", shown, 0.0, 0)).title == (
        f"Run {RUN} was restarted or ended by somebody else"
    )


class TestOfAlerts:
    """What an incident's alerts and facts say is in its message."""

    def test_suspects_and_evidence(self, tmp_path: Path) -> None:
        engine = open_database(tmp_path)
        with engine.begin() as connection:
            outbox = Outbox(engine, FakeClock(), ["slack", "sns"])
            insert_incident(connection, incident())
            labels = json.dumps({"run_id": RUN, "rank": "5", "node": "n7", "gpu": "3"})
            connection.execute(
                sa.text(
                    "INSERT INTO alerts (key, labels, source, received, last_seen, pending, dropped, incident_id)"
                    " VALUES ('k', :labels, 'poll', 1, 1, 0, 0, '1')"
                ),
                {"labels": labels},
            )
            connection.execute(
                sa.text(
                    "INSERT INTO facts (incident_id, decided, source, what, value)"
                    " VALUES ('1', 1, 'prometheus', 'step', '40')"
                )
            )
            outbox.note(connection, incident(), "because")
            outbox.note(connection, incident(), "because")
        [message] = outbox.due("slack")
        assert [each.mark for each in outbox.due("sns")] == [message.mark], "of each channel one"
        said = lines(as_notice(message))
        assert said["Suspect"] == "rank 5, node n7, gpu 3"
        assert said["Evidence"] == "step: 40 (prometheus)"
        assert said["Lost work"] == "all 40 steps, as far as is known: no checkpoint was reported"
        assert said["Budget"] == "2 of 3 restarts left"
        engine.dispose()


def insert_incident(connection: sa.Connection, made: Incident) -> None:
    from trainwarden_remediator.database.schema import incidents

    values = {**vars(made), "state": made.state.value, "action": made.action.value}
    connection.execute(incidents.insert().values(**values))


NOTICE = Notice("decision", RUN, "Restarting run <b>", "warning", (("Reason", "a & b"),))


class TestSlack:
    @pytest.fixture
    def sink(self) -> Iterator[SlackSink]:
        made = SlackSink()
        yield made
        made.close()

    def test_a_message_arrives_and_the_file_is_read_each_time(self, sink: SlackSink, tmp_path: Path) -> None:
        file = tmp_path / "url"
        file.write_text("http://127.0.0.1:1/away\n")
        slack = Slack(file)
        with pytest.raises(NotSent):
            slack.send(NOTICE, "m")
        file.write_text(sink.url + "\n")
        slack.send(NOTICE, "m")
        [message] = sink.messages
        assert message.text == "*Reason:* a &amp; b"
        assert message.payload["text"] == "Restarting run &lt;b&gt;"

    @pytest.mark.parametrize(
        ("status", "of_message"), [(400, True), (404, False), (429, False), (500, False), (302, False)]
    )
    def test_an_answer_other_than_200_is_not_sent(self, tmp_path: Path, status: int, of_message: bool) -> None:
        server = Scripted()
        server.status = status
        file = tmp_path / "url"
        file.write_text(f"{server.url}/services/s3cret\n")
        with pytest.raises(NotSent) as error:
            Slack(file).send(NOTICE, "m")
        server.close()
        assert str(error.value) == f"Slack answered {status}"
        assert error.value.of_message is of_message

    def test_the_address_is_in_no_message_and_no_log(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        file = tmp_path / "url"
        file.write_text("http://127.0.0.1:1/services/s3cret\n")
        with pytest.raises(NotSent) as error:
            Slack(file).send(NOTICE, "m")
        assert str(error.value) == "Slack gives no answer: connection"
        assert "s3cret" not in caplog.text

    @pytest.mark.parametrize("content", [None, "", "s3cret", "ftp://s3cret", "https://user:s3cret@h/x"])
    def test_a_file_without_an_address_is_refused_at_the_start(self, tmp_path: Path, content: str | None) -> None:
        file = tmp_path / "url"
        if content is not None:
            file.write_text(content)
        with pytest.raises(ConfigError) as error:
            Slack(file)
        assert str(error.value).startswith(f"--notify-slack-url-file: {file}: ")
        assert "s3cret" not in str(error.value)


class TestSns:
    ARN = "arn:aws:sns:us-east-1:123456789012:pages"

    def test_a_message_is_published_with_its_mark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        server = Scripted()
        server.body = b"<PublishResponse><PublishResult><MessageId>1</MessageId></PublishResult></PublishResponse>"
        for name, value in (("ENDPOINT_URL_SNS", server.url), ("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "s3cret")):
            monkeypatch.setenv(f"AWS_{name}", value)
        Sns(self.ARN).send(NOTICE, "the-mark")
        assert b"the-mark" in server.posted
        assert b"Reason" in server.posted
        Sns(f"{self.ARN}.fifo").send(NOTICE, "the-mark")
        assert b"MessageDeduplicationId=the-mark" in server.posted
        assert f"MessageGroupId={NOTICE.run_id}".encode() in server.posted
        Sns(f"{self.ARN}.fifo").send(replace(NOTICE, run_id=""), "of-a-storm")
        assert b"MessageGroupId=all-runs" in server.posted, "SNS refuses a message of no group"
        server.status = 403
        server.body = (
            b"<ErrorResponse><Error><Code>AuthorizationError</Code><Message>x</Message></Error></ErrorResponse>"
        )
        with pytest.raises(NotSent, match="SNS answered AuthorizationError"):
            Sns(self.ARN).send(NOTICE, "m")
        server.close()
        with pytest.raises(NotSent, match="SNS gives no answer"):
            Sns(self.ARN).send(NOTICE, "m")

    @pytest.mark.parametrize("topic", ["", "pages", "arn:aws:sqs:us-east-1:123456789012:pages", "arn:aws:sns:::x"])
    def test_what_is_no_topic_is_refused_at_the_start(self, topic: str) -> None:
        with pytest.raises(ConfigError, match="--notify-sns-topic"):
            Sns(topic)
