"""A node of a real cluster is lost: its daemon and all processes of the job on it are killed, and it is silent."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm.acting_remediator import ActingRemediator, Training
from tests.slurm.cluster import NODES, Cluster, Job, OwnCluster, running_cluster
from tests.slurm.programs import Programs
from tests.slurm.training_job import TrainingJob, submit
from tests.waiting import wait_until
from trainwarden.clients.slurm.nodes import SlurmNode
from trainwarden.record.progress import Progress, read_progress
from trainwarden.record.superseded import read_superseded
from trainwarden_remediator.act.drains import read_nodes
from trainwarden_remediator.drivers.slurm_access import slurm_client
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.observe.nodes import SuspectNodes
from trainwarden_remediator.observe.records import Records
from trainwarden_remediator.policies.limits import ExcludeNodes, Limits

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(420)]

# After how long slurmctld takes a silent node for DOWN; it asks three times as often.
DOWN_SECONDS = 15
UNSHARE = ("unshare", "--uts") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--uts")
# Each start on a host of its own, as far as it can see.
TRAINING = f"""\
#!/bin/bash
#SBATCH --requeue --open-mode=append
echo "start ${{SLURM_RESTART_COUNT:-0}}"
exec {shlex.join(UNSHARE)} sh -c 'hostname "host${{SLURM_RESTART_COUNT:-0}}"; \
    exec python3 {Path(__file__).with_name("endless_training.py")}'
"""
_LOST = frozenset(("down", "not_responding"))


@pytest.fixture(scope="module")
def losing_cluster(slurm_programs: Programs) -> Iterator[OwnCluster]:
    """A cluster whose controller notices soon that a node is lost."""
    with running_cluster(slurm_programs, {"SlurmdTimeout": str(DOWN_SECONDS)}) as started:
        yield started


@dataclass(frozen=True)
class LostNodes:
    """The nodes that SLURM shows as lost, as TrainSlurmNodeFailed names them."""

    cluster: Cluster

    def of_run(self, _run_id: str) -> SuspectNodes | Unknown:
        """The nodes of the one run of a test."""
        lost = [name for name, node in nodes(self.cluster).items() if node.state in _LOST]
        return SuspectNodes(dict.fromkeys(lost, "TrainSlurmNodeFailed"), len(NODES))

    def of_jobs(self, _job_ids: Collection[str]) -> Mapping[str, Sequence[str]] | Unknown:
        """No storm is judged."""
        return {}


@pytest.fixture
def acting(losing_cluster: OwnCluster, tmp_path: Path) -> Iterator[ActingRemediator]:
    """The remediator on that cluster, whose nodes are all there again afterwards."""
    limits = Limits(exclude_nodes=ExcludeNodes())
    made = ActingRemediator(losing_cluster, tmp_path / "state", nodes=LostNodes(losing_cluster), limits=limits)
    try:
        yield made
    finally:
        made.close()
        for node in lost_nodes(losing_cluster):
            losing_cluster.start_node(node)
        wait_until(
            lambda: {node.state for node in nodes(losing_cluster).values()} == {"idle"},
            lambda: f"all nodes are idle again\n{losing_cluster.logs()}",
        )


def nodes(cluster: Cluster) -> dict[str, SlurmNode]:
    """The nodes as SLURM shows them."""
    found = read_nodes(slurm_client(cluster.bin, 20))
    assert isinstance(found, list), found
    return {node.name: node for node in found}


def lost_nodes(cluster: Cluster) -> list[str]:
    """The names of those that SLURM shows as lost."""
    return [name for name, node in nodes(cluster).items() if node.state in _LOST]


def lose_node(cluster: OwnCluster, training: Training) -> str:
    """Kill all that lives on the node of a job, its daemon first, which else would report the end; return its name."""
    node = present(training).nodes
    assert node in NODES
    cluster.kill(node)
    cluster.kill_job(training.job_id)
    return node


def present(training: Training) -> Job:
    """The job as SLURM shows it."""
    job = training.cluster.job(training.job_id)
    assert job is not None
    return job


def started_once_elsewhere(cluster: OwnCluster, acting: ActingRemediator, training: Training, lost: str) -> None:
    """The run has one more start, on another node, also once the old node is there again."""
    job = present(training)
    assert (training.starts, job.state, job.restarts) == ([0, 1], "RUNNING", 1), acting.report()
    assert job.nodes in set(NODES) - {lost}, acting.report()
    cluster.start_node(lost)
    acting.until(lambda: nodes(cluster)[lost].state == "idle")
    assert (training.starts, present(training).nodes) == ([0, 1], job.nodes), acting.report()


def test_a_run_whose_node_is_silent_is_restarted_once_and_away_from_it(
    acting: ActingRemediator, losing_cluster: OwnCluster
) -> None:
    """Its silence is noticed before SLURM takes the node for DOWN, which by default is after five minutes."""
    training = acting.submit("run-1")
    training.alerts = False
    lost = lose_node(losing_cluster, training)
    wait_until(lambda: lost_nodes(acting.cluster) == [lost], acting.report)
    training.alerts = True
    acting.until(lambda: acting.over(training) and len(training.starts) > 1, 200)
    [incident] = acting.incidents(training)
    assert incident.state is State.DONE, acting.report()
    assert f"away from {lost} (TrainSlurmNodeFailed)" in incident.reason
    assert f"ExcNodeList={lost}" in acting.cluster.run("scontrol", "show", "job", str(training.job_id))
    started_once_elsewhere(losing_cluster, acting, training, lost)


def test_a_job_that_slurm_requeues_for_its_lost_node_is_left_to_slurm(
    acting: ActingRemediator, losing_cluster: OwnCluster
) -> None:
    training = acting.submit("run-1")
    training.alerts = False
    lost = lose_node(losing_cluster, training)
    wait_until(lambda: present(training).restarts == 1, acting.report)
    training.alerts = True
    acting.until(lambda: acting.over(training) and len(training.starts) > 1, 200)
    assert acting.store.calls.of_job("slurm", str(training.job_id)) == []
    [incident] = acting.incidents(training)
    assert (incident.state, incident.paging) == (State.SUPPRESSED, False), acting.report()
    assert "has been started again already, and not by the remediator" in incident.reason
    started_once_elsewhere(losing_cluster, acting, training, lost)


def recorded(job: TrainingJob) -> set[Path]:
    """The checkpoints that a new start may resume from."""
    progress = read_progress(job.folder)
    assert isinstance(progress, Progress)
    return {Path(each.path) for each in progress.known_checkpoints()}


def test_two_attempts_that_live_at_once_are_seen_until_the_old_node_is_there_again(
    losing_cluster: OwnCluster, tmp_path: Path
) -> None:
    """The daemon of the node is gone and the training on it is not: SLURM starts the run a second time beside it.

    What the older attempt saves from then on is no checkpoint of the run.
    """
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("host names of their own are not allowed here")
    cluster, runs, script = losing_cluster, tmp_path / "runs", tmp_path / "training.sbatch"
    runs.mkdir()
    saving = f"export CHECKPOINTS={shlex.quote(str(tmp_path))}\nexec unshare"
    script.write_text(TRAINING.replace("exec unshare", saving), encoding="utf-8")
    job = submit(cluster, runs, "run-1", script, stall_seconds=600, stale_seconds=600)
    job.has_passed(5)
    shown = cluster.job(job.job_id)
    assert shown is not None
    cluster.kill(shown.nodes)
    wait_until(lambda: len(job.attempts) == 2, cluster.logs)
    records = Records(runs)
    rival = wait_until(lambda: records.rival("run-1", time.time()), cluster.logs)
    assert isinstance(rival, str)
    assert "attempt 0 still runs on host0" in rival
    [(kept_out, _)] = wait_until(
        lambda: [each for each in read_superseded(job.folder) if each[0].checkpoints], cluster.logs
    )
    fenced_off = {Path(each.path) for each in kept_out.checkpoints}
    wait_until(lambda: any(each.name.startswith("1-") for each in recorded(job)), cluster.logs)
    assert all(each.name.startswith("0-") and each.exists() for each in fenced_off), fenced_off
    assert not fenced_off & recorded(job)
    cluster.start_node(shown.nodes)
    wait_until(lambda: records.rival("run-1", time.time()) is None, cluster.logs)
    assert job.starts == 2
    job.has_passed(job.step)
    cluster.run("scancel", str(job.job_id))
