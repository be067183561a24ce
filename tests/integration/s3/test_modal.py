"""The example for Modal: processes with the variables of its containers, which share a Volume and nothing else.

Modal runs nowhere but at Modal; its package is a stand-in that leaves the decorated functions as they are.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.s3.store import Store
from tests.unit.library.processes import Script
from trainwarden import cli

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[3]
_CONTAINER = """
    import importlib.util, pathlib, sys, unittest.mock

    modal = sys.modules["modal"] = unittest.mock.MagicMock()
    modal.App().function = lambda **options: lambda function: function
    modal.App().local_entrypoint = lambda: lambda function: function
    spec = importlib.util.spec_from_file_location("train", {example!r})
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.RECORDS, example.CHECKPOINTS = {records!r}, pathlib.Path({volume!r})

    {before}
    example.train("r", 500)
"""
_FAILURE = """
    save = example.save
    def save_once(run, step, weight):
        save(run, step, weight)
        if step == 200:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
    example.save = save_once
"""


class Containers:
    """Containers of one function, each with an empty folder of its own."""

    def __init__(self, script: Script, store: Store, folder: Path) -> None:
        self._script = script
        self._store = store
        self._folder = folder

    def run(self, task: str, before: str = "") -> subprocess.CompletedProcess[str]:
        """Run the function in the container `task`, after the code `before`."""
        example = str(ROOT / "examples/modal/train.py")
        code = _CONTAINER.format(
            example=example, records=self._store.url, volume=str(self._folder / "volume"), before=before
        )
        return self._script.run(
            code,
            MODAL_TASK_ID=task,
            TRAINWARDEN_RUNS_DIR=str(self._folder / task),
            PYTHONPATH=os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        )


@pytest.fixture
def containers(script: Script, store: Store, tmp_path: Path) -> Containers:
    return Containers(script, store, tmp_path)


def test_a_retry_in_another_container_is_the_next_attempt_and_resumes(
    containers: Containers, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = containers.run("ta-1", _FAILURE)
    assert failed.returncode == 1 and "illegal memory access" in failed.stderr
    again = containers.run("ta-2")
    assert again.returncode == 0, again.stderr

    said = store.document("metadata.json")
    keys = [each["key"].rpartition(":")[0] for each in said["attempts"]]
    assert (keys, said["scheduler"], said["host"]) == (["modal:ta-1", "modal:ta-2"], "modal", "ta-2")
    assert said["attempts"][1]["resume_step"] == 201
    assert store.document("resume.json")["path"] == str(tmp_path / "volume/r/step-000200.json")

    assert cli.main(["status", "r", "--once", "--s3", store.url, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["attempt"], status["scheduler"]) == (1, "modal")
    assert cli.main(["compare", "r", "--s3", store.url, "--json"]) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert [(each["attempt"], each["status"]) for each in run["attempts"]] == [(0, "FAILED"), (1, "SUCCEEDED")]
    assert run["attempts"][0]["failure"] == "cuda_illegal_access"
