"""The shipped Alertmanager configuration in a real Alertmanager, with all receivers on loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from trainwarden.clients.alertmanager import AlertmanagerClient
from trainwarden.clients.http import HttpClient
from trainwarden.stack import service
from trainwarden.stack.binaries import Tools
from trainwarden.stack.ports import free_port
from trainwarden.stack.slack_sink import Message, SlackSink

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "alertmanager"
TOKEN = "a-token-of-the-test"
# For tests whose subject it is not.
WARNINGS_WAIT = "group_wait: 30s  # as long as a cause may arrive later than its symptom\n      group_interval: 30s"
SWITCHES = ("pagerduty", "opsgenie", "email", "sns", "deadman")


def switched_on(text: str, *switches: str) -> str:
    """Return the configuration as the documented call of sed makes it."""
    for switch in switches:
        text = re.sub(rf"^#{switch}# ", "", text, flags=re.MULTILINE)
    return text


@dataclass(frozen=True)
class Call:
    """One request to a webhook; its body parsed where it is JSON."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Webhook:
    """What a webhook on loopback received."""

    requests: list[Call] = field(default_factory=list)
    url: str = ""

    @property
    def calls(self) -> list[tuple[str | None, dict[str, Any]]]:
        """The authorization header and the body of each call of the remediator."""
        return [(each.headers.get("Authorization"), each.body) for each in self.to("/alertmanager/webhook")]

    def to(self, path: str) -> list[Call]:
        return [each for each in list(self.requests) if each.path.rstrip("/") == path]

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
        self.post([firing(name, annotations, **labels)])

    def end(self, name: str, annotations: Mapping[str, str] | None = None, /, **labels: str) -> None:
        """Report that it no longer does."""
        self.post([{**firing(name, annotations, **labels), "endsAt": rfc3339(time.time() - 1)}])

    def post(self, alerts: Sequence[Mapping[str, object]]) -> None:
        AlertmanagerClient(self.url).post_alerts(alerts)

    def silence(self, name: str) -> None:
        """Silence an alert for ten minutes."""
        now = time.time()
        body = {
            "matchers": [{"name": "alertname", "value": name, "isRegex": False, "isEqual": True}],
            "startsAt": rfc3339(now - 1),
            "endsAt": rfc3339(now + 600),
            "createdBy": "a test",
            "comment": "maintenance",
        }
        assert HttpClient(self.url, 30).post("/api/v2/silences", body).status == 200

    def states(self, *matchers: str) -> dict[str, str]:
        """active or suppressed, by the name of the alert."""
        return {each.labels["alertname"]: each.state for each in AlertmanagerClient(self.url).alerts(*matchers)}

    def messages(self, run_id: str) -> list[Message]:
        """The messages to Slack that show a run in full."""
        return [each for each in list(self.slack.messages) if f"Run ID: {run_id}\n" in f"{each.text}\n"]

    def messages_of(self, cluster: str) -> list[Message]:
        """The messages to Slack about a cluster."""
        return [each for each in list(self.slack.messages) if each.title.endswith(f" · {cluster}")]


def firing(name: str, annotations: Mapping[str, str] | None = None, /, **labels: str) -> dict[str, Any]:
    """An alert as Prometheus reports it."""
    return {
        "labels": {"alertname": name, **labels},
        "annotations": dict(annotations or {}),
        "generatorURL": "http://prometheus.example/graph?g0.expr=up&g0.tab=1",
    }


def rfc3339(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


@contextmanager
def alertmanager(
    tools: Tools, folder: Path, *, switches: Sequence[str] = (), edits: Mapping[str, str] | None = None
) -> Iterator[Alertmanager]:
    """The shipped configuration, with the remediator's address replaced as the local stack does it.

    Args:
        tools: the real programs.
        folder: for the configuration and the state.
        switches: that are switched on.
        edits: texts of the configuration and what replaces them; `WEBHOOK` in it is the sink's address.
    """
    shutil.copytree(SHIPPED, folder, dirs_exist_ok=True)
    number = free_port()
    url = f"http://127.0.0.1:{number}"
    slack, log = SlackSink(), folder / "alertmanager.log"
    with webhook_sink() as webhook:
        main = folder / "alertmanager.yml"
        text = switched_on(main.read_text(encoding="utf-8"), *switches)
        for old, new in {"http://remediator:9746": "WEBHOOK", **(edits or {})}.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new.replace("WEBHOOK", webhook.url))
        main.write_text(text, encoding="utf-8")
        (folder / "secrets").mkdir()
        # As editors leave files, with a line break at the end; only before 0.29 the key of OpsGenie takes none.
        (folder / "secrets/slack_url").write_text(f"{slack.url}\n", encoding="utf-8")
        (folder / "secrets/remediator_token").write_text(TOKEN + "\n", encoding="utf-8")
        for name in re.findall(r"^[^#]*_file: secrets/(\w+)", text, re.MULTILINE):
            if not (folder / "secrets" / name).exists():
                end = "" if name == "opsgenie_api_key" else "\n"
                (folder / "secrets" / name).write_text(f"secret-{name}{end}", encoding="utf-8")
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
def webhook_sink() -> Iterator[Webhook]:
    """An HTTP server on loopback that keeps each POST and answers as the services do."""
    webhook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body: Any = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Type"].startswith("application/json"):
                body = json.loads(body)
            webhook.requests.append(Call(self.path, dict(self.headers), body))
            self.send_response(202 if self.path.startswith(("/pagerduty", "/opsgenie")) else 200)
            self.end_headers()
            if self.path.startswith("/sns"):
                self.wfile.write(
                    b"<PublishResponse><PublishResult><MessageId>1</MessageId></PublishResult></PublishResponse>"
                )
            else:
                self.wfile.write(b"{}")

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
