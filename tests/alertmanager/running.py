"""The shipped Alertmanager configuration in a real Alertmanager, with both receivers on loopback."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from trainwarden.clients.alertmanager import AlertmanagerClient
from trainwarden.stack import service
from trainwarden.stack.binaries import Tools
from trainwarden.stack.ports import free_port
from trainwarden.stack.slack_sink import Message, SlackSink

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "alertmanager"
TOKEN = "a-token-of-the-test"


@dataclass
class Webhook:
    """What the remediator's place received: the authorization header and the body of each call."""

    calls: list[tuple[str | None, dict[str, Any]]] = field(default_factory=list)
    url: str = ""

    def alerts(self, run_id: str, status: str = "firing") -> list[dict[str, Any]]:
        every = [alert for _, body in self.calls for alert in body["alerts"]]
        return [each for each in every if each["labels"].get("run_id") == run_id and each["status"] == status]


@dataclass(frozen=True)
class Alertmanager:
    """A running one."""

    url: str
    webhook: Webhook
    slack: SlackSink
    log: Path

    def send(self, name: str, annotations: Mapping[str, str] | None = None, /, **labels: str) -> None:
        """Report that an alert fires, as Prometheus does."""
        self._post({"labels": {"alertname": name, **labels}, "annotations": dict(annotations or {})})

    def end(self, name: str, annotations: Mapping[str, str] | None = None, /, **labels: str) -> None:
        """Report that it no longer does."""
        ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 1))
        alert = {"labels": {"alertname": name, **labels}, "annotations": dict(annotations or {}), "endsAt": ended}
        self._post(alert)

    def _post(self, alert: Mapping[str, object]) -> None:
        body = [{**alert, "generatorURL": "http://prometheus.example/graph?g0.expr=up&g0.tab=1"}]
        AlertmanagerClient(self.url).post_alerts(body)

    def states(self, run_id: str) -> dict[str, str]:
        """active or suppressed, by the name of the alert."""
        return {
            each.labels["alertname"]: each.state for each in AlertmanagerClient(self.url).alerts(f'run_id="{run_id}"')
        }

    def messages(self, run_id: str) -> list[Message]:
        """What Slack was told about a run."""
        return [each for each in list(self.slack.messages) if f"Run ID: {run_id}\n" in f"{each.text}\n"]


@contextmanager
def alertmanager(tools: Tools, folder: Path, configuration: Path = SHIPPED) -> Iterator[Alertmanager]:
    """The shipped configuration, with the remediator's address replaced as the local stack does it."""
    shutil.copytree(configuration, folder, dirs_exist_ok=True)
    number = free_port()
    url = f"http://127.0.0.1:{number}"
    slack, log = SlackSink(), folder / "alertmanager.log"
    with _webhook() as webhook:
        main = folder / "alertmanager.yml"
        text = main.read_text(encoding="utf-8")
        assert text.count("http://remediator:9746") == 1
        main.write_text(text.replace("http://remediator:9746", webhook.url), encoding="utf-8")
        (folder / "secrets").mkdir()
        (folder / "secrets/slack_url").write_text(slack.url, encoding="utf-8")
        (folder / "secrets/remediator_token").write_text(TOKEN + "\n", encoding="utf-8")
        command = [
            str(tools.alertmanager),
            f"--config.file={main}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{number}",
            f"--web.external-url={url}",
            "--cluster.listen-address=",
        ]
        process = service.start("alertmanager", command, log=log, environment=dict(os.environ), folder=folder)
        try:
            process.wait_for(f"{url}/-/ready")
            yield Alertmanager(url, webhook, slack, log)
        finally:
            process.stop()
            slack.close()


@contextmanager
def _webhook() -> Iterator[Webhook]:
    webhook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/alertmanager/webhook":
                webhook.calls.append((self.headers["Authorization"], json.loads(body)))
            self.send_response(200 if self.path == "/alertmanager/webhook" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
            """Requests are no news."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    webhook.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield webhook
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
