"""The messages of the Ray training monitor where a job, a checkpoint or a right is missing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.ray_training_monitor.conftest import POD, Pod
from trainwarden.ray import (
    auto_restart,
    check_efa_utilization,
    check_gpu_utilization,
    check_job_status,
    find_latest_checkpoint,
    get_current_step,
    get_training_health,
    health,
    monitor_job,
    verify_ray_resources,
)

TITLE = "Training Monitor Skill"
job_not_found = pytest.mark.seed(TITLE, "Job Not Found")
checkpoint_not_found = pytest.mark.seed(TITLE, "Checkpoint Not Found")
permission_denied = pytest.mark.seed(TITLE, "Permission Denied")

WRONG = "training-head-of-another"
NOT_FOUND = f'pods "{WRONG}" not found'
FORBIDDEN = 'User "alice" cannot create resource "pods/exec" in API group "" in the namespace "training"'
# Each call with what it has told: its log, and what it returned.
CALLS: dict[str, Callable[[str], object]] = {
    "check_job_status": lambda pod: check_job_status(pod, "raysubmit_x"),
    "get_current_step": lambda pod: get_current_step(pod, "raysubmit_x"),
    "check_gpu_utilization": check_gpu_utilization,
    "verify_ray_resources": verify_ray_resources,
    "check_efa_utilization": check_efa_utilization,
    "find_latest_checkpoint": lambda pod: find_latest_checkpoint("/checkpoints/x", pod),
    "get_training_health": lambda pod: get_training_health(pod, "/checkpoints/x"),
}
TELL = ("check_gpu_utilization", "check_efa_utilization", "get_training_health")
HIDE = tuple(name for name in CALLS if name not in TELL)


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(health, "PAUSE_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "trainwarden.ray")
    return caplog


def told(name: str, pod: str, logged: pytest.LogCaptureFixture) -> str:
    returned = CALLS[name](pod)
    return f"{returned}\n{logged.text}"


def forbid(pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kubectl answer what a cluster answers a user without the right."""
    kubectl = tmp_path / "forbidden-kubectl"
    kubectl.write_text(f"#!/bin/sh\necho 'Error from server (Forbidden): {FORBIDDEN}' >&2\nexit 1\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("TRAINWARDEN_KUBECTL", str(kubectl))


@job_not_found
@pytest.mark.ray
def test_a_job_id_that_does_not_exist_is_said_and_ends_what_would_follow_it(
    pod: Pod, logged: pytest.LogCaptureFixture
) -> None:
    assert check_job_status(POD, "raysubmit_nothing") == "UNKNOWN"
    assert "raysubmit_nothing: Ray has no such job" in logged.text
    assert get_current_step(POD, "raysubmit_nothing") is None
    assert monitor_job(POD, "raysubmit_nothing", check_interval=0.05)["status"] == "UNKNOWN"
    with pytest.raises(ValueError, match="'no-such-job': no job has this id"):
        auto_restart(POD, "no-such-job", "/checkpoints/x")


@job_not_found
@pytest.mark.process
@pytest.mark.parametrize("name", TELL)
def test_the_name_of_a_head_pod_that_is_wrong_is_said_by(
    lone_pod: Pod, logged: pytest.LogCaptureFixture, name: str
) -> None:
    assert NOT_FOUND in told(name, WRONG, logged).replace("\\'", "'")


@job_not_found
@pytest.mark.process
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the message has the exit status of kubectl, and not what kubectl says"
)
@pytest.mark.parametrize("name", HIDE)
def test_the_name_of_a_head_pod_that_is_wrong_is_also_said_by(
    lone_pod: Pod, logged: pytest.LogCaptureFixture, name: str
) -> None:
    assert NOT_FOUND in told(name, WRONG, logged).replace("\\'", "'")


@checkpoint_not_found
@pytest.mark.ray
def test_auto_restart_without_a_checkpoint_says_so_and_names_the_folder(
    pod: Pod, failed_job: str, tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    result = auto_restart(POD, failed_job, str(tmp_path), retry_delay=0, check_interval=0.1)
    assert (result["success"], result["reason"], result["total_retries"]) == (False, "no_checkpoint_found", 0)
    assert f"no checkpoint to resume from in {tmp_path}" in logged.text


@checkpoint_not_found
@pytest.mark.process
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="of a folder that is not there the message is that of a parser of JSON"
)
def test_a_checkpoint_folder_that_does_not_exist_in_the_pod_is_named(
    lone_pod: Pod, logged: pytest.LogCaptureFixture
) -> None:
    assert find_latest_checkpoint("/no/such/folder", POD) is None
    assert "/no/such/folder" in logged.text
    assert "Expecting value" not in logged.text


@permission_denied
@pytest.mark.process
@pytest.mark.parametrize("name", TELL)
def test_a_right_that_kubectl_lacks_is_said_by(
    lone_pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture, name: str
) -> None:
    forbid(lone_pod, tmp_path, monkeypatch)
    assert "Forbidden" in told(name, POD, logged)


@permission_denied
@pytest.mark.process
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the message has the exit status of kubectl, and not what kubectl says"
)
@pytest.mark.parametrize("name", HIDE)
def test_a_right_that_kubectl_lacks_is_also_said_by(
    lone_pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture, name: str
) -> None:
    forbid(lone_pod, tmp_path, monkeypatch)
    assert "Forbidden" in told(name, POD, logged)


@permission_denied
@pytest.mark.process
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="where kubectl lacks the right monitor_job warns at each look, without its reason",
)
def test_monitor_job_says_once_what_kubectl_lacks(
    lone_pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> None:
    forbid(lone_pod, tmp_path, monkeypatch)
    monitor_job(POD, "raysubmit_x", check_interval=0.01, timeout=0.5)
    assert logged.text.count("Forbidden") == 1


@permission_denied
def test_a_name_that_is_an_option_reaches_no_kubectl() -> None:
    with pytest.raises(ValueError, match="is no name of a pod"):
        check_gpu_utilization("--kubeconfig=/tmp/x")
