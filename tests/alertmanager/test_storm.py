"""Many runs fail at once: Slack gets a handful of posts, and the remediator each run by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alertmanager.running import WARNINGS_WAIT, alertmanager, firing
from tests.waiting import wait_until
from trainwarden.stack.binaries import Tools

pytestmark = [pytest.mark.tools, pytest.mark.slow]

FAILED = {"severity": "critical", "failure_mode": "crash", "error_type": "communication", "remediate": "true"}
LOST = {"severity": "warning", "failure_mode": "crash", "remediate": "false"}
ROUNDS = 3


@pytest.mark.parametrize("runs", [60, pytest.param(500, marks=pytest.mark.nightly)])
def test_a_storm_is_few_posts_to_slack_and_each_run_to_the_remediator(tools: Tools, tmp_path: Path, runs: int) -> None:
    with alertmanager(tools, tmp_path, edits={WARNINGS_WAIT: ""}) as running:
        for part in range(ROUNDS):
            for name, labels in (("TrainRunFailed", FAILED), ("TrainRunNotRecoverable", LOST)):
                running.post(
                    [
                        firing(name, cluster="c", run_id=f"run-{n}", node=f"n{n}", **labels)
                        for n in range(part * runs // ROUNDS, (part + 1) * runs // ROUNDS)
                    ]
                )
        wait_until(
            lambda: (
                {alert["labels"]["run_id"] for _, body in running.webhook.calls for alert in body["alerts"]}
                == {f"run-{n}" for n in range(runs)}
            )
        )
        assert all(len(body["alerts"]) == 1 for _, body in running.webhook.calls)
        for name in ("TrainRunFailed", "TrainRunNotRecoverable"):
            wait_until(lambda: any(f" {name} ·" in message.title for message in running.slack.messages))  # noqa: B023
        last = running.slack.messages[-1]
        assert last.title.endswith(f" and {runs - 3} more · c")
        assert len(running.slack.messages) <= 2 * ROUNDS
        assert all(len(message.text) < 8_000 for message in running.slack.messages)
