"""One run of the tests: its folder, its processes, and the services that all of its workers share."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# Names the folder in the environment of every process that the tests start. Tests take away what begins with our name.
VARIABLE = "TW_TEST_SESSION"
# Where ranks share what is in memory; a test that takes all variables of ours away leaves this one.
NODE_FOLDER = "TRAINWARDEN_NODE_DIR"
_KEEPER = Path(__file__).with_name("keeper.py")
# The path of a UNIX socket has at most 107 bytes, of which Ray takes 70.
_LONGEST_PARENT = 20
_MEMORY = Path("/dev/shm")


class Session:
    """What belongs to this run of the tests. One process, the one that was started, makes it; its workers find it.

    Args:
        folder: of all files and sockets of this run; `tempfile` makes everything below it.
    """

    def __init__(self, folder: Path, keeper: subprocess.Popen[bytes] | None = None) -> None:
        self.folder = folder
        self._keeper = keeper

    def interrupted(self) -> None:
        """Give this process and its workers some seconds to end by themselves."""
        self._tell(b"interrupted\n")

    def end(self) -> None:
        """End what is left of the run; return when nothing is."""
        self._tell(b"end\n")
        if self._keeper is not None:
            self._keeper.communicate()

    def _tell(self, line: bytes) -> None:
        if self._keeper is not None and self._keeper.stdin is not None:
            with suppress(OSError):  # the keeper has ended already
                self._keeper.stdin.write(line)
                self._keeper.stdin.flush()


def begin() -> Session:
    """Make the session of this process and its workers. All that any of them starts ends with this process.

    Where a test starts a run of tests, the session of that one lies in, and ends with, the session of the test.
    """
    parent = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="tw-", dir=parent if len(parent) <= _LONGEST_PARENT else "/tmp"))
    folder.chmod(0o1777)  # some tests start processes of other users
    command = [sys.executable, "-I", str(_KEEPER), str(folder), f"{VARIABLE}={folder}"]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, cwd="/", start_new_session=True)
    os.environ[VARIABLE] = os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    # In place of the machine's own, where what trainings of the tests share would stay behind.
    if NODE_FOLDER not in os.environ:
        os.environ[NODE_FOLDER] = str(memory())
    return Session(folder, keeper)


def current() -> Session:
    """The session that this process belongs to."""
    return Session(Path(os.environ[VARIABLE]))


def memory() -> Path:
    """A folder of the session in memory, where the machine has one, for tests of everything but the file system."""
    folder = current().folder
    if not os.access(_MEMORY, os.W_OK):
        return folder
    place = _MEMORY / folder.name
    place.mkdir(exist_ok=True)
    place.chmod(0o1777)
    return place


def shared(name: str, start: Callable[[Path], None]) -> Path:
    """Start a service once for all workers of the session; it ends with the session.

    Args:
        name: of the service, and of its folder.
        start: starts it; all that another worker needs to know is written into the folder that it is given.

    Returns:
        The folder.

    Raises:
        RuntimeError: it did not start, here or in the worker that tried it first.
    """
    folder = current().folder / name
    with (current().folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        started, failed = folder / "started", folder / "failed"
        if failed.exists():
            raise RuntimeError(failed.read_text(encoding="utf-8"))
        if not started.exists():
            folder.mkdir()
            try:
                start(folder)
            except Exception as error:
                failed.write_text(f"{name} did not start: {error}", encoding="utf-8")
                raise
            started.touch()
    return folder
