"""Kubernetes, through kubectl: run a program in a pod, and list the RayJobs of KubeRay."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden.clients import process

if TYPE_CHECKING:
    from collections.abc import Sequence


class PodExecError(Exception):
    """The program gave no complete answer.

    Attributes:
        stderr: what kubectl wrote there, as one line; foreign text, which may hold secrets.
    """

    def __init__(self, message: str, stderr: str = "") -> None:
        super().__init__(message)
        self.stderr = stderr


class PodExec:
    """One pod, as kubectl names it.

    Args:
        kubectl: the program; it finds cluster and credentials by itself.
        pod: its name; `svc/NAME` and `deploy/NAME` stand for one of their pods.
        namespace: kubectl's own if None.
        container: the pod's first if None.
    """

    def __init__(self, kubectl: str, pod: str, *, namespace: str | None = None, container: str | None = None) -> None:
        self._kubectl = kubectl
        self._command = [kubectl, "exec", "--stdin", pod]
        for name, value in (("namespace", namespace), ("container", container)):
            if value is not None:
                self._command.append(f"--{name}={value}")

    def run(self, argv: Sequence[str], timeout: float, *, stdin: bytes, limit: int) -> bytes:
        """Return the standard output of a program in the pod. No shell reads its arguments.

        Args:
            argv: program and arguments, as the pod knows them. They can be read on both machines.
            timeout: seconds for all of it.
            stdin: standard input.
            limit: bytes of output at most.

        Raises:
            PodExecError: kubectl or the program failed, took too long or wrote too much; nothing is left running here.
        """
        try:
            # The working directory stays: $KUBECONFIG may be a relative path.
            ended = process.run([*self._command, "--", *argv], timeout, stdin=stdin, cwd=".", limit=limit)
        except process.CannotStart as error:
            raise PodExecError(f"{self._kubectl}: {error}") from None
        except process.ProcessError as error:
            raise PodExecError(f"{self._kubectl} exec: {error}") from None
        if ended.status:
            raise PodExecError(f"{self._kubectl} exec ended with status {ended.status}", ended.message)
        return ended.output


class KubernetesError(Exception):
    """kubectl gave no usable answer; the message is the reason."""


@dataclass(frozen=True)
class RayJobResource:
    """A RayJob of KubeRay, which submits a job to a cluster of its own and ends both; `name` is foreign text."""

    name: str
    backoff_limit: int


def list_ray_jobs(kubectl: str, timeout: float, namespace: str | None = None) -> dict[str, RayJobResource]:
    """Return the RayJobs of a namespace by the id of their submission; none where KubeRay is not installed.

    Args:
        kubectl: the program; it finds cluster and credentials by itself.
        timeout: seconds for all of it.
        namespace: kubectl's own if None.

    Raises:
        KubernetesError: whether there are any is not known.
    """
    command = [kubectl, "get", "rayjobs.ray.io", "--output=json"]
    command += [f"--namespace={namespace}"] if namespace is not None else []
    try:
        ended = process.run(command, timeout, cwd=".")
        if ended.status and "the server doesn't have a resource type" in ended.message:
            return {}
        if ended.status:
            raise KubernetesError(f"kubectl get rayjobs ended with status {ended.status}: {ended.message[:200]}")
        items = json.loads(ended.output)["items"]
        found = {}
        for item in items:
            name, backoff = str(item["metadata"]["name"]), int(item.get("spec", {}).get("backoffLimit") or 0)
            if submission := item.get("status", {}).get("jobId"):
                found[str(submission)] = RayJobResource(name, backoff)
    except process.ProcessError as error:
        raise KubernetesError(f"kubectl get rayjobs: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KubernetesError("kubectl get rayjobs: expected a list of RayJobs as JSON") from None
    return found
