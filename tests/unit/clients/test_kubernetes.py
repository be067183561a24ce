"""What is asked of kubectl is of its real grammar: it gets as far as the server, where nothing listens.

The programs that tests reach pods with are a stand-in, tests/ray/kubectl.py.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from trainwarden.clients.kubernetes import KubernetesError, PodExec, PodExecError, list_ray_jobs

pytestmark = pytest.mark.process

DOCS = Path(__file__).resolve().parents[3] / "docs"
COMMANDS = [
    (page.name, line.strip())
    for page in sorted(DOCS.glob("*.md"))
    for line in page.read_text(encoding="utf-8").splitlines()
    if line.startswith("    kubectl ") and "|" not in line
]


@pytest.fixture
def kubectl(tmp_path: Path) -> str:
    """The real kubectl, which knows no cluster, and asks a port on which nothing listens."""
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("kubectl is not here")
    program = tmp_path / "kubectl"
    program.write_text(
        f"#!/bin/sh\nexport HOME={tmp_path} KUBECONFIG=/dev/null\n"
        f'exec {shlex.quote(os.path.realpath(found))} --server=http://127.0.0.1:9 "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def check_reached_the_server(message: str) -> None:
    assert "refused" in message
    assert "unknown" not in message


def test_programs_are_run_in_pods_by_its_grammar(kubectl: str) -> None:
    for pod in (
        PodExec(kubectl, "head-pod"),
        PodExec(kubectl, "svc/head", namespace="training", container="ray-head"),
    ):
        with pytest.raises(PodExecError) as caught:
            pod.run(["python3", "-c", "print(1)", "--flag"], 30, stdin=b"x", limit=1000)
        check_reached_the_server(caught.value.stderr)


def test_rayjobs_are_listed_by_its_grammar(kubectl: str) -> None:
    for namespace in (None, "training"):
        with pytest.raises(KubernetesError) as caught:
            list_ray_jobs(kubectl, 30, namespace)
        assert "connect" in str(caught.value)
        assert "unknown" not in str(caught.value)


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_of_the_pages_are_of_its_grammar(kubectl: str, page: str, command: str) -> None:
    done = subprocess.run([kubectl, *shlex.split(command)[1:]], capture_output=True, text=True, timeout=30, check=False)
    check_reached_the_server(done.stderr)


@pytest.mark.parametrize("arguments", [["exec", "--stdinn", "pod", "--", "true"], ["port-forward", "pod", "--prot"]])
def test_a_flag_that_it_does_not_have_never_gets_so_far(kubectl: str, arguments: list[str]) -> None:
    done = subprocess.run([kubectl, *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert "unknown flag" in done.stderr
    assert "refused" not in done.stderr
