"""A running remediator between two real Alertmanagers, of which one goes away."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.alertmanager.running import alertmanager
from tests.integration.remediator.conftest import Process
from tests.integration.remediator.fake_services import World, as_webhook
from tests.waiting import wait_until
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools


def test_what_one_had_silenced_is_left_alone_while_that_one_is_away_until_the_remediator_starts_anew(
    remediator: Process, world: World, tools: Tools, tmp_path: Path
) -> None:
    def rounds() -> float:
        return remediator.metric("readings_total", source="alertmanager", outcome="known") or 0.0

    def let_rounds_pass() -> None:
        before = rounds()
        wait_until(lambda: rounds() >= before + 5, "five more rounds")

    with ExitStack() as stays, ExitStack() as goes:
        first = stays.enter_context(alertmanager(tools, tmp_path / "first"))
        second = goes.enter_context(alertmanager(tools, tmp_path / "second"))
        remediator.flags["--alertmanager-url"] = first.url
        remediator.repeated_flags.append(f"--alertmanager-url={second.url}")
        second.silence("TrainRunStalled")
        entry = world.alert()
        for each in (second, first):
            each.post([{"labels": entry["labels"], "annotations": {}}])
        wait_until(lambda: second.states() == {"TrainRunStalled": "suppressed"}, "the silence")
        remediator.start()
        assert remediator.send(as_webhook(entry)).status == 200
        assert "silenced or inhibited" in remediator.incident("SUPPRESSED")["reason"]
        let_rounds_pass()
        goes.close()
        wait_until(lambda: remediator.metric("alertmanager_up", url=second.url) == 0, "it to be missed")
        let_rounds_pass()
        assert remediator.metric("alertmanager_up", url=first.url) == 1
        assert remediator.is_ready()
        assert (len(remediator.incidents()), world.starts) == (1, [])
        remediator.kill()
        remediator.start()
        incident = remediator.incident("DONE")
        assert world.starts == [incident["id"]]
        assert f"one of 2 Alertmanagers, {second.url}," in (tmp_path / "log").read_text()
