"""A real Prometheus in a folder of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainwarden.clients.prometheus import PrometheusClient
from trainwarden.stack import service
from trainwarden.stack.binaries import Tools
from trainwarden.stack.ports import free_port


@contextmanager
def running_prometheus(
    tools: Tools, folder: Path, configuration: Mapping[str, object] | None = None
) -> Iterator[PrometheusClient]:
    """Run Prometheus while the context lasts; paths in its configuration are relative to the folder.

    Args:
        tools: the programs.
        folder: of its configuration, `prometheus.yml`, its data and its log.
        configuration: to write to that file; it is there if None.
    """
    if configuration is not None:
        (folder / "prometheus.yml").write_text(json.dumps(configuration), encoding="utf-8")  # JSON is YAML
    address = f"127.0.0.1:{free_port()}"
    command = [
        str(tools.prometheus),
        "--config.file=prometheus.yml",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    running = service.start(
        "prometheus", command, log=folder / "prometheus.log", environment=dict(os.environ), folder=folder
    )
    try:
        running.wait_for(f"http://{address}/-/ready")
        yield PrometheusClient(f"http://{address}")
    finally:
        running.stop()
