"""Several ranks resume from one checkpoint: the one that rank 0 chose, whatever each of them sees."""

import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import trainwarden
from tests.unit.checkpoint import formats
from tests.unit.library.processes import DEADLINE_SECONDS, Script, Starter, line
from tests.waiting import wait_until
from trainwarden.record.folder import RESUME
from trainwarden.record.rank import read_rank
from trainwarden.record.resume import read_choice
from trainwarden.record.store import RecordStore
from trainwarden.training import resume

pytestmark = pytest.mark.process

_RESUME = """
    import sys, trainwarden
    with trainwarden.run() as run:
        try:
            print("chosen", run.resume_checkpoint(wait_seconds=float(sys.argv[1]) if sys.argv[1:] else 30), flush=True)
        except trainwarden.RunRefused as error:
            print("refused", error, flush=True)
        sys.stdin.readline()
"""


def _ranks(number: int, count: int = 2, generation: int = 1) -> dict[str, str]:
    key = f"slurm:7:{generation}"
    ranks = {"RANK": str(number), "LOCAL_RANK": "0", "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": "1"}
    return {"TRAINWARDEN_RUN_ID": "r", "TRAINWARDEN_ATTEMPT_KEY": key, **ranks}


def _on_another_host(folder: Path, view: Path, host: str = "b") -> tuple[str, ...]:
    """The command that runs another one on a host where `view` is seen in place of `folder`."""
    try:
        subprocess.run(["unshare", "-mu", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the permission to unshare mounts")
    mount = f"hostname {host} && mount --bind {shlex.quote(str(view))} {shlex.quote(str(folder))}"
    return ("unshare", "-mu", "sh", "-c", f'{mount} && exec "$@"', "sh")


@pytest.fixture
def checkpoints(tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of checkpoints of steps 10 and 20, which an earlier attempt has recorded."""
    monkeypatch.setenv("TRAINWARDEN_ATTEMPT_KEY", "slurm:7:0")
    with trainwarden.run("r", dir=script.runs) as run:
        _save(run, tmp_path / "checkpoints")
    return tmp_path / "checkpoints"


def _save(run: trainwarden.Run, folder: Path) -> None:
    for step in (10, 20):
        run.checkpoint_saved(formats.write(folder / f"step_{step}", formats.dcp()), step)


def test_all_ranks_follow_rank_0_and_the_record_carries_its_choice(script: Script, checkpoints: Path) -> None:
    ranks = [script.start(_RESUME, **_ranks(number, 3)) for number in (2, 1, 0)]
    assert {line(rank.stdout) for rank in ranks} == {f"chosen {checkpoints / 'step_20'}\n"}
    choice = read_choice(script.folder)
    assert choice is not None
    assert (choice.attempt_key, choice.path, choice.step) == ("slurm:7:1", str(checkpoints / "step_20"), 20)
    assert choice.size_bytes == sum(map(len, formats.dcp().values()))


@pytest.mark.parametrize("lacks", ["step_20", "step_20/__1_0.distcp"])
def test_a_rank_whose_host_does_not_see_it_refuses_and_never_takes_another(
    script: Script, checkpoints: Path, tmp_path: Path, lacks: str
) -> None:
    view = shutil.copytree(checkpoints, tmp_path / "view")
    shutil.rmtree(view / lacks) if lacks == "step_20" else (view / lacks).unlink()
    rank_0 = script.start(_RESUME, **_ranks(0))
    assert line(rank_0.stdout) == f"chosen {checkpoints / 'step_20'}\n"
    # In a container of the same host, so that it need not wait for rank 0's next heartbeat.
    code, host = _RESUME.replace("else 30", "else 1"), os.uname().nodename
    stale = script.start(code, under=_on_another_host(checkpoints, view, host), **_ranks(1))
    said = line(stale.stdout)
    assert said.startswith(f"refused rank 0 on {host} chose checkpoint {checkpoints / 'step_20'}, of step 20,")
    assert f"rank 1 on {host} does not see it after 1 s: " in said
    assert ("it is not there" if lacks == "step_20" else "it has") in said


def test_a_rank_waits_until_its_host_sees_it(script: Script, checkpoints: Path, tmp_path: Path) -> None:
    view = shutil.copytree(checkpoints, tmp_path / "view")
    (view / "step_20").rename(tmp_path / "later")
    stale = script.start(_RESUME, under=_on_another_host(checkpoints, view), **_ranks(1))
    rank_0 = script.start(_RESUME, **_ranks(0))
    assert line(rank_0.stdout) == f"chosen {checkpoints / 'step_20'}\n"
    wait_until(lambda: read_rank(script.folder, 1) is not None)
    (tmp_path / "later").rename(view / "step_20")
    assert line(stale.stdout) == f"chosen {checkpoints / 'step_20'}\n"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_choice_of_a_start_that_was_killed_is_never_obeyed(
    script: Script, checkpoints: Path, tmp_path: Path, elsewhere: bool
) -> None:
    """A launcher restarts the ranks within one attempt, and the new rank 1 is faster than the new rank 0."""
    first = script.start(_RESUME, **_ranks(0))
    assert "step_20" in line(first.stdout)
    first.send_signal(signal.SIGKILL)
    first.wait(DEADLINE_SECONDS)
    shutil.rmtree(checkpoints / "step_20")
    under = _on_another_host(tmp_path, tmp_path) if elsewhere else ()
    rank_1 = script.start(_RESUME, under=under, **_ranks(1))
    wait_until(lambda: read_rank(script.folder, 1) is not None)
    assert "step_20" in (script.folder / RESUME).read_text()
    rank_0 = script.start(_RESUME, **_ranks(0))
    assert [line(rank.stdout) for rank in (rank_0, rank_1)] == [f"chosen {checkpoints / 'step_10'}\n"] * 2


def test_a_rank_that_is_much_later_than_rank_0_follows_its_choice_too(
    script: Script, checkpoints: Path, tmp_path: Path
) -> None:
    """The choice is older than this rank's process, and on another host: only a sign of life shows that it counts."""
    rank_0 = script.start(_RESUME, **_ranks(0))
    assert "step_20" in line(rank_0.stdout)
    late = script.start(_RESUME, under=_on_another_host(tmp_path, tmp_path), **_ranks(1))
    assert line(late.stdout) == f"chosen {checkpoints / 'step_20'}\n"


def test_all_start_from_the_beginning_where_rank_0_does(script: Script) -> None:
    ranks = [script.start(_RESUME, **_ranks(number, generation=0)) for number in (0, 1)]
    assert {line(rank.stdout) for rank in ranks} == {"chosen None\n"}


def test_rank_0_chooses_once_for_all_ranks_and_anew_where_it_is_alone(
    attempt: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attempt(0) as run:
        _save(run, tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with attempt(1) as run:
        newest = run.resume_checkpoint()
        shutil.rmtree(tmp_path / "step_20")
        assert run.resume_checkpoint() == newest == str(tmp_path / "step_20")
    monkeypatch.delenv("WORLD_SIZE")
    with attempt(2) as run:
        assert run.resume_checkpoint() == str(tmp_path / "step_10")


@pytest.fixture
def rank_1(attempt: Starter, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(resume, "LOCAL_WAIT_SECONDS", 0.1)
    return attempt


def test_a_rank_refuses_where_rank_0_never_chooses(rank_1: Starter, folder: Path) -> None:
    folder.mkdir(parents=True)
    metadata = {"run_id": "r", "status": "running", "attempt_key": "local:5:0"}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    with rank_1(0) as run, pytest.raises(trainwarden.RunRefused, match=r"has not chosen a checkpoint .* in 0\.3 s"):
        run.resume_checkpoint(wait_seconds=0.3)


def test_without_a_shared_record_only_a_first_attempt_starts(
    rank_1: Starter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with rank_1(0) as run, caplog.at_level(logging.WARNING, "trainwarden"):
        assert run.resume_checkpoint() is None
    assert "sees no record of rank 0" in caplog.text
    with rank_1(1) as run, pytest.raises(trainwarden.RunRefused, match="Share the folder between the hosts"):
        run.resume_checkpoint()
    path = tmp_path / "step_7.pt"
    path.write_bytes(formats.torch_file())
    monkeypatch.setenv("TRAINWARDEN_RESUME_CHECKPOINT", str(path))
    with rank_1(1) as run:
        assert run.resume_checkpoint() == str(path)


def test_a_plain_folder_is_resumed_from_where_its_owner_vouches_for_it(
    attempt: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    complete = formats.write(tmp_path / "step_10", formats.dcp())
    plain = formats.write(tmp_path / "step_20", {"model.pt": formats.torch_file()})
    with attempt(0) as run:
        run.checkpoint_saved(complete, 10)
        run.checkpoint_saved(plain, 20)
    # It has grown since: nothing proves it but its owner.
    (plain / "notes.txt").write_text("the best one")
    with attempt(1) as run:
        assert run.resume_checkpoint() == str(complete)
        assert run.resume_checkpoint(trust="complete") == str(plain)
        monkeypatch.setenv("TRAINWARDEN_CHECKPOINT_TRUST", "complete")
        assert run.resume_checkpoint() == str(plain)
        assert run.resume_checkpoint(trust="layout") == str(complete)
        assert run.resume_checkpoint(trust="all") == str(plain)
    RecordStore(tmp_path / "r").announce_restart("local:5:1", "stalled", checkpoint_trust="complete")
    monkeypatch.delenv("TRAINWARDEN_CHECKPOINT_TRUST")
    with attempt(2) as run:
        assert run.resume_checkpoint() == str(plain), "the policy that restarts it"
        assert run.resume_checkpoint(trust="layout") == str(complete)
    assert "trust='all': expected one of layout, complete or none" in caplog.text


def test_a_rank_never_starts_over_because_rank_0_is_slow(rank_1: Starter, folder: Path) -> None:
    """The record of the attempt before is in this folder, so rank 0 may resume: its choice is waited for."""
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps({"run_id": "r", "attempt_key": "local:4:0"}))
    with rank_1(0) as run, pytest.raises(trainwarden.RunRefused, match="has not chosen a checkpoint"):
        run.resume_checkpoint(wait_seconds=0.5)
