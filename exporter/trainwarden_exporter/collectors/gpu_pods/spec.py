"""How the collector of the GPUs' pods is set up."""

from __future__ import annotations

import importlib.util
import logging
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.errors import UsageError
from trainwarden_exporter.collectors.gpu.spec import roster_of
from trainwarden_exporter.collectors.gpu_jobs.collector import enabled as has_gpus
from trainwarden_exporter.collectors.gpu_jobs.gpus import GpuSearch
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.flag_values import some_path
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    import argparse

    from trainwarden_exporter.core.spec import Context

log = logging.getLogger(__name__)

SOCKET = "var/lib/kubelet/pod-resources/kubelet.sock"
# Of the timeout of a sample: a kubelet that does not answer is a failed sample, not a stuck one.
CALL_SHARE = 0.8
PACKAGES = {"grpc": "grpcio", "google.protobuf": "protobuf"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    parser.add_argument(
        "--collector.gpu-pods.socket",
        type=some_path,
        metavar="FILE",
        help=f"the kubelet's socket pod-resources (default: /{SOCKET} below --path.rootfs)",
    )


def enabled(context: Context) -> bool:
    """Return whether the kubelet's socket and a GPU are there. A missing package alone stops no exporter."""
    try:
        if not stat.S_ISSOCK(_socket(context).stat().st_mode):
            return False
    except OSError:
        return False
    if not has_gpus(context):
        return False
    if missing := _missing():
        log.warning("pods of GPUs are not exported: %s", missing)
    return not missing


def create(context: Context) -> Sampler:
    """Return what samples it; raise `UsageError` where a package is missing. The kubelet may start later."""
    if missing := _missing():
        raise UsageError(f"--collector.gpu-pods: {missing}")
    from trainwarden_exporter.collectors.gpu_pods.collector import GpuPodsCollector  # noqa: PLC0415  # where it is on
    from trainwarden_exporter.collectors.gpu_pods.pod_resources import PodResources  # noqa: PLC0415  # needs packages

    gpus = GpuSearch(context.node, *(roster_of(context, vendor) for vendor in ("nvidia", "amd")))
    collector = GpuPodsCollector(gpus, PodResources(_socket(context), CALL_SHARE * context.timeout))
    return Sampler(single_task(collector, context.interval, context.timeout))


def _socket(context: Context) -> Path:
    named: Path | None = context.flags["collector.gpu_pods.socket"]
    return named or context.node.rootfs / SOCKET


def _missing() -> str:
    """Return which package is not installed, and what installs it; empty if none is missing."""
    for module, package in PACKAGES.items():
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:  # of the package that it is in
            found = None
        if found is None:
            return f"{package} is not installed: pip install 'trainwarden[kubernetes]'"
    return ""


SPEC = CollectorSpec(
    name="gpu_pods",
    help="which pod has each GPU",
    interval="10s",
    timeout="5s",
    needs="the kubelet's socket and a GPU",
    create=create,
    enabled=enabled,
    add_flags=add_flags,
)
