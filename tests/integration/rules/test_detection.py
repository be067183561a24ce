"""From an exporter's page to the people and the machine: the shipped Prometheus, rules, Alertmanager and templates."""

from __future__ import annotations

import functools
import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.alertmanager.running import WARNINGS_WAIT, Alertmanager, alertmanager
from tests.prometheus import running_prometheus
from tests.rules.promtool import ROOT, Page, run
from tests.waiting import wait_until
from trainwarden.clients.prometheus import PrometheusClient, PrometheusRule
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools

_TARGET_LABELS = re.compile(r',(instance|job)="[^"]*"')  # Prometheus adds them itself
MESSAGE = "CUDA out of memory <!channel>"
HINT = "Lower the batch size per device or the sequence length."


@dataclass
class Exporter:
    """A page that the test writes."""

    began: float = field(default_factory=time.time)
    stuck: bool = True
    given_up: bool = False
    address: str = ""

    def page(self) -> str:
        now = int(time.time())
        shown: Page = {}
        for each in (
            self._stalled(now),
            self._failed(now),
            self._degraded(now),
            self._finished(now),
            self._healthy(now),
            self._exhausted(now),
            self._foreign(now),
            self._expected(now),
            self._printing(now),
        ):
            shown |= each
        lines = [f"{_TARGET_LABELS.sub('', series)} {value:.3f}" for series, value in shown.items()]
        return "\n".join(lines) + "\n"

    def _stalled(self, now: int) -> Page:
        step = self.began if self.stuck else now
        # Long enough that its silent ranks are recorded by then: whose attempt they are is, once a minute.
        page = run(now, run_id="stalled", start=now - 7620, phase_start=now - 7000, step=step, stall={"train": 75})
        message = 'run_id="stalled",message="",hint="",last_line="step 1500/5000, loss 2.134"'
        silent = 'run_id="stalled",host="n1",ranks="3"'
        return page | {
            f"training_failure_message_info{{{message}}}": 1,
            f"training_silent_ranks_timestamp_seconds{{{silent}}}": now - 300,
        }

    def _failed(self, now: int) -> Page:
        verdict = {
            "attempt": "0",
            "error_type": "oom",
            "failure": "cuda_oom",
            "subsystem": "cuda",
            "severity": "critical",
        }
        page = run(now, run_id="failed", start=now - 2700, state="failed", end=now - 1, failure=verdict)
        words = {"run_id": "failed", "message": MESSAGE, "last_line": "Tried to allocate 2.00 GiB", "hint": HINT}
        labels = ",".join(f'{name}="{text}"' for name, text in words.items())
        return page | {f"training_failure_message_info{{{labels}}}": 1}

    def _degraded(self, now: int) -> Page:
        return run(now, run_id="degraded", start=now - 900, ranks={0: now, 3: now - 300, 5: now - 200})

    def _finished(self, now: int) -> Page:
        return run(now, run_id="finished", start=now - 7200, state="succeeded", end=now - 5, phase="done")

    def _exhausted(self, now: int) -> Page:
        page = run(now, run_id="exhausted", attempt=2, start=now - 7200)
        # Not before its node is recorded, every 30 s.
        if not self.given_up or now < self.began + 45:
            return page
        labels = 'run_id="exhausted",job_id="41",attempt="2",failure_mode="stall",reason="3 of 3 restarts used"'
        return page | {f"trainwarden_remediator_escalation_info{{{labels}}}": 1}

    def _foreign(self, now: int) -> Page:
        """In S3, as another monitor writes it: neither host nor job nor start."""
        page = run(
            now,
            run_id="foreign",
            host="",
            job_id="",
            attempt=None,
            start=None,
            phase_start=None,
            metadata=self.began - 610,
            progress=self.began - 610,
            step=self.began - 610,
            stale=600,
            stall={"train": 600},
        )
        labels, instance = 'run_id="foreign"', 'instance_id="i-01fa5b57d64c6196a"'
        url, console = "s3://llm-cache/training-runs/foreign/", "https://s3.console.aws.amazon.com/s3/buckets/llm-cache"
        words = 'message="",hint="",last_line="Step 1500/5000, loss: 2.134"'
        return {
            series.replace('host=""', instance).replace('node=""', instance): value for series, value in page.items()
        } | {
            f"training_run_observed_timestamp_seconds{{{labels}}}": now,
            f'training_run_s3_info{{{labels},url="{url}",console="{console}?prefix=training-runs/foreign/"}}': 1,
            f"training_failure_message_info{{{labels},{words}}}": 1,
        }

    def _expected(self, now: int) -> Page:
        page = run(
            now,
            run_id="expected",
            host="",
            job_id="",
            attempt=None,
            start=self.began - 900,
            state="pending",
            phase_start=None,
            metadata=None,
            progress=None,
            step=None,
        )
        return page | {'training_run_expected{run_id="expected",source="slurm"}': 1}

    def _printing(self, now: int) -> Page:
        began = self.began
        return run(
            now,
            run_id="printing",
            start=began - 600,
            phase="init",
            phase_start=began - 600,
            inferred=True,
            progress=None,
            step=None,
            stall={"init": 15},
        )

    def _healthy(self, now: int) -> Page:
        return run(now, run_id="healthy", start=now - 7200, ranks={0: now, 1: now})


