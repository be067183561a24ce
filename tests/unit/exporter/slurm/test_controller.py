"""slurmctld's own metrics, served by a small stand-in: under our names, bounded, the token only where it belongs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from trainwarden.clients.slurm.client import SlurmError
from trainwarden_exporter.collectors.slurm.controller import MAX_SERIES, Page, add_page
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.metric import Families

PAGES = {
    "jobs": "# HELP slurm_jobs_pending x\n# TYPE slurm_jobs_pending gauge\nslurm_jobs_pending 4\nslurm_jobs_running 2\n"
    "slurm_jobs_cpus_alloc 64\nslurm_jobs_memory_alloc 1e9\nslurm_jobs_running 7\nslurm_jobs_odd NaN\n",
    "nodes": 'slurm_nodes_idle 3\nslurm_nodes_down 1\nslurm_node_cpus{node="n1"} 8\nslurm_nodes_x half\n# EOF\n',
    "partitions": 'slurm_partition_jobs_pending{partition="main"} 4\n'
    'slurm_partition_nodes_cpus_idle{partition="main"} 9\n'
    'slurm_partition_jobs_max_job_nodes{partition="main"} 2\n'
    'slurm_partition_jobs_pending{partition="main",user="x"} 1\n',
    "scheduler": "slurm_sched_mean_cycle 12\nslurm_bf_depth 5\nslurm_schedule_queue_len 2\nslurm_sdiag_jobs_failed 1\n",
}


class Controller:
    """What stands in for slurmctld."""

    def __init__(self) -> None:
        self.pages = dict(PAGES)
        self.status = 200
        self.headers: list[dict[str, str]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.headers.append(dict(self.headers))
                body = owner.pages[self.path.rpartition("/")[2]].encode()
                self.send_response(owner.status)
                self.send_header("Location", f"{owner.url}/jobs")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metrics"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def page(self, token_file: Path | None = None) -> str:
        """What the exporter makes of it."""
        families = Families()
        add_page(families, Page(self.url, token_file), 10.0)
        return encode_text(families.collected()).decode()


@pytest.fixture
def controller() -> Iterator[Controller]:
    """A controller that answers."""
    made = Controller()
    yield made
    made.server.shutdown()
    made.server.server_close()


def _samples(page: str) -> set[str]:
    return {line for line in page.splitlines() if not line.startswith("#")}


def test_counts_of_jobs_and_nodes_by_state_and_no_sums_of_what_they_have(controller: Controller) -> None:
    assert _samples(controller.page()) == {
        'slurm_ctld_jobs{state="pending"} 4.0',
        'slurm_ctld_jobs{state="running"} 2.0',
        'slurm_ctld_nodes{state="idle"} 3.0',
        'slurm_ctld_nodes{state="down"} 1.0',
        'slurm_ctld_partition_jobs{partition="main",state="pending"} 4.0',
        'slurm_ctld_scheduler{name="sched_mean_cycle"} 12.0',
        'slurm_ctld_scheduler{name="bf_depth"} 5.0',
        'slurm_ctld_scheduler{name="schedule_queue_len"} 2.0',
    }


def test_the_token_is_read_anew_and_sent(controller: Controller, tmp_path: Path) -> None:
    token = tmp_path / "token"
    for text in ("first", "second"):
        token.write_text(text + "\n")
        controller.page(token)
        assert controller.headers[-1]["Authorization"] == f"Bearer {text}"
    controller.page()
    assert "Authorization" not in controller.headers[-1]


def test_a_standby_controller_is_an_error_and_nobody_is_followed(controller: Controller, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    controller.status = 303
    with pytest.raises(SlurmError, match=r"^failed: .*status 303"):
        controller.page(tmp_path / "token")
    assert len(controller.headers) == 1


@pytest.mark.parametrize(("status", "reason"), [(401, "authentication"), (403, "authentication"), (500, "failed")])
def test_a_refusal_has_a_reason(controller: Controller, status: int, reason: str) -> None:
    controller.status = status
    with pytest.raises(SlurmError, match=f"^{reason}: "):
        controller.page()


def test_an_unreadable_token_is_an_error_that_names_the_file(controller: Controller, tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match=r"^authentication: .*no-such"):
        controller.page(tmp_path / "no-such")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SlurmError, match=r"^authentication: .*is no plain file"):
        controller.page(tmp_path / "pipe")
    assert controller.headers == []


def test_a_controller_that_is_not_there_fails(controller: Controller) -> None:
    controller.server.shutdown()
    controller.server.server_close()
    with pytest.raises(SlurmError, match=r"^failed: "):
        controller.page()


def test_an_endless_page_is_bounded(controller: Controller) -> None:
    controller.pages["jobs"] = "".join(f"slurm_jobs_s{number} 1\n" for number in range(MAX_SERIES * 3))
    assert controller.page().count("slurm_ctld_jobs{") == MAX_SERIES
