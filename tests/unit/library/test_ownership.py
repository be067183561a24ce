"""Two live runs never share a folder."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.unit.library.looking import owner_of
from tests.unit.library.processes import Script, line
from tests.waiting import wait_until
from trainwarden.identity import AttemptKey, host_name
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json
from trainwarden.record.ownership import RunRefused, claim

pytestmark = pytest.mark.process

HOLD = """
    import time, trainwarden
    with trainwarden.run("r"):
        print("holds", flush=True)
        time.sleep(60)
"""


def test_a_second_process_is_refused_with_the_owner_of_the_folder(script: Script) -> None:
    first = script.start(HOLD)
    assert line(first.stdout) == "holds\n"
    second = script.run('import trainwarden; trainwarden.run("r")')
    assert second.returncode == 1
    for said in (
        "RunRefused",
        str(script.folder),
        f"process {first.pid} on host {host_name()}",
        f"local:{first.pid}-",
    ):
        assert said in second.stderr
    assert script.read("metadata.json")["pid"] == first.pid


def test_a_launcher_can_ask_who_owns_a_folder_before_it_starts_anything(script: Script) -> None:
    first = script.start(HOLD)
    assert line(first.stdout) == "holds\n"
    folder = script.folder
    assert owner_of(folder).pid == first.pid
    first.kill()
    first.wait()
    assert owner_of(folder) is None


def test_a_killed_run_does_not_block_the_next(script: Script) -> None:
    first = script.start(HOLD)
    assert line(first.stdout) == "holds\n"
    first.kill()
    first.wait()
    second = script.run('import trainwarden; trainwarden.run("r").step(1)')
    assert second.returncode == 0, second.stderr
    assert script.read("metadata.json")["attempt"] == 1


def test_a_child_that_outlives_a_killed_run_does_not_hold_its_folder(script: Script) -> None:
    """Data-loading workers are forked, and may be left behind."""
    first = script.start("""
        import os, time, trainwarden
        run = trainwarden.run("r")
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            time.sleep(60)
        os.wait()
    """)
    child = int(line(first.stdout))
    try:
        first.kill()
        first.wait()
        assert owner_of(script.folder) is None
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_next_start_of_the_same_job_waits_for_the_one_before_to_be_gone(script: Script) -> None:
    first = script.start(HOLD, TRAINWARDEN_ATTEMPT_KEY="local:7:0")
    assert line(first.stdout) == "holds\n"
    second = script.start(
        'import trainwarden; print("asks", flush=True); trainwarden.run("r"); print("runs", flush=True)',
        TRAINWARDEN_ATTEMPT_KEY="local:7:1",
    )
    assert line(second.stdout) == "asks\n"
    first.kill()
    assert line(second.stdout) == "runs\n"


def test_a_second_start_under_the_same_restart_count_is_refused_while_the_first_lives(script: Script) -> None:
    """A slurmctld that was killed forgets a start that it gave, and gives it once more under the same count."""
    slurm = {"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "1"}
    first = script.start(HOLD, **slurm)
    assert line(first.stdout) == "holds\n"
    second = script.run('import trainwarden; trainwarden.run("r")', **slurm)
    assert second.returncode == 1
    assert "belongs to a live run: process" in second.stderr
    assert "attempt slurm:17:1" in second.stderr
    assert script.read("metadata.json")["pid"] == first.pid
    first.kill()
    first.wait()
    assert script.run('import trainwarden; trainwarden.run("r").step(1)', **slurm).returncode == 0


def test_asking_in_the_owning_process_does_not_lose_the_lock(script: Script) -> None:
    first = script.start("""
        import time, trainwarden
        from trainwarden.record.ownership import owner_of
        with trainwarden.run("r") as run:
            assert owner_of(run.folder) is not None
            print("asked", flush=True)
            time.sleep(60)
    """)
    assert line(first.stdout) == "asked\n"
    assert owner_of(script.folder).pid == first.pid


def _elsewhere(folder: Path, key: str, age: float) -> None:
    folder.mkdir(exist_ok=True)
    write_json(
        folder / "metadata.json",
        {
            "status": "running",
            "host": "another-host",
            "pid": 4,
            "attempt_key": key,
            "last_update": to_iso(time.time() - age),
        },
    )


def test_a_heartbeat_of_another_job_on_another_host_that_goes_on_refuses(tmp_path: Path) -> None:
    _elsewhere(tmp_path, "slurm:8:0", age=3)
    beating = threading.Event()

    def beat() -> None:
        while not beating.wait(0.2):
            _elsewhere(tmp_path, "slurm:8:0", age=0)

    other = threading.Thread(target=beat)
    other.start()
    try:
        with pytest.raises(RunRefused, match="another-host") as refusal:
            claim(tmp_path, AttemptKey("slurm", "9", 0))
    finally:
        beating.set()
        other.join()
    assert "slurm:8:0" in str(refusal.value)
    assert str(tmp_path) in str(refusal.value)


def test_a_job_that_is_submitted_again_waits_until_the_lost_ones_last_heartbeat_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trainwarden.record.ownership.FRESH_SECONDS", 3.0)
    _elsewhere(tmp_path, "slurm:8:0", age=0)
    ownership = claim(tmp_path, AttemptKey("slurm", "9", 0))
    assert ownership is not None
    ownership.release()
    assert "another-host" in caplog.text


@pytest.mark.parametrize(
    ("key", "age"),
    [
        pytest.param("slurm:8:0", 300, id="another job, silent for long"),
        pytest.param("slurm:9:0", 3, id="an earlier start of the same job"),
    ],
)
def test_a_dead_or_requeued_predecessor_on_another_host_does_not(tmp_path: Path, key: str, age: float) -> None:
    _elsewhere(tmp_path, key, age)
    ownership = claim(tmp_path, AttemptKey("slurm", "9", 1))
    assert ownership is not None
    ownership.release()


def test_ownership_ends_with_the_run(script: Script) -> None:
    done = script.run("""
        import trainwarden
        for _ in range(2):
            with trainwarden.run("r"):
                trainwarden.step(1)
    """)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: owner_of(script.folder) is None)
