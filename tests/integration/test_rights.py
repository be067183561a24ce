"""The right to read any file is in use only while something is read that no user chooses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.clients.slurm.commands import FakeSlurm, job_22_05
from tests.users import ANOTHER, NOBODY, needs_root
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
