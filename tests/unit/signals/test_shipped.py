"""Every shipped signal finds its examples and nothing in healthy logs; every kind of failure is told."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml

from tests.cases import cases
from tests.unit.signals.verdicts import verdict_of
from trainwarden.signals.model import Signal
from trainwarden.signals.pack import Pack, load_pack, shipped_packs
from trainwarden.signals.scanner import Scanner
from trainwarden.taxonomy import ERROR_TYPES

LINES = Path(__file__).parent / "lines"
SIGNALS = {f"{name}-{signal.name}": signal for name in shipped_packs() for signal in load_pack(name).signals}
LOGS = [
    (error_type, log.replace("\\n", "\n"))
    for path in sorted(LINES.glob("*.yaml"))
    for error_type, logs in yaml.safe_load(path.read_text(encoding="utf-8")).items()
    for log in logs
]


@cache
def pack(name: str = "all") -> Pack:
    return load_pack(name)


@cases("signal", SIGNALS.values(), ids=SIGNALS)
def test_a_signal_finds_its_examples_and_only_those(signal: Signal) -> None:
    scanner = Scanner([signal])
    assert signal.examples
    assert not scanner.slow
    missed = [text for text in signal.examples if not scanner.feed(text.encode() + b"\n")]
    wrong = [text for text in signal.counterexamples if scanner.feed(text.encode() + b"\n")]
    assert (missed, wrong) == ([], [])


@cases("name", shipped_packs())
def test_a_shipped_pack_loads_without_a_warning(name: str) -> None:
    assert pack(name).warnings == ()
    assert all(signal.shipped for signal in pack(name).signals)


@cases("name", shipped_packs())
def test_healthy_logs_hold_no_failure(name: str) -> None:
    scanner = Scanner(pack(name).signals)
    matches = scanner.feed((LINES / "healthy.txt").read_bytes()) + scanner.finish()
    assert [(match.line, match.signal.name) for match in matches if match.signal.role != "event"] == []


@cases(("error_type", "log"), LOGS)
def test_a_failure_is_distinguished_from_what_the_tools_print(error_type: str, log: str) -> None:
    assert error_type in ERROR_TYPES
    verdict = verdict_of(log)
    assert verdict is not None
    assert verdict.error_type == error_type, verdict.signal


@cases("prefix", ["[rank3]: ", "(WorkerDict pid=77, ip=10.0.0.1) ", "12: [rank12]: ", "2026-01-01 10:00:00 "])
def test_the_prefix_of_a_launcher_hides_no_failure(prefix: str) -> None:
    for _, log in LOGS[:60]:
        lines = "".join(prefix + line + "\n" for line in log.split("\n"))
        assert verdict_of(lines) is not None, lines


def test_the_megatron_packs_keep_the_names_and_fields_that_policies_use() -> None:
    names = {signal.name for signal in pack("megatron_production").signals}
    assert names == {
        "validation_complete", "checkpoint_saved", "training_iteration", "cuda_oom", "cpu_oom", "nccl_error",
        "nccl_warning", "nccl_timeout", "nccl_collective_fail", "communication_error", "processgroup_timeout",
        "cuda_hang", "deadlock", "gradient_nan", "loss_nan", "torch_error", "python_exception",
    }  # fmt: skip
    log = (
        b" iteration      100/  500000 | consumed samples: 5 | lm loss: 8.1E+00 | loss scale: 1.0 |\n"
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has\n"
    )
    iteration, oom = Scanner(pack("megatron_production").signals).feed(log)
    assert iteration.fields == {"current": "100", "total": "500000", "loss": "8.1E+00"}
    assert (oom.signal.name, oom.fields) == ("cuda_oom", {"allocation_size": "2.00 GiB"})


def test_a_saved_checkpoint_is_a_success_only_where_checkpoints_are_evaluated_and_never_an_end() -> None:
    states = {
        name: next(signal for signal in pack(name).signals if signal.name == "checkpoint_saved")
        for name in ("megatron_production", "megatron_checkpoint_eval")
    }
    assert [signal.state for signal in states.values()] == [None, "SuccessState"]
    assert {signal.role for signal in states.values()} == {"event"}


def test_patterns_look_for_no_single_log() -> None:
    suspicious = re.compile(r"node0\d\d|user1|10\\?\.0\\?\.0|/home/|/work")
    assert [signal.name for signal in pack().signals if suspicious.search(signal.pattern)] == []
