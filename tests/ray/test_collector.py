"""The collector of Ray reads a real head."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devices.nvml import FakeNvml
from tests.ray.exporting import export_once
from tests.ray.head import GPUS, Head, running_head
from tests.unit.exporter.contexts import context
from tests.waiting import wait_until
from trainwarden_exporter.collectors.ray import spec
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.core.shared_state import SharedState
from trainwarden_exporter.flags import build_parser

pytestmark = pytest.mark.ray

RESERVE = """
import ray, time
ray.init(log_to_driver=False)
group = ray.util.placement_group([{"GPU": 1}] * 2)
ray.get(group.ready())
print("reserved", flush=True)
time.sleep(300)
"""
# In the pod: everything after the two dashes, whatever machine that is.
# Holds three GPUs.
HOLDS = """\
import time, ray
ray.init()
@ray.remote(num_gpus=1, num_cpus=0)
class Trainer:
    def ready(self): return True
@ray.remote(num_gpus=2, num_cpus=0)
def evaluate(): time.sleep(300)
trainer = Trainer.remote()
ray.get(trainer.ready.remote())
ray.get(evaluate.remote())
"""
KUBECTL = """#!/bin/sh
printf '%s\\n' "$@" > "{log}"
while [ "$1" != "--" ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def token_file(head: Head, tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{head.token}\n")
    return file


@pytest.fixture(scope="module")
def jobs(head: Head) -> Iterator[None]:
    """A job in each state. Other tests have theirs as well."""
    head.submit("sleep 300", submission_id="idle", metadata={"trainwarden_run_id": "llama-7b"})
    head.submit("true", submission_id="good")
    head.submit("echo s3cr3t-output; exit 3", submission_id="bad")
    head.submit("sleep 300", submission_id="ended")
    variables = {"TRAINWARDEN_RUN_ID": "bert-1", "PASSWORD": "s3cr3t-variable"}
    head.submit("sleep 300", submission_id="waits", entrypoint_num_gpus=9, runtime_env={"env_vars": variables})
    head.submit(": s3cr3t-argument; sleep 300", submission_id="evil", metadata={"trainwarden_run_id": "../etc"})
    head.submit("sleep 300", submission_id="busy", entrypoint_num_gpus=1)
    wait_until(lambda: head.state("ended") == "RUNNING", "it runs")
    head.end("ended")
    running = ("idle", "evil", "busy")
    states = {"good": "SUCCEEDED", "bad": "FAILED", "waits": "PENDING", **dict.fromkeys(running, "RUNNING")}
    wait_until(lambda: all(head.state(job) == state for job, state in states.items()), "each job in its state")
    yield
    for job in running:
        head.end(job)


def test_jobs_are_shown_in_their_states_with_the_runs_that_they_name(head: Head, token_file: Path, jobs: None) -> None:
    page = export_once("--collector.ray.url", head.url, "--collector.ray.token-file", str(token_file))

    assert page.value("trainwarden_collector_success", collector="ray") == 1, page.log
    shown = {job: page.state(job) for job in ("idle", "good", "bad", "ended", "waits")}
    assert shown == {"idle": "running", "good": "succeeded", "bad": "failed", "ended": "stopped", "waits": "pending"}
    assert page.value("ray_cluster_job_info", submission_id="idle", run_id="llama-7b") == 1
    assert page.value("ray_cluster_job_info", submission_id="waits", run_id="bert-1") == 1
    assert page.value("ray_cluster_job_info", submission_id="evil", run_id="") == 1
    assert page.value("ray_cluster_job_info", submission_id="bad", ray_error_type="job_entrypoint_command_error") == 1
    assert page.value("ray_cluster_job_exit_code", submission_id="bad") == 3
    start = page.value("ray_cluster_job_start_timestamp_seconds", submission_id="good")
    end = page.value("ray_cluster_job_end_timestamp_seconds", submission_id="good")
    sampled = page.value("trainwarden_collector_last_success_timestamp_seconds", collector="ray")
    assert start is not None
    assert end is not None
    assert sampled is not None
    assert sampled - 300 < start < end < sampled
    assert page.value("ray_cluster_job_end_timestamp_seconds", submission_id="idle") is None
    assert page.value("ray_cluster_info", ray_version=str(head.call("/api/version")["ray_version"])) == 1
    assert page.value("ray_cluster_nodes", state="alive") == 1
    assert {page.value("trainwarden_ray_errors_total", source=each) for each in ("usage", "nodes", "gpus")} == {0}
    assert page.value("ray_cluster_gpus") == GPUS
    assert page.value("ray_cluster_job_gpus", submission_id="busy") == 1


def test_what_users_wrote_into_a_job_is_not_on_the_page_nor_in_the_log(
    head: Head, token_file: Path, jobs: None
) -> None:
    page = export_once("--collector.ray.url", head.url, "--collector.ray.token-file", str(token_file))
    assert "s3cr3t" not in page.text + page.log
    assert head.token not in page.text + page.log


def test_a_token_that_is_missing_or_wrong_is_named_in_the_log(head: Head, tmp_path: Path) -> None:
    without = export_once("--collector.ray.url", head.url)
    assert without.value("trainwarden_collector_success", collector="ray") == 0
    assert "ray_cluster_" not in without.text
    assert "401: the dashboard requires a token" in without.log

    file = tmp_path / "wrong"
    file.write_text("0123456789abcdef")
    wrong = export_once("--collector.ray.url", head.url, "--collector.ray.token-file", str(file))
    assert wrong.value("trainwarden_collector_success", collector="ray") == 0
    assert "403: the dashboard refuses the token" in wrong.log
    assert "0123456789abcdef" not in wrong.log


@pytest.mark.parametrize("whose", ["exporter", "pod"])
def test_a_head_pod_is_asked_from_within_with_the_token_on_no_command_line(
    head: Head, token_file: Path, tmp_path: Path, jobs: None, whose: str
) -> None:
    argv, kubectl = tmp_path / "argv", tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(log=argv))
    kubectl.chmod(0o755)
    flags = ["--collector.ray.url", head.url, "--collector.ray.kubectl", str(kubectl)]
    flags += ["--collector.ray.head-pod", "train-head-x2x4z", "--collector.ray.namespace", "ml"]
    if whose == "exporter":
        page = export_once(*flags, "--collector.ray.token-file", str(token_file))
    else:
        page = export_once(*flags, environment={"RAY_AUTH_TOKEN": head.token})

    assert page.value("trainwarden_collector_success", collector="ray") == 1, page.log
    assert page.state("idle") == "running"
    assert page.value("ray_cluster_gpus") == GPUS
    asked = argv.read_text()
    assert asked.startswith("exec\n--stdin\ntrain-head-x2x4z\n--namespace=ml\n--\npython3\n-c\n")
    assert head.token not in asked


def test_runs_of_jobs_under_way_are_expected_to_have_records(head: Head, token_file: Path, jobs: None) -> None:
    argv = ["--collector.ray.url", head.url, "--collector.ray.token-file", str(token_file)]
    argv.append("--collector.runs.scope=all")
    flags = vars(build_parser().parse_args(argv))
    shared = SharedState()
    runner = spec.create(context(spec.SPEC, Node("head"), flags, shared))
    before = head.call("/api/jobs/idle")["start_time"] / 1000
    runner.sample_once()
    assert shared.expected.runs().get("llama-7b") == {"ray": before}
    assert "bert-1" in shared.expected.runs()


@pytest.fixture(scope="module")
def counted(ray_python: Path) -> Iterator[Head]:
    """A head of one's own, whose GPUs nobody else uses."""
    with running_head(ray_python) as head:
        yield head


def asking(head: Head, folder: Path) -> tuple[str, ...]:
    """Flags of an exporter that asks a head."""
    (folder / "token").write_text(head.token)
    return ("--collector.ray.url", head.url, f"--collector.ray.token-file={folder}/token")


@pytest.mark.nightly
def test_a_running_job_without_any_gpu_in_use_is_distinguished_from_one_that_holds_some(
    counted: Head, tmp_path: Path
) -> None:
    flags = asking(counted, tmp_path)
    idle = counted.submit("sleep 300")
    counted.submit("sleep 300", entrypoint_num_gpus=9)  # Ray ends none that waits for resources
    wait_until(lambda: counted.state(idle) == "RUNNING", "it runs")
    wait_until(lambda: "'GPU': 9.0" in counted.status(), "ray status tells of the demand")
    page = export_once(*flags)
    assert page.value("ray_cluster_gpus_allocated") == 0
    assert page.value("ray_cluster_gpus_wanted") == 9
    assert page.value("ray_cluster_running_jobs_without_gpu") == 1

    busy = counted.submit("sleep 300", entrypoint_num_gpus=2)
    wait_until(lambda: f"2.0/{GPUS}.0 GPU" in counted.status(), "ray status tells of the GPUs")
    wait_until(lambda: counted.state(busy) == "RUNNING", "the job runs, not only its supervisor")
    page = export_once(*flags)
    for job in (idle, busy):
        counted.end(job)
    assert page.value("ray_cluster_gpus_allocated") == 2
    assert page.value("ray_cluster_job_gpus", submission_id=busy) == 2
    assert page.value("ray_cluster_running_jobs_without_gpu") == 1, "also while another job holds GPUs"


@pytest.mark.nightly
def test_gpus_of_actors_and_tasks_are_those_of_their_job(counted: Head, tmp_path: Path) -> None:
    script = tmp_path / "holds.py"
    script.write_text(HOLDS)
    idle = counted.submit("sleep 300")  # tasks are listed only while a job has no GPU by its actors
    submission = counted.submit(f"python {script}")
    try:
        wait_until(lambda: f"3.0/{GPUS}.0 GPU" in counted.status(), "an actor holds one and a task two")
        flags = asking(counted, tmp_path)
        wait_until(
            lambda: export_once(*flags).value("ray_cluster_job_gpus", submission_id=submission) == 3,
            "Ray lists the task",
        )
    finally:
        counted.end(submission)
        counted.end(idle)


@pytest.mark.nightly
def test_gpus_that_a_placement_group_reserves_without_a_user_are_not_in_use(counted: Head, tmp_path: Path) -> None:
    """And the program that reserves them, which nobody submitted, is a job under Ray's own id."""
    driver = counted.drive(RESERVE)
    try:
        wait_until(lambda: "of 2.0 reserved in placement groups" in counted.status(), "ray status tells of the group")
        page = export_once(*asking(counted, tmp_path))
    finally:
        driver.kill()
        driver.wait()
    assert page.value("ray_cluster_gpus_reserved") == 2
    assert page.value("ray_cluster_gpus_allocated") == 0
    ids = [dict(pairs) for name, pairs in page.samples if name == "ray_cluster_job_info"]
    drivers = [labels for labels in ids if labels["submission_id"] == labels["job_id"] != ""]
    assert len(drivers) == 1
    assert page.state(drivers[0]["job_id"]) == "running"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """What Ray believes to be the driver of its GPUs."""
    return FakeNvml(tmp_path_factory.mktemp("node")).gpus(GPUS).set(2, utilization=0)


@pytest.fixture(scope="module")
def newer(ray_python: Path, node: FakeNvml) -> Iterator[Head]:
    """A head with the newer autoscaler, and with a driver of GPUs: another head takes longer than both tests.

    What such a head answers is read without one in tests/unit/clients/test_ray.py and tests/unit/exporter/ray.
    """
    driver = {name: value for name, value in node.environment().items() if "NVML" in name or name == "LD_LIBRARY_PATH"}
    with running_head(ray_python, {**driver, "RAY_enable_autoscaler_v2": "1"}) as head:
        yield head


@pytest.mark.nightly
def test_the_newer_autoscaler_is_understood_as_well(newer: Head, tmp_path: Path) -> None:
    """It tells what is in use as text alone."""
    assert newer.call("/api/cluster_status")["data"]["clusterStatus"] is None
    newer.submit("sleep 300", entrypoint_num_gpus=1)
    newer.submit("sleep 300", entrypoint_num_gpus=7)
    wait_until(lambda: f"1.0/{GPUS}.0 GPU" in (said := newer.status()) and "7.0}" in said, "ray status tells of it")
    (tmp_path / "token").write_text(newer.token)
    page = export_once("--collector.ray.url", newer.url, f"--collector.ray.token-file={tmp_path}/token")
    assert page.value("ray_cluster_gpus") == GPUS
    assert page.value("ray_cluster_gpus_allocated") == 1
    assert page.value("ray_cluster_gpus_wanted") == 7


@pytest.mark.nightly
def test_how_busy_gpus_are_is_what_the_agent_of_their_node_measures(
    newer: Head, node: FakeNvml, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(newer.token)
    wait_until(lambda: newer.call("/nodes?view=summary")["data"]["summary"][0]["gpus"], "the agent has measured")
    page = export_once("--collector.ray.url", newer.url, f"--collector.ray.token-file={tmp_path}/token")
    assert page.value("ray_cluster_node_gpu_utilization_ratio", gpu="0") == 0.98
    assert page.value("ray_cluster_node_gpu_utilization_ratio", gpu="2") == 0
    assert sum(name == "ray_cluster_node_gpu_utilization_ratio" for name, _ in page.samples) == GPUS
