"""Runs' records as tests make them, with a mirror in S3."""

import json
import time
from pathlib import Path
from typing import Any

from tests.integration.s3.store import Store
from trainwarden.identity import AttemptKey, host_name
from trainwarden.record.clock import to_iso
from trainwarden.s3.startup import S3Startup

KEY = AttemptKey("slurm", "7", 9)
OLDER = AttemptKey("slurm", "7", 0)


def metadata(key: AttemptKey = KEY, attempt: int = 1, **values: Any) -> dict[str, Any]:
    """A record's metadata by an attempt that knows of all before it."""
    now = to_iso(time.time())
    known = [{"attempt": number, "key": f"slurm:7:{number}"} for number in range(attempt)]
    said = {
        "run_id": "r",
        "status": "running",
        "phase": "train",
        "last_update": now,
        "instance_id": "elsewhere",
        "host": "elsewhere",
        "pid": 1,
        "attempt": attempt,
        "attempt_key": str(key),
        "attempt_start_time": now,
        "attempts": [*known, {"attempt": attempt, "key": str(key)}],
    }
    return {**said, **values}


def error(key: AttemptKey, attempt: int | None, seconds_ago: float = 0.0) -> dict[str, Any]:
    said = {"attempt_key": str(key), "attempt": attempt, "time": to_iso(time.time() - seconds_ago), "message": "lost"}
    return {name: value for name, value in said.items() if value is not None}


def encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


class Node:
    """One process of an attempt, and the folder on its machine."""

    def __init__(self, store: Store, folder: Path, key: AttemptKey = KEY, *, whole: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.startup = S3Startup(store.record, folder, key, time.time(), whole=whole)
        self.mirror = self.startup._mirror

    def read(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / name).read_text())
        return document

    @property
    def state(self) -> dict[str, Any]:
        return self.mirror.state()


def here(pid: int) -> dict[str, Any]:
    """What metadata says of a process on this machine."""
    return {"host": host_name(), "instance_id": host_name(), "pid": pid}
