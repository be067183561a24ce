"""The local launcher, with real processes."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until
from trainwarden.clients.http import HttpAuth, HttpClient, HttpResponse
from trainwarden.stack import launcher, processes
from trainwarden.stack.launcher import Job, JobOver, Launcher, WrongGeneration
from trainwarden.stack.launcher_server import LauncherServer

pytestmark = pytest.mark.process

_SECONDS = 60.0
# Says each start in a file, then lives until it is ended.
_TRAINING = """
import os, pathlib, sys, time
with open(sys.argv[1], "a") as starts:
    starts.write(os.environ["TRAINWARDEN_ATTEMPT_KEY"] + "\\n")
time.sleep(600)
"""
# The same, with a child in a session of its own that ignores SIGTERM.
_STUBBORN = """
import os, signal, subprocess, sys, time
if len(sys.argv) == 2:
    again = [sys.executable, "-c", open(sys.argv[1] + ".py").read(), sys.argv[1], "child"]
    subprocess.Popen(again, start_new_session=True)
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "a") as starts:
    starts.write(os.environ["TRAINWARDEN_ATTEMPT_KEY"] + "\\n")
time.sleep(600)
"""


class Recorder:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.says_completed: bool | None = None
        self.moving = True
        self.fails = False

    def started(self, job: Job) -> None:
        self.told.append(f"started {job.generation}")

    def alive(self, job: Job, *, moving: Callable[[], bool]) -> None:
        self.moving = moving()
        if self.fails:
            message = "no room for words"
            raise RuntimeError(message)

    def restarting(self, job: Job, reason: str, intent: str) -> None:
        self.told.append(f"restarting {job.generation} {reason}")

    def completed(self, job: Job) -> bool | None:
        return self.says_completed

    def ended(self, job: Job) -> None:
        self.told.append(f"ended {job.generation} {job.state}")


class Running:
    """A launcher at work in its thread."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.recorder = Recorder()
        self.starts_file = folder / "starts"
        environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
        self.launcher = Launcher(
            command, "r1", environment=environment, log=folder / "log", recorder=self.recorder, grace_seconds=1
        )
        self._thread = threading.Thread(target=self.launcher.run)
        self._thread.start()

    @property
    def starts(self) -> list[str]:
        return self.starts_file.read_text().splitlines() if self.starts_file.exists() else []

    def wait(self, what: Callable[[], bool]) -> None:
        wait_until(what, lambda: repr((self.launcher.job, self.starts, self.recorder.told)))

    def restart(self, token: str, generation: int, **more: str) -> Job:
        return self.launcher.restart(token, generation, reason="because", intent="i", environment=more)

    def close(self) -> None:
        self.launcher.close()
        self._thread.join(_SECONDS)
        assert not self._thread.is_alive()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Running]]:
    running: list[Running] = []

    def start_one(script: str) -> Running:
        (tmp_path / "starts.py").write_text(script)
        command = [sys.executable, "-c", script, str(tmp_path / "starts")]
        running.append(Running(command, tmp_path))
        return running[-1]

    yield start_one
    for each in running:
        each.close()


def test_a_restart_starts_the_next_generation_with_its_own_key(start: Callable[[str], Running]) -> None:
    job = start(_TRAINING)
    job.wait(lambda: len(job.starts) == 1)
    job.restart("t", 0)
    job.wait(lambda: len(job.starts) == 2)
    assert job.starts == [f"local:{job.launcher.job.job_id}:{number}" for number in (0, 1)]
    assert "restarting 0 because" in job.recorder.told


def test_the_same_token_never_starts_twice(start: Callable[[str], Running]) -> None:
    job = start(_TRAINING)
    job.wait(lambda: len(job.starts) == 1)
    job.restart("t", 0)
    job.restart("t", 0)
    job.wait(lambda: len(job.starts) == 2 and job.launcher.job.state == launcher.RUNNING)
    assert job.restart("t", 0).generation == 1
    job.restart("u", 1)
    job.wait(lambda: len(job.starts) == 3)
    job.close()
    assert len(job.starts) == 3


