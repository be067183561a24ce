"""What `trainwarden up` refuses leaves a plain line and nothing else."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainwarden.clients.process import Completed
from trainwarden.stack import budgets, up

TRACE = "Traceback (most recent call last):\n  File 'x'\nModuleNotFoundError: No module named 'attr'"


def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    status = up.main(["--state-dir", str(tmp_path / "state"), *options, "--", sys.executable, "-c", ""])
    assert status == 2
    assert list(tmp_path.iterdir()) == []
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Traceback" not in said
    return said


def test_a_package_that_is_missing_is_named_with_the_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "NEEDED", ("prometheus_client_that_is_not_there", "json"))
    said = refused(tmp_path, capsys)
    assert "prometheus_client_that_is_not_there is not installed; pip install 'trainwarden[stack]'" in said


@pytest.mark.process
def test_it_is_a_program_as_a_module_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainwarden.stack.up", f"--state-dir={tmp_path}/state", "--", "no-such-program"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no-such-program" in done.stderr


def test_a_remediator_that_cannot_start_is_not_the_policys_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Completed(1, b"", TRACE.encode())
    monkeypatch.setattr(budgets, "run", lambda *_arguments, **_options: done)
    assert "cannot be started: ModuleNotFoundError: No module named 'attr'" in refused(tmp_path, capsys)


@pytest.mark.process
def test_a_policy_that_is_not_there_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--policy" in refused(tmp_path, capsys, "--policy", "no-such-policy")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train_llama.py", "--lr", "1"], "train_llama"),
        (["torchrun", "--nproc-per-node=8", "/srv/sft.py"], "sft"),
        (["python", "-m", "torch.distributed.run", "jobs/dpo.py"], "dpo"),
        (["python3", "-m", "recipes.pretrain"], "pretrain"),
        (["/opt/bin/megatron"], "megatron"),
        (["bash", "./run.v2.sh"], "run-v2"),
    ],
)
def test_a_run_is_named_after_its_script(command: list[str], name: str) -> None:
    assert re.fullmatch(rf"{name}-\d{{8}}-\d{{6}}", up._run_id(None, command))
