"""`trainwarden report`: one page of a run, from its record, from a Prometheus, or both; safe to open and to hear."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

import trainwarden
from tests.cases import cases
from tests.unit.runs.records import NOW, RUN, foreign_run, write
from tests.waiting import wait_until
from trainwarden import cli
from trainwarden.clients.prometheus import PrometheusClient, PrometheusError, PrometheusSample, PrometheusSeries
from trainwarden.record.clock import to_iso
from trainwarden.report.command import report
from trainwarden.report.drawing import plot_svg
from trainwarden.report.page import RUNBOOKS
from trainwarden.report.story import Line, Plot, Story
from trainwarden.runs.journal import read_events

HOSTILE = "</pre><script>alert(1)</script> \"onmouseover='x' \u202egpj.exe \x1b[31m&amp;"
FORBIDDEN = {"script", "link", "img", "iframe", "object", "embed", "form", "base", "image", "use", "foreignobject"}
# Elements that HTML never closes.
VOID = {"meta"}


class Page(HTMLParser):
    """The elements of a page, and what is wrong with their nesting."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.style = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


class Measured(PrometheusClient):
    """A Prometheus of a run that started at NOW - 600, stalled at NOW - 300 and was restarted at NOW - 240."""

    def query(self, expression: str, time: float | None = None) -> list[PrometheusSample]:
        answers = {
            "min(min_over_time(timestamp(training_run_info": NOW - 590,
            "max(max_over_time(timestamp(training_run_info": NOW,
            "run:training_cost_dollars:sum": 12.5,
        }
        if expression.startswith("topk(1, max by (state)"):
            return [PrometheusSample({"state": "running"}, 1.0)]
        return [PrometheusSample({}, value) for text, value in answers.items() if text in expression]

    def query_range(self, expression: str, start: float, end: float, step: float = 1.0) -> list[PrometheusSeries]:
        times = [NOW - 590 + 10 * number for number in range(60)]
        if "training_attempt_start" in expression:
            return [PrometheusSeries({}, [(at, NOW - 600 if at < NOW - 240 else NOW - 240) for at in times])]
        if "ALERTS" in expression:
            labels = {"alertname": "TrainRunStalled", "severity": "critical"}
            return [PrometheusSeries(labels, [(at, 1.0) for at in times if NOW - 290 <= at <= NOW - 240])]
        if "(training_step{" in expression:
            return [PrometheusSeries({}, [(at, min(at, NOW - 300) - NOW + 600) for at in times])]
        return []


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A failed run whose texts would be markup."""
    monkeypatch.setattr("time.time", lambda: NOW)
    folder = foreign_run(tmp_path)
    metadata = json.loads((folder / "metadata.json").read_text())
    write(folder / "metadata.json", **metadata, **dict.fromkeys(("model", "host", "scheduler", "job_id"), HOSTILE))
    write(folder / "_error", message=HOSTILE, exception_type="RuntimeError", time=to_iso(NOW), traceback=HOSTILE)
    events = [
        {"timestamp": to_iso(NOW - 600), "event_type": "training_started", "data": {"attempt": 0, "model": HOSTILE}},
        {"timestamp": to_iso(NOW - 500), "event_type": "phase_changed", "data": {"phase": HOSTILE}},
        {"timestamp": to_iso(NOW - 400), "event_type": HOSTILE, "data": {"note": HOSTILE}},
    ]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in events))
    lines = ("step 1 loss 2.0", "step 2 loss 1.5", HOSTILE, f"key=sk-{'a1B2' * 12}")
    (folder / "logs/training_log_latest.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_a_page_loads_nothing_and_runs_nothing_whatever_a_record_says(hostile: Path) -> None:
    text = report(hostile, prometheus=Measured("http://prometheus")).html
    page = Page(text)
    assert page.open == []
    assert {tag for tag, _ in page.elements} & FORBIDDEN == set()
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "action")], tag
        assert (attributes.get("href") or RUNBOOKS).startswith((RUNBOOKS, "#"))
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "sk-a1B2" not in text
    (policy,) = [each["content"] for each in page.of("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'"
    assert "@import" not in page.style
    assert "url(" not in page.style


def test_the_headline_is_the_verdict_and_the_evidence_of_a_failure_comes_first(hostile: Path) -> None:
    write(hostile / "_error", message="CUDA out of memory. Tried to allocate 2.00 GiB", time=to_iso(NOW))
    text = Page(report(hostile).html).text
    assert text.index("The run has failed: CUDA out of memory") < text.index("Evidence") < text.index("What happened")
    assert "Do: Reduce batch size or sequence length" in text
    assert "cuda_oom: oom, category memory" in text


def test_a_success_before_the_last_step_is_said_to_be_one(tmp_path: Path) -> None:
    with trainwarden.run("short", dir=tmp_path, total_steps=5000) as run:
        run.step(399)
    with trainwarden.run("whole", dir=tmp_path, total_steps=5) as run:
        run.step(5)
    text = Page(report(tmp_path / "short").html).text
    assert "The run has succeeded: ended at step 399 of 5000." in text
    assert "completed, ended at step 399 of 5000" in text
    assert "The run has succeeded." in Page(report(tmp_path / "whole").html).text


@cases(
    ("low", "high", "unit", "ticks"),
    [
        (32_000, 33_500, "", ["32.0 k", "32.5 k", "33.0 k", "33.5 k"]),
        (1_299_000, 1_301_000, "", ["1.299 M", "1.300 M", "1.301 M"]),
        (0, 40e9, "bytes", ["0 GB", "20 GB", "40 GB"]),
        (1.5, 2.4, "", ["1.50", "1.75", "2.00", "2.25"]),
        (0, 5e-6, "", ["0", "2e-06", "4e-06"]),
        (0, 5000, "", ["0", "2000", "4000"]),
    ],
)
def test_ticks_differ_and_fit_beside_their_axis(low: float, high: float, unit: str, ticks: list[str]) -> None:
    plot, story = Plot("Plot", "", unit, [Line("a", [(0, low), (60, high)])]), Story("r", NOW, "RUNNING", "", "calm")
    shown = plot_svg(plot, story, (0, 60), 0)
    assert re.findall(r'class="tick end" x="56"[^>]*>([^<]*)', shown) == ticks


def _await_noted(folder: Path, step: int) -> None:
    def noted() -> list[int | None]:
        return [event.data.integer("step") for event in read_events(folder, ("progress_noted",))]

    wait_until(lambda: noted()[-1:] == [step])


def test_a_record_alone_has_step_loss_and_throughput_over_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a script whose output nobody keeps."""
    monkeypatch.setattr("trainwarden.training.progress_publisher.NOTE_SECONDS", 0.0)
    with trainwarden.run("plain", dir=tmp_path, total_steps=40) as run:
        for step in range(1, 41):
            run.step(step, loss=4.0 / step, tokens=1000)
            if step % 10 == 0:
                _await_noted(run.folder, step)
    text = Page(report(tmp_path / "plain").html).text
    assert "loss from" in text
    assert "tokens/s from" in text
    assert re.search(r"step from \d+ to 40", text)
    assert "progress noted" not in text


