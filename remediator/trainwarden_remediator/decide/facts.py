"""What is known about an attempt at a decision: from where, as of when, and whether it says that the attempt works."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from trainwarden.record.clock import to_iso
from trainwarden_remediator.database.schema import facts
from trainwarden_remediator.decide.verdict import Contradiction
from trainwarden_remediator.drivers.driver import Absent, JobState, Reading, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import clean
from trainwarden_remediator.observe.cpu_time import CpuUse
from trainwarden_remediator.observe.evidence import OBSERVED, ReportedRun

_PROMETHEUS = "prometheus"
NODES = "alertmanager"
# When facts are stored: with a decision, and right before the call that ends the attempt.
DECISION, CALL = "decision", "call"
# A rank may end its step after another one has failed.
LAST_STEP_SECONDS = 5.0
# What is averaged over some minutes says nothing about the time since a step before these are over; a minute for the
# interval of the rule, too.
_GPU_SECONDS, _EFA_SECONDS, _INFINIBAND_SECONDS = 120.0, 360.0, 180.0
# The average of the run's GPUs, the same as hang.units_active of rules/values.yml, by which rules refuse to have a run
# restarted: a kernel that waits in a collective uses no unit, and generating text one token at a time uses some percent
# of the memory. A single GPU that works on in a hang of less than some 50 counts as work, too: it pages. CPU time never
# says that a run works: a rank that waits for its GPU or its peers polls, and takes as much of it as one that works.
UNITS_WORK = 0.01
# Of what the GPUs of the run usually draw; the first is hang.power_share of rules/values.yml. A GPU that waits in a
# collective draws a fifth of what training does on an H200 (docs/benchmarks.md), and up to a half on older ones.
POWER_WORKS, _POWER_IDLE = 0.6, 0.5
# From each node of the run. Where a network carries other services, too, a node that idles sends some 100 KB/s.
_FABRIC_WORKS_BYTES, _FABRIC_IDLE_BYTES = 1e7, 1e6
# Longer than a line that is written takes to be seen: the exporter's look, a scrape, a round.
_LOG_GROWS_SECONDS = 60.0
# The part of its attempt for which a run must have worked: what is usual is the upper quartile of six hours of it.
_WORKED_PART = 0.75
_MAX_ROWS = 64
_OF_INCIDENT = sa.select(facts).where(facts.c.incident_id == sa.bindparam("of")).order_by(facts.c.number)
_CPU = "CPU time"
# What neither the record nor the log of a run shows.
_FROM_OUTSIDE = ("GPU units", "GPU power", "EFA", "InfiniBand", _CPU)


class Supports(str, enum.Enum):
    """What a fact says about the attempt."""

    WORKING = "working"
    ENDED = "ended"
    STALLED = "stalled"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Fact:
    """One reading. `at` is Unix time of what was observed, None where that is unknown."""

    source: str
    subject: str
    value: str
    at: float | None
    supports: Supports

    def __str__(self) -> str:
        """Return it as a part of a reason."""
        return f"{self.subject} {self.value} ({self.source})"


def facts_of(
    mode: str, run: ReportedRun, reading: Reading | None, now: float, cpu: CpuUse | Unknown | None = None
) -> tuple[Fact, ...]:
    """Return what is known about the attempt of a run for which an alert reports a crash, a stall or a timeout.

    Args:
        mode: of the alert.
        run: as Prometheus shows it.
        reading: of its job; None where there is no driver for it.
        now: Unix time.
        cpu: what its job takes of CPUs; None where that is not looked at.
    """
    # What is measured works or idles since the run has halted, by the clock of its hosts: one of the remediator that is
    # behind must hide none of it.
    present = max(now, run.vitals.get(OBSERVED, now))
    return (
        _of_record(run, now),
        *_of_steps(mode, run, now),
        *_of_life(mode, run),
        *([] if reading is None else [_of_scheduler(reading, now)]),
        *_of_gpus(mode, run, present),
        *_of_fabric(mode, run, present, len(reading.nodes) if isinstance(reading, ScheduledJob) else 1),
        *_of_log(mode, run, present),
        *([] if cpu is None else [_of_cpu(cpu, now)]),
    )


def facts_of_nodes(suspects: Mapping[str, str]) -> tuple[Fact, ...]:
    """Return the evidence of a defect of each node."""
    return tuple(Fact(NODES, f"node {node}", why, None, Supports.UNKNOWN) for node, why in sorted(suspects.items()))


def needs_agreement(mode: str, run: ReportedRun) -> bool:
    """Return whether another source must agree that the run stands still before its attempt may be ended.

    Of a job that writes no record nothing but its log shows that, and the log may be buffered, or not be read. Not
    where the log itself states it.
    """
    return run.plain and mode in ("stall", "timeout") and mode not in run.stated


def contradiction(
    mode: str, run: ReportedRun, reading: Reading | None, now: float, cpu: CpuUse | Unknown | None = None
) -> Contradiction | None:
    """Return why the attempt must not be ended: another vantage point than its record says that it works.

    So it is where one must agree that the run stands still, and none does; and where its record does not show what the
    alert reports. Arguments as of `facts_of`.
    """
    found = facts_of(mode, run, reading, now, cpu)
    if isinstance(reading, ScheduledJob) and reading.state is JobState.FAILED:
        return None  # nothing is left to be ended
    if (shown := _disproof(mode, run)) is not None:
        return Contradiction(
            f"attempt {run.attempt}: an alert reports a {mode}, and {shown} ({_PROMETHEUS}). It is not ended: if it "
            "hangs, let it be restarted by trainwarden-remediator approve",
            by_facts=True,
        )
    working = [fact for fact in found if fact.supports is Supports.WORKING and fact.subject != "steps"]
    if not working:
        return _without_agreement(mode, run, found) if needs_agreement(mode, run) else None
    against = _failed_text(mode, run) if mode == "crash" else _halted_text(mode, run)
    return Contradiction(
        f"attempt {run.attempt}: {against} ({_PROMETHEUS}), and it works by {', '.join(map(str, working))}. "
        "It is not ended: if it hangs, let it be restarted by trainwarden-remediator approve",
        by_facts=True,
    )


def _without_agreement(mode: str, run: ReportedRun, found: Sequence[Fact]) -> Contradiction | None:
    """Return that no source but the record and the log says that the run stands still; None where one does."""
    if any(fact.supports is Supports.STALLED and fact.subject in _FROM_OUTSIDE for fact in found):
        return None
    seen = ", ".join(str(fact) for fact in found if fact.subject in _FROM_OUTSIDE) or "nothing else is measured"
    return Contradiction(
        f"attempt {run.attempt}: {_halted_text(mode, run)} by its log ({_PROMETHEUS}), which may be buffered, and no "
        f"second vantage point agrees: {seen}. It is not ended: if it hangs, let it be restarted by "
        "trainwarden-remediator approve",
        by_facts=True,
    )


def _disproof(mode: str, run: ReportedRun) -> str | None:
    """Return how the record of a run shows that it neither stalls nor is silent, as an alert says that it does.

    An alert outlives what it reports by some minutes where Prometheus does not reach Alertmanager, and whoever reaches
    that can post one. Ages are measured on the clock of the exporter, as by the rules; without that nothing is known.
    """
    observed = run.vitals.get(OBSERVED)
    if observed is None or mode in run.stated:
        return None
    if mode == "stall" and run.moved is not None and run.stall_budget is not None:
        age = max(0.0, observed - run.moved)
        if age <= run.stall_budget:
            return f"its last step or change of phase is {age:.0f} s old, where {run.stall_budget:g} s are allowed"
    if mode == "timeout" and run.alive is not None and run.stale_threshold is not None:
        age = max(0.0, observed - run.alive)
        if age <= run.stale_threshold:
            return f"its last sign of life is {age:.0f} s old, where {run.stale_threshold:g} s are allowed"
    return None


def _failed_text(mode: str, run: ReportedRun) -> str:
    is_stated = run.failed is None and mode in run.stated
    return "its log states that it has failed" if is_stated else "it is recorded as failed"


def _halted_text(mode: str, run: ReportedRun) -> str:
    step = "" if run.step is None else f" at step {run.step:g}"
    return f"no step is reported{step}" if mode == "stall" else f"its heartbeats have ended{step}"


def _halted(mode: str, run: ReportedRun) -> float | None:
    """Return when the run is reported to have stopped working, Unix time: before its first step, when it began."""
    if mode == "crash":
        return run.broke(mode)
    return run.started if run.stepped is None else run.stepped


def _is_over(mode: str, run: ReportedRun, now: float, seconds: float) -> bool:
    """Return whether the run has been reported as halted for longer than this."""
    halted = _halted(mode, run)
    return halted is not None and now - halted > seconds


def _of_record(run: ReportedRun, now: float) -> Fact:
    ended = run.state in ("failed", "succeeded", "cancelled")
    at = run.failed if run.state == "failed" else now
    return Fact(_PROMETHEUS, "record", run.state or "unknown", at, Supports.ENDED if ended else Supports.UNKNOWN)


def _of_steps(mode: str, run: ReportedRun, now: float) -> Iterator[Fact]:
    if run.step is None and run.high_water is None:
        return
    supports = Supports.UNKNOWN
    broke = run.broke(mode)
    if mode == "crash" and run.stepped is not None and broke is not None:
        supports = Supports.WORKING if run.stepped > broke + LAST_STEP_SECONDS else Supports.UNKNOWN
    elif mode == "stall" and _disproof(mode, run) is not None:
        supports = Supports.WORKING
    elif run.stepped is not None and run.stall_budget is not None and now - run.stepped > run.stall_budget:
        supports = Supports.STALLED
    step = run.high_water if run.step is None else run.step
    yield Fact(_PROMETHEUS, "steps", f"step {step:g}", run.stepped, supports)


def _of_life(mode: str, run: ReportedRun) -> Iterator[Fact]:
    """A heartbeat may be that of a thread of a rank that hangs."""
    if run.alive is not None:
        supports = Supports.STALLED if mode == "timeout" else Supports.UNKNOWN
        if mode == "timeout" and _disproof(mode, run) is not None:
            supports = Supports.WORKING
        yield Fact(_PROMETHEUS, "heartbeat", to_iso(run.alive), run.alive, supports)


def _of_scheduler(reading: Reading, now: float) -> Fact:
    """That a job runs says nothing about its ranks."""
    if isinstance(reading, Unknown):
        return Fact("scheduler", "job", f"no answer: {reading.reason}", now, Supports.UNKNOWN)
    if isinstance(reading, Absent):
        return Fact("scheduler", "job", f"not listed {reading.ended or ''}".rstrip(), now, Supports.ENDED)
    over = (JobState.FAILED, JobState.COMPLETED, JobState.CANCELLED)
    supports = Supports.ENDED if reading.state in over else Supports.UNKNOWN
    return Fact("scheduler", f"job {reading.job_id}", reading.scheduler_state, now, supports)


def _of_gpus(mode: str, run: ReportedRun, now: float) -> Iterator[Fact]:
    units = run.vitals.get("run:gpu_units_active:avg")
    if units is not None:
        over = _is_over(mode, run, now, _GPU_SECONDS)
        supports = _judged(over, works=units > UNITS_WORK, idles=units <= UNITS_WORK)
        yield Fact(_PROMETHEUS, "GPU units", f"{units:.0%} active", now, supports)
    power, usual = run.vitals.get("run:gpu_power_watts:avg"), run.vitals.get("run:gpu_power_watts:usual")
    if power is not None:
        # Where the activity of units is read, it shows more. What is usual must be of a time at which the run worked.
        measured = bool(usual) and units is None and _worked_long(mode, run, now)
        share = power / usual if usual else 0.0
        over = measured and _is_over(mode, run, now, _GPU_SECONDS)
        supports = _judged(over, works=share > POWER_WORKS, idles=share < _POWER_IDLE)
        text = f"{power:.0f} W" + ("" if usual is None else f" of usually {usual:.0f} W")
        yield Fact(_PROMETHEUS, "GPU power", text, now, supports)
    used = run.vitals.get("run:gpu_utilization:avg")
    if used is not None:
        # A kernel that waits in a collective keeps the GPU as busy as one that computes.
        yield Fact(_PROMETHEUS, "GPU utilization", f"{used:.0%}", now, Supports.UNKNOWN)


def _worked_long(mode: str, run: ReportedRun, now: float) -> bool:
    """Return whether the run has worked for most of its attempt."""
    halted = _halted(mode, run)
    return halted is not None and run.started is not None and halted - run.started > _WORKED_PART * (now - run.started)


def _of_fabric(mode: str, run: ReportedRun, now: float, nodes: int) -> Iterator[Fact]:
    for name, network, seconds in (
        ("run:efa_tx_bytes:rate5m", "EFA", _EFA_SECONDS),
        ("run:infiniband_tx_bytes:rate2m", "InfiniBand", _INFINIBAND_SECONDS),
    ):
        rate = run.vitals.get(name)
        if rate is not None:
            works = rate >= _FABRIC_WORKS_BYTES * max(1, nodes)
            idles = nodes > 1 and rate < _FABRIC_IDLE_BYTES * nodes  # one node has nobody to send to
            supports = _judged(_is_over(mode, run, now, seconds), works=works, idles=idles)
            yield Fact(_PROMETHEUS, network, f"{rate / 1e6:.0f} MB/s sent", now, supports)


def _of_log(mode: str, run: ReportedRun, now: float) -> Iterator[Fact]:
    """After a failure a log that goes on is a sign of work. Of a run that hangs it is not: its watchdogs write, too."""
    written = run.vitals.get("training_log_last_write_timestamp_seconds")
    if written is not None:
        # A time that lies ahead, as of a server of files whose clock is wrong, says nothing for as long as it does.
        grows = abs(now - written) <= _LOG_GROWS_SECONDS
        broke = run.broke(mode)
        since = mode == "crash" and broke is not None and written > broke + _LOG_GROWS_SECONDS
        text = "grows" if grows else "does not grow"
        yield Fact(_PROMETHEUS, "log", text, written, _working(grows and since))


def _of_cpu(cpu: CpuUse | Unknown, now: float) -> Fact:
    """That a job takes CPU time says nothing: ranks that wait poll. That it takes none says that it stands still."""
    if isinstance(cpu, Unknown):
        return Fact("scheduler", _CPU, f"unknown: {cpu.reason}", None, Supports.UNKNOWN)
    return Fact("scheduler", _CPU, str(cpu), now, Supports.STALLED if cpu.is_idle else Supports.UNKNOWN)


def _judged(over: bool, *, works: bool, idles: bool) -> Supports:  # whether the time is over
    if not over:
        return Supports.UNKNOWN
    return Supports.WORKING if works else Supports.STALLED if idles else Supports.UNKNOWN


def _working(works: bool) -> Supports:  # a verdict of one line
    return Supports.WORKING if works else Supports.UNKNOWN


def insert_facts(
    connection: sa.Connection, incident_id: str, decided: float, found: Sequence[Fact], moment: str = DECISION
) -> None:
    """Store the facts of a decision about an incident, or of a call to a scheduler for it, the first 64."""
    rows = [
        {
            "incident_id": incident_id,
            "decided": decided,
            "source": clean(fact.source, 64),
            "what": clean(fact.subject, 64),
            "value": clean(fact.value),
            "at": fact.at,
            "supports": fact.supports.value,
            "moment": moment,
        }
        for fact in found[:_MAX_ROWS]
    ]
    if rows:
        connection.execute(facts.insert(), rows)


def facts_as_json(connection: sa.Connection, incident_id: str) -> list[dict[str, Any]]:
    """Return the facts of the last decision about an incident and of the last call for it, oldest first.

    `moment` is decision or call, `decided` its time; `age` is in seconds, at that time.
    """
    rows = connection.execute(_OF_INCIDENT, {"of": incident_id}).all()
    newest = {row.moment or DECISION: row.decided for row in rows}
    return [
        {
            "moment": row.moment or DECISION,
            "decided": row.decided,
            "source": row.source,
            "subject": row.what,
            "value": row.value,
            "observed": row.at,
            "age": None if row.at is None else max(0.0, row.decided - row.at),
            "supports": row.supports,
        }
        for row in rows
        if row.decided == newest[row.moment or DECISION]
    ]


def changed_facts(known: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, of facts as `facts_as_json` has them, those of the call that differ from those of the decision."""
    before = {(each["subject"], each["value"]) for each in known if each["moment"] == DECISION}
    of_call = [each for each in known if each["moment"] == CALL]
    return [each for each in of_call if (each["subject"], each["value"]) not in before]


def fact_as_text(fact: dict[str, Any]) -> str:
    """Return a fact as `facts_as_json` has it, in short."""
    age = "" if fact["age"] is None or fact["age"] < 1 else f", {fact['age']:.0f} s before"
    says = "" if fact["supports"] == Supports.UNKNOWN.value else f", {fact['supports']}"
    when = "at the call, " if fact["moment"] == CALL else ""
    return f"{when}{fact['subject']}: {fact['value']} ({fact['source']}{age}{says})"
