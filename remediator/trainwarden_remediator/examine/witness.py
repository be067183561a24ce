"""Whether a second source confirms what an alert reports of a run, before anything is ended for it."""

from __future__ import annotations

from trainwarden_remediator.decide.facts import LAST_STEP_SECONDS, contradiction, needs_agreement
from trainwarden_remediator.decide.verdict import Contradiction, Wait
from trainwarden_remediator.drivers.driver import JobState, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Alert, parse_key
from trainwarden_remediator.observe.cpu_time import CpuUse
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers

# How long a run that is recorded as failed must be quiet, unless the scheduler has ended its job.
_QUIET_SECONDS = 60.0
# Kinds of timers of an alert.
_SEEN_FAILED, _STEPS, _SIGNS = "failed while its job runs", "step", "life"
_CHANGED = {_STEPS: "step changes", _SIGNS: "life changes"}
_LIFE = (_SEEN_FAILED, *_CHANGED, *_CHANGED.values())


def cpu_use(world: World, mode: str, run: ReportedRun) -> CpuUse | Unknown | None:
    """Return what the job of a run takes of CPUs; None where nothing depends on it."""
    key = parse_key(run.attempt_key)
    depends = needs_agreement(mode, run) or (run.plain and mode in run.stated)
    return world.cpu.of(key) if key is not None and depends else None


class Witness:
    """Waits while something else than the record of a run says that it works.

    With a crash, and with what a signal of its user states of its log, while its job runs and shows life: a run that
    works may write an error, too.
    That the scheduler has ended the job is a second witness of a crash. Without it there must be no step since the
    failure, and no heartbeat. A heartbeat alone may be that of a thread of a rank that hangs: it counts for as long as
    a step may take.
    """

    def __init__(self, world: World, store: Store, timers: Timers) -> None:
        self._world = world
        self._store = store
        self._timers = timers

    def against(self, alert: Alert, run: ReportedRun) -> Wait | None:
        """Return what contradicts the alert; None if the attempt may be ended."""
        key = parse_key(run.attempt_key)
        if key is None:
            return None
        cpu = cpu_use(self._world, alert.mode or "", run)
        reading = self._world.drivers[key.scheduler].job(key.job_id)
        against = contradiction(alert.mode or "", run, reading, self._world.clock.now(), cpu)
        of_attempt = run.run_id, alert.cluster, run.attempt_key, run.high_water
        if against is not None and self._store.answers.approved_against_facts(*of_attempt):
            against = None
        is_stated = bool(alert.label("signal"))
        if alert.mode != "crash" and not is_stated:
            return against if alert.mode in ("stall", "timeout") else None
        if not isinstance(reading, ScheduledJob) or reading.state is not JobState.RUNNING:
            self._timers.forget(alert.key, *_LIFE)
            return None
        alone = self._timers.wait(alert.key, _SEEN_FAILED)
        budget = max(_QUIET_SECONDS, run.stall_budget or 0.0)
        stepping, unmoved = self._change(alert.key, _STEPS, run.step)
        beating, unheard = self._change(alert.key, _SIGNS, run.alive)
        if stepping and unmoved < _QUIET_SECONDS:
            told, mend = ("is recorded as failed", "delete the file _error of its record")
            if is_stated:
                told, mend = f"has a {alert.mode} by signal {alert.label('signal')} of its log", "mend the signal"
            return Contradiction(
                f"attempt {run.attempt} {told}, and goes on: step {run.step:g} on job {key.job_id}. "
                f"It is not ended: if it works, {mend}; if not, cancel the job"
            )
        if against is not None:
            return against
        if alone < _QUIET_SECONDS:
            return Wait(f"job {key.job_id} still runs: it may recover by itself")
        stepped = stepping or _stepped_since(run, run.broke(alert.mode or ""))
        # That a job without the library lives is its scheduler's word: whether it works, its CPU time shows sooner.
        is_idle = isinstance(cpu, CpuUse) and cpu.is_idle
        lives = (stepped and unmoved < budget) or (beating and unheard < _QUIET_SECONDS and alone < budget)
        if lives and not is_idle:
            return Wait(f"job {key.job_id} still runs, and its ranks have shown life since the failure")
        return None

    def _change(self, subject: str, kind: str, value: float | None) -> tuple[bool, float]:
        """Return whether a value of the run has been seen to change, and the seconds since then, or of watching it."""
        shown = "" if value is None else repr(value)
        known = self._timers.detail(subject, kind)
        if shown and known and known != shown:
            self._timers.wait(subject, _CHANGED[kind])
            # Begins anew below. Not durably at once: a process that is killed before sees the same change again.
            self._timers.forget(subject, kind)
        elapsed = self._timers.wait(subject, kind, shown or known or "")
        return self._timers.elapsed(subject, _CHANGED[kind]) is not None, elapsed


def _stepped_since(run: ReportedRun, failed: float | None) -> bool:
    """Return whether a step was made since a failure, by the clocks of the run's hosts."""
    return run.stepped is not None and failed is not None and run.stepped > failed + LAST_STEP_SECONDS
