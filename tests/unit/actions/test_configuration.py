"""The configuration of `trainwarden actions` allows what it declares, and nothing that a log can change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.offenders import assert_none, raised
from trainwarden.actions.configuration import SIGNAL, Configuration, read_configuration
from trainwarden.actions.parameters import WrongValue
from trainwarden.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

ALL_TYPES = """
runs_dir: /runs
actions:
  evaluate:
    event: checkpoint_saved
    command: [/opt/eval, "{path}", "--step={step}", "{loss}", "{split}", "{run_id}"]
    parameters:
      path: {type: path, under: [ROOT]}
      step: {type: int}
      loss: {type: float, min: -10, max: 100}
      split: {type: identifier, pattern: "test|valid"}
"""
FIELDS = {"step": "500", "loss": "2.5", "split": "test", "run_id": "llama"}


def read(folder: Path, text: str) -> Configuration:
    file = folder / "actions.yml"
    head = "" if text.lstrip().startswith("runs_dir") else f"runs_dir: {folder}  # so that line 2 is the next\n"
    file.write_text(head + text.replace("ROOT", str(folder)))
    file.chmod(0o600)
    return read_configuration(file)


def test_each_value_becomes_one_argument(tmp_path: Path) -> None:
    action = read(tmp_path, ALL_TYPES).actions["evaluate"]
    path = f"{tmp_path.resolve()}/step_500"
    argv = action.arguments({**FIELDS, "path": path})
    assert argv == ["/opt/eval", path, "--step=500", "2.5", "test", "llama"]


WRONG_VALUES = [
    ("step", "500; rm -rf /"),
    ("step", "-5"),
    ("step", "5" * 30),
    ("step", "\u0665"),
    ("loss", "nan"),
    ("loss", "101"),
    ("split", "train"),
    ("split", "test\n"),
    ("run_id", "--uid=0"),
    ("path", "/etc/passwd"),
    ("path", "ROOT/../../etc/passwd"),
    ("path", "ROOT/link"),
    ("path", "ROOT/$(id)"),
    ("path", "ROOT/a b"),
    ("path", "relative"),
    ("path", "ROOTER/x"),
]


def test_a_value_of_another_type_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    action = read(tmp_path, ALL_TYPES).actions["evaluate"]
    good = {**FIELDS, "path": f"{tmp_path}/step_500"}

    def said(field: str, value: str) -> str:
        return raised(WrongValue, lambda: action.arguments({**good, field: value.replace("ROOT", str(tmp_path))}))

    found = [(field, value, said(field, value)) for field, value in WRONG_VALUES]
    assert_none(
        f"{field}={value!r}: {message!r}"
        for field, value, message in found
        if not message.startswith(f"{field}: ") or "expected" not in message
    )


def test_a_field_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongValue, match="path: the event has no such field, expected one of loss, run_id"):
        read(tmp_path, ALL_TYPES).actions["evaluate"].arguments(FIELDS)


def test_a_value_does_not_become_an_option(tmp_path: Path) -> None:
    text = "actions: {a: {event: e, command: [/x, '{n}'], parameters: {n: {type: int, min: -9}}}}"
    with pytest.raises(WrongValue, match="would be an option"):
        read(tmp_path, text).actions["a"].arguments({"n": "-5"})


WRONG_ACTIONS = [
    ("{event: e}", "either command or sbatch"),
    ("{event: e, command: [/x], sbatch: [y]}", "either command or sbatch"),
    ("{event: e, command: []}", "at least one argument"),
    ("{event: e, command: [eval.sh]}", "an absolute path of a program"),
    ("{event: e, command: ['{run_id}']}", "an absolute path of a program"),
    ("{event: e, command: [/x, '{step}']}", "{step} among the parameters"),
    ("{event: e, command: [/bin/sh, -c, 'echo {run_id}']}", "may hold no parameter"),
    ("{event: e, command: [/usr/bin/env, python3, -c, 'print({attempt})']}", "may hold no parameter"),
    ("{event: e, sbatch: ['--wrap=echo {run_id}']}", "may hold no parameter"),
    ("{event: e, sbatch: [--uid, root, x.sh]}", "a script with arguments"),
    ("{event: e, command: [/x], parameters: {p: {type: path}}}", "under, the folders"),
    ("{event: e, command: [/x], parameters: {p: {type: path, under: [/]}}}", "other than /"),
    ("{event: e, command: [/x], parameters: {p: {type: text}}}", "one of int, float, path, identifier"),
    ("{event: e, command: [/x], parameters: {p: {type: int, pattern: x}}}", "no such key for the type int"),
    ("{event: e, command: [/x], parameters: {p: {type: identifier, pattern: '.*'}}}", "begins with -"),
    ("{event: signal_noted, command: [/x]}", "written by this service"),
    ("{event: e, command: [/x], timeout: 8d}", "at most 7d"),
    ("{event: e, command: [/x], timeout: soon}", "one above zero"),
    ("{event: e, command: [/x], max_running: 0}", "a number from 1 to 64"),
    ("{event: e, command: [/x], once_per: day}", "one of event, arguments"),
    ("{event: e, command: [/x], shell: true}", "there is no such key"),
]


def test_a_wrong_action_is_refused_with_file_line_and_what_was_expected(tmp_path: Path) -> None:
    def said(entry: str) -> str:
        return raised(UsageError, lambda: read(tmp_path, f"actions: {{mine: {entry}}}\n"))

    found = [(entry, expected, said(entry)) for entry, expected in WRONG_ACTIONS]
    assert_none(
        f"{entry}: {message!r}"
        for entry, expected, message in found
        if any(word not in message for word in (expected, "actions.yml", "line 2"))
    )


@pytest.mark.parametrize("name", ["actions.yml", "mine.yaml"])
def test_files_that_others_may_write_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.yaml").write_text("log_signals: []")
    (tmp_path / "actions.yml").write_text("signals: mine.yaml")
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    read_configuration(tmp_path / "actions.yml")
    (tmp_path / name).chmod(0o620)
    with pytest.raises(UsageError, match=rf"{name}: .*that nobody else may write"):
        read_configuration(tmp_path / "actions.yml")


SIGNALS = """
log_signals:
  - name: saved
    pattern: 'saved (?P<path>\\S+)'
    state: {class_name: SuccessState}
    actions: [{class_name: ExecutionAction, command: [sbatch, /eval.sh, "{path}"]}]
  - {name: named, pattern: x, role: event, actions: [{class_name: ExecutionAction, action: evaluate}]}
  - {name: line, pattern: x, role: event, actions: [{class_name: ExecutionAction, command: 'sbatch /eval.sh {path}'}]}
  - {name: other, pattern: x, role: event, actions: [{class_name: ExecutionAction, command: [rm, -rf, /]}]}
