"""Every query of the dashboards, put to a real Prometheus that scrapes the exporter and the remediator.

The exporter shows the records of two runs of the library, the stand-in of NVIDIA's driver and the files of a node that
is half dead; the shipped rules are loaded. What only a cluster or a longer time can show is named in `SIMULATED`: there
`tests/incidents/test_dashboard_data.py` has the data.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.remediator.conftest import Process
from tests.integration.remediator.fake_services import FakeServices, World, as_webhook
from tests.nodes.drivers import environment
from tests.nodes.fixtures import NODES
from tests.prometheus import running_prometheus
from tests.rules.dashboards import DASHBOARDS, VALUES, Question, questions
from tests.rules.promtool import ROOT
from tests.waiting import wait_until
from trainwarden.clients.prometheus import PrometheusClient
from trainwarden.stack.binaries import Tools
from trainwarden.stack.ports import free_port

pytestmark = [pytest.mark.tools, pytest.mark.nightly, pytest.mark.timeout(600)]
NODE = "half_dead"
STEP = 15.0
TRAINING = """
import sys, time, trainwarden
fails, total = sys.argv[1] == "r0", 60 if sys.argv[1] == "r2" else 100_000
with trainwarden.run(sys.argv[1], total_steps=total, model="llama", method="lora") as run:
    for step in range(1, total + 1):
        run.section("data")
        time.sleep(0.05)
        run.section("backward")
        run.step(step, loss=2.0, learning_rate=1e-4, grad_norm=1.0, tokens=4096, samples=8)
        if step % 50 == 0:
            with open(f"{sys.argv[1]}-{step}.bin", "wb") as file:
                file.write(b"weights")
            with run.phase("checkpoint"):
                run.checkpoint_saved(file.name, step)
        if fails and step == 60:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
