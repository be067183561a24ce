"""The real remediator as a process, between scripted services."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.remediator.fake_services import LAUNCHER_TOKEN, FakeServices, World
from tests.waiting import wait_until
from trainwarden.clients.http import HttpAuth, HttpClient, HttpResponse

TOKEN = "webhook-secret"
DEADLINE_SECONDS = 60.0


class Process:
    """One remediator; `start()` may be called again after `kill()` or `stop()`, on the same state folder."""

    def __init__(self, folder: Path, services: FakeServices) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self._services = services
        self._port_file = folder / "port"
        self._process: subprocess.Popen[bytes] | None = None
        self.repeated_flags: list[str] = []
        self.flags: dict[str, str] = {
            "--web.listen-address": "127.0.0.1:0",
            "--web.port-file": str(self._port_file),
            "--state-dir": str(self.state_dir),
            "--webhook-token-file": _secret(folder / "webhook_token", TOKEN),
            "--alertmanager-url": services.url,
            "--prometheus-url": services.url,
            "--driver": "local",
            "--mode-of-action": "act",
            "--local-launcher-url": services.url,
            "--local-launcher-token-file": _secret(folder / "launcher_token", LAUNCHER_TOKEN),
            "--poll-interval": "0.2",
            "--busy-interval": "0.05",
        }

    @property
    def argv(self) -> list[str]:
        """The command line."""
        flags = [f"{flag}={value}" for flag, value in self.flags.items()]
        return [sys.executable, "-m", "trainwarden_remediator", *flags, *self.repeated_flags]

    def start(self) -> None:
        """Start and wait until it is ready."""
        self.launch()
        wait_until(self._ready, "the remediator to be ready")

    def launch(self) -> None:
        """Start, and wait for nothing."""
        self._port_file.unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self.argv, stdout=log, stderr=log)

    def wait(self) -> int:
        """Wait until it has ended by itself; return the exit status."""
        assert self._process is not None
        return self._process.wait(DEADLINE_SECONDS)

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        if not self._port_file.exists():
            return False
        return self.is_ready()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self._port_file.read_text().strip()}"

    def get(self, path: str) -> HttpResponse:
        """GET without a token."""
        return HttpClient(self.url, 30).get(path)

    def is_ready(self) -> bool:
        """Return whether the service reports itself ready."""
        return self.get("/-/ready").status == 200

    def kill(self) -> None:
        """Kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it politely; returns the exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(DEADLINE_SECONDS)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def send(self, body: object, token: str | None = TOKEN, **headers: str) -> HttpResponse:
        """POST a webhook."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return HttpClient(self.url, 30).post("/alertmanager/webhook", data, headers=headers)

    def incidents(self, **parameters: str) -> list[dict[str, Any]]:
        """The API."""
        answer = HttpClient(self.url, 30, auth=HttpAuth(token=TOKEN)).get("/api/v1/incidents", parameters)
        assert answer.status == 200, answer.body
        found: list[dict[str, Any]] = answer.json()
        return found

    def incident(self, *states: str) -> dict[str, Any]:
        """The newest incident, as soon as it is in one of these states."""

        def newest() -> dict[str, Any] | None:
            found = self.incidents()
            return found[-1] if found and found[-1]["state"] in states else None

        found: dict[str, Any] = wait_until(newest, f"an incident in {states}")
        return found

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Every sample of /metrics, parsed by Prometheus' own library."""
        text = self.get("/metrics").body.decode()
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def metric(self, name: str, **labels: str) -> float | None:
        """One sample; None where there is none."""
        return self.metrics().get((f"trainwarden_remediator_{name}", tuple(sorted(labels.items()))))

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command with other arguments."""
        argv = [sys.executable, "-m", "trainwarden_remediator", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env={**os.environ})


def _secret(path: Path, text: str) -> str:
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def services(world: World) -> Iterator[FakeServices]:
    fake = FakeServices(world)
    yield fake
    fake.close()


@pytest.fixture
def remediator(tmp_path: Path, services: FakeServices) -> Iterator[Process]:
    process = Process(tmp_path, services)
    yield process
    process.close()
