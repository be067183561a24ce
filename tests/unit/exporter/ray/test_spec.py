"""The flags of the collector, and the commands that they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.integration.exporter.running import is_alive
from tests.unit.exporter.contexts import context
from tests.unit.exporter.ray.dashboard import dashboard, good, job
from tests.waiting import wait_until
from trainwarden.clients.http import MAX_BODY_BYTES
from trainwarden.clients.kubernetes import PodExec
from trainwarden.clients.ray import RayDashboardInPod, RayDashboardOverHttp, RayError
from trainwarden.errors import UsageError
from trainwarden_exporter.collector_set import CollectorSet
from trainwarden_exporter.collectors.ray import spec
from trainwarden_exporter.collectors.ray.collector import PATHS, RayCollector
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.flags import build_parser


def flags(*argv: str) -> dict[str, Any]:
    return vars(build_parser().parse_args(argv))


def program(folder: Path, script: str) -> str:
    file = folder / "kubectl"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


def test_it_is_off_unless_it_is_switched_on() -> None:
    assert not spec.SPEC.enabled(context(spec.SPEC, Node("head"), flags()))


@cases(
    "argv",
    [
        ("url", "127.0.0.1:8265"),
        ("url", "ray://127.0.0.1:10001"),
        ("url", "file:///etc/passwd"),
        ("url", "http://user:hunter2@head:8265"),
        ("url", "http://head:99999"),
        ("url", "http://head:8265/?x=1"),
        ("url", "http://he ad:8265"),
        ("head-pod", "--kubeconfig=/tmp/x"),
        ("head-pod", "Head"),
        ("head-pod", "a/b"),
        ("head-pod", "a;reboot"),
        ("namespace", "a.b"),
        ("namespace", "-n"),
        ("container", "a b"),
        ("max-jobs", "0"),
    ],
)
def test_values_of_another_form_are_refused_with_status_2(argv: tuple[str, str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        flags(f"--collector.ray.{argv[0]}={argv[1]}")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"--collector.ray.{argv[0]}" in said
    assert "expected" in said
    assert "hunter2" not in said


@cases("name", ["raycluster-kuberay-head-x2x4z", "svc/raycluster-head-svc", "pod/a.b", "a"])
def test_pods_and_what_leads_to_one_are_taken(name: str) -> None:
    assert flags("--collector.ray.head-pod", name)["collector.ray.head_pod"] == name


def url_of(found: object) -> str:
    assert isinstance(found, RayDashboardOverHttp)
    return found.url


def test_the_url_is_the_flags_else_the_environments_else_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in spec.URL_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert url_of(spec.dashboard(flags())) == "http://127.0.0.1:8265"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert url_of(spec.dashboard(flags())) == "http://127.0.0.1:8265"
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265/")
    assert url_of(spec.dashboard(flags())) == "http://head:8265"
    assert url_of(spec.dashboard(flags("--collector.ray.url", "https://ray.example/a/"))) == "https://ray.example/a"
    monkeypatch.setenv("RAY_ADDRESS", "http://me:hunter2@head:8265")
    with pytest.raises(UsageError, match=r"^\$RAY_ADDRESS: expected a URL") as refused:
        spec.dashboard(flags())
    assert "hunter2" not in str(refused.value)


@cases(
    ("argv", "named"),
    [
        (("--collector.ray.namespace", "ml"), "--collector.ray.namespace"),
        (("--collector.ray.head-pod", "h", "--collector.ray.kubectl", "/nowhere/kubectl"), "--collector.ray.kubectl"),
        (("--collector.ray.head-pod", "h", "--collector.ray.ca-file", "/x"), "--collector.ray.ca-file"),
        (("--collector.ray.ca-file", "/nowhere/ca.pem"), "--collector.ray.ca-file /nowhere/ca.pem"),
    ],
)
def test_flags_that_cannot_be_followed_are_named(argv: tuple[str, ...], named: str) -> None:
    with pytest.raises(UsageError, match=f"^{named}.*expected"):
        spec.dashboard(flags(*argv))


def asked(command: str, seconds: float = 60.0, max_body: int = MAX_BODY_BYTES) -> RayDashboardInPod:
    return RayDashboardInPod(PodExec(command, "head"), "http://127.0.0.1:9", seconds, max_body=max_body)


@pytest.mark.process
def test_a_kubectl_that_fails_is_quoted_without_secrets(tmp_path: Path) -> None:
    script = 'cat > /dev/null; echo "error: pods \\"head\\" not found, token=hunter2secret" >&2; exit 1'
    collector = RayCollector(asked(program(tmp_path, script)), limit=9, node_gpus=True, expect=None)
    with pytest.raises(RayError, match='ended with status 1: error: pods "head" not found') as failed:
        collector.collect()
    assert "hunter2secret" not in str(failed.value)


@pytest.mark.process
@pytest.mark.parametrize("output", ["Unable to use a TTY", '[200, \\"\\", 50]\\nshort', "[1]", "{}"])
def test_an_answer_that_is_not_from_our_program_is_refused(tmp_path: Path, output: str) -> None:
    with pytest.raises(RayError, match="none of ours"):
        asked(program(tmp_path, f'cat > /dev/null; printf "{output}"')).get(["/api/jobs/"])


@pytest.mark.process
@pytest.mark.parametrize("then", ['trap "" TERM; wait', "exit 0"])
def test_a_kubectl_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, then: str) -> None:
    script = f'sleep 300 & echo $! > "{tmp_path}/child"; {then}'
    with pytest.raises(RayError, match="no answer within"):
        asked(program(tmp_path, script), 3.0).get(["/api/jobs/"])
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_alive(child))


@pytest.mark.process
def test_a_kubectl_that_writes_without_end_is_ended(tmp_path: Path) -> None:
    with pytest.raises(RayError, match="more than"):
        asked(program(tmp_path, "exec cat /dev/zero"), max_body=1 << 20).get(["/api/jobs/"])


@pytest.mark.process
def test_a_pod_is_asked_by_one_program_with_the_token_on_its_standard_input(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t0k3n\n")
    script = f'echo "$@" > "{tmp_path}/argv"; while [ "$1" != "--" ]; do shift; done; shift; exec "$@"'
    pod = PodExec(program(tmp_path, script), "svc/head", namespace="ml", container="ray")
    with dashboard(good([])) as served:
        answers = RayDashboardInPod(pod, served.url, 60.0, token_file=token).get(list(PATHS.values()))
    assert [(answer.status, answer.error) for answer in answers] == [(200, "")] * len(PATHS)
    assert {each["Authorization"] for each in served.headers} == {"Bearer t0k3n"}
    argv = (tmp_path / "argv").read_text()
    assert argv.startswith("exec --stdin svc/head --namespace=ml --container=ray -- python3 -c ")
    assert "t0k3n" not in argv


@pytest.mark.parametrize(("scope", "expected"), [("all", {"r1"}), ("host", set())])
def test_runs_are_expected_by_an_exporter_of_all_records_while_the_collector_is_on(
    tmp_path: Path, scope: str, expected: set[str]
) -> None:
    node = Node("head")
    with dashboard(good([job("a", "RUNNING", metadata={"trainwarden_run_id": "r1"})])) as served:
        argv = [f"--collector.runs.path={tmp_path}", f"--collector.runs.scope={scope}", "--collector.disable-defaults"]
        argv += ["--collector.runs", f"--collector.ray.url={served.url}"]
        collectors = CollectorSet(node, flags(*argv, "--collector.ray"))
        next(runner for runner in collectors.runners if runner.name == "ray").sample_once()
        assert set(collectors.shared.expected.runs()) == expected
