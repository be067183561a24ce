"""The right to read any file is in use only while something is read that no user chooses."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.users import needs_root

pytestmark = pytest.mark.process

PROGRAM = """
import ctypes, os, subprocess, sys, threading
from trainwarden_exporter.core.capabilities import lower_read_search, reading_any
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


@pytest.fixture
def private() -> Iterator[Path]:
    """A file that only root may read, in a folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        path = Path(name) / "private"
        path.write_text("secret")
        path.chmod(0o600)
        yield path


@needs_root
def test_the_right_to_read_any_file_is_in_use_only_in_its_context(private: Path) -> None:
    setpriv = shutil.which("setpriv")
    assert setpriv
    rights = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+dac_read_search"]
    command = [setpriv, *rights, "--ambient-caps=+dac_read_search", sys.executable, "-c", PROGRAM, str(private)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")
    assert not done.stderr
    # At the start; lowered; raised; in another thread meanwhile; lowered again; in a program that is started.
    assert done.stdout.split() == ["True", "False", "True", "False", "False", "False"]