"""


def test_a_command_of_a_signal_file_runs_only_if_the_configuration_has_it(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(SIGNALS)
    (tmp_path / "mine.yaml").chmod(0o600)
    configuration = read(
        tmp_path,
        "signals: mine.yaml\nactions: {evaluate: {sbatch: [/eval.sh, '{path}'], "
        "parameters: {path: {type: path, under: [/ckpt]}}}}",
    )
    started = {name for kind, name in configuration.actions["evaluate"].triggers if kind == SIGNAL}
    assert started == {"saved", "named", "line"}
    (warning,) = configuration.warnings
    assert "mine.yaml:9: signal other: ExecutionAction: its command is in no action" in warning


def test_the_preset_for_evaluations_starts_the_action_of_that_name(tmp_path: Path) -> None:
    text = "signals: megatron_checkpoint_eval\nactions: {evaluate: {command: [/eval, '{run_id}']}}"
    configuration = read(tmp_path, text)
    assert set(configuration.actions["evaluate"].triggers) == {(SIGNAL, "checkpoint_saved")}
    assert configuration.warnings == ()
    (warning,) = read(tmp_path, "signals: megatron_checkpoint_eval").warnings
    assert "checkpoint_saved: ExecutionAction" in warning


def test_a_folder_of_records_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert "no such folder" in read(tmp_path, "runs_dir: /no/such/folder").warnings[0]


def test_a_signal_that_there_is_not_is_said(tmp_path: Path) -> None:
    (warning,) = read(tmp_path, "actions: {a: {signal: no_such, command: [/x]}}").warnings
    assert "no_such" in warning
