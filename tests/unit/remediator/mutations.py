"""Breaks the remediator on purpose, and shows which random histories find it.

usage: python -m tests.unit.remediator.mutations [NAME ...]

NAME is a part of the name of a mutation; all of them if none. Each runs 600 histories, then others, until one of them
finds it: by an assertion of the histories, as another exception may be a fault of the mutation itself. Status 1 if any
is missed. Where one check backs another up, a mutation breaks both.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from hypothesis.errors import FlakyFailure

from tests.session import begin

# Of the histories of each machine that `SHARES` counts, then of as many others up to five times.
SEEDS = (None, 1, 2, 3, 4, 5)
# What a process that tries one mutation ends with: no status with which Python ends by itself.
_FOUND, _MISSED = 10, 11


class Edit(NamedTuple):
    """Another text in a file, below the folder of the remediator's package."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutation:
    """One fault. `machines` are those that may find it, in the order in which they are tried."""

    name: str
    edits: tuple[Edit, ...]
    machines: tuple[str, ...] = ("AnyOrder",)


def _one(name: str, file: str, old: str, new: str, *machines: str) -> Mutation:
    return Mutation(name, (Edit(file, old, new),), machines or ("AnyOrder",))


EXCLUSIONS, DRAINS = "act/exclusions.py", "act/drains.py"
ATTEMPT = "decide/attempt.py"
DECIDE, OBJECTIONS, REMEDIATE = "decide/decide.py", "examine/objections.py", "act/remediate.py"
WITNESS, ACT, TIMERS, DRIVER = "examine/witness.py", "act/act.py", "store/timers.py", "drivers/driver.py"
MUTATIONS = (
    _one("budget: one restart too many", DECIDE, "if used >= rule.max_retries:", "if used > rule.max_retries:"),
    _one(
        "budget: restarts that failed cost nothing",
        "incidents/incident_rows.py",
        "incidents.c.state != State.ADOPTED.value)",
        "incidents.c.state == State.DONE.value)",
    ),
    _one("budget: no guard against restarts without a step", DECIDE, "if history.fruitless >= most:", "if False:"),
    Mutation(
        "generation: the scheduler's newer start is not noticed",
        (
            Edit(ATTEMPT, "if reading.generation > generation:", "if False:"),
            Edit(
                DRIVER,
                "if reading.generation == target.generation:",
                "if reading.generation == target.generation or reading.state is JobState.RUNNING:",
            ),
        ),
    ),
    Mutation(
        "generation: an alert about an earlier attempt counts",
        (
            Edit(ATTEMPT, "if alert.attempt < run.attempt:", "if False:"),
            Edit(ATTEMPT, "alert.starts_at < run.started - _SKEW_SECONDS", "False"),
        ),
    ),
    _one(
        "doubt: a call is repeated at once",
        "store/doubt.py",
        "return self._timers.wait(incident.id, _CALLED) < self._window",
        "return False",
    ),
    _one(
        "doubt: a late call is not awaited",
        "store/doubt.py",
        "return incident.calls > 0 and self._timers.wait(incident.id, _UNANSWERED) < self._window",
        "return False",
    ),
    _one("timers: none outlives the process", TIMERS, "for each in stored_timers(transactions)", "for each in ()"),
    _one(
        "timers: by the wall clock",
        TIMERS,
        "return timer.elapsed + self._clock.monotonic() - timer.since",
        "return timer.elapsed + self._clock.now() - 1.8e9 - timer.since",
    ),
    _one("freeze: not read before the call", OBJECTIONS, "return NotNow(frozen)", "pass"),
    _one(
        "silence: not read before the call",
        OBJECTIONS,
        "alert = _alert_of(incident, firing)\n",
        "alert = _alert_of(incident, firing) or Alert({'alertname': incident.alert, 'run_id': incident.run_id, "
        "'attempt': str(incident.attempt), 'failure_mode': incident.failure_mode, 'cluster': incident.cluster},"
        " None)\n",
    ),
    _one(
        "mode and maintenance: not read before the call",
        OBJECTIONS,
        "return NotNow(reason) if reason else None",
        "return None",
    ),
    _one(
        "life: other sources are not read before the call",
        OBJECTIONS,
        "or self._contradicted(incident, run, cpu)\n",
        "\n",
    ),
    Mutation(
        "life: steps after a recorded failure do not count",
        (
            Edit(WITNESS, 'if alert.mode != "crash" and not is_stated:', "if True:"),
            Edit(OBJECTIONS, "if run.high_water <= incident.step_before:", "if True:"),
        ),
    ),
    _one("owner: not compared", OBJECTIONS, " or self._of_owner(run, job)", ""),
    _one(
        "approval: not awaited",
        REMEDIATE,
        "by = self._approvals.by(incident)",
        "by = self._approvals.by(incident) or ''",
    ),
    _one(
        "approval: a veto counts as one",
        OBJECTIONS,
        "if (by := self._store.answers.vetoed(incident.id)) is not None:",
        "if False:",
    ),
    _one(
        "approval: a countdown ends early",
        "act/approvals.py",
        "counted >= approval.veto_seconds",
        "counted >= approval.veto_seconds / 2",
    ),
    _one(
        "approval: an unknown price needs none",
        DECIDE,
        "if most is None or (price is not None",
        "if price is None or (most is not None",
    ),
    _one("hold: of a person is taken for ours", DRIVER, " and reading.held_by_requeue\n", "\n"),
    _one(
        "order: released while the old start is ending",
        DRIVER,
        "if reading.state is JobState.ENDING:\n        return RestartProgress.BUSY",
        "if reading.state is JobState.ENDING:\n        return RestartProgress.READY",
    ),
    _one(
        "sweep: no job that is left held is found",
        "act/sweep.py",
        "if finding.step is not Step.LEAVE:",
        "if False:",
        "LateCalls",
    ),
    _one(
        "page: a hand-over pages nobody",
        "act/transitions.py",
        "reason, reason=reason, paging=True)",
        "reason, reason=reason, paging=False)",
    ),
    _one(
        "page: ends although nothing has become better",
        "act/relief.py",
        "return present.generation > key.generation",
        "return True",
    ),
    _one(
        "alert: one that was silenced is lost",
        "examine/examine.py",
        "INACTIVE, dropped=True)",
        "INACTIVE, dropped=False)",
    ),
    _one(
        "alert: of another cluster counts",
        ATTEMPT,
        "if run.cluster and not alert.is_of_cluster(run.cluster):",
        "if False:",
    ),
    _one(
        "alert: acknowledged before it is durable",
        "store/store.py",
        'keep_alerts(connection, delivery.firing, "webhook", now)',
        "pass",
    ),
    _one("record: a call is not written down", ACT, "number = self._store.calls.begin(made, known)", "number = 0"),
    _one(
        "storm: not read before the call",
        OBJECTIONS,
        "return Held(storm.text) if storm else None",
        "return None",
        "AnyOrderOfSeveral",
    ),
    _one(
        "forgetful: a start that may have been forgotten is given again",
        ACT,
        'if any(each.boot != boot for each in self._made("commit", driver, target)):',
        "if False:",
        "Forgetful",
    ),
    _one(
        "forgetful: a start that was begun again is ended",
        ACT,
        'if any(each.job_started not in (None, started) for each in self._made("prepare", driver, target)):',
        "if False:",
        "Forgetful",
    ),
    _one(
        "forgetful: a new job that may have been forgotten is given again",
        ACT,
        'if any(each.boot != boot for each in self._made("commit", driver, target)):',
        "if False:",
        "ForgetfulResubmits",
    ),
    _one(
        "forgetful: a job that waits under the old count stays in doubt",
        "act/ending.py",
        "self._leave_unstarted(restart) or ",
        "",
        "Forgetful",
    ),
    _one(
        "nodes: more are avoided than may be",
        DECIDE,
        "if len(nodes) > most:",
        "if False:",
        "AnyOrderOfBadNodes",
    ),
    _one(
        "nodes: those of earlier restarts do not count",
        DECIDE,
        "nodes = {node: at for node, at in history.excluded.items() if at > now - limit.hours * 3600}",
        "nodes: dict[str, float] = {}",
        "AnyOrderOfBadNodes",
    ),
    _one(
        "nodes: evidence is not read before the call",
        OBJECTIONS,
        "or self._new_suspects(incident)\n",
        "\n",
        "AnyOrderOfBadNodes",
    ),
    _one(
        "nodes: an exclusion has no end",
        EXCLUSIONS,
        "return until is not None and self._clock.now() >= until",
        "return False",
        "AnyOrderOfBadNodes",
    ),
    _one(
        "nodes: what the user excludes is taken back",
        EXCLUSIONS,
        "if node in noted or node not in (job.excluded_nodes or ())",
        "if True",
        "AnyOrderOfBadNodes",
    ),
    Mutation(
        "drain: a node that a person has marked is drained",
        (
            Edit(DRAINS, "node.state not in _IN_USE or node.reason or room <= 0", "room <= 0"),
            Edit(DRAINS, "if node is None or node.reason != expected:", "if node is None:"),
        ),
        ("AnyOrderOfBadNodes",),
    ),
    _one(
        "drain: a person who is faster is not seen",
        DRAINS,
        "if node is None or node.reason != expected:",
        "if node is None:",
        "AnyOrderOfBadNodes",
    ),
    Mutation(
        "drain: one that a person has taken over ends",
        (
            Edit(DRAINS, "return _OURS.fullmatch(reason) is not None", "return _OURS.match(reason) is not None"),
            Edit(DRAINS, "found = _OURS.fullmatch(reason)", "found = _OURS.match(reason)"),
        ),
        ("AnyOrderOfBadNodes",),
    ),
    _one(
        "drain: more than may be",
        DRAINS,
        "or room <= 0:",
        "or False:",
        "AnyOrderOfBadNodes",
    ),
    _one(
        "drain: none ends",
        DRAINS,
        "return until is not None and until <= now",
        "return False",
        "AnyOrderOfBadNodes",
    ),
)