def test_a_restart_of_a_generation_that_is_gone_is_refused(start: Callable[[str], Running]) -> None:
    job = start(_TRAINING)
    job.wait(lambda: len(job.starts) == 1)
    job.restart("t", 0)
    job.wait(lambda: len(job.starts) == 2)
    with pytest.raises(WrongGeneration):
        job.restart("late", 0)
    job.close()
    assert len(job.starts) == 2


def test_the_next_start_waits_until_the_last_process_is_gone_even_one_that_left_the_session(
    start: Callable[[str], Running],
) -> None:
    job = start(_STUBBORN)
    job.wait(lambda: len(job.starts) == 2)
    old = job.launcher.job.attempt_key
    overlapped: list[bool] = []
    started = job.recorder.started

    def watch(next_job: Job) -> None:
        overlapped.append(bool(processes.of_attempt(old)))
        started(next_job)

    job.recorder.started = watch  # type: ignore[method-assign,assignment]  # looks at the world in the moment of the next start
    job.restart("t", 0)
    job.wait(lambda: len(job.starts) == 4)
    assert overlapped == [False]


def test_a_stopped_process_is_not_moving_and_can_be_restarted(start: Callable[[str], Running]) -> None:
    job = start(_TRAINING)
    job.wait(lambda: len(job.starts) == 1)
    (process,) = processes.of_attempt(job.launcher.job.attempt_key)
    os.kill(process.pid, signal.SIGSTOP)
    job.wait(lambda: not job.recorder.moving)
    job.restart("t", 0)
    job.wait(lambda: len(job.starts) == 2)


@pytest.mark.parametrize(
    ("script", "state", "code"),
    [
        ("pass", launcher.COMPLETED, 0),
        ("raise SystemExit(7)", launcher.FAILED, 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", launcher.FAILED, -signal.SIGKILL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", launcher.CANCELLED, -signal.SIGTERM),
        ("raise SystemExit(130)", launcher.CANCELLED, 130),
    ],
)
def test_how_the_command_ended_is_reported(start: Callable[[str], Running], script: str, state: str, code: int) -> None:
    job = start(script)
    job.wait(lambda: job.launcher.job.over)
    assert (job.launcher.job.state, job.launcher.job.exit_code) == (state, code)
    job.wait(lambda: job.recorder.told[-1] == f"ended 0 {state}")


def test_a_failed_generation_can_be_restarted_but_not_one_that_completed(start: Callable[[str], Running]) -> None:
    failed = start("raise SystemExit(1)")
    failed.wait(lambda: failed.launcher.job.over)
    failed.restart("t", 0)
    failed.wait(lambda: failed.launcher.job.generation == 1 and failed.launcher.job.over)
    completed = start("pass")
    completed.wait(lambda: completed.launcher.job.over)
    with pytest.raises(JobOver):
        completed.restart("t", 0)


def test_a_training_that_left_no_completion_has_failed_whatever_its_status(
    start: Callable[[str], Running], tmp_path: Path
) -> None:
    gate = f"{tmp_path / 'gate'}"
    job = start(f"import os, time\nwhile not os.path.exists({gate!r}): time.sleep(0.02)")
    job.recorder.says_completed = False
    Path(gate).touch()
    job.wait(lambda: job.launcher.job.over)
    assert (job.launcher.job.state, job.launcher.job.exit_code) == (launcher.FAILED, 0)


def test_a_run_that_completes_while_it_is_being_ended_is_not_started_again(start: Callable[[str], Running]) -> None:
    job = start(_TRAINING)
    job.wait(lambda: len(job.starts) == 1)
    job.recorder.says_completed = True
    job.restart("t", 0)
    job.wait(lambda: job.launcher.job.over)
    job.close()
    assert job.launcher.job.state == launcher.COMPLETED
    assert job.launcher.job.tokens == {}
    assert len(job.starts) == 1


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ("pass", launcher.COMPLETED),
        ("raise SystemExit(1)", launcher.FAILED),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", launcher.FAILED),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", launcher.COMPLETED),
    ],
)
def test_a_command_that_fails_after_its_training_has_completed_has_failed(
    start: Callable[[str], Running], tmp_path: Path, script: str, state: str
) -> None:
    gate = f"{tmp_path / 'gate'}"
    job = start(f"import os, time\nwhile not os.path.exists({gate!r}): time.sleep(0.02)\n{script}")
    job.recorder.says_completed = True
    Path(gate).touch()
    job.wait(lambda: job.launcher.job.over)
    assert job.launcher.job.state == state


