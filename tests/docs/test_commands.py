"""The commands of the documents: each is taken by its real parser, and what needs only files is run.

Those of the runbooks are in `test_runbook_commands.py`, queries and Python in `test_code_blocks.py`.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.offenders import assert_none
from tests.unit.clients.scripted import Scripted
from tests.unit.runs.records import foreign_run
from trainwarden import cli
from trainwarden.record.clock import to_iso
from trainwarden_exporter import cli as exporter
from trainwarden_remediator import cli as remediator

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "trainwarden": cli.main,
    "trainwarden-exporter": exporter.main,
    "trainwarden-remediator": remediator.main,
}
MISUSE = 2
# What is no command line: it shows what a command takes.
SYNTAX = re.compile(r"\[-")
# What a reader puts in; FLAGS and … stand for options that others name.
PLACES = {
    "RUN": "llama-sft-7", "RUN_ID": "llama-sft-7", "NAME": "llama-sft-7", "INCIDENT": "3f2a", "JOB": "my-job",
    "LOG…": "train.log", "RUN…": "llama-sft-6", "HOST": "gpu-1", "COMMAND": "true", "URL": "http://127.0.0.1:9090",
    "SECONDS": "60",
}  # fmt: skip
OPEN = {"FLAGS", "…", "..."}
# Commands that are run, because a record, a log or a file is all that they need.
RUN = ("checkpoints", "compare", "health", "report", "runs", "scan", "status", "top", "validate-job", "rules", "doctor")
# Why the others are parsed alone, and where they are run.
PARSED = {
    "actions": "runs until it is stopped: tests/unit/actions",
    "exec": "starts a process: tests/integration/exec",
    "metrics-server": "serves until it is stopped: tests/integration/exporter/finetuning",
    "monitor": "may send messages: run below with --once",
    "ray": "asks Ray: tests/ray",
    "shell-init": "prints a path: tests/unit/shell",
    "slurm": "asks SLURM: tests/slurm",
    "tunnel": "calls ssh: tests/unit/tunnel",
    "up": "starts the whole stack: tests/e2e",
    "watch": "follows a log until it is stopped: tests/unit/jobs",
}


# They read their few arguments themselves: a parser would take longer than they may.
WITHOUT_PARSER = {"complete", "fail", "heartbeat", "keep", "phase", "shell-init"}


@dataclass(frozen=True)
class Command:
    where: str
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.words[1] if self.words[0] == "trainwarden" and len(self.words) > 1 else self.words[0]

    def __str__(self) -> str:
        return f"{self.where}-{'_'.join(self.words)}"[:80]


def code_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of fenced and indented code, with their numbers; continued ones as one."""
    fenced, begun = False, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced or line.startswith("    "):
            whole = f"{begun}{line.strip()}"
            begun = f"{whole[:-1]} " if whole.endswith("\\") else ""
            if not begun:
                yield number, whole


def command(where: str, text: str) -> Command | None:
    """Return the call of one of our programs that a part of a line is, without what its output goes to."""
    text = re.sub(r"^(?:\$ )?(?:until )?(?:\S*/bin/)?", "", text.strip())
    if not re.match(r"trainwarden(?:-exporter|-remediator)?(?: |$)", text) or SYNTAX.search(text):
        return None
    words = shlex.split(re.split(r"\s(?:>|>>|2>)\s?", text)[0])
    return Command(
        where, tuple(PLACES.get(word, word.replace("RUN_ID", "llama-sft-7")) for word in words if word not in OPEN)
    )


def commands() -> list[Command]:
    """Return every call of our programs in code, once."""
    found: dict[tuple[str, ...], Command] = {}
    for page in PAGES:
        for number, line in code_lines(page.read_text(encoding="utf-8")):
            for part in re.split(r"\|(?=\s|$)|;|&&|\$\(|(?<=[a-z0-9])\)", re.sub(r"\s#\s.*$", "", line)):
                one = command(f"{page.stem}:{number}", part)
                if one:
                    found.setdefault(one.words, one)
    return list(found.values())


def mentions() -> list[Command]:
    """Return what the text names of our programs with an option, which may lack arguments."""
    found: dict[tuple[str, ...], Command] = {}
    for page in PAGES:
        for code in re.findall(r"(?<!`)`(trainwarden[\w-]* [^`\n]*--[^`\n]+)`", page.read_text(encoding="utf-8")):
            one = command(page.stem, code)
            if one and one.name not in WITHOUT_PARSER:
                found.setdefault(one.words, one)
    return list(found.values())


COMMANDS = commands()


class Parsed(Exception):
    """The command line was taken."""


