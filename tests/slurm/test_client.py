"""The client and the driver on the commands of a real SLURM."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from tests.slurm.cluster import NODES, SPARE, Cluster
from tests.users import NOBODY, needs_root
from tests.waiting import wait_until
from trainwarden.clients.slurm.client import SlurmClient, UnreadableRecord, find_commands
from trainwarden.clients.slurm.jobs import SlurmJob
from trainwarden.clients.slurm.nodes import SlurmNode
from trainwarden_remediator.act.act import Actor, Answer
from trainwarden_remediator.act.calls import ThreadedCalls
from trainwarden_remediator.act.remediate import Remediator
from trainwarden_remediator.act.sweep import Sweeper
from trainwarden_remediator.cli import main
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.decide.verdict import Refuse
from trainwarden_remediator.drivers.driver import Absent, CallOutcome, JobState, RestartTarget, ScheduledJob
from trainwarden_remediator.drivers.slurm import SlurmDriver
from trainwarden_remediator.drivers.slurm_access import slurm_client
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.objections import successor
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.observe.evidence import Evidence
from trainwarden_remediator.observe.records import Records
from trainwarden_remediator.observe.world import Firing, SystemClock, World
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers

pytestmark = pytest.mark.slurm


@pytest.fixture
def client(cluster: Cluster) -> SlurmClient:
    return SlurmClient(find_commands(cluster.bin, ("squeue", "scontrol", "sinfo")), 60.0)


@pytest.fixture
def driver(cluster: Cluster) -> SlurmDriver:
    return SlurmDriver(slurm_client(cluster.bin, 60.0), {os.getuid()})


@pytest.fixture
def submit(cluster: Cluster, tmp_path: Path) -> Callable[..., str]:
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/sh\n#SBATCH --output=/dev/null\nexec sleep 600\n", encoding="utf-8")
    return lambda *options: str(cluster.submit(script, options=["--comment=mine, trainwarden:client", *options]))


def _reading(driver: SlurmDriver, job_id: str, *states: JobState) -> ScheduledJob:
    def probe() -> ScheduledJob | None:
        reading = driver.snapshot().job(job_id)
        assert isinstance(reading, ScheduledJob)
        return reading if reading.state in states else None

    return wait_until(probe, f"job {job_id} is {states}")


def test_nodes_and_jobs_are_read_one_by_one(client: SlurmClient, submit: Callable[..., str], cluster: Cluster) -> None:
    job_id = submit("--hold", '--job-name=a\tb "c" ]}')
    nodes, jobs = list(client.nodes()), list(client.jobs())
    assert {node.name for node in nodes if isinstance(node, SlurmNode)} == {*NODES, *SPARE}
    assert not any(isinstance(record, UnreadableRecord) for record in [*nodes, *jobs])
    (job,) = (job for job in jobs if isinstance(job, SlurmJob) and job.job_id == job_id)
    assert (job.name, job.run_id, job.state, job.held) == ('a\tb "c" ]}', "client", "pending", True)
    assert job.held_by_requeue is False
    assert job_id in {each.job_id for each in client.jobs(job_id) if isinstance(each, SlurmJob)}
    cluster.run("scancel", job_id)


def test_a_job_is_read_and_replaced_by_its_next_start(
    driver: SlurmDriver, client: SlurmClient, submit: Callable[..., str], cluster: Cluster
) -> None:
    job_id = submit()
    assert _reading(driver, job_id, JobState.RUNNING).run_id == "client"
    target = RestartTarget("incident", "client", job_id, 0, "why")
    assert driver.prepare(target).outcome is CallOutcome.ACCEPTED
    held = _reading(driver, job_id, JobState.HELD)
    assert (held.generation, held.refusal) == (1, None)
    assert [job.held_by_requeue for job in client.jobs() if isinstance(job, SlurmJob) and job.job_id == job_id] == [
        True
    ]
    assert driver.commit(target).outcome is CallOutcome.ACCEPTED
    assert _reading(driver, job_id, JobState.RUNNING).generation == 1
    cluster.run("scancel", job_id)
    assert _reading(driver, job_id, JobState.CANCELLED).generation == 1


class _NothingElse:
    """No alerts fire, and Prometheus does not answer."""

    def firing(self) -> Firing:
        return []

    def runs(self, run_ids: Collection[str]) -> dict[str, Evidence]:
        return {run_id: Unknown("Prometheus does not answer") for run_id in run_ids}

    def restarts(self, _database: str) -> dict[str, float] | Unknown:
        return Unknown("Prometheus does not answer")


def test_a_job_that_is_held_for_an_incident_of_a_lost_database_is_released_and_a_persons_hold_is_not(
    driver: SlurmDriver, submit: Callable[..., str], cluster: Cluster, tmp_path: Path
) -> None:
    held, persons, both = submit(), submit(), submit()
    for job_id in (held, persons, both):
        _reading(driver, job_id, JobState.RUNNING)
    cluster.run("scontrol", "requeuehold", persons)
    for job_id in (held, both):
        assert driver.prepare(RestartTarget("lost", "client", job_id, 0, "why")).outcome is CallOutcome.ACCEPTED
    assert _reading(driver, held, JobState.HELD).hold_of == "lost"
    _reading(driver, both, JobState.HELD)
    cluster.run("scontrol", "hold", both)

    clock, nothing = SystemClock(), _NothingElse()
    store = Store(open_database(tmp_path), clock)
    world = World(clock, nothing, nothing, {"slurm": driver.snapshot()}, Records(None))
    timers = Timers(store.transactions, clock)
    Sweeper(world, store, timers, doubt_window=0).sweep()
    # Other tests may have a job held just now.
    [swept] = [each for each in store.open_incidents() if each.job_id in (held, persons, both)]
    assert (swept.job_id, swept.state) == (held, State.COMMITTED)
    actor = Actor(world, store, lambda _policy: None)
    calls: ThreadedCalls[Answer] = ThreadedCalls(1, lambda: None)
    remediator = Remediator(
        world, store, Metrics(["slurm"]), timers, actor, calls, doubt_window=0, repeat_after=0, verify_timeout=600
    )
    assert remediator.advance(swept)
    remediator.finish()
    assert _reading(driver, held, JobState.RUNNING).generation == 1
    for job_id in (persons, both):
        assert _reading(driver, job_id, JobState.HELD, JobState.ENDING).generation == 1
    for job_id in (held, persons, both):
        cluster.run("scancel", job_id)


def test_a_job_is_restarted_on_another_node_and_may_use_the_old_one_again_later(
    driver: SlurmDriver, client: SlurmClient, submit: Callable[..., str], cluster: Cluster
) -> None:
    job_id = submit("--exclude=n3")
    _reading(driver, job_id, JobState.RUNNING)
    (before,) = (job for job in client.jobs() if isinstance(job, SlurmJob) and job.job_id == job_id)
    target = RestartTarget("incident", "client", job_id, 0, "why", exclude_nodes=(before.node_list,))
    assert driver.snapshot().prepare(target).outcome is CallOutcome.ACCEPTED
    _reading(driver, job_id, JobState.HELD)
    assert driver.snapshot().commit(replace(target, exclude_nodes=("n9",))).outcome is CallOutcome.REFUSED
    assert _reading(driver, job_id, JobState.HELD).excluded_nodes == ("n3",)
    assert driver.snapshot().commit(target).outcome is CallOutcome.ACCEPTED
    assert _reading(driver, job_id, JobState.RUNNING).generation == 1
    (after,) = (job for job in client.jobs() if isinstance(job, SlurmJob) and job.job_id == job_id)
    assert {before.node_list, after.node_list} == {"n1", "n2"}

    again = replace(target, generation=1, exclude_nodes=(), readmit_nodes=(before.node_list,))
    assert driver.snapshot().prepare(again).outcome is CallOutcome.ACCEPTED
    _reading(driver, job_id, JobState.HELD)
    assert driver.snapshot().commit(again).outcome is CallOutcome.ACCEPTED
    assert _reading(driver, job_id, JobState.RUNNING).excluded_nodes == ("n3",)
    cluster.run("scancel", job_id)


def test_the_doctor_names_the_rights_and_what_stands_in_the_way_of_each_job(
    submit: Callable[..., str], driver: SlurmDriver, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    marked, unmarked = submit("--no-requeue"), submit("--comment=mine")
    for job_id in (marked, unmarked):
        _reading(driver, job_id, JobState.RUNNING)
    flags = ["--driver=slurm", f"--slurm-bin-dir={cluster.bin}", "--prometheus-url=http://127.0.0.1:1"]
    assert main([*flags, "doctor"]) == 1
    told = capsys.readouterr().out
    assert "hold, edit and requeue its own jobs: yes" in told
    assert "slurmctld forgets an ended job after 3600 s (MinJobAge)" in told
    lost = "could NOT be brought back\n  - job"
    assert f"slurm job {marked} of run client: {lost} {marked} was submitted with --no-requeue" in told
    assert f"slurm job {unmarked} of run ?: {lost} {unmarked} has no mark" in told
    for job_id in (marked, unmarked):
        assert _reading(driver, job_id, JobState.RUNNING).generation == 0
    cluster.run("scancel", marked, unmarked)


def test_a_job_that_slurm_does_not_have_is_absent(driver: SlurmDriver) -> None:
    assert driver.job("99999") == Absent()


def test_jobs_that_wait_for_a_job_go_on_waiting_while_it_is_requeued(
    driver: SlurmDriver, submit: Callable[..., str], cluster: Cluster
) -> None:
    first = submit("--job-name=client-chain", "--dependency=singleton")
    _reading(driver, first, JobState.RUNNING)
    dependencies = (f"afterany:{first}", f"afterok:{first}", f"afternotok:{first}", "singleton")
    chain = [submit("--job-name=client-chain", f"--dependency={dependency}") for dependency in dependencies]
    target = RestartTarget("incident", "client", first, 0, "why")
    assert successor(_reading(driver, first, JobState.RUNNING), _listed(driver, first, *chain)) is None
    assert driver.prepare(target).outcome is CallOutcome.ACCEPTED
    _reading(driver, first, JobState.HELD)
    for job_id in chain:
        assert _reading(driver, job_id, JobState.WAITING).waits_for_jobs, "nothing starts beside a job that is held"
    assert driver.commit(target).outcome is CallOutcome.ACCEPTED
    _reading(driver, first, JobState.RUNNING)
    for job_id in chain:
        assert _reading(driver, job_id, JobState.WAITING).waits_for_jobs
    cluster.run("scancel", *chain, first)


def test_a_job_that_has_failed_is_ended_and_says_whose_hold_its_next_start_is(
    driver: SlurmDriver, cluster: Cluster, tmp_path: Path
) -> None:
    """SLURM changes the comment of no job that has ended."""
    script = tmp_path / "fails.sbatch"
    script.write_text("#!/bin/sh\n#SBATCH --output=/dev/null\nsleep 2; exit 3\n", encoding="utf-8")
    failed = str(cluster.submit(script, options=["--comment=trainwarden:client"]))
    _reading(driver, failed, JobState.FAILED)
    target = RestartTarget("incident", "client", failed, 0, "why")
    assert driver.snapshot().prepare(target).outcome is CallOutcome.ACCEPTED
    held = _reading(driver, failed, JobState.HELD)
    assert (held.hold_of, held.held_by_requeue, held.generation) == ("incident", True, 1)
    cluster.run("scancel", failed)


def test_a_run_that_the_next_job_of_its_chain_goes_on_with_is_left_to_it(
    driver: SlurmDriver, submit: Callable[..., str], cluster: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "fails.sbatch"
    script.write_text("#!/bin/sh\n#SBATCH --output=/dev/null\nsleep 2; exit 3\n", encoding="utf-8")
    failed = str(cluster.submit(script, options=["--comment=trainwarden:client"]))
    follower = submit(f"--dependency=afterany:{failed}")
    ended = _reading(driver, failed, JobState.FAILED)
    _reading(driver, follower, JobState.RUNNING)
    refusal = successor(ended, _listed(driver, failed, follower))
    assert isinstance(refusal, Refuse)
    assert f"job {follower} is marked with the run too" in refusal.reason
    cluster.run("scancel", follower)


@needs_root
def test_a_job_of_a_hidden_partition_is_listed_for_an_ordinary_user(
    submit: Callable[..., str], cluster: Cluster, tmp_path: Path
) -> None:
    """It may go on with a run, or be left held. Before 24.05 `squeue --json` listed it also without `--all`."""
    cluster.run("scontrol", "create", "PartitionName=hidden", "Nodes=ALL", "Hidden=YES")
    cluster.folder.chmod(0o755)
    squeue = tmp_path / "squeue"
    as_nobody = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
    squeue.write_text(f'#!/bin/sh\nexec {as_nobody} {cluster.bin}/squeue "$@"\n', encoding="utf-8")
    squeue.chmod(0o755)
    job_id = submit("--partition=hidden", "--hold")
    jobs = SlurmClient({"squeue": str(squeue)}, 60.0).jobs()
    assert job_id in {job.job_id for job in jobs if isinstance(job, SlurmJob)}
    cluster.run("scancel", job_id)
    cluster.run("scontrol", "delete", "PartitionName=hidden")


def _listed(driver: SlurmDriver, *job_ids: str) -> list[ScheduledJob]:
    """Of the list of all jobs, those of one test."""
    jobs = driver.jobs()
    assert not isinstance(jobs, Unknown)
    return [job for job in jobs if job.job_id in job_ids]


def test_tasks_of_an_array_are_distinguished(
    driver: SlurmDriver, client: SlurmClient, submit: Callable[..., str], cluster: Cluster
) -> None:
    array = submit("--array=0-2%1")
    (task,) = wait_until(
        lambda: [job for job in client.jobs() if isinstance(job, SlurmJob) and job.target == f"{array}_0"],
        "its first task runs",
    )
    _reading(driver, task.job_id, JobState.RUNNING)
    rest = driver.job(array)
    assert isinstance(rest, ScheduledJob)
    assert rest.refusal == f"job {array} stands for several array tasks"
    refusal = successor(_reading(driver, task.job_id, JobState.RUNNING), _listed(driver, task.job_id, array))
    assert isinstance(refusal, Refuse), "the next task would start in the place of this one"
    assert driver.prepare(RestartTarget("incident", "client", task.job_id, 0, "why")).detail.endswith(
        f"requeuehold Incomplete {array}_0: status 0"
    )
    assert _reading(driver, task.job_id, JobState.HELD).hold_of == "incident"
    others = [job for job in client.jobs() if isinstance(job, SlurmJob) and job.queue_id.startswith(f"{array}_")]
    assert {job.restarts for job in others if job.job_id != task.job_id} == {0}
    assert driver.commit(RestartTarget("incident", "client", task.job_id, 0, "why")).outcome is CallOutcome.ACCEPTED
    cluster.run("scancel", array)
