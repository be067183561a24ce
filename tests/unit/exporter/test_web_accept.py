"""What Prometheus, and others, ask for."""

from __future__ import annotations

from tests.cases import cases
from trainwarden_exporter.web.pages import accepts_gzip, prefers_openmetrics

PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3_TEXT_FIRST = (
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,"
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.2"
)


@cases(
    ("header", "openmetrics"),
    [
        (PROMETHEUS_2_42, True),
        (PROMETHEUS_3, True),
        (PROMETHEUS_3_TEXT_FIRST, False),
        ("", False),
        ("*/*", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; Version=1.0.0; Q=0.9, text/plain; q=0.5", True),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;version=1.0.0;q=0", False),
        ("application/openmetrics-text;version=1.0.0;q=high, text/plain", False),
        ("application/openmetrics-text;q=nan", False),
        ("application/openmetrics-text;version=1.0.0;q=0.5, text/plain;q=0.6, */*;q=0.1", False),
    ],
)
def test_openmetrics_is_sent_where_it_is_preferred(header: str, openmetrics: bool) -> None:
    assert prefers_openmetrics(header) is openmetrics


@cases(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("br, gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("", False),
        ("x-gzip2", False),
    ],
)
def test_gzip_is_used_only_if_the_client_takes_it(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted
