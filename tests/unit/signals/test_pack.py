"""Signal files of users load unchanged; what has no effect is named with its place, what is wrong costs only itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import cases
from trainwarden.signals.pack import PackError, load_pack
from trainwarden.signals.scanner import Scanner

USERS = r"""
defaults:
  - megatron_basic
  - _self_

class_name: SlurmLogMonitor
poll_interval_seconds: 180
check_interval_seconds: 120
inactivity_threshold_seconds: 1200
log_path_template: "${output_dir}/slurm-%j.out"
output_paths: ["/logs/%A_%a.err"]
termination_string: "exiting program"
start_condition_cmd: "test -f /x"

log_signals:
  - name: bytes_allocated
    pattern: '(?P<unit>[KMG])iB (?:(?<=iB )wanted|x)(?(unit)!|\?) (\d+)'
    pattern_type: regex
    state:
      class_name: CrashState
    actions:
      - class_name: ErrorNoteAction
        note: error
      - class_name: ExecutionAction
        command: ["sbatch", "eval.sh"]
    metadata:
      severity: critical
      error_type: oom
      subsystem: cuda
      weight: 3
    extract_groups:
      unit: unit
      size: 2
  - name: done
    pattern: "after training is done"
    pattern_type: substring
    state: {class_name: SuccessState}
  - name: cuda_oom
    pattern: 'mine instead'
    state: StalledState
