"""Assembles the service and runs it until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry

from trainwarden.clients.alertmanager import AlertmanagerClient
from trainwarden.clients.http import HttpClient
from trainwarden.clients.prometheus import PrometheusClient
from trainwarden.server.address import port_file
from trainwarden.server.web_config import ReloadingWebConfig
from trainwarden_remediator.act.act import Actor, Answer
from trainwarden_remediator.act.calls import ThreadedCalls
from trainwarden_remediator.act.capture import Capturer
from trainwarden_remediator.act.drains import Drains
from trainwarden_remediator.act.remediate import Remediator
from trainwarden_remediator.act.resume_point import ResumePoints
from trainwarden_remediator.act.storm import Storms
from trainwarden_remediator.act.sweep import Sweeper
from trainwarden_remediator.canary_job.canary_job import CanaryHealings
from trainwarden_remediator.config import RemediatorSettings, allowed_users, canary_users, read_token
from trainwarden_remediator.database.database import Lock, open_database
from trainwarden_remediator.drivers.driver import Driver
from trainwarden_remediator.drivers.local import LocalDriver
from trainwarden_remediator.drivers.ray_access import ray_driver
from trainwarden_remediator.drivers.slurm import SlurmDriver
from trainwarden_remediator.drivers.slurm_access import find_slurm_commands, slurm_client
from trainwarden_remediator.drivers.slurm_resubmit import Resubmission
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.examine.choice import load_policies
from trainwarden_remediator.examine.examine import Examiner
from trainwarden_remediator.examine.recoverability import Outlook
from trainwarden_remediator.incidents.price import PrometheusPrices
from trainwarden_remediator.metrics import GpuHours, Metrics, RemediatorCollector
from trainwarden_remediator.notify.notify import Channel, Notifier, Slack, Sns
from trainwarden_remediator.notify.outbox import Outbox
from trainwarden_remediator.notify.run_journal import JOURNALED, RunJournal
from trainwarden_remediator.observe.alertmanagers import AlertmanagerAlerts, WatchdogCheck
from trainwarden_remediator.observe.cpu_time import CpuSource, NoCpu, SlurmCpu
from trainwarden_remediator.observe.evidence import PrometheusRuns
from trainwarden_remediator.observe.nodes import AlertedNodes
from trainwarden_remediator.observe.readings import CountedDriver, CountedRuns
from trainwarden_remediator.observe.records import Records
from trainwarden_remediator.observe.snapshot import Snapshot
from trainwarden_remediator.observe.world import SystemClock, World
from trainwarden_remediator.store.score import Scores
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers
from trainwarden_remediator.web.credentials import Credentials, Tokens
from trainwarden_remediator.web.http_config import http_client
from trainwarden_remediator.web.reloading import Reloading, policy_files
from trainwarden_remediator.web.server import RemediatorPages
from trainwarden_remediator.worker import Worker

log = logging.getLogger(__name__)


def serve(settings: RemediatorSettings, stop: threading.Event, hangup: threading.Event) -> None:
    """Serve until `stop` is set; read policies and token again when `hangup` is set.

    Raises:
        ConfigError, UsageError, StoreError: before any call to a scheduler.
    """
    token_file = settings.webhook_token_file
    token = Reloading("token", lambda: read_token("--webhook-token-file", token_file), lambda: [token_file])
    policy = Reloading(
        "policy",
        lambda: load_policies(
            settings.policy,
            settings.policy_dir,
            settings.run_policy,
            settings.mode_of_action,
            canary_job=settings.canary,
        ),
        lambda: policy_files(settings.policy, settings.policy_dir),
    )
    policies = policy.current()
    drivers = build_drivers(settings)
    alertmanagers = {
        url: AlertmanagerClient(_client("alertmanager", url, settings.alertmanager_http_config_file, settings))
        for url in settings.alertmanager_url
    }
    channels = build_channels(settings)
    prometheus = PrometheusClient(
        _client("prometheus", settings.prometheus_url, settings.prometheus_http_config_file, settings)
    )
    web_config = ReloadingWebConfig(settings.web_config_file) if settings.web_config_file else None
    clock, metrics = SystemClock(), Metrics(["prometheus", *drivers])
    alerts = AlertmanagerAlerts(alertmanagers, settings.cluster, metrics.alertmanager_answered)
    lock = Lock(settings.state_dir)
    engine = open_database(settings.state_dir)
    store = Store(engine, clock)
    outbox = Outbox(engine, clock, [channel.name for channel in channels], {RunJournal.name: JOURNALED})
    store.note_message = outbox.note
    notifier = Notifier(outbox, channels, monotonic=clock.monotonic, state_dir=str(settings.state_dir))
    timers = Timers(store.transactions, clock)
    world = World(
        clock=clock,
        alerts=alerts,
        runs=CountedRuns(PrometheusRuns(prometheus, settings.cluster), metrics.read),
        drivers={name: CountedDriver(driver, metrics.read) for name, driver in drivers.items()},
        records=Records(settings.runs_dir),
        nodes=AlertedNodes(list(alertmanagers.values()), prometheus, settings.cluster),
        prices=PrometheusPrices(prometheus, settings.cluster),
        canary_users=canary_users(settings),
        cpu=_cpu(settings, clock),
    )
    woken = threading.Event()
    calls: ThreadedCalls[Answer] = ThreadedCalls(settings.max_actions, woken.set)
    snapshot = Snapshot(world, settings.slurm_interval)
    captures = Capturer(
        settings.state_dir,
        settings.runs_dir,
        describers(settings),
        settings.capture_timeout,
        policies.checkpoint_trust,
        woken.set,
    )
    remediator = Remediator(
        snapshot.world,
        store,
        metrics,
        timers,
        Actor(world, store, policies.checkpoint_trust, withheld=policies.withheld, described=captures.described),
        calls,
        doubt_window=settings.doubt_window,
        repeat_after=settings.poll_interval,
        verify_timeout=settings.verify_timeout,
        checkpoint_trust=policies.checkpoint_trust,
        stops_unverified=policies.stops_unverified,
        withheld=policies.withheld,
        captures=captures,
    )
    scores = Scores(engine, clock, world.runs)
    examiner = Examiner(snapshot.world, store, policies, metrics, timers, remediator.failed_again, scores)

    points = ResumePoints(settings.runs_dir, in_background=True)
    outlook = Outlook(
        snapshot.world.runs,
        policies,
        lambda run, trust: points.stops(run.run_id, run.attempt_key, trust),
        store.switches.frozen,
    )
    canary_job = CanaryHealings(engine, clock, expected=settings.canary)

    watchdog = WatchdogCheck(alerts, lambda: metrics.last_watchdog, metrics.read, clock)

    def refresh() -> None:
        force = hangup.is_set()
        hangup.clear()
        for each in (policy, token):
            each.refresh(force=force)
        policies.take(policy.current())
        scores.settle()
        watchdog.look()

    sweeper = Sweeper(
        snapshot.world,
        store,
        timers,
        doubt_window=settings.doubt_window,
        cluster=settings.cluster,
        outlook=outlook,
    )
    worker = Worker(
        snapshot,
        store,
        examiner,
        remediator,
        metrics,
        timers,
        sweeper,
        Storms(snapshot.world, store, limit=settings.storm_runs, window=settings.storm_window),
        woken,
        interval=settings.poll_interval,
        busy_interval=settings.busy_interval,
        before_tick=refresh,
        drain=_drain(settings, store, clock),
    )
    registry = CollectorRegistry(auto_describe=False)
    more = (
        notifier.families,
        scores.families,
        GpuHours(engine).families,
        outlook.families,
        canary_job.families,
        sweeper.families,
    )
    registry.register(RemediatorCollector(metrics, store, web_config, (policy, token), more, clock.now))
    credentials = Credentials(Tokens(token).valid, web_config, settings.webhook_user)
    pages = RemediatorPages(store, metrics, registry, clock, credentials, worker.wake, worker.alive, settings.cluster)
    for warning in policies.warnings():
        log.warning("%s", warning)
    try:
        notifier.start()
        _run(settings, pages, worker, web_config, stop)
    finally:
        notifier.stop()
        alerts.close()
        engine.dispose()
        lock.release()


def _client(name: str, url: str, config_file: Path | None, settings: RemediatorSettings) -> HttpClient:
    return http_client(f"--{name}-http-config-file", url, config_file, settings.http_timeout)


def build_channels(settings: RemediatorSettings) -> list[Channel]:
    """Return the ways to people that the configuration names; raise ConfigError."""
    channels: list[Channel] = []
    if settings.notify_slack_url_file is not None:
        channels.append(Slack(settings.notify_slack_url_file))
    if settings.notify_sns_topic is not None:
        channels.append(Sns(settings.notify_sns_topic))
    if settings.runs_dir is not None:
        channels.append(RunJournal(settings.runs_dir))
    return channels


def build_drivers(settings: RemediatorSettings) -> dict[str, Driver]:
    """Return the drivers that the configuration names; raise ConfigError."""
    drivers: dict[str, Driver] = {}
    if "local" in settings.driver and settings.local_launcher_url and settings.local_launcher_token_file:
        token = read_token("--local-launcher-token-file", settings.local_launcher_token_file)
        drivers["local"] = LocalDriver(settings.local_launcher_url, token, settings.http_timeout)
    if "slurm" in settings.driver:
        users = allowed_users(settings.slurm_allow_user)
        client = slurm_client(settings.slurm_bin_dir, settings.slurm_timeout)
        if settings.slurm_resubmit:
            find_slurm_commands(settings.slurm_bin_dir, "--slurm-resubmit", ("sbatch", "scancel"))
        resubmission = Resubmission(client, settings.state_dir / "submissions") if settings.slurm_resubmit else None
        drivers["slurm"] = SlurmDriver(client, users, resubmission)
    if "ray" in settings.driver:
        drivers["ray"] = ray_driver(settings)
    return drivers


def _drain(settings: RemediatorSettings, store: Store, clock: SystemClock) -> Callable[[], object]:
    """Return what drains and resumes nodes; nothing where no scheduler has any, or none may be drained."""
    if "slurm" not in settings.driver or not settings.slurm_drain_nodes:
        return lambda: None
    client = slurm_client(settings.slurm_bin_dir, settings.slurm_timeout)
    return Drains(client, store, clock, settings.slurm_drain_nodes).reconcile


def _cpu(settings: RemediatorSettings, clock: SystemClock) -> CpuSource:
    if "slurm" not in settings.driver:
        return NoCpu()
    return SlurmCpu(slurm_client(settings.slurm_bin_dir, settings.slurm_timeout), clock.monotonic)


def describers(settings: RemediatorSettings) -> dict[str, Callable[[str], bytes]]:
    """Return, by the name of a driver, what shows all that its scheduler has of a job."""
    if "slurm" not in settings.driver:
        return {}
    timeout = min(settings.slurm_timeout, settings.capture_timeout / 3)
    return {"slurm": slurm_client(settings.slurm_bin_dir, timeout).described}


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
