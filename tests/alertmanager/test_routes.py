"""Who is told what."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.alertmanager.running import SHIPPED
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools

MAIN = SHIPPED / "alertmanager.yml"
ROUTES = [
    ("TrainRunFailed", "critical", "true", "remediator,slack"),
    ("TrainRunTimedOut", "critical", "true", "remediator,slack"),
    ("TrainRunTimedOut", "critical", "false", "slack"),
    ("TrainRunStalled", "critical", "true", "remediator,slack"),
    ("TrainRunNeverStarted", "warning", "false", "slack"),
    ("TrainRunDegraded", "warning", "false", "slack"),
    ("TrainRunRestartExhausted", "critical", "false", "slack"),
    ("TrainRunSucceeded", "info", "false", "slack-info"),
]


def amtool(tools: Tools, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tools.amtool, *arguments], capture_output=True, text=True, check=False)


def test_amtool_accepts_the_configuration_and_its_templates(tools: Tools) -> None:
    done = amtool(tools, "check-config", str(MAIN))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "severity", "remediate", "receivers"), ROUTES)
def test_each_alert_reaches_its_receivers(
    tools: Tools, name: str, severity: str, remediate: str, receivers: str
) -> None:
    labels = [f"alertname={name}", f"severity={severity}", f"remediate={remediate}", "run_id=r1"]
    done = amtool(
        tools, "config", "routes", "test", f"--config.file={MAIN}", f"--verify.receivers={receivers}", *labels
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_alert_without_a_route_of_its_own_is_still_delivered(tools: Tools) -> None:
    done = amtool(
        tools, "config", "routes", "test", f"--config.file={MAIN}", "--verify.receivers=slack", "alertname=Other"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sns_receiver_works_once_its_comment_is_taken_away(tools: Tools, tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path, dirs_exist_ok=True)
    text, start = MAIN.read_text(encoding="utf-8"), "    # sns_configs:\n"
    before, _, rest = text.partition(start)
    block = re.match(r"(?:    # .*\n)+", rest)
    assert block is not None
    uncommented = before + (start + block[0]).replace("    # ", "    ") + rest[block.end() :]
    (tmp_path / "alertmanager.yml").write_text(uncommented, encoding="utf-8")
    done = amtool(tools, "check-config", str(tmp_path / "alertmanager.yml"))
    assert done.returncode == 0, done.stdout + done.stderr
    (slack,) = [each for each in yaml.safe_load(uncommented)["receivers"] if each["name"] == "slack"]
    (sns,) = slack["sns_configs"]
    assert sns["topic_arn"].startswith("arn:aws:sns:")
    for template in (sns["subject"], sns["message"]):
        assert "{{ define " + template.split()[2] + " -}}" in (SHIPPED / "templates/sns.tmpl").read_text(
            encoding="utf-8"
        )


def test_no_secret_is_in_the_configuration() -> None:
    text = MAIN.read_text(encoding="utf-8")
    assert "credentials:" not in text
    assert "api_url:" not in text
    assert "hooks.slack.com" not in text
