"""All incidents at once in a real Prometheus, in real time: each group of rules is evaluated at its own interval.

Each incident is a cluster of its own. What is scraped follows the clock, so this takes as long as the longest incident.
"""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.incidents.incidents import INCIDENTS, skewed
from tests.incidents.timeline import Timeline, assert_noticed
from tests.prometheus import running_prometheus
from tests.rules.promtool import RULES, STEP, in_cluster
from trainwarden.clients.prometheus import PrometheusSeries
from trainwarden.stack.binaries import Tools

pytestmark = [pytest.mark.tools, pytest.mark.nightly, pytest.mark.timeout(3600)]

CLUSTERS = {f"{number:02d}/": incident for number, incident in enumerate(INCIDENTS)}
# Until Prometheus scrapes.
_STARTS_SECONDS = 10


class _Exporters(ThreadingHTTPServer):
    """Shows the page of an incident, as it is now, under the name of its cluster; time counts from `began`."""

    daemon_threads = True

    def __init__(self, began: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.began = began

    def page(self, cluster: str) -> str:
        """Return what all exporters of a cluster show, until its incident is over."""
        incident, now = CLUSTERS[cluster], max(0, int(time.time()) - self.began)
        page = incident.page(now) if now <= incident.seconds else {}
        shown = in_cluster(cluster, skewed(page, self.began))
        return "".join(f"{series} {value!r}\n" for series, value in shown.items())


class _Handler(BaseHTTPRequestHandler):
    server: _Exporters

    def do_GET(self) -> None:
        body = self.server.page(self.path[1:]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Requests are no news."""


@pytest.fixture(scope="module")
def timelines(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Timeline]:
    """Play all incidents; return what fired in each cluster."""
    folder = tmp_path_factory.mktemp("prometheus")
    began = int(time.time()) + _STARTS_SECONDS
    exporters = _Exporters(began)
    threading.Thread(target=exporters.serve_forever, daemon=True).start()
    target = f"127.0.0.1:{exporters.server_address[1]}"
    incidents = {
        "job_name": "incidents",
        "honor_labels": True,
        "static_configs": [
            {"targets": [target], "labels": {"__metrics_path__": f"/{cluster}", "incident": cluster}}
            for cluster in CLUSTERS
        ],
    }
    configuration = {
        "global": {"scrape_interval": f"{STEP}s", "scrape_timeout": f"{STEP}s"},
        "rule_files": [str(path) for path in RULES],
        "scrape_configs": [incidents],
    }
    try:
        with running_prometheus(tools, folder, configuration) as client:
            ends = began + max(incident.seconds for incident in INCIDENTS)
            time.sleep(ends - time.time())  # the incidents take their time
            return _by_cluster(client.query_range('ALERTS{alertstate="firing"}', began, ends), began)
    finally:
        exporters.shutdown()
        exporters.server_close()


def _by_cluster(found: list[PrometheusSeries], began: int) -> dict[str, Timeline]:
    """Return the alerts that fired in each second that belongs to the incident; labels have the cluster's own name."""
    timelines: dict[str, Timeline] = {cluster: {} for cluster in CLUSTERS}
    for series in found:
        number, slash, own = series.labels.get("cluster", "").partition("/")
        if not slash:  # the dead man's switch, of no cluster
            assert series.labels["severity"] == "none", series.labels
            continue
        labels = {**series.labels, "cluster": own}
        for at, _ in series.points:
            if (second := int(at) - began) <= CLUSTERS[number + slash].seconds:
                timelines[number + slash].setdefault(second, []).append(labels)
    return timelines


@pytest.mark.parametrize("cluster", [pytest.param(each, id=CLUSTERS[each].name) for each in CLUSTERS])
def test_an_incident_is_noticed_in_time_and_nothing_else_fires(timelines: dict[str, Timeline], cluster: str) -> None:
    assert_noticed(CLUSTERS[cluster], timelines[cluster])
