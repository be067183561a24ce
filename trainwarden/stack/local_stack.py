"""Exporter, Prometheus, Alertmanager and remediator on free loopback ports, with all their state in one folder."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainwarden.stack import service
from trainwarden.stack.binaries import Tools
from trainwarden.stack.bundle import bundle
from trainwarden.stack.ports import ports
from trainwarden.stack.service import Service, ServiceFailed

SERVICES = ("prometheus", "alertmanager", "exporter", "remediator")
_TRIES = 3
_DASHBOARD = re.compile(r"^ +dashboard: .*\n", re.MULTILINE)
# The remediator's address in the shipped alertmanager.yml.
_REMEDIATOR_ADDRESS = "http://remediator:9746"


@dataclass(frozen=True)
class StackSettings:
    """Where the stack keeps its state, what it watches, and how it acts.

    `driver` holds the remediator's options that name its scheduler. `ports` are by service; 0 or none is any free one.
    Logs and packs that a run names are read in `log_roots`.
    """

    state_dir: Path
    runs_dir: Path
    slack_url: str
    policy: str = "megatron_transient"
    log_roots: Sequence[Path] = ()
    driver: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    ports: Mapping[str, int] = field(default_factory=dict)


class LocalStack:
    """The four services. `start()` returns when all of them are ready; `stop()` leaves no process and no port."""

    def __init__(self, settings: StackSettings, tools: Tools) -> None:
        self._settings = settings
        self._tools = tools
        self._services: list[Service] = []
        self._take_ports()
        self.remediator_token = secrets.token_urlsafe(24)

    def start(self) -> None:
        """Write the configuration, start all, wait until all are ready. Raises ServiceFailed; stops what it started."""
        for tries_left in reversed(range(_TRIES)):
            try:
                self._write_configuration()
                self._start_exporter()
                self._start_alertmanager()
                self._start_prometheus()
                self._start_remediator()
                return
            except BaseException as error:  # noqa: PERF203  # three tries at most
                self.stop()
                # A free port may be taken by the time it is used.
                lost_port = isinstance(error, ServiceFailed) and "address already in use" in str(error).lower()
                if not lost_port or not tries_left:
                    raise
                self._take_ports()

    def _take_ports(self) -> None:
        wanted = {f"--{name}-port": self._settings.ports.get(name, 0) for name in SERVICES}
        self._ports = ports(wanted)
        self.prometheus_url = self._url("prometheus")
        self.alertmanager_url = self._url("alertmanager")
        self.exporter_url = self._url("exporter")
        self.remediator_url = self._url("remediator")

    def stop(self) -> None:
        """Stop all services, clients before servers."""
        while self._services:
            self._services.pop().stop()

    def revive(self) -> list[str]:
        """Restart each service that has ended by itself; return a sentence about each."""
        sentences = []
        for place, each in enumerate(self._services):
            if each.process.poll() is not None:
                sentences.append(
                    f"{each.name} ended with status {each.process.returncode} and is started again: {each.log_end()}"
                )
                self._services[place] = self._spawn(each.name, each.command)
        return sentences

    def pids(self) -> dict[str, int]:
        """Return the process id of each service."""
        return {each.name: each.process.pid for each in self._services}

    @property
    def token_file(self) -> Path:
        """The bearer token of the remediator's webhook and API."""
        return self._folder("alertmanager") / "secrets" / "remediator_token"

    def _url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[f'--{name}-port']}"

    def _address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[f'--{name}-port']}"

    def _folder(self, name: str) -> Path:
        return self._settings.state_dir / name

    def _write_configuration(self) -> None:
        prometheus, alertmanager = self._folder("prometheus"), self._folder("alertmanager")
        for folder in (prometheus, alertmanager):
            folder.mkdir(parents=True, exist_ok=True)
        _copy(bundle("prometheus"), prometheus)
        # A file of an earlier version, under another name, would bring its rules a second time.
        shutil.rmtree(prometheus / "rules", ignore_errors=True)
        for kind in ("recording", "alerts"):
            _copy(bundle("rules") / kind, prometheus / "rules" / kind)
        # No Grafana runs here: a link to a dashboard would lead nowhere.
        for path in (prometheus / "rules/alerts").glob("*.yml"):
            text = _DASHBOARD.sub("", path.read_text(encoding="utf-8"))
            path.write_text(text, encoding="utf-8")
        _copy(bundle("alertmanager"), alertmanager)
        targets = prometheus / "targets"
        targets.mkdir(exist_ok=True)
        for name in ("exporter", "remediator", "alertmanager"):
            text = json.dumps([{"targets": [self._address(name)]}])
            (targets / f"{name}.json").write_text(text, encoding="utf-8")
        main = alertmanager / "alertmanager.yml"
        text = main.read_text(encoding="utf-8").replace(_REMEDIATOR_ADDRESS, self.remediator_url)
        main.write_text(text, encoding="utf-8")
        secret_files = {"remediator_token": self.remediator_token, "slack_url": self._settings.slack_url}
        for name, secret in secret_files.items():
            write_secret(alertmanager / "secrets" / name, secret)

    def _start_exporter(self) -> None:
        command = [
            *_module("trainwarden_exporter"),
            f"--web.listen-address={self._address('exporter')}",
            f"--collector.runs.path={self._settings.runs_dir}",
            "--collector.runs.scope=all",
            f"--collector.logs.state={self._folder('exporter')}",
            f"--path.state={self._folder('exporter') / 'node'}",
            *(f"--collector.logs.root={folder}" for folder in self._settings.log_roots),
        ]
        self._start("exporter", command).wait_for(f"{self.exporter_url}/-/ready")

    def _start_prometheus(self) -> None:
        folder = self._folder("prometheus")
        command = [
            str(self._tools.prometheus),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self._address('prometheus')}",
            f"--web.external-url={self.prometheus_url}",
        ]
        self._start("prometheus", command).wait_for(f"{self.prometheus_url}/-/ready")

    def _start_alertmanager(self) -> None:
        folder = self._folder("alertmanager")
        command = [
            str(self._tools.alertmanager),
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={self._address('alertmanager')}",
            f"--web.external-url={self.alertmanager_url}",
            "--cluster.listen-address=",
        ]
        self._start("alertmanager", command).wait_for(f"{self.alertmanager_url}/-/ready")

    def _start_remediator(self) -> None:
        command = [
            *_module("trainwarden_remediator"),
            f"--web.listen-address={self._address('remediator')}",
            f"--state-dir={self._folder('remediator')}",
            f"--webhook-token-file={self.token_file}",
            f"--alertmanager-url={self.alertmanager_url}",
            f"--prometheus-url={self.prometheus_url}",
            f"--policy={self._settings.policy}",
            "--mode-of-action=act",  # these runs are started to be restarted
            f"--runs-dir={self._settings.runs_dir}",
            *self._settings.driver,
        ]
        self._start("remediator", command).wait_for(f"{self.remediator_url}/-/ready")

    def _start(self, name: str, command: Sequence[str]) -> Service:
        started = self._spawn(name, command)
        self._services.append(started)
        return started

    def _spawn(self, name: str, command: Sequence[str]) -> Service:
        log = self._settings.state_dir / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        folder = self._folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        return service.start(name, command, log=log, environment=self._settings.environment, folder=folder)


def write_secret(path: Path, secret: str) -> None:
    """Write a file that only its owner can read, in a folder that only its owner can enter."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(secret)


def _module(name: str) -> list[str]:
    # -P keeps the working directory out of the import path (Python 3.11 on).
    safe_path = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *safe_path, "-m", name]


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.md", "__pycache__"))
