"""What the remediator and Slack receive from a real Alertmanager."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.alertmanager.running import SHIPPED, TOKEN, Alertmanager, firing, rfc3339
from tests.waiting import wait_until
from trainwarden.clients.alertmanager import AlertmanagerClient
from trainwarden.stack.binaries import Tools
from trainwarden.stack.slack_sink import Message

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
    "ranks": "3, 7",
    "lost_work": "41 steps, 6 GPU hours",
    "remediation": "restarts left: 2",
}
# As long as the texts of the shipped rules are.
TYPICAL = {**STALLED, "reason": "r" * 150, "action": "a" * 250, "last_log": "l" * 150, "instance": "i" * 40}
SENT = (
    "Sent to the remediator: it reads the run and its job again, "
    "and restarts the run if its policy allows that after a stall (hang)."
)
PLACES = ("cluster", "node", "instance", "gpu", "device", "rank", "job_id", "attempt", "scheduler")
# What is no longer so once the alert is over.
PAST = {"Duration", "Since", "Rank", "Phase", "Last Log", "Lost Work", "Reason", "Sent to the remediator"}
PAST |= {"Remediation"}
CRITICAL = {"severity": "critical", "failure_mode": "stall", "error_type": "hang", "remediate": "true"}


def test_an_alert_for_the_machine_reaches_the_remediator_and_slack(alertmanager: Alertmanager) -> None:
    alertmanager.send("TrainRunStalled", STALLED, cluster="c-both", run_id="both", job_id="41", attempt="0", **CRITICAL)
    (alert,) = wait_until(lambda: alertmanager.webhook.alerts("both"))
    assert alert["labels"] == {
        "alertname": "TrainRunStalled",
        "cluster": "c-both",
        "run_id": "both",
        "job_id": "41",
        "attempt": "0",
        **CRITICAL,
    }
    assert {authorization for authorization, _ in alertmanager.webhook.calls} == {f"Bearer {TOKEN}"}
    assert {(body["version"], body["truncatedAlerts"]) for _, body in alertmanager.webhook.calls} == {("4", 0)}
    assert wait_until(lambda: alertmanager.messages("both"))


def test_the_slack_message_reads_in_the_order_of_the_questions(alertmanager: Alertmanager) -> None:
    alertmanager.send("TrainRunStalled", STALLED, cluster="prod", run_id="mistral-20250804", **CRITICAL)
    (message,) = wait_until(lambda: alertmanager.messages("mistral-20250804"))
    assert message.title == "[FIRING] TrainRunStalled · mistral-20250804 · prod"
    assert message.color == "danger"
    silence = f"{alertmanager.url}/#/silences/new?filter=%7Bcluster%3D%22prod%22%2Crun_id%3D%22mistral-20250804%22"
    since = re.search(r"^Since: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$", message.text, re.MULTILINE)
    assert since is not None
    assert message.text.splitlines() == [
        "🔥 *A training run is alive and does not advance.*",
        "Run ID: mistral-20250804",
        "Status: STALLED",
        "Reason: No new step for 12m 0s",
        "Duration: 2h 7m 0s",
        since[0],
        "Instance: gpu-7 (i-01fa5b57d64c6196a)",
        "Rank: 3, 7",
        "Cluster: prod",
        "Phase: train",
        "Last Log: Step 1500/5000, loss: 2.134",
        "Lost Work: 41 steps, 6 GPU hours",
        SENT,
        "Remediation: restarts left: 2",
        "🔧 Action Required: Dump the stacks of the ranks.",
        " · ".join(
            [
                "<https://runbooks.example/TrainRunStalled.md|Runbook>",
                "<http://localhost:3000/d/train-run?var-run=mistral&amp;from=now-1h|Dashboard>",
                "<http://prometheus.example/graph?g0.expr=up&amp;g0.tab=1|Query>",
                f"<{silence}%2Cremediate%3D%22true%22%7D|Hold remediation>",
                f"<{silence}%7D|Silence this run>",
            ]
        ),
    ]


def test_what_is_unknown_leaves_no_line(alertmanager: Alertmanager) -> None:
    alertmanager.send("TrainRunDegraded", {"summary": "Short."}, cluster="c-bare", run_id="bare", severity="warning")
    (message,) = wait_until(lambda: alertmanager.messages("bare"))
    assert message.color == "warning"
    *lines, links = message.text.splitlines()
    assert lines[:3] == ["⚠️ *Short.*", "Run ID: bare", "Status: DEGRADED"]
    assert [line.partition(":")[0] for line in lines[3:]] == ["Since", "Cluster"]
    assert links.startswith("<http://prometheus.example/")


def test_an_alert_about_a_node_names_it_and_its_device(alertmanager: Alertmanager) -> None:
    labels = {"cluster": "c-node", "node": "gpu-7", "instance": "gpu-7:9745", "gpu": "3", "device": "rdmap16s27"}
    annotations = {"summary": "A GPU is lost.", "description": "GPU 3 of gpu-7 has fallen off the bus."}
    alertmanager.send(
        "TrainGpuLost", annotations, severity="critical", failure_mode="degraded", remediate="false", **labels
    )
    (message,) = wait_until(lambda: alertmanager.messages_of("c-node"))
    assert message.title == "[FIRING] TrainGpuLost · gpu-7 · c-node"
    lines = message.text.splitlines()
    assert lines[:3] == [
        "🔥 *A GPU is lost.*",
        "Status: TrainGpuLost",
        "Reason: GPU 3 of gpu-7 has fallen off the bus.",
    ]
    assert lines[4:9] == [
        "Node: gpu-7 (gpu-7:9745)",
        "GPU: 3",
        "Device: rdmap16s27",
        "Cluster: c-node",
        "Nothing is restarted automatically for this.",
    ]
    routed = {"severity": "critical", "failure_mode": "degraded", "remediate": "false"}
    expected = {"alertname": "TrainGpuLost", **labels, **routed, "run_id": ""}
    assert silenced(alertmanager, message, "Silence this alert") == expected
    assert "Silence this run" not in message.text


def test_an_end_names_what_is_over_for_every_alert(alertmanager: Alertmanager) -> None:
    labels = {"cluster": "c-over", "node": "gpu-7", "severity": "warning"}
    annotations = {"summary": "A GPU is <!here> throttled."}
    alertmanager.send("TrainGpuThrottled", annotations, **labels)
    wait_until(lambda: alertmanager.messages_of("c-over"))
    alertmanager.end("TrainGpuThrottled", annotations, **labels)
    message = wait_until(lambda: alertmanager.messages_of("c-over")[1:])[0]
    assert message.title == "[RESOLVED] TrainGpuThrottled · gpu-7 · c-over"
    lines = message.text.splitlines()
    assert lines[:2] == ["↩️ *Over: A GPU is !here throttled.*", "Status: no longer TrainGpuThrottled"]
    assert re.fullmatch(r"Lasted: (\d+m)?\d+s", lines[2])


HOSTILE = [
    "<!channel> & <http://evil.example|click>\nStatus: SUCCEEDED",
    'a"b\\c`d|e}f{g,h=i%20j+k $1 \t{{ .Labels }} é 🙂',
    "``` code\r\n\x1b[31m \u202e reversed",
    "&" * 10_000,
    "x" * 10_000,
    "!channel",
]


def test_hostile_values_arrive_as_bounded_text(alertmanager: Alertmanager) -> None:
    for place, evil in enumerate(HOSTILE):
        alertmanager.send(
            "TrainRunStalled",
            {**dict.fromkeys(STALLED, evil), "remediation": evil},
            cluster=f"c-evil-{place}",
            run_id=evil,
            node=evil,
            gpu=evil,
            device=evil,
            rank=evil,
            error_type=evil,
            failure_mode=evil,
            severity="critical",
            remediate="true",
        )
    for place, evil in enumerate(HOSTILE):
        (message,) = wait_until(lambda: alertmanager.messages_of(f"c-evil-{place}"))  # noqa: B023
        assert_bounded(alertmanager, message, evil, f"c-evil-{place}")


def assert_bounded(alertmanager: Alertmanager, message: Message, evil: str, cluster: str) -> None:
    """Assert that a message is text, as long as Slack takes, with no links but its own."""
    attachment = message.payload["attachments"][0]
    allowed = {"Runbook", "S3 Console", "Dashboard", "Query", "Silence this run", "Hold remediation", "Alertmanager"}
    for part in ("title", "fallback", "text", "title_link"):
        assert len(attachment[part]) < 40_000
        assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]|```", attachment[part])
        for tag in attachment[part].split("<")[1:]:
            address, _, name = tag.partition(">")[0].partition("|")
            assert name in allowed, f"{part} holds a tag of a stranger: <{tag}"
            assert "<" not in address
    assert len(message.text) < 8_000  # Slack cuts the rest
    assert [line for line in message.text.splitlines() if line.startswith("Status:")] == ["Status: STALLED"]
    if len(evil) < 200:
        assert silenced(alertmanager, message, "Silence this run") == {"cluster": cluster, "run_id": evil}
        expected = {"cluster": cluster, "run_id": evil, "remediate": "true"}
        assert silenced(alertmanager, message, "Hold remediation") == expected
    else:
        assert "silences" not in message.text


def silenced(alertmanager: Alertmanager, message: Message, name: str) -> dict[str, str]:
    """Return the matchers of a link, after Alertmanager itself has found exactly one alert by them."""
    (address,) = re.findall(rf"<([^<>|]+)\|{name}>", message.text)
    filter_ = unquote(urlsplit(urlsplit(address).fragment).query.removeprefix("filter="))
    assert filter_.startswith("{")
    assert filter_.endswith("}")
    matchers = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*")(?:,|$)', filter_[1:-1], re.DOTALL)
    assert ",".join(f"{label}={value}" for label, value in matchers) == filter_[1:-1]
    found = AlertmanagerClient(alertmanager.url).alerts(*(f"{label}={value}" for label, value in matchers))
    assert len(found) == 1, filter_
    return {label: found[0].labels.get(label, "") for label, _ in matchers}


def test_the_links_of_a_run_name_its_cluster(alertmanager: Alertmanager) -> None:
    for cluster in ("east", "west"):
        alertmanager.send("TrainRunStalled", STALLED, cluster=cluster, run_id="twin", **CRITICAL)
    messages = wait_until(lambda: found if len(found := alertmanager.messages("twin")) == 2 else None)
    assert {message.title.rpartition(" · ")[2] for message in messages} == {"east", "west"}
    for message in messages:
        cluster = message.title.rpartition(" · ")[2]
        assert silenced(alertmanager, message, "Silence this run") == {"cluster": cluster, "run_id": "twin"}


def test_the_links_match_no_other_alert(alertmanager: Alertmanager) -> None:
    """Neither the same run in a cluster with a name, nor what the machine acts on, nor another attempt."""
    doubtful = {"severity": "critical", "run_id": "alone", "attempt": "0", "node": "n1", "remediate": "false"}
    more = [{"cluster": "named"}, {"attempt": "1"}, {"remediate": "true"}, {"severity": "warning"}]
    for other in more:
        alertmanager.send("TrainRunTimedOut", STALLED, **{**doubtful, **other})
    alertmanager.send("TrainMonitoringBlind", STALLED, severity="critical", cluster="other", run_id="blind")
    wait_until(lambda: alertmanager.messages("blind"))
    alertmanager.send("TrainRunTimedOut", {**STALLED, "reason": "doubt"}, **doubtful)
    alertmanager.send("TrainMonitoringBlind", {**STALLED, "reason": "no exporter"}, severity="critical")
    for reason, links in (
        ("doubt", ["Silence this alert", "Silence this run"]),
        ("no exporter", ["Silence this alert"]),
    ):
        message = wait_until(lambda: showing(alertmanager, f"Reason: {reason}\n"))  # noqa: B023
        text = message.text[message.text.index(f"Reason: {reason}\n") :]
        for name in links:
            address = re.findall(rf"<([^<>|]+)\|{name}>", text)[0]
            matchers = re.findall(r'(\w+="[^"]*")', unquote(urlsplit(urlsplit(address).fragment).query))
            matched = AlertmanagerClient(alertmanager.url).alerts(*matchers)
            assert {"cluster" in each.labels for each in matched} == {False}
            assert len(matched) == (1 if name == "Silence this alert" else 4)


def showing(alertmanager: Alertmanager, part: str) -> Message | None:
    """The first message to Slack that holds a text."""
    return next((each for each in list(alertmanager.slack.messages) if part in each.text), None)


def test_several_alerts_of_a_run_are_one_message(alertmanager: Alertmanager) -> None:
    names = ["TrainRunFailed", "TrainRunRestartExhausted"]
    labels = {"cluster": "c-several", "run_id": "several", "severity": "critical"}
    alertmanager.post([firing(name, {**STALLED, "reason": f"why {name}"}, **labels) for name in names])
    (message,) = wait_until(lambda: alertmanager.messages("several"))
    for part in ("why TrainRunFailed", "why TrainRunRestartExhausted", "Status: FAILED", "Status: NEEDS A PERSON"):
        assert part in message.text
    assert message.title == "[FIRING] TrainRunFailed, TrainRunRestartExhausted · several · c-several"


def test_a_message_tells_the_news_first_and_what_goes_on_in_a_line(alertmanager: Alertmanager) -> None:
    labels = {"cluster": "c-news", "severity": "critical", "remediate": "true"}
    earlier = rfc3339(time.time() - 7200)
    old = [{**firing("TrainRunFailed", STALLED, run_id=f"old-{n}", **labels), "startsAt": earlier} for n in range(4)]
    alertmanager.post([*old, firing("TrainRunTimedOut", STALLED, run_id="young", **labels)])
    # Alertmanager may send the group before it has taken the last of what was posted.
    message, *_ = wait_until(lambda: [each for each in alertmanager.messages("young") if each.text.count("old-") == 4])
    assert message.title == "[FIRING] TrainRunTimedOut · young · c-news"
    news, _, rest = message.text.partition("\n\nStill firing:\n")
    assert "old-" not in news
    line = f"c-news, since {earlier[11:16]} UTC: No new step for 12m 0s"
    assert rest.splitlines() == [f"• TrainRunFailed · old-{n} · {line}" for n in range(4)]


def test_a_storm_is_one_message_that_names_some_and_counts_all(alertmanager: Alertmanager) -> None:
    labels = {"cluster": "c-storm", "severity": "critical", "failure_mode": "crash", "remediate": "true"}
    alertmanager.post([firing("TrainRunFailed", TYPICAL, run_id=f"storm-{n:02}", **labels) for n in range(60)])
    (message,) = wait_until(lambda: alertmanager.messages("storm-00"))
    assert message.title == "[FIRING] TrainRunFailed · storm-00, storm-01, storm-02 and 57 more · c-storm"
    assert len(re.findall(r"^Run ID: ", message.text, re.MULTILINE)) == 3
    assert len(re.findall(r"^• TrainRunFailed · storm-", message.text, re.MULTILINE)) == 8
    last = message.text.splitlines()[-1]
    assert last == f"and 49 more: <{alertmanager.url}/#/alerts?filter=%7Bcluster%3D%22c-storm%22%7D|all alerts>"
    assert len(message.text) < 8_000  # Slack cuts the rest


def test_forty_nodes_without_a_run_are_named(alertmanager: Alertmanager) -> None:
    labels = {"cluster": "c-nodes", "severity": "critical", "failure_mode": "crash", "remediate": "false"}
    alertmanager.post(
        [
            firing("TrainGpuLost", TYPICAL, node=f"n{n:02}", instance=f"n{n:02}:9745", gpu="0", **labels)
            for n in range(40)
        ]
    )
    (message,) = wait_until(lambda: alertmanager.messages_of("c-nodes"))
    assert message.title == "[FIRING] TrainGpuLost · n00, n01, n02 and 37 more · c-nodes"
    links = re.findall(r"<([^<>|]+)\|Silence this alert>", message.text)
    assert len(links) == 3
    assert all(f"node%3D%22n0{n}%22" in link for n, link in enumerate(links))
    assert re.findall(r"^• TrainGpuLost · (n\d\d) ", message.text, re.MULTILINE) == [f"n{n:02}" for n in range(3, 11)]


def test_a_success_reads_as_one_and_is_never_taken_back(alertmanager: Alertmanager) -> None:
    labels = {"cluster": "c-won", "run_id": "won", "severity": "info", "failure_mode": "success", "remediate": "false"}
    annotations = {"summary": "A training run has finished.", "action": "Nothing to do.", "duration": "3h 0m 0s"}
    alertmanager.send("TrainRunSucceeded", annotations, **labels)
    (message,) = wait_until(lambda: alertmanager.messages("won"))
    assert message.title == "✅ TrainRunSucceeded · won · c-won"
    assert message.color == "good"
    lines = message.text.splitlines()
    assert lines[:4] == [
        "✅ *A training run has finished.*",
        "Run ID: won",
        "Status: SUCCEEDED",
        "Duration: 3h 0m 0s",
    ]
    assert "Nothing is restarted" not in message.text
    assert "Action Required" not in message.text
    # The end of another run's failure is reported: by then the end of this one would have been.
    alertmanager.end("TrainRunSucceeded", annotations, **labels)
    later = {"cluster": "c-later", "run_id": "later", "severity": "warning", "remediate": "false"}
    alertmanager.send("TrainRunFailed", **later)
    wait_until(lambda: alertmanager.messages("later"))
    alertmanager.end("TrainRunFailed", **later)
    over = wait_until(lambda: [each for each in alertmanager.messages("later") if "RESOLVED" in each.title])[0]
    assert over.text.startswith("↩️ *Over: a training run had failed.*\n")
    assert len(alertmanager.messages("won")) == 1


def test_what_is_only_information_reads_as_no_success_and_has_its_next_step(alertmanager: Alertmanager) -> None:
    labels = {"cluster": "c-info", "run_id": "info", "severity": "info", "failure_mode": "degraded"}
    annotations = {"summary": "A training run could not be brought back.", "action": "Remove what stands in the way."}
    alertmanager.send("TrainRunNotRecoverable", annotations, remediate="false", **labels)
    (message,) = wait_until(lambda: alertmanager.messages("info"))
    assert message.title == "[FIRING] TrainRunNotRecoverable · info · c-info"
    lines = message.text.splitlines()
    assert lines[0] == "\N{INFORMATION SOURCE}\N{VARIATION SELECTOR-16} *A training run could not be brought back.*"
    assert "🔧 Action Required: Remove what stands in the way." in lines


def test_a_success_that_is_a_warning_reads_as_one(alertmanager: Alertmanager) -> None:
    labels = {"cluster": "c-nan", "run_id": "nan", "severity": "warning", "failure_mode": "success"}
    annotations = {"summary": "A training run has succeeded with a loss that is no number.", "action": "Look."}
    alertmanager.send("TrainRunNonFinite", annotations, remediate="false", **labels)
    (message,) = wait_until(lambda: alertmanager.messages("nan"))
    assert message.title == "[FIRING] TrainRunNonFinite · nan · c-nan"
    assert message.text.startswith("⚠️ *")


def test_earlier_successes_are_not_told_again(alertmanager: Alertmanager) -> None:
    labels = {"cluster": "c-wins", "severity": "info", "failure_mode": "success", "remediate": "false"}
    first = {**firing("TrainRunSucceeded", run_id="first", **labels), "startsAt": rfc3339(time.time() - 600)}
    alertmanager.post([first, firing("TrainRunSucceeded", run_id="second", **labels)])
    (message,) = wait_until(lambda: alertmanager.messages("second"))
    assert message.title == "✅ TrainRunSucceeded · second · c-wins"
    assert "first" not in message.text
    assert " more: " not in message.text


def test_an_end_reaches_the_remediator_and_reads_as_no_more_than_an_end(alertmanager: Alertmanager) -> None:
    alertmanager.send("TrainRunStalled", STALLED, cluster="c-ended", run_id="ended", **CRITICAL)
    wait_until(lambda: alertmanager.webhook.alerts("ended"))
    wait_until(lambda: alertmanager.messages("ended"))
    alertmanager.end("TrainRunStalled", STALLED, cluster="c-ended", run_id="ended", **CRITICAL)
    wait_until(lambda: alertmanager.webhook.alerts("ended", status="resolved"))
    message = wait_until(lambda: alertmanager.messages("ended")[1:])[0]
    assert message.title == "[RESOLVED] TrainRunStalled · ended · c-ended"
    assert message.color == "good"
    assert message.text.startswith("↩️ *Over: a training run did not advance.*\n")
    assert "Status: no longer STALLED\nReason was: No new step for 12m 0s\nLasted: " in message.text
    assert "Action Required" not in message.text
    assert "silences" not in message.text
    assert not PAST & {line.partition(":")[0] for line in message.text.splitlines()}


def rendered(tools: Tools, template: str, notification: dict[str, Any], folder: Path) -> str:
    """Return what amtool makes of a template and a notification, as a real Alertmanager sent it to a webhook."""
    (text,) = rendered_by_all(tools, [template], notification, folder)
    return text


# No text of a test has it.
_BETWEEN = "<between two templates>"


def rendered_by_all(tools: Tools, templates: Sequence[str], notification: dict[str, Any], folder: Path) -> list[str]:
    """Return what amtool makes of each template in one call."""
    texts = [f'{{{{ template "{template}" . }}}}' for template in templates]
    data = folder / "data.json"
    data.write_text(json.dumps(notification), encoding="utf-8")
    done = subprocess.run(
        [
            str(tools.amtool),
            "template",
            "render",
            f"--template.glob={SHIPPED / 'templates' / '*.tmpl'}",
            f"--template.text={_BETWEEN.join(texts)}",
            f"--template.data={data}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(_BETWEEN)


WIDE = {
    "of one byte": "word " * 200,
    "of four bytes": "🙂" * 400,
    "that are escaped": "a <b> & " * 100,
}


def wide(text: str, number: int, label: str) -> dict[str, Any]:
    """A notification of so many alerts, whose texts and labels are long."""
    url = "https://console.example/" + "p/" * 480
    alerts = [
        {
            "status": "firing",
            "labels": {"alertname": "TrainRunStalled", "run_id": f"{each:03}{label}", **dict.fromkeys(PLACES, label)}
            | CRITICAL,
            "annotations": dict.fromkeys(STALLED, text)
            | dict.fromkeys(("runbook_url", "s3_console", "dashboard"), url),
            "startsAt": rfc3339(time.time()),
            "generatorURL": url,
        }
        for each in range(number)
    ]
    return {"status": "firing", "alerts": alerts, "commonLabels": {}, "groupLabels": {}, "externalURL": "http://am"}


def test_a_message_to_slack_has_as_many_bytes_as_it_takes_and_counts_what_is_left_out(
    tools: Tools, tmp_path: Path
) -> None:
    for (name, text), number, is_long in product(WIDE.items(), (1, 3, 60), (False, True)):
        label = text[:190] if is_long else "n1"
        shown = rendered(tools, "trainwarden.slack.text", wide(text, number, label), tmp_path)
        case = f"{number} alerts with texts {name}, label {label}"
        assert len(shown.encode()) < 8_000, case
        full, listed = len(re.findall(r"^Run ID: ", shown, re.MULTILINE)), len(re.findall(r"^• ", shown, re.MULTILINE))
        left_out = re.findall(r"^and (\d+) more: ", shown, re.MULTILINE)
        assert full >= 1, case
        assert full + listed + int(left_out[0] if left_out else 0) == number, case


def test_the_plain_message_holds_the_same_and_an_end_reads_as_an_end(
    alertmanager: Alertmanager, tools: Tools, tmp_path: Path
) -> None:
    annotations = {**STALLED, "s3": "s3://bucket/runs/topic", "s3_console": "https://console.example/a&b"}
    alertmanager.send("TrainRunStalled", annotations, cluster="c-topic", run_id="topic", **CRITICAL)

    def notification(status: str) -> dict[str, Any] | None:
        bodies = [body for _, body in alertmanager.webhook.calls]
        return next((each for each in bodies if "topic" in str(each["groupLabels"]) and each["status"] == status), None)

    data = wait_until(lambda: notification("firing"))
    silence = f"{alertmanager.url}/#/silences/new?filter="
    assert rendered(tools, "trainwarden.plain.subject", data, tmp_path) == "[FIRING] TrainRunStalled topic"
    lines = rendered(tools, "trainwarden.plain.message", data, tmp_path).strip().splitlines()
    assert lines[4].startswith("Duration: ")
    assert lines[5].startswith("Since: ")
    del lines[5]
    assert lines == [
        "A training run is alive and does not advance.",
        "Run ID: topic",
        "Status: STALLED",
        "Reason: No new step for 12m 0s",
        "Duration: 2h 7m 0s",
        "Instance: gpu-7 (i-01fa5b57d64c6196a)",
        "Rank: 3, 7",
        "Cluster: c-topic",
        "Phase: train",
        "Last Log: Step 1500/5000, loss: 2.134",
        "Lost Work: 41 steps, 6 GPU hours",
        SENT,
        "Remediation: restarts left: 2",
        "Action Required: Dump the stacks of the ranks.",
        "S3: s3://bucket/runs/topic",
        "S3 Console: https://console.example/a&b",
        "Runbook: https://runbooks.example/TrainRunStalled.md",
        "Dashboard: http://localhost:3000/d/train-run?var-run=mistral&from=now-1h",
        "Query: http://prometheus.example/graph?g0.expr=up&g0.tab=1",
        f"Hold remediation: {silence}%7Bcluster%3D%22c-topic%22%2Crun_id%3D%22topic%22%2Cremediate%3D%22true%22%7D",
        "",
        f"All alerts: {alertmanager.url}/#/alerts?filter=%7Bcluster%3D%22c-topic%22%2Crun_id%3D%22topic%22%7D",
    ]
    (alert,) = data["alerts"]
    other = {**alert, "labels": {"alertname": "TrainGpuLost", "node": "n 7", "remediate": "false"}}
    text = rendered(tools, "trainwarden.plain.message", {**data, "alerts": [other]}, tmp_path)
    exactly = "alertname%3D%22TrainGpuLost%22%2Cnode%3D%22n%207%22%2Cremediate%3D%22false%22"
    absent = "".join(f"%2C{name}%3D%22%22" for name in ("cluster", "run_id", "instance"))
    assert f"\nSilence this alert: {silence}%7B{exactly}{absent}%7D\n" in text
    assert "Hold remediation" not in text
    long = {**alert, "labels": {**alert["labels"], "node": "n" * 201}, "generatorURL": f"http://{'p' * 1000}"}
    text = rendered(tools, "trainwarden.plain.message", {**data, "alerts": [long]}, tmp_path)
    assert not {"Query", "Hold remediation", "Silence this alert"} & {
        line.partition(":")[0] for line in text.splitlines()
    }
    over = {**alert, "status": "resolved", "endsAt": alert["startsAt"]}
    text = rendered(tools, "trainwarden.plain.message", {**data, "status": "resolved", "alerts": [over]}, tmp_path)
    assert text.startswith("Over: a training run did not advance.\n")
    assert "Status: no longer STALLED\nReason was: No new step for 12m 0s\nLasted: 0s\nInstance: gpu-7" in text
    assert not {"Action Required", "Query", "Hold remediation"} & {line.partition(":")[0] for line in text.splitlines()}
    assert not PAST & {line.partition(":")[0] for line in text.splitlines()}


def test_a_plain_subject_is_what_a_topic_takes(tools: Tools, tmp_path: Path) -> None:
    for evil in HOSTILE:
        labels = {"alertname": evil, "run_id": evil}
        alert = {"status": "firing", "labels": labels, "annotations": {}, "startsAt": rfc3339(time.time())}
        data = {"status": "firing", "alerts": [alert] * 1000, "commonLabels": labels, "groupLabels": {}}
        subject, message = rendered_by_all(
            tools, ["trainwarden.plain.subject", "trainwarden.plain.message"], data, tmp_path
        )
        assert re.fullmatch(r"\[FIRING\] [ -~]{1,88}", subject), evil
        assert len(message) < 40_000, evil


RECORDED = sorted((Path(__file__).parent / "notifications").glob("*.json"))
of_recorded = pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)


def recorded(path: Path) -> list[dict[str, Any]]:
    """Two notifications that an Alertmanager of that version sent: an alert begins beside an older one, and ends."""
    begins, ends = json.loads(path.read_text(encoding="utf-8"))
    return [begins, ends]


@of_recorded
def test_a_recorded_notification_reads_the_same_whatever_version_sent_it(
    tools: Tools, tmp_path: Path, path: Path
) -> None:
    begins, ends = recorded(path)
    assert ("notification_reason" in begins) == (path.stem != "alertmanager-0.25")
    throttled, stalled = begins["alerts"]
    run = "mistral-20250804-171621"
    assert rendered(tools, "trainwarden.slack.title", begins, tmp_path) == f"[FIRING] TrainRunStalled · {run} · prod"
    assert rendered(tools, "trainwarden.slack.title", ends, tmp_path) == f"[RESOLVED] TrainRunStalled · {run} · prod"
    assert rendered(tools, "trainwarden.slack.color", begins, tmp_path) == "danger"
    assert rendered(tools, "trainwarden.slack.color", ends, tmp_path) == "good"
    text = rendered(tools, "trainwarden.slack.text", begins, tmp_path)
    assert text.splitlines()[:6] == [
        "🔥 *A training run is alive and does not advance.*",
        f"Run ID: {run}",
        "Status: STALLED",
        "Reason: No new step for 12m 0s (budget of the phase: 10m 0s)",
        "Duration: 2h 7m 0s",
        f"Since: {stalled['startsAt'][:10]} {stalled['startsAt'][11:19]} UTC",
    ]
    since = f"since {throttled['startsAt'][11:16]} UTC"
    still = f"• TrainGpuThrottled · gpu-9 · prod, {since}: GPU 3 of gpu-9 runs at 40 % of its clock."
    assert text.splitlines()[-2:] == ["Still firing:", still]
    over = rendered(tools, "trainwarden.slack.text", ends, tmp_path).splitlines()
    assert over[0] == "↩️ *Over: a training run did not advance.*"
    assert over[-1] == still


def test_a_recorded_notification_with_hostile_values_stays_text(tools: Tools, tmp_path: Path) -> None:
    kept = {"alertname", "severity", "remediate"}
    templates = [f"trainwarden.{each}" for each in ("slack.title", "slack.text", "slack.title_link", "plain.message")]
    for path, evil in product(RECORDED, HOSTILE):
        for data in recorded(path):
            for alert in data["alerts"]:
                for part in ("labels", "annotations"):
                    alert[part] = {name: text if name in kept else evil for name, text in alert[part].items()}
            *slack, plain = rendered_by_all(tools, templates, data, tmp_path)
            for text in slack:
                assert len(text) < 40_000, (path.stem, evil)
                assert not re.search(r"<(?!https?://[^<>|]*\|[A-Za-z0-9 ]+>)|```|[\x00-\x09\x0b-\x1f]", text)
            for line in plain.splitlines():
                assert len(line) < 900, (path.stem, evil)
                assert not re.search(r"[\x00-\x1f\u202e]", line)


def test_an_alert_without_a_node_names_the_service_that_it_is_about(tools: Tools, tmp_path: Path) -> None:
    for subsystem, line in (("remediator", "Remediator: h:1"), ("exporter", "Exporter: h:1")):
        labels = {"alertname": "TrainX", "instance": "h:1", "subsystem": subsystem, "severity": "critical"}
        alert = {
            "status": "firing", "labels": labels, "annotations": {"summary": "s"}, "startsAt": "2026-01-01T00:00:00Z"
        }  # fmt: skip
        notification = {"status": "firing", "externalURL": "http://am", "commonLabels": labels, "alerts": [alert]}
        templates = ["trainwarden.slack.text", "trainwarden.plain.message"]
        for text in rendered_by_all(tools, templates, notification, tmp_path):
            assert line in text.splitlines()
