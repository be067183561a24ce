"""What another policy would have done, and whether a whole configuration is right, without a start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.cli import main
from trainwarden_remediator.incidents.incident import Action
from trainwarden_remediator.observe.evidence import ReportedRun

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB\n"


@pytest.fixture
def fails_always(tmp_path: Path) -> Iterator[Simulation]:
    sim = Simulation(tmp_path / "state", two_phase=True)
    sim.cluster.crash()
    sim.cluster.fails_after_start = True
    sim.settle()
    yield sim
    sim.close()


def replayed(sim: Simulation, capsys: pytest.CaptureFixture[str], policy: str) -> list[tuple[str, str]]:
    assert main(["replay", "--state-dir", str(sim.folder), "--policy", policy, "--json"]) == 0
    return [(each["was"], each["now"]) for each in json.loads(capsys.readouterr().out)]


def test_a_policy_is_replayed_with_the_failures_on_record_and_its_own_budgets(
    fails_always: Simulation, capsys: pytest.CaptureFixture[str]
) -> None:
    # Under `default` a run that always crashes is restarted twice, then a person is paged.
    assert [each.action for each in fails_always.store.of_run(RUN)][-1] is Action.ESCALATE
    then = ["restart", "restart", "escalate"]
    assert replayed(fails_always, capsys, "default") == [(each, each) for each in then]
    assert replayed(fails_always, capsys, "none") == [(each, "none") for each in then]
    assert replayed(fails_always, capsys, "megatron_aggressive") == [(each, "restart") for each in then]


def test_the_text_says_what_differs(fails_always: Simulation, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["replay", "--state-dir", str(fails_always.folder), "--policy", "none", "--run-id", RUN]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert f"{RUN}: a crash\n  none (then: restart): policy none never restarts after a crash\n" in out
    assert out.endswith("3 failures: 0 restarts by policy none, 2 restarts then\n")
    assert main([*argv[:-1], "another"]) == 0
    assert "no policy has decided anything yet" in capsys.readouterr().err


class Priced:
    """A PriceSource of one price."""

    def of_run(self, _run_id: str) -> dict[str, float]:
        return {"gpu_hours": 12.0, "gpus": 8.0}


def test_decisions_that_were_only_observed_are_replayed_with_their_failure_and_their_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = Simulation(tmp_path / "state", two_phase=True)
    sim.prices, sim.policies.mode = Priced(), "observe"
    sim.restart()
    seen = sim.run(RUN)
    assert isinstance(seen, ReportedRun)
    failed = replace(seen, error_type="nccl", subsystem="distributed", failure="peer_reset")
    monkeypatch.setattr(sim, "run", lambda _run_id: failed)
    sim.tick(2)
    assert [each.action for each in sim.store.of_run(RUN)] == [Action.NONE]
    for rules, expected in (
        ("exclude_signals: [peer_reset], default_action: restart", "none"),
        ("restart_on_signals: [peer_reset]", "restart"),
        ("restart_on_subsystems: [distributed]", "restart"),
        ("restart_on_signals: [nccl_usage]", "none"),
    ):
        mine = tmp_path / "mine.yaml"
        mine.write_text(
            f"policies: [{{mode: stall, implementation: {{class_name: SelectiveRestartPolicy, {rules}}}}}]\n"
            "limits: {approval_above_gpu_hours: 100}\n"
        )
        assert replayed(sim, capsys, str(mine)) == [("none", expected)], rules
    sim.close()


def test_nothing_is_changed_by_a_replay(fails_always: Simulation, capsys: pytest.CaptureFixture[str]) -> None:
    before = fails_always.store.with_events()
    replayed(fails_always, capsys, "none")
    assert fails_always.store.with_events() == before


@pytest.mark.parametrize(
    ("policy", "mode", "said"),
    [
        ("megatron_transient", "crash", "none: the error type oom is excluded by policy megatron_transient"),
        ("megatron_transient", "stall", "restart: policy megatron_transient restarts after every stall"),
        ("default", "crash", "restart: policy default restarts after every crash"),
    ],
)
def test_a_log_is_judged_and_decided_upon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, mode: str, said: str
) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"iteration 1\n{OOM}")
    assert main(["replay", "--log", str(log), "--policy", policy, "--mode", mode]) == 0
    out = capsys.readouterr().out
    assert f"a {mode} by oom\n" in out
    assert said in out


def test_a_log_without_a_failure_and_one_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("iteration 1\n")
    assert main(["replay", "--log", str(log), "--policy", "default"]) == 1
    assert "no failure was found" in capsys.readouterr().err
    assert main(["replay", "--log", str(tmp_path / "gone"), "--policy", "default"]) == 2
    assert "--log: " in capsys.readouterr().err
    assert main(["replay", "--log", str(log), "--policy", "gone"]) == 2


def config(tmp_path: Path, **flags: str) -> list[str]:
    (tmp_path / "token").write_text("secret\n")
    known = {"webhook-token-file": str(tmp_path / "token"), "state-dir": str(tmp_path / "state"), **flags}
    return [*(f"--{name}={value}" for name, value in known.items()), "check-config"]


def test_a_configuration_that_is_right_shows_the_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(config(tmp_path, **{"run-policy": "debug-*=default", "mode-of-action": "canary"})) == 0
    out = capsys.readouterr().out
    assert "policy of runs that name none: megatron_transient\npolicy of runs debug-*: default\n" in out
    assert "mode of action: canary\n" in out
    assert not (tmp_path / "state").exists()


def test_everything_that_is_wrong_is_named_at_once_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.yaml").write_text("policies: []\nlimits: {restart: 3}\n")
    (tmp_path / "http.yaml").write_text("basic_auht: {}\n")
    (tmp_path / "web.yaml").write_text("tls_server_config: {cert_file: gone.pem}\n")
    flags = {
        "poll-interval": "-1",
        "web.listen-address": "nowhere",
        "runs-dir": str(tmp_path / "no-runs"),
        "policy-dir": str(tmp_path / "policies"),
        "policy": "gone",
        "prometheus-http-config-file": str(tmp_path / "http.yaml"),
        "alertmanager-http-config-file": str(tmp_path / "nowhere.yaml"),
        "web.config.file": str(tmp_path / "web.yaml"),
        "driver": "slurm",
        "slurm-allow-user": "no-such-user",
        "slurm-bin-dir": str(tmp_path),
        "notify-slack-url-file": str(tmp_path / "no-address"),
        "notify-sns-topic": "alerts",
    }
    argv = config(tmp_path, **flags)
    (tmp_path / "token").write_text("")
    assert main(argv) == 2
    said = capsys.readouterr().err
    for expected in (
        "mine.yaml: line 1: policies: []",
        "mine.yaml: line 2: limits.restart: unknown key, expected restarts?",
        "--policy: 'gone'",
        "token: empty",
        "http.yaml",
        "basic_auht",
        "nowhere.yaml",
        "web.yaml",
        "--poll-interval: ",
        "--web.listen-address: ",
        "no-runs: expected a folder",
        "--slurm-allow-user: 'no-such-user'",
        f"squeue and scontrol not found in {tmp_path}",
        "no-address: No such file",
        "--notify-sns-topic: 'alerts': expected arn:",
    ):
        assert said.count(expected) == 1, expected


def test_a_flag_that_is_wrong_because_of_another_one_is_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(config(tmp_path, **{"ray-container": "ray-head", "driver": "local"})) == 2
    said = capsys.readouterr().err
    assert said.count("--ray-namespace, --ray-container: are of a pod; expected --ray-head-pod as well") == 1
    assert said.count("--driver local: needs --local-launcher-url") == 1


def test_certificates_that_one_of_several_alertmanagers_cannot_use_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "http.yaml").write_text("tls_config: {}\n")
    urls = ["--alertmanager-url=https://first:9093", "--alertmanager-url=http://second:9093"]
    argv = [*urls, *config(tmp_path, **{"alertmanager-http-config-file": str(tmp_path / "http.yaml")})]
    assert main(argv[:1] + argv[2:]) == 0
    assert main(argv) == 2
    assert "http://second:9093" in capsys.readouterr().err
