"""What each receiver that is off by default sends to its service once it is on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs

import pytest

from tests.alertmanager.running import SWITCHES, Alertmanager, alertmanager, firing
from tests.alertmanager.smtp_sink import SmtpSink, smtp_sink
from tests.waiting import wait_until
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools

SUMMARY = "A training run has failed."
FAILED = {"severity": "critical", "failure_mode": "crash", "subsystem": "gpu", "remediate": "true"}


@dataclass(frozen=True)
class Everything:
    running: Alertmanager
    mail: SmtpSink


@pytest.fixture(scope="module")
def everything(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    """All switches on; two runs and a node have failed at once."""
    with smtp_sink() as mail:
        edits = {
            "routing_key_file: secrets/pagerduty_routing_key": (
                "routing_key_file: secrets/pagerduty_routing_key\n        url: WEBHOOK/pagerduty"
            ),
            "api_key_file: secrets/opsgenie_api_key": (
                "api_key_file: secrets/opsgenie_api_key\n        api_url: WEBHOOK/opsgenie/"
            ),
            "smarthost: smtp.example.com:587": f"smarthost: {mail.address}\n        require_tls: false",
            "region: us-east-1": "region: us-east-1\n          access_key: AKIATEST\n          secret_key: of-the-test",
            "topic_arn: ": "api_url: WEBHOOK/sns\n        topic_arn: ",
            "https://deadman.example.com/ping": "WEBHOOK/deadman",
            "group_wait: 30s\n      group_interval: 5m": "group_wait: 3s",
        }
        folder = tmp_path_factory.mktemp("switches")
        with alertmanager(tools, folder, switches=SWITCHES, edits=edits) as running:
            running.post(
                [
                    *(
                        firing(
                            "TrainRunFailed", {"summary": SUMMARY}, cluster="c", run_id=run, node=f"of-{run}", **FAILED
                        )
                        for run in ("a", "b")
                    ),
                    firing("TrainRunRestartExhausted", cluster="c", run_id="a", severity="critical", remediate="false"),
                    firing("TrainGpuLost", cluster="c", node="n7", instance="n7:9745", gpu="3", severity="critical"),
                    firing("TrainGpuXidFatal", cluster="c", node="n7", instance="head:9745", severity="critical"),
                    firing("TrainWatchdog", cluster="c", severity="none", remediate="false"),
                ]
            )
            yield Everything(running, mail)


def test_pagerduty_gets_one_incident_per_run_and_node(everything: Everything) -> None:
    calls = wait_until(lambda: found if len(found := everything.running.webhook.to("/pagerduty")) == 3 else None)
    assert len({call.body["dedup_key"] for call in calls}) == 3
    assert {call.body["routing_key"] for call in calls} == {"secret-pagerduty_routing_key"}
    assert {call.body["event_action"] for call in calls} == {"trigger"}
    (run,) = [call.body for call in calls if "Run ID: b" in call.body["payload"]["custom_details"]["firing"]]
    assert run["payload"]["summary"] == "[FIRING] TrainRunFailed b"
    assert (run["payload"]["class"], run["payload"]["component"], run["payload"]["group"]) == ("crash", "gpu", "c")
    assert SUMMARY in run["payload"]["custom_details"]["firing"]
    (node,) = [call.body for call in calls if "n7" in call.body["payload"]["summary"]]
    assert "Status: TrainGpuXidFatal" in node["payload"]["custom_details"]["firing"]


def test_opsgenie_gets_one_alert_per_run_and_node(everything: Everything) -> None:
    calls = wait_until(
        lambda: found if len(found := everything.running.webhook.to("/opsgenie/v2/alerts")) == 3 else None
    )
    assert {call.headers["Authorization"] for call in calls} == {"GenieKey secret-opsgenie_api_key"}
    assert len({call.body["alias"] for call in calls}) == 3
    assert "[FIRING] TrainRunFailed b" in {call.body["message"] for call in calls}


def test_mail_tells_of_all_at_once(everything: Everything) -> None:
    (mail,) = wait_until(lambda: everything.mail.messages)
    assert mail["Subject"].startswith("[FIRING] ")
    assert mail["Subject"].endswith(" (5)")
    assert mail["To"] == "training-oncall@example.com"
    (text,) = [part.get_content() for part in mail.walk() if part.get_content_type() == "text/plain"]
    assert text.count(SUMMARY) == 2
    assert not [part for part in mail.walk() if part.get_content_type() == "text/html"]


def test_a_topic_gets_subject_and_message(everything: Everything) -> None:
    call = wait_until(lambda: everything.running.webhook.to("/sns"))[0]
    published = {name: values[0] for name, values in parse_qs(call.body.decode()).items()}
    assert published["Action"] == "Publish"
    assert published["Subject"].startswith("[FIRING] ")
    assert SUMMARY in published["Message"]
    assert "AKIATEST" in call.headers["Authorization"]


def test_the_watchdog_reaches_the_remediator_and_the_switch_outside_and_no_person(everything: Everything) -> None:
    running = everything.running
    (call, *_) = wait_until(lambda: running.webhook.to("/deadman"))
    assert [each["labels"]["alertname"] for each in call.body["alerts"]] == ["TrainWatchdog"]
    wait_until(lambda: [body for _, body in running.webhook.calls if "TrainWatchdog" in json.dumps(body)])
    wait_until(lambda: running.slack.messages)
    wait_until(lambda: everything.mail.messages)
    assert "TrainWatchdog" not in str([message.payload for message in running.slack.messages])
    assert "TrainWatchdog" not in str(running.webhook.to("/pagerduty"))
    assert "TrainWatchdog" not in str(everything.mail.messages[0])


def test_an_end_closes_the_incident_that_was_opened(everything: Everything) -> None:
    running = everything.running
    opened = wait_until(
        lambda: [each for each in running.webhook.to("/pagerduty") if "b" in each.body["payload"]["summary"]]
    )
    running.end("TrainRunFailed", {"summary": SUMMARY}, cluster="c", run_id="b", node="of-b", **FAILED)
    closed = wait_until(
        lambda: [each.body for each in running.webhook.to("/pagerduty") if each.body["event_action"] == "resolve"]
    )
    assert closed[0]["dedup_key"] in {each.body["dedup_key"] for each in opened}
