"""A real Prometheus scrapes over TLS, with a client certificate and a password."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import bcrypt
import pytest

from tests.certificates import Authority
from tests.integration.exporter.running import Started
from tests.prometheus import running_prometheus
from tests.waiting import wait_until
from trainwarden.clients.prometheus import PrometheusClient
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools

WEB = """\
tls_server_config:
  cert_file: server.pem
  key_file: server.key
  client_ca_file: authority.pem
  client_auth_type: RequireAndVerifyClientCert
  client_allowed_sans: [prometheus.example]
basic_auth_users:
  prometheus: %s
"""
JOB = """\
- job_name: %(name)s
  scheme: https
  params: {'collect[]': [runs]}
  tls_config: {ca_file: authority.pem, cert_file: %(client)s.pem, key_file: %(client)s.key, server_name: localhost}
  basic_auth: {username: prometheus, password: %(password)s}
  static_configs: [{targets: ['%(target)s']}]
"""


@pytest.fixture
def target(start_exporter: Callable[..., Started], runs: Path, tmp_path: Path) -> str:
    """The address of an exporter that lets in only who is known."""
    authority = Authority.create(tmp_path)
    authority.issue("server", "localhost")
    authority.issue("client", "prometheus.example")
    authority.issue("other", "other.example")
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(10)).decode()
    (tmp_path / "web.yml").write_text(WEB % hashed)
    flags = ["--collector.disable-defaults", "--collector.runs", f"--collector.runs.path={runs}"]
    return start_exporter(*flags, f"--web.config.file={tmp_path / 'web.yml'}").address


@pytest.fixture
def prometheus(tools: Tools, target: str, tmp_path: Path) -> Iterator[PrometheusClient]:
    jobs = [("known", "client", "secret"), ("stranger", "other", "secret"), ("guesser", "client", "guess")]
    scrapes = "".join(
        JOB % {"name": name, "client": client, "password": password, "target": target}
        for name, client, password in jobs
    )
    (tmp_path / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n{scrapes}"
    )
    with running_prometheus(tools, tmp_path) as client:
        yield client


def test_prometheus_gets_in_with_certificate_and_password_and_with_neither_alone(prometheus: PrometheusClient) -> None:
    wait_until(lambda: len(prometheus.query("up")) == 3 and prometheus.query('training_step{job="known"}'))
    assert {sample.labels["job"]: sample.value for sample in prometheus.query("up")} == {
        "known": 1,
        "stranger": 0,
        "guesser": 0,
    }
    (step,) = prometheus.query("training_step")
    assert (step.value, step.labels["job"]) == (3, "known")
