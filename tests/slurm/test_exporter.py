"""What the exporter tells of a real cluster: one exporter and one cluster for all tests here, in this order."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import OwnCluster, running_cluster
from tests.slurm.exported_cluster import Exporter, exporter, stopped, without_munge
from tests.slurm.programs import Programs
from tests.waiting import wait_until

pytestmark = pytest.mark.slurm

OURS = 'trainwarden_collector_success{collector="slurm"}'
OTHERS = 'trainwarden_collector_success{collector="runs"}'


@pytest.fixture(scope="module")
def owned(slurm_programs: Programs) -> Iterator[OwnCluster]:
    """A cluster whose nodes may be drained; slurmctld believes that two of them have four GPUs."""
    with running_cluster(slurm_programs) as started:
        started.run("scontrol", "update", "nodename=n1,n2", "gres=gpu:4")
        yield started


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run records."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def seen(owned: OwnCluster, runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    """An exporter that looks four times a second."""
    with exporter(
        tmp_path_factory.mktemp("exporter"),
        "--collector.slurm",
        f"--collector.slurm.bin-dir={owned.bin}",
        "--collector.slurm.interval=250ms",
        "--collector.slurm.timeout=3s",
        "--collector.slurm.job-filter=named-(?P<run_id>.+)",
        "--collector.runs",
        f"--collector.runs.path={runs}",
        "--collector.runs.scope=all",
    ) as started:
        yield started


@pytest.fixture(scope="module")
def script(owned: OwnCluster) -> Path:
    """A batch script that sleeps, or ends with the status it is given."""
    path = owned.folder / "job.sbatch"
    path.write_text('#!/bin/sh\n[ "$1" ] && exit "$1"\nexec sleep 600\n', encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def late(owned: OwnCluster, script: Path) -> int:
    """A job whose time is up; slurmctld notices within half a minute."""
    job_id = owned.submit(script, options=["--comment=trainwarden:late"])
    wait_until(owned.in_state(job_id, "RUNNING"), "the job runs")
    owned.run("scontrol", "update", f"jobid={job_id}", "EndTime=now")
    return job_id


def _state(run_id: str, job_id: int, state: str) -> str:
    return f'slurm_job_state{{run_id="{run_id}",job_id="{job_id}",state="{state}"}} 1.0'


@pytest.mark.usefixtures("late")
def test_a_restart_is_seen_from_hold_to_the_next_start(owned: OwnCluster, seen: Exporter, script: Path) -> None:
    job_id = owned.submit(script, options=["--comment=trainwarden:r1", "--nodes=2", "--gres=gpu:2", "--job-name=a b"])
    ids = f'run_id="r1",job_id="{job_id}"'
    page = seen.wait_for(
        _state("r1", job_id, "running"),
        f"slurm_job_gpus{{{ids}}} 4.0",
        f"slurm_job_nodes{{{ids}}} 2.0",
        f"slurm_job_restarts{{{ids}}} 0.0",
        f"slurm_job_held_by_us{{{ids}}} 0.0",
        "slurm_gpus 8.0",
        "slurm_gpus_allocated 4.0",
    )
    assert re.search(rf'slurm_job_info{{{ids},queue_id="{job_id}",name="a b",user="\w+",partition="main"}} 1.0', page)
    owned.run("scontrol", "requeuehold", "Incomplete", str(job_id))
    seen.wait_for(
        f"slurm_job_held_by_us{{{ids}}} 1.0",
        f"slurm_job_restarts{{{ids}}} 1.0",
        f'slurm_job_pending_info{{{ids},reason="JobHeldUser"}} 1.0',
    )
    owned.run("scontrol", "release", str(job_id))
    seen.wait_for(
        f"slurm_job_held_by_us{{{ids}}} 0.0", f"slurm_job_restarts{{{ids}}} 1.0", _state("r1", job_id, "running")
    )
    owned.run("scancel", str(job_id))
    seen.wait_for(
        f'slurm_job_end_info{{{ids},state="cancelled",reason=""}} 1.0', f"slurm_job_exit_signal{{{ids}}} 15.0"
    )


def test_a_users_hold_is_not_ours_and_a_job_without_a_mark_is_only_counted(
    owned: OwnCluster, seen: Exporter, script: Path
) -> None:
    held = owned.submit(script, options=["--comment=trainwarden:r2", "--hold"])
    unmarked = owned.submit(script, options=["--hold"])
    named = owned.submit(script, options=["--hold", "--job-name=named-r3"])
    page = seen.wait_for(
        _state("r2", held, "pending"),
        f'slurm_job_held_by_us{{run_id="r2",job_id="{held}"}} 0.0',
        _state("r3", named, "pending"),
        'slurm_jobs{state="pending"} 3.0',
    )
    assert f'job_id="{unmarked}"' not in page
    owned.run("scancel", str(held), str(unmarked), str(named))


def test_a_job_that_fails_has_its_exit_status(owned: OwnCluster, seen: Exporter, script: Path) -> None:
    job_id = owned.submit(script, "3", options=["--comment=trainwarden:r4"])
    ids = f'run_id="r4",job_id="{job_id}"'
    seen.wait_for(
        f'slurm_job_end_info{{{ids},state="failed",reason="NonZeroExitCode"}} 1.0',
        f"slurm_job_exit_code{{{ids}}} 3.0",
        f"slurm_job_exit_signal{{{ids}}} 0.0",
    )


def test_a_drained_node_gives_the_reason(owned: OwnCluster, seen: Exporter) -> None:
    owned.run("scontrol", "update", "nodename=n3", "state=drain", 'reason=xid 79 on "gpu 2"\nState=FAKE')
    page = seen.wait_for('slurm_node_state{node="n3",state="drained"} 1.0', 'slurm_nodes{state="drained"} 1.0')
    assert re.search(r'slurm_node_drain_info{node="n3",reason="xid 79 on \\"gpu 2\\" State=FAKE",user="\w+"} 1.0', page)
    since = re.search(r'slurm_node_drain_since_timestamp_seconds{node="n3"} (\S+)', page)
    assert since is not None
    assert abs(float(since[1]) - time.time()) < 300
    owned.run("scontrol", "update", "nodename=n3", "state=resume")
    assert "drain_info" not in seen.wait_for('slurm_node_state{node="n3",state="idle"} 1.0')


def test_the_ids_of_an_array_and_of_a_heterogeneous_job_are_those_of_squeue(
    owned: OwnCluster, seen: Exporter, script: Path
) -> None:
    array = owned.submit(script, options=["--array=3-4", "--comment=trainwarden:array"])
    parts = (
        "sbatch",
        "--parsable",
        "--comment=trainwarden:het",
        "-n1",
        ":",
        "-n1",
        "--comment=trainwarden:het",
        str(script),
    )
    het = int(owned.run(*parts))
    try:
        wait_until(lambda: f'queue_id="{array}_3"' in seen.page() and f'queue_id="{het}+1"' in seen.page(), "both")
        page = seen.page()
        of_squeue = owned.run("squeue", "--noheader", "--array", "--format=%i %A").split("\n")
        ids = dict(line.split() for line in of_squeue if line)
        for queue_id in (f"{array}_3", f"{array}_4", f"{het}+0", f"{het}+1"):
            assert re.search(
                rf'slurm_job_info{{run_id="\w+",job_id="{ids[queue_id]}",queue_id="{re.escape(queue_id)}"', page
            )
        # They begin one after the other.
        user = owned.run("id", "-un").strip()
        of_user = rf'slurm_user_jobs{{user="{user}",state="running"}} [4-9]'
        of_partition = r'slurm_partition_jobs{partition="main",state="running"} [4-9]'
        wait_until(
            lambda: (page := seen.page()) and re.search(of_user, page) and re.search(of_partition, page), "four running"
        )
    finally:
        owned.run("scancel", str(array), str(het))


def test_a_plain_job_that_is_watched_is_no_run_that_never_started(
    owned: OwnCluster, seen: Exporter, runs: Path, script: Path, tmp_path: Path
) -> None:
    """TrainRunNeverStarted is about marked jobs without a record, and records without a heartbeat."""
    job_id = owned.submit(script, options=["--comment=trainwarden:plainly", f"--output={tmp_path}/out"])
    expected = 'training_run_expected{run_id="plainly",source="slurm"} 1.0'
    seen.wait_for(expected)
    configuration = tmp_path / "jobs.yml"
    configuration.write_text(f"runs_dir: {runs}\ngrace: 0\n", encoding="utf-8")
    configuration.chmod(0o600)
    watch = [sys.executable, "-m", "trainwarden", "slurm", "watch", "--once", f"--config={configuration}"]
    subprocess.run([*watch, f"--slurm-bin-dir={owned.bin}"], env=owned.environment, check=True)
    page = seen.wait_for('training_run_state{run_id="plainly",state="running"} 1.0')
    assert expected not in page
    assert re.search(r'^training_life_timestamp_seconds\{run_id="plainly"\} [1-9]', page, re.MULTILINE)
    owned.run("scancel", str(job_id))


def test_a_controller_that_stands_still_takes_only_its_own_series_along(owned: OwnCluster, seen: Exporter) -> None:
    seen.wait_for(f"{OURS} 1.0")
    with stopped(owned):
        seen.wait_for(f"{OURS} 0.0", f"{OTHERS} 1.0")
        wait_until(lambda: not re.search(r"^slurm_", seen.page(), re.MULTILINE), "no series is stale")
        wait_until(lambda: re.search(r'errors_total{source="jobs",reason="timeout"} [1-9]', seen.page()), "the reason")
        page = seen.page()
        assert "trainwarden_collector_stuck{" not in page
    seen.wait_for(f"{OURS} 1.0", 'slurm_node_state{node="n3",state="idle"} 1.0')


def test_a_munge_that_is_not_there_is_named(owned: OwnCluster, tmp_path: Path) -> None:
    commands = without_munge(owned, tmp_path)
    with exporter(
        tmp_path, "--collector.slurm", f"--collector.slurm.bin-dir={commands}", "--collector.slurm.interval=1s"
    ) as refused:
        refused.wait_for(f"{OURS} 0.0")
        wait_until(
            lambda: re.search(r'errors_total{source="jobs",reason="authentication"} [1-9]', refused.page()),
            "the reason",
        )
        assert "authentication: " in refused.log()


def test_a_time_limit_is_distinguished_from_a_cancel(seen: Exporter, late: int) -> None:
    ids = f'run_id="late",job_id="{late}"'
    seen.wait_for(f'slurm_job_end_info{{{ids},state="timeout",reason="TimeLimit"}} 1.0', seconds=120)
