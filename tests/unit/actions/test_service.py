"""The service runs each command once for its event, with the right arguments, and keeps account of it."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from trainwarden.actions import execution, service
from trainwarden.actions.configuration import read_configuration
from trainwarden.actions.ledger import MAX_NOTES, Claim, Ledger
from trainwarden.actions.service import ActionService
from trainwarden.record.clock import to_iso

pytestmark = pytest.mark.process

SAVED = " successfully saved checkpoint from iteration {step:7d} to {path} [ t 1/2, p 1/1 ]\n"
EVALUATE = """
signals: megatron_checkpoint_eval
actions:
  evaluate:
    {trigger}
    command: [PYTHON, SCRIPT, "{{path}}", "{{step}}"]
    parameters:
      path: {{type: path, under: [ROOT]}}
      step: {{type: int}}
"""


class House:
    """A folder with runs, a configuration and the state of a service; `started` holds what the commands received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.run = self.folder / "runs/llama"
        (self.run / "logs").mkdir(parents=True)
        self.journal = self.run / "events.jsonl"
        self.journal.touch()
        self.log = self.run / "logs/training_log_latest.txt"
        self.script = self.folder / "command.py"
        self.does(f"import json, sys; open('{self.folder}/started', 'a').write(json.dumps(sys.argv[1:]) + '\\n')")

    def does(self, program: str) -> None:
        self.script.write_text(program)

    def configure(self, text: str) -> None:
        file = self.folder / "actions.yml"
        for name, value in {"PYTHON": sys.executable, "SCRIPT": str(self.script), "ROOT": str(self.folder)}.items():
            text = text.replace(name, value)
        file.write_text(f"runs_dir: {self.folder}/runs\n{text}")
        file.chmod(0o600)

    def has_sbatch(self, program: str, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Put an sbatch on PATH, a shell script, and let the action submit, for a second at most; return its file."""
        sbatch = self.folder / "bin/sbatch"
        sbatch.parent.mkdir()
        sbatch.write_text(f"#!/bin/sh\n{program}\n")
        sbatch.chmod(0o755)
        monkeypatch.setenv("PATH", f"{sbatch.parent}:{os.environ['PATH']}")
        trigger = "event: checkpoint_saved\n    timeout: 1s"
        self.configure(EVALUATE.format(trigger=trigger).replace("command: [PYTHON, ", "sbatch: ["))
        return sbatch

    def saved(self, step: int) -> None:
        data = {"path": f"{self.folder}/step_{step}", "step": step}
        self.event("checkpoint_saved", data)

    def event(self, name: str, data: dict[str, Any], when: float | None = None) -> None:
        line = {"timestamp": to_iso(time.time() if when is None else when), "event_type": name, "data": data}
        with self.journal.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def print(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(text)

    def open(self) -> tuple[ActionService, Ledger]:
        ledger = Ledger(self.folder / "state")
        return ActionService(read_configuration(self.folder / "actions.yml"), ledger), ledger

    def once(self) -> list[Claim]:
        """Do what `--once` does; all claims so far."""
        acting, ledger = self.open()
        try:
            acting.run_once(threading.Event())
            return list(ledger.claims())
        finally:
            acting.close(0)
            ledger.close()

    @property
    def started(self) -> list[list[str]]:
        file = self.folder / "started"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def notes(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.journal.read_text().splitlines()]
        return [line["data"] for line in lines if line["event_type"] == "signal_noted"]


@pytest.fixture
def house(tmp_path: Path) -> House:
    made = House(tmp_path)
    made.configure(EVALUATE.format(trigger="event: checkpoint_saved"))
    return made


def test_an_event_starts_its_command_once_over_restarts_of_the_service(house: House) -> None:
    house.once()
    house.saved(500)
    (claim,) = house.once()
    assert (claim.state, claim.run_id, claim.cause["name"]) == ("succeeded", "llama", "checkpoint_saved")
    house.once()
    house.saved(600)
    house.once()
    assert house.started == [[f"{house.folder}/step_{step}", str(step)] for step in (500, 600)]


def test_an_event_that_is_read_again_starts_nothing_again(house: House) -> None:
    house.once()
    house.saved(500)
    house.once()
    with contextlib.closing(sqlite3.connect(house.folder / "state/actions.db")) as database, database:
        assert database.execute("DELETE FROM positions").rowcount == 1
    assert [claim.state for claim in house.once()] == ["succeeded"]
    assert len(house.started) == 1


def test_what_was_there_before_the_first_start_starts_nothing(house: House) -> None:
    house.saved(400)
    house.print(SAVED.format(step=400, path=f"{house.folder}/step_400"))
    house.once()
    house.event("checkpoint_saved", {"path": f"{house.folder}/x", "step": 1}, when=time.time() - 3600)
    assert house.once() == []


def test_a_line_is_read_when_it_is_complete(house: House) -> None:
    house.once()
    house.saved(500)
    whole = house.journal.read_bytes()
    house.journal.write_bytes(whole[:-20])
    assert house.once() == []
    house.journal.write_bytes(whole)
    assert len(house.once()) == 1


def test_a_signal_of_a_log_starts_its_command_and_hostile_values_do_not(house: House) -> None:
    house.configure(EVALUATE.format(trigger="signal: checkpoint_saved").replace("step", "iteration"))
    house.once()
    house.print(SAVED.format(step=500, path=f"{house.folder}/step_500"))
    for path in ("/etc/shadow", f"{house.folder}/$(touch${{IFS}}x)", f"{house.folder}/../../../etc", "--uid=0"):
        house.print(SAVED.format(step=500, path=path))
    claims = house.once()
    assert [claim.state for claim in claims] == ["succeeded", *["refused"] * 4]
    assert "'/etc/shadow', expected a path under" in claims[1].detail
    assert house.started == [[f"{house.folder}/step_500", "500"]]


def test_the_same_arguments_run_once_where_the_action_says_so(house: House) -> None:
    house.configure(EVALUATE.format(trigger="event: checkpoint_saved\n    once_per: arguments"))
    house.once()
    house.saved(500)
    house.saved(500)
    house.once()
    house.saved(500)
    assert len(house.once()) == 1


def test_what_was_claimed_and_not_started_starts_after_a_restart(house: House) -> None:
    house.once()
    house.saved(500)
    acting, ledger = house.open()
    acting.look()  # and the process dies
    ledger.close()
    assert house.started == []
    (claim,) = house.once()
    assert claim.state == "succeeded"
    assert len(house.started) == 1


def test_what_may_have_been_started_is_not_started_again_and_that_is_said(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    house.once()
    house.saved(500)
    acting, ledger = house.open()

    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    monkeypatch.setattr(service, "Execution", die)
    acting.look()
    with pytest.raises(Died):
        acting.advance()
    ledger.close()
    monkeypatch.undo()
    (claim,) = house.once()
    assert claim.state == "in_doubt"
    assert house.started == []
    assert "in doubt" in caplog.text


def test_a_command_that_takes_too_long_is_ended_with_what_it_started(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "END_SECONDS", 0.2)
    house.does(
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); child = os.fork()\n"
        "print('sleeping', child, flush=True) if child else None\ntime.sleep(300)"
    )
    house.configure(EVALUATE.format(trigger="event: checkpoint_saved\n    timeout: 2s"))
    house.once()
    house.saved(500)
    (claim,) = house.once()
    assert (claim.state, claim.detail) == ("timed_out", "not ended within 2 s")
    child = Path(claim.output).read_text().split()[1]
    wait_until(lambda: not Path(f"/proc/{child}/cmdline").exists() or not Path(f"/proc/{child}/cmdline").read_bytes())


def test_the_output_is_kept_and_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "KEPT_BYTES", 1000)
    house.does("import sys; print('first'); print('x' * 500_000); print('last', file=sys.stderr); sys.exit(3)")
    house.once()
    house.saved(500)
    (claim,) = house.once()
    assert (claim.state, claim.detail) == ("failed", "exit status 3")
    kept = Path(claim.output).read_text()
    assert kept.startswith("first\nxxx")
    assert "bytes left out" in kept
    assert "last\n" in kept
    assert len(kept) < 200_000
    assert stat.S_IMODE(Path(claim.output).stat().st_mode) == 0o600


def test_commands_do_not_get_the_variables_of_the_service(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWARDEN_RUN_ID", "llama")
    monkeypatch.setenv("SBATCH_PARTITION", "huge")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    house.does("import os; print(sorted(os.environ))")
    house.once()
    house.saved(500)
    (claim,) = house.once()
    printed = Path(claim.output).read_text()
    assert "PATH" in printed
    assert not {"TRAINWARDEN_RUN_ID", "SBATCH_PARTITION", "AWS_SECRET_ACCESS_KEY"} & set(printed.split("'"))


def test_at_most_as_many_run_at_once_as_the_action_allows(house: House) -> None:
    house.does(f"import os, time; os.mkdir('{house.folder}/alone'); time.sleep(0.05); os.rmdir('{house.folder}/alone')")
    house.once()
    for step in range(4):
        house.saved(step)
    assert [claim.state for claim in house.once()] == ["succeeded"] * 4


def test_a_submission_keeps_the_job_and_one_without_an_answer_is_in_doubt(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch = house.has_sbatch(f"printf '%s\\n' \"$@\" >> {house.folder}/sbatch.argv\necho '4711;cluster'", monkeypatch)
    house.once()
    house.saved(500)
    (claim,) = house.once()
    assert (claim.state, claim.detail) == ("submitted", "job 4711")
    given = (house.folder / "sbatch.argv").read_text().splitlines()
    assert given == [
        "--parsable", f"--comment=trainwarden-action:{claim.id}", str(house.script), f"{house.folder}/step_500", "500",
    ]  # fmt: skip
    sbatch.write_text("#!/bin/sh\nexec sleep 60\n")
    house.saved(600)
    last = house.once()[-1]
    assert last.state == "in_doubt"
    assert "not submitted again" in last.detail


@pytest.mark.parametrize(
    ("message", "state"),
    [
        ("Batch job submission failed: Invalid partition name specified", "failed"),
        ("Unable to open file eval.sh", "failed"),
        ("Batch job submission failed: Socket timed out on send/recv operation", "in_doubt"),
        ("something new", "in_doubt"),
    ],
)
def test_a_failed_submission_without_a_clear_refusal_is_in_doubt(
    house: House, monkeypatch: pytest.MonkeyPatch, message: str, state: str
) -> None:
    house.has_sbatch(f"echo 'sbatch: error: {message}' >&2; exit 1", monkeypatch)
    house.once()
    house.saved(500)
    (claim,) = house.once()
    assert claim.state == state
    assert message in claim.detail


def test_an_action_that_is_removed_while_its_command_runs_is_brought_to_its_end(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.has_sbatch("sleep 0.3; echo 4711", monkeypatch)
    house.once()
    house.saved(500)
    acting, ledger = house.open()
    acting.look()
    acting.advance()
    house.configure("actions: {}")
    acting.reconfigure(read_configuration(house.folder / "actions.yml"))
    acting.run_once(threading.Event())
    (claim,) = ledger.claims()
    assert (claim.state, claim.detail) == ("submitted", "job 4711")
    acting.close(0)
    ledger.close()


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("command: [PYTHON, SCRIPT, ", "command: [PYTHON, -B, SCRIPT, ", "the configuration has changed"),
        ("command: [PYTHON, SCRIPT, ", "sbatch: [PYTHON, SCRIPT, ", "the configuration has changed"),
        ("under: [ROOT]", "under: [/elsewhere]", "expected a path under /elsewhere"),
    ],
)
def test_a_command_that_waits_is_not_started_once_the_configuration_has_it_no_longer(
    house: House, before: str, after: str, why: str
) -> None:
    house.once()
    house.saved(500)
    acting, ledger = house.open()
    acting.look()
    text = EVALUATE.format(trigger="event: checkpoint_saved")
    assert before in text
    house.configure(text.replace(before, after))
    acting.reconfigure(read_configuration(house.folder / "actions.yml"))
    acting.run_once(threading.Event())
    (claim,) = ledger.claims()
    assert claim.state == "refused"
    assert why in claim.detail
    assert house.started == []
    acting.close(0)
    ledger.close()


def test_notes_reach_the_journal_a_few_of_each_and_restarts_are_left_to_the_policy(house: House) -> None:
    house.configure("signals: megatron_production")
    house.once()
    for number in range(20):
        house.print(f"[rank{number}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    house.print("token=hf_abcdefghijklmnopqrstuvwxyzabcdefgh ValueError: bad\n")
    house.once()
    of_memory = [note for note in house.notes if note["signal"] == "cuda_oom"]
    assert len(of_memory) == MAX_NOTES
    assert of_memory[0]["actions"] == ["ErrorNoteAction", "RestartAction"]
    assert (of_memory[0]["note"], of_memory[0]["error_type"]) == ("error", "oom")
    assert of_memory[0]["decided_by"] == "the restart policy of the remediator"
    assert "hf_abc" not in house.journal.read_text()
    before = len(house.notes)
    house.once()
    assert len(house.notes) == before


def test_the_service_ends_its_commands_and_keeps_what_waits(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "END_SECONDS", 5.0)
    house.does(f"open('{house.folder}/started', 'a').write('[]\\n'); import time; time.sleep(300)")
    house.once()
    house.saved(500)
    house.saved(600)
    acting, ledger = house.open()
    stop = threading.Event()

    def stop_it() -> None:
        wait_until(lambda: house.started)
        stop.set()

    watcher = threading.Thread(target=stop_it)
    watcher.start()
    acting.run(stop, 0.1, before=lambda: None, after=lambda: None)
    watcher.join()
    acting.close(0)
    assert [claim.state for claim in ledger.claims()] == ["interrupted", "waiting"]
    ledger.close()


def test_another_users_run_starts_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.once()
    house.saved(500)
    user = os.geteuid()
    acting, ledger = house.open()
    monkeypatch.setattr(acting._sources, "_user", user + 1)
    acting.look()
    assert list(ledger.claims()) == []
    acting.close(0)
    ledger.close()
