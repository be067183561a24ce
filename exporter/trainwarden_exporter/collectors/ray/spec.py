"""How this collector is set up."""

from __future__ import annotations

import argparse
import functools
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.ray.flag_values import base_url, container, namespace, pod
from trainwarden_exporter.core.errors import UsageError
from trainwarden_exporter.core.spec import CollectorSpec, never
from trainwarden_exporter.flag_values import positive_count

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from trainwarden_exporter.collectors.ray.reach import Reach
    from trainwarden_exporter.core.spec import Context
    from trainwarden_exporter.sampling.task import CollectorRunner

DEFAULT_URL = "http://127.0.0.1:8265"
# The last may name what speaks no HTTP; then it is not meant.
URL_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_DASHBOARD_ADDRESS", "RAY_ADDRESS")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    flag = parser.add_argument
    flag(
        "--collector.ray.url",
        type=base_url,
        metavar="URL",
        help=f"Ray's dashboard, as the head pod sees it where one is named (default: ${', $'.join(URL_VARIABLES)}, "
        f"else {DEFAULT_URL})",
    )
    flag(
        "--collector.ray.token-file",
        type=Path,
        metavar="FILE",
        help="holds the token that the dashboard asks for; read for each sample",
    )
    flag("--collector.ray.ca-file", type=Path, metavar="FILE", help="certificates to trust instead of the system's")
    flag("--collector.ray.head-pod", type=pod, metavar="NAME", help="ask from within this pod, by kubectl exec")
    flag("--collector.ray.namespace", type=namespace, metavar="NAME", help="namespace of the pod (default: kubectl's)")
    flag("--collector.ray.container", type=container, metavar="NAME", help="container of the pod (default: its first)")
    flag("--collector.ray.kubectl", default="kubectl", metavar="FILE", help="kubectl's file (default %(default)s)")
    flag(
        "--collector.ray.max-jobs",
        type=positive_count,
        default=500,
        metavar="N",
        help="jobs exported at most, those under way first, then the latest (default %(default)s)",
    )
    flag(
        "--collector.ray.node-gpus",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="ask how busy the GPUs of each node are; the answer is some 20 KB for each node",
    )


def create(context: Context) -> CollectorRunner:
    """Return what samples it; raises `UsageError` if what the flags say cannot be done."""
    from trainwarden_exporter.collectors.ray.collector import RayCollector  # noqa: PLC0415  # for this collector alone
    from trainwarden_exporter.sampling.sampler import Sampler  # noqa: PLC0415  # for this collector alone
    from trainwarden_exporter.sampling.task import whole  # noqa: PLC0415  # for this collector alone

    flags = context.flags
    collector = RayCollector(
        reach(flags),
        limit=flags["collector.ray.max_jobs"],
        node_gpus=flags["collector.ray.node_gpus"],
        # Who sees the records of one node cannot miss any.
        expect=functools.partial(context.exchange.expected.put, "ray")
        if flags["collector.runs.scope"] == "all"
        else None,
    )
    return Sampler(whole(collector, context.interval, context.timeout))


def reach(flags: Mapping[str, Any]) -> Reach:
    """Return the way to the dashboard; raises `UsageError` if there is none."""
    from trainwarden_exporter.collectors.ray.kubectl import Exec  # noqa: PLC0415  # for this collector alone
    from trainwarden_exporter.collectors.ray.reach import Direct, Question  # noqa: PLC0415  # for this collector alone

    head_pod, ca_file = flags["collector.ray.head_pod"], flags["collector.ray.ca_file"]
    # The deadline of the whole sample is the sampler's: the answer has to be there before.
    seconds = flags["collector.ray.timeout"] * 0.9
    question = Question(_url(flags), flags["collector.ray.token_file"], seconds)
    if head_pod is None:
        for name in ("namespace", "container"):
            if flags[f"collector.ray.{name}"] is not None:
                raise UsageError(f"--collector.ray.{name}: is of a pod; expected --collector.ray.head-pod as well")
        return Direct(question, _context(ca_file))
    if ca_file is not None:
        raise UsageError("--collector.ray.ca-file: cannot be had within a pod; expected no --collector.ray.head-pod")
    kubectl = shutil.which(flags["collector.ray.kubectl"])
    if kubectl is None:
        raise UsageError(f"--collector.ray.kubectl {flags['collector.ray.kubectl']}: expected a program")
    command = [kubectl, "exec", "--stdin", head_pod]
    said = {name: flags[f"collector.ray.{name}"] for name in ("namespace", "container")}
    command += [f"--{name}={value}" for name, value in said.items() if value is not None]
    return Exec(question, command)


def _url(flags: Mapping[str, Any]) -> str:
    said: str | None = flags["collector.ray.url"]
    if said is not None:
        return said
    if flags["collector.ray.head_pod"] is None:  # what the environment says is true here, not in the pod
        for name in URL_VARIABLES:
            value = os.environ.get(name, "")
            if value.startswith(("http://", "https://")):
                try:
                    return base_url(value)
                except argparse.ArgumentTypeError as error:
                    raise UsageError(f"${name}: {error}") from None
    return DEFAULT_URL


def _context(ca_file: Path | None) -> ssl.SSLContext | None:
    if ca_file is None:
        return None
    import ssl  # noqa: PLC0415  # two MiB, for who asks over TLS alone

    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl's own are among them
        raise UsageError(f"--collector.ray.ca-file {ca_file}: {error.strerror or error}; expected PEM") from None


SPEC = CollectorSpec(
    name="ray",
    help="jobs and resources of a Ray cluster",
    interval="15s",
    timeout="10s",
    create=create,
    # One exporter of a cluster is enough, and which one is not seen from a node.
    enabled=never,
    add_flags=add_flags,
)
