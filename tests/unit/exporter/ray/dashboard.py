"""A dashboard that answers what a test says, well or badly."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[[BaseHTTPRequestHandler], None]

STATUS_TEXT = """======== Autoscaler status: 2026-11-21 10:00:0{second}.000000 ========
Node status
---------------------------------------------------------------
Active:
 1 node_2d58

Resources
---------------------------------------------------------------
Total Usage:
 1.5/8.0 CPU
{gpus} 0B/22.99GiB memory

From request_resources:
 {{'GPU': 64}}: 1 from request_resources()
Pending Demands:
{demands}"""


def status(gpus: str = " 0.0/4.0 GPU\n", demands: str = " (no resource demands)", second: int = 0) -> object:
    """What /api/cluster_status answers."""
    text = STATUS_TEXT.format(gpus=gpus, demands=demands, second=second)
    return {"result": True, "msg": "", "data": {"clusterStatus": text}}


def job(submission_id: str | None, state: str, **fields: Any) -> dict[str, Any]:
    """One job of /api/jobs/."""
    return {"submission_id": submission_id, "job_id": None, "status": state, "start_time": 1_000_000, **fields}


def gpu_node(name: str, *percents: float | None, now: float = 1.0, state: str = "ALIVE") -> dict[str, Any]:
    """One node of /nodes?view=summary."""
    gpus = [{"index": index, "utilizationGpu": percent} for index, percent in enumerate(percents)]
    return {"hostname": name, "now": now, "gpus": gpus, "raylet": {"state": state}}


def actors(*held: tuple[str, float], name: str = "", total: int | None = None, **fields: Any) -> object:
    """What /api/v0/actors and /api/v0/tasks answer, given job and GPUs of each."""
    items = [
        {"job_id": job_id, "name": name, "required_resources": {"GPU": gpus} if gpus else {}, **fields}
        for job_id, gpus in held
    ]
    number = {"total": len(items) if total is None else total, "num_after_truncation": len(items)}
    return {"result": True, "data": {"result": {**number, "partial_failure_warning": "", "result": items}}}


def good(jobs: list[dict[str, Any]]) -> dict[str, object]:
    """What each path of a dashboard in order answers."""
    nodes = [{"state": "ALIVE"}, {"state": "ALIVE"}, {"state": "DEAD"}]
    return {
        "/api/jobs/": jobs,
        "/api/cluster_status": status(),
        "/api/v0/actors": actors(),
        "/api/v0/tasks": actors(),
        "/api/v0/nodes": {"result": True, "data": {"result": {"result": nodes}}},
        "/api/version": {"ray_version": "2.60.0", "session_name": "session_1"},
        "/nodes": {"result": True, "data": {"summary": [gpu_node("a", 50, None)]}},
    }


class Dashboard:
    """What is in `answers` is answered as JSON, what is in `bad` by doing that; both by path."""

    def __init__(self, url: str, answers: dict[str, object]) -> None:
        self.url = url
        self.answers = answers
        self.bad: dict[str, Behaviour] = {}
        self.headers: list[dict[str, str]] = []
        self.over = threading.Event()


def send(handler: BaseHTTPRequestHandler, body: bytes, code: int = 200, **headers: str) -> None:
    """Answer with a body."""
    handler.send_response(code)
    for name, value in {"Content_Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def dashboard(answers: dict[str, object], tls: ssl.SSLContext | None = None) -> Iterator[Dashboard]:
    """Serve on a free port of the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            served.headers.append(dict(self.headers))
            if path in served.bad:
                served.bad[path](self)
            else:
                send(self, json.dumps(served.answers[path]).encode())

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass  # the exporter hangs up on what it has enough of

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    served = Dashboard(f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}", answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        served.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
