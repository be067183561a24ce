"""Jobs that `trainwarden.ray` submits and follows. With a real head: tests/compat."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from tests.ray.kubectl import write_kubectl
from tests.unit.remediator.fake_ray import FakeRay
from trainwarden.clients.kubernetes import PodExec
from trainwarden.ray import jobs, monitor, submit_job_with_resume
from trainwarden.ray.head import RayHead


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """A cluster that is named by its address."""
    found = FakeRay()
    for module in (jobs, monitor):
        monkeypatch.setattr(module, "open_head", lambda *_: RayHead("head", found, None))
    return found


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    (folder / "data").mkdir(parents=True)
    (folder / "data/big").write_text("big")
    (folder / "train.py").write_text("print(1)")
    return folder


def submitted_folder(ray: FakeRay, folder: Path) -> list[str]:
    """Submit twice what a script of the Ray training monitor does; the files of the package that the jobs name."""
    config = {
        "entrypoint": "python train.py",
        "runtime_env": {"working_dir": str(folder), "excludes": ["data/*"], "pip": ["x"]},
    }
    made = [submit_job_with_resume("head", "/checkpoints/step_1000", config) for _ in range(2)]
    environments = [ray.jobs[job]["runtime_env"] for job in made]
    assert environments[0] == environments[1]
    name = environments[0]["working_dir"].removeprefix("gcs://")
    assert environments[0]["pip"] == ["x"]
    assert [method for method, _ in ray.made].count("PUT") == 1, "what Ray has is not uploaded again"
    return sorted(zipfile.ZipFile(io.BytesIO(ray.packages[name])).namelist())


def test_a_folder_of_this_machine_is_uploaded_where_an_address_is_given(ray: FakeRay, app: Path) -> None:
    assert submitted_folder(ray, app) == ["train.py"]


@pytest.mark.process
def test_a_folder_of_the_pod_is_uploaded_where_a_pod_is_given(
    ray: FakeRay, app: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubectl = write_kubectl(tmp_path / "kubectl", {"PATH": os.environ["PATH"]})
    monkeypatch.setattr(jobs, "open_head", lambda *_: RayHead("head", ray, PodExec(str(kubectl), "head-pod")))
    assert submitted_folder(ray, app) == ["train.py"]
    with pytest.raises(ValueError, match=r"working_dir: /nowhere: expected a folder with files"):
        submit_job_with_resume("head", None, {"entrypoint": "true", "runtime_env": {"working_dir": "/nowhere"}})


def test_a_folder_that_cannot_be_had_submits_nothing(ray: FakeRay, app: Path) -> None:
    with pytest.raises(ValueError, match=r"config: runtime_env: working_dir: /nowhere: expected a folder with files"):
        submit_job_with_resume("head", None, {"entrypoint": "true", "runtime_env": {"working_dir": "/nowhere"}})
    ray.lost_requests = 1
    with pytest.raises(RuntimeError, match=r"was not uploaded: PUT /api/packages/gcs/.*: timeout"):
        submit_job_with_resume("head", None, {"entrypoint": "true", "runtime_env": {"working_dir": str(app)}})
    assert ray.jobs == {}


@pytest.mark.parametrize("uri", ["gcs://code.zip", "s3://bucket/code.zip", "https://host/code.zip"])
def test_a_place_that_ray_reads_itself_is_left_as_it_is(ray: FakeRay, uri: str) -> None:
    job = submit_job_with_resume("head", None, {"entrypoint": "true", "runtime_env": {"working_dir": uri}})
    assert ray.jobs[job]["runtime_env"] == {"working_dir": uri}