"""


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_users_file_loads_unchanged(tmp_path: Path) -> None:
    pack = load_pack(write(tmp_path, USERS))
    signals = {signal.name: signal for signal in pack.signals}
    assert (pack.poll_interval_seconds, pack.inactivity_threshold_seconds) == (180, 1200)
    assert pack.log_path_template == "${output_dir}/slurm-%j.out"
    assert (pack.output_paths, pack.termination_string) == (("/logs/%A_%a.err",), "exiting program")
    mine = signals["bytes_allocated"]
    assert (mine.role, mine.error_type, mine.subsystem, mine.severity) == ("root", "oom", "cuda", "critical")
    assert mine.metadata["weight"] == 3
    assert mine.source == f"{tmp_path}/mine.yaml:16"
    assert signals["done"].role == "event"
    assert (signals["cuda_oom"].pattern, signals["cuda_oom"].error_type) == ("mine instead", "hang")
    assert "training_iteration" in signals
    (match,) = Scanner([mine]).feed(b"GiB wanted! 77\n")
    assert match.fields == {"unit": "G", "size": "77"}


def test_what_is_not_run_is_named_with_file_and_line(tmp_path: Path) -> None:
    warnings = load_pack(write(tmp_path, USERS)).warnings
    assert any("mine.yaml:13" in warning and "start_condition_cmd" in warning for warning in warnings)
    assert any("mine.yaml:16" in warning and "ExecutionAction" in warning for warning in warnings)
    assert len(warnings) == 2


@cases(
    ("entry", "expected"),
    [
        ("{name: bad, pattern: '(unclosed'}", ["bad", "(unclosed", "no regular expression"]),
        ("{name: bad, pattern: 'a{4294967299}'}", ["bad", "no regular expression"]),
        ("{name: bad}", ["bad", "pattern"]),
        ("{pattern: x}", ["name"]),
        ("just text", ["mapping", "just text"]),
        ("{name: bad, pattern: x, role: rooot}", ["role", "rooot", "cascade"]),
        ("{name: bad, pattern: x, failure: no_such}", ["failure", "no_such"]),
        ("{name: bad, pattern: x, pattern_type: glob}", ["pattern_type", "glob", "substring"]),
        ("{name: bad, pattern: x, extract_groups: {f: nogroup}}", ["extract_groups", "nogroup"]),
        ("{name: bad, pattern: x, extract_groups: {f: 1}}", ["extract_groups", "1"]),
        ("{name: bad, pattern: x, extract_groups: [f]}", ["extract_groups", "mapping"]),
        ("{name: bad, pattern: x, metadata: {action: explode}}", ["action", "explode"]),
    ],
)
def test_a_wrong_signal_is_named_and_the_rest_loads(tmp_path: Path, entry: str, expected: list[str]) -> None:
    pack = load_pack(write(tmp_path, f"log_signals:\n  - {entry}\n  - {{name: good, pattern: fine}}\n"))
    assert [signal.name for signal in pack.signals] == ["good"]
    (warning,) = pack.warnings
    assert all(word in warning for word in (*expected, "mine.yaml:2"))


@cases(
    ("text", "expected"),
    [
        ("colour: red", ["mine.yaml:1", "colour"]),
        ("\npoll_interval_seconds: soon", ["mine.yaml:2", "poll_interval_seconds", "soon"]),
        ("inactivity_threshold_seconds: .nan", ["inactivity_threshold_seconds"]),
        ("log_signals: none", ["log_signals", "list"]),
        ("extends: nowhere", ["mine.yaml:1", "nowhere"]),
        ("extends: mine", ["extends itself"]),
        ("class_name: OtherMonitor", ["class_name", "OtherMonitor"]),
        ("defaults:\n  - /optimizer: adam", ["mine.yaml:2", "optimizer"]),
        ("log_signals:\n  - {name: a, pattern: x, state: Crashed}", ["mine.yaml:2", "Crashed"]),
        ("log_signals:\n  - {name: a, pattern: x, colour: red}", ["mine.yaml:2", "colour"]),
        ("log_signals:\n  - {name: a, pattern: x, actions: [DanceAction]}", ["DanceAction"]),
        (
            "log_signals:\n  - {name: a, pattern: x, failure: stall, messages: [slow]}",
            ["mine.yaml:2", "messages"],
        ),
    ],
)
def test_what_has_no_effect_is_named_with_its_place(tmp_path: Path, text: str, expected: list[str]) -> None:
    (warning,) = load_pack(write(tmp_path, text)).warnings
    assert all(word in warning for word in expected)


def test_a_pack_extends_others_and_the_later_signal_of_a_name_counts(tmp_path: Path) -> None:
    write(
        tmp_path, "poll_interval_seconds: 9\nlog_signals: [{name: a, pattern: old}, {name: b, pattern: b}]", "base.yaml"
    )
    extended = "extends: [base]\nlog_signals:\n - {name: a, pattern: new}\n - {name: b, enabled: false}\n"
    pack = load_pack(write(tmp_path, extended))
    assert [(signal.name, signal.pattern) for signal in pack.signals] == [("a", "new")]
    assert pack.poll_interval_seconds == 9
    hydra = "defaults:\n - _self_\n - base\n - /monitoring@x: base\nlog_signals: [{name: a, pattern: mine}]\n"
    assert load_pack(write(tmp_path, hydra)).signals[0].pattern == "old"


@cases("text", ["a: [", "- a list", "a: b: c", "\x00"])
def test_what_is_no_such_file_at_all_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(PackError, match=r"mine\.yaml"):
        load_pack(write(tmp_path, text))


def test_an_unknown_pack_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(PackError, match="megatron_production"):
        load_pack("no_such_pack")


def test_an_empty_file_is_an_empty_pack(tmp_path: Path) -> None:
    assert load_pack(write(tmp_path, "")).signals == ()


@cases(
    ("text", "expected"),
    [
        ("poll_intervall_seconds: 9", "mine.yaml:1: poll_intervall_seconds: is not known and has no effect; did you"),
        ("log_signals:\n- name: a\n  pattern: x\n  metdata: {}", "mine.yaml:4: signal a: metdata: is not known"),
        ("log_signals:\n- {name: a, pattern: x, metadata: {on: 2024-13-45}}", "expected a valid timestamp"),
    ],
)
def test_what_is_misspelt_is_named_with_its_own_line(tmp_path: Path, text: str, expected: str) -> None:
    (warning,) = load_pack(write(tmp_path, text)).warnings
    assert expected in warning


def test_a_pattern_under_a_misspelt_key_is_named_beside_the_missing_one(tmp_path: Path) -> None:
    misspelt, missing = load_pack(write(tmp_path, "log_signals:\n- name: a\n  patern: x")).warnings
    assert "mine.yaml:3: signal a: patern: is not known and has no effect; did you mean pattern?" in misspelt
    assert "pattern: expected a text" in missing


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"mine\.yaml: line 2: key class_name: given twice"):
        load_pack(write(tmp_path, "class_name: NullMonitor\nclass_name: NullMonitor\n"))


def test_packs_that_extend_each_other_many_times_are_not_read_without_end(tmp_path: Path) -> None:
    for number in range(8):
        write(tmp_path, f"extends: [{', '.join([f'p{number + 1}'] * 8)}]", f"p{number}.yaml")
    write(tmp_path, "", "p8.yaml")
    with pytest.raises(PackError, match="one pack too many, expected at most 100"):
        load_pack(tmp_path / "p0.yaml")
