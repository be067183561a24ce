"""What it costs to start: `import trainwarden`, and a command that a shell script calls."""

import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import trainwarden
from benchmarks.rounds import median_ratio, take_turns
from benchmarks.tables import Table, verdict

ROUNDS = 40
_IMPORT_MS = 50.0
_IMPORT_MIB = 8.0
_RATIO = 2.5
_KEY = "slurm:1:0"
_TRACE = """\
Traceback (most recent call last):
  File "train.py", line 7, in <module>
    loss.backward()
RuntimeError: CUDA error: an illegal memory access was encountered
"""
_FIRST = "`trainwarden fail why`, the first command of an attempt"
_COMMANDS = {
    "`trainwarden heartbeat --step 7 --loss 2.5`": ["heartbeat", "--step", "7", "--loss", "2.5"],
    "`trainwarden phase train`": ["phase", "train"],
    "`trainwarden complete`": ["complete"],
    "`trainwarden fail why --failure killed`": ["fail", "why", "--failure", "killed"],
    "`trainwarden fail why --exit-code 137`": ["fail", "why", "--exit-code", "137"],
    "`trainwarden fail 'CUDA out of memory'`": ["fail", "CUDA out of memory"],
    "`trainwarden fail` a traceback": ["fail", _TRACE],
}
_RESIDENT = (
    "\nwith open('/proc/self/status') as file:"
    "\n    print(next(int(line.split()[1]) for line in file if line.startswith('VmRSS:')))"
)


def measure() -> list[Table]:
    """Two tables: the import over a bare interpreter, and shell commands by the time of one that does nothing."""
    # As an installation leaves it: compiled.
    compileall.compile_dir(str(Path(trainwarden.__file__).parent), quiet=2)
    return [_import(), _commands()]


def _import() -> Table:
    # The second is what the first `trainwarden.run` loads: the package itself loads nothing before it is used.
    cases = {"bare": "pass", "`import trainwarden`": "import trainwarden"}
    cases["`import trainwarden; trainwarden.run`"] = "import trainwarden; trainwarden.run"
    times = take_turns({name: _timed([sys.executable, "-c", code]) for name, code in cases.items()}, ROUNDS)
    memory = take_turns({name: _resident(code) for name, code in cases.items()}, 10)
    rows = []
    for name in list(cases)[1:]:
        milliseconds = 1000 * (median(times[name]) - median(times["bare"]))
        mebibytes = (median(memory[name]) - median(memory["bare"])) / 1024
        is_met = milliseconds <= _IMPORT_MS and mebibytes <= _IMPORT_MIB
        said = verdict(is_met) if name == "`import trainwarden`" else ""
        rows.append([name, f"{milliseconds:.1f} ms", f"{mebibytes:.1f} MiB", said])
    note = (
        f"Target: at most {_IMPORT_MS:.0f} ms and {_IMPORT_MIB:.0f} MiB. What a run needs is loaded by the first use."
    )
    return Table(["over a bare interpreter", "time", "resident memory", "target"], rows, note)


def _commands() -> Table:
    bare = "`python -c pass`"
    with tempfile.TemporaryDirectory() as runs:
        environment = {
            **os.environ,
            "TRAINWARDEN_RUNS_DIR": runs,
            "TRAINWARDEN_RUN_ID": "bench",
            "TRAINWARDEN_ATTEMPT_KEY": _KEY,
        }
        cases = {bare: _timed([sys.executable, "-c", "pass"])}
        for name, arguments in _COMMANDS.items():
            cases[name] = _begun(_timed([*_trainwarden(), *arguments], environment), runs)
        cases[_FIRST] = _unheard(_timed([*_trainwarden(), "fail", "why"], environment), runs)
        times = take_turns(cases, ROUNDS)
    rows = [[bare, f"{1000 * median(times[bare]):.1f} ms", "", ""]]
    for name in (*_COMMANDS, _FIRST):
        ratio = median_ratio(times[name], times[bare])
        target = "" if name == _FIRST else verdict(ratio <= _RATIO)
        rows.append([name, f"{1000 * median(times[name]):.1f} ms", f"{ratio:.2f}", target])
    note = (
        f"Target: at most {_RATIO} times as long. The first command of an attempt takes longer, "
        "and so does an end that follows another recorded end: they load more of the library."
    )
    return Table(["command, writing to a folder", "median", "ratio", "target"], rows, note)


def _begun(case: Callable[[], float], runs: str) -> Callable[[], float]:
    """The case in an attempt that has begun and not ended; to make it so is not measured."""

    def once() -> float:
        folder = Path(runs, "bench")
        (folder / "ranks").mkdir(parents=True, exist_ok=True)
        for name in ("_complete", "_error"):
            (folder / name).unlink(missing_ok=True)
        metadata = {"attempt": 0, "attempt_key": _KEY, "status": "running", "phase": "train"}
        (folder / "metadata.json").write_text(json.dumps(metadata))
        return case()

    return once


def _unheard(case: Callable[[], float], runs: str) -> Callable[[], float]:
    """The case in an attempt of which nobody has spoken."""

    def once() -> float:
        shutil.rmtree(Path(runs, "bench"), ignore_errors=True)
        return case()

    return once


def _trainwarden() -> list[str]:
    """The installed command, else one like it."""
    installed = Path(sys.executable).with_name("trainwarden")
    code = "import sys; from trainwarden.cli import main; sys.exit(main())"
    return [str(installed)] if installed.exists() else [sys.executable, "-c", code]


def _timed(command: Sequence[str], environment: dict[str, str] | None = None) -> Callable[[], float]:
    def once() -> float:
        begin = time.perf_counter()
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return time.perf_counter() - begin

    return once


def _resident(code: str) -> Callable[[], float]:
    def once() -> float:
        done = subprocess.run([sys.executable, "-c", code + _RESIDENT], check=True, capture_output=True)
        return float(done.stdout)

    return once
