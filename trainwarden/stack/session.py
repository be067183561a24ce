"""Runs one command with the whole stack around it, from start to end, for `trainwarden up` and the demo."""

from __future__ import annotations

import contextlib
import math
import secrets
import signal
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

from trainwarden.clients.http import HttpAuth, HttpClient, HttpError
from trainwarden.clients.prometheus import PrometheusClient
from trainwarden.record import thresholds
from trainwarden.record.document import JsonObject, read_json
from trainwarden.record.folder import LOG, METADATA
from trainwarden.report.command import report, write_page
from trainwarden.report.timeline import Timeline, timeline
from trainwarden.stack import launcher
from trainwarden.stack.binaries import Tools
from trainwarden.stack.budgets import RestartPolicy, restartable, watched
from trainwarden.stack.launcher import Job, JobLauncher, Launcher
from trainwarden.stack.launcher_server import LauncherServer
from trainwarden.stack.local_stack import LocalStack, StackSettings, write_secret
from trainwarden.stack.run_recorder import RunRecorder
from trainwarden.stack.scheduled_launcher import ScheduledCommand, ScheduledLauncher, SchedulerCluster
from trainwarden.stack.service import ServiceFailed
from trainwarden.stack.slack_sink import Message, SlackSink
from trainwarden.stack.terminal import CommandOutput, Terminal
from trainwarden.stack.watch import Watcher

# The page about the run, in the state folder.
REPORT = "report.html"
_TICK_SECONDS = 0.3
_ANSWER_SECONDS = 5
# How long to wait after the command's end for an alert, a decision or a message that is under way.
_DECISION_SECONDS = 90.0
# How long the alert of an end takes: sample, scrape, evaluation and the wait for its group.
_REPORT_SECONDS = 20.0
_REVIVE_SECONDS = 3.0
# Of the page of a run that was given up: its rules are evaluated every 30 s, and wait for what is known of the run.
_DELIVERY_SECONDS = 75.0
# Incidents that cannot lead to another start.
_GIVEN_UP = ("SUPPRESSED", "ESCALATED", "ADOPTED", "FAILED")
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class UpRequest:
    """The command to run and watch. `policy` is the remediator's, `restarts` the one that the run then has.

    `environment` is the command's; without `slack_url` messages are printed.

    Logs and packs that the run names are read in `log_roots` alone. With `cluster` the command is a job there.
    """

    command: Sequence[str]
    run_id: str
    state_dir: Path
    runs_dir: Path
    environment: Mapping[str, str]
    policy: str
    restarts: RestartPolicy
    log_roots: Sequence[Path] = ()
    slack_url: str | None = None
    grace_seconds: float = 5.0
    ports: Mapping[str, int] = field(default_factory=dict)
    show_output: bool = True
    keep: bool = False
    open_report: bool = False
    cluster: SchedulerCluster | None = None


@dataclass(frozen=True)
class Outcome:
    """The job at its end, its messages and its timelines."""

    job: Job
    interrupted: bool
    fired: frozenset[str]
    incidents: Sequence[Mapping[str, Any]]
    messages: Sequence[Message]
    timelines: Sequence[Timeline]