@dataclass(frozen=True)
class World:
    """What is under test, all of it running."""

    exporter: Exporter
    prometheus: PrometheusClient
    alertmanager: Alertmanager


@pytest.fixture(scope="module")
def world(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("prometheus")
    shutil.copytree(ROOT / "deploy/prometheus", folder, dirs_exist_ok=True)
    shutil.copytree(ROOT / "rules", folder / "rules")
    exporter = Exporter()
    # The texts are the subject: a message of its own for each run, as a small team may want it, and none waits.
    edits = {"group_by: [cluster]\n": "group_by: [cluster, run_id]\n", WARNINGS_WAIT: ""}
    with _serve(exporter), alertmanager(tools, tmp_path_factory.mktemp("alertmanager"), edits=edits) as running:
        _write_targets(folder / "targets", exporter.address, running.url)
        with running_prometheus(tools, folder) as client:
            yield World(exporter, client, running)


@pytest.fixture
def _all_seen(world: World) -> None:
    # The remediator gives up on a run that has long been known.
    wait_until(lambda: world.prometheus.query('run:training_attempt:info{run_id="exhausted"}'), timeout=120)
    world.exporter.given_up = True
    wait_until(lambda: world.alertmanager.messages("finished"), timeout=120)
    wait_until(lambda: world.alertmanager.messages("stalled"), timeout=120)
    wait_until(lambda: world.alertmanager.messages("failed"), timeout=120)
    wait_until(lambda: world.alertmanager.messages("degraded"), timeout=120)
    wait_until(lambda: world.alertmanager.messages("exhausted"), timeout=120)
    for run_id in ("foreign", "expected", "printing"):
        wait_until(functools.partial(world.alertmanager.messages, run_id), f"a message about {run_id}", timeout=120)


@pytest.mark.usefixtures("_all_seen")
def test_a_stall_reaches_the_machine_with_the_identity_of_the_attempt(world: World) -> None:
    # Not before it is known that nothing contradicts.
    (alert, *_) = wait_until(lambda: world.alertmanager.webhook.alerts("stalled"), timeout=120)
    assert alert["labels"] == {
        "alertname": "TrainRunStalled",
        "severity": "critical",
        "run_id": "stalled",
        "job_id": "41",
        "attempt": "0",
        "scheduler": "slurm",
        "node": "n1",
        "failure_mode": "stall",
        "error_type": "hang",
        "subsystem": "distributed",
        "remediate": "true",
    }


@pytest.mark.usefixtures("_all_seen")
def test_a_stall_shows_people_where_it_stands_and_what_to_do(world: World) -> None:
    # Its silent rank may be a message before that.
    title = "[FIRING] TrainRunStalled · stalled"
    (message, *_) = wait_until(
        lambda: [each for each in world.alertmanager.messages("stalled") if each.title == title], timeout=120
    )
    for needle in (
        "\nStatus: STALLED\n",
        "\nReason: No new step for ",
        " (budget of the phase: 1m 15s)\n",
        "\n🔧 Action Required: Find the rank outside the collective: ",
        "\nInstance: n1\n",
        "\nPhase: train\n",
        "\nDuration: 2h 7m ",
        "\nLast Log: step 1500/5000, loss 2.134\n",
        "\nRank: 3 on n1, silent for 5m ",
        "/d/train-run?var-run=stalled|Dashboard>",
        "/rules/runbooks/TrainRunStalled.md|Runbook>",
    ):
        assert needle in message.text


@pytest.mark.usefixtures("_all_seen")
def test_a_failure_shows_the_message_the_hint_and_the_last_line(world: World) -> None:
    (message, *_) = world.alertmanager.messages("failed")
    for needle in (
        "\nStatus: FAILED\n",
        "\nReason: CUDA out of memory &lt;!channel&gt;\n",
        f"\n🔧 Action Required: {HINT}\n",
        " if its policy allows that after a crash (oom).\n",
        "\nDuration: 44m 59s\n",
        "\nLast Log: Tried to allocate 2.00 GiB\n",
    ):
        assert needle in message.text


@pytest.mark.usefixtures("_all_seen")
def test_a_run_with_silent_ranks_names_them(world: World) -> None:
    (message, *_) = world.alertmanager.messages("degraded")
    assert "\nRank: 3,5 on n1, silent for 5m " in message.text
    assert not world.alertmanager.webhook.alerts("degraded")


@pytest.mark.usefixtures("_all_seen")
def test_a_record_of_another_monitor_in_s3_names_its_instance_and_its_place(world: World) -> None:
    # Not before it is known that nothing contradicts. Since when the run has lived may still be unknown in the first
    # evaluation after a start of Prometheus: rules/tests/runs_messages.yml has the duration.
    known = " and check: "
    (message, *_) = wait_until(
        lambda: [each for each in world.alertmanager.messages("foreign") if known in each.text], timeout=180
    )
    for needle in (
        "\nStatus: TIMED_OUT\n",
        "\n🔧 Action Required: Log in to i-01fa5b57d64c6196a and check: ",
        ", disk space, and whether it can write to s3://llm-cache/training-runs/foreign/.\n",
        "\nInstance: i-01fa5b57d64c6196a\n",
        "\nLast Log: Step 1500/5000, loss: 2.134\n",
        "\n📊 S3: s3://llm-cache/training-runs/foreign/\n",
        "<https://s3.console.aws.amazon.com/s3/buckets/llm-cache?prefix=training-runs/foreign/|S3 Console>",
    ):
        assert needle in message.text
    # There is no host beside the instance.
    assert "Instance:  (" not in message.text
    assert " (i-01fa" not in message.text


@pytest.mark.usefixtures("_all_seen")
def test_a_marked_job_without_a_record_is_not_accused_of_anything(world: World) -> None:
    (message, *_) = world.alertmanager.messages("expected")
    for needle in (
        "\nReason: There is no record of the run, which slurm has expected for 15m",
        "; whether it trains is unknown.\n",
        "TRAINWARDEN_RUNS_DIR that the exporter reads",
        "\nNothing is restarted automatically for this.",
    ):
        assert needle in message.text
    assert "Never started" not in message.text


@pytest.mark.usefixtures("_all_seen")
def test_a_command_that_prints_no_steps_is_for_a_person_alone(world: World) -> None:
    (message, *_) = world.alertmanager.messages("printing")
    for needle in (
        "\nReason: No new step printed for ",
        "(budget 15s)",
        "\nNothing is restarted automatically for this.",
    ):
        assert needle in message.text
    assert not world.alertmanager.webhook.alerts("printing")


@pytest.mark.usefixtures("_all_seen")
def test_a_run_that_was_given_up_is_for_a_person_alone(world: World) -> None:
    (message, *_) = wait_until(lambda: world.alertmanager.messages("exhausted"), timeout=120)
    assert message.title == "[FIRING] TrainRunRestartExhausted · exhausted"
    for needle in (
        "\nStatus: NEEDS A PERSON\n",
        "\nReason: 3 of 3 restarts used\n",
        "start the run by hand",
        "\nInstance: n1\n",
        "/rules/runbooks/TrainRunRestartExhausted.md|Runbook>",
    ):
        assert needle in message.text
    assert not world.alertmanager.webhook.alerts("exhausted")


@pytest.mark.usefixtures("_all_seen")
def test_a_success_is_reported_and_a_healthy_run_is_not(world: World) -> None:
    (message, *_) = world.alertmanager.messages("finished")
    assert message.title == "✅ TrainRunSucceeded · finished"
    assert not world.alertmanager.messages("healthy")
    assert not world.prometheus.query('ALERTS{run_id="healthy"}')


@pytest.mark.usefixtures("_all_seen")
def test_no_rule_fails(world: World) -> None:
    def rules() -> list[PrometheusRule] | None:
        found = world.prometheus.rules()
        return None if any(rule.health == "unknown" for rule in found) else found

    evaluated = wait_until(rules)
    assert len(evaluated) > 20
    assert {rule.name: rule.last_error for rule in evaluated if rule.health != "ok"} == {}


@pytest.mark.usefixtures("_all_seen")
def test_an_advance_resolves_the_stall_for_all(world: World) -> None:
    world.exporter.stuck = False
    wait_until(lambda: world.alertmanager.webhook.alerts("stalled", status="resolved"), timeout=120)
    wait_until(lambda: [each for each in world.alertmanager.messages("stalled") if "RESOLVED" in each.title])


@contextmanager
def _serve(exporter: Exporter) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(exporter.page().encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
            """Requests are no news."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    exporter.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _write_targets(folder: Path, exporter: str, alertmanager_url: str) -> None:
    folder.mkdir()
    addresses = {"exporter": exporter, "alertmanager": alertmanager_url.removeprefix("http://")}
    for name, address in addresses.items():
        (folder / f"{name}.json").write_text(json.dumps([{"targets": [address]}]), encoding="utf-8")