@pytest.fixture
def only_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each parser end the command once it has taken all arguments."""
    real = argparse.ArgumentParser.parse_args

    def parse_args(parser: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> None:
        real(parser, args, namespace)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)


def test_there_are_commands_of_every_page_that_shows_one() -> None:
    assert len(COMMANDS) > 110
    assert {command.words[0] for command in COMMANDS} == set(PROGRAMS)


def taken(command: Command) -> bool:
    """Return whether the parser of a command takes its arguments; else it has said why not."""
    program, *arguments = command.words
    try:
        PROGRAMS[program](arguments)
    except Parsed:
        return True
    except SystemExit:
        return False
    raise AssertionError(f"{command} ran: it has no parser")


def test_each_command_is_taken_by_its_parser(
    only_parsed: None, capsys: pytest.CaptureFixture[str], in_a_folder: Path
) -> None:
    assert_none(
        f"{command}: {capsys.readouterr().err}"
        for command in COMMANDS
        if command.name not in WITHOUT_PARSER and not taken(command)
    )


def test_each_option_that_the_text_names_exists(
    only_parsed: None, capsys: pytest.CaptureFixture[str], in_a_folder: Path
) -> None:
    unknown = re.compile("unrecognized|invalid choice|no command")
    assert_none(
        f"{command}: {said}"
        for command in mentions()
        if not taken(command) and unknown.search(said := capsys.readouterr().err)
    )


def test_a_wrong_option_is_not_taken(only_parsed: None, in_a_folder: Path) -> None:
    for program, arguments in (
        ("trainwarden", ["status", "a", "--onec"]),
        ("trainwarden", ["up", "--stall-sconds", "1", "--", "true"]),
        ("trainwarden-exporter", ["--collector.none"]),
        ("trainwarden-remediator", ["explain", "--run=a"]),
    ):
        with pytest.raises(SystemExit):
            PROGRAMS[program](arguments)


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the documents name: records, logs, checkpoints, files of values and policies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINWARDEN_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def records(in_a_folder: Path) -> Path:
    for name in (
        "llama-sft-6",
        "llama-sft-7",
        "mistral-20250804-171621",
        "one",
        "two",
        "first",
        "second",
        "drill",
        "a",
    ):
        folder = foreign_run(in_a_folder / "runs", run_id=name)
        for file, key in (("metadata.json", "last_update"), ("progress.json", "last_updated")):
            document = json.loads((folder / file).read_text(encoding="utf-8"))
            document[key] = to_iso(time.time())
            (folder / file).write_text(json.dumps(document), encoding="utf-8")
    shutil.copytree(in_a_folder / "runs", in_a_folder / "STATE_DIR/runs")
    log = "step 1\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    (in_a_folder / "logs").mkdir()
    (in_a_folder / "STATE_DIR/runs/llama-sft-7/logs/attempt.log").write_text(log, encoding="utf-8")
    for name in ("slurm-4711.out", "train.log", "logs/rank_0.log", "logs/a.out"):
        (in_a_folder / name).write_text(log, encoding="utf-8")
    (in_a_folder / "logs/rank_0.log.gz").write_bytes(gzip.compress(log.encode()))
    (in_a_folder / "checkpoints").mkdir()
    (in_a_folder / "output").mkdir()
    (in_a_folder / "output/training_info.json").write_text('{"loss": [2.0, 0.5]}', encoding="utf-8")
    (in_a_folder / "decisions.json").write_text("[]", encoding="utf-8")
    (in_a_folder / "mine.yml").write_text(yaml_of("start-platform-owner"), encoding="utf-8")
    return in_a_folder


def runnable(*names: str) -> list[Command]:
    """Return the commands of these names that need no more than files. S3 is tried in tests/integration/s3."""
    return [
        each
        for each in COMMANDS
        if each.name in names and "s3://" not in " ".join(each.words) and not {"-", "--test-alert"} & {*each.words}
    ]


@pytest.fixture
def answering() -> Iterator[Scripted]:
    """A Prometheus and an Alertmanager in which nothing is."""
    server = Scripted()
    server.body = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'
    yield server
    server.close()


def here(words: Sequence[str], folder: Path, url: str) -> Iterator[str]:
    """Yield the arguments, with this machine's places in place of those of a cluster."""
    places = {
        r"https?://(?:prometheus|alertmanager|127\.0\.0\.1):\d+": url,
        r"^/(?:ckpts|checkpoints)/.*": str(folder / "checkpoints"),
        r"^/etc/prometheus/trainwarden": str(folder / "rules"),
        r"^config/monitoring/mine.yaml": "signals.yaml",
    }
    for word in words:
        placed = functools.reduce(lambda text, place: re.sub(place, places[place], text), places, word)
        yield from sorted(map(str, Path().glob(placed))) if "*" in placed else [placed]


def ended(arguments: list[str]) -> int:
    """Return the status with which a command of `trainwarden` ends."""
    try:
        return cli.main(arguments)
    except SystemExit as stop:
        return MISUSE if isinstance(stop.code, str) else stop.code or 0


def test_each_command_that_needs_only_files_runs(
    records: Path, answering: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    (records / "signals.yaml").write_text(yaml_of("signals"), encoding="utf-8")

    def failing() -> Iterator[str]:
        for command in runnable(*RUN):
            arguments = list(here(command.words[1:], records, answering.url))
            status = ended([*arguments, *(["--once"] if command.name in {"status", "top"} else [])])
            said = capsys.readouterr().err
            # 1 and 3 are answers about the run. `rules suggest` has no metrics from which it could conclude anything.
            is_answer = status in {0, 1, 3} or "rules suggest" in " ".join(command.words)
            if not is_answer or "Traceback" in said:
                yield f"{command}: status {status}: {said}"

    assert_none(failing())


def yaml_of(page: str) -> str:
    """Return the first YAML of a document."""
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    return text.partition("```yaml\n")[2].partition("```")[0]


def test_monitor_looks_once_as_it_is_shown(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = runnable("monitor")
    assert shown
    assert_none(
        f"{command}: {capsys.readouterr().err}"
        for command in shown
        if ended([*dict.fromkeys([*command.words[1:], "--once"])]) != 0
    )


def test_every_command_is_run_or_has_a_reason_why_not() -> None:
    named = {command.name for command in COMMANDS if command.words[0] == "trainwarden"}
    assert {name for name in named if name[0] != "-"} <= {*RUN} | PARSED.keys()
    assert not {*RUN} & PARSED.keys()
    places = [place for reason in PARSED.values() for place in re.findall(r"tests/[\w/]+", reason)]
    assert [place for place in places if not (ROOT / place).exists()] == []
