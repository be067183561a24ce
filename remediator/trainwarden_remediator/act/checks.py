"""Compare a run that was restarted with itself before, each check with a verdict of its own. Without input."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from trainwarden_remediator.incidents.incident import clean
from trainwarden_remediator.observe.evidence import ReportedRun

# Of the steps per second of before.
THROUGHPUT_SHARE = 0.9
# Steps that a comparison needs, and after which a slow start is none any more.
_FEW_STEPS, _MANY_STEPS = 20, 100
# The loss may rise by half of itself, or by this much where it is near zero.
_LOSS_SHARE, _LOSS_FLOOR = 0.5, 0.5
PASSED, WORSE, UNKNOWN, PENDING = "passed", "worse", "unknown", "pending"


@dataclass(frozen=True)
class Figures:
    """A run at one moment, None where unknown.

    Attributes:
        step_seconds: median duration of a step.
        steps_timed: how many steps that stands on.
        fast_network: whether NCCL uses a fast network in every process.
        world_size: number of ranks.
        checkpoint_step: of the last checkpoint that was reported.
        resumed_step: of the checkpoint that the attempt chose to resume from.
        resumed_path: its path; empty where it began anew.
        first_step: that the attempt reported.
    """

    step_seconds: float | None = None
    steps_timed: float | None = None
    loss: float | None = None
    fast_network: bool | None = None
    world_size: int | None = None
    checkpoint_step: float | None = None
    resumed_step: int | None = None
    resumed_path: str | None = None
    first_step: int | None = None

    def as_text(self) -> str:
        """Return it for the database."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})

    @classmethod
    def from_text(cls, text: str | None) -> Figures:
        """Return what `as_text` wrote; all unknown where there is none."""
        return cls(**json.loads(text)) if text else cls()


@dataclass(frozen=True)
class Check:
    """One comparison: `verdict` is passed, worse, unknown or pending."""

    name: str
    verdict: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name} {self.verdict}: {self.detail}"


def figures_of(run: ReportedRun, recorded: Mapping[str, object]) -> Figures:
    """Return the figures of a run, of Prometheus and of its record."""
    values = run.figures
    network = values.get("training_nccl_transport_ok")
    return Figures(
        step_seconds=values.get("training_step_duration_seconds"),
        steps_timed=values.get("training_step_durations_observed"),
        loss=values.get("training_loss"),
        fast_network=None if network is None else network == 1,
        checkpoint_step=run.checkpoint_step,
        **recorded,  # type: ignore[arg-type]  # of Records.figures, which has their types
    )


def compare(before: Figures, after: Figures) -> tuple[Check, ...]:
    """Return all checks of a restart."""
    return tuple(check(before, after) for check in _CHECKS)


def settled(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Return the checks once the time for them is over: what is still pending stays unknown."""
    return tuple(Check(each.name, UNKNOWN, each.detail) if each.verdict == PENDING else each for each in checks)


def as_json(checks: tuple[Check, ...]) -> str:
    """Return checks for the database."""
    return json.dumps([asdict(each) for each in checks])


def _checkpoint(before: Figures, after: Figures) -> Check:
    expected, name = before.checkpoint_step, "checkpoint"
    if after.resumed_path is not None:
        path = clean(after.resumed_path, 200)
        if not path:
            lost = expected is not None
            text = "it began anew" + (f", and its last checkpoint was of step {expected:g}" if lost else "")
            return Check(name, WORSE if lost else PASSED, text)
        if after.resumed_step is None or expected is None:
            return Check(name, UNKNOWN, f"resumed from {path}, of an unknown step")
        text = f"resumed from step {after.resumed_step}, {path}"
        if after.resumed_step >= expected:
            return Check(name, PASSED, text)
        return Check(name, WORSE, f"{text}; its last checkpoint was of step {expected:g}")
    if expected is None:
        return Check(name, UNKNOWN, "no checkpoint was reported before")
    if after.first_step is None:
        return Check(name, UNKNOWN, "it is not recorded what the run resumed from")
    text = f"its first step was {after.first_step}, and its last checkpoint of step {expected:g}"
    return Check(name, PASSED if after.first_step >= expected else WORSE, text)


def _world_size(before: Figures, after: Figures) -> Check:
    name, old, new = "world size", before.world_size, after.world_size
    if old is None or new is None:
        return Check(name, UNKNOWN, "it is not recorded")
    if old == new:
        return Check(name, PASSED, f"{new} ranks")
    return Check(name, WORSE if new < old else PASSED, f"{new} ranks, {old} before")


def _network(before: Figures, after: Figures) -> Check:
    name = "network"
    if not before.fast_network:
        return Check(name, UNKNOWN, "no fast network was seen before")
    if after.fast_network is None:
        return Check(name, PENDING, "its logs name none yet")
    if after.fast_network:
        return Check(name, PASSED, "NCCL uses the fast network")
    return Check(name, WORSE, "NCCL does not use the fast network in every process, and did before")


def _throughput(before: Figures, after: Figures) -> Check:
    name, old, new = "throughput", before.step_seconds, after.step_seconds
    if not old:
        return Check(name, UNKNOWN, "no duration of a step was known before")
    timed = after.steps_timed or 0.0
    if not new or timed < _FEW_STEPS:
        return Check(name, PENDING, f"{timed:g} steps were timed, {_FEW_STEPS} are needed")
    share = old / new
    text = f"{share:.0%} of before: {new:.3g} s a step, {old:.3g} s before"
    if share >= THROUGHPUT_SHARE:
        return Check(name, PASSED, text)
    return Check(name, WORSE if timed >= _MANY_STEPS else PENDING, text)


def _loss(before: Figures, after: Figures) -> Check:
    name, old, new = "loss", before.loss, after.loss
    if old is None:
        return Check(name, UNKNOWN, "no loss was known before")
    if new is None:
        return Check(name, PENDING, "no finite loss is reported")
    text = f"{new:.4g}, {old:.4g} before"
    return Check(name, PASSED if new <= old + max(_LOSS_FLOOR, _LOSS_SHARE * abs(old)) else WORSE, text)


_CHECKS: tuple[Callable[[Figures, Figures], Check], ...] = (_checkpoint, _world_size, _network, _throughput, _loss)