def test_every_drawing_can_be_heard_and_every_plot_read_as_a_table(hostile: Path) -> None:
    text = report(hostile, prometheus=Measured("http://prometheus")).html
    page = Page(text)
    identities = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(identities)) == len(identities)
    drawings = [each for each in page.of("svg") if each.get("role") == "img"]
    assert len(drawings) > 2
    for each in drawings:
        assert set((each["aria-labelledby"] or "").split()) <= set(identities)
    assert len(page.of("figure")) == len(re.findall("Values as a table", text)) > 1
    assert "step from 10 to 300, between 10 and 300" in text


def test_alerts_and_restarts_are_drawn_into_the_plots_and_told_in_their_order(hostile: Path) -> None:
    text = report(hostile, prometheus=Measured("http://prometheus")).html
    assert '<rect class="shade bad"' in text
    page = Page(text)
    assert f"{RUNBOOKS}/TrainRunStalled.md" in [each["href"] for each in page.of("a")]
    assert page.text.index("attempt 0 started") < page.text.index("TrainRunStalled fires")
    assert "Price 12.50 $" in page.text


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def call(*argv: str) -> tuple[int, str]:
        try:
            status = cli.main(["report", "--runs-dir", str(tmp_path), *argv])
        except SystemExit as ended:
            status = int(ended.code or 0)
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return call