class Session:
    """Starts all services, runs the command until no alert or restart can follow, stops all."""

    def __init__(
        self,
        request: UpRequest,
        tools: Tools,
        terminal: Terminal,
        on_end: Callable[[Outcome], None] = lambda _outcome: None,
    ) -> None:
        self._request = request
        self._on_end = on_end
        self._tools = tools
        self._terminal = terminal
        # A plain flag: a handler that interrupts an Event's own code would deadlock.
        self._interrupted = False
        self._folder = request.runs_dir / request.run_id
        self._jobs: SimpleQueue[tuple[float, Job]] = SimpleQueue()
        self._next_job: tuple[float, Job] | None = None
        self._looked = time.monotonic()

    def run(self) -> Outcome:
        """Run until the command has ended for good; call `on_end` before services are stopped or kept.

        Raises ServiceFailed, PortBusy, OSError or KeyboardInterrupt before the command starts.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._catching_signals())
            sink = SlackSink(self._terminal.box)
            stack.callback(sink.close)
            job_launcher: Launcher | ScheduledLauncher
            if self._request.cluster is not None:
                job_launcher = self._request.cluster.launcher(self._scheduled())
                driver = self._request.cluster.flags(self._request.run_id, self._request.state_dir)
            else:
                job_launcher = self._launcher()
                driver = self._serve(job_launcher, stack)
            services = self._services(sink, driver)
            stack.callback(services.stop)
            services.start()
            if self._interrupted:
                raise KeyboardInterrupt
            if isinstance(job_launcher, ScheduledLauncher):
                job_launcher.submit()
            self._print_urls(services)
            self._terminal.event("watching", watched(self._request.environment))
            return self._follow(services, job_launcher, sink)

    def interrupt(self) -> None:
        """Stop early, as Ctrl-C does."""
        self._interrupted = True

    def _follow(self, services: LocalStack, job_launcher: Launcher | ScheduledLauncher, sink: SlackSink) -> Outcome:
        prometheus = PrometheusClient(services.prometheus_url)
        auth = HttpAuth(token=services.remediator_token)
        remediator = HttpClient(services.remediator_url, _ANSWER_SECONDS, auth=auth)
        self._print_restartable(remediator)
        keys = f"local:{job_launcher.job.job_id}:" if isinstance(job_launcher, Launcher) else job_launcher.keys
        watcher = Watcher(
            self._folder, keys, prometheus, remediator, self._terminal, self._print_jobs,
            is_over=lambda: job_launcher.job.over,
        )  # fmt: skip
        output = CommandOutput(self._folder / LOG, self._terminal if self._request.show_output else None)
        thread = threading.Thread(target=job_launcher.run, name="launcher", daemon=True)
        thread.start()
        try:
            while not self._finished(job_launcher, watcher, sink):
                watcher.poll()
                self._print_jobs()
                output.poll()
                self._keep_up(services)
                if not thread.is_alive():
                    message = "the launcher has ended without being asked; the command may still run"
                    raise ServiceFailed(message)
                time.sleep(_TICK_SECONDS)
        finally:
            job_launcher.close()
            thread.join()
            output.poll()
        job = job_launcher.job
        watcher.poll()
        self._print_jobs()
        timelines = [timeline(each, self._record(), prometheus) for each in watcher.incidents]
        outcome = Outcome(job, self._interrupted, frozenset(watcher.fired), watcher.incidents, sink.messages, timelines)
        self._print_end(outcome)
        self._write_report(prometheus, watcher.incidents)
        self._on_end(outcome)
        if self._request.keep and not self._interrupted:
            self._terminal.event("kept", "the stack stays up; Ctrl-C ends it")
            self._print_urls(services)
            while not self._interrupted:
                time.sleep(_TICK_SECONDS)
        return outcome

    def _write_report(self, prometheus: PrometheusClient, incidents: Sequence[Mapping[str, Any]]) -> None:
        """Write the page about the run while its Prometheus is there to be asked, and print where it is."""
        path = self._request.state_dir / REPORT
        try:
            write_page(path, report(self._folder, prometheus=prometheus, incidents=incidents).html)
        except OSError as error:
            self._terminal.event("look at", f"the report could not be written to {path}: {error.strerror}")
            return
        address = path.absolute().as_uri()
        self._terminal.event("look at", f"report        {address}")
        if self._request.open_report and not self._interrupted and not webbrowser.open(address):
            self._terminal.event("look at", "no browser was found that opens it: $BROWSER names one")

    def _keep_up(self, services: LocalStack) -> None:
        """Restart services that ended by themselves, but not in a tight loop."""
        if time.monotonic() - self._looked >= _REVIVE_SECONDS:
            self._looked = time.monotonic()
            for sentence in services.revive():
                self._terminal.event("service", sentence)

    def _finished(self, job_launcher: JobLauncher, watcher: Watcher, sink: SlackSink) -> bool:
        """Return whether the command has ended and no alert, decision or message is outstanding."""
        if self._interrupted:
            return True
        job = job_launcher.job
        if not job.over or job.ended is None:
            return False
        since = time.time() - job.ended
        if job.state == launcher.CANCELLED:
            return True
        incident = watcher.incident_of(job.attempt_key)
        if incident is None and job.state == launcher.COMPLETED:
            return self._reported("TrainRunSucceeded", watcher, sink) or since > _DELIVERY_SECONDS
        if incident is None:
            return since > _DECISION_SECONDS
        if incident["state"] not in _GIVEN_UP:
            return job.state == launcher.COMPLETED and since > _DELIVERY_SECONDS
        alert = "TrainRunRestartExhausted" if incident["action"] == "escalate" else incident["alert"]
        return self._reported(alert, watcher, sink) or since > _DELIVERY_SECONDS

    def _reported(self, alert: str, watcher: Watcher, sink: SlackSink) -> bool:
        """Return whether the message about the end came; with the user's own Slack, whether the alert fired."""
        if self._request.slack_url is not None:
            return alert in watcher.fired
        return alert in watcher.fired and any(alert in message.title for message in sink.messages)

    def _serve(self, job_launcher: Launcher, stack: contextlib.ExitStack) -> list[str]:
        """Let the remediator reach the launcher; return its flags."""
        token_file = self._request.state_dir / "launcher" / "token"
        token = secrets.token_urlsafe(24)
        write_secret(token_file, token)
        server = LauncherServer(job_launcher, token)
        stack.callback(server.close)
        return [
            "--driver=local",
            f"--local-launcher-url={server.url}",
            f"--local-launcher-token-file={token_file}",
        ]

    def _environment(self) -> dict[str, str]:
        return {
            **self._request.environment,
            "TRAINWARDEN_RUN_ID": self._request.run_id,
            "TRAINWARDEN_RUNS_DIR": str(self._request.runs_dir),
        }

    def _recorder(self) -> RunRecorder:
        environment = self._environment()
        limits = thresholds.choose(None, environment)
        return RunRecorder(self._folder, limits, given=thresholds.given_stall(environment))

    def _scheduled(self) -> ScheduledCommand:
        return ScheduledCommand(
            self._request.command,
            self._request.run_id,
            folder=Path.cwd(),
            environment=self._environment(),
            log=self._folder / LOG,
            recorder=self._recorder(),
            notify=lambda job: self._jobs.put((time.time(), job)),
        )

    def _launcher(self) -> Launcher:
        log = self._folder / LOG
        log.parent.mkdir(parents=True, exist_ok=True)
        return Launcher(
            self._request.command,
            self._request.run_id,
            environment=self._environment(),
            log=log,
            recorder=self._recorder(),
            grace_seconds=self._request.grace_seconds,
            notify=lambda job: self._jobs.put((time.time(), job)),
        )

    def _services(self, sink: SlackSink, driver: Sequence[str]) -> LocalStack:
        settings = StackSettings(
            state_dir=self._request.state_dir,
            runs_dir=self._request.runs_dir,
            slack_url=self._request.slack_url or sink.url,
            policy=self._request.policy,
            log_roots=self._request.log_roots,
            driver=driver,
            ports=self._request.ports,
        )
        return LocalStack(settings, self._tools)

    def _record(self) -> Mapping[str, Any]:
        document = read_json(self._folder / METADATA)
        return document.values if isinstance(document, JsonObject) else {}

    def _print_urls(self, services: LocalStack) -> None:
        for name, url in (
            ("Prometheus", f"{services.prometheus_url}/alerts"),
            ("Alertmanager", f"{services.alertmanager_url}/#/alerts"),
            ("exporter", f"{services.exporter_url}/metrics"),
            ("remediator", f"{services.remediator_url}/metrics"),
            ("run record", str(self._folder)),
        ):
            self._terminal.event("look at", f"{name:<13} {url}")

    def _print_restartable(self, remediator: HttpClient) -> None:
        try:
            incidents = remediator.get("/api/v1/incidents", {"run_id": self._request.run_id}).json()
        except HttpError:
            incidents = []
        known = incidents if isinstance(incidents, list) else []
        self._terminal.event("watching", restartable(self._request.restarts, known))

    def _print_jobs(self, until: float = math.inf) -> None:
        """Print what the launcher did up to a Unix time."""
        while self._next_job is not None or not self._jobs.empty():
            changed, job = self._next_job = self._next_job or self._jobs.get()
            if changed > until:
                return
            self._next_job = None
            self._print_job(job)

    def _print_job(self, job: Job) -> None:
        if job.state == launcher.RUNNING:
            kind, text = ("restart", "started again") if job.generation else ("run", "started")
        elif job.state == launcher.STOPPING:
            kind = "run" if self._interrupted else "restart"
            text = "is being ended: SIGTERM, then SIGKILL"
        elif any(number > job.generation for number in job.tokens.values()):
            kind, text = "restart", "has ended for the restart"
        else:
            code = job.exit_code or 0
            how = f"signal {-code}" if code < 0 else f"status {code}"
            kind, text = ("good" if job.state == launcher.COMPLETED else "run"), f"{job.state}, {how}"
            if job.state in {launcher.COMPLETED, launcher.FAILED} and not self._interrupted:
                text += f"; its alert and what follows from it come within about {_REPORT_SECONDS:.0f} s"
        self._terminal.event(kind, f"{job.attempt_key} {text}")

    def _print_end(self, outcome: Outcome) -> None:
        for each in outcome.timelines:
            self._terminal.write("\n" + "\n".join(each.lines()) + "\n")
        self._terminal.write("\n")
        if outcome.interrupted:
            how = "was interrupted"
        elif outcome.job.state == launcher.CANCELLED:
            how = "was ended from outside, and stays ended"
        else:
            how = f"has {outcome.job.state}, status {outcome.job.exit_code}"
        attempts = f"{outcome.job.generation + 1} attempt{'s' if outcome.job.generation else ''}"
        self._terminal.event("end", f"the run {how} after {attempts}; all about it is in {self._request.state_dir}")

    @contextlib.contextmanager
    def _catching_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(_number: int, _frame: FrameType | None) -> None:
            self.interrupt()

        # The parent may have blocked them, and child processes would inherit that.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
        before = {number: signal.signal(number, on_signal) for number in _INTERRUPTS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
