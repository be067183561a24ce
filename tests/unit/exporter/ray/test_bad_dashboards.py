"""A dashboard that is down, slow, closed or out of its mind costs the series of that sample and nothing else."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.cases import cases
from tests.unit.exporter.ray.dashboard import Behaviour, Dashboard, dashboard, good, job, send
from trainwarden.clients.http import MAX_BODY_BYTES
from trainwarden.clients.ray import RayDashboardOverHttp, RayError
from trainwarden_exporter.collectors.ray.collector import PATHS, RayCollector


@pytest.fixture
def served() -> Iterator[Dashboard]:
    with dashboard(good([job("a", "RUNNING", metadata={"trainwarden_run_id": "r1"})])) as started:
        yield started


def collector(
    url: str,
    token_file: Path | None = None,
    seconds: float = 30.0,
    ca_file: Path | None = None,
    max_body: int = MAX_BODY_BYTES,
    **options: Any,
) -> RayCollector:
    given = {"limit": 10, "node_gpus": True, "expect": lambda _: None, "now": lambda: 1000.0, **options}
    dashboard = RayDashboardOverHttp(url, seconds, token_file=token_file, ca_file=ca_file, max_body=max_body)
    return RayCollector(dashboard, **given)


def names(families: Any) -> set[str]:
    return {family.metric.name for family in families}


def half(handler: BaseHTTPRequestHandler) -> None:
    send(handler, b'[{"submission_id": "a", "status": "RUNN')


def cut_off(handler: BaseHTTPRequestHandler) -> None:
    send(handler, b"[]", Content_Length="4000")


def html(handler: BaseHTTPRequestHandler) -> None:
    send(handler, b"<html>Sign in</html>", Content_Type="text/html")


def other_json(handler: BaseHTTPRequestHandler) -> None:
    send(handler, b'{"result": false, "msg": "no", "data": {}}')


def deep(handler: BaseHTTPRequestHandler) -> None:
    send(handler, b"[" * 200_000)


def enormous(handler: BaseHTTPRequestHandler) -> None:
    send(handler, b"[" + b" " * 300_000 + b"]")


def unavailable(handler: BaseHTTPRequestHandler) -> None:
    send(handler, b"[]", 503)


def no_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"220 mail.example ESMTP\r\n")


@cases(
    ("behaviour", "said"),
    [
        (half, "malformed"),
        (html, "malformed"),
        (deep, "malformed"),
        (other_json, "expected a list of jobs"),
        (cut_off, "connection"),
        (enormous, "too_large"),
        (unavailable, "status 503"),
        (no_http, "connection"),
    ],
)
def test_without_jobs_there_is_no_sample_and_nothing_is_expected(
    served: Dashboard, behaviour: Behaviour, said: str
) -> None:
    expected: list[dict[str, float]] = []
    asked = collector(served.url, expect=expected.append, max_body=250_000)
    assert "ray_cluster_job_state" in names(asked.collect())
    served.bad["/api/jobs/"] = behaviour
    with pytest.raises(RayError, match=f"GET /api/jobs/: .*{said}"):
        asked.collect()
    assert expected == [{"r1": 1000.0}, {}]

    del served.bad["/api/jobs/"]
    errors = next(each for each in asked.collect() if each.metric.name == "trainwarden_ray_errors_total")
    assert {row.labels: row.value for row in errors.rows}["jobs",] == 1


@pytest.mark.parametrize("behaviour", [half, html, other_json, cut_off, unavailable, no_http])
def test_what_else_is_unreadable_is_left_out_and_logged_once(
    served: Dashboard, caplog: pytest.LogCaptureFixture, behaviour: Behaviour
) -> None:
    caplog.set_level(logging.INFO)
    asked = collector(served.url)
    served.bad["/api/cluster_status"] = behaviour
    asked.collect()
    found = names(asked.collect())
    assert not any(name.startswith(("ray_cluster_gpus", "ray_cluster_running_jobs")) for name in found)
    assert {"ray_cluster_job_state", "ray_cluster_nodes", "ray_cluster_node_gpu_utilization_ratio"} <= found
    assert [record.levelname for record in caplog.records] == ["WARNING"]

    del served.bad["/api/cluster_status"]
    assert "ray_cluster_gpus" in names(asked.collect())
    assert "works again" in caplog.text


def test_an_answer_that_does_not_end_is_given_up_and_the_others_are_had(served: Dashboard) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not served.over.wait(0.05):
            handler.wfile.write(b" ")

    served.bad["/api/cluster_status"] = drip
    found = names(collector(served.url, seconds=2.0).collect())
    assert "ray_cluster_nodes" in found
    assert "ray_cluster_gpus" not in found


def test_an_answer_that_does_not_begin_is_given_up(served: Dashboard) -> None:
    def wait(handler: BaseHTTPRequestHandler) -> None:
        served.over.wait()

    served.bad["/api/jobs/"] = wait
    with pytest.raises(RayError, match="GET /api/jobs/: timeout"):
        collector(served.url, seconds=0.5).collect()


def test_a_dashboard_that_is_down_is_asked_once(served: Dashboard) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(RayError, match="GET /api/jobs/: connection"):
            collector(f"http://127.0.0.1:{bound.getsockname()[1]}").collect()


def test_a_token_goes_to_the_dashboard_and_not_where_it_points(served: Dashboard, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t0k3n\n")
    with dashboard(good([])) as elsewhere:
        served.bad["/api/jobs/"] = lambda handler: send(handler, b"", 302, Location=elsewhere.url + "/api/jobs/")
        with pytest.raises(RayError, match="status 302"):
            collector(served.url, token).collect()
        assert {each["Authorization"] for each in served.headers} == {"Bearer t0k3n"}
        assert elsewhere.headers == []


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"a\r\nX-Evil: b", b"\xff\xfe"])
def test_a_file_without_a_token_is_named_and_what_it_holds_is_not(
    served: Dashboard, tmp_path: Path, content: bytes
) -> None:
    token = tmp_path / "token"
    token.write_bytes(content)
    with pytest.raises(RayError, match=r"--collector.ray.token-file .*/token: expected one token on one line$"):
        collector(served.url, token).collect()
    token.unlink()
    with pytest.raises(RayError, match=r"--collector.ray.token-file .*/token: No such file or directory$"):
        collector(served.url, token).collect()
    os.mkfifo(token)
    with pytest.raises(RayError, match=r"--collector.ray.token-file .*/token: is no plain file$"):
        collector(served.url, token).collect()
    assert served.headers == []


def test_no_proxy_is_asked(served: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert "ray_cluster_jobs" in names(collector(served.url).collect())


def test_a_dashboard_behind_tls_is_accepted_with_its_own_certificate_alone(served: Dashboard, tmp_path: Path) -> None:
    ours, another = (certificate(tmp_path / name) for name in ("ours", "another"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours)
    with dashboard(served.answers, context) as secure:

        def ask(ca_file: Path) -> set[str]:
            return names(collector(secure.url, ca_file=ca_file).collect())

        assert "ray_cluster_jobs" in ask(ours)
        with pytest.raises(RayError, match="connection"):
            ask(another)
        assert len(secure.headers) == len(PATHS)


def certificate(file: Path) -> Path:
    """A key and a certificate of its own for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, file.name)])
    now = datetime.now(timezone.utc)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(alternative, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(secret + signed.public_bytes(pem))
    return file
