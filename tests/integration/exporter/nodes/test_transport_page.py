"""The command tells on one page what the node has, and what the runs on it use."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.nodes.fixtures import p4d
from tests.unit.exporter.runs_tree import samples_of
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json

COMMAND = [sys.executable, "-m", "trainwarden_exporter", "--once", "--instance-host=node1"]


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """A p4d on which one run is on EFA and the other, whose environment asks for EFA, on sockets."""
    now = to_iso(time.time())
    for run_id, lines in (
        ("good", ["NET/OFI Selected Provider is efa (found 4 nics)", "Using network AWS Libfabric"]),
        ("bad", ["NET/Socket : Using [0]eth0:10.0.0.1<0>", "Using network Socket"]),
    ):
        folder = tmp_path / "runs" / run_id
        (folder / "logs").mkdir(parents=True)
        metadata = {"run_id": run_id, "status": "running", "phase": "train", "last_update": now, "host": "node1"}
        write_json(folder / "metadata.json", {**metadata, "environment": {"fi_provider": "efa"}})
        text = "".join(f"node1:{rank}:99 [{rank}] NCCL INFO {line}\n" for rank in range(8) for line in lines)
        (folder / "logs/training_log_latest.txt").write_text(text)
    state = tmp_path / "state"
    others = ("nvidia", "gpu_jobs", "kernel", "clock", "process")
    return [
        *p4d(tmp_path / "node").flags,
        f"--collector.runs.path={tmp_path / 'runs'}",
        f"--collector.logs.state={state}",
        *(f"--no-collector.{name.replace('_', '-')}" for name in others),
    ]


def test_a_run_on_sockets_beside_idle_efa_devices_is_reported(flags: list[str]) -> None:
    done = subprocess.run([*COMMAND, *flags], check=True, capture_output=True, text=True, timeout=60)
    samples = samples_of(done.stdout)
    assert samples["training_nccl_transport_ok"] == {
        frozenset({("run_id", "bad")}): 0,
        frozenset({("run_id", "good")}): 1,
    }
    counted = {
        (dict(key)["run_id"], dict(key)["transport"]): value
        for key, value in samples["training_nccl_transport"].items()
    }
    assert counted == {("bad", "socket"): 8, ("good", "efa"): 8}
    assert {dict(key)["transport"] for key in samples["training_nccl_transport_requested"]} == {"efa"}
    assert samples["efa_devices"][frozenset()] == 4


def test_without_the_logs_nothing_is_exported_and_to_ask_for_it_is_a_mistake(flags: list[str]) -> None:
    done = subprocess.run(
        [*COMMAND, *flags, "--no-collector.logs"], check=True, capture_output=True, text=True, timeout=60
    )
    assert "transport" not in done.stdout
    asked = [*COMMAND, *flags, "--no-collector.logs", "--collector.transport"]
    refused = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "--collector.transport" in refused.stderr
    assert "expected --collector.runs, --collector.logs" in refused.stderr
