"""What is known at a decision is stored with it, and no attempt ends while a second source says that it works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from trainwarden.clients.prometheus import PrometheusSample
from trainwarden.identity import AttemptKey
from trainwarden.rules.values import read_values
from trainwarden_remediator.cli import main
from trainwarden_remediator.decide.facts import POWER_WORKS, UNITS_WORK, Supports, contradiction, facts_of
from trainwarden_remediator.drivers.driver import JobState, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Action, Alert, Incident, State
from trainwarden_remediator.notify.message import as_notice
from trainwarden_remediator.notify.outbox import Outbox
from trainwarden_remediator.observe.cpu_time import CpuUse
from trainwarden_remediator.observe.evidence import OBSERVED, Evidence, ReportedRun, read_run

UNITS, POWER, USUAL = "run:gpu_units_active:avg", "run:gpu_power_watts:avg", "run:gpu_power_watts:usual"
EFA, INFINIBAND = "run:efa_tx_bytes:rate5m", "run:infiniband_tx_bytes:rate2m"
LOG = "training_log_last_write_timestamp_seconds"
NOW = 10_000.0
HALTED = ReportedRun("r", 0, "sim:17:0", "running", 40.0, 40.0, started=1000.0, stepped=NOW - 1200, stall_budget=600.0)
FAILED = replace(HALTED, state="failed", failed=NOW - 600, stepped=NOW - 600)


class Watched(Simulation):
    """A run of which GPUs and networks are measured, too."""

    vitals: dict[str, float] = {}  # noqa: RUF012  # replaced, never changed

    def run(self, run_id: str) -> Evidence:
        found = super().run(run_id)
        if not isinstance(found, ReportedRun):
            return found
        since = self.clock.now() - 900
        return replace(found, vitals=self.vitals, started=since - 9000, stepped=since, failed=since)


class Plain(Watched):
    """A job that writes no record: its steps are from its log. `cpu_use` is what its processes take."""

    cpu_use: CpuUse | Unknown = Unknown("sstat is not there")

    def run(self, run_id: str) -> Evidence:
        found = super().run(run_id)
        return replace(found, plain=True) if isinstance(found, ReportedRun) else found

    def of(self, _key: AttemptKey) -> CpuUse | Unknown:
        return self.cpu_use


class Stepping(Simulation):
    """A run whose last step was made at `stepped`."""

    stepped: float | None = None

    def run(self, run_id: str) -> Evidence:
        found = super().run(run_id)
        return replace(found, stepped=self.stepped) if isinstance(found, ReportedRun) else found


class Recorded(Simulation):
    """A run whose record shows since when it is silent and stands still, by its exporter's clock, which is behind."""

    alert_mode = "stall"
    exporter = -7200.0
    silent = still = 0.0

    def run(self, run_id: str) -> Evidence:
        found = super().run(run_id)
        if not isinstance(found, ReportedRun):
            return found
        now = self.clock.now() + self.exporter
        record = replace(found, moved=now - self.still, alive=now - self.silent, stall_budget=600.0)
        return replace(record, stale_threshold=300.0, vitals={OBSERVED: now})

    def alerts_now(self) -> list[Alert]:
        name = "TrainRunStalled" if self.alert_mode == "stall" else "TrainRunTimedOut"
        changed = {"alertname": name, "failure_mode": self.alert_mode}
        return [replace(each, labels={**each.labels, **changed}) for each in super().alerts_now()]


@pytest.mark.parametrize(
    ("mode", "silent", "still", "shown"),
    [
        ("stall", 2.0, 5.0, "its last step or change of phase is 5 s old, where 600 s are allowed (prometheus)"),
        ("timeout", 2.0, 900.0, "its last sign of life is 2 s old, where 300 s are allowed (prometheus)"),
    ],
)
def test_an_alert_that_the_record_of_the_run_disproves_ends_nothing_and_pages_with_both_facts(
    tmp_path: Path, mode: str, silent: float, still: float, shown: str
) -> None:
    """One that somebody has posted, or that has outlived what it reports: Prometheus did not reach Alertmanager."""
    recorded = Recorded(tmp_path / "state", policy="megatron_transient")
    recorded.alert_mode, recorded.silent, recorded.still = mode, silent, still
    recorded.tick(100, every=5)
    assert recorded.store.of_run(RUN) == [], "it may be about to end"
    recorded.tick(100, every=5)
    assert recorded.driver.calls == []
    [incident] = recorded.store.escalations()
    assert f"an alert reports a {mode}, and {shown}" in incident.reason
    facts = recorded.store.known_of([incident.id])[incident.id]["facts"]
    assert Supports.WORKING.value in {each["supports"] for each in facts}
    recorded.silent = recorded.still = 900.0
    recorded.tick(20, every=5)
    assert recorded.driver.calls != [], "the record shows it by now"
    recorded.close()


