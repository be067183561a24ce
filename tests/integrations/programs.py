"""Real trainings in processes of their own, alone or under torchrun."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
UNSHARE = ("unshare", "--uts") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--uts")
DEADLINE_SECONDS = 120.0
# Where the tests themselves run in the background of a shell, children would inherit that SIGINT is ignored.
_LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); del signal\n"


class Programs:
    """Starts them for the run "r", each in a process group of its own, and leaves none behind."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.folder = runs / "r"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: "str | Path", **environment: str) -> "subprocess.Popen[str]":
        return self._start([sys.executable, *map(str, arguments)], environment)

    def start_on(self, host: str, *arguments: "str | Path", **environment: str) -> "subprocess.Popen[str]":
        """Start Python under a host name of its own."""
        named = [*UNSHARE, "sh", "-c", 'hostname "$0"; exec "$@"', host]
        return self._start([*named, sys.executable, *map(str, arguments)], environment)

    def _start(self, command: list[str], environment: dict[str, str]) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            command,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "TRAINWARDEN_RUNS_DIR": str(self.runs),
                "TRAINWARDEN_RUN_ID": "r",
                **environment,
            },
            cwd=self.runs.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def run(self, *arguments: "str | Path", **environment: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*arguments, **environment)
        said, _ = process.communicate(timeout=DEADLINE_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, said)

    def script(self, code: str) -> Path:
        """A file with that code, for `run` or torchrun."""
        path = self.runs.parent / f"script-{len(list(self.runs.parent.glob('script-*.py')))}.py"
        path.write_text(_LISTEN + textwrap.dedent(code))
        return path

    def torchrun(self, ranks: int, *arguments: "str | Path", **environment: str) -> "subprocess.CompletedProcess[str]":
        return self.run(*torchrun(ranks), *arguments, **environment)

    def clean_up(self) -> None:
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def torchrun(ranks: int, *options: Any) -> list[str]:
    """The arguments of Python that start torchrun."""
    return ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *options]
