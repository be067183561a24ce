"""That the remediator cannot judge is a state: on its page of metrics, in its readiness and in its log."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry

from tests.unit.remediator.simulated_cluster import FakeClock
from tests.unit.remediator.simulation import Simulation
from trainwarden.server.messages import Request, Response
from trainwarden_remediator.metrics import RemediatorCollector
from trainwarden_remediator.observe.readings import Answers
from trainwarden_remediator.web.credentials import Credentials
from trainwarden_remediator.web.server import RemediatorPages


def readiness(simulation: Simulation) -> Response:
    pages = RemediatorPages(
        simulation.store,
        simulation.metrics,
        CollectorRegistry(),
        simulation.clock,
        Credentials(lambda: ["t"]),
        lambda: None,
        lambda: True,
    )
    return pages.respond(Request("GET", "/-/ready", {}, lambda _limit: b""))


def unable(simulation: Simulation) -> dict[str, float]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RemediatorCollector(simulation.metrics, simulation.store))
    return {
        sample.labels["source"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "trainwarden_remediator_unable_to_judge"
    }


def goes_away(simulation: Simulation, source: str) -> None:
    if source == "sim":
        simulation.driver.down = True
    else:
        setattr(simulation, f"{source}_down", True)


@pytest.mark.parametrize("source", ["alertmanager", "prometheus", "sim"])
def test_a_source_without_an_answer_is_shown_after_a_minute_until_it_answers(
    simulation: Simulation, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    goes_away(simulation, source)
    simulation.tick(50)
    assert readiness(simulation).status == 200, "one lost answer is nothing"
    simulation.tick(20)
    assert unable(simulation) == {name: float(name == source) for name in ("alertmanager", "prometheus", "sim")}
    response = readiness(simulation)
    assert response.status == 503
    assert response.body.decode().startswith(f"unable to judge: no answer from {source}: ")
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(said) == 2, "at once, and after a minute"
    assert said[0].startswith(f"{source} gives no answer: ")
    assert said[1].startswith(f"{source} has given no answer for 60 s: ")

    simulation.driver.down = simulation.prometheus_down = simulation.alertmanager_down = False
    simulation.tick()
    assert readiness(simulation).status == 200
    assert set(unable(simulation).values()) == {0.0}
    assert f"{source} answers again after 70 s" in [each.getMessage() for each in caplog.records]


def test_a_crash_that_prometheus_does_not_show_yet_is_waited_for(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replica has sent the alert, and this one has not scraped the failure yet: the alert is never sent anew."""
    behind = simulation.run("run-1")
    simulation.cluster.crash()
    with monkeypatch.context() as patched:
        patched.setattr(simulation, "run", lambda _run_id: behind)
        simulation.tick(20)
    assert simulation.our_starts == []
    simulation.settle()
    assert simulation.our_starts == [0]


def test_one_of_several_readings_of_each_round_that_fails_is_one_outage_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where slurmctld answers and slurmdbd does not, or Prometheus gives up the longer one of two queries."""
    caplog.set_level(logging.INFO)
    clock = FakeClock()
    answers = Answers(clock.monotonic)
    for each in range(100):
        clock.elapsed = each * 1.5
        answers.read("slurm", None, "jobs")
        answers.read("slurm", f"no answer after {each} s", "job 7")
    answers.read("slurm", None, "jobs")
    answers.read("slurm", None, "job 7")
    assert [each.getMessage() for each in caplog.records] == [
        "slurm gives no answer: no answer after 0 s",
        "slurm has given no answer for 60 s: no answer after 40 s",
        "slurm has given no answer for 120 s: no answer after 80 s",
        "slurm answers again after 148 s",
    ]


@pytest.mark.parametrize(
    ("fails", "works", "is_unable"), [("restarts", "runs", True), ("jobs", "job 7", True), ("job 7", "job 8", False)]
)
def test_one_of_several_readings_that_is_needed_and_always_fails_leaves_it_unable_to_judge(
    fails: str, works: str, is_unable: bool
) -> None:
    """As the longer one of two queries. A single job that cannot be read is no outage of its scheduler."""
    clock = FakeClock()
    answers = Answers(clock.monotonic)
    for clock.elapsed in range(0, 70, 5):
        answers.read("it", "no answer", fails)
        answers.read("it", None, works)
    assert answers.missing() == ({"it": "no answer"} if is_unable else {})
    answers.read("it", None, fails)
    assert answers.missing() == {}


def test_what_is_not_asked_for_any_more_keeps_no_outage_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock()
    answers = Answers(clock.monotonic)
    answers.read("slurm", "no answer", "job 7")
    for clock.elapsed in (100.0, 130.0, 160.0):
        answers.read("slurm", None, "job 8")
    answers.read("slurm", "no answer", "job 9")
    assert [each.getMessage() for each in caplog.records] == [
        "slurm gives no answer: no answer",
        "slurm answers again after 130 s",
        "slurm gives no answer: no answer",
    ]


def test_a_source_that_nobody_needs_any_more_keeps_nothing_unready(simulation: Simulation) -> None:
    simulation.prometheus_down = True
    simulation.tick(70, every=5)
    assert readiness(simulation).status == 503
    simulation.silenced = True  # the alert is answered: nothing is left to be judged
    simulation.tick(130, every=5)
    assert readiness(simulation).status == 200