def test_a_step_or_a_new_phase_between_decision_and_call_disproves_the_alert(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "state")
    recorded.silent = recorded.still = 900.0
    recorded.captures.seconds = 10.0
    recorded.tick(5)
    [incident] = recorded.store.of_run(RUN)
    assert incident.state is State.CAPTURING
    recorded.still = 1.0
    recorded.tick(20)
    assert recorded.driver.calls == []
    assert "its last step or change of phase is 1 s old" in recorded.store.of_run(RUN)[0].reason
    recorded.close()


def test_a_record_that_does_not_show_it_disproves_nothing() -> None:
    record = replace(HALTED, moved=NOW - 5, vitals={OBSERVED: NOW})
    assert contradiction("stall", record, None, NOW) is not None
    for unknown in (replace(record, moved=None), replace(record, stall_budget=None), replace(record, vitals={})):
        assert contradiction("stall", unknown, None, NOW) is None
    assert contradiction("stall", replace(record, stated={"stall": NOW - 60}), None, NOW) is None, "its log states it"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path / "state", two_phase=True)
    yield made
    made.close()


@pytest.mark.parametrize("mode", ["stall", "crash"])
@pytest.mark.parametrize(
    ("vitals", "named"),
    [
        ({UNITS: 0.45}, "GPU units 45% active (prometheus)"),
        ({POWER: 600.0, USUAL: 650.0}, "GPU power 600 W of usually 650 W (prometheus)"),
        ({EFA: 5e9}, "EFA 5000 MB/s sent (prometheus)"),
        ({INFINIBAND: 5e9}, "InfiniBand 5000 MB/s sent (prometheus)"),
    ],
)
def test_a_run_whose_gpus_or_network_work_is_not_ended_and_pages_with_both_facts(
    watched: Watched, mode: str, vitals: dict[str, float], named: str
) -> None:
    watched.vitals = vitals
    watched.cluster.run_state = "failed" if mode == "crash" else "running"
    watched.tick(100, every=5)
    assert watched.store.of_run(RUN) == [], "it may be about to end"
    watched.tick(100, every=5)
    assert watched.driver.calls == []
    [incident] = watched.store.escalations()
    assert named in incident.reason
    assert ("recorded as failed" if mode == "crash" else "no step is reported at step 40") in incident.reason
    watched.vitals = dict.fromkeys(vitals, 0.0)
    watched.tick(90, every=5)
    assert watched.driver.calls != [], "the other source agrees now"


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Plain]:
    made = Plain(tmp_path / "state", two_phase=True)
    made.cpu = made
    made.restart()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("cpu_use", "vitals", "named"),
    [
        (Unknown("sstat is not there"), {}, "no second vantage point agrees: CPU time unknown: sstat is not there"),
        (CpuUse(0.9, 60.0, 1), {}, "CPU time 0.90 CPUs busy in the last 60 s (scheduler)"),
        (CpuUse(0.9, 60.0, 64), {}, "one rank of many may work alone"),
        (CpuUse(1.0, 60.0, 1), {UNITS: 0.05}, "it works by GPU units 5% active"),
        (CpuUse(1.0, 60.0, 1), {EFA: 0.0}, "EFA 0 MB/s sent"),
        (CpuUse(0.0, 60.0, 1), {UNITS: 0.45}, "it works by GPU units 45% active"),
    ],
)
def test_a_silent_log_alone_ends_no_job_without_the_library(
    plain: Plain, cpu_use: CpuUse | Unknown, vitals: dict[str, float], named: str
) -> None:
    """It may be buffered."""
    plain.cpu_use, plain.vitals = cpu_use, vitals
    plain.tick(300, every=5)
    assert plain.driver.calls == []
    [incident] = plain.store.escalations()
    assert named in incident.reason or named.startswith("one rank")
    assert "trainwarden-remediator approve" in incident.reason


