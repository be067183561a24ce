"""trainwarden.sh, sourced by scripts in the shells that it is for."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.shell.calling import Shell
from tests.waiting import wait_until

pytestmark = pytest.mark.process

INIT = '. "$(trainwarden shell-init)"\n'


def test_a_script_that_ends_well_has_succeeded(shell: Shell, interpreter: str) -> None:
    done = shell.run(interpreter, f"set -eu\n{INIT}tw_start r 10\ntw_phase load\ntw_step 10 2.5 --epoch 1\nwait\n")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert shell.snapshot().state == "succeeded"
    assert shell.read("_complete")["step"] == 10
    progress = shell.read("progress.json")
    assert (progress["loss"], progress["epoch"], progress["total_steps"]) == (2.5, 1.0, 10)
    assert len(shell.read("metadata.json")["attempts"]) == 1


def test_a_command_that_fails_ends_the_script_and_is_named(shell: Shell) -> None:
    script = f"set -euo pipefail\n{INIT}tw_start r\nwork() {{\n  sh -c 'exit 5'\n}}\nwork\necho never\n"
    done = shell.run("bash", script)
    assert (done.returncode, done.stdout) == (5, "")
    error = shell.snapshot().error
    assert error is not None
    assert error.message.startswith("the script ended with status 5 at line 5: sh -c 'exit 5'")
    assert error.exit_code == 5


def test_in_any_shell_the_status_is_kept(shell: Shell, interpreter: str) -> None:
    assert shell.run(interpreter, f"{INIT}tw_start r\nexit 93\n").returncode == 93
    assert shell.read("_error")["failure"] == "launcher_stop"


def test_the_scripts_own_traps_run_as_before(shell: Shell, interpreter: str) -> None:
    script = f"""trap 'echo "it'"'"'s over: $?"' EXIT
{INIT}tw_start r
exit 4
"""
    done = shell.run(interpreter, script)
    assert (done.returncode, done.stdout) == (4, "it's over: 4\n")
    assert shell.snapshot().state == "failed"


def test_an_err_trap_of_the_scripts_runs_as_before(shell: Shell) -> None:
    done = shell.run("bash", f"trap 'echo \"failed: $?\"' ERR\n{INIT}tw_start r\n(exit 3)\necho on\n")
    assert (done.returncode, done.stdout) == (0, "failed: 3\non\n")
    assert shell.snapshot().state == "succeeded"


@pytest.mark.parametrize(
    "name", ["SIGTERM", "SIGINT", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("SIGHUP", "SIGUSR1"))]
)
def test_a_script_that_a_signal_ends_has_not_finished(shell: Shell, interpreter: str, name: str) -> None:
    """bash runs its EXIT trap then with status 0."""
    number = signal.Signals[name]
    # The signal is taken while the shell waits for a command, or before the next one.
    process = shell.start(interpreter, f"{INIT}tw_start r\necho ready\nwhile :; do sleep 0.05; done\n")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    os.kill(process.pid, number)
    assert process.wait(30) == -number
    assert (shell.snapshot().state, shell.read("metadata.json")["reason"]) == ("cancelled", name)


def test_a_signal_that_the_script_handles_is_its_own_business(shell: Shell, interpreter: str) -> None:
    script = f"trap 'echo saving; exit 0' TERM\n{INIT}tw_start r\necho ready\nwhile :; do sleep 0.05; done\n"
    process = shell.start(interpreter, script)
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    assert process.stdout.read() == b"saving\n"
    assert process.wait(30) == 0


def test_the_message_of_tw_fail_is_the_reason(shell: Shell, interpreter: str) -> None:
    message = """$(touch pwned) `touch pwned` "; touch pwned; '"""
    script = f'{INIT}tw_start r\ntw_fail "$MESSAGE" --failure data_corrupt\nexit 1\n'
    shell.environment["MESSAGE"] = message
    assert shell.run(interpreter, script).returncode == 1
    assert (shell.read("_error")["message"], shell.read("_error")["failure"]) == (message, "data_corrupt")
    assert not Path("pwned").exists()


def test_a_message_in_a_failing_command_is_never_run(shell: Shell, tmp_path: Path) -> None:
    target = tmp_path / "pwned"
    script = f"set -e\n{INIT}tw_start r\nsh -c \"exit 3\" '$(touch {target})' '\\`touch {target}\\`'\n"
    assert shell.run("bash", script).returncode == 3
    assert "touch" in shell.read("_error")["message"]
    assert not target.exists()


def test_while_a_long_command_runs_the_run_lives_and_with_the_script_it_dies(shell: Shell, interpreter: str) -> None:
    process = shell.start(interpreter, f"{INIT}tw_start r\necho ready\nsleep 60\n")
    assert process.stdout is not None
    process.stdout.readline()
    keeper = int((shell.folder / ".wrapper").read_text().partition('"pid": ')[2].partition(",")[0])
    assert keeper != process.pid
    if interpreter == "bash":
        before = shell.read("metadata.json")["last_update"]
        wait_until(lambda: shell.read("metadata.json")["last_update"] != before)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    wait_until(lambda: not Path(f"/proc/{keeper}").exists())
    assert shell.snapshot().state == "running"
    assert shell.run(interpreter, f"{INIT}tw_start r").returncode == 0


def test_a_second_script_for_the_same_run_is_refused_while_the_first_lives(shell: Shell) -> None:
    process = shell.start("bash", f"{INIT}tw_start r\necho ready\nread -r _\n", stdin=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    second = shell.run("bash", f"set -e\n{INIT}tw_start r\necho never\n")
    assert (second.returncode, second.stdout) == (2, "")
    assert "belongs to a live run" in second.stderr
    assert process.communicate(b"\n", timeout=30)[0] == b""
    assert shell.snapshot().state == "succeeded"


def test_what_cannot_be_recorded_does_not_end_the_script(shell: Shell, interpreter: str) -> None:
    # What keeps the run alive may be writing meanwhile.
    block = f"until rm -rf {shell.runs} && true > {shell.runs}; do :; done"
    script = f"set -eu\n{INIT}tw_start r\n{block}\ntw_step 3\ntw_phase eval\necho on\n"
    done = shell.run(interpreter, script)
    assert (done.returncode, done.stdout) == (0, "on\n")
    assert "nothing was recorded" in done.stderr


def test_a_training_inside_that_uses_the_library_writes_the_record_itself(shell: Shell) -> None:
    code = "import trainwarden\\nwith trainwarden.run() as run: run.step(8)"
    done = shell.run("bash", f"set -e\n{INIT}tw_start r\n{sys.executable} -c $'{code}'\n")
    assert done.returncode == 0
    assert (shell.snapshot().state, shell.read("_complete")["step"]) == ("succeeded", 8)
    assert len(shell.read("metadata.json")["attempts"]) == 1


def test_the_keeper_holds_none_of_the_scripts_files_open(shell: Shell) -> None:
    """Who reads the script's output sees its end when the script ends."""
    process = shell.start("bash", f"{INIT}tw_start r\necho done\n")
    assert process.communicate(timeout=60)[0] == b"done\n"


def test_both_shells_can_read_it(interpreter: str) -> None:
    path = Path(__file__).resolve().parents[3] / "trainwarden/shell/trainwarden.sh"
    done = subprocess.run([interpreter, "-n", str(path)], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
