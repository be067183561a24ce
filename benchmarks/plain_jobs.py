"""A queue of many jobs that use no library: what `trainwarden slurm watch` and the exporter take for them."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.scrapes_client import Client
from benchmarks.scrapes_process import cpu_seconds, pss_mib
from benchmarks.tables import Table, verdict
from tests.unit.clients.slurm.commands import FakeSlurm, job_22_05
from tests.waiting import wait_until
from trainwarden.jobs.configuration import JobRule, JobsConfiguration
from trainwarden.jobs.slurm_watch import SlurmWatch

JOBS = 1000
LOOKS = 4
# Between two looks of the service.
_INTERVAL_SECONDS = 15.0
# Of each job in that time.
_LINES = 15
_LINE = "iteration {step:8d}/  100000 | consumed samples: {step:12d} | lm loss: 2.{step:06d}E+00 | grad norm: 1.234 |\n"
# Of one core: what is left is for the jobs' own file system, and for more jobs.
_CPU_TARGET = 0.5
_SCRAPE_TARGET = 1.0


def measure() -> list[Table]:
    """Look at the queue several times, with new lines in all logs; then let an exporter read the records."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "bin").mkdir()
        slurm = FakeSlurm(folder / "bin")
        slurm.jobs([_job(number, folder) for number in range(1, JOBS + 1)])
        watch = SlurmWatch(slurm.client(60), JobsConfiguration(folder / "runs", rules=(JobRule({"name": ("train",)}),)))
        try:
            first = _look(watch, folder, 0)
            later = [_look(watch, folder, each) for each in range(1, LOOKS)]
        finally:
            watch.close()
        wall, cpu = (max(each[index] for each in later) for index in (0, 1))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        exported = _exporter(folder)
    share = cpu / _INTERVAL_SECONDS
    rows = [
        [f"first look at {JOBS:,} jobs: seconds (CPU)", f"{first[0]:.1f} ({first[1]:.1f})", "", ""],
        [f"each further look, {_LINES} lines of each job: seconds (CPU)", f"{wall:.1f} ({cpu:.1f})", "", ""],
        [
            f"… CPU against the {_INTERVAL_SECONDS:g} s between two looks",
            f"{share:.2f}",
            f"{_CPU_TARGET}",
            verdict(share <= _CPU_TARGET),
        ],
        ["the most memory of the watch", f"{memory:.0f} MiB", "", ""],
        *exported,
    ]
    return [Table(("", "measured", "target", ""), rows)]


def _job(number: int, folder: Path) -> dict[str, object]:
    return job_22_05(
        number,
        comment="",
        restart_cnt=0,
        user_id=os.getuid(),
        current_working_directory=str(folder),
        standard_output=f"{number}.out",
    )


def _look(watch: SlurmWatch, folder: Path, count: int) -> tuple[float, float]:
    """Let each job print, and look; return the seconds and the CPU seconds that the look took."""
    lines = "".join(_LINE.format(step=count * _LINES + each) for each in range(1, _LINES + 1))
    for number in range(1, JOBS + 1):
        with (folder / f"{number}.out").open("a", encoding="utf-8") as file:
            file.write(lines)
    before, began = _cpu(), time.monotonic()
    if not watch.look(600.0):
        raise RuntimeError("the commands of SLURM gave no answer")
    return time.monotonic() - began, _cpu() - before


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _exporter(folder: Path) -> list[list[str]]:
    """The rows about an exporter that reads the records."""
    port_file = folder / "port"
    command = [sys.executable, "-m", "trainwarden_exporter", "--collector.disable-defaults", "--collector.runs"]
    command += ["--collector.logs", f"--collector.runs.path={folder}/runs", "--collector.runs.scope=all"]
    command += [f"--collector.logs.state={folder}/state", "--web.listen-address=127.0.0.1:0"]
    process = subprocess.Popen([*command, f"--web.port-file={port_file}"], stderr=subprocess.DEVNULL)
    try:
        wait_until(port_file.exists, "the exporter listens", timeout=120)
        client = Client(int(port_file.read_text().rpartition(":")[2]))
        wait_until(lambda: _logs(client, "followed") == JOBS, f"{JOBS} logs are followed", timeout=300)
        before, began = cpu_seconds(process.pid), time.monotonic()
        longest = 0.0
        for _ in range(6):
            longest = max(longest, client.scrape())
            time.sleep(5.0)
        share = (cpu_seconds(process.pid) - before) / (time.monotonic() - began)
        memory, dropped = pss_mib(process.pid), _logs(client, "dropped")
        client.close()
    finally:
        process.terminate()
        process.wait(60)
    return [
        [
            "the exporter: longest of six scrapes",
            f"{longest:.2f} s",
            f"{_SCRAPE_TARGET:g} s",
            verdict(longest <= _SCRAPE_TARGET),
        ],
        ["… CPU of a core, a scrape every 5 s", f"{share:.2f}", "", ""],
        ["… memory", f"{memory:.0f} MiB", "", ""],
        ["… logs beyond its limit", f"{dropped:.0f}", "0", verdict(dropped == 0)],
    ]


def _logs(client: Client, outcome: str) -> float:
    """How many logs the exporter follows, or does not for their number."""
    name = f'trainwarden_log_files{{outcome="{outcome}"}} '
    return sum(float(line.split()[1]) for line in client.page().decode().splitlines() if line.startswith(name))
