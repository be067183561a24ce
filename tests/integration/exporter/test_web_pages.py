"""What a scrape may ask for, and what a person sees."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.integration.exporter.serving import Serving
from tests.waiting import wait_until
from trainwarden.server.web_config import ReloadingWebConfig
from trainwarden_exporter.core.exposition import Encoder, render
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.docs import METRICS
from trainwarden_exporter.sampling.task import Status
from trainwarden_exporter.web.landing import landing_page

OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def test_openmetrics_comes_on_request_and_the_text_format_otherwise(
    serving: Callable[..., Serving],
) -> None:
    site = serving()
    site.sample()
    response, body = site.ask("/metrics", Accept=OPENMETRICS)
    assert response.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert body.endswith(b"# EOF\n")
    assert "beat" in {family.name for family in parse_openmetrics(body.decode())}  # type: ignore[no-untyped-call]  # untyped there
    assert response.headers["Vary"] == "Accept, Accept-Encoding"
    assert b"# EOF" not in site.ask("/metrics")[1]


def test_every_metric_of_the_catalogue_can_be_sent_in_both_formats() -> None:
    families = Families()
    for metric in METRICS.values():
        labels = dict.fromkeys(metric.label_names, 'a "quoted" \\ text\nof two lines')
        if metric.kind == "summary":
            labels["quantile"] = "0.5"
        if metric.kind == "histogram":
            families.add_histogram(metric, [(0.5, 1), (float("inf"), 2)], 3.0, **labels)
        else:
            families.add(metric, 1, **labels)
    encoded = Encoder().encode(families.collected())
    found = {}
    for family in parse_openmetrics(render([(encoded, 0.0)], openmetrics=True).decode()):  # type: ignore[no-untyped-call]  # untyped there
        for sample in family.samples:
            found[sample.name] = family
    for family in parse_text(render([(encoded, 0.0)]).decode()):
        assert family.samples
    for metric in METRICS.values():
        family = found[f"{metric.name}_count" if metric.kind == "histogram" else metric.name]
        assert family.type == ("unknown" if metric.kind == "untyped" else metric.kind), metric.name
        assert family.documentation == metric.help


def test_a_scrape_may_ask_for_some_collectors_and_gets_a_good_page_of_them(serving: Callable[..., Serving]) -> None:
    site = serving()
    site.sample()
    assert b"\nbeat 1.0\n" in site.ask("/metrics?collect[]=%3Cbeat%3E&collect%5B%5D=runs")[1]
    for query in ("collect[]=runs", "collect[]=runs&collect[]=efa", "collect[]=gpu-jobs", "exclude[]=%3Cbeat%3E"):
        response, body = site.ask(f"/metrics?{query}")
        assert response.status == 200
        assert b"beat" not in body
        assert b"trainwarden_build_info" in body
    assert b"\nbeat 1.0\n" in site.ask("/metrics?exclude[]=runs")[1]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("collect[]=rums", ["collect[]", "'rums'", "runs", "nvidia"]),
        ("exclude[]=x&exclude[]=runs", ["exclude[]", "'x'", "expected"]),
        ("collect[]=runs&exclude[]=logs", ["only one"]),
        ("&".join(["a=b"] * 200), ["fields"]),
    ],
)
def test_a_collector_that_is_none_is_refused_with_those_that_are(
    serving: Callable[..., Serving], query: str, words: list[str]
) -> None:
    response, body = serving().ask(f"/metrics?{query}")
    assert response.status == 400
    assert response.headers["Content-Type"].startswith("text/plain")
    assert all(word in body.decode() for word in words)


def test_pages_are_compressed_right_whatever_was_compressed_before(serving: Callable[..., Serving]) -> None:
    site = serving()
    site.sample()
    for path in ("/metrics", "/-/healthy", "/metrics", "/metrics?collect[]=runs", "/"):
        plain = site.ask(path)[1]
        response, body = site.ask(path, Accept_Encoding="gzip")
        assert response.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(body).splitlines()[0] == plain.splitlines()[0]
        assert (b"\nbeat 1.0\n" in gzip.decompress(body)) is (path == "/metrics")


def test_a_scrape_before_the_first_samples_waits_for_them_where_it_has_the_time(
    serving: Callable[..., Serving],
) -> None:
    site = serving()
    pages: list[bytes] = []
    scrape = threading.Thread(
        target=lambda: pages.append(site.ask("/metrics", X_Prometheus_Scrape_Timeout_Seconds="30")[1])
    )
    entered = threading.Event()
    waiting = site.collection.statuses

    def statuses() -> list[Status]:
        entered.set()
        return waiting()

    site.collection.statuses = statuses  # type: ignore[method-assign]  # to know when it has begun to wait
    scrape.start()
    assert entered.wait(30)
    assert not pages
    site.sample()
    scrape.join(30)
    assert b"\nbeat 1.0\n" in pages[0]


@pytest.mark.parametrize("header", ["0.6", "0.1", "-1", "soon", "nan"])
def test_a_scrape_that_has_no_time_gets_what_there_is(serving: Callable[..., Serving], header: str) -> None:
    site = serving()
    response, body = site.ask("/metrics", X_Prometheus_Scrape_Timeout_Seconds=header)
    assert response.status == 200
    assert b"beat" not in body
    assert b"trainwarden_build_info" in body


def test_a_scrape_without_a_timeout_header_never_waits(
    serving: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []
    sleep = time.sleep

    def slept(seconds: float) -> None:
        waited.append(threading.current_thread().name)  # others than the server's may sleep as they like
        sleep(seconds)

    site = serving()
    monkeypatch.setattr(time, "sleep", slept)
    assert site.ask("/metrics")[0].status == 200
    assert not [name for name in waited if "http-connection" in name]


def test_the_landing_page_has_a_row_for_each_part_and_states_what_it_hangs_in() -> None:
    page = landing_page(
        [
            Status("nvidia", True, False, 12.0, 1e9, "no answer for 12 s", "<0>", stuck=True, call="nvmlDeviceGet<X>"),
            Status("efa", True, True, 0.1, 1e9, None, "rdmap0"),
            Status("amd", False, False, 0.0, None, None, released=True),
            Status("runs", True, False, 0.1, None, "OSError: <b>"),
        ],
        "/metrics",
        released=True,
    ).decode()
    rows = [line for line in page.splitlines() if line.startswith("<tr><td>")]
    assert len(rows) == 4
    assert "<td>&lt;0&gt;</td><td>stuck: no answer for 12 s</td><td>nvmlDeviceGet&lt;X&gt;</td>" in rows[0]
    assert "<td>good</td>" in rows[1]
    assert "2001-09-09 01:46:40" in rows[1]
    assert "<td>released</td>" in rows[2]
    assert "failed: OSError: &lt;b&gt;" in rows[3]
    assert "never" in rows[3]
    assert "devices are released" in page


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


def test_the_page_shows_whether_the_web_configuration_is_the_one_that_holds(
    serving: Callable[..., Serving], tmp_path: Path
) -> None:
    file = tmp_path / "web.yml"
    file.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    site = serving(web_config=ReloadingWebConfig(file))
    response, body = site.ask("/metrics")
    assert response.headers["X-Frame-Options"] == "deny"
    assert b'trainwarden_config_last_reload_successful{file="web"} 1.0\n' in body
    file.write_text("http_server_config: {headers: {X-Frame-Options: maybe}}\n")
    failed = b'trainwarden_config_last_reload_successful{file="web"} 0.0\n'
    wait_until(lambda: failed in site.ask("/metrics")[1])  # a page is kept for a moment
    assert site.ask("/metrics")[0].headers["X-Frame-Options"] == "deny"
