"""A real Prometheus and a real Alertmanager that ask for a password and a client certificate."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest

from tests.certificates import Authority
from tests.waiting import wait_until
from trainwarden.clients.alertmanager import AlertmanagerClient, AlertmanagerError
from trainwarden.clients.http import HttpClient, HttpError, TlsFiles
from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden.stack import service
from trainwarden.stack.binaries import Tools
from trainwarden.stack.ports import free_ports
from trainwarden_remediator.web.http_config import http_client

pytestmark = pytest.mark.tools

WEB = """\
tls_server_config: {{cert_file: server.pem, key_file: server.key, client_ca_file: authority.pem,
  client_auth_type: RequireAndVerifyClientCert}}
basic_auth_users: {{trainwarden: "{hashed}"}}
"""
HTTP = """\
basic_auth: {{username: trainwarden, password_file: {password}}}
tls_config: {{ca_file: authority.pem, cert_file: client.pem, key_file: client.key}}
"""


@pytest.fixture
def urls(tools: Tools, tmp_path: Path) -> Iterator[dict[str, str]]:
    authority = Authority.create(tmp_path)
    authority.issue("server", "127.0.0.1")
    authority.issue("client")
    (tmp_path / "web.yml").write_text(WEB.format(hashed=bcrypt.hashpw(b"secret", bcrypt.gensalt(10)).decode()))
    (tmp_path / "prometheus.yml").write_text("global: {scrape_interval: 1s}\n")
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    for name, password in (("right", "secret"), ("wrong", "guess")):
        (tmp_path / f"password-{name}").write_text(password)
        (tmp_path / f"{name}.yml").write_text(HTTP.format(password=f"password-{name}"))
    ports = dict(zip(("prometheus", "alertmanager"), free_ports(2), strict=True))
    commands = {
        "prometheus": [str(tools.prometheus), f"--storage.tsdb.path={tmp_path / 'tsdb'}"],
        "alertmanager": [str(tools.alertmanager), f"--storage.path={tmp_path / 'data'}", "--cluster.listen-address="],
    }
    running = []
    try:
        for name, command in commands.items():
            arguments = ["--web.config.file=web.yml", f"--config.file={name}.yml"]
            address = f"--web.listen-address=127.0.0.1:{ports[name]}"
            log = tmp_path / f"{name}.log"
            running.append(
                service.start(
                    name, [*command, *arguments, address], log=log, environment=dict(os.environ), folder=tmp_path
                )
            )
        yield {name: f"https://127.0.0.1:{port}" for name, port in ports.items()}
    finally:
        for each in running:
            each.stop()


def test_both_are_reached_with_password_and_certificate_and_with_neither_alone(
    urls: dict[str, str], tmp_path: Path
) -> None:
    def client(service_name: str, config: str) -> HttpClient:
        return http_client("--x", urls[service_name], tmp_path / f"{config}.yml", 30)

    def is_ready(service_name: str) -> bool:
        try:
            return client(service_name, "right").get("/-/ready").status == 200
        except HttpError:
            return False

    for name in urls:
        wait_until(lambda name=name: is_ready(name), name)  # type: ignore[misc]  # the loop's own
    (sample,) = PrometheusClient(client("prometheus", "right")).query("vector(7)")
    assert sample.value == 7
    assert PrometheusClient(client("prometheus", "right")).rules() == []
    with pytest.raises(PrometheusError, match=r"bad_data: .*parse error"):
        PrometheusClient(client("prometheus", "right")).query("sum(")
    alertmanager = AlertmanagerClient(client("alertmanager", "right"))
    alertmanager.post_alerts([{"labels": {"alertname": "A", "run_id": "r"}}])
    (alert,) = alertmanager.alerts('run_id="r"')
    assert (alert.labels, alert.is_suppressed) == ({"alertname": "A", "run_id": "r"}, False)
    assert alertmanager.alerts('run_id="other"') == []

    with pytest.raises(PrometheusError, match="answered 401"):
        PrometheusClient(client("prometheus", "wrong")).query("vector(7)")
    with pytest.raises(AlertmanagerError, match="answered 401"):
        AlertmanagerClient(client("alertmanager", "wrong")).alerts()
    stranger = HttpClient(urls["prometheus"], 30, tls=TlsFiles(ca_file=tmp_path / "authority.pem"))
    with pytest.raises(PrometheusError, match="unreachable"):
        PrometheusClient(stranger).query("vector(7)")
