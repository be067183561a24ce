"""What the remediator and Slack receive from a real Alertmanager."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.alertmanager.running import SHIPPED, TOKEN, Alertmanager
from tests.waiting import wait_until
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools

STALLED = {
    "summary": "A training run is alive and does not advance.",
    "description": "Most often one rank waits for another.",
    "reason": "No new step for 12m 0s",
    "action": "Dump the stacks of the ranks.",
    "phase": "train",
    "duration": "2h 7m 0s",
    "instance": "gpu-7 (i-01fa5b57d64c6196a)",
    "last_log": "Step 1500/5000, loss: 2.134",
    "runbook_url": "https://runbooks.example/TrainRunStalled.md",
    "dashboard": "/d/train-run?var-run=mistral&from=now-1h",
}
CRITICAL = {"severity": "critical", "failure_mode": "stall", "error_type": "hang", "remediate": "true"}


def test_an_alert_for_the_machine_reaches_the_remediator_and_slack(alertmanager: Alertmanager) -> None:
    alertmanager.send("TrainRunStalled", STALLED, run_id="both", job_id="41", attempt="0", **CRITICAL)
    (alert,) = wait_until(lambda: alertmanager.webhook.alerts("both"))
    assert alert["labels"] == {
        "alertname": "TrainRunStalled",
        "run_id": "both",
        "job_id": "41",
        "attempt": "0",
        **CRITICAL,
    }
    assert {authorization for authorization, _ in alertmanager.webhook.calls} == {f"Bearer {TOKEN}"}
    assert {(body["version"], body["truncatedAlerts"]) for _, body in alertmanager.webhook.calls} == {("4", 0)}
    assert wait_until(lambda: alertmanager.messages("both"))


def test_the_slack_message_states_what_people_need(alertmanager: Alertmanager) -> None:
    alertmanager.send("TrainRunStalled", STALLED, run_id="mistral-20250804", **CRITICAL)
    (message,) = wait_until(lambda: alertmanager.messages("mistral-20250804"))
    assert message.title == "[FIRING] TrainRunStalled · mistral-20250804"
    assert message.color == "danger"
    lines = message.text.splitlines()
    assert lines[0] == "🔥 *A training run is alive and does not advance.*"
    assert lines[1:] == [
        "Run ID: mistral-20250804",
        "Status: STALLED",
        "Reason: No new step for 12m 0s",
        "🔧 Action Required: Dump the stacks of the ranks.",
        "Sent to the remediator: stall, hang",
        "Instance: gpu-7 (i-01fa5b57d64c6196a)",
        "Phase: train",
        "Duration: 2h 7m 0s",
        "Last Log: Step 1500/5000, loss: 2.134",
        " · ".join(
            [
                "<https://runbooks.example/TrainRunStalled.md|Runbook>",
                "<http://localhost:3000/d/train-run?var-run=mistral&amp;from=now-1h|Dashboard>",
                "<http://prometheus.example/graph?g0.expr=up&amp;g0.tab=1|Query>",
                f"<{alertmanager.url}/#/silences/new?filter=%7Brun_id%3D%22mistral-20250804%22%7D|Silence this run>",
            ]
        ),
    ]


def test_what_is_unknown_leaves_no_line(alertmanager: Alertmanager) -> None:
    alertmanager.send("TrainRunDegraded", {"summary": "Short."}, run_id="bare", severity="warning")
    (message,) = wait_until(lambda: alertmanager.messages("bare"))
    assert message.color == "warning"
    text, _, links = message.text.rpartition("\n")
    assert text == "⚠️ *Short.*\nRun ID: bare\nStatus: DEGRADED"
    assert links.startswith("<http://prometheus.example/")


def test_markup_in_labels_and_annotations_arrives_as_text(alertmanager: Alertmanager) -> None:
    evil = "<!channel> & <http://evil.example|click>\nStatus: SUCCEEDED"
    annotations = dict.fromkeys(STALLED, evil)
    alertmanager.send(
        "TrainRunStalled",
        annotations,
        run_id="evil<!here>",
        error_type=evil,
        severity="critical",
        remediate="true",
    )
    (message,) = wait_until(lambda: [each for each in alertmanager.slack.messages if "evil" in each.title])
    attachment = message.payload["attachments"][0]
    allowed = {"Runbook", "Dashboard", "Query", "Silence this run"}
    for field in ("title", "fallback", "text"):
        for tag in attachment[field].split("<")[1:]:
            address, _, name = tag.partition(">")[0].partition("|")
            assert name in allowed, f"{field} holds a tag of a stranger: <{tag}"
            assert "<" not in address
    assert "&lt;!channel&gt; &amp; &lt;http://evil.example|click&gt;" in attachment["text"]
    assert [line for line in attachment["text"].splitlines() if line.startswith("Status:")] == ["Status: STALLED"]


def test_several_alerts_of_a_run_are_one_message(alertmanager: Alertmanager) -> None:
    for name in ("TrainRunFailed", "TrainRunRestartExhausted"):
        alertmanager.send(name, {**STALLED, "reason": f"why {name}"}, run_id="several", severity="critical")
    (message,) = wait_until(lambda: alertmanager.messages("several"))
    assert "why TrainRunFailed" in message.text
    assert "why TrainRunRestartExhausted" in message.text
    assert "Status: FAILED" in message.text
    assert "Status: GIVEN UP" in message.text
    assert {"TrainRunFailed", "TrainRunRestartExhausted"} == set(
        message.title.split("] ")[1].split(" · ")[0].split(", ")
    )


def test_a_success_reads_as_one_and_is_never_taken_back(alertmanager: Alertmanager) -> None:
    labels = {"run_id": "won", "severity": "info", "failure_mode": "success", "remediate": "false"}
    annotations = {"summary": "A training run has finished.", "action": "Nothing to do.", "duration": "3h 0m 0s"}
    alertmanager.send("TrainRunSucceeded", annotations, **labels)
    (message,) = wait_until(lambda: alertmanager.messages("won"))
    assert message.title == "✅ TrainRunSucceeded · won"
    assert message.color == "good"
    assert message.text.startswith(
        "✅ *A training run has finished.*\nRun ID: won\nStatus: SUCCEEDED\nDuration: 3h 0m 0s\n<"
    )
    # Another run's failure, ended later, is told: by then the end of this one would have been.
    alertmanager.end("TrainRunSucceeded", annotations, **labels)
    alertmanager.send("TrainRunFailed", run_id="later", severity="critical", remediate="false")
    wait_until(lambda: alertmanager.messages("later"))
    alertmanager.end("TrainRunFailed", run_id="later", severity="critical", remediate="false")
    over = wait_until(lambda: [each for each in alertmanager.messages("later") if "RESOLVED" in each.title])[0]
    assert over.text.startswith("↩️ *Over: a training run had failed.*\n")
    assert len(alertmanager.messages("won")) == 1


def test_an_end_reaches_the_remediator_and_reads_as_no_more_than_an_end(alertmanager: Alertmanager) -> None:
    alertmanager.send("TrainRunStalled", STALLED, run_id="ended", **CRITICAL)
    wait_until(lambda: alertmanager.webhook.alerts("ended"))
    wait_until(lambda: alertmanager.messages("ended"))
    alertmanager.end("TrainRunStalled", STALLED, run_id="ended", **CRITICAL)
    wait_until(lambda: alertmanager.webhook.alerts("ended", status="resolved"))
    message = wait_until(lambda: alertmanager.messages("ended")[1:])[0]
    assert message.title == "[RESOLVED] TrainRunStalled · ended"
    assert message.color == "good"
    assert message.text.startswith("↩️ *Over: a training run did not advance.*\n")
    assert "Status: no longer STALLED" in message.text
    assert "Action Required" not in message.text


def rendered(tools: Tools, template: str, notification: dict[str, Any], folder: Path) -> str:
    """Return what amtool makes of a template and a notification, as a real Alertmanager sent it to a webhook."""
    data = folder / "data.json"
    data.write_text(json.dumps(notification), encoding="utf-8")
    done = subprocess.run(
        [
            str(tools.amtool),
            "template",
            "render",
            f"--template.glob={SHIPPED / 'templates' / '*.tmpl'}",
            f'--template.text={{{{ template "{template}" . }}}}',
            f"--template.data={data}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_sns_message_holds_the_same_and_an_end_reads_as_an_end(
    alertmanager: Alertmanager, tools: Tools, tmp_path: Path
) -> None:
    annotations = {**STALLED, "s3": "s3://bucket/runs/topic", "s3_console": "https://console.example/topic"}
    alertmanager.send("TrainRunStalled", annotations, run_id="topic", **CRITICAL)

    def notification(status: str) -> dict[str, Any] | None:
        bodies = [body for _, body in alertmanager.webhook.calls]
        return next((each for each in bodies if "topic" in str(each["groupLabels"]) and each["status"] == status), None)

    firing = wait_until(lambda: notification("firing"))
    assert rendered(tools, "trainwarden.sns.subject", firing, tmp_path).startswith("[FIRING] ")
    assert rendered(tools, "trainwarden.sns.message", firing, tmp_path).strip().splitlines() == [
        "A training run is alive and does not advance.",
        "Run ID: topic",
        "Status: STALLED",
        "Reason: No new step for 12m 0s",
        "Action Required: Dump the stacks of the ranks.",
        "Sent to the remediator: stall, hang",
        "Instance: gpu-7 (i-01fa5b57d64c6196a)",
        "Phase: train",
        "Duration: 2h 7m 0s",
        "Last Log: Step 1500/5000, loss: 2.134",
        "S3: s3://bucket/runs/topic",
        "S3 Console: https://console.example/topic",
        "Runbook: https://runbooks.example/TrainRunStalled.md",
        "Dashboard: http://localhost:3000/d/train-run?var-run=mistral&from=now-1h",
    ]
    ended = {**firing, "status": "resolved", "alerts": [{**each, "status": "resolved"} for each in firing["alerts"]]}
    text = rendered(tools, "trainwarden.sns.message", ended, tmp_path)
    assert "no longer" in text
    assert "Action Required" not in text
    assert "Sent to the remediator" not in text
