"""The real process over real HTTP: what an operator, Alertmanager and the launcher see of it."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.integration.remediator.conftest import TOKEN, Process
from tests.integration.remediator.fake_services import FakeServices, World, as_webhook
from tests.small_disk import small_disk
from tests.waiting import wait_until
from trainwarden.stack.slack_sink import SlackSink


def test_a_webhook_leads_to_one_restart_and_the_recovery_is_verified(remediator: Process, world: World) -> None:
    remediator.flags["--poll-interval"] = "2"
    remediator.start()
    entry = world.alert()
    for _ in range(3):
        assert remediator.send(as_webhook(entry)).status == 200
    incident = remediator.incident("DONE")
    assert world.starts == [incident["id"]]
    assert incident["action"] == "restart"
    assert incident["attempt_key"] == "local:77-1234:0"
    assert incident["step_before"] == 41
    assert incident["budget"] == {"used": 0, "limit": 2, "left": 1}
    states = [event["state"] for event in incident["events"]]
    assert states.count("DONE") == 1
    walked = [state for index, state in enumerate(states) if index == 0 or states[index - 1] != state]
    assert walked == ["RECEIVED", "PROPOSED", "CAPTURING", "PREPARING", "PREPARED", "COMMITTED", "VERIFYING", "DONE"]
    wait_until(lambda: remediator.metric("restarts_total", outcome="recovered") == 1, "the restart to be counted")
    assert remediator.metric("decisions_total", action="restart", failure_mode="stall") == 1
    assert remediator.metric("webhook_requests_total", code="200") == 3


def test_the_policy_that_a_record_asks_for_decides_and_the_operators_setting_beats_it(
    remediator: Process, world: World
) -> None:
    folder = remediator.folder / "policies"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "policies: [{mode: stall, implementation: {class_name: AlwaysRestartPolicy, max_retries: 9}}]"
    )
    remediator.flags["--policy-dir"] = str(folder)
    world.policy = "mine"
    remediator.start()
    world.alert()
    incident = remediator.incident("DONE")
    assert (incident["policy"], incident["budget"]) == ("mine", {"used": 0, "limit": 9, "left": 8})
    remediator.stop()
    remediator.flags["--run-policy"] = f"{world.run_id}=observe"
    remediator.start()
    world.alert("TrainRunStalledAgain")
    suppressed = remediator.incident("SUPPRESSED")
    assert (suppressed["policy"], suppressed["reason"]) == ("observe", "policy observe never restarts after a stall")


def test_an_alert_that_no_webhook_brought_is_found_by_polling(remediator: Process, world: World) -> None:
    remediator.start()
    world.alert()
    assert remediator.incident("DONE")["events"][0]["detail"] == "TrainRunStalled by poll"
    assert len(world.starts) == 1
    wait_until(lambda: remediator.metric("poll_success") == 1, "the poll to be over")


def test_an_acknowledged_alert_survives_kill_9_and_is_acted_on_once(remediator: Process, world: World) -> None:
    world.down.add("prometheus")  # so that it cannot act before it is killed
    remediator.flags["--poll-interval"] = "60"
    remediator.start()
    entry = world.alert()
    assert remediator.send(as_webhook(entry)).status == 200
    remediator.kill()
    assert world.starts == []
    world.down.clear()
    remediator.flags["--poll-interval"] = "0.2"
    remediator.start()
    incident = remediator.incident("DONE")
    assert world.starts == [incident["id"]]
    assert incident["events"][0]["detail"] == "TrainRunStalled by webhook"
    remediator.kill()
    remediator.start()
    late = world.alert("TrainRunTimedOut", attempt="0")
    assert remediator.send(as_webhook(entry, late)).status == 200
    wait_until(lambda: len(remediator.incidents()) == 2, "the answer to the late alert")
    assert remediator.incidents()[-1]["reason"].startswith("stale: about attempt 0")
    assert world.starts == [incident["id"]]


def test_on_a_full_disk_it_acknowledges_nothing_and_is_not_ready_until_there_is_room(
    tmp_path: Path, services: FakeServices, world: World
) -> None:
    """Nothing else is to be written meanwhile, which would show it, too."""
    with small_disk(tmp_path / "disk", kib=8 * 1024) as disk:
        if not disk.is_mounted:
            pytest.skip("no file system may be mounted here")
        remediator = Process(tmp_path, services)
        remediator.flags["--state-dir"] = str(disk.path / "state")
        try:
            remediator.start()
            first = world.alert()
            first["status"] = {"state": "suppressed", "silencedBy": ["an-id"], "inhibitedBy": []}
            assert remediator.send(as_webhook(first)).status == 200
            known = remediator.incident("SUPPRESSED")["id"]
            disk.fill()
            second = world.alert("TrainRankSilent", rank="7" * 100_000)
            second["status"] = first["status"]
            assert remediator.send(as_webhook(second)).status == 503
            assert not remediator.is_ready()
            wait_until(lambda: remediator.metric("loop_success") == 0, "a round that finds it out")
            assert not remediator.is_ready()
            disk.free()
            wait_until(remediator.is_ready, "it to be ready again")
            assert remediator.send(as_webhook(second)).status == 200
            assert remediator.metric("loop_success") == 1
            remediator.kill()
            remediator.start()
            wait_until(lambda: len(remediator.incidents()) == 2, "the answer to the second alert")
            assert remediator.incidents()[0]["id"] == known
        finally:
            remediator.close()


@pytest.mark.parametrize("service", ["prometheus", "alertmanager", "launcher"])
def test_nothing_is_done_while_a_service_does_not_answer(remediator: Process, world: World, service: str) -> None:
    world.down.add(service)
    remediator.start()
    entry = world.alert()
    assert remediator.send(as_webhook(entry)).status == 200
    before = world.asked.count("/api/v2/alerts")
    wait_until(lambda: world.asked.count("/api/v2/alerts") > before + 2, "three more rounds")
    assert world.starts == []
    assert remediator.incidents() == []
    world.down.clear()
    assert remediator.incident("DONE")["id"] in world.starts


@pytest.mark.parametrize("how", ["silencedBy", "inhibitedBy"])
def test_a_silenced_or_inhibited_alert_is_not_acted_on_until_that_ends(
    remediator: Process, world: World, how: str
) -> None:
    entry = world.alert()
    entry["status"] = {"state": "suppressed", "silencedBy": [], "inhibitedBy": [], how: ["an-id"]}
    remediator.start()
    assert remediator.send(as_webhook(entry)).status == 200
    assert "silenced or inhibited" in remediator.incident("SUPPRESSED")["reason"]
    assert world.starts == []
    entry["status"] = {"state": "active", "silencedBy": [], "inhibitedBy": []}
    remediator.incident("DONE")
    assert len(world.starts) == 1


def test_a_cancelled_or_completed_job_is_left_alone(remediator: Process, world: World) -> None:
    world.job_state = "cancelled"
    world.alert()
    remediator.start()
    assert remediator.incident("SUPPRESSED")["reason"] == "the scheduler reports job 77-1234 as cancelled"
    assert world.starts == []


def test_the_budget_holds_across_restarts_of_the_remediator_and_then_somebody_is_paged(
    remediator: Process, world: World
) -> None:
    world.recovers = False
    for number in range(2):
        remediator.start()
        world.alert()
        wait_until(partial(_has_starts, world, number + 1), f"restart {number + 1}")
        remediator.kill()
    remediator.start()
    world.alert()
    incident = remediator.incident("ESCALATED")
    assert len(world.starts) == 2
    assert incident["reason"] == "restart budget used up: 2 of 2 after a stall"
    labels = {"run_id": "run-1", "job_id": "77-1234", "attempt": "2", "failure_mode": "stall"}
    wait_until(lambda: remediator.metric("escalation_info", **labels, reason=incident["reason"]) == 1, "the page")
    world.restart("by hand", 2)  # a person has started it again: the page is over
    wait_until(
        lambda: remediator.metric("escalation_info", **labels, reason=incident["reason"]) is None, "the page to end"
    )


def _has_starts(world: World, count: int) -> bool:
    return len(world.starts) == count


def test_the_webhook_states_what_is_wrong_with_a_bad_request(remediator: Process, world: World) -> None:
    remediator.flags["--poll-interval"] = "60"
    remediator.start()
    good = as_webhook(world.alert())
    world.alerts.clear()
    many = as_webhook(*[{**world.alert(), "n": n} for n in range(1001)])
    world.alerts.clear()
    for body, token, status, reason in (
        (good, None, 401, "bearer"),
        (good, "wrong", 401, "bearer"),
        (b"{", "webhook-secret", 400, "no JSON"),
        (b"[" * 100_000, "webhook-secret", 400, "no JSON"),
        (b'"\xff"', "webhook-secret", 400, "no JSON"),
        ({"alerts": []}, "webhook-secret", 422, "version: missing"),
        ({**good, "alerts": [{"status": "firing"}]}, "webhook-secret", 422, "alerts[0].labels: missing"),
        (many, "webhook-secret", 413, "more than 1000 alerts"),
        (b" " * (1 << 20) + b"{}", "webhook-secret", 413, "1048576"),
    ):
        answer = remediator.send(body, token)
        assert (answer.status, reason in answer.body.decode()) == (status, True), answer.body
        assert remediator.metric("webhook_requests_total", code=str(status))
    assert remediator.send(b"x", **{"Content-Encoding": "gzip"}).status == 415
    assert remediator.incidents() == []


def test_truncated_alerts_are_fetched_at_once(remediator: Process, world: World) -> None:
    remediator.flags["--poll-interval"] = "3600"
    remediator.start()
    world.alert()
    assert remediator.send(as_webhook(truncated=1)).status == 200
    remediator.incident("VERIFYING", "DONE")
    assert len(world.starts) == 1


def test_alerts_are_refused_with_503_when_they_cannot_be_stored_and_taken_afterwards(
    remediator: Process, world: World
) -> None:
    remediator.start()
    entry = world.alert()
    world.alerts.clear()
    blocker = sqlite3.connect(remediator.state_dir / "remediator.sqlite3", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    assert remediator.send(as_webhook(entry)).status == 503
    wait_until(lambda: remediator.get("/-/ready").status == 503, "not ready")
    blocker.execute("ROLLBACK")
    blocker.close()
    assert remediator.send(as_webhook(entry)).status == 200
    wait_until(remediator.is_ready, "ready again")


def test_labels_are_data_wherever_they_end_up(remediator: Process, world: World) -> None:
    hostile = "$(touch /x)\n`id`\x00\ud800'; DROP TABLE alerts;--<!channel>"
    world.alert(run_id="../../etc/passwd")
    world.alert(run_id='x"} or vector(1) #', error_type=hostile)
    world.alert(attempt=hostile, job_id=hostile, failure_mode=hostile, alertname=hostile)
    entries = list(world.alerts)
    remediator.start()
    for entry in entries:
        assert remediator.send(as_webhook(entry)).status == 200
    wait_until(lambda: len(remediator.incidents()) >= 3, "three answers")
    assert {each["action"] for each in remediator.incidents()} == {"none"}
    assert world.starts == []
    text = remediator.command("decisions", f"--state-dir={remediator.state_dir}").stdout
    assert "\x00" not in text
    assert "`id`" not in {line.strip() for line in text.splitlines()}
    # Jobs are listed all at once; nothing of a label is in a request.
    assert set(world.asked) <= {"/jobs", "/api/v1/query", "/api/v2/alerts"}


def test_incidents_are_shown_to_the_bearer_of_the_token_only(remediator: Process, world: World) -> None:
    remediator.start()
    world.alert()
    remediator.incident("DONE")
    assert remediator.get("/api/v1/incidents").status == 401
    assert len(remediator.incidents(run_id="run-1")) == 1
    assert remediator.incidents(run_id="another") == []


def test_the_decision_log_can_be_read_beside_the_running_remediator_and_after_it(
    remediator: Process, world: World
) -> None:
    remediator.start()
    world.alert()
    remediator.incident("DONE")
    words = ("decisions", f"--state-dir={remediator.state_dir}", "--format=json")
    beside = json.loads(remediator.command(*words).stdout)
    assert beside == remediator.incidents()
    assert remediator.stop() == 0
    assert json.loads(remediator.command(*words).stdout) == beside
    assert "restart (megatron_transient" in remediator.command(*words[:2]).stdout


def test_the_metrics_show_whether_the_web_configuration_is_in_use(remediator: Process, tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    remediator.flags["--web.config.file"] = str(file)
    remediator.start()
    name, labels = "trainwarden_config_last_reload_successful", (("file", "web"),)
    assert remediator.metrics()[name, labels] == 1
    file.write_text("http_server_config: {headers: {X-Frame-Options: maybe}}\n")
    assert remediator.metrics()[name, labels] == 0
    assert remediator.metrics()["trainwarden_config_last_reload_success_timestamp_seconds", labels] > 0


def test_policy_and_token_change_without_a_restart(remediator: Process, world: World, tmp_path: Path) -> None:
    policy = tmp_path / "mine.yaml"
    text = "policies:\n  - mode: stall\n    implementation: {class_name: %s}\n"
    policy.write_text(text % "NoRestartPolicy")
    remediator.flags["--policy"] = str(policy)
    remediator.start()

    def in_use(file: str) -> float | None:
        return remediator.metrics()["trainwarden_config_last_reload_successful", (("file", file),)]

    policy.write_text(text % "Nonsense")
    wait_until(lambda: in_use("policy") == 0, "the wrong policy to be seen")
    assert f"{policy}: line 3: policies[0].implementation.class_name: 'Nonsense'" in (tmp_path / "log").read_text()
    policy.write_text(text % "AlwaysRestartPolicy")
    wait_until(lambda: in_use("policy") == 1, "the right one")
    read = remediator.metrics()["trainwarden_config_last_reload_success_timestamp_seconds", (("file", "policy"),)]
    remediator.send_signal(signal.SIGHUP)
    wait_until(
        lambda: (
            remediator.metrics()["trainwarden_config_last_reload_success_timestamp_seconds", (("file", "policy"),)]
            > read
        ),
        "it to be read again",
    )
    (tmp_path / "webhook_token").write_text("another\n")
    nothing = {"version": "4", "alerts": []}
    assert [remediator.send(nothing, token).status for token in ("another", TOKEN, "third")] == [200, 200, 401]
    world.alert()
    assert remediator.incident("DONE")["policy"] == "mine"


def test_people_are_told_what_is_done_while_the_way_to_them_opens_late(
    remediator: Process, world: World, tmp_path: Path
) -> None:
    url = tmp_path / "slack_url"
    url.write_text("http://127.0.0.1:1/closed\n")
    remediator.flags["--notify-slack-url-file"] = str(url)
    remediator.start()
    world.alert()
    incident = remediator.incident("DONE")
    wait_until(lambda: (remediator.metric("messages_total", channel="slack", outcome="failed") or 0) > 0, "a failure")
    remediator.kill()
    sink = SlackSink()
    url.write_text(f"{sink.url}\n")
    remediator.start()
    wait_until(lambda: len(sink.messages) == 2, "both messages, from the next process")
    assert [each.payload["text"] for each in sink.messages] == ["Restarting run run-1", "Run run-1 has recovered"]
    assert f"{incident['id']}-proposed" in sink.messages[0].payload["attachments"][0]["footer"]
    assert "/closed" not in (tmp_path / "log").read_text()
    sink.close()


def test_a_second_remediator_on_the_same_state_is_refused(remediator: Process) -> None:
    remediator.start()
    argv = [word for word in remediator.argv if not word.startswith("--web.port-file")]
    second = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 2
    assert second.stderr.strip().splitlines()[-1].endswith("another remediator uses this folder")
    assert remediator.get("/-/healthy").status == 200


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_cleanly(remediator: Process, number: int, status: int) -> None:
    remediator.start()
    assert remediator.stop(number) == status
    assert not Path(remediator.flags["--web.port-file"]).exists()
    assert "Traceback" not in (remediator.folder / "log").read_text()


def test_a_busy_port_ends_with_status_2_and_one_line(remediator: Process) -> None:
    remediator.start()
    argv = [word for word in remediator.argv if not word.startswith(("--web.", "--state-dir"))]
    address = remediator.url.removeprefix("http://")
    argv += [f"--web.listen-address={address}", f"--state-dir={remediator.folder / 'other'}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, f"--web.listen-address: {address}: Address already in use" in done.stderr) == (2, True)