"""
# Queries that nothing of this test answers, by what they would need.
SIMULATED: dict[str, tuple[str, ...]] = {
    "GPUs of a run: a job of SLURM, or a process that the driver shows": (
        *(f"train-fleet: {name} A" for name in (
            "A restart of all runs would lose", "Cost in this time", "GPU hours lost in this time", "Goodput",
            "Goodput and ETTR", "Lost per hour", "What the GPUs do",
        )),
        *("train-node: Jobs on this node A", "train-node: Jobs on this node B"),
        *(f"train-run: GPUs at work {letter}" for letter in "ABC"),
        *("train-run: Power of the GPUs A", "train-run: Packets sent again A"),
        *(f"train-run: Sent and received over the network {letter}" for letter in "ABCD"),
        *(f"train-run: Trouble in the network {letter}" for letter in "ABCDE"),
        *("train-run: What a restart would cost now A", "train-run: What a restart would cost now B"),
        *("train-finetuning: GPUs at work A", "train-finetuning: Memory of the GPUs in use A"),
    ),
    "a file of trainwarden metrics-server": (
        "train-finetuning: Reads of that file without a value A",
        "train-finetuning: Since the job's file was written A",
    ),
    "a check by trainwarden validate-job": (
        "train-finetuning: Checks A", "train-finetuning: Checks B", "train-finetuning: Last check A",
    ),
    "a run that waits, or was cancelled": (
        *("train-fleet: Runs E", "train-fleet: Runs F", "train-finetuning: Jobs C"),
        *("train-finetuning: Paused A", "train-finetuning: Pending A"),
    ),
    "ranks that are slow or silent": ("train-run: Suspects A", "train-run: Suspects B", "train-run: Suspects C"),
    "a collector that fails or hangs, and a clock that can be asked": (
        *("train-fleet: Collectors that fail or hang A", "train-node: Collectors that hang A"),
        *("train-node: Clock A", "train-node: Collectors C"),
    ),
    "a run of which no exporter tells": (
        "train-fleet: Runs and sources that nobody sees A", "train-fleet: Runs and sources that nobody sees B",
    ),
    "InfiniBand, where this node has EFA": (
        *("train-node: InfiniBand A", "train-node: InfiniBand B", "train-node: Network ports down B"),
        *("train-node: Trouble of InfiniBand A", "train-node: Trouble of InfiniBand B"),
    ),
    "what the kernel reports while it is watched": ("train-node: What the kernel reported A", "train-node: XIDs A"),
    "alerts of a node or of the remediator, which wait for minutes": (
        *("train-node: Alerts on this node A", "train-node: Firing now A", "train-node: annotation Alerts"),
        "train-remediation: annotation Alerts",
    ),
    "a remediator that gives up, refuses, holds a job of SLURM, only observes, or posts to people": (
        *(f"train-remediation: {name} A" for name in (
            "Alerts that await a decision", "Given up", "Given up and refused, with the reason", "Jobs that it holds",
            "Messages to people",
            "Right, of the restarts it would have made", "Score of the policies that only observe",
            "Since it last heard",
        )),
        "train-remediation: Messages to people B",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def prometheus(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PrometheusClient, str]]:
    """A Prometheus with all that, and the address of the exporter."""
    folder = tmp_path_factory.mktemp("dashboards")
    with ExitStack() as stack:
        exporter = _exporter(stack, folder)
        world = World()
        remediator = _remediator(stack, tmp_path_factory.mktemp("remediator"), world)
        # The second exporter does not answer.
        targets = {
            "trainwarden-exporter": [exporter, f"127.0.0.1:{free_port()}"],
            "trainwarden-remediator": [remediator.url.removeprefix("http://")],
        }
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [f"{ROOT}/rules/recording/*.yml", f"{ROOT}/rules/alerts/*.yml"],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": addresses, "labels": {"cluster": "c1"}}]}
                for job, addresses in targets.items()
            ],
        }
        client = stack.enter_context(running_prometheus(tools, folder, configuration))
        wait_until(lambda: len(client.query("up")) == 3, "the first scrapes")
        _trainings(stack, folder, client)
        remediator.send(as_webhook(world.alert()))
        remediator.incident("DONE")
        world.recovers = False
        remediator.send(as_webhook(world.alert()))
        remediator.incident("VERIFYING")
        yield client, exporter


def _exporter(stack: ExitStack, folder: Path) -> str:
    """Start an exporter of the node, and return its address."""
    (folder / "drivers").mkdir()
    port_file = folder / "port"
    command = [
        sys.executable, "-m", "trainwarden_exporter", "--web.listen-address=127.0.0.1:0", "--instance-host=node1",
        f"--web.port-file={port_file}", f"--collector.runs.path={folder / 'runs'}", "--collector.runs.scope=all",
        "--compat.finetuning", *NODES[NODE](folder / "node").flags,
    ]  # fmt: skip
    log = stack.enter_context((folder / "exporter.log").open("wb"))
    process = subprocess.Popen(command, env=environment(NODE, folder / "drivers"), stderr=log)
    stack.callback(_end, process)
    wait_until(lambda: port_file.exists() or process.poll() is not None, "the exporter to serve")
    assert process.poll() is None, (folder / "exporter.log").read_text(encoding="utf-8")
    return port_file.read_text(encoding="utf-8").strip()


def _trainings(stack: ExitStack, folder: Path, client: PrometheusClient) -> None:
    """Start a run that trains, twice, so that it has a second attempt, one that fails and one that succeeds."""
    variables = {**os.environ, "TRAINWARDEN_RUNS_DIR": str(folder / "runs"), "TRAINWARDEN_STALL_SECONDS": "60"}
    log = stack.enter_context((folder / "training.log").open("wb"))

    def start(run: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", TRAINING, run], cwd=folder, env=variables, stderr=log)
        stack.callback(_end, process)
        return process

    ending = [start("r0"), start("r2")]
    first = start("r1")
    wait_until(lambda: client.query('training_checkpoint_step{run_id="r1"} >= 500'), "some checkpoints")
    first.kill()
    first.wait()
    start("r1")
    for process in ending:
        process.wait()


def _remediator(stack: ExitStack, folder: Path, world: World) -> Process:
    """Start a remediator of that world."""
    services = FakeServices(world)
    stack.callback(services.close)
    process = Process(folder, services)
    stack.callback(process.close)
    process.start()
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(60)


def ask(client: PrometheusClient, question: Question, values: dict[str, str]) -> bool:
    """Put a question as a panel does, at once and over a range; raise for an error, return whether there was data."""
    expr, now = question.asked(values), time.time()
    return bool(client.query(expr)) | bool(client.query_range(expr, now - 600, now, STEP))


def test_every_query_is_answered_and_has_data_or_is_known_to_have_none(
    prometheus: tuple[PrometheusClient, str],
) -> None:
    client, exporter = prometheus
    chosen = [
        {**VALUES, "$run": run, "$rank": "0", "$node": "node1", "$instance": exporter} for run in ("r1", "r0", "run-1")
    ]
    wait_until(lambda: client.query('ALERTS{run_id="r0",alertstate="firing"}'), "the alert of the run that failed")
    known = {name for names in SIMULATED.values() for name in names}
    every = [question for path in DASHBOARDS for question in questions(path)]
    assert known <= {question.where for question in every}
    waiting = {question for question in every if question.where not in known}
    for question in every:
        ask(client, question, chosen[0])

    def answered() -> bool:
        # What is recorded each half a minute, or each two of what came of restarts, comes later.
        waiting.difference_update(
            [question for question in waiting if any(ask(client, question, values) for values in chosen)]
        )
        return not waiting

    wait_until(answered, lambda: f"without data: {sorted(question.where for question in waiting)}", timeout=240)


def test_a_query_that_is_wrong_is_seen(prometheus: tuple[PrometheusClient, str]) -> None:
    client, _ = prometheus
    with pytest.raises(Exception, match=r"parse error|unknown function"):
        ask(client, Question("wrong", "summ(up)"), {})
