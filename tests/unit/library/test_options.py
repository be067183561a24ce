"""The options of all commands: durations as Prometheus writes them, and a help that fits a screen."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator

import pytest

from tests.cases import cases
from trainwarden import cli
from trainwarden.record.thresholds import InvalidThreshold, choose
from trainwarden.runs.arguments import stale_seconds_of
from trainwarden.stack import up
from trainwarden_exporter.cli import main as exporter
from trainwarden_exporter.flags import build_parser
from trainwarden_remediator.cli import main as remediator
from trainwarden_remediator.cli import parser as remediator_parser
from trainwarden_remediator.config import settings_from

# Of trainwarden; those of shell scripts have no parser.
COMMANDS = sorted({*cli._OWN, *cli._ADDED} - {"heartbeat", "phase", "fail", "complete", "keep", "shell-init"})
_DURATION = re.compile(r"--(?:.*-)?(?:seconds|interval|timeout|minutes|grace|inactivity)")
# Read as a text of budgets by phase, which have tests of their own.
_BUDGETS = "--stall-seconds"


class _Captured(Exception):
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def parser_of(command: str, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    """The parser that a command makes, before it reads anything."""

    def capture(self: argparse.ArgumentParser, *_arguments: object, **_options: object) -> None:
        raise _Captured(self)

    with monkeypatch.context() as patched:
        for name in ("parse_args", "parse_known_args"):
            patched.setattr(argparse.ArgumentParser, name, capture)
        try:
            cli.main([command])
        except _Captured as captured:
            return captured.parser
    raise AssertionError(f"{command} has no parser")


def options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All options, those of subcommands included."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from options(below)
        elif action.option_strings:
            yield action


@cases("command", COMMANDS)
def test_every_duration_is_written_as_prometheus_does(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = parser_of(command, monkeypatch)
    durations = [each for each in options(parser) if _DURATION.fullmatch(each.option_strings[0])]
    for option in durations:
        name = option.option_strings[0]
        if name == _BUDGETS:
            continue
        assert callable(option.type), name
        assert option.type("1h30m") == 5400, name
        assert option.type("90s") == 90, name
        assert option.type("10") == (600 if name == "--stale-minutes" else 10), name
        with pytest.raises((argparse.ArgumentTypeError, ValueError)):
            option.type("soon")


def test_the_durations_that_users_know_are_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        f"{command} {name}"
        for command in COMMANDS
        for option in options(parser_of(command, monkeypatch))
        for name in option.option_strings
        if _DURATION.fullmatch(name)
    }
    assert known >= {
        "up --stale-seconds", "up --grace-seconds", "exec --grace-seconds", "status --stale-minutes", "top --interval",
        "monitor --stale-minutes", "monitor --interval", "checkpoints --timeout", "rules --timeout", "watch --interval",
    }  # fmt: skip


def test_the_durations_of_the_exporter_and_the_remediator_too() -> None:
    flags = [each for each in build_parser().flags() if each.metavar == "DURATION"]
    assert len(flags) > 5
    assert {each.type("1h30m") for each in flags if callable(each.type)} == {5400.0}
    of_remediator = [each.option_strings[0] for each in options(remediator_parser()) if each.metavar == "DURATION"]
    timings = [name for name in of_remediator if name.endswith(("-interval", "-timeout", "-window"))]
    assert len(timings) > 5
    # Stacks are captured for half a minute at most.
    given = [f"{name}={'20s' if name == '--capture-timeout' else '1m30s'}" for name in timings if name[2:5] != "ste"]
    settings = settings_from(remediator_parser().parse_args(["--webhook-token-file=/dev/null", *given]))
    assert (settings.poll_interval, settings.verify_timeout, settings.capture_timeout) == (90.0, 90.0, 20.0)


@cases(("text", "seconds"), [("10", 600), ("0.5", 30), ("10m", 600), ("1h", 3600), ("90s", 90)])
def test_stale_minutes_of_the_environment_mean_the_same_to_all(text: str, seconds: float) -> None:
    assert stale_seconds_of({"STALE_MINUTES": text}) == seconds
    assert choose(None, {"STALE_MINUTES": text}).stale_seconds == seconds
    with pytest.raises(InvalidThreshold, match="STALE_MINUTES"):
        choose(None, {"STALE_MINUTES": "soon"})


@cases("command", [*COMMANDS, "", "trainwarden-exporter", "trainwarden-remediator"])
def test_the_help_of_a_command_fits_a_screen(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    programs = {"trainwarden-exporter": exporter, "trainwarden-remediator": remediator}
    with pytest.raises(SystemExit) as end:
        if command in programs:
            programs[command](["--help"])
        else:
            cli.main([command, "--help"] if command else ["--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert shown.count("\n") <= 40
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(("program", "option"), [(remediator, "--storm-window"), (up.main, "--ray-token-file")])
def test_what_the_help_leaves_out_help_all_shows(
    program: Callable[[list[str]], int], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit):
            program([flag])
        shown[flag] = capsys.readouterr().out
    assert option not in shown["--help"]
    assert "--help-all" in shown["--help"]
    assert option in shown["--help-all"]
