"""A real Ray head as a pod that kubectl reaches, its jobs, and scripts of users of the Ray training monitor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ray.head import Head
from tests.ray.kubectl import write_kubectl
from tests.session import shared
from tests.waiting import wait_until
from trainwarden.ray import get_current_step

POD, WORKER = "training-head-abc123", "training-worker-group-8v7pg"
PODS = (POD, WORKER)
PROGRAMS = Path(__file__).parent / "programs"
# What nvidia-smi prints in each pod: GPUs that work, and a process.
SMI = """#!/bin/sh
case "$1" in
*gpu=*) echo '97, 60000, 81920'; echo '91, 61000, 81920' ;;
*apps=*) echo '4711, /usr/bin/python3, a, b, NVIDIA H100, 60000 MiB' ;;
esac
"""
# Below /tmp/ray a pod has its own files, which are elsewhere on this machine.
OWN_FILES = """#!/bin/sh
for word; do
    shift
    case "$word" in /tmp/ray/*) word="$POD_RAY/${{word#/tmp/ray/}}" ;; esac
    set -- "$@" "$word"
done
exec {program} "$@"
"""
ORIGIN = "node-1:22:31 [3] NCCL INFO"
EFA = f"{ORIGIN} NET/OFI Selected provider is efa\n{ORIGIN} Channel 00/0 : 7[7] -> 8[0] via NET/OFI/0\n"
# Of another process.
SOCKET = "node-2:7:8 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n"


@dataclass(frozen=True)
class Pod:
    """The programs and the logs of the pods."""

    programs: Path
    logs: Path

    def program(self, name: str, text: str) -> None:
        """Replace a program of the pods."""
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def log(self, job_id: str, text: str) -> None:
        """Write what a job has printed, in the place where a head keeps it."""
        (self.logs / f"job-driver-{job_id}.log").write_text(text)


def make_pod(folder: Path, variables: dict[str, str], dashboard: str, monkeypatch: pytest.MonkeyPatch) -> Pod:
    """A pod with these variables; its Ray is at `dashboard`."""
    pod = Pod(folder / "bin", folder / "ray/session_latest/logs")
    pod.programs.mkdir()
    pod.logs.mkdir(parents=True)
    pod.program("nvidia-smi", SMI)
    for name in ("grep", "tail"):
        pod.program(name, OWN_FILES.format(program=shutil.which(name)))
    path = variables.get("PATH", os.environ["PATH"])
    inside = {**variables, "PATH": f"{pod.programs}:{path}", "POD_RAY": str(folder / "ray")}
    monkeypatch.setenv("TRAINWARDEN_KUBECTL", str(write_kubectl(folder / "kubectl", inside, PODS)))
    monkeypatch.setenv("TRAINWARDEN_RAY_DASHBOARD", dashboard)
    for name in ("TRAINING_MONITOR_LOG_LEVEL", "TRAINING_MONITOR_LOG_FILE"):
        monkeypatch.delenv(name, raising=False)
    return pod


@pytest.fixture
def pod(head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    """The pods of the head; their logs are empty, so that those of jobs come from Ray."""
    return make_pod(tmp_path, head.environment, head.url, monkeypatch)


@pytest.fixture
def lone_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    """Pods without a Ray that answers."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return make_pod(tmp_path, {"PATH": path}, "http://127.0.0.1:9", monkeypatch)


def write_checkpoint(folder: Path, *, torn: bool = False) -> Path:
    """Write a checkpoint with one file, of which the end is missing if it is torn."""
    folder.mkdir(parents=True)
    header = b'{"w":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}}'
    content = len(header).to_bytes(8, "little") + header + bytes(32)
    (folder / "model.safetensors").write_bytes(content[:-8] if torn else content)
    return folder


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def failed_job(head: Head) -> str:
    """A job that has failed, after three steps; one for all workers."""

    def submit(folder: Path) -> None:
        entrypoint = "for n in 1 2 3; do echo step: $n loss: 0.5; done; exit 3"
        (folder / "id").write_text(head.submit(entrypoint, submission_id=unique("failed")))

    job = (shared("failed-ray-job", submit) / "id").read_text()
    wait_until(lambda: head.state(job) == "FAILED", "it fails")
    return job


@pytest.fixture(scope="session")
def standing_job(head: Head) -> str:
    """A job that holds a GPU and prints much, and no step after the seventh; one for all workers."""

    def submit(folder: Path) -> None:
        entrypoint = "echo step: 7 loss: 0.5; while true; do echo still here; sleep 0.5; done"
        job = head.submit(entrypoint, submission_id=unique("stands"), entrypoint_num_gpus=1)
        (folder / "id").write_text(job)

    job = (shared("standing-ray-job", submit) / "id").read_text()
    wait_until(lambda: head.state(job) == "RUNNING", "it has its GPU")
    return job


@dataclass(frozen=True)
class Moving:
    """A job that makes steps until the file `last` is there, and then succeeds."""

    job: str
    last: Path


@pytest.fixture
def moving_job(head: Head, pod: Pod, tmp_path: Path) -> Moving:
    last = tmp_path / "last"
    loop = f"n=0; while [ ! -e {last} ]; do n=$((n+1)); echo step: $n loss: 0.5; sleep 0.2; done"
    job = head.submit(loop, submission_id=unique("moves"))
    wait_until(lambda: get_current_step(POD, job), "it makes steps")
    return Moving(job, last)


@dataclass(frozen=True)
class Ran:
    """What a script printed, and how it ended."""

    status: int
    out: str
    err: str


Script = Callable[..., Ran]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A script of `programs`, in a process of its own."""

    def run(name: str, *arguments: str, **environment: str) -> Ran:
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / name), *arguments],
            capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, **environment}, timeout=200,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    return run
