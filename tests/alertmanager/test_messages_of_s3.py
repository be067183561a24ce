"""What a person receives of runs with a record in S3 alone, as another monitor writes it: from the rules to Slack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alertmanager.running import Alertmanager
from tests.rules.promtool import LIVE, RULES, Page, evaluate, in_cluster, input_series, raised, run
from tests.rules.scenarios_s3 import in_s3, until
from tests.waiting import wait_until
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools

INSTANCE, EXPORTER = "i-01fa5b57d64c6196a", "n1:9745"
URL = "s3://llm-cache/training-runs/r1/"
CONSOLE = "https://s3.console.aws.amazon.com/s3/buckets/llm-cache?prefix=training-runs/r1/"
# When each is looked at, seconds after the start of its run.
ASKED = {
    "TrainRunTimedOut": 130,
    "TrainRunStalled": 200,
    "TrainRunFailed": 200,
    "TrainRunSucceeded": 200,
    "TrainRunNeverStarted": 120,
    "TrainRunUnobserved": 400,
    "TrainS3Unreachable": 600,
}
# The lines of each message but its first one, when it began, its cluster and its links.
EXPECTED = Path(__file__).with_name("messages_of_s3.txt")


def _page(t: int, confirmed: float = LIVE, **values: Any) -> Page:
    """What an exporter shows of a run that names neither host nor job, and that S3 confirmed last at `confirmed`."""
    page = in_s3(run(t, host="", job_id="", attempt=None, **values), until(t, confirmed))
    page = {re.sub(r'(?:host|node)=""', f'instance_id="{INSTANCE}"', series): value for series, value in page.items()}
    labels = f'run_id="r1",instance="{EXPORTER}",job="trainwarden-exporter"'
    words = 'message="",hint="",last_line="Step 1500/5000, loss: 2.134"'
    bucket = f'instance="{EXPORTER}",job="trainwarden-exporter",bucket="llm-cache",prefix="training-runs/"'
    return {
        **page,
        f'training_run_s3_info{{{labels},url="{URL}",console="{CONSOLE}"}}': 1,
        f"training_failure_message_info{{{labels},{words}}}": 1,
        f"trainwarden_s3_up{{{bucket}}}": float(t <= confirmed),
    }


def _shown(name: str, t: int) -> Page:
    return in_cluster(_cluster(name), _run(name, t))


def _run(name: str, t: int) -> Page:
    """What is shown at second `t` of a run that the alert is about."""
    if name == "TrainRunTimedOut":
        return _page(t, metadata=60, progress=60, step=60, phase="idle")
    if name == "TrainRunStalled":
        return _page(t, step=60)
    if name == "TrainRunFailed":
        return _page(t, state="failed", end=100) if t >= 100 else _page(t)
    if name == "TrainRunSucceeded":
        return _page(t, state="succeeded", end=100, phase="done") if t >= 100 else _page(t)
    if name == "TrainRunNeverStarted":
        return _page(t, state="pending", metadata=None, progress=None, step=None, phase_start=None)
    return _page(t, confirmed=60)


def _cluster(name: str) -> str:
    return f"s3-{name}"


def alerts(tools: Tools, folder: Path) -> Mapping[str, tuple[dict[str, str], dict[str, str]]]:
    """Return labels and annotations of each alert by Prometheus: promtool says what it has instead of none."""
    series: list[tuple[str, str]] = []
    for name, second in ASKED.items():
        series += input_series(partial(_shown, name), second)
    asked = [{"eval_time": f"{t}s", "alertname": name, "exp_alerts": []} for name, t in ASKED.items()]
    document = {
        "rule_files": [str(each) for each in RULES],
        "evaluation_interval": "5s",
        "group_eval_order": [
            "training_runs",
            "training_runs_judged",
            "training_runs_remembered",
            "training_run_parts",
        ],
        "tests": [
            {
                "interval": "5s",
                "input_series": [{"series": name, "values": values} for name, values in series],
                "alert_rule_test": asked,
            }
        ],
    }
    (folder / "tests.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return {
        labels["alertname"]: (labels, texts)
        for labels, texts in raised(evaluate(tools.promtool, folder / "tests.yml").stdout)
        if labels["cluster"] == _cluster(labels["alertname"])
    }


def _expected(name: str) -> list[str]:
    blocks = EXPECTED.read_text(encoding="utf-8").split("\n\n")
    (found,) = (lines for block in blocks if (lines := block.splitlines())[0] == f"# {name}")
    return found


def test_a_message_about_a_record_in_s3_is_true_and_has_its_next_step(
    alertmanager: Alertmanager, tools: Tools, tmp_path: Path
) -> None:
    found = alerts(tools, tmp_path)
    for name in ASKED:
        labels, annotations = found[name]
        alertmanager.send(
            name, annotations, **{label: value for label, value in labels.items() if label != "alertname"}
        )
    for name in ASKED:
        (message,) = wait_until(lambda: alertmanager.messages_of(_cluster(name)))  # noqa: B023
        lines = [line for line in message.text.splitlines()[1:-1] if not line.startswith(("Since: ", "Cluster: "))]
        assert [f"# {name}", *lines] == _expected(name)
        links = message.text.splitlines()[-1]
        assert (f"<{CONSOLE}|S3 Console>" in links) == (name != "TrainS3Unreachable"), name