@pytest.mark.parametrize(
    ("cpu_use", "vitals"),
    [
        (CpuUse(0.0, 60.0, 1), {}),
        (CpuUse(0.4, 60.0, 64), {}),
        (Unknown("sstat is not there"), {UNITS: 0.0}),
        (CpuUse(1.0, 60.0, 1), {POWER: 300.0, USUAL: 650.0}),
    ],
)
def test_a_second_vantage_point_that_agrees_lets_such_a_job_be_restarted(
    plain: Plain, cpu_use: CpuUse | Unknown, vitals: dict[str, float]
) -> None:
    plain.cpu_use, plain.vitals = cpu_use, vitals
    plain.tick(90, every=5)
    assert plain.our_starts == [0]


def test_a_job_that_turns_out_to_work_before_its_end_is_left_alone(plain: Plain) -> None:
    plain.cpu_use = CpuUse(0.0, 60.0, 1)
    plain.captures.seconds = 10
    plain.tick(2)
    assert [each.state for each in plain.store.open_incidents()] == [State.CAPTURING]
    plain.cpu_use = CpuUse(0.9, 60.0, 1)
    plain.tick(30)
    assert plain.driver.calls == []


def test_what_begins_to_work_during_the_delay_calls_the_restart_off(watched: Watched) -> None:
    watched.driver.faults = ["dropped"]
    watched.captures.seconds = 10
    watched.tick(2)
    assert [each.state for each in watched.store.open_incidents()] == [State.CAPTURING]
    watched.vitals = {UNITS: 0.45}
    watched.tick(200, every=5)
    assert watched.driver.calls == []
    assert "GPU units 45% active" in watched.store.escalations()[0].reason


def test_a_job_that_the_scheduler_has_ended_is_restarted_whatever_the_gpus_do(watched: Watched) -> None:
    watched.vitals = {UNITS: 0.9}
    watched.cluster.crash()
    watched.tick(60, every=5)
    assert watched.our_starts == [0]


@pytest.mark.parametrize(
    ("mode", "run", "vitals"),
    [
        pytest.param("stall", HALTED, {UNITS: 0.002, POWER: 600.0, USUAL: 650.0}, id="no GPU units at full power"),
        pytest.param("stall", HALTED, {POWER: 300.0, USUAL: 650.0}, id="half the power waits in a collective"),
        pytest.param("stall", HALTED, {"run:gpu_utilization:avg": 1.0}, id="so does full utilization"),
        pytest.param("stall", HALTED, {LOG: NOW - 5}, id="a watchdog writes to the log of a run that hangs"),
        pytest.param("crash", FAILED, {LOG: NOW - 570}, id="a traceback is written after the failure"),
        pytest.param("stall", replace(HALTED, stepped=NOW - 250), {EFA: 5e9}, id="an average over the last step"),
        pytest.param("stall", replace(HALTED, stepped=2000.0), {POWER: 300.0, USUAL: 300.0}, id="usually it hangs"),
        pytest.param(
            "stall", replace(HALTED, stepped=None, started=None), {UNITS: 0.9}, id="nothing is known to compare with"
        ),
        pytest.param("crash", FAILED, {LOG: NOW + 3600}, id="a log of a server whose clock is wrong"),
        pytest.param("stall", replace(HALTED, stepped=None, started=NOW - 60), {UNITS: 0.9}, id="it has just begun"),
    ],
)
def test_what_a_run_that_hangs_shows_as_well_holds_nothing_back(
    mode: str, run: ReportedRun, vitals: dict[str, float]
) -> None:
    assert contradiction(mode, replace(run, vitals=vitals), None, NOW) is None


