"""Assembles the service and runs it until it is stopped."""

from __future__ import annotations

import logging
import threading

from prometheus_client import CollectorRegistry

from trainwarden.clients.alertmanager import AlertmanagerClient
from trainwarden.clients.prometheus import PrometheusClient
from trainwarden.server.address import port_file
from trainwarden.server.web_config import ReloadingWebConfig
from trainwarden_remediator.choice import load_policies
from trainwarden_remediator.config import RemediatorSettings, allowed_users, read_token
from trainwarden_remediator.database import Lock, open_database
from trainwarden_remediator.drivers.driver import Driver
from trainwarden_remediator.drivers.local import LocalDriver
from trainwarden_remediator.drivers.slurm import SlurmDriver, slurm_client
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.evidence import PrometheusRuns
from trainwarden_remediator.examine import Examiner
from trainwarden_remediator.http_config import http_client
from trainwarden_remediator.metrics import Metrics, RemediatorCollector
from trainwarden_remediator.remediate import Remediator
from trainwarden_remediator.server import RemediatorPages
from trainwarden_remediator.store import Store
from trainwarden_remediator.worker import Worker
from trainwarden_remediator.world import AlertmanagerAlerts, Records, SystemClock, World

log = logging.getLogger(__name__)


def serve(settings: RemediatorSettings, stop: threading.Event) -> None:
    """Serve until `stop` is set.

    Raises:
        ConfigError, UsageError, StoreError: before any call to a scheduler.
    """
    token = read_token("--webhook-token-file", settings.webhook_token_file)
    policies = load_policies(settings.policy, settings.policy_dir, settings.run_policy)
    drivers = build_drivers(settings)
    alertmanager, prometheus = (
        http_client(f"--{name}-http-config-file", url, config_file, settings.http_timeout)
        for name, url, config_file in (
            ("alertmanager", settings.alertmanager_url, settings.alertmanager_http_config_file),
            ("prometheus", settings.prometheus_url, settings.prometheus_http_config_file),
        )
    )
    web_config = ReloadingWebConfig(settings.web_config_file) if settings.web_config_file else None
    clock, metrics = SystemClock(), Metrics()
    lock = Lock(settings.state_dir)
    engine = open_database(settings.state_dir)
    store = Store(engine, clock)
    world = World(
        clock=clock,
        alerts=AlertmanagerAlerts(AlertmanagerClient(alertmanager)),
        runs=PrometheusRuns(PrometheusClient(prometheus)),
        drivers=drivers,
        records=Records(settings.runs_dir),
    )
    remediator = Remediator(
        world,
        store,
        metrics,
        doubt_window=settings.doubt_window,
        repeat_after=settings.poll_interval,
        verify_timeout=settings.verify_timeout,
        checkpoint_trust=policies.checkpoint_trust,
    )
    examiner = Examiner(world, store, policies, metrics, remediator.failed_again)
    worker = Worker(
        world,
        store,
        examiner,
        remediator,
        metrics,
        interval=settings.poll_interval,
        busy_interval=settings.busy_interval,
    )
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RemediatorCollector(metrics, store, web_config))
    pages = RemediatorPages(store, metrics, registry, clock, token, worker.wake, worker.alive)
    for warning in policies.warnings():
        log.warning("%s", warning)
    try:
        _run(settings, pages, worker, web_config, stop)
    finally:
        engine.dispose()
        lock.release()


def build_drivers(settings: RemediatorSettings) -> dict[str, Driver]:
    """Return the drivers that the configuration names; raise ConfigError."""
    drivers: dict[str, Driver] = {}
    if "local" in settings.driver and settings.local_launcher_url and settings.local_launcher_token_file:
        token = read_token("--local-launcher-token-file", settings.local_launcher_token_file)
        drivers["local"] = LocalDriver(settings.local_launcher_url, token, settings.http_timeout)
    if "slurm" in settings.driver:
        users = allowed_users(settings.slurm_allow_user)
        client = slurm_client(settings.slurm_bin_dir, settings.slurm_timeout)
        drivers["slurm"] = SlurmDriver(client, users, settings.slurm_interval)
    return drivers


def _run(
    settings: RemediatorSettings,
    pages: RemediatorPages,
    worker: Worker,
    web_config: ReloadingWebConfig | None,
    stop: threading.Event,
) -> None:
    try:
        server = pages.server(settings.listen_address, web_config)
    except OSError as error:
        raise ConfigError([f"--web.listen-address: {error.filename}: {error.strerror}"]) from None
    with server, port_file(settings.port_file, server.bound[0]):
        log.info("listening on %s with policy %s", server.bound[0], settings.policy)
        if not settings.driver:
            log.warning("no --driver is given: decisions are recorded, and nothing is restarted")
        try:
            worker.start()
            server.start()
            stop.wait()
        finally:
            log.info("stopping")
            server.stop()
            worker.stop()