def test_the_command_writes_the_page_and_names_it(hostile: Path, command: Callable[..., tuple[int, str]]) -> None:
    output = hostile.parent / "page.html"
    before = os.umask(0o027)
    try:
        assert command(RUN, "-o", str(output)) == (0, f"{output}\n")
    finally:
        os.umask(before)
    assert oct(output.stat().st_mode & 0o777) == "0o640", "who may read it is for the umask to say"
    assert "No Prometheus was given" in Page(output.read_text(encoding="utf-8")).text


def test_the_verdict_is_printed_for_scripts(hostile: Path, command: Callable[..., tuple[int, str]]) -> None:
    output = hostile.parent / "page.html"
    status, printed = command(RUN, "-o", str(output), "--json")
    found = json.loads(printed)
    assert (status, found["path"], found["status"]) == (0, str(output), "FAILED")
    assert found["verdict"] in Page(output.read_text(encoding="utf-8")).text
    assert command(RUN, "-o", "-", "--json")[0] == 2


def test_a_run_without_a_record_is_told_by_its_prometheus(
    tmp_path: Path, command: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    monkeypatch.setattr("trainwarden.report.command.PrometheusClient", Measured)
    output = tmp_path / "page.html"
    assert command("gone", "--prometheus", "http://prometheus", "-o", str(output))[0] == 0
    text = Page(output.read_text(encoding="utf-8")).text
    assert "The run goes on after 1 restart." in text
    assert "TrainRunStalled fires" in text
    assert "there is no run 'gone'" in text


def test_decisions_are_shown_with_each_of_their_steps(hostile: Path, command: Callable[..., tuple[int, str]]) -> None:
    decisions = hostile.parent / "decisions.json"
    incident = {
        "id": "0b4811a1555b", "run_id": RUN, "attempt": 0, "alert": "TrainRunStalled", "action": "restart",
        "reason": "restarts after every stall", "created": NOW - 280,
        "events": [{"time": NOW - 280, "state": "PROPOSED", "detail": "restart"}, {"time": NOW - 240, "state": "DONE"}],
    }  # fmt: skip
    decisions.write_text(json.dumps([incident, {**incident, "run_id": "another"}]))
    output = hostile.parent / "page.html"
    assert command(RUN, "--decisions", str(decisions), "--incident", "0b48", "-o", str(output))[0] == 0
    text = Page(output.read_text(encoding="utf-8")).text
    assert text.count("Restart: TrainRunStalled, attempt 0") == 2, "among the decisions and in what happened"
    assert "restarts after every stall" in text
    assert "DONE" in text


@pytest.mark.parametrize(
    ("argv", "status", "told"),
    [
        (("nobody",), 2, "there is no run 'nobody'"),
        ((RUN, "--prometheus", "prometheus:9090"), 2, "expected http://HOST:PORT"),
        ((RUN, "--decisions", "/nowhere.json"), 2, "--decisions /nowhere.json: No such file"),
        ((RUN, "--incident", "0b48"), 2, "--incident 0b48"),
        ((RUN, "-o", "/nowhere/page.html"), 2, "--output /nowhere/page.html: No such file"),
        (("nobody", "--prometheus", "http://127.0.0.1:1"), 3, "Prometheus is unreachable"),
    ],
)
def test_misuse_is_told_in_one_line(
    hostile: Path, command: Callable[..., tuple[int, str]], argv: tuple[str, ...], status: int, told: str
) -> None:
    found, text = command(*argv)
    assert (found, told in text) == (status, True), text


def test_a_prometheus_that_does_not_answer_costs_its_plots_alone(hostile: Path) -> None:
    class Silent(PrometheusClient):
        def query_range(self, expression: str, start: float, end: float, step: float = 1.0) -> list[PrometheusSeries]:
            raise PrometheusError("Prometheus is unreachable: http://prometheus")

    text = Page(report(hostile, prometheus=Silent("http://prometheus")).html).text
    assert "Loss by step" in text
    assert "Prometheus: Prometheus is unreachable" in text
