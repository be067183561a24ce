"""`make demo`: a real training is broken by somebody else, noticed, reported, and brought back where that helps.

Status 0 only if the outcome is the one that the scenario promises.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden.errors import UsageError
from trainwarden.stack import launcher, service, up
from trainwarden.stack.binaries import ToolsMissing, find_tools
from trainwarden.stack.ports import PortBusy, ports
from trainwarden.stack.service import ServiceFailed
from trainwarden.stack.session import Outcome, Session
from trainwarden.stack.terminal import Terminal

_HERE = Path(__file__).resolve().parent
_TRAIN = _HERE.parent / "tiny_lm" / "train.py"
_STEPS = 320
_STEP_SECONDS = 0.1
_CHECKPOINT_EVERY = 40
# Learns as well as with more, in a third of the processor's time.
_BATCH = 128
_BREAK_AT_STEP = 130
_MISUSE = 2
DRIVERS = ("local", "slurm", "ray")


@dataclass(frozen=True)
class Scenario:
    """What is broken, and what must come of it: each check is a sentence and whether it holds."""

    fault: str
    promise: str
    checks: Callable[[Outcome], list[tuple[str, bool]]]


def _came_back(outcome: Outcome) -> list[tuple[str, bool]]:
    restarts = [each for each in outcome.incidents if each["action"] == "restart"]
    return [
        ("the run finished", outcome.job.state == launcher.COMPLETED),
        ("it was restarted exactly once", len(restarts) == 1 and outcome.job.generation == 1),
        ("the remediator saw the step pass the old one", [each["state"] for each in restarts] == ["DONE"]),
        ("its end was reported", "TrainRunSucceeded" in outcome.fired),
    ]


def _stayed_down(outcome: Outcome, error_types: Sequence[str], advice: str) -> list[tuple[str, bool]]:
    text = "\n".join(message.plain() for message in outcome.messages)
    return [
        ("the run failed", outcome.job.state == launcher.FAILED),
        ("it was not restarted", outcome.job.generation == 0),
        ("TrainRunFailed fired", "TrainRunFailed" in outcome.fired),
        (
            f"the failure was named ({' or '.join(error_types)})",
            [each["error_type"] in error_types for each in outcome.incidents] == [True],
        ),
        ("the decision was not to restart", [each["action"] for each in outcome.incidents] == ["none"]),
        (f"the message says what to do ({advice!r})", advice in text),
    ]


def _hang(outcome: Outcome) -> list[tuple[str, bool]]:
    return [("TrainRunStalled fired", "TrainRunStalled" in outcome.fired), *_came_back(outcome)]


def _crash(outcome: Outcome) -> list[tuple[str, bool]]:
    named = [each["error_type"] for each in outcome.incidents] == ["communication"]
    failed = "TrainRunFailed" in outcome.fired
    return [("TrainRunFailed fired", failed), ("as communication", named), *_came_back(outcome)]


def _none(outcome: Outcome) -> list[tuple[str, bool]]:
    return [
        ("the run finished", outcome.job.state == launcher.COMPLETED),
        ("no alert but TrainRunSucceeded", outcome.fired == {"TrainRunSucceeded"}),
        ("one message, about the success", len(outcome.messages) == 1),
        ("nothing was decided", not outcome.incidents and outcome.job.generation == 0),
    ]


SCENARIOS = {
    "hang": Scenario("one rank stops inside a collective", "restarted from the checkpoint, finishes", _hang),
    "crash": Scenario("the connection between the ranks is reset", "restarted, finishes", _crash),
    "kill9": Scenario("one rank is killed", "restarted, finishes", _came_back),
    "oom": Scenario(
        "the framework runs out of memory",
        "not restarted; the message says what to change",
        lambda outcome: _stayed_down(outcome, ("host_oom", "oom"), "batch size"),
    ),
    "nan": Scenario(
        "the loss turns NaN",
        "not restarted; the message says what to look at",
        lambda outcome: _stayed_down(outcome, ("numerical_instability",), "learning rate"),
    ),
    "none": Scenario("nothing", "finishes, no alert but success", _none),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one scenario; 0 if it kept its promise, 1 if not, 2 on misuse."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--scenario", default=os.environ.get("SCENARIO") or "hang")
    parser.add_argument("--stall-seconds", default=os.environ.get("STALL_SECONDS") or "15")
    parser.add_argument("--driver", default=os.environ.get("DRIVER") or "local")
    parser.add_argument("--keep", action="store_true", default=os.environ.get("KEEP", "") not in ("", "0"))
    parser.add_argument("--state-dir", type=Path, default=Path(".state") / "demo")
    options = parser.parse_args(arguments)
    if options.scenario not in SCENARIOS:
        print(f"make demo: SCENARIO={options.scenario}: one of {', '.join(SCENARIOS)} was expected", file=sys.stderr)
        return _MISUSE
    if options.driver not in DRIVERS:
        print(f"make demo: DRIVER={options.driver}: one of {', '.join(DRIVERS)} was expected", file=sys.stderr)
        return _MISUSE
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", options.stall_seconds) or not float(options.stall_seconds):
        print(
            f"make demo: STALL_SECONDS={options.stall_seconds}: a positive number of seconds was expected",
            file=sys.stderr,
        )
        return _MISUSE
    try:
        with _CLUSTERS.get(options.driver, contextlib.nullcontext)() as flags:
            return _run(options, flags or ())
    except (UsageError, ToolsMissing, PortBusy, ServiceFailed) as error:
        print(f"make demo: {error}", file=sys.stderr)
        return _MISUSE


@contextlib.contextmanager
def _slurm_cluster() -> Iterator[list[str]]:
    """Run SLURM's daemons in a folder, as the tests have them; yield the flags that name their cluster."""
    sys.path.insert(0, str(_HERE.parents[1]))
    from tests.slurm.cluster import NODES, running_cluster  # noqa: PLC0415  # for this driver alone
    from tests.slurm.programs import find_programs  # noqa: PLC0415  # as above
    from trainwarden.stack.debian import PackagesUnavailable  # noqa: PLC0415  # as above

    terminal = Terminal()
    try:
        terminal.event("slurm", "looks for its programs; the first time they are unpacked from Debian's packages")
        with running_cluster(find_programs()) as cluster:
            version = cluster.run("scontrol", "--version").strip()
            terminal.event("slurm", f"{version} answers, {len(NODES)} nodes are idle")
            yield ["--driver", "slurm", "--slurm-bin-dir", str(cluster.bin)]
    except PackagesUnavailable as error:
        raise ServiceFailed(f"SLURM cannot be had: {error}") from None


