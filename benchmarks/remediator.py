"""What the remediator takes: alerts in a storm, the way from an alert to a command, many incidents, a long queue."""

import http.client
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.rounds import quantile
from benchmarks.scrapes_process import pss_mib
from benchmarks.scripted_cluster import ScriptedSlurm, Services, alert, webhook
from benchmarks.tables import Table, verdict

_TOKEN = "benchmark"  # noqa: S105  # of a service that lives as long as the benchmark
_STORM_ALERTS, _STORM_RUNS, _SENDERS = 1000, 500, 8
_TRIALS = 40
_READ_SECONDS, _ALLOWED_SECONDS = (0.05, 0.5), 1.0
_INCIDENTS, _SLOW_SECONDS, _ACTED_SECONDS = 20, 2.0, 10.0
_JOBS, _JOB_BYTES, _QUEUE_MIB = 10_000, 10_000, 150.0
_POLICY = """\
policies:
  - {mode: stall, implementation: {class_name: AlwaysRestartPolicy, max_retries: 2}}
  - {mode: timeout, implementation: {class_name: AlwaysRestartPolicy, max_retries: 2}}
"""


def measure() -> list[Table]:
    """Each with a process of its own, on loopback."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [*_storm(folder / "storm"), *_latencies(folder), _many(folder / "many"), _queue(folder / "queue")]
    note = (
        "The remediator as a process with SLURM's commands as scripts that sleep. Alerts: a webhook each, over "
        f"{_SENDERS} connections; the commits of plain SQLite (WAL, synchronous=FULL) hold the same bodies. An alert "
        "counts as acted on when `scontrol requeuehold` was started."
    )
    return [Table(["", "measured", "target", ""], rows, note)]


class _Remediator:
    """One, in `folder`, and the client of its webhook."""

    def __init__(self, folder: Path, services: Services, slurm: ScriptedSlurm, *flags: str) -> None:
        for name, text in (("token", _TOKEN), ("policy.yaml", _POLICY)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        self._port_file = folder / "port"
        argv = [
            *(sys.executable, "-m", "trainwarden_remediator", "--web.listen-address=127.0.0.1:0"),
            *(f"--web.port-file={self._port_file}", f"--state-dir={folder / 'state'}"),
            *(f"--webhook-token-file={folder / 'token'}", f"--policy={folder / 'policy.yaml'}"),
            *(f"--alertmanager-url={services.url}", f"--prometheus-url={services.url}"),
            *("--driver=slurm", f"--slurm-bin-dir={slurm.folder}", "--mode-of-action=act", "--log.level=warning"),
            *flags,
        ]
        self.process = subprocess.Popen(argv)
        _await(self._is_ready)
        host, _, port = self._port_file.read_text().strip().rpartition(":")
        self._address = host, int(port)

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the remediator has ended with status {self.process.returncode}")
        if not self._port_file.exists():
            return False
        host, _, port = self._port_file.read_text().strip().rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        try:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == 200
        finally:
            connection.close()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self._address, timeout=60)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(300)  # a round that has begun is ended, which may read the whole queue


@contextmanager
def _running(
    folder: Path, count: int, seconds: float, *flags: str, padding: int = 0
) -> Iterator[tuple[_Remediator, Services, ScriptedSlurm]]:
    folder.mkdir()
    slurm = ScriptedSlurm(folder / "slurm", count, seconds, padding)
    services = Services(slurm)
    remediator = _Remediator(folder, services, slurm, *flags)
    try:
        yield remediator, services, slurm
    finally:
        remediator.end()
        services.close()


def _storm(folder: Path) -> list[list[str]]:
    names = (("TrainRunStalled", "stall"), ("TrainRunTimedOut", "timeout"))
    alerts = [alert(number % _STORM_RUNS + 1, *names[number // _STORM_RUNS]) for number in range(_STORM_ALERTS)]
    bodies = [webhook([each]) for each in alerts]
    with _running(folder, _STORM_RUNS, 0.1) as (remediator, services, _):
        services.alerts = alerts
        begun = time.perf_counter()
        latencies = sorted(_send(remediator, bodies))
        rate = len(bodies) / (time.perf_counter() - begun)
        remediator.process.kill()
        remediator.process.wait()
        with sqlite3.connect(next((folder / "state").glob("*.sqlite3"))) as database:
            (kept,) = database.execute("SELECT count(*) FROM alerts").fetchone()
    commits, plain = _plain_commits(folder / "plain.db", bodies)
    p99, plain_p99 = 1e3 * quantile(latencies, 0.99), 1e3 * quantile(sorted(plain), 0.99)
    return [
        [f"{_STORM_ALERTS:,} alerts of {_STORM_RUNS} runs: accepted a second", f"{rate:.0f}", "", ""],
        ["… on record after SIGKILL", f"{kept:,}", f"{_STORM_ALERTS:,}", verdict(kept == _STORM_ALERTS)],
        ["… p99 of an answer", f"{p99:.0f} ms", "", ""],
        ["plain commits of SQLite a second, one connection", f"{commits:.0f}", "", ""],
        ["… p99 of a commit", f"{plain_p99:.1f} ms", "", ""],
        ["alerts a second against plain commits", f"{rate / commits:.2f}", "", ""],
    ]


def _send(remediator: _Remediator, bodies: Sequence[bytes]) -> list[float]:
    """Send each, over several connections; return the seconds until each was answered with 200."""
    waiting, took = iter(bodies), []
    lock = threading.Lock()

    def sender() -> None:
        connection = remediator.connect()
        while True:
            with lock:
                body = next(waiting, None)
            if body is None:
                return connection.close()
            begun = time.perf_counter()
            connection.request("POST", "/alertmanager/webhook", body, {"Authorization": f"Bearer {_TOKEN}"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"the webhook was answered with {answer.status}")
            took.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=sender) for _ in range(_SENDERS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if len(took) != len(bodies):
        raise RuntimeError(f"{len(bodies) - len(took)} webhooks were not accepted")
    return took


def _plain_commits(path: Path, bodies: Sequence[bytes]) -> tuple[float, list[float]]:
    """Return commits a second of one row each, and the seconds of each."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE alerts (number INTEGER PRIMARY KEY, body BLOB)")
    took = []
    for body in bodies:
        begun = time.perf_counter()
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO alerts (body) VALUES (?)", (body,))
        database.execute("COMMIT")
        took.append(time.perf_counter() - begun)
    database.close()
    return len(took) / sum(took), took


