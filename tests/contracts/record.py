"""The files of a run's record: samples of what the library writes today and of what the first version was.

What differs from time to time and from machine to machine is made the same, so that a sample is itself a valid record.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import trainwarden
from tests.contracts.calling import call
from tests.contracts.compare import FOLDER, plain_environment
from tests.waiting import wait_until

SAMPLES = FOLDER / "record"
# In place of each time, and of each number that was measured.
MOMENT = "2026-01-01T00:00:00.000000Z"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_MEASURED = re.compile(r"(?!stale_).*(?:seconds|_per_second|_mb)|p50|p99|max|pid|process_start|pid_namespace|start")
_WHOLE = 4711


def write_samples() -> Path:
    """Write the samples of today's version anew; return their folder."""
    shutil.rmtree(SAMPLES / "today", ignore_errors=True)
    for name, text in todays_files().items():
        file = SAMPLES / "today" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return SAMPLES


def sample_files(version: str) -> dict[str, str]:
    """Return the text of each sample of a version by its path."""
    folder = SAMPLES / version
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in found}


def todays_files() -> dict[str, str]:
    """Return what the library and shell commands write of runs that end in several ways, by path below the runs."""
    with tempfile.TemporaryDirectory() as name, plain_environment(), mock.patch("sys.argv", ["/jobs/train.py"]):
        runs, node = Path(name) / "runs", Path(name) / "node"
        node.mkdir(mode=0o700)
        os.environ |= {"TRAINWARDEN_NODE_DIR": str(node), "TRAINWARDEN_INSTANCE_ID": "i-1"}
        found = dict(_succeed(runs, Path(name) / "checkpoints/step_1"))
        _fail(runs, "failed")
        _fail(runs, "restarted")
        os.environ["TRAINWARDEN_ATTEMPT_KEY"] = "slurm:4711:1"
        with trainwarden.run("restarted", dir=runs) as run:
            run.step(2)
        _shell(runs)
        for path in sorted(path for path in runs.rglob("*") if path.is_file() and path.stat().st_size):
            # What a second attempt leaves of the first is all that is not in the other runs.
            short = path.relative_to(runs)
            if short.parts[0] != "restarted" or short.name in {"metadata.json", "_error.0"}:
                found[_path(short)] = _same(path, Path(name))
        return dict(sorted(found.items()))


def _succeed(runs: Path, checkpoint: Path) -> Iterator[tuple[str, str]]:
    """Write a run that succeeds; yield the files that are there only while it runs."""
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(b"\2" + bytes(7) + b"{}")
    os.environ["TRAINWARDEN_ATTEMPT_KEY"] = "local:5:0"
    limits = {"stale_seconds": 300, "stall_seconds": {"train": 60}}
    known: dict[str, Any] = {"model": "m", "framework": "f", "method": "lora", "thresholds": limits}
    with trainwarden.run("succeeded", dir=runs, total_steps=2, **known) as run:
        run.resume_checkpoint()
        run.epoch(0)
        run.step(1, loss=0.5, learning_rate=0.001, grad_norm=1.0, tokens=100, samples=10, accuracy=0.25)
        _wait_for_events(run)
        run.checkpoint_saved(checkpoint)
        wait_until((run.folder / "checkpoint.json").exists)
        run.note("validation", accuracy=0.5)
        try:
            raise ConnectionError("hub: connection reset")
        except ConnectionError as error:
            run.error(error, batch=3)
        run.step(2, loss=0.25, learning_rate=0.001, grad_norm=1.0, tokens=100, samples=10, accuracy=0.5)
        yield "succeeded/.owner", _same(run.folder / ".owner", runs)


def _fail(runs: Path, name: str) -> None:
    os.environ["TRAINWARDEN_ATTEMPT_KEY"] = "slurm:4711:0"
    with contextlib.suppress(RuntimeError), trainwarden.run(name, dir=runs) as run:
        run.step(1, loss=float("nan"))
        _wait_for_events(run)
        raise RuntimeError("CUDA out of memory")


def _shell(runs: Path) -> None:
    """Write a run as a shell script does."""
    os.environ["TRAINWARDEN_ATTEMPT_KEY"] = "local:6:0"
    of = ("--run-id", "shell", "--runs-dir", str(runs))
    assert call("trainwarden", "heartbeat", *of, "--step", "1", "--total-steps", "2", "--loss", "0.5").status == 0
    assert call("trainwarden", "phase", "eval", *of).status == 0
    assert call("trainwarden", "fail", "the script failed", *of, "--exit-code", "3").status == 0


def _wait_for_events(run: trainwarden.Run) -> None:
    """Wait until the thread that writes the record has seen the first phase and step."""
    events = run.folder / "events.jsonl"
    first = {"phase_changed", "progress_noted"}
    wait_until(lambda: events.exists() and all(each in events.read_text(encoding="utf-8") for each in first))


def _path(path: Path) -> str:
    return re.sub(r"ranks/[^/]+-[0-9a-f]{8}\.json$", "ranks/host-00000000.json", str(path))


def _same(path: Path, folder: Path) -> str:
    """Return the content of a file with all that differs made the same; of a journal one line of each event."""
    text = path.read_text(encoding="utf-8").replace(str(folder), "")
    if path.suffix == ".jsonl":
        lines = [_plain(json.loads(line)) for line in text.splitlines()]
        of_type: dict[str, Any] = {}
        for line in lines:
            of_type.setdefault(str(line.get("event_type")), line)
        return "".join(f"{json.dumps(line)}\n" for _, line in sorted(of_type.items()))
    document = _plain(json.loads(text))
    if path.name == "checkpoint.json":  # rates are there, or not yet
        document = {name: value for name, value in document.items() if not name.endswith("_per_second")}
    return f"{json.dumps(document, indent=1, sort_keys=True)}\n"


def _plain(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _plain(below, name) for name, below in value.items()}
    if isinstance(value, list):
        return [_plain(below, key) for below in value]
    if isinstance(value, str):
        return "Traceback" if key == "traceback" else _TIME.sub(MOMENT, value.replace(os.uname().nodename, "host"))
    if isinstance(value, (int, float)) and not isinstance(value, bool) and _MEASURED.fullmatch(key):
        return _WHOLE if isinstance(value, int) else 1.5
    return value
