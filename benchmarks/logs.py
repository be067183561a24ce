"""How fast logs are read, against ripgrep, mtail and a loop over Python's expressions.

The environment says how large the log is, `SIZE_MIB`, and how much of it slow tools are given, `SLICE_MIB`.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import hard_logs
from benchmarks.mixed_log import write_mixed_log
from benchmarks.other_tools import dialect, mtail_program, of_bytes, program, required
from benchmarks.rounds import take_turns
from benchmarks.scanning import PROGRESS
from benchmarks.tables import Table, verdict
from trainwarden.signals.model import Signal
from trainwarden.signals.pack import load_pack

_ROUNDS = 3
_MEMORY_MIB = 64
_COLUMNS = ("", "MB/s", "start, s", "÷ mtail", "÷ ripgrep", "÷ loop", "memory, MiB", "target")
_ENGINES = ("hyperscan", "ahocorasick_rs", "bytes.find")
# ripgrep ends with 1 where it finds nothing, `trainwarden scan` with 1 for a failure and 3 where it cannot tell.
_SEARCHED, _SCANNED = (0, 1), (0, 1, 3)
# Least ratios: of the failure signals alone, and of everything.
_TARGETS = {
    ("hyperscan", "failures"): {"ripgrep": 1.0},
    ("ahocorasick_rs", "failures"): {"ripgrep": 0.5},
    ("bytes.find", "failures"): {"mtail": 16.0},
    ("hyperscan", "all"): {"mtail": 100.0, "loop": 40.0},
    ("ahocorasick_rs", "all"): {"mtail": 100.0, "loop": 40.0},
}


@dataclass(frozen=True)
class Case:
    """A command that reads the log that is appended to it.

    Attributes:
        is_slow: it is given a slice of the log, once.
        reads: what it looks for, for the table.
        statuses: with which it exits when it has read the log.
    """

    tool: str
    reads: str
    command: Sequence[str]
    is_slow: bool = False
    is_ours: bool = False
    statuses: tuple[int, ...] = (0,)

    @property
    def key(self) -> str:
        """Its name among all."""
        return f"{self.tool} {self.reads}"


@dataclass(frozen=True)
class Ran:
    """What a process took: seconds of processor time, memory in MiB, and what it printed."""

    seconds: float
    memory: float
    output: str


def measure() -> list[Table]:
    """Write the log, read it with everything that is here."""
    size = int(os.environ.get("SIZE_MIB", "128"))
    slice_size = int(os.environ.get("SLICE_MIB", "2"))
    signals = load_pack().signals
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [example for signal in signals for example in signal.examples if "\n" not in example]
        whole, part, empty = folder / "whole.txt", folder / "part.txt", folder / "empty.txt"
        write_mixed_log(whole, size << 20, lines)
        part.write_bytes(_slice(whole, slice_size << 20))
        empty.touch()
        cases = _cases(signals, folder)
        started = {case.key: _run(case, empty) for case in cases}
        ran: dict[str, list[Ran]] = {case.key: [_run(case, part)] for case in cases if case.is_slow}
        quick = {case.key: _Turn(case, whole) for case in cases if not case.is_slow}
        take_turns(quick, _ROUNDS)
        ran |= {key: turn.ran for key, turn in quick.items()}
        speeds = {
            case.key: (part if case.is_slow else whole).stat().st_size
            / max(1e-3, _median(ran[case.key]).seconds - started[case.key].seconds)
            for case in cases
        }
        note = _note(size, slice_size, _answers(cases, part), [case.tool for case in cases])
        rows = [_row(case, speeds, started[case.key], ran[case.key]) for case in cases]
        return [Table(_COLUMNS, rows, note), hard_logs.table(signals, part.read_bytes())]


class _Turn:
    def __init__(self, case: Case, log: Path) -> None:
        self._case, self._log = case, log
        self.ran: list[Ran] = []

    def __call__(self) -> float:
        self.ran.append(_run(self._case, self._log))
        return self.ran[-1].seconds


def _cases(signals: Sequence[Signal], folder: Path) -> list[Case]:
    ours = [sys.executable, "-m", "benchmarks.scanning"]
    cases = [
        Case(engine, what, [*ours, engine, what], engine == "bytes.find", is_ours=True, statuses=statuses)
        for what, statuses in (("failures", (0,)), ("all", _SCANNED))
        for engine in _ENGINES
    ]
    cases += [Case("loop", what, [*ours, "loop", what], is_slow=True) for what in ("failures", "all")]
    patterns = dialect(signals)
    if ripgrep := program("rg", "ripgrep"):
        (folder / "patterns").write_text("\n".join(of_bytes(patterns)) + "\n")
        (folder / "texts").write_text("\n".join(required(signals)) + "\n")
        base = [str(ripgrep), "-j1", "-a", "-c", "--regex-size-limit", "2G"]
        cases.append(Case("ripgrep", "failures", [*base, "-f", str(folder / "patterns")], True, statuses=_SEARCHED))
        cases.append(Case("ripgrep -F", "texts alone", [*base, "-F", "-f", str(folder / "texts")], statuses=_SEARCHED))
    if mtail := program("mtail", "mtail"):
        for what, progress in (("failures", ()), ("all", PROGRESS)):
            programs = folder / f"mtail-{what}"
            programs.mkdir()
            (programs / "signals.mtail").write_text(mtail_program(patterns, progress))
            options = ["--one_shot", "--one_shot_format=prometheus", "--max_regexp_length", "100000"]
            cases.append(Case("mtail", what, [str(mtail), *options, "--progs", str(programs), "--logs"], is_slow=True))
    return cases


def _slice(whole: Path, size: int) -> bytes:
    """The log's beginning; a record ends with a line feed alone, as these tools know it."""
    with whole.open("rb") as file:
        data = file.read(size).replace(b"\r", b"\n")
    return data[: data.rfind(b"\n") + 1]