def _latencies(folder: Path) -> list[list[str]]:
    return [_latency(folder / f"latency-{seconds}", seconds) for seconds in _READ_SECONDS]


def _latency(folder: Path, seconds: float) -> list[str]:
    """One incident after the other: from the webhook to the start of the command that ends the attempt."""
    took = []
    with _running(folder, _TRIALS, seconds, f"--storm-runs={_TRIALS + 1}") as (remediator, services, slurm):
        for number in range(1, _TRIALS + 1):
            services.alerts = [alert(number)]
            begun = time.time()
            _send(remediator, [webhook(services.alerts)])
            took.append(_await(partial(_first_call, slurm, number)) - begun)
            _await(partial(slurm.has_restarted, number))
    p99, allowed = quantile(sorted(took), 0.99), seconds + _ALLOWED_SECONDS
    what = f"alert to command, {_TRIALS} incidents one by one, each command of SLURM takes {seconds:g} s: p99 (median)"
    measured = f"{p99:.2f} s ({quantile(sorted(took), 0.5):.2f} s)"
    return [what, measured, f"{allowed:.2f} s", verdict(p99 <= allowed)]


def _first_call(slurm: ScriptedSlurm, number: int) -> float | None:
    return slurm.calls("requeuehold").get(number)


def _many(folder: Path) -> list[str]:
    flags = f"--storm-runs={_INCIDENTS + 1}", f"--max-actions={_INCIDENTS}"
    with _running(folder, _INCIDENTS, _SLOW_SECONDS, *flags) as (remediator, services, slurm):
        services.alerts = [alert(number) for number in range(1, _INCIDENTS + 1)]
        begun = time.time()
        _send(remediator, [webhook(services.alerts)])
        _await(lambda: len(slurm.calls("requeuehold")) == _INCIDENTS)
        last = max(slurm.calls("requeuehold").values()) - begun
    what = f"{_INCIDENTS} incidents at once, SLURM takes {_SLOW_SECONDS:g} s: the last is acted on after"
    return [what, f"{last:.1f} s", f"{_ACTED_SECONDS:g} s", verdict(last <= _ACTED_SECONDS)]


def _queue(folder: Path) -> list[str]:
    with _running(folder, _JOBS, 0.0, padding=_JOB_BYTES) as (remediator, services, slurm):
        services.alerts = [alert(1)]
        _send(remediator, [webhook(services.alerts)])
        most = 0.0

        def is_released() -> bool:
            nonlocal most
            most = max(most, pss_mib(remediator.process.pid))
            return bool(slurm.calls("release"))

        _await(is_released)
    what = f"the most memory with {_JOBS:,} jobs of {_JOB_BYTES // 1000} kB in the queue, while a run is restarted"
    return [what, f"{most:.0f} MiB", f"{_QUEUE_MIB:.0f} MiB", verdict(most < _QUEUE_MIB)]


def _await(condition: Callable[[], object], seconds: float = 300.0) -> float:
    """Return the first true answer, asked every 20 ms."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {seconds:g} s")
        time.sleep(0.02)
    return float(answer) if isinstance(answer, (int, float)) else 0.0
