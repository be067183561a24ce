"""A stand-in for ssh that forwards a port as the real one does, for machines without an sshd.

It keeps its arguments and its number in the files `argv` and `pid` beside it, and fails as ssh does with the text of a
file `refuse`.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

_PROGRAM = f"""#!{sys.executable}
import os, socket, sys, threading
here = os.path.dirname(os.path.abspath(__file__))
open(here + "/argv", "w").write("\\n".join(sys.argv[1:]))
open(here + "/pid", "w").write(str(os.getpid()))
if os.path.exists(here + "/refuse"):
    sys.exit(open(here + "/refuse").read())
forward = sys.argv[sys.argv.index("-L") + 1].split(":")
listener = socket.create_server((forward[0], int(forward[1])))
def copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
while True:
    near, _ = listener.accept()
    far = socket.create_connection(("127.0.0.1", int(forward[3])))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the program into a folder that is the first on PATH then; return the folder."""
    program = folder / "ssh"
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def end(folder: Path) -> None:
    """End the program that was started last, if there is one that still runs."""
    if (folder / "pid").exists():
        with suppress(ProcessLookupError):
            os.kill(int((folder / "pid").read_text()), signal.SIGTERM)