def test_gpus_say_the_same_to_rules_and_remediator() -> None:
    """Else one would end what the other takes for work."""
    values = read_values(Path(__file__).resolve().parents[3] / "rules/values.yml")
    assert float(values["hang.units_active"].default) == UNITS_WORK
    assert float(values["hang.power_share"].default) == POWER_WORKS
    least = replace(HALTED, vitals={UNITS: UNITS_WORK})
    assert contradiction("stall", least, None, NOW) is None
    assert contradiction("stall", replace(least, vitals={UNITS: UNITS_WORK + 0.001}), None, NOW) is not None


@pytest.mark.parametrize(
    ("mode", "vitals"),
    [
        ("stall", {UNITS: 0.45}),
        ("stall", {POWER: 600.0, USUAL: 650.0}),
        ("stall", {EFA: 5e9}),
        ("crash", {LOG: NOW - 5}),
    ],
)
def test_a_clock_of_the_remediator_that_is_behind_hides_no_work(mode: str, vitals: dict[str, float]) -> None:
    run = replace(FAILED if mode == "crash" else HALTED, vitals={**vitals, OBSERVED: NOW})
    for behind in (0.0, 3600.0):
        assert contradiction(mode, run, None, NOW - behind) is not None, behind


def test_many_nodes_that_idle_do_not_add_up_to_work() -> None:
    """Where the fabric carries storage and monitoring, too, each node sends a little in a hang."""
    run = replace(HALTED, vitals={INFINIBAND: 256 * 1e5})
    job = ScheduledJob("17", "r", 0, JobState.RUNNING, "RUNNING", nodes=tuple(f"n{number}" for number in range(256)))
    assert contradiction("stall", run, job, NOW) is None
    assert contradiction("stall", replace(run, vitals={INFINIBAND: 256 * 1e8}), job, NOW) is not None


def test_a_run_that_works_before_its_first_step_is_not_ended() -> None:
    """As one that evaluates first: each restart would do the same again."""
    starting = replace(HALTED, step=None, high_water=None, stepped=None, vitals={UNITS: 0.4})
    found = contradiction("stall", starting, None, NOW)
    assert found is not None
    assert "GPU units 40% active" in found.reason


def test_a_first_step_before_the_end_calls_the_restart_off(watched: Watched) -> None:
    cluster = watched.cluster
    cluster.step = cluster.high_water = None  # type: ignore[assignment]  # none was made yet
    watched.alerts_now = lambda: [  # type: ignore[method-assign]
        Alert({"alertname": "TrainRunStalled", "run_id": RUN, "attempt": "0", "failure_mode": "stall"}, None)
    ]
    watched.captures.seconds = 10
    watched.tick(3)
    assert [each.state for each in watched.store.open_incidents()] == [State.CAPTURING]
    cluster.step = cluster.high_water = 1.0
    watched.tick(9)
    assert watched.driver.calls == []
    assert "has made a step" in watched.store.of_run(RUN)[0].reason


def test_a_step_below_the_highest_before_the_end_calls_the_restart_off(tmp_path: Path) -> None:
    """After a restart it takes a while until a run passes the step of the attempt before; it works meanwhile."""
    stepping = Stepping(tmp_path / "stepping", two_phase=True)
    stepping.captures.seconds = 10
    stepping.tick(3)
    assert [each.state for each in stepping.store.open_incidents()] == [State.CAPTURING]
    stepping.stepped = stepping.clock.now()
    stepping.tick(9)
    assert stepping.driver.calls == []
    stepping.close()


def contradicted(watched: Watched) -> Incident:
    watched.vitals = {UNITS: 0.45}
    watched.tick(130, every=5)
    [incident] = watched.store.escalations()
    return incident


