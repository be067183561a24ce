"""The head of a Ray cluster: its dashboard, and programs in its pod."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.clients.kubernetes import PodExec
from trainwarden.clients.ray import TOKEN_VARIABLES, RayDashboardInPod, RayDashboardOverHttp
from trainwarden.clients.ray_jobs import RayJobs
from trainwarden.ray.log import ensure_logging

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden.clients.ray import RayControl

# Of the dashboard as its own pod sees it, and of the program that reaches the pod.
DASHBOARD, KUBECTL = "TRAINWARDEN_RAY_DASHBOARD", "TRAINWARDEN_KUBECTL"
SECONDS = 60.0
# The log of a job comes in one answer.
_MAX_BODY = 256 * 2**20
_MAX_OUTPUT = 16 * 2**20


@dataclass(frozen=True)
class RayHead:
    """A head, by the name of its pod or by the address of its dashboard.

    Attributes:
        name: as the caller gave it.
        dashboard: the way to its API.
        pod: the way to programs in it; None where only an address is known.
    """

    name: str
    dashboard: RayControl
    pod: PodExec | None

    @property
    def jobs(self) -> RayJobs:
        """Its job API."""
        return RayJobs(self.dashboard)

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", seconds: float = SECONDS) -> str:
        """Return what a program in the pod prints; raises PodExecError."""
        return self.read(argv, stdin=stdin, seconds=seconds).decode("utf-8", "replace")

    def read(
        self, argv: Sequence[str], *, stdin: bytes = b"", seconds: float = SECONDS, limit: int = _MAX_OUTPUT
    ) -> bytes:
        """Return what a program in the pod writes, `limit` bytes of it at most; raises PodExecError."""
        if self.pod is None:
            raise ValueError(f"{self.name}: expected the name of a pod")
        return self.pod.run(argv, seconds, stdin=stdin, limit=limit)


def open_head(head_pod: str, namespace: str | None = None, token_file: Path | None = None) -> RayHead:
    """Return the way to a head; nothing is asked yet.

    Args:
        head_pod: name of the pod, or `http://…` of the dashboard. With an address the token is that of
            `$RAY_AUTH_TOKEN` or the file `$RAY_AUTH_TOKEN_PATH`; in a pod it is the pod's own.
        namespace: of the pod; kubectl's own if None.
        token_file: of the token, on this machine, in place of those; read for each request.

    Raises:
        ValueError: it can be neither.
    """
    ensure_logging()
    if head_pod.startswith(("http://", "https://")):
        token, file = (os.environ.get(name) for name in TOKEN_VARIABLES)
        path = token_file or (Path(file) if file and not token else None)
        given = None if path is not None else token or None
        dashboard = RayDashboardOverHttp(head_pod, SECONDS, token=given, token_file=path, max_body=_MAX_BODY)
        return RayHead(head_pod, dashboard, None)
    pod = open_pod(head_pod, namespace)
    url = os.environ.get(DASHBOARD) or "http://127.0.0.1:8265"
    return RayHead(head_pod, RayDashboardInPod(pod, url, SECONDS, token_file=token_file, max_body=_MAX_BODY), pod)


def open_pod(name: str, namespace: str | None = None) -> PodExec:
    """Return the way to programs in a pod; raises ValueError where the name would be an option of kubectl."""
    for each in (name, namespace):
        if each is not None and (not each or each.startswith("-")):
            raise ValueError(f"{each!r} is no name of a pod or namespace")
    return PodExec(os.environ.get(KUBECTL) or "kubectl", name, namespace=namespace)
