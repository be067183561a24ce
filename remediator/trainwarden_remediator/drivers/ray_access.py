"""The way to a Ray cluster that the flags name: over HTTP, or through kubectl into the head pod."""

from __future__ import annotations

import functools
import logging
import os
import shutil
from collections.abc import Mapping
from urllib.parse import urlsplit

from trainwarden.clients.http import HttpError, TlsFiles, read_token
from trainwarden.clients.kubernetes import PodExec, list_ray_jobs
from trainwarden.clients.ray import RayControl, RayDashboardInPod, RayDashboardOverHttp
from trainwarden.clients.ray_jobs import RayJobs
from trainwarden_remediator.config import RemediatorSettings
from trainwarden_remediator.drivers.ray import RayDriver
from trainwarden_remediator.drivers.ray_templates import RayTemplates
from trainwarden_remediator.errors import ConfigError

log = logging.getLogger(__name__)


def ray_jobs(settings: RemediatorSettings, environ: Mapping[str, str] = os.environ) -> RayJobs:
    """Return a client of the cluster; raises ConfigError where a file or program cannot be used."""
    return RayJobs(_dashboard(settings, environ))


def ray_driver(settings: RemediatorSettings) -> RayDriver:
    """Return the driver of the cluster; raises ConfigError."""
    jobs, templates = ray_jobs(settings), RayTemplates(settings.ray_template_dir)
    if settings.ray_head_pod is None and settings.ray_token_file is None and "RAY_AUTH_TOKEN" not in os.environ:
        host = urlsplit(settings.ray_address).hostname or ""
        if host != "localhost" and not host.startswith("127.") and host != "::1":
            log.warning("--ray-address: %s is used without a token: whoever reaches it may run anything there", host)
    resources = None
    if settings.ray_head_pod is not None:
        resources = functools.partial(list_ray_jobs, _kubectl(settings), settings.ray_timeout, settings.ray_namespace)
    return RayDriver(jobs, templates, resources)


def _dashboard(settings: RemediatorSettings, environ: Mapping[str, str]) -> RayControl:
    token_file, ca_file, seconds = settings.ray_token_file, settings.ray_ca_file, settings.ray_timeout
    try:
        if token_file is not None:
            read_token(token_file)
        if ca_file is not None:
            TlsFiles(ca_file).context()
    except HttpError as error:
        flag = (
            "--ray-token-file" if token_file is not None and str(error).startswith(str(token_file)) else "--ray-ca-file"
        )
        raise ConfigError([f"{flag}: {error}"]) from None
    if settings.ray_head_pod is not None:
        pod = PodExec(
            _kubectl(settings),
            settings.ray_head_pod,
            namespace=settings.ray_namespace,
            container=settings.ray_container,
        )
        return RayDashboardInPod(pod, settings.ray_address, seconds, token_file=token_file)
    token = environ.get("RAY_AUTH_TOKEN") or None
    return RayDashboardOverHttp(settings.ray_address, seconds, token_file=token_file, token=token, ca_file=ca_file)


def _kubectl(settings: RemediatorSettings) -> str:
    found = shutil.which(settings.ray_kubectl)
    if found is None:
        raise ConfigError([f"--ray-kubectl: {settings.ray_kubectl!r}: expected a program"])
    return found
