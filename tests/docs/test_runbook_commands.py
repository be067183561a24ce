"""The commands of the runbooks are run, where their tool is here: what a person on call copies must not be refused."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.rules import promql
from tests.rules.rule_files import ROOT, exists
from tests.unit.clients.scripted import Scripted
from trainwarden import cli as trainwarden
from trainwarden.stack.binaries import Tools
from trainwarden_remediator import cli as remediator

RUNBOOKS = sorted((ROOT / "rules/runbooks").glob("*.md"))
OWN: dict[str, Callable[[Sequence[str]], int]] = {
    "trainwarden": lambda arguments: trainwarden.main(list(arguments)),
    "trainwarden-remediator": remediator.main,
}
MISUSE = 2


def blocks(path: Path) -> Iterator[str]:
    """The indented blocks of a runbook, each a script."""
    for block in re.findall(r"(?:^    .*\n)+", path.read_text(encoding="utf-8"), re.MULTILINE):
        yield re.sub(r"^    ", "", block, flags=re.MULTILINE)


def commands(first: str) -> list[str]:
    """Every command of the runbooks that begins with this word, without the comment behind it."""
    lines = [line for path in RUNBOOKS for block in blocks(path) for line in block.replace("\\\n", " ").splitlines()]
    return [re.sub(r"\s+#\s.*$", "", line) for line in dict.fromkeys(lines) if line.startswith(f"{first} ")]


def calls(program: str) -> list[str]:
    """Every call of a program in the runbooks, also beside others in a line, without what its output is piped into."""
    lines = [line for path in RUNBOOKS for block in blocks(path) for line in block.replace("\\\n", " ").splitlines()]
    parts = [part.strip() for line in lines for part in re.split(r"[;|]", re.sub(r"(?:^|\s+)#\s.*$", "", line))]
    parts = [re.sub(r"^(?:time|(?:do )?timeout (?:-s KILL )?\d+) ", "", part) for part in parts]
    return [part for part in dict.fromkeys(parts) if re.match(rf"{re.escape(program)}(?: |$)", part)]


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
    script = "\n".join(f"{{\n{block}\n}}" for path in RUNBOOKS for block in blocks(path))
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


CHANGES = re.compile(
    r"scancel|kill|umount|mount .*\S|reboot|modprobe|nvidia-smi -r|dcgmi diag"
    r"|scontrol (?!show|ping)|systemctl (?!status|show)"
)


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_who_pastes_a_diagnosis_changes_nothing(path: Path) -> None:
    """What drains, ends, releases or mounts stands under Fix; a file that was written to see whether one can goes."""
    diagnosis = path.read_text(encoding="utf-8").partition("## Diagnosis\n")[2].partition("\n## ")[0]
    lines = [re.sub(r"\s+#\s.*$", "", line) for line in re.findall(r"^    (.+)$", diagnosis, re.MULTILINE)]
    parts = [part.strip() for line in lines for part in re.split(r"[;|&]+", line)]
    assert [part for part in parts if CHANGES.match(part)] == []
    assert all(f"&& rm {made} " in f"{line} " for line in lines for made in re.findall(r"\btouch (\S+)", line))


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_a_command_in_a_sentence_is_on_one_line(path: Path) -> None:
    """A runbook is read as it is, too: half a command, or two, would be copied."""
    text = re.sub(r"^    .+$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    spans = [span for paragraph in text.split("\n\n") for span in re.findall(r"`[^`]*`", paragraph)]
    assert [span for span in spans if "\n" in span] == []


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
@pytest.mark.parametrize("command", [*commands("promtool"), *commands("amtool")])
def test_prometheus_own_tools_take_it(tools: Tools, answering: Scripted, command: str) -> None:
    if command.startswith("promtool"):
        answering.body = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'
    else:
        answering.body = b"[]"
    command = command.replace("PROMETHEUS", answering.url).replace("ALERTMANAGER", answering.url)
    command = command.replace("=alertmanager.yml", f"={ROOT / 'alertmanager/alertmanager.yml'}")
    if "amtool alert" in command and "--alertmanager.url" not in command:  # a team has it in amtool's own configuration
        command += f" --alertmanager.url={answering.url}"
    done = run(command, tools)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [*commands("trainwarden"), *commands("trainwarden-remediator")])
def test_our_own_commands_take_their_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Where nothing is on record they answer that."""
    first, *arguments = command.split()
    if arguments[0] == "FLAGS":  # those of the service
        arguments = [*arguments[1:], "--help"]
    places = {"DIR": tmp_path, "CHECKPOINTS": tmp_path, "FILE": "observe", "POLICY": "observe"}
    for place, value in places.items():
        arguments = [re.sub(rf"^(--[\w-]+=)?{place}$", rf"\g<1>{value}", each) for each in arguments]
    try:
        status = OWN[first](arguments)
    except SystemExit as stop:
        status = int(stop.code or 0)
    answer = capsys.readouterr().err
    assert status != MISUSE or "no decision log here" in answer, answer


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
    "cat",
    "date",
    "df",
    "du",
    "free",
    "head",
    "ls",
    "ps",
    "sort",
    "ss",
    "stat",
    "tail",
    "top",
    "uptime",
    "wc",
)
REFUSED = re.compile(r"unrecognized|invalid|unknown|unsupported|[Uu]sage:|try .* --help|bad (?:argument|syntax)")


@pytest.mark.process
@pytest.mark.parametrize("command", [each for program in EVERYWHERE for each in calls(program)])
def test_a_program_of_any_linux_takes_it(tmp_path: Path, command: str) -> None:
    """With a folder, a file and a process in the places of those that a person fills in."""
    (tmp_path / "file").write_text("1\n", encoding="utf-8")
    command = re.sub(
        r"\b(?:CHECKPOINTS|FOLDER|RUNS|STATE_DIR|CONFIG_FILE|LOG|STDOUT_OF_THE_JOB)\b", str(tmp_path), command
    )
    command = re.sub(r"\bPID\b", str(os.getpid()), command)
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert not REFUSED.search(done.stderr), done.stderr
