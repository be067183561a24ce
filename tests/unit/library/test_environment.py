"""The job's description from SLURM, Ray, torchrun, Kubernetes, Modal and EC2, without secrets."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trainwarden
from tests.cases import cases
from trainwarden.environment import instance_id, ray_submission_id, ray_worker_job, read_environment
from trainwarden.identity import host_name

NOWHERE = "/nonexistent"
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-3"}


def _machine(root: Path, **files: str) -> str:
    folder = root / "sys/devices/virtual/dmi/id"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    return str(root)


def test_nothing_is_shown_where_nothing_is_known() -> None:
    assert read_environment({"HOME": "/root", "HOSTNAME": "laptop", "SLURM_JOB_NAME": "left over"}, NOWHERE) == {}


def test_slurm_gives_job_queue_and_limit() -> None:
    environ = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NAME": "llama",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_JOB_END_TIME": "1700000000",
        "SLURM_JWT": "secret",
    }
    assert read_environment(environ, NOWHERE) == {
        "slurm_job_id": "7",
        "slurm_job_name": "llama",
        "slurm_job_partition": "gpu",
        "slurm_job_end_time": "1700000000",
    }


def test_torchrun_gives_its_rendezvous_and_its_restarts() -> None:
    environ = {"TORCHELASTIC_RUN_ID": "r1", "TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_MAX_RESTARTS": "3"}
    assert read_environment(environ, NOWHERE) == {
        "torchrun_run_id": "r1",
        "torchrun_restart_count": "2",
        "torchrun_max_restarts": "3",
    }


def test_kubernetes_gives_pod_job_index_and_namespace(tmp_path: Path) -> None:
    account = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    account.mkdir(parents=True)
    (account / "namespace").write_text("research")
    (account / "token").write_text("secret")
    assert read_environment({**POD, "JOB_COMPLETION_INDEX": "3"}, str(tmp_path)) == {
        "kubernetes_pod": "train-3",
        "kubernetes_job": "train",
        "kubernetes_job_completion_index": "3",
        "kubernetes_namespace": "research",
    }
    named = {**POD, "POD_NAME": "train-3-x7k", "POD_NAMESPACE": "prod", "NODE_NAME": "node-9"}
    assert read_environment(named, str(tmp_path)) == {
        "kubernetes_pod": "train-3-x7k",
        "kubernetes_namespace": "prod",
        "kubernetes_node": "node-9",
    }


def test_modal_shows_where_it_runs_and_not_its_token() -> None:
    environ = {"MODAL_TASK_ID": "ta-1", "MODAL_REGION": "us-east-1", "MODAL_IDENTITY_TOKEN": "secret"}
    assert read_environment(environ, NOWHERE) == {"modal_task_id": "ta-1", "modal_region": "us-east-1"}


def test_an_ec2_instance_is_known_by_its_board(tmp_path: Path) -> None:
    root = _machine(
        tmp_path, sys_vendor="Amazon EC2", board_asset_tag="i-0af01c0123456789a", product_name="p5.48xlarge"
    )
    assert read_environment({}, root) == {"ec2_instance_id": "i-0af01c0123456789a", "ec2_instance_type": "p5.48xlarge"}


@cases(("vendor", "tag"), [("Xen", "i-1"), ("Amazon EC2", ""), ("Dell Inc.", "i-0af01c0123456789a")])
def test_a_machine_without_its_marks_is_no_ec2_instance(tmp_path: Path, vendor: str, tag: str) -> None:
    assert read_environment({}, _machine(tmp_path, sys_vendor=vendor, board_asset_tag=tag)) == {}


@cases(
    ("left", "found"),
    [
        ("i-0af01c0123456789a", "i-0af01c0123456789a"),
        ("i-0000003a", "i-0000003a"),
        ("1234567890123456789", "1234567890123456789"),
        ("5a9d2f0e-1c3b-4d5e-8f60-718293a4b5c6", "5a9d2f0e-1c3b-4d5e-8f60-718293a4b5c6"),
        ("nocloud", None),
        ("iid-datasource-none", None),
        ("iid-local01", None),
        ("", None),
    ],
)
def test_the_instance_is_known_by_what_cloud_init_left(tmp_path: Path, left: str, found: str | None) -> None:
    file = tmp_path / "var/lib/cloud/data/instance-id"
    file.parent.mkdir(parents=True)
    file.write_text(f"{left}\n")
    assert instance_id({}, str(tmp_path)) == found


def test_the_instance_that_a_variable_names_counts_first(tmp_path: Path) -> None:
    root = _machine(tmp_path, sys_vendor="Amazon EC2", board_asset_tag="i-0af01c0123456789a")
    assert instance_id({}, root) == "i-0af01c0123456789a"
    assert instance_id({"TRAINWARDEN_INSTANCE_ID": "rack-7"}, root) == "rack-7"
    assert instance_id({"INSTANCE_ID": "web"}, root) == "i-0af01c0123456789a"
    assert instance_id({"INSTANCE_ID": "i-0bb"}, NOWHERE) is None
    assert instance_id({"EC2_INSTANCE_ID": "i-01fa5b57d64c6196a"}, NOWHERE) == "i-01fa5b57d64c6196a"


def test_a_driver_of_ray_gets_its_submission_id() -> None:
    document = {"runtime_env": {"env_vars": {"TOKEN": "secret"}}, "metadata": {"job_submission_id": "raysubmit_1"}}
    environ = {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(document)}
    assert read_environment(environ, NOWHERE) == {"ray_submission_id": "raysubmit_1"}
    assert ray_submission_id({**environ, "RAY_JOB_SUBMISSION_ID": "mine"}) == "mine"


@cases("document", ["", "{", "[]", "7", '{"metadata": 1}', '{"metadata": {"job_submission_id": 7}}'])
def test_a_document_of_ray_with_other_content_names_no_job(document: str) -> None:
    assert ray_submission_id({"RAY_JOB_CONFIG_JSON_ENV_VAR": document}) is None


def _ray(monkeypatch: pytest.MonkeyPatch, metadata: dict[str, str]) -> None:
    config = SimpleNamespace(get_job_config=lambda: SimpleNamespace(metadata=metadata))
    context = SimpleNamespace(
        worker=SimpleNamespace(core_worker=config), get_job_id=lambda: "03000000", namespace="4e5e6812"
    )
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: context))


def test_a_worker_of_ray_asks_the_ray_in_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was started ahead of its job finds no job in its variables."""
    worker = {"RAY_RAYLET_PID": "1", "RAY_JOB_ID": "ffffffff"}
    _ray(monkeypatch, {"job_submission_id": "raysubmit_2"})
    assert ray_submission_id(worker) == "raysubmit_2"
    _ray(monkeypatch, {})
    assert (ray_submission_id(worker), ray_worker_job(worker)) == (None, "03000000-4e5e6812")
    assert ray_worker_job({}) is None


def test_a_ray_that_fails_to_answer_is_nobodys_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise RuntimeError("not connected")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=broken))
    assert (ray_submission_id({"RAY_RAYLET_PID": "1"}), ray_worker_job({"RAY_RAYLET_PID": "1"})) == (None, None)


def test_a_text_of_any_size_and_kind_is_kept_short_and_printable() -> None:
    said = read_environment({"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "a\n\udcff" + "x" * 1000}, NOWHERE)
    assert said["slurm_job_name"].startswith("a??xxx")
    assert len(said["slurm_job_name"]) == 200
    said["slurm_job_name"].encode()


def test_the_record_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "r1")
    monkeypatch.setattr("trainwarden.environment.ec2_instance_id", lambda *_: "i-1")
    with trainwarden.run("r", dir=tmp_path):
        pass
    document = json.loads((tmp_path / "r" / "metadata.json").read_text())
    assert (document["environment"]["torchrun_run_id"], document["instance_id"]) == ("r1", "i-1")
    assert document["host"] == host_name()
