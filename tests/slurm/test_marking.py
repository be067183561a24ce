"""The ways to mark every job of a partition, on a real cluster: by slurmctld's plugin or prolog, and by a wrapper."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, running_cluster
from tests.slurm.programs import Programs
from tests.waiting import wait_until
from trainwarden.clients.slurm.client import SlurmClient
from trainwarden.clients.slurm.jobs import SlurmJob

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.timeout(300)]

_DEPLOY = Path(__file__).resolve().parents[2] / "deploy/slurm"
# `gpu` is marked by the plugin, `late` by the prolog, `main` by neither.
_PARTITIONS = ("gpu", "late")


@dataclass
class Marking:
    """The cluster, and what its jobs are marked with."""

    cluster: Cluster
    script: Path

    def submit(self, *options: str) -> str:
        """Submit a job that lasts; return its id."""
        return str(self.cluster.submit(self.script, options=("--job-name=train", *options)))

    def jobs(self, job_id: str) -> list[SlurmJob]:
        """A job, or the tasks of an array."""
        client = SlurmClient({"squeue": str(self.cluster.bin / "squeue")}, 30)
        found = [job for job in client.jobs() if isinstance(job, SlurmJob)]
        return [job for job in found if job_id in (job.job_id, job.array_job_id)]

    def wait_for_runs(self, job_id: str, *runs: str) -> None:
        """Wait until the job, or each task of the array, is marked with its run."""
        wait_until(
            lambda: sorted(str(job.run_id) for job in self.jobs(job_id)) == sorted(runs),
            lambda: f"{runs}; {[(job.queue_id, job.comment) for job in self.jobs(job_id)]}\n{self.cluster.logs()}",
        )

    def comment(self, job_id: str) -> str:
        """The comment of a job that runs."""
        wait_until(self.cluster.in_state(int(job_id), "RUNNING"), self.cluster.logs)
        (job,) = self.jobs(job_id)
        return job.comment


@pytest.fixture(scope="module")
def marking(slurm_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Marking]:
    """A cluster with the plugin and the prolog."""
    folder = tmp_path_factory.mktemp("marking")
    prolog = folder / "prolog"
    # slurmctld gives its prolog neither a PATH nor any variable of ours.
    path = f"PATH={shlex.quote(str(folder / 'bin'))}:/usr/bin:/bin"
    prolog.write_text(f"#!/bin/sh\n{path} TRAINWARDEN_PARTITIONS=late exec {shlex.quote(str(_DEPLOY))}/mark-jobs.sh\n")
    prolog.chmod(0o755)
    script = folder / "train.sbatch"
    script.write_text("#!/bin/sh\nsleep 600\n")
    settings = {"PrologSlurmctld": str(prolog), "JobSubmitPlugins": "lua"}
    files = {"job_submit.lua": (_DEPLOY / "job_submit.lua").read_text(encoding="utf-8")}
    with running_cluster(slurm_programs, settings, _PARTITIONS, files=files) as cluster:
        (folder / "bin").symlink_to(cluster.bin)
        yield Marking(cluster, script)


@pytest.mark.parametrize("partition", _PARTITIONS)
def test_every_job_of_a_partition_is_marked_with_its_name_and_id(marking: Marking, partition: str) -> None:
    plain, named = marking.submit("-p", partition), marking.submit("-p", partition, "--comment=urgent, please")
    marking.wait_for_runs(plain, f"train-{plain}")
    marking.wait_for_runs(named, f"train-{named}")
    assert marking.comment(named).startswith("urgent, please ")


@pytest.mark.parametrize("partition", _PARTITIONS)
def test_the_tasks_of_an_array_are_marked_apart(marking: Marking, partition: str) -> None:
    array = marking.submit("-p", partition, "--array=1-2")
    marking.wait_for_runs(array, f"train-{array}_1", f"train-{array}_2")


@pytest.mark.parametrize("partition", _PARTITIONS)
def test_a_users_mark_stays(marking: Marking, partition: str) -> None:
    assert marking.comment(marking.submit("-p", partition, "--comment=trainwarden:llama")) == "trainwarden:llama"


def test_other_partitions_are_left_alone(marking: Marking) -> None:
    assert marking.comment(marking.submit("-p", "main")) == ""


def test_the_wrapper_of_sbatch_marks_jobs_without_a_comment(marking: Marking, tmp_path: Path) -> None:
    cluster = marking.cluster
    own = tmp_path / "own.sbatch"
    own.write_text("#!/bin/sh\n#SBATCH --comment=mine\nsleep 600\n")

    def submit(*arguments: str, **environment: str) -> str:
        wrapper = {"TRAINWARDEN_SBATCH": str(cluster.bin / "sbatch"), **environment}
        options = ("--parsable", "--partition=main", *arguments)
        return cluster.run(str(_DEPLOY / "sbatch"), *options, environment=wrapper).strip()

    plain = submit("--job-name=train", str(marking.script))
    marking.wait_for_runs(plain, f"train-{plain}")
    assert marking.comment(submit(str(own))) == "mine"
    assert marking.comment(submit("--comment=given", str(marking.script))) == "given"
    # Versions of SLURM that do not know the variable leave the comment empty.
    assert marking.comment(submit(str(marking.script), SBATCH_COMMENT="variable")) in ("variable", "")


def test_the_commands_of_the_page_make_a_run_of_a_job(marking: Marking, tmp_path: Path) -> None:
    page = (_DEPLOY.parents[1] / "docs/plain-jobs.md").read_text(encoding="utf-8")
    places = {
        "/etc/trainwarden/jobs.yml": str(tmp_path / "jobs.yml"),
        "/var/lib/trainwarden/runs": str(tmp_path / "runs"),
    }

    def here(text: str) -> str:
        for there, place in places.items():
            text = text.replace(there, place)
        return text

    (settings,) = re.findall(r"```yaml\n(# /etc/trainwarden/jobs\.yml.*?)```", page, re.DOTALL)
    # The plugin of this cluster marks the job, as its user would who writes a record, too.
    (tmp_path / "jobs.yml").write_text(here(settings) + "grace: 0\n", encoding="utf-8")
    (tmp_path / "jobs.yml").chmod(0o600)
    job_id = marking.submit("-p", "gpu", f"--output={tmp_path}/%x-%j.out")
    wait_until(marking.cluster.in_state(int(job_id), "RUNNING"), marking.cluster.logs)

    def run(command: str, *more: str) -> str:
        argv = [sys.executable, "-m", *shlex.split(here(command), comments=True), *more]
        return marking.cluster.run(*argv, environment={"TRAINWARDEN_RUNS_DIR": str(tmp_path / "runs")})

    listing, watching = re.findall(r"^    (trainwarden slurm (?:jobs|watch) --config.*)$", page, re.MULTILINE)
    assert f"train-{job_id}  {tmp_path}/train-{job_id}.out" in run(listing)
    run(watching, "--once")
    assert "RUNNING" in run(f"trainwarden status train-{job_id}")
