"""The HTTP side with real sockets."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import threading
from collections.abc import Callable

import pytest

from tests.integration.exporter.serving import Serving
from tests.waiting import wait_until
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.web.server import ExporterServer
from trainwarden_exporter.web.site import Site


def test_metrics_come_with_the_type_that_prometheus_wants(serving: Callable[..., Serving]) -> None:
    site = serving()
    site.sample()
    response, body = site.ask("/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert response.headers["Content-Length"] == str(len(body))
    assert response.headers["Content-Encoding"] is None
    assert b"\nbeat 1.0\n" in body


def test_metrics_are_compressed_when_asked_for(serving: Callable[..., Serving]) -> None:
    site = serving()
    site.sample()
    response, body = site.ask("/metrics", Accept_Encoding="deflate, gzip;q=0.5")
    assert response.headers["Content-Encoding"] == "gzip"
    assert b"\nbeat 1.0\n" in gzip.decompress(body)


def test_a_query_does_not_change_the_page(serving: Callable[..., Serving]) -> None:
    assert serving().ask("/metrics?x=%00")[0].status == 200


def test_ready_means_that_every_collector_was_attempted_and_healthy_does_not(serving: Callable[..., Serving]) -> None:
    site = serving()
    response, body = site.ask("/-/ready")
    assert (response.status, body) == (503, b"waiting for <beat>\n")
    assert site.ask("/-/healthy")[0].status == 200
    site.sample()
    assert site.ask("/-/ready")[0].status == 200


def test_the_landing_page_shows_links_build_and_collectors_as_text(serving: Callable[..., Serving]) -> None:
    site = serving(telemetry_path="/telemetry")
    assert "waiting for its first sample" in site.ask("/")[1].decode()
    site.sample()
    response, body = site.ask("/")
    page = body.decode()
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert '<a href="/telemetry">' in page
    assert "Version " in page
    assert "&lt;beat&gt;" in page
    assert "<beat>" not in page
    assert "<td>good</td>" in page
    assert site.ask("/telemetry")[0].status == 200
    assert site.ask("/metrics")[0].status == 404


@pytest.mark.parametrize("path", ["/nope", "/metrics/", "/%2e%2e/etc/passwd", "*"])
def test_other_paths_are_not_found(serving: Callable[..., Serving], path: str) -> None:
    assert serving().ask(path)[0].status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_reading_is_allowed(serving: Callable[..., Serving], method: str) -> None:
    response, _ = serving().ask("/metrics", method=method)
    assert response.status == 405
    assert response.headers["Allow"] == "GET, HEAD"


def test_head_is_answered_as_get_without_a_body_and_the_connection_goes_on(serving: Callable[..., Serving]) -> None:
    site = serving()
    site.sample()
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    connection.connect()
    before = connection.sock
    connection.request("HEAD", "/-/healthy")
    response = connection.getresponse()
    assert (response.status, response.headers["Content-Length"], response.read()) == (200, "3", b"")
    connection.request("GET", "/-/healthy")
    assert connection.getresponse().read() == b"OK\n"
    assert connection.sock is before
    connection.close()


def test_a_body_that_nobody_reads_is_not_taken_for_a_request(serving: Callable[..., Serving]) -> None:
    with serving().connect() as client:
        client.sendall(b"GET /-/healthy HTTP/1.1\r\nContent-Length: 31\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = read_all(client)
    assert answer.count(b"HTTP/1.1 ") == 1


def test_one_connection_serves_many_scrapes(serving: Callable[..., Serving]) -> None:
    site = serving()
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    connection.connect()
    before = connection.sock
    for _ in range(3):
        connection.request("GET", "/metrics")
        assert connection.getresponse().read()
    assert connection.sock is before
    connection.close()


def test_one_request_too_many_is_refused_at_once_and_the_others_are_answered(
    serving: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = serving(max_requests=2)
    hold, entered = threading.Event(), threading.Semaphore(0)

    def slow_page(*_: object, **options: object) -> bytes:
        entered.release()
        hold.wait()
        return b"slow\n"

    monkeypatch.setattr(site.collection, "page", slow_page)
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(site.ask("/metrics")[0].status)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert entered.acquire(timeout=30)
    assert site.ask("/metrics")[0].status == 503
    hold.set()
    for thread in threads:
        thread.join(30)
    assert answers == [200, 200]
    assert site.ask("/-/healthy")[0].status == 200


@pytest.mark.parametrize("sent", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nX-Slow: 1\r\n"])
def test_a_client_that_does_not_complete_its_request_is_cut_off(serving: Callable[..., Serving], sent: bytes) -> None:
    with serving(request_seconds=0.2).connect() as client:
        client.sendall(sent)
        assert read_all(client) == b""


def test_a_client_that_drips_its_request_is_cut_off_though_it_is_never_silent(serving: Callable[..., Serving]) -> None:
    with serving(request_seconds=0.3).connect() as client:
        client.settimeout(0.02)

        def cut_off() -> bool:
            try:
                client.sendall(b"G")
                return client.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_until(cut_off)


def test_a_client_that_reads_nothing_holds_up_no_other(
    serving: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = serving(request_seconds=0.3, max_requests=1)
    monkeypatch.setattr(site.collection, "page", lambda *_, **options: b"x" * 50_000_000)
    with site.connect() as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        wait_until(lambda: site.ask("/-/healthy")[0].status == 200)


@pytest.mark.parametrize(
    "request_line", [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"A" * 70_000 + b"\r\n\r\n"]
)
def test_nonsense_is_answered_with_an_error_and_the_next_client_served(
    serving: Callable[..., Serving], request_line: bytes
) -> None:
    site = serving()
    with site.connect() as client:
        with contextlib.suppress(OSError):  # it may have answered and gone before it has read all
            client.sendall(request_line)
            client.shutdown(socket.SHUT_WR)
        assert b" 200 " not in read_all(client)
    assert site.ask("/-/healthy")[0].status == 200


def test_an_empty_host_listens_on_every_address() -> None:
    with ExporterServer(("", 0), Site(Collection([]))) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        for host in ("127.0.0.1", "::1") if server.dual_stack and has_ipv6_loopback() else ("127.0.0.1",):
            connection = http.client.HTTPConnection(host, server.port, timeout=30)
            connection.request("GET", "/-/healthy")
            assert connection.getresponse().status == 200
            connection.close()
        server.shutdown()


def has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def read_all(client: socket.socket) -> bytes:
    received = b""
    try:
        while part := client.recv(65536):
            received += part
    except ConnectionError:
        pass
    return received