@contextlib.contextmanager
def _ray_head() -> Iterator[list[str]]:
    """Run a head of Ray, in an environment of its own as the tests have it; yield the flags that name it."""
    sys.path.insert(0, str(_HERE.parents[1]))
    from tests.ray.environment import RayUnavailable, find_python  # noqa: PLC0415  # for this driver alone
    from tests.ray.head import running_head  # noqa: PLC0415  # as above

    terminal = Terminal()
    try:
        terminal.event("ray", "looks for Ray in an environment of its own; the first time it is installed there")
        with running_head(find_python()) as head:
            token = head.folder / "token"
            token.touch(mode=0o600)
            token.write_text(head.token, encoding="utf-8")
            terminal.event("ray", f"{head.call('/api/version')['ray_version']} answers at {head.url}")
            yield ["--driver", "ray", "--ray-address", head.url, "--ray-token-file", str(token)]
    except RayUnavailable as error:
        raise ServiceFailed(f"Ray cannot be had: {error}") from None


_CLUSTERS = {"slurm": _slurm_cluster, "ray": _ray_head}


def _run(options: argparse.Namespace, flags: Sequence[str]) -> int:
    scenario = SCENARIOS[options.scenario]
    terminal = Terminal()
    terminal.event("scenario", f"{options.scenario}: {scenario.fault}; promised: {scenario.promise}")
    tools = find_tools(report=lambda line: terminal.event("tools", line))
    terminal.event("tools", f"{tools.versions()} ({tools.source})")
    run_id = f"demo-{options.scenario}-{time.strftime('%Y%m%d-%H%M%S')}"
    rank0_port, switch_port = ports({"rank 0": 0, "the network path": 0}).values()
    request = up.to_request(_up_options(options, run_id, rank0_port, switch_port, flags), os.environ)
    injector = subprocess.Popen(
        service.tethered(
            [
                *(sys.executable, str(_HERE / "injector.py"), options.scenario),
                *("--run", str(request.runs_dir / run_id), "--at-step", str(_BREAK_AT_STEP)),
                *("--listen", str(switch_port), "--forward", str(rank0_port)),
            ]
        ),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the session, which ends the injector too
    )
    try:
        verdicts: list[int] = []
        session = Session(
            request, tools, terminal, lambda outcome: verdicts.append(_judge(scenario, outcome, terminal))
        )
        session.run()
    except KeyboardInterrupt:
        return up.INTERRUPTED
    finally:
        injector.terminate()
        injector.wait()
    return verdicts[0]


def _up_options(
    options: argparse.Namespace, run_id: str, rank0_port: int, switch_port: int, flags: Sequence[str]
) -> argparse.Namespace:
    command = [
        *(sys.executable, str(_TRAIN), "--ranks", "2", "--batch", str(_BATCH)),
        *("--steps", str(_STEPS), "--step-seconds", str(_STEP_SECONDS), "--checkpoint-every", str(_CHECKPOINT_EVERY)),
        *("--listen", str(rank0_port), "--connect", f"127.0.0.1:{switch_port}"),
    ]
    os.environ.pop("TRAINWARDEN_RUNS_DIR", None)
    if options.scenario == "oom":
        # Arrays are mapped and unmapped each time instead of being kept by the allocator: a limit is felt at once.
        os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "65536")
    keep = ["--keep"] if options.keep else []
    return up.parser().parse_args(
        [
            *("--run-id", run_id, "--state-dir", str(options.state_dir / run_id)),
            *("--stall-seconds", options.stall_seconds, *keep, *flags, "--quiet", "--", *command),
        ]
    )


def _judge(scenario: Scenario, outcome: Outcome, terminal: Terminal) -> int:
    if outcome.interrupted:
        return up.INTERRUPTED
    checks = scenario.checks(outcome)
    for sentence, holds in checks:
        terminal.event("good" if holds else "BROKEN", sentence)
    kept = all(holds for _, holds in checks)
    terminal.event("verdict", f"{'as promised' if kept else 'NOT as promised'}: {scenario.promise}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
