"""The commands of the runbooks are run, where their tool is here: what a person on call copies must not be refused."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.offenders import assert_none
from tests.rules import promql
from tests.rules.rule_files import ROOT, exists
from tests.unit.clients.scripted import Scripted
from trainwarden import cli as trainwarden
from trainwarden.stack.binaries import Tools
from trainwarden_remediator import cli as remediator

RUNBOOKS = sorted((ROOT / "rules/runbooks").glob("*.md"))
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in RUNBOOKS}
OWN: dict[str, Callable[[Sequence[str]], int]] = {
    "trainwarden": lambda arguments: trainwarden.main(list(arguments)),
    "trainwarden-remediator": remediator.main,
}
MISUSE = 2


def blocks() -> Iterator[str]:
    """Yield the indented blocks of the runbooks, each a script."""
    for text in TEXTS.values():
        for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE):
            yield re.sub(r"^    ", "", block, flags=re.MULTILINE)


@cache
def lines() -> list[str]:
    """Return the lines of all blocks, a continued one as one."""
    return [line for block in blocks() for line in block.replace("\\\n", " ").splitlines()]


def commands(first: str) -> list[str]:
    """Return every command of the runbooks that begins with this word, without the comment behind it."""
    return [re.sub(r"\s+#\s.*$", "", line) for line in dict.fromkeys(lines()) if line.startswith(f"{first} ")]


# What stands between two calls, but within quotes.
_BETWEEN = re.compile(r"""[;|](?=(?:[^'"]|'[^']*'|"[^"]*")*$)""")


@cache
def parts() -> list[str]:
    """Return the calls of all lines, without what their output is piped into."""
    found = [part.strip() for line in lines() for part in _BETWEEN.split(re.sub(r"(?:^|\s+)#\s.*$", "", line))]
    return [re.sub(r"^(?:time|(?:do )?timeout (?:-s KILL )?\d+) ", "", part) for part in dict.fromkeys(found)]


def calls(program: str) -> list[str]:
    """Return every call of a program in the runbooks, also beside others in a line."""
    return [part for part in dict.fromkeys(parts()) if re.match(rf"{re.escape(program)}(?: |$)", part)]


@pytest.fixture
def answering() -> Iterator[Scripted]:
    """A Prometheus and an Alertmanager in which nothing is wrong."""
    server = Scripted()
    yield server
    server.close()


def run(command: str, tools: Tools) -> subprocess.CompletedProcess[str]:
    path = f"{tools.promtool.parent}:{tools.amtool.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    return subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.process
def test_the_shell_reads_every_block() -> None:
    script = "\n".join(f"{{\n{block}\n}}" for block in blocks())
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


CHANGES = re.compile(
    r"scancel|kill|umount|mount .*\S|reboot|modprobe|nvidia-smi -r|dcgmi diag"
    r"|scontrol (?!show|ping)|systemctl (?!status|show)"
)


def test_who_pastes_a_diagnosis_changes_nothing() -> None:
    """What drains, ends, releases or mounts stands under Fix; a file that was written to see whether one can goes."""

    def changing() -> Iterator[str]:
        for name, text in TEXTS.items():
            diagnosis = text.partition("## Diagnosis\n")[2].partition("\n## ")[0]
            for line in re.findall(r"^    (.+)$", diagnosis, re.MULTILINE):
                shown = re.sub(r"\s+#\s.*$", "", line)
                for part in re.split(r"[;|&]+", shown):
                    if CHANGES.match(part.strip()):
                        yield f"{name}: {part.strip()}"
                for made in re.findall(r"\btouch (\S+)", shown):
                    if f"&& rm {made} " not in f"{shown} ":
                        yield f"{name}: it leaves {made}"

    assert_none(changing())


def test_a_command_in_a_sentence_is_on_one_line() -> None:
    """A runbook is read as it is, too: half a command, or two, would be copied."""
    assert_none(
        f"{name}: {span}"
        for name, text in TEXTS.items()
        for paragraph in re.sub(r"^    .+$", "", text, flags=re.MULTILINE).split("\n\n")
        for span in re.findall(r"`[^`]*`", paragraph)
        if "\n" in span
    )


@pytest.mark.tools
def test_each_query_reaches_prometheus_as_it_is_printed_and_asks_for_what_exists(
    tools: Tools, tmp_path: Path, answering: Scripted
) -> None:
    answering.body = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'
    asked = [each for each in commands("curl") if "PROMETHEUS/api/v1/query" in each]
    assert len(asked) > 80
    queries = []
    for command in asked:
        answering.asked = ""
        done = run(command.replace("PROMETHEUS", answering.url), tools)
        assert (done.returncode, answering.asked[:14]) == (0, "/api/v1/query?"), (command, done.stderr)
        (query,) = parse_qs(urlsplit(answering.asked).query)["query"]
        queries.append(query)
    assert [name for query in queries for name in promql.metrics(promql.parse(query)) if not exists(name)] == []
    rules = [{"record": f"asked:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "asked.yml").write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    done = run(f"promtool check rules {tmp_path / 'asked.yml'}", tools)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.tools
def test_prometheus_own_tools_take_what_is_shown(tools: Tools, answering: Scripted) -> None:
    def refused() -> Iterator[str]:
        for command in (*commands("promtool"), *commands("amtool")):
            answering.body = b"[]"
            if command.startswith("promtool"):
                answering.body = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'
            done = run(placed(command, answering.url), tools)
            if done.returncode != 0:
                yield f"{command}: {done.stderr}"

    assert_none(refused())


def placed(command: str, url: str) -> str:
    """Return a command of promtool or amtool with this machine's places."""
    command = command.replace("PROMETHEUS", url).replace("ALERTMANAGER", url)
    command = command.replace("=alertmanager.yml", f"={ROOT / 'alertmanager/alertmanager.yml'}")
    if "amtool alert" in command and "--alertmanager.url" not in command:  # a team has it in amtool's own configuration
        command += f" --alertmanager.url={url}"
    return command


def test_our_own_commands_take_their_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing is on record they answer that."""
    places = {"DIR": tmp_path, "CHECKPOINTS": tmp_path, "FILE": "observe", "POLICY": "observe"}

    def refused() -> Iterator[str]:
        for command in (*commands("trainwarden"), *commands("trainwarden-remediator")):
            first, *arguments = command.split()
            if arguments[0] == "FLAGS":  # those of the service
                arguments = [*arguments[1:], "--help"]
            for place, value in places.items():
                arguments = [re.sub(rf"^(--[\w-]+=)?{place}$", rf"\g<1>{value}", each) for each in arguments]
            status = ended(OWN[first], arguments)
            answer = capsys.readouterr().err
            if status == MISUSE and "no decision log here" not in answer:
                yield f"{command}: {answer}"

    assert_none(refused())


def ended(program: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> int:
    """Return the status with which a command ends."""
    try:
        return program(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)


# What `nvidia-smi -q -d` and `--query-compute-apps` take.
SECTIONS = {
    *("ACCOUNTING", "CLOCK", "COMPUTE", "ECC", "ENCODER_STATS", "FBC_STATS", "GSP_FIRMWARE_VERSION", "MEMORY"),
    *("PAGE_RETIREMENT", "PERFORMANCE", "PIDS", "POWER", "RESET_STATUS", "ROW_REMAPPER", "SUPPORTED_CLOCKS"),
    *("TEMPERATURE", "UTILIZATION", "VOLTAGE"),
}
PROCESS_FIELDS = {"timestamp", "gpu_name", "gpu_bus_id", "gpu_serial", "gpu_uuid", "pid", "process_name", "used_memory"}


def test_nvidia_smi_knows_what_it_is_asked_for() -> None:
    shown = [word for call in calls("nvidia-smi") for word in re.findall(r" -d ([A-Z_,]+)", call)]
    fields = [word for call in calls("nvidia-smi") for word in re.findall(r"--query-compute-apps=([\w,]+)", call)]
    assert shown
    assert fields
    assert {each for word in shown for each in word.split(",")} <= SECTIONS
    assert {each for word in fields for each in word.split(",")} <= PROCESS_FIELDS
    known = r"nvidia-smi( -L| -q( -d [A-Z_,]+)?| nvlink -[es]| topo -m| --query-compute-apps=[\w,]+ --format=csv)?"
    assert [call for call in calls("nvidia-smi") if not re.fullmatch(known, call)] == []


# Programs of any Linux: what they do not know they refuse by these words.
EVERYWHERE = (
    *("cat", "date", "df", "du", "free", "head", "ls", "ps", "sort", "ss", "stat", "tail", "top", "uptime", "wc"),
)
REFUSED = re.compile(
    r"unexpected EOF|unrecognized|invalid|unknown|unsupported|[Uu]sage:|try .* --help|bad (?:argument|syntax)"
)


@pytest.mark.process
def test_the_programs_of_any_linux_take_what_is_shown(tmp_path: Path) -> None:
    """With a folder, a file and a process in the places of those that a person fills in."""
    (tmp_path / "file").write_text("1\n", encoding="utf-8")
    script, shown = [], [each for program in EVERYWHERE for each in calls(program)]
    assert len(shown) > 50
    for number, command in enumerate(shown):
        here = re.sub(
            r"\b(?:CHECKPOINTS|FOLDER|RUNS|STATE_DIR|CONFIG_FILE|LOG|STDOUT_OF_THE_JOB)\b", str(tmp_path), command
        )
        here = re.sub(r"\bPID\b", str(os.getpid()), here)
        script.append(f"echo '== {number}' >&2\n( eval {shlex.quote(here)} )")
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    answers = re.split(r"^== \d+\n", done.stderr, flags=re.MULTILINE)[1:]
    assert len(answers) == len(shown), done.stderr
    assert_none(
        f"{command}: {answer}" for command, answer in zip(shown, answers, strict=True) if REFUSED.search(answer)
    )
