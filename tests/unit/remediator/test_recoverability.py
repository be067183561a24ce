"""Before a job fails it is known whether it could be brought back, and what stands in the way."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.remediator.test_slurm_driver import ENTRY, Tools, entry, tools
from trainwarden.record.folder import write_json
from trainwarden.record.progress import Checkpoint
from trainwarden_remediator.act.resume_point import ResumePoints
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.choice import Policies
from trainwarden_remediator.examine.recoverability import Outlook, prospects
from trainwarden_remediator.observe.evidence import Evidence, ReportedRun
from trainwarden_remediator.policies.policy import load_policy

__all__ = ["tools"]

pytestmark = pytest.mark.process

HEALTHY = ReportedRun("run-1", 0, "slurm:17:0", "running", 10.0, 10.0, checkpoint_step=5.0)
CONFIGURATION = "SlurmUser = slurm(64030)\nMinJobAge = 300 sec\nAccountingStorageType = accounting_storage/none"


class Runs:
    """Prometheus, with one answer about every run."""

    def __init__(self, run: Evidence = HEALTHY) -> None:
        self.run = run

    def runs(self, run_ids: Collection[str]) -> Mapping[str, Evidence]:
        return dict.fromkeys(run_ids, self.run)

    def restarts(self, _database: str) -> Mapping[str, float] | Unknown:
        return {}


def _configured(tools: Tools, text: str = CONFIGURATION) -> None:
    tools.write("scontrol", f'echo "$@" >> "$0.log"; printf "%s\\n" "{text}"')


def _obstacles(tools: Tools, run: Evidence = HEALTHY, policy: str = "default", mode: str = "act") -> list[str]:
    driver = tools.driver()
    jobs = driver.jobs()
    assert not isinstance(jobs, Unknown)
    listed = [*jobs, *driver.unmarked()]
    found = prospects(driver, listed, Runs(run), Policies(load_policy(policy), mode=mode))
    assert [each.job.job_id for each in found][:1] == ["17"]
    return list(found[0].obstacles)


def test_a_marked_job_with_a_checkpoint_could_be_brought_back_and_nothing_is_changed_to_see_it(tools: Tools) -> None:
    _configured(tools)
    assert _obstacles(tools) == []
    assert tools.called == ["show config"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"comment": ""}, "no mark trainwarden:RUN_ID"),
        ({"requeue": False}, "--no-requeue"),
        ({"user_id": 4711}, "see --slurm-allow-user"),
        ({"het_job_id": 17}, "heterogeneous"),
        ({"array_job_id": 17, "array_task_id": None, "job_state": "PENDING"}, "several array tasks"),
        ({"restart_cnt": 1}, "another start"),
    ],
)
def test_what_stands_in_the_way_is_named(tools: Tools, changes: dict[str, Any], said: str) -> None:
    _configured(tools)
    tools.jobs(entry(**changes))
    assert any(said in obstacle for obstacle in _obstacles(tools))


def test_a_freeze_that_somebody_may_have_forgotten_is_one_of_them(tools: Tools) -> None:
    """An alert about the run would name the restarts that are left."""
    _configured(tools)
    frozen = {"run-1": "frozen by alice since 2027-01-15T08:00:00Z: I look at it"}
    outlook = Outlook(Runs(), Policies(load_policy("default"), mode="act"), frozen=frozen.get)
    driver = tools.driver()
    outlook.look(driver, driver.jobs())
    [family] = outlook.families()
    assert [(each.labels["reason"], each.value) for each in family.samples] == [(frozen["run-1"], 0.0)]


def test_the_right_to_change_the_jobs_of_others_is_one_of_them(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 65534)
    _configured(tools)
    tools.jobs(entry(user_id=4711))
    driver = tools.driver(users={4711})
    jobs = driver.jobs()
    assert not isinstance(jobs, Unknown)
    (job,) = jobs
    [obstacle] = driver.obstacles(job)
    assert "change no job of uid 4711: it needs AdminLevel Operator" in obstacle


@pytest.mark.parametrize(
    ("run", "policy", "said"),
    [
        (None, "default", "Prometheus has no record"),
        (Unknown("no answer"), "default", "its record is unknown: no answer"),
        (ReportedRun("run-1", 0, "slurm:17:0", "running"), "default", "no checkpoint"),
        (HEALTHY, "observe", "policy observe restarts nothing"),
    ],
)
def test_so_are_its_record_and_its_policy(tools: Tools, run: Evidence, policy: str, said: str) -> None:
    _configured(tools)
    [obstacle] = _obstacles(tools, run, policy)
    assert said in obstacle


@pytest.mark.parametrize("run", [None, ReportedRun("run-1", 0, "slurm:17:0", "running")])
def test_messages_leave_out_what_may_be_over_since_it_was_looked_at(tools: Tools, run: Evidence) -> None:
    """The rule that names what stands in the way knows these two by their beginnings."""
    _configured(tools)
    [obstacle] = _obstacles(tools, run, "default")
    rules = Path("rules/alerts/remediator.yml").read_text()
    [left_out] = re.findall(r'trainwarden_remediator_recoverable\{reason!~"([^"]+)"', rules)
    assert re.fullmatch(left_out, obstacle)


def test_so_is_that_no_checkpoint_is_proven_complete(tools: Tools, tmp_path: Path) -> None:
    """A restart would stop for a person then."""
    _configured(tools)
    record = tmp_path / "runs" / "run-1"
    record.mkdir(parents=True)
    checkpoint = record / "step_40.safetensors"
    checkpoint.write_bytes((200).to_bytes(8, "little") + b"{")
    saved = Checkpoint(path=str(checkpoint), step=40, time=1000.0).to_json()
    write_json(record / "progress.json", {"step": 50, "checkpoint": saved, "checkpoints": [saved]})
    write_json(record / "resume.json", {"attempt_key": HEALTHY.attempt_key})
    points = ResumePoints(record.parent)
    driver = tools.driver()
    jobs = driver.jobs()
    assert not isinstance(jobs, Unknown)
    [found] = prospects(
        driver,
        jobs,
        Runs(),
        Policies(load_policy("default"), mode="act"),
        lambda run, trust: points.stops(run.run_id, run.attempt_key, trust),
    )
    [obstacle] = found.obstacles
    assert obstacle.startswith("no checkpoint is proven complete: step 40")


def test_so_is_that_the_run_is_observed_only(tools: Tools) -> None:
    _configured(tools)
    assert _obstacles(tools, mode="opt-in") == ["the run has not opted in, and is only observed"]


def test_a_job_that_slurm_forgets_before_the_failure_is_known_is_not_recoverable(tools: Tools) -> None:
    _configured(tools, CONFIGURATION.replace("300", "20"))
    [obstacle] = _obstacles(tools)
    assert "after 20 s (MinJobAge)" in obstacle


def test_the_metric_has_one_series_for_each_reason(tools: Tools) -> None:
    _configured(tools)
    tools.jobs(ENTRY, entry(job_id=18, comment="trainwarden:run-2", requeue=False))
    driver = tools.driver()
    outlook = Outlook(Runs(), Policies(load_policy("observe"), {"default": load_policy("default")}))
    outlook.look(driver, driver.jobs())
    (family,) = outlook.families()
    found = {(sample.labels["run_id"], sample.labels["reason"]): sample.value for sample in family.samples}
    assert found["run-1", "policy observe restarts nothing"] == 0
    assert found["run-2", "job 18 was submitted with --no-requeue; see --slurm-resubmit"] == 0
    outlook.look(driver, Unknown("no answer"))
    assert [family.samples for family in outlook.families()] == [[]]
