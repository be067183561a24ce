"""The exit statuses of the commands: each row of the table is run, and what it ends with is the contract.

0 is fine, 1 what was checked is bad, 2 misuse or unreadable input, 3 cannot tell, 130 interrupted. Those that need a
process of their own are in exec_statuses.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from unittest import mock

from tests.contracts.calling import call

_OK, _FAILED = "step 1/2 loss 0.5\nstep 2/2 loss 0.4\n", "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\n"
_ROWS = """
trainwarden
trainwarden --version
trainwarden --help
trainwarden no-such-command
trainwarden scan ok.log
trainwarden scan failed.log
trainwarden scan missing.log
trainwarden scan cut.log.gz
trainwarden scan partly-readable.log
trainwarden scan --no-such-option ok.log
trainwarden scan
trainwarden checkpoints checkpoints
trainwarden checkpoints broken
trainwarden checkpoints empty
trainwarden checkpoints unknown
trainwarden checkpoints unknown --trust complete
trainwarden checkpoints missing
trainwarden checkpoints set-aside missing
trainwarden runs --runs-dir runs
trainwarden runs --runs-dir missing
trainwarden status running --runs-dir runs
trainwarden status done --runs-dir runs
trainwarden status failed --runs-dir runs
trainwarden status silent --runs-dir runs
trainwarden status unreadable --runs-dir runs
trainwarden status missing --runs-dir runs
trainwarden status running --s3 s3://bucket/prefix
trainwarden compare done failed --runs-dir runs
trainwarden compare done missing --runs-dir runs
trainwarden report done --runs-dir runs --output done.html
trainwarden report missing --runs-dir runs
trainwarden report other --runs-dir good --prometheus http://127.0.0.1:1 --output done.html
trainwarden top --once --runs-dir runs
trainwarden top --once --runs-dir good
trainwarden top --once --runs-dir missing
trainwarden monitor --once --runs-dir runs --state-file state.json
trainwarden monitor --once --runs-dir good --state-file good.json
trainwarden monitor --once --run-id missing --runs-dir runs --state-file state.json
trainwarden monitor --once --run-id unreadable --runs-dir runs --state-file state.json
trainwarden monitor --test-alert
trainwarden health missing --runs-dir runs
trainwarden health running --runs-dir runs
trainwarden health failed --runs-dir runs
trainwarden doctor --no-such-option
trainwarden rules build --out rules
trainwarden rules build --out rules --values bad.yml
trainwarden rules suggest --prometheus http://127.0.0.1:1
trainwarden rules values
trainwarden rules
trainwarden actions --config actions.yml --check
trainwarden actions --config bad.yml --check
trainwarden actions list --state-dir empty
trainwarden slurm jobs --slurm-bin-dir empty
trainwarden slurm watch --once --config bad.yml
trainwarden slurm
trainwarden ray jobs --ray-address http://127.0.0.1:1
trainwarden ray watch --once --config bad.yml
trainwarden watch empty
trainwarden heartbeat --run-id h --runs-dir runs --step 1
trainwarden heartbeat --run-id h --runs-dir ok.log --step 1
trainwarden heartbeat --run-id h --runs-dir ok.log --step 1 --strict
trainwarden heartbeat --step one
trainwarden phase eval --run-id h --runs-dir runs
trainwarden phase lunch --run-id h --runs-dir runs
trainwarden phase eval --run-id h --runs-dir ok.log --strict
trainwarden complete --run-id h --runs-dir runs
trainwarden complete --run-id h --runs-dir ok.log
trainwarden complete --no-such-option
trainwarden fail reason --run-id f --runs-dir runs
trainwarden fail reason --run-id f --runs-dir ok.log
trainwarden fail
trainwarden keep
trainwarden shell-init
trainwarden shell-init --no-such-option
trainwarden tunnel --script
trainwarden tunnel -oProxyCommand=x
trainwarden exec
trainwarden exec --run-id .. -- true
trainwarden up
trainwarden metrics-server
trainwarden metrics-server --job-name j --listen-address 192.0.2.1
trainwarden validate-job --training-info training_info.json
trainwarden validate-job --training-info training_info.json --max-loss 0.1
trainwarden validate-job --training-info training_info.json --model-path missing
trainwarden validate-job
trainwarden-exporter --version
trainwarden-exporter --no-such-option
trainwarden-exporter --config.file bad.yml
trainwarden-exporter --web.listen-address 192.0.2.1:1
trainwarden-exporter check-config exporter.yml
trainwarden-exporter check-config bad.yml
trainwarden-exporter check-config --web.config.file web.yml
trainwarden-exporter check-config --web.config.file bad.yml
trainwarden-exporter check-config
trainwarden-remediator
trainwarden-remediator --version
trainwarden-remediator --no-such-option
trainwarden-remediator --webhook-token-file missing
trainwarden-remediator check-policy default
trainwarden-remediator check-policy bad.yml
trainwarden-remediator check-policy missing
trainwarden-remediator --webhook-token-file token check-config
trainwarden-remediator --webhook-token-file token --policy bad.yml check-config
trainwarden-remediator check-config
trainwarden-remediator replay --policy default --log failed.log
trainwarden-remediator replay --policy default --log missing.log
trainwarden-remediator decisions --state-dir missing
trainwarden-remediator decisions --state-dir database
trainwarden-remediator explain r1 --state-dir database
trainwarden-remediator ack --run-id r1 --state-dir database
trainwarden-remediator ack --run-id r1 --state-dir missing
trainwarden-remediator unfreeze --all --state-dir database
trainwarden-remediator freeze --all --state-dir database
trainwarden-remediator unfreeze --run-id r1 --state-dir database
trainwarden-remediator unfreeze --all --state-dir database
trainwarden-remediator freeze
trainwarden-remediator approve abcd --state-dir database
trainwarden-remediator veto abcd --state-dir database
trainwarden-remediator adopt --run-id r1 --state-dir database
trainwarden-remediator score --state-dir database
trainwarden-remediator resume --state-dir database
trainwarden-remediator audit verify --state-dir database
trainwarden-remediator audit verify --expect 1:HASH --state-dir database
trainwarden-remediator audit
"""
_INTERRUPTED = "trainwarden monitor --runs-dir good --state-file watched.json"
# Nobody answers there.
_S3 = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}


def lines() -> Iterator[str]:
    """Yield a line for each row: the status, and the command."""
    with tempfile.TemporaryDirectory() as name, _inside(Path(name)), mock.patch.dict(os.environ, _S3):
        _prepare()
        with mock.patch("time.sleep"):  # between two attempts to reach what does not answer
            yield from [
                f"{call(*row.replace('HASH', '0' * 64).split()).status} | {row}" for row in _ROWS.strip().splitlines()
            ]
        with mock.patch("time.sleep", side_effect=KeyboardInterrupt):
            yield f"{call(*_INTERRUPTED.split()).status} | {_INTERRUPTED} | interrupted"


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _prepare() -> None:
    from trainwarden_remediator.database.database import open_database

    now = datetime.now(timezone.utc)
    for name in ("database", "empty", "runs", "good", "broken/step_1", "unknown/step_1", "checkpoints/step_1"):
        Path(name).mkdir(parents=True)
    open_database(Path("database")).dispose()
    tensor = b"\2" + bytes(7) + b"{}"
    files: dict[str, str | bytes] = {
        "ok.log": _OK,
        "failed.log": _FAILED,
        "partly-readable.log": bytes(5000) + _OK.encode(),
        "cut.log.gz": gzip.compress((_OK * 100).encode())[:-20],
        "checkpoints/step_1/model.safetensors": tensor,
        "checkpoints/step_1/config.json": "{}",
        "broken/step_1/model.safetensors": tensor[:-1],
        "unknown/step_1/anything": b"x",
        "bad.yml": "no_such_key: [1\n",
        "actions.yml": f"runs_dir: {Path.cwd()}/runs\nactions: {{}}\n",
        "exporter.yml": "collector.runs.path: runs\n",
        "web.yml": "rate_limit: {interval: 1s}\n",
        "token": "secret",
        "training_info.json": json.dumps({"final_loss": 0.5, "loss_history": [0.9, 0.5]}),
    }
    for name, content in files.items():
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for run, status, year in (("running", "running", 0), ("done", "succeeded", 0), ("silent", "running", -1)):
        when = now.replace(year=now.year + year, day=1).isoformat() if year else now.isoformat()
        _record(Path("runs") / run, status, when)
    _record(Path("good/running"), "running", now.isoformat())
    _record(Path("runs/failed"), "running", now.isoformat())
    Path("runs/failed/_error").write_text(_FAILED)
    Path("runs/unreadable").mkdir()
    Path("runs/unreadable/metadata.json").write_text("{")


def _record(folder: Path, status: str, when: str) -> None:
    folder.mkdir()
    known = {"run_id": folder.name, "status": status, "phase": "training", "last_update": when, "instance_id": "i-1"}
    (folder / "metadata.json").write_text(json.dumps(known))
