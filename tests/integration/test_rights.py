"""The right to read any file is in use only while something is read that no user chooses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.clients.slurm.commands import FakeSlurm, job_22_05
from tests.users import ANOTHER, NOBODY, needs_root
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json
from trainwarden.record.progress import Progress, read_progress

pytestmark = pytest.mark.process

PROGRAM = """
import ctypes, os, subprocess, sys, threading
from trainwarden.capabilities import lower_read_search, reading_any
private = sys.argv[1]
def can():
    try:
        os.close(os.open(private, os.O_RDONLY))
    except PermissionError:
        return False
    return True
found = [can()]
lower_read_search()
found.append(can())
raised, tried, others = threading.Event(), threading.Event(), []
thread = threading.Thread(target=lambda: (raised.wait(), others.append(can()), tried.set()))
thread.start()
with reading_any():
    found.append(can())
    raised.set(); tried.wait()
    found += others
found.append(can())
found.append(subprocess.run(["/bin/cat", private], capture_output=True).returncode == 0)
print(*found)
"""

# With the modules that it would import later: where the tests run, they may be closed to others as well.
WATCH = """
import hashlib, sys, yaml
from trainwarden.jobs.slurm_command import main
sys.exit(main(sys.argv[1:]))
"""


# As the exporter does, with the modules that it would import later.
EXPORTER = """
import sys, yaml
from pathlib import Path
from trainwarden.capabilities import lower_read_search
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.logs import collector as logs
from trainwarden_exporter.collectors.runs.collector import RunsCollector
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.shared_state import SharedState
import trainwarden.checkpoint.verify, trainwarden.signals.tailing.log
runs, shared = Path(sys.argv[1]), SharedState()
members = [RunsCollector(runs, shared, host="n", all_hosts=True, limit=99, defaults=Thresholds(), logs_followed=True)]
settings = logs.LogSettings(pack="all", templates=(), roots=(str(runs),), host=None)
members.append(logs.LogsCollector(shared, settings, None))
lower_read_search()
for _ in range(3):
    page = "".join(encode_text(member.collect()).decode() for member in members)
print(page)
"""
SECRET = "SECRETS"


@pytest.fixture
def private() -> Iterator[Path]:
    """A file that only root may read, in a folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        path = Path(name) / "private"
        path.write_text("secret")
        path.chmod(0o600)
        yield path


def with_the_right(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user without rights but that one, as a unit of systemd does."""
    setpriv = shutil.which("setpriv")
    assert setpriv
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=+dac_read_search"]
    arguments = [setpriv, *user, "--ambient-caps=+dac_read_search", *command]
    return subprocess.run(arguments, check=False, capture_output=True, text=True, cwd="/")


@needs_root
def test_the_right_to_read_any_file_is_in_use_only_in_its_context(private: Path) -> None:
    done = with_the_right(sys.executable, "-c", PROGRAM, str(private))
    assert not done.stderr
    # At the start; lowered; raised; in another thread meanwhile; lowered again; in a program that is started.
    assert done.stdout.split() == ["True", "False", "True", "False", "False", "False"]


@needs_root
def test_the_watch_reads_a_log_that_is_closed_to_it_and_the_commands_that_it_starts_cannot(private: Path) -> None:
    folder = private.parent
    for name in ("bin", "runs", "home"):
        (folder / name).mkdir()
    log = folder / "home/1.out"
    log.write_text("step 10/100 loss 2.5\n")
    log.chmod(0o600)
    (folder / "home").chmod(0o700)
    for path in (log, log.parent):
        os.chown(path, ANOTHER, ANOTHER)
    os.chown(folder / "runs", NOBODY, NOBODY)
    slurm = FakeSlurm(folder / "bin")
    slurm.jobs([job_22_05(1, partition="gpu", user_id=ANOTHER, standard_output=str(log))])
    slurm.script("squeue", f"cat {log} > {folder}/runs/.stolen; exec cat {folder}/bin/squeue.out")
    configuration = folder / "jobs.yml"
    configuration.write_text(f"runs_dir: {folder}/runs\ngrace: 0\njobs: [{{match: {{partition: gpu}}}}]\n")
    arguments = ["watch", "--once", f"--slurm-bin-dir={folder}/bin", f"--config={configuration}"]
    done = with_the_right(sys.executable, "-c", WATCH, *arguments)
    assert done.returncode == 0, done.stderr
    progress = read_progress(folder / "runs/run-1")
    assert isinstance(progress, Progress), done.stderr
    assert progress.step == 10
    assert (folder / "runs/.stolen").read_bytes() == b""


def record(path: Path, words: str) -> None:
    """A failed run that shows these words wherever a record and a log can show some."""
    for folder in (path / "ranks", path / "logs"):
        folder.mkdir(parents=True)
    now, key = to_iso(time.time()), "slurm:7:0"
    common = {"attempt_key": key, "attempt": 0}
    write_json(
        path / "metadata.json", {**common, "status": "failed", "model": words, "reason": words, "start_time": now}
    )
    write_json(path / "progress.json", {**common, "step": 4711, "metrics": {words: 1}, "last_updated": now})
    write_json(path / "_error", {**common, "message": f"CUDA out of memory {words}", "time": now})
    write_json(path / "ranks/0.json", {"rank": 0, "host": words, "step": 4711, "time": now, "attempt_key": key})
    (path / "logs/training_log_latest.txt").write_text(f"torch.OutOfMemoryError: CUDA out of memory {words}\n")


def close(path: Path, uid: int) -> None:
    """Give all at the path to a user, closed to everybody else."""
    for each in (path, *path.rglob("*")):
        if not each.is_symlink():
            each.chmod(0o700 if each.is_dir() else 0o600)
        os.chown(each, uid, uid, follow_symlinks=False)


FILES = ("metadata.json", "progress.json", "_error", "ranks/0.json", "logs/training_log_latest.txt")
PLACES = (*FILES, "ranks", "logs", "")


@needs_root
def test_with_the_right_the_exporter_reads_a_closed_record_and_nothing_of_another_user_through_it(
    private: Path,
) -> None:
    runs, victim, user = private.parent / "runs", private.parent / "victim", ANOTHER + 1
    runs.mkdir(mode=0o755)
    private.write_text(SECRET)
    record(victim, SECRET)
    close(victim, ANOTHER)
    record(runs / "own", "mine")
    close(runs / "own", user)
    for number, place in enumerate(PLACES):
        for kind in ("link", "hard") if place in FILES else ("link",):
            run = runs / f"{kind}-{number}"
            record(run, "mine")
            close(run, user)
            shutil.rmtree(run / place) if (run / place).is_dir() else (run / place).unlink()
            os.link(victim / place, run / place) if kind == "hard" else (run / place).symlink_to(victim / place)
            if kind == "link":
                os.chown(run / place, user, user, follow_symlinks=False)
    for number, target in enumerate(
        ("/proc/self/environ", "/proc/self/mem", "/proc/self/fd/0", "/dev/null", str(private))
    ):
        run = runs / f"log-{number}"
        record(run, "mine")
        (run / FILES[-1]).unlink()
        (run / FILES[-1]).symlink_to(target)
        close(run, user)
    done = with_the_right(sys.executable, "-c", EXPORTER, str(runs))
    assert done.returncode == 0, done.stderr
    assert 'training_step{run_id="own"} 4711' in done.stdout, "a record that is closed to the exporter's user"
    assert "CUDA out of memory mine" in done.stdout
    for shown in (done.stdout, done.stderr):
        assert SECRET not in shown
