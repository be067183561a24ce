"""The alerts of one attempt are one incident, decided by the one that is nearest to the cause."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.remediator.simulated_cluster import RUN, FakeClock
from tests.unit.remediator.simulation import Simulation
from trainwarden.taxonomy import ERROR_TYPES
from trainwarden_remediator.cli import main
from trainwarden_remediator.database.database import FILE, open_database
from trainwarden_remediator.drivers.driver import Absent, JobState
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Alert, State
from trainwarden_remediator.incidents.roots import CASCADES, order
from trainwarden_remediator.notify.outbox import Outbox
from trainwarden_remediator.observe.nodes import NoNodes, SuspectNodes
from trainwarden_remediator.observe.records import Records
from trainwarden_remediator.policies.limits import Limits
from trainwarden_remediator.policies.policy import Policy
from trainwarden_remediator.policies.policy_file import Backoff, Implementation
from trainwarden_remediator.store.store import Store


class Several(Simulation):
    """A run of which several alerts fire at once; those in `more` belong to its present attempt."""

    more: tuple[dict[str, str], ...] = ()

    def alerts_now(self) -> list[Alert]:
        found = super().alerts_now()
        labels = found[0].labels if found else {}
        return found + [Alert({**labels, **each}, found[0].starts_at) for each in self.more if found]


class Suspects(NoNodes):
    """Nodes of which evidence arrives."""

    def __init__(self) -> None:
        self.found: SuspectNodes | Unknown = SuspectNodes()

    def of_run(self, _run_id: str) -> SuspectNodes | Unknown:
        return self.found


LOST = {"alertname": "TrainNodeHardwareError", "failure_mode": "crash", "error_type": "gpu_hardware", "node": "n1"}
ENDED = {"alertname": "TrainHeartbeatsEnded", "failure_mode": "timeout"}
LATE = {"alertname": "TrainRankSilent", "failure_mode": "stall"}


@pytest.fixture
def several(tmp_path: Path) -> Iterator[Several]:
    rules = dict.fromkeys(
        ("crash", "stall", "timeout"),
        Implementation(class_name="AlwaysRestartPolicy", restart_delay_seconds=Backoff(initial=20)),
    )
    made = Several(tmp_path / "state", two_phase=True, policy=Policy("patient", rules))
    yield made
    made.close()


def joined(simulation: Simulation, incident_id: str) -> list[tuple[str, bool]]:
    known = simulation.store.known_of([incident_id])[incident_id]["alerts"]
    return [(each["alert"], each["root"]) for each in known]


def test_a_later_alert_of_the_attempt_joins_its_open_incident(
    several: Several, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outbox = Outbox(several.engine, several.clock, ["slack"])
    several.store.note_message = outbox.note
    several.tick(3)
    several.more = (LATE,)
    several.tick(3)
    [incident] = several.store.of_run(RUN)
    assert joined(several, incident.id) == [("TrainRunStalled", True), ("TrainRankSilent", False)]
    assert several.store.pending() == []
    [message] = outbox.due("slack")
    assert message.alerts == ("TrainRunStalled (stall, root)", "TrainRankSilent (stall)")
    several.settle()
    assert several.our_starts == [0]
    assert len(several.store.of_run(RUN)) == 1, "one incident, and no second action"
    several.close()
    assert main(["explain", f"--state-dir={tmp_path / 'state'}", RUN]) == 0
    assert "alerts: TrainRunStalled (stall, root); TrainRankSilent (stall)" in capsys.readouterr().out
    assert main(["explain", f"--state-dir={tmp_path / 'state'}", RUN, "--json"]) == 0
    [shown] = json.loads(capsys.readouterr().out)["incidents"]
    assert [each["alert"] for each in shown["alerts"]] == ["TrainRunStalled", "TrainRankSilent"]


def test_of_alerts_that_arrive_together_the_one_nearest_to_the_cause_decides(several: Several) -> None:
    several.cluster.crash()
    several.more = (
        {"alertname": "TrainA", "error_type": "nccl"},
        {"alertname": "TrainB", "error_type": "oom"},
    )
    several.tick(2)
    [incident] = several.store.of_run(RUN)
    assert (incident.alert, incident.error_type) == ("TrainB", "oom")
    assert len(joined(several, incident.id)) == 3


def test_an_alert_nearer_to_the_cause_decides_anew_before_the_attempt_is_ended(several: Several) -> None:
    several.cluster.crash()
    several.tick(3)
    assert [each.alert for each in several.store.open_incidents()] == ["TrainRunFailed"]
    several.more = (LOST,)
    several.tick(3)
    [incident] = several.store.open_incidents()
    assert (incident.alert, incident.error_type) == ("TrainNodeHardwareError", "gpu_hardware")
    assert ("TrainRunFailed", False) in joined(several, incident.id), "what decided before joins"
    several.settle()
    assert several.our_starts == [0]


def test_once_the_attempt_is_being_ended_a_better_root_only_joins(several: Several) -> None:
    several.cluster.crash()
    several.tick(2)
    several.driver.faults = ["dropped"]
    while several.store.open_incidents()[0].state is not State.IN_DOUBT:
        several.tick()
    several.more = (LOST,)
    several.settle()
    assert several.our_starts == [0]
    [incident] = several.store.of_run(RUN)
    assert joined(several, incident.id) == [("TrainRunFailed", True), ("TrainNodeHardwareError", False)]


def test_evidence_against_a_node_that_comes_before_the_end_makes_it_restart_elsewhere(several: Several) -> None:
    several.policies.default = replace(
        several.policies.default, limits=Limits.model_validate({"exclude_nodes": {"at_most": 1}})
    )
    several.nodes = nodes = Suspects()
    several.restart()
    several.tick(3)
    assert [each.excluded for each in several.store.open_incidents()] == [{}]
    nodes.found = SuspectNodes({"n1": "TrainGpuXidFatal XID 79"}, 100)
    several.settle()
    assert several.our_starts == [0]
    assert several.driver.excluded == ("n1",)
    restarted = several.store.of_run(RUN)[-1]
    facts = several.store.known_of([restarted.id])[restarted.id]["facts"]
    assert ("node n1", "TrainGpuXidFatal XID 79") in [(each["subject"], each["value"]) for each in facts]


def test_a_policy_that_excludes_no_nodes_decides_once_more_and_not_for_ever(several: Several) -> None:
    several.nodes = nodes = Suspects()
    several.restart()
    several.tick(3)
    nodes.found = SuspectNodes({"n1": "TrainGpuXidFatal XID 79"}, 100)
    several.settle()
    assert several.our_starts == [0]
    assert len(several.store.of_run(RUN)) <= 2


def test_what_joined_a_restart_that_is_withdrawn_is_decided_by_itself(several: Several) -> None:
    several.more = (LATE,)
    several.tick(3)
    [incident] = several.store.open_incidents()
    several.store.withdraw(incident, "a person said so", dropped=False)
    several.tick(3)
    assert [each.alert for each in several.store.open_incidents()] == ["TrainRankSilent"]


def test_an_alert_about_an_earlier_attempt_stays_out(several: Several) -> None:
    several.settle()
    several.cluster.crash()
    several.more = ({**LOST, "attempt": "0"},)
    several.tick(4)
    [incident] = several.store.open_incidents()
    assert joined(several, incident.id) == [("TrainRunFailed", True)]


def _is_lost(several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several.driver, "job", lambda _job_id: Absent(lost="job 17 is gone: its node has died"))


def _has_a_rival(_several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Records, "rival", lambda *_: "attempt 0 on n9")


def _is_suspended(several: Several, _monkeypatch: pytest.MonkeyPatch) -> None:
    several.cluster.state = JobState.OTHER


def _is_unseen(several: Several, _monkeypatch: pytest.MonkeyPatch) -> None:
    several.prometheus_down = True


@pytest.mark.parametrize("why", [_is_lost, _has_a_rival, _is_suspended, _is_unseen])
def test_several_alerts_of_one_attempt_page_once(
    several: Several, why: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox(several.engine, several.clock, ["slack"])
    several.store.note_message = outbox.note
    several.more = (LATE, ENDED)
    why(several, monkeypatch)
    several.tick(1900, every=50)
    [incident] = several.store.of_run(RUN)
    assert several.store.escalations() == [incident]
    names = {("TrainHeartbeatsEnded", True), ("TrainRankSilent", False), ("TrainRunStalled", False)}
    assert set(joined(several, incident.id)) == names, "the nearest to the cause is the root"
    [message] = outbox.due("slack")
    assert len(message.alerts) == 3
    several.tick(3700, every=100)
    assert several.store.escalations() == several.store.of_run(RUN) == [incident]


def test_a_page_outlasts_the_alert_that_it_was_decided_by(several: Several) -> None:
    several.more = (LATE,)
    several.cluster.state = JobState.OTHER
    several.tick(1900, every=50)
    [page] = several.store.escalations()
    assert page.alert == "TrainRunStalled"
    stalled, late = several.alerts_now()
    several.alerts_now = lambda: [late]  # type: ignore[method-assign]
    several.tick(60, every=5)
    assert several.store.escalations() == [page]
    several.alerts_now = lambda: [stalled, late]  # type: ignore[method-assign]
    several.tick(1900, every=50)
    assert several.store.escalations() == [page], "that it fires again is no other page"


def test_another_reason_pages_by_itself(several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    several.cluster.state = JobState.OTHER
    several.tick(1900, every=50)
    several.cluster.state = JobState.RUNNING
    _is_lost(several, monkeypatch)
    several.tick(5)
    assert len(several.store.escalations()) == 2


def test_causes_come_before_cascades_and_the_earliest_first() -> None:
    def alert(mode: str, kind: str, starts_at: float | None) -> Alert:
        return Alert({"failure_mode": mode, "error_type": kind}, starts_at)

    ordered = [
        alert("crash", "oom", 1.0),
        alert("crash", "oom", 2.0),
        alert("crash", "nccl", 0.0),
        alert("crash", "unknown", 0.0),
        alert("timeout", "hang", 0.0),
        alert("stall", "hang", 0.0),
        alert("stall", "hang", None),
    ]
    assert CASCADES <= ERROR_TYPES
    backwards = list(reversed(ordered))
    assert sorted(backwards, key=order) == ordered


@pytest.mark.parametrize("version", ["2", "3"])
def test_an_open_incident_of_an_older_database_is_kept_and_alerts_join_it(tmp_path: Path, version: str) -> None:
    before = Several(tmp_path, two_phase=True, policy="default")
    before.driver.down = True
    before.tick(3)
    before.driver.down = False
    before.captures.seconds = 20
    before.tick(3)
    [incident] = before.store.open_incidents()
    before.close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("DELETE FROM facts")
        connection.execute("DELETE FROM incident_alerts")
        connection.execute("ALTER TABLE facts DROP COLUMN supports")
        connection.execute("UPDATE about SET value = ? WHERE key = 'schema'", (version,))
    connection.close()
    engine = open_database(tmp_path)
    store = Store(engine, FakeClock())
    assert [each.id for each in store.open_incidents()] == [incident.id]
    assert store.known_of([incident.id]) == {incident.id: {"alerts": [], "facts": []}}
    engine.dispose()
    before.restart()
    before.more = (LATE,)
    before.settle()
    assert before.our_starts == [0]
    assert joined(before, incident.id) == [("TrainRankSilent", False)]
    before.close()
