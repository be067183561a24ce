"""What a command prints under `trainwarden exec`: seen as without it, and kept."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.exec.running import Exec
from trainwarden.record.store import RecordStore


def test_every_byte_is_passed_on_and_kept(wrapped: Exec) -> None:
    """Not text, no line end, carriage returns, and more than any buffer holds."""
    expected = bytes(range(256)) * 40_000
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 40_000)"
    done = wrapped.python(code)
    assert done.stdout == expected
    assert wrapped.log == expected


def test_output_is_seen_while_the_command_runs(wrapped: Exec) -> None:
    process = wrapped.start("sh", "-c", "printf 'step 1\\r'; sleep 60")
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), 100) == b"step 1\r"
    process.terminate()
    process.wait(30)


def test_both_streams_stay_apart_and_are_kept_together(wrapped: Exec) -> None:
    done = wrapped.run("sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
    assert sorted(wrapped.log.splitlines()) == [b"err", b"out"]


def test_two_streams_that_are_one_keep_their_order(wrapped: Exec) -> None:
    script = "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done"
    done = wrapped.run("sh", "-c", script, stderr=subprocess.STDOUT)
    assert done.stdout == b"".join(b"o%d\ne%d\n" % (i, i) for i in range(1, 6))
    assert wrapped.log == done.stdout


def test_a_log_of_the_users_is_appended_to(wrapped: Exec, tmp_path: Path) -> None:
    log = tmp_path / "mine.log"
    log.write_bytes(b"before\n")
    wrapped.run("echo", "now", options=("--log", str(log)))
    assert log.read_bytes() == b"before\nnow\n"
    assert wrapped.log == b"now\n"


def test_the_log_of_the_attempt_before_is_put_aside(wrapped: Exec) -> None:
    for word in ("first", "second"):
        wrapped.run("echo", word)
    kept = [path for path in (wrapped.folder / "logs").iterdir() if path.name != "training_log_latest.txt"]
    assert (wrapped.log, [path.read_bytes() for path in kept]) == (b"second\n", [b"first\n"])


def test_where_our_output_goes_to_the_log_already_it_is_not_written_twice(wrapped: Exec) -> None:
    log = wrapped.folder / "logs/training_log_latest.txt"
    log.parent.mkdir(parents=True)
    with log.open("ab") as output:
        process = wrapped.start("echo", "once", stdout=output, stderr=output)
        assert process.wait(30) == 0
    assert log.read_bytes() == b"once\n"


def test_a_grandchild_that_keeps_the_pipe_open_does_not_keep_us(wrapped: Exec) -> None:
    process = wrapped.start("sh", "-c", "sleep 60 & echo $!", options=("--grace-seconds", "0.2"))
    assert process.stdout is not None
    left = int(process.stdout.readline())
    try:
        assert process.wait(30) == 0
        assert Path(f"/proc/{left}").exists()
    finally:
        os.kill(left, signal.SIGKILL)
    assert wrapped.snapshot().state == "succeeded"


def test_not_even_one_that_prints_without_end(wrapped: Exec) -> None:
    done = wrapped.run("sh", "-c", "yes & exit 3", options=("--grace-seconds", "0.1"), stdout=subprocess.DEVNULL)
    assert done.returncode == 3


def test_what_a_grandchild_prints_within_the_grace_is_kept(wrapped: Exec) -> None:
    done = wrapped.run("sh", "-c", "(sleep 0.3; echo late) & echo soon")
    assert done.stdout == b"soon\nlate\n" == wrapped.log


def test_a_command_whose_reader_is_gone_learns_of_it(wrapped: Exec) -> None:
    process = wrapped.start("yes")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == 128 + signal.SIGPIPE


def test_standard_input_is_the_commands(wrapped: Exec) -> None:
    process = wrapped.start("cat", stdin=subprocess.PIPE)
    assert process.communicate(b"through\xff", timeout=30)[0] == b"through\xff"


def test_closed_streams_do_no_harm(wrapped: Exec) -> None:
    """Whatever is opened first takes their numbers, and must not be a pipe of ours."""
    command = f"exec {sys.executable} -m trainwarden exec --run-id r -- sh -c 'echo a; cat; exit 4' <&- >&- 2>&-"
    environment = {**os.environ, "TRAINWARDEN_RUNS_DIR": str(wrapped.runs)}
    done = subprocess.run(["sh", "-c", command], env=environment, timeout=30, check=False)
    assert done.returncode == 4
    assert wrapped.log == b"a\n"


def test_a_command_that_was_restarted_states_it_in_its_output(wrapped: Exec) -> None:
    wrapped.run("true", environment={"TRAINWARDEN_ATTEMPT_KEY": "local:5:0"})
    RecordStore(wrapped.folder).announce_restart("local:5:0", "a hang", "4711")
    done = wrapped.run("true", environment={"TRAINWARDEN_ATTEMPT_KEY": "local:5:1"})
    assert b"restarted by Trainwarden: incident 4711, reason: a hang\n" in done.stderr