def package() -> Path:
    """Return the folder of the remediator's package."""
    spec = importlib.util.find_spec("trainwarden_remediator")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _break(mutation: Mutation) -> None:
    """Let the modules of the remediator be imported with a mutation; nothing of it must have been imported before."""
    folder = package()
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        edits = [each for each in mutation.edits if folder / each.file == Path(loader.path)]
        if not edits:
            return original(loader, name)
        source = Path(loader.path).read_text()
        for each in edits:
            assert source.count(each.old) == 1, f"{each.file}: {each.old!r}"
            source = source.replace(each.old, each.new)
        return compile(source, loader.path, "exec")

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]


def _find(mutation: Mutation, times: float) -> str | None:
    """Return which machine finds a mutation, after how many histories, and how; None if none does.

    Raises whatever the histories raise beside assertions.
    """
    _break(mutation)
    from tests.unit.remediator import histories, machines  # the mutation must be there before

    logging.disable(logging.CRITICAL)
    for seed in SEEDS:
        for name in mutation.machines:
            machine = getattr(machines, name)
            try:
                machines.run(machine, int(machines.SHARES[machine] * times), shrink=False, seed=seed)
            except AssertionError as error:
                how = str(error)
            except FlakyFailure as error:  # a history that fails in another way when it is run again
                if not all(isinstance(each, AssertionError) for each in error.exceptions):
                    raise
                how = str(error.exceptions[0])
            else:
                continue
            first = how.strip().split("\n")[0]
            return f"{name}, {histories.STATISTICS[name]['histories']}: {first}"[:200]
    return None


def find(mutation: Mutation, times: float = 1.0) -> str | None:
    """Do the same in a process of its own; raise RuntimeError where that did not get as far as an answer."""
    command = [sys.executable, "-m", "tests.unit.remediator.mutations", "--one", mutation.name, str(times)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": "0"}
    )
    if done.returncode not in (_FOUND, _MISSED):
        raise RuntimeError(f"{mutation.name}: exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip() if done.returncode == _FOUND else None


def main(arguments: list[str]) -> int:
    """Print what finds each mutation; return the exit status."""
    if arguments[:1] == ["--one"]:
        [mutation] = [each for each in MUTATIONS if each.name == arguments[1]]
        found = _find(mutation, float(arguments[2]))
        print(found or "")
        return _FOUND if found else _MISSED
    missed = 0
    session = begin()
    for mutation in MUTATIONS:
        if not arguments or any(each in mutation.name for each in arguments):
            found = find(mutation)
            missed += found is None
            print(f"{mutation.name}: {found or 'MISSED'}", flush=True)
    session.end()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
