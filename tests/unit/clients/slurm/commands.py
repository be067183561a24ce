"""Records as different versions of SLURM print them, and stand-ins for the client commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwarden.clients.slurm.client import SlurmClient


def job_22_05(job_id: int = 1, **changes: Any) -> dict[str, Any]:
    """A running job in the layout of 22.05."""
    return {
        "account": "",
        "array_job_id": 0,
        "array_task_id": None,
        "comment": f"trainwarden:run-{job_id}",
        "derived_exit_code": 0,
        "end_time": 1795275486,
        "exit_code": 0,
        "gres_detail": ["gpu(CNT:2)", "gpu(CNT:2)"],
        "job_id": job_id,
        "job_state": "RUNNING",
        "name": "train",
        "node_count": 2,
        "nodes": "n[1-2]",
        "partition": "main",
        "priority": 4294901754,
        "restart_cnt": 1,
        "start_time": 1795271886,
        "state_description": "",
        "state_reason": "None",
        "submit_time": 1795271880,
        "tres_alloc_str": "cpu=2,node=2,billing=2",
        "user_id": 1000,
        "user_name": "alice",
        **changes,
    }


def job_24_05(job_id: int = 1, **changes: Any) -> dict[str, Any]:
    """A running job in the layout of 23.11 and newer: numbers and states in structures."""
    return {
        "array_job_id": {"set": True, "infinite": False, "number": 0},
        "comment": f"trainwarden:run-{job_id}",
        "end_time": _number(1795275486),
        "exit_code": exit_24_05("SUCCESS", 0),
        "gres_detail": ["gpu:h100:8(IDX:0-7)", "gpu:h100:8(IDX:0-7)"],
        "hold": False,
        "job_id": job_id,
        "job_state": ["RUNNING"],
        "name": "train",
        "node_count": _number(2),
        "partition": "main",
        "priority": _number(4294901754),
        "restart_cnt": 1,
        "start_time": _number(1795271886),
        "state_description": "",
        "state_reason": "None",
        "submit_time": _number(1795271880),
        "tres_alloc_str": "cpu=64,mem=2T,node=2,billing=64,gres/gpu=16,gres/gpu:h100=16",
        "user_id": 1000,
        "user_name": "alice",
        **changes,
    }


def exit_24_05(status: str, code: int, signal: int | None = None) -> dict[str, Any]:
    """How a job ended, in the same layout."""
    number = {"set": signal is not None, "infinite": False, "number": signal or 0}
    return {"status": [status], "return_code": _number(code), "signal": {"id": number, "name": ""}}


def node_22_05(name: str = "n1", **changes: Any) -> dict[str, Any]:
    """A node in the layout of 22.05."""
    return {
        "name": name,
        "state": "mixed",
        "state_flags": [],
        "gres": "gpu:4",
        "gres_used": "gpu:3",
        "tres": "cpu=8,mem=1M,billing=8",
        "reason": "",
        "reason_changed_at": 0,
        "reason_set_by_user": None,
        **changes,
    }


def node_24_05(name: str = "n1", **changes: Any) -> dict[str, Any]:
    """A node in the layout of 23.11 and newer."""
    return {
        "name": name,
        "state": ["MIXED"],
        "gres": "gpu:h100:8(S:0-1)",
        "gres_used": "gpu:h100:6(IDX:0-5)",
        "reason": "",
        "reason_changed_at": _number(0),
        "reason_set_by_user": "",
        **changes,
    }


class FakeSlurm:
    """Commands in a folder. Each prints what was last set for it and writes down how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.jobs([])
        self.script("scontrol", "echo \"scontrol: unrecognized option '--json'\" >&2; exit 1")
        self.nodes([])

    def jobs(self, jobs: list[Any]) -> None:
        """Let squeue list these."""
        self.answer("squeue", json.dumps({"errors": [], "jobs": jobs}).encode())

    def nodes(self, nodes: list[Any], command: str = "sinfo") -> None:
        """Let `command` list these."""
        self.answer(command, json.dumps({"errors": [], "nodes": nodes}).encode())

    def answer(self, name: str, output: bytes, said: str = "") -> None:
        """Let a command print these bytes."""
        (self.folder / f"{name}.out").write_bytes(output)
        (self.folder / f"{name}.err").write_text(said, encoding="utf-8")
        self.script(name, f"cat {self.folder}/{name}.err >&2; exec cat {self.folder}/{name}.out")

    def script(self, name: str, body: str) -> None:
        """Let a command be this."""
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.calls}\n{body}\n', encoding="utf-8")
        path.chmod(0o755)

    def called(self, name: str) -> list[str]:
        """The calls of a command so far."""
        lines = self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []
        return [line for line in lines if line.split()[0] == name]

    def client(self, timeout: float = 10.0) -> SlurmClient:
        """A client that calls them."""
        names = ("squeue", "scontrol", "sinfo", "sstat")
        return SlurmClient({name: str(self.folder / name) for name in names}, timeout)


def _number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}
