"""A call with unusable arguments is logged once, by name, and raises nothing."""

import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trainwarden
from tests.unit.library.looking import read_progress, read_snapshot
from tests.unit.library.processes import Script, Starter
from tests.waiting import wait_until

MISTAKES: dict[str, tuple[Callable[[trainwarden.Run, Any], Any], Any, str]] = {
    "a phase that does not exist": (lambda run, value: run.phase(value), "warmup", "phase('warmup')"),
    "a phase that is no text": (lambda run, value: run.phase(value), 7, "phase(7)"),
    "a step that is text": (lambda run, value: run.step(value), "ten", "step('ten')"),
    "a negative step": (lambda run, value: run.step(value), -1, "step(-1)"),
    "a step that is a fraction": (lambda run, value: run.step(value), 2.5, "step(2.5)"),
    "no step": (lambda run, value: run.step(value), None, "step(None)"),
    "a loss that is text": (lambda run, value: run.step(5, loss=value), "low", "loss='low'"),
    "a loss that is an object": (lambda run, value: run.step(5, loss=value), object(), "loss=<object>"),
    "a rate that is no number": (
        lambda run, value: run.step(5, learning_rate=value),
        [1.0, 2.0],
        "learning_rate=<list>",
    ),
    "a norm that is no number": (lambda run, value: run.step(5, grad_norm=value), "x" * 999, "grad_norm='xxx"),
    "tokens that are no number": (lambda run, value: run.step(5, tokens=value), "many", "tokens='many'"),
    "samples that are no number": (lambda run, value: run.step(5, samples=value), math.nan, "samples=nan"),
    "a total that is no number": (lambda run, value: run.expect(value), "x", "expect('x')"),
    "an epoch that is no number": (lambda run, value: run.epoch(value), "one", "epoch('one')"),
    "an event of the library's own": (lambda run, value: run.note(value), "error", "note('error')"),
}


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [said.getMessage() for said in caplog.records if said.levelno == logging.WARNING]


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_logged_once_with_what_was_passed_and_the_run_goes_on(
    case: str, attempt: Starter, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    call, value, said = MISTAKES[case]
    with attempt() as run:
        for _ in range(3):
            call(run, value)
        run.step(6, loss=0.5)
    (warning,) = _warnings(caplog)
    assert said in warning
    assert len(warning) < 250
    assert (read_progress(folder).step, read_snapshot(folder).state) == (6, "succeeded")


def test_a_phase_that_does_not_exist_is_answered_with_those_that_do(
    attempt: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    with attempt() as run:
        run.phase("Training")
        run.phase(" eval ")
        run.step(1, loss=math.nan, learning_rate=None, tokens=0)
        assert _warnings(caplog) == []
        run.phase("warmup")
    assert "init, compile, train, eval, checkpoint, load, idle, done" in _warnings(caplog)[0]


def test_each_kind_of_mistake_is_reported_and_in_each_run_anew(
    attempt: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    for generation in range(2):
        with attempt(generation) as run:
            run.step("ten", loss="low", grad_norm="high")  # type: ignore[arg-type]  # the mistake itself
            run.step("ten", loss="low", grad_norm="high")  # type: ignore[arg-type]  # the mistake itself
    assert len(_warnings(caplog)) == 6


def test_a_handler_that_raises_and_a_value_that_cannot_be_shown_hinder_nothing(attempt: Starter, folder: Path) -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

        __float__ = __index__ = __repr__

    class Filter(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError(record.getMessage())

    logger, broken = logging.getLogger("trainwarden"), Filter()
    logger.addFilter(broken)
    try:
        with attempt() as run:
            run.step(Hostile(), loss=Hostile())  # type: ignore[arg-type]  # the mistake itself
            run.expect(Hostile())  # type: ignore[arg-type]  # the mistake itself
            run.phase(Hostile())  # type: ignore[arg-type]  # the mistake itself
            run.step(3)
    finally:
        logger.removeFilter(broken)
    assert read_progress(folder).step == 3


def test_the_librarys_own_events_cannot_be_forged(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        for name in ("training_completed", "attempt_lost", "lines_dropped", "gpu_stats"):
            run.note(name, status="completed", mine=True)
        run.note("evaluated", mine=True)
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [line["event_type"] for line in lines if "mine" in line["data"]] == ["evaluated"]


@pytest.mark.parametrize(
    ("metric", "argument"),
    [
        ("los", "loss"),
        ("Loss", "loss"),
        ("lsos", "loss"),
        ("losss", "loss"),
        ("lr", "learning_rate"),
        ("learningRate", "learning_rate"),
        ("leraning_rate", "learning_rate"),
        ("gradnorm", "grad_norm"),
        ("grad_nrom", "grad_norm"),
        ("token", "tokens"),
        ("sample", "samples"),
        ("epochs", "epoch"),
    ],
)
def test_a_metric_with_nearly_the_name_of_an_argument_is_recorded_and_pointed_out_once(
    metric: str, argument: str, attempt: Starter, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with attempt() as run:
        run.step(1, **{metric: 2.0})
        wait_until(lambda: _warnings(caplog))
        run.step(2, **{metric: 3.0})
    assert _warnings(caplog) == [
        f"step(…, {metric}=…) is recorded as a metric; perhaps {argument}= was meant; this is logged once"
    ]
    assert read_progress(folder).metrics == {metric: 3.0}


def test_metrics_with_names_of_their_own_are_no_mistakes(attempt: Starter, caplog: pytest.LogCaptureFixture) -> None:
    with attempt() as run:
        run.step(1, train_loss=1, loss2=2, loss_a=1, accuracy=1, mean=1, l=1, norm=1, rate=1, epoch=1, steps=3)
    with attempt(1) as run:
        run.step(1, loss=1.0, los=2.0, learning_rate=0.1, lr=0.2)
    assert _warnings(caplog) == []


@pytest.mark.process
def test_calls_before_the_run_are_logged_once(script: Script) -> None:
    done = script.run("""
        import trainwarden
        trainwarden.step(1, loss=0.5)
        with trainwarden.phase("load"):
            trainwarden.resume_checkpoint()
        for call in (trainwarden.epoch, trainwarden.note, trainwarden.checkpoint_saved, trainwarden.error):
            call("x")
    """)
    assert done.stderr.splitlines() == [
        "step() before run(): nothing is recorded, as no run has begun in this process; this is logged once"
    ]


@pytest.mark.process
def test_calls_after_the_run_and_in_its_forked_children_are_no_mistakes(script: Script) -> None:
    done = script.run("""
        import os, trainwarden, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on Python warns of a fork beside threads
        with trainwarden.run("r"):
            child = os.fork()
            if not child:
                trainwarden.step("child")
                os._exit(0)
            os.waitpid(child, 0)
        trainwarden.step(2)
    """)
    assert (done.returncode, done.stderr) == (0, "")
