"""Jobs of the real Ray Train: its own restarts of workers are found, and none is stacked upon them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray.acting_remediator import ActingRemediator, Training
from tests.ray.environment import RayUnavailable, find_python
from tests.ray.head import Head, running_head
from tests.waiting import wait_until
from trainwarden.clients.ray import is_older
from trainwarden_remediator.incidents.incident import State

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

# One worker without a GPU. Each start of the job, and of its worker, appends a line to a file of its own.
_FIT = """
import json, os, pathlib, sys, time
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

starts, max_failures, how = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
job = json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])["metadata"]["job_submission_id"]
with starts.open("a") as file:
    file.write(f"start {job}\\n")
again = len(starts.read_text().splitlines()) > 1

def loop():
    with starts.with_suffix(".workers").open("a") as file:
        file.write("worker\\n")
    if how == "fails":
        raise ValueError("of the worker")
    while not again:
        time.sleep(0.2)

run = RunConfig(name=how, storage_path=str(starts.parent), failure_config=FailureConfig(max_failures=max_failures))
DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=1), run_config=run).fit()
"""


@pytest.fixture(scope="module")
def train_head() -> Iterator[Head]:
    """A head whose jobs have Ray Train."""
    try:
        python = find_python(train=True)
    except RayUnavailable as error:
        pytest.skip(f"Ray cannot be had: {error}")
    with running_head(python) as started:
        yield started


@pytest.fixture
def acting(train_head: Head, tmp_path: Path) -> Iterator[ActingRemediator]:
    """A remediator of it."""
    made = ActingRemediator(train_head, tmp_path / "state")
    yield made
    made.close()


def fit(acting: ActingRemediator, how: str, max_failures: int) -> Training:
    """Submit a training whose worker fails or hangs."""
    script, starts = acting.folder / "fit.py", acting.folder / f"{how}.starts"
    script.write_text(_FIT, encoding="utf-8")
    variables = {"RAY_TRAIN_ENABLE_STATE_TRACKING": "1", "RAY_TRAIN_V2_ENABLED": "1"}
    job = acting.head.submit(
        f"{acting.head.python} {script} {starts} {max_failures} {how}",
        metadata={"trainwarden_run_id": how},
        runtime_env={"env_vars": variables},
    )
    training = Training(how, starts, job, crashes=how == "fails")
    wait_until(lambda: workers(training), lambda: f"its worker\n{acting.jobs.logs(job)}", timeout=120)
    return training


def workers(training: Training) -> int:
    """How often a worker has begun."""
    file = training.file.with_suffix(".workers")
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def test_a_job_that_fails_after_its_own_restarts_is_left(acting: ActingRemediator) -> None:
    training = fit(acting, "fails", 1)
    head, job = acting.head, training.job_id
    wait_until(lambda: head.state(job) == "FAILED", lambda: f"its end\n{acting.jobs.logs(job)}", timeout=120)
    acting.trainings.append(training)
    acting.until(lambda: acting.over(training))
    [incident] = acting.incidents(training)
    assert (incident.state, incident.calls) == (State.SUPPRESSED, 0), acting.report()
    if is_older(str(acting.driver.version()), (2, 60)):  # 2.52 does not report it
        assert f"Ray Train runs job {job}, how often it restarts its workers is unknown" in incident.reason
    else:
        assert f"Ray Train restarts the workers of job {job} itself, 1 times (max_failures)" in incident.reason
    assert (workers(training), training.starts) == (2, [job])


def test_a_job_that_hangs_is_restarted_whatever_restarts_it_has_left(acting: ActingRemediator) -> None:
    training = fit(acting, "hangs", 1)
    acting.trainings.append(training)
    acting.until(lambda: acting.over(training))
    [incident] = acting.incidents(training)
    assert incident.state is State.DONE, acting.report()
    assert training.starts == [training.job_id, incident.successor]
    again = str(incident.successor)
    wait_until(
        lambda: acting.head.state(again) == "SUCCEEDED", lambda: f"its end\n{acting.jobs.logs(again)}", timeout=120
    )
    assert workers(training) == 2