def test_a_cancelled_job_leaves_no_process_and_starts_no_more(start: Callable[[str], Running]) -> None:
    job = start(_STUBBORN)
    job.wait(lambda: len(job.starts) == 2)
    job.launcher.cancel()
    job.wait(lambda: job.launcher.job.over)
    assert processes.of_attempt(job.launcher.job.attempt_key) == []
    with pytest.raises(JobOver):
        job.restart("t", 0)


def test_a_command_that_is_no_program_fails_with_a_line_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    job = Running([str(tmp_path / "text")], tmp_path)
    job.wait(lambda: job.launcher.job.over)
    job.close()
    assert (job.launcher.job.state, job.launcher.job.exit_code) == (launcher.FAILED, 126)
    assert str(tmp_path / "text") in (tmp_path / "log").read_text()


def test_a_recorder_that_fails_does_not_end_the_job(start: Callable[[str], Running]) -> None:
    job = start(_TRAINING)
    job.wait(lambda: len(job.starts) == 1)
    job.recorder.fails = True
    job.restart("t", 0)
    job.wait(lambda: len(job.starts) == 2)


def test_a_log_folder_that_somebody_removed_is_made_again(start: Callable[[str], Running], tmp_path: Path) -> None:
    job = Running([sys.executable, "-c", "print('hello')"], tmp_path / "away")
    job.wait(lambda: job.launcher.job.over)
    job.close()
    assert (tmp_path / "away" / "log").read_text() == "hello\n"


@pytest.fixture
def served(start: Callable[[str], Running]) -> Iterator[tuple[Running, LauncherServer]]:
    job = start(_TRAINING)
    job.wait(lambda: len(job.starts) == 1)
    server = LauncherServer(job.launcher, "secret")
    yield job, server
    server.close()


def _post(server: LauncherServer, job: Running, body: object, token: str = "secret") -> HttpResponse:
    client = HttpClient(server.url, 30, auth=HttpAuth(token=token))
    return client.post(f"/jobs/{job.launcher.job.job_id}/restart", body)


def test_over_http_a_restart_happens_once_and_hands_its_variables_down(served: tuple[Running, LauncherServer]) -> None:
    job, server = served
    body = {"token": "t", "expected_generation": 0, "environment": {"TRAINWARDEN_RESUME_CHECKPOINT": "x"}}
    assert [_post(server, job, body).status for _ in range(2)] == [202, 202]
    job.wait(lambda: len(job.starts) == 2)
    (process,) = processes.of_attempt(job.launcher.job.attempt_key)
    assert b"TRAINWARDEN_RESUME_CHECKPOINT=x" in Path(f"/proc/{process.pid}/environ").read_bytes()
    listed = HttpClient(server.url, 30, auth=HttpAuth(token="secret")).get("/jobs").json()
    assert [(each["generation"], each["tokens"]) for each in listed] == [(1, {"t": 1})]
    assert _post(server, job, {**body, "token": "late"}).status == 409


@pytest.mark.parametrize(
    ("body", "token", "status"),
    [
        ({"token": "t", "expected_generation": 0}, "wrong", 401),
        ({"expected_generation": 0}, "secret", 422),
        ({"token": "t", "expected_generation": "0"}, "secret", 422),
        ({"token": "t", "expected_generation": True}, "secret", 422),
        ({"token": "t", "expected_generation": 0, "environment": {"LD_PRELOAD": "x"}}, "secret", 422),
        ([1], "secret", 422),
    ],
)
def test_over_http_what_is_not_understood_changes_nothing(
    served: tuple[Running, LauncherServer], body: object, token: str, status: int
) -> None:
    job, server = served
    answer = _post(server, job, body, token)
    assert (answer.status, bool(answer.json()["error"])) == (status, True)
    job.close()
    assert len(job.starts) == 1