def _run(case: Case, log: Path) -> Ran:
    """Run a case; raise `RuntimeError` if it fails: a tool that refuses its patterns would look fast."""
    environment = {**os.environ, "GOMAXPROCS": "1"}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*case.command, str(log)], stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        output = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in case.statuses:
            errors.seek(0)
            said = errors.read()[-1000:].decode(errors="replace").strip()
            raise RuntimeError(f"{case.key} ended with status {process.returncode}: {said}")
    return Ran(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output)


def _median(ran: Sequence[Ran]) -> Ran:
    return sorted(ran, key=lambda one: one.seconds)[len(ran) // 2]


def _answers(cases: Sequence[Case], part: Path) -> dict[str, str]:
    """What each engine of ours finds in the slice: how much, and a digest of where."""
    tools = [case for case in cases if case.reads == "failures" and (case.is_ours or case.tool == "loop")]
    return {case.tool: _run(case, part).output.strip() for case in tools}


def _row(case: Case, speeds: Mapping[str, float], started: Ran, ran: Sequence[Ran]) -> list[str]:
    against = {"mtail": f"mtail {case.reads}", "ripgrep": "ripgrep failures", "loop": f"loop {case.reads}"}
    if case.reads == "all":
        del against["ripgrep"]
    ratios = {tool: speeds[case.key] / speeds[key] for tool, key in against.items() if key in speeds}
    shown = [f"{ratios[tool]:,.1f}" if tool in ratios else "" for tool in ("mtail", "ripgrep", "loop")]
    memory = max(one.memory for one in ran)
    name, speed = f"`{case.tool}`, {case.reads}", f"{speeds[case.key] / 1e6:,.2f}"
    return [name, speed, f"{started.seconds:.2f}", *shown, f"{memory:.0f}", _verdict(case, ratios, memory)]


def _verdict(case: Case, ratios: Mapping[str, float], memory: float) -> str:
    if not case.is_ours:
        return ""
    targets = _TARGETS.get((case.tool, case.reads), {})
    return verdict(memory < _MEMORY_MIB and all(ratios[to] >= least for to, least in targets.items() if to in ratios))


def _note(size: int, slice_size: int, answers: Mapping[str, str], tools: Sequence[str]) -> str:
    same = "the same" if len(set(answers.values())) == 1 else "**missed**: not the same"
    found = next(iter(answers.values())).split()[0]
    absent = [name for name in ("ripgrep", "mtail") if name not in tools]
    return (
        f"A log of {size} MiB; `bytes.find`, `loop`, `ripgrep` with expressions and `mtail` read its first "
        f"{slice_size} MiB. Speed is of processor time on one core, without the start. In the slice all engines and "
        f"the loop find {same} {found} pairs of record and signal."
        + (f" Not measured, because Debian's package could not be had: {', '.join(absent)}." if absent else "")
    )
