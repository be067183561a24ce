"""`trainwarden up` around commands that it has never seen, stopped, killed and failing from outside."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainwarden.stack.binaries import Tools
from trainwarden.stack.processes import of_attempt

pytestmark = [pytest.mark.e2e, pytest.mark.tools, pytest.mark.timeout(240)]
_SECONDS = 150.0

# A training of somebody else: one process, a counter for a model, a checkpoint every few steps.
_TRAINING = """
import pathlib, sys, time
import trainwarden

here = pathlib.Path(sys.argv[1])
with trainwarden.run(total_steps=int(sys.argv[2])) as run:
    last = run.resume_checkpoint()
    start = int(pathlib.Path(last).read_text()) + 1 if last else 1
    with (here / "starts").open("a") as starts:
        starts.write(f"{start}\\n")
    for step in range(start, int(sys.argv[2]) + 1):
        time.sleep(0.05)
        if (here / "fail").exists() and step > 40:
            raise ConnectionResetError(104, "Connection reset by peer")
        run.step(step, loss=1.0 / step)
        if step % 20 == 0:
            path = here / f"step_{step}"
            path.write_text(str(step))
            run.checkpoint_saved(str(path), step)
"""


class Up:
    """A running `trainwarden up`, with its output as it comes."""

    def __init__(self, folder: Path, *arguments: str, run_id: str = "r1") -> None:
        self.folder = folder
        self.run = folder / "state" / "runs" / run_id
        self._output = folder / f"output-{run_id}"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "trainwarden", "up", "--run-id", run_id),
                    *("--state-dir", str(folder / "state"), *arguments),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if not name.startswith("TRAINWARDEN_RUN")},
            )

    @property
    def text(self) -> str:
        return self._output.read_text(errors="replace")

    def wait(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _SECONDS
        while not what():
            assert self.process.poll() is None, self.text[-6000:]
            assert time.monotonic() < deadline, self.text[-6000:]
            time.sleep(0.1)

    def step(self) -> int:
        try:
            return int(json.loads((self.run / "progress.json").read_text())["step"])
        except (OSError, ValueError, KeyError):
            return -1

    def pid(self) -> int:
        return int(json.loads((self.run / "metadata.json").read_text())["pid"])

    def end(self) -> int:
        return self.process.wait(_SECONDS)


@pytest.fixture
def up(tmp_path: Path, tools: Tools) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*arguments: str, run_id: str = "r1") -> Up:
        started.append(Up(tmp_path, *arguments, run_id=run_id))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.terminate()
            each.process.wait(30)


def _training(folder: Path, steps: int) -> list[str]:
    (folder / "train.py").write_text(_TRAINING)
    return [sys.executable, str(folder / "train.py"), str(folder), str(steps)]


def _starts(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "starts").read_text().split()]


def _state(job: Up) -> str:
    return str(json.loads((job.run / "metadata.json").read_text())["status"])


def test_a_stopped_training_is_restarted_from_its_checkpoint_and_finishes(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    job = up("--stall-seconds", "6", "--", *_training(tmp_path, 400))
    job.wait(lambda: job.step() > 60)
    os.kill(job.pid(), signal.SIGSTOP)
    assert job.end() == 0, job.text[-6000:]
    first, second = _starts(tmp_path)
    assert first == 1
    assert second > 40, "it began again at its last checkpoint"
    assert _state(job) == "succeeded"
    assert "TrainRunStalled is firing" in job.text


def test_a_killed_training_is_restarted(up: Callable[..., Up], tmp_path: Path) -> None:
    job = up("--", *_training(tmp_path, 400))
    job.wait(lambda: job.step() > 60)
    os.kill(job.pid(), signal.SIGKILL)
    assert job.end() == 0, job.text[-6000:]
    assert len(_starts(tmp_path)) == 2


def test_a_limit_of_restarts_is_exact_and_then_a_person_is_told(up: Callable[..., Up], tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    policy = tmp_path / "twice.yaml"
    policy.write_text(
        "policies:\n  - mode: crash\n    implementation: {class_name: AlwaysRestartPolicy, max_retries: 2}\n"
    )
    job = up("--policy", str(policy), "--", *_training(tmp_path, 400))
    assert job.end() == 1, job.text[-6000:]
    assert len(_starts(tmp_path)) == 3
    assert "TrainRunRestartExhausted is firing" in job.text


def test_a_training_that_is_told_to_end_stays_ended(up: Callable[..., Up], tmp_path: Path) -> None:
    job = up("--", *_training(tmp_path, 10_000))
    job.wait(lambda: job.step() > 10)
    os.kill(job.pid(), signal.SIGTERM)
    assert job.end() == 143, job.text[-6000:]
    assert _starts(tmp_path) == [1]
    assert _state(job) == "cancelled"


def test_ctrl_c_ends_everything_and_leaves_no_process_and_no_file_elsewhere(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    job = up("--", *_training(tmp_path, 10_000))
    job.wait(lambda: job.step() > 10)
    key = json.loads((job.run / "metadata.json").read_text())["attempt_key"]
    job.process.send_signal(signal.SIGINT)
    assert job.end() == 130, job.text[-6000:]
    assert of_attempt(key) == []
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("step_")) == [
        "output-r1",
        "starts",
        "state",
        "train.py",
    ]


def test_a_command_that_knows_nothing_of_us_is_watched_too(up: Callable[..., Up], tmp_path: Path) -> None:
    flag = tmp_path / "second"
    script = f"echo working; if [ -e {flag} ]; then exit 0; fi; touch {flag}; sleep 1; kill -9 $$"
    job = up("--", "sh", "-c", script)
    assert job.end() == 0, job.text[-6000:]
    assert "working" in job.text
    assert _state(job) == "succeeded"


def test_a_failing_command_ends_with_its_own_status_and_is_not_restarted_where_the_policy_says_so(
    up: Callable[..., Up],
) -> None:
    job = up("--policy", "observe", "--", "sh", "-c", "exit 7")
    assert job.end() == 7, job.text[-6000:]
    assert "TrainRunFailed" in job.text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--"], "no command"),
        (["--", "/nonexistent/program"], "/nonexistent/program"),
        (["--policy", "nonsense", "--", "true"], "nonsense"),
        (["--stall-seconds", "-1", "--", "true"], "-1"),
        (["--runs-dir", "/proc/nothing", "--", "true"], "/proc/nothing"),
        (["--prometheus-port", "70000", "--", "true"], "70000"),
        (["--slack-url-file", "/nonexistent", "--", "true"], "/nonexistent"),
        (["--prometheus-port", "18998", "--exporter-port", "18998", "--", "true"], "--exporter-port 18998"),
    ],
)
def test_what_cannot_be_is_refused_by_name_before_anything_starts(
    up: Callable[..., Up], arguments: list[str], named: str
) -> None:
    job = up(*arguments)
    assert job.end() == 2
    assert named in job.text
    assert "Traceback" not in job.text


@pytest.mark.parametrize("run_id", ["a/b", "..", "a..b", "a\nb", ""])
def test_a_run_id_that_could_leave_its_folder_is_refused(tmp_path: Path, run_id: str, tools: Tools) -> None:
    command = [
        sys.executable,
        "-m",
        "trainwarden",
        "up",
        "--run-id",
        run_id,
        "--state-dir",
        str(tmp_path / "state"),
    ]
    done = subprocess.run([*command, "--", "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "run id" in done.stderr


def test_a_busy_port_is_refused_by_name(up: Callable[..., Up]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        job = up("--alertmanager-port", str(port), "--", "true")
        assert job.end() == 2
        assert f"--alertmanager-port {port}" in job.text


def test_a_folder_that_another_live_run_owns_is_refused_before_training_starts(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    first = up("--", *_training(tmp_path, 10_000))
    first.wait(lambda: first.step() > 5)
    command = [
        *(sys.executable, "-m", "trainwarden", "up", "--run-id", "r1"),
        *("--state-dir", str(tmp_path / "other"), "--runs-dir", str(tmp_path / "state" / "runs")),
    ]
    second = subprocess.run(
        [*command, "--", "touch", str(tmp_path / "ran")], capture_output=True, text=True, check=False
    )
    assert second.returncode == 2
    assert str(first.pid()) in second.stderr
    assert not (tmp_path / "ran").exists()


def test_a_state_folder_or_a_run_is_used_by_one_at_a_time(up: Callable[..., Up], tmp_path: Path) -> None:
    first = up("--", "sleep", "600")
    first.wait((first.run / "metadata.json").exists)
    command = [sys.executable, "-m", "trainwarden", "up", "--runs-dir", str(tmp_path / "state" / "runs")]
    for more, named in (
        (["--run-id", "r2", "--state-dir", str(tmp_path / "state")], "--state-dir"),
        (["--run-id", "r1", "--state-dir", str(tmp_path / "other")], "--run-id r1"),
    ):
        done = subprocess.run([*command, *more, "--", "true"], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert named in done.stderr
        assert str(first.process.pid) in done.stderr


def test_a_stopped_command_that_knows_nothing_of_us_is_found_by_its_silence(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    flag = tmp_path / "second"
    script = f"echo $$ > {tmp_path / 'pid'}; if [ -e {flag} ]; then exit 0; fi; touch {flag}; while :; do sleep 1; done"
    job = up("--stale-seconds", "12", "--", "sh", "-c", script)
    job.wait(lambda: flag.exists() and _state(job) == "running")
    for process in of_attempt(json.loads((job.run / "metadata.json").read_text())["attempt_key"]):
        os.kill(process.pid, signal.SIGSTOP)
    assert job.end() == 0, job.text[-6000:]
    assert "TrainRunTimedOut is firing" in job.text


def test_a_service_that_dies_is_started_again_and_the_run_is_still_watched(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    job = up("--stall-seconds", "10", "--", *_training(tmp_path, 500))
    job.wait(lambda: job.step() > 10)
    for word in ("--storage.tsdb.path", "--cluster.listen", "trainwarden_exporter", "trainwarden_remediator"):
        (pid,) = _pids_of(word, tmp_path)
        os.kill(pid, signal.SIGKILL)
    job.wait(lambda: job.text.count("is started again") == 4)
    os.kill(job.pid(), signal.SIGSTOP)
    assert job.end() == 0, job.text[-6000:]
    assert len(_starts(tmp_path)) == 2


def _pids_of(word: str, folder: Path) -> list[int]:
    return [pid for pid, words in _commands(folder).items() if any(each.startswith(word) for each in words)]


def test_whatever_kills_it_nothing_goes_on_without_it(up: Callable[..., Up], tmp_path: Path) -> None:
    job = up("--", *_training(tmp_path, 10_000))
    job.wait(lambda: job.step() > 5)
    job.process.kill()
    job.process.wait()
    deadline = time.monotonic() + 30
    while left := _commands(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def _commands(folder: Path) -> dict[int, list[str]]:
    """The command lines that name the folder, by process."""
    found = {}
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = cmdline.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(str(folder) in word for word in words):
            found[int(cmdline.parent.name)] = words
    return found