def test_a_person_lets_a_run_that_hangs_be_restarted_against_another_source(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outbox = Outbox(watched.engine, watched.clock, ["slack"])
    watched.store.note_message = outbox.note
    incident = contradicted(watched)
    [message] = outbox.due("slack")
    assert f"trainwarden-remediator approve {incident.id}" in as_notice(message).text()
    state = f"--state-dir={tmp_path / 'state'}"
    assert main(["explain", state, RUN]) == 0
    assert f"you may: trainwarden-remediator approve {state} {incident.id}" in capsys.readouterr().out
    assert main(["veto", state, incident.id]) == 1
    assert main(["approve", state, incident.id]) == 0
    assert watched.store.escalations() == []
    watched.settle()
    assert watched.our_starts == [0]
    made = next(each for each in watched.store.of_run(RUN) if each.committed)
    assert "has approved it against other facts" in made.reason


def test_an_approval_holds_for_the_run_of_its_own_cluster_alone(watched: Watched, tmp_path: Path) -> None:
    watched.cluster_name = "east"
    incident = contradicted(watched)
    assert main(["approve", f"--state-dir={tmp_path / 'state'}", incident.id]) == 0
    key = incident.attempt_key or ""
    assert watched.store.answers.approved_against_facts(RUN, "east", key, None) is not None
    assert watched.store.answers.approved_against_facts(RUN, "west", key, None) is None


@pytest.mark.parametrize("answer", ["approve", "ack"])
def test_three_alerts_of_a_run_whose_gpus_work_are_one_page_and_one_answer(
    tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path / "state", policy="megatron_transient")
    outbox = Outbox(watched.engine, watched.clock, ["slack"])
    watched.store.note_message = outbox.note
    own = watched.alerts_now

    def three() -> list[Alert]:
        more = ({"alertname": "TrainRankSilent"}, {"alertname": "TrainHeartbeatsEnded", "failure_mode": "timeout"})
        return own() + [replace(each, labels={**each.labels, **labels}) for labels in more for each in own()]

    monkeypatch.setattr(watched, "alerts_now", three)
    incident = contradicted(watched)
    assert watched.store.of_run(RUN) == [incident]
    known = watched.store.known_of([incident.id])[incident.id]["alerts"]
    assert [(each["alert"], each["root"]) for each in known] == [
        ("TrainHeartbeatsEnded", True),
        ("TrainRunStalled", False),
        ("TrainRankSilent", False),
    ]
    [message] = outbox.due("slack")
    assert len(message.alerts) == 3
    assert main([answer, f"--state-dir={tmp_path / 'state'}", incident.id]) == 0
    watched.tick(600, every=5)
    assert watched.store.escalations() == []
    assert watched.our_starts == ([0] if answer == "approve" else [])
    made = [each for each in watched.store.of_run(RUN) if each.action is Action.RESTART]
    assert [each.state for each in made] == ([State.DONE] if answer == "approve" else [])
    watched.close()


def test_a_run_that_is_only_observed_pages_for_no_restart_that_would_not_be_made(watched: Watched) -> None:
    watched.policies.take(replace(watched.policies, mode="observe"))
    watched.vitals = {UNITS: 0.45}
    watched.tick(2400, every=30)
    assert watched.store.escalations() == []
    [waiting] = watched.store.pending()
    assert "it works by GPU units 45% active" in (waiting.waits_for or "")
    watched.policies.take(replace(watched.policies, mode="act"))
    watched.tick(150, every=5)
    assert len(watched.store.escalations()) == 1


def test_to_take_a_page_over_lets_nothing_be_restarted(watched: Watched, tmp_path: Path) -> None:
    incident = contradicted(watched)
    assert main(["ack", f"--state-dir={tmp_path / 'state'}", incident.id]) == 0
    watched.tick(600, every=5)
    assert watched.driver.calls == []


def test_an_approval_holds_for_its_attempt_alone(watched: Watched, tmp_path: Path) -> None:
    incident = contradicted(watched)
    watched.cluster.requeue_by_slurm()
    watched.cluster.progress_after_start = False
    watched.tick(5)
    main(["approve", f"--state-dir={tmp_path / 'state'}", incident.id])
    watched.tick(100, every=5)
    assert watched.driver.calls == []


def test_an_approval_lapses_with_the_next_step(watched: Watched, tmp_path: Path) -> None:
    """The run did not hang, and goes on: weeks later, in the same attempt, another alert is another question."""
    incident = contradicted(watched)
    watched.silenced = True
    watched.tick(5)
    assert main(["approve", f"--state-dir={tmp_path / 'state'}", incident.id]) == 0
    watched.cluster.step = watched.cluster.high_water = 60.0
    watched.tick(5)
    watched.silenced = False
    watched.tick(150, every=5)
    assert watched.driver.calls == []
    assert len(watched.store.escalations()) == 1


def test_a_log_that_goes_on_after_a_failure_says_that_the_run_works() -> None:
    found = contradiction("crash", replace(FAILED, vitals={LOG: NOW - 5}), None, NOW)
    assert found is not None
    assert "log grows (prometheus)" in found.reason


def test_each_fact_has_source_value_time_and_what_it_supports() -> None:
    known = facts_of("stall", replace(HALTED, alive=NOW - 3, vitals={UNITS: 0.002}), Unknown("down"), NOW)
    shown = {fact.subject: (fact.source, fact.value, fact.at, fact.supports) for fact in known}
    assert shown["steps"] == ("prometheus", "step 40", NOW - 1200, Supports.STALLED)
    assert shown["job"] == ("scheduler", "no answer: down", NOW, Supports.UNKNOWN)
    assert shown["GPU units"] == ("prometheus", "0% active", NOW, Supports.STALLED)
    assert shown["heartbeat"][2] == NOW - 3


def test_the_facts_of_a_decision_are_stored_and_shown(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outbox = Outbox(watched.engine, watched.clock, ["slack"])
    watched.store.note_message = outbox.note
    watched.vitals = {UNITS: 0.01}
    watched.tick(2)
    [incident] = watched.store.of_run(RUN)
    known = {fact["subject"]: fact for fact in watched.store.known_of([incident.id])[incident.id]["facts"]}
    assert known["GPU units"]["value"] == "1% active"
    assert known["steps"]["age"] == pytest.approx(900, abs=2)
    assert known["job 17"]["source"] == "scheduler"
    [message] = outbox.due("slack")
    assert "GPU units: 1% active (prometheus, stalled)" in message.evidence
    watched.close()
    assert main(["explain", f"--state-dir={tmp_path / 'state'}", RUN]) == 0
    assert "GPU units: 1% active (prometheus, stalled)" in capsys.readouterr().out
    assert main(["explain", f"--state-dir={tmp_path / 'state'}", RUN, "--json"]) == 0
    [shown] = json.loads(capsys.readouterr().out)["incidents"]
    keys = {"moment", "source", "subject", "value", "observed", "age", "supports", "decided"}
    assert keys == set(shown["facts"][0])


def test_what_the_last_check_before_the_end_has_read_is_stored_with_the_call(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A minute after the decision other facts may hold: those by which the attempt was ended."""
    watched.captures.seconds = 60
    watched.captures.timeout = 90
    watched.vitals = {UNITS: 0.01}
    watched.tick(5)
    assert [each.state for each in watched.store.open_incidents()] == [State.CAPTURING]
    watched.vitals = {UNITS: 0.0}
    watched.settle()
    assert watched.our_starts == [0]
    [incident] = watched.store.of_run(RUN)
    known = watched.store.known_of([incident.id])[incident.id]["facts"]
    cores = [each for each in known if each["subject"] == "GPU units"]
    assert [(each["moment"], each["value"]) for each in cores] == [("decision", "1% active"), ("call", "0% active")]
    assert cores[1]["decided"] >= cores[0]["decided"] + 60
    watched.close()
    assert main(["explain", f"--state-dir={tmp_path / 'state'}", RUN]) == 0
    shown = capsys.readouterr().out
    assert "GPU units: 1% active (prometheus, stalled)" in shown
    assert "at the call, GPU units: 0% active (prometheus, stalled)" in shown
    assert "at the call, record" not in shown, "what has not changed is shown once"


def test_what_rules_make_of_a_run_is_read_beside_its_record() -> None:
    ours = {"run_id": "r", "cluster": "c"}
    target = {**ours, "instance": "n1:9745"}
    samples = [
        PrometheusSample({"__name__": "training_run_info", "attempt_key": "slurm:17:0", **target}, 1.0),
        PrometheusSample({"__name__": "training_run_attempt", **target}, 0.0),
        PrometheusSample({"__name__": UNITS, **ours}, 0.4),
        PrometheusSample({"__name__": LOG, **target}, 5.0),
    ]
    run = read_run("r", samples)
    assert run is not None
    assert run.vitals == {UNITS: 0.4, LOG: 5.0}


def test_a_job_that_runs_says_nothing_about_its_ranks(watched: Watched) -> None:
    assert watched.cluster.state is JobState.RUNNING
    watched.tick(60, every=5)
    assert watched.our_starts == [0]
