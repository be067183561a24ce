"""Runs that hang or crash come back once, as a new job of a real Ray."""

from __future__ import annotations

import io
import os
import signal
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acting_remediator import settle
from tests.ray.acting_remediator import ActingRemediator, Training
from tests.ray.head import Head
from tests.waiting import wait_until
from trainwarden_remediator.incidents.incident import State

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
SECRET = "s3cr3t-of-the-job"  # of nobody
POINTS = ("prepare: before call", "prepare: after call", "commit: before call", "commit: after call")

Acted = dict[str, tuple[ActingRemediator, Training]]


@pytest.fixture(scope="module")
def acted(head: Head, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Acted]:
    """Jobs that came to harm at the same time, each with its remediator, which has done what it will: by run.

    Those of POINTS are killed at their point, and another one goes on in their place.
    """
    folder = tmp_path_factory.mktemp("acted")
    found: Acted = {}
    made = [acting := ActingRemediator(head, folder / "state")]
    try:
        hung = acting.submit("hung", runtime_env={"env_vars": {"SECRET": SECRET}})
        acting.saved(hung, 30)
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as file:
            file.writestr("here.txt", "of the package")
        acting.jobs.upload_package("of-the-run.zip", content.getvalue())
        killed = acting.submit("killed", runtime_env={"working_dir": "gcs://of-the-run.zip"})
        acting.driver.snapshot().jobs()  # as the sweeper does each minute
        stopped = acting.submit("stopped")
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and (process / "cmdline").exists():
                line = (process / "cmdline").read_bytes()
                if line.startswith(b"sh\0") and str(killed.file.with_suffix(".sh")).encode() in line:
                    os.kill(int(process.name), signal.SIGKILL)
        head.end(stopped.job_id)
        wait_until(lambda: head.state(killed.job_id) == "FAILED", "Ray has seen it")
        killed.crashes = True
        found |= {each.run_id: (acting, each) for each in (hung, killed, stopped)}
        for number, point in enumerate(POINTS):
            made.append(first := ActingRemediator(head, folder / f"state-{number}"))
            training = first.submit(f"revived-{number}")
            first.die_at(point, training)
            made.append(second := ActingRemediator(head, folder / f"state-{number}", trainings=[training]))
            found[point] = (second, training)
        settle([acting, *(found[point][0] for point in POINTS)])
        yield found
    finally:
        for each in made:
            each.close()
            each.end_jobs()


def test_a_hung_job_is_stopped_and_comes_back_as_it_was_submitted(acted: Acted, head: Head) -> None:
    acting, training = acted["hung"]
    checkpoint = str(acting.folder / "runs/hung/step_30.safetensors")
    second = acting.came_back(training)
    assert [line[0] for line in training.lines] == ["start", "end", "start"], "never two at a time"
    assert training.lines[-1][2] == f"secret={SECRET}"
    assert [line[4] for line in training.lines if line[0] == "start"] == ["resume=", f"resume={checkpoint}"]
    old, new = (head.call(f"/api/jobs/{job}") for job in (training.job_id, second))
    assert old["status"] == "STOPPED"
    assert new["entrypoint"] == old["entrypoint"]
    metadata = {
        **old["metadata"],
        "trainwarden_incident": acting.incidents(training)[0].id,
        "trainwarden_attempt": "1",
        "trainwarden_replaces": training.job_id,
        "trainwarden_resume_checkpoint": checkpoint,
    }
    assert new["metadata"] == metadata
    with sqlite3.connect(acting.folder / "remediator.sqlite3") as database:
        assert SECRET not in "\n".join(database.iterdump())


def test_a_job_whose_driver_is_killed_comes_back_with_the_package_that_ray_would_have_deleted(acted: Acted) -> None:
    acting, training = acted["killed"]
    acting.came_back(training)


@pytest.mark.parametrize("point", POINTS)
def test_a_remediator_that_is_killed_around_a_call_leads_to_one_start(acted: Acted, point: str) -> None:
    """After the submission its answer is lost as well: the second finds that the id is there already."""
    acting, training = acted[point]
    acting.came_back(training)


def test_a_job_that_its_user_has_stopped_stays_stopped(acted: Acted) -> None:
    acting, training = acted["stopped"]
    assert training.starts == [training.job_id]
    [incident] = acting.incidents(training)
    assert (incident.state, incident.calls) == (State.SUPPRESSED, 0), acting.report()
    assert "STOPPED" in incident.reason
