"""Flags and creation of the collector of a Ray cluster."""

from __future__ import annotations

import argparse
import functools
import os
import re
import shutil
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trainwarden.errors import UsageError
from trainwarden_exporter.core.spec import CollectorSpec, never
from trainwarden_exporter.flag_values import positive_count, some_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainwarden.clients.ray import RayDashboard
    from trainwarden_exporter.core.spec import Context
    from trainwarden_exporter.sampling.task import CollectorRunner

DEFAULT_URL = "http://127.0.0.1:8265"
# The last may hold an address of another protocol, which is ignored.
URL_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_DASHBOARD_ADDRESS", "RAY_ADDRESS")
_NAME = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_POD = re.compile(rf"(?:(?:pod|service|svc|deployment|deploy)/)?(?=.{{1,253}}$){_NAME}(?:\.{_NAME})*")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    flag = parser.add_argument
    flag(
        "--collector.ray.url",
        type=base_url,
        metavar="URL",
        help=f"Ray's dashboard, as the head pod reaches it if one is named (default: ${', $'.join(URL_VARIABLES)}, "
        f"else {DEFAULT_URL})",
    )
    flag(
        "--collector.ray.token-file",
        type=some_path,
        metavar="FILE",
        help="holds the token that the dashboard requires; read for each sample",
    )
    flag(
        "--collector.ray.ca-file", type=some_path, metavar="FILE", help="certificates to trust instead of the system's"
    )
    flag("--collector.ray.head-pod", type=pod_name, metavar="NAME", help="read from within this pod, by kubectl exec")
    flag(
        "--collector.ray.namespace",
        type=_label_of("namespace"),
        metavar="NAME",
        help="namespace of the pod (default: kubectl's)",
    )
    flag(
        "--collector.ray.container",
        type=_label_of("container"),
        metavar="NAME",
        help="container of the pod (default: its first)",
    )
    flag("--collector.ray.kubectl", default="kubectl", metavar="FILE", help="kubectl's file (default %(default)s)")
    flag(
        "--collector.ray.max-jobs",
        type=positive_count,
        default=500,
        metavar="N",
        help="jobs exported at most, active ones first, then the latest (default %(default)s)",
    )
    flag(
        "--collector.ray.node-gpus",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read the utilisation of the GPUs of each node; the answer is some 20 KB for each node",
    )


def create(context: Context) -> CollectorRunner:
    """Return its sampler; raises `UsageError` if the flags ask for what cannot be had."""
    from trainwarden_exporter.collectors.ray.collector import RayCollector  # noqa: PLC0415  # for this collector alone
    from trainwarden_exporter.sampling.sampler import Sampler  # noqa: PLC0415  # for this collector alone
    from trainwarden_exporter.sampling.task import single_task  # noqa: PLC0415  # for this collector alone

    flags = context.flags
    # An exporter of one node's records alone cannot notice that one is missing.
    expects_all = flags["collector.runs.scope"] == "all"
    collector = RayCollector(
        dashboard(flags),
        limit=flags["collector.ray.max_jobs"],
        node_gpus=flags["collector.ray.node_gpus"],
        expect=functools.partial(context.shared.expected.put, "ray") if expects_all else None,
    )
    return Sampler(single_task(collector, context.interval, context.timeout))


def dashboard(flags: Mapping[str, Any]) -> RayDashboard:
    """Return the way to the dashboard; raises `UsageError` if there is none."""
    from trainwarden.clients.http import HttpError, TlsFiles  # noqa: PLC0415  # for this collector alone
    from trainwarden.clients.kubernetes import PodExec  # noqa: PLC0415  # for this collector alone
    from trainwarden.clients.ray import (  # noqa: PLC0415  # for this collector alone
        RayDashboardInPod,
        RayDashboardOverHttp,
    )

    head_pod, ca_file = flags["collector.ray.head_pod"], flags["collector.ray.ca_file"]
    url, token_file = _url(flags), flags["collector.ray.token_file"]
    # The answers have to be there before the sampler's deadline for the whole sample.
    timeout = flags["collector.ray.timeout"] * 0.9
    pod = {name: flags[f"collector.ray.{name}"] for name in ("namespace", "container")}
    if head_pod is None:
        for name, value in pod.items():
            if value is not None:
                raise UsageError(f"--collector.ray.{name}: is of a pod; expected --collector.ray.head-pod as well")
        if ca_file is not None:
            try:
                TlsFiles(ca_file).context()
            except HttpError as error:
                raise UsageError(f"--collector.ray.ca-file {error}") from None
        return RayDashboardOverHttp(url, timeout, token_file=token_file, ca_file=ca_file)
    if ca_file is not None:
        raise UsageError("--collector.ray.ca-file: cannot be had within a pod; expected no --collector.ray.head-pod")
    kubectl = shutil.which(flags["collector.ray.kubectl"])
    if kubectl is None:
        raise UsageError(f"--collector.ray.kubectl {flags['collector.ray.kubectl']}: expected a program")
    return RayDashboardInPod(PodExec(kubectl, head_pod, **pod), url, timeout, token_file=token_file)


def base_url(text: str) -> str:
    """Parse the URL of a dashboard, which may lie below a path."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    plain = re.fullmatch(r"[!-~]+", text) and not (parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or not plain:
        # The text is not quoted: it may hold a password.
        raise argparse.ArgumentTypeError("expected a URL such as http://127.0.0.1:8265, without user and query")
    return text.rstrip("/")


def pod_name(text: str) -> str:
    """Parse the name of a pod; svc/NAME and deploy/NAME stand for one of their pods."""
    if not _POD.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no pod: expected a name of lower case letters, digits, - and .")
    return text


def _label_of(kind: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not re.fullmatch(_NAME, text):
            raise argparse.ArgumentTypeError(f"{text!r} is no {kind}: expected lower case letters, digits and -")
        return text

    return parse


def _url(flags: Mapping[str, Any]) -> str:
    given: str | None = flags["collector.ray.url"]
    if given is not None:
        return given
    if flags["collector.ray.head_pod"] is None:  # this machine's environment is not the pod's
        for name in URL_VARIABLES:
            value = os.environ.get(name, "")
            if value.startswith(("http://", "https://")):
                try:
                    return base_url(value)
                except argparse.ArgumentTypeError as error:
                    raise UsageError(f"${name}: {error}") from None
    return DEFAULT_URL


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
