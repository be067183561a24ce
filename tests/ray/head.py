"""A real Ray head with four GPUs that only Ray believes in, on the loopback interface, in one folder."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.session import shared
from tests.waiting import wait_until
from trainwarden.stack.ports import free_ports

GPUS = 4
# Ray puts the machine's own address where it is told 127.0.0.1; the rest of the loopback network it takes as it is.
ADDRESS = "127.0.0.2"
_MARK = "TRAINWARDEN_TEST_RAY"


class Head:
    """Ray's processes. `url` is that of the dashboard, `token` what it asks for.

    It asks for one always: some of Ray's ports listen on every interface, whatever it is told.

    Args:
        python: of an environment with Ray.
        folder: of all its files.
        environment: more variables of its processes.
        ports: its five ports, if one is started again.
        token: that of a head that runs already.
    """

    def __init__(
        self,
        python: Path,
        folder: Path,
        environment: dict[str, str] | None = None,
        ports: Sequence[int] | None = None,
        token: str | None = None,
    ) -> None:
        self.folder = folder
        self.token = token or secrets.token_hex(32)
        self.python = python
        self.ports = ports or free_ports(5)
        self.url = f"http://{ADDRESS}:{self.ports[1]}"
        self._gcs = f"{ADDRESS}:{self.ports[0]}"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "TRAINWARDEN_"))}
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}
        # All that it ever starts inherits the mark.
        home = {"HOME": str(folder), "PATH": f"{python.parent}:{os.environ['PATH']}", _MARK: self.token}
        self.environment = {**kept, **auth, **home, **(environment or {})}

    def start(self) -> None:
        """Start it and wait until it reports its GPUs; a failure shows its log."""
        ports = self.ports
        options = {
            "port": ports[0], "dashboard-port": ports[1], "dashboard-agent-listen-port": ports[2],
            "ray-client-server-port": ports[3], "metrics-export-port": ports[4],
            "min-worker-port": 0, "max-worker-port": 0, "node-ip-address": ADDRESS, "dashboard-host": ADDRESS,
            "num-gpus": GPUS, "num-cpus": 4, "object-store-memory": 80 * 2**20, "temp-dir": self.folder / "ray",
        }  # fmt: skip
        command = [str(self.python), "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
        with (self.folder / "head.log").open("wb") as log:
            self._process = subprocess.Popen(
                command + [f"--{name}={value}" for name, value in options.items()],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        def expected() -> str:
            return f"a head with its GPUs\n{(self.folder / 'head.log').read_text(errors='replace')}"

        wait_until(lambda: f"/{GPUS}.0 GPU" in self.status(), expected, timeout=180)

    def stop(self) -> None:
        """End every process that it started, jobs and the watchdogs that Ray gives them too."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=30)
        wait_until(lambda: not self._kill_all(), "every process of the head is gone")

    def call(self, path: str, body: object = None) -> Any:
        """The JSON that a path answers; a POST where there is a body."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            # With what Ray says: the status alone is no reason.
            said = f"{error.reason}: {error.read().decode(errors='replace')[-2000:]}"
            raise urllib.error.HTTPError(error.url, error.code, said, error.headers, None) from None

    def submit(self, entrypoint: str, **fields: Any) -> str:
        """Submit a job; its submission id."""
        return str(self.call("/api/jobs/", {"entrypoint": entrypoint, **fields})["submission_id"])

    def drive(self, script: str) -> subprocess.Popen[bytes]:
        """Start a program that works on the cluster and that nobody submitted."""
        with (self.folder / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [str(self.python), "-c", script],
                env={**self.environment, "RAY_ADDRESS": self._gcs},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def state(self, submission_id: str) -> str:
        """A job's state, in Ray's word."""
        return str(self.call(f"/api/jobs/{submission_id}")["status"])

    def end(self, submission_id: str) -> None:
        """Stop a job and wait until it has ended."""
        self.call(f"/api/jobs/{submission_id}/stop", {})
        wait_until(lambda: self.state(submission_id) not in {"PENDING", "RUNNING"}, f"{submission_id} has ended")

    def status(self) -> str:
        """What `ray status` prints; empty where nothing answers yet."""
        try:
            return str(self.call("/api/cluster_status?format=1")["data"]["clusterStatus"])
        except (OSError, KeyError):
            return ""

    def _kill_all(self) -> bool:
        """Kill what carries this head's mark in its environment; whether there was anything."""
        found = False
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    ours = f"{_MARK}={self.token}".encode() in (folder / "environ").read_bytes().split(b"\0")
                    if ours and not _is_zombie(folder):
                        found = True
                        os.kill(int(folder.name), signal.SIGKILL)
        return found


def _is_zombie(folder: Path) -> bool:
    return (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"


_of_the_session: list[Head] = []


def shared_head(python: Path) -> Head:
    """The one head of all workers of the session, which ends it. No test may count on its GPUs being free."""

    def start(folder: Path) -> None:
        head = Head(python, folder)
        _of_the_session.append(head)  # else it would be reported as a forgotten child
        head.start()
        (folder / "head.json").write_text(json.dumps({"ports": head.ports, "token": head.token}), encoding="utf-8")

    folder = shared("ray", start)
    return Head(python, folder, **json.loads((folder / "head.json").read_text(encoding="utf-8")))


@contextmanager
def running_head(
    python: Path, environment: dict[str, str] | None = None, ports: Sequence[int] | None = None
) -> Iterator[Head]:
    """A head that answers, and is gone afterwards with all that it wrote; on `ports` if one is started again."""
    # Not pytest's folder: the path of a UNIX socket, of which Ray's session takes 70 bytes, has at most 107.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    head = Head(python, folder, environment, ports)
    try:
        head.start()
        yield head
    finally:
        head.stop()
        shutil.rmtree(folder, ignore_errors=True)
