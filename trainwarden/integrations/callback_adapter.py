"""What the callbacks of all frameworks share: reports to a run, without ever raising into the trainer."""

from __future__ import annotations

import functools
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import trainwarden
from trainwarden.training.current import run_in_progress
from trainwarden.training.run import PhaseScope, Run

_Hook = TypeVar("_Hook", bound=Callable[..., Any])

logger = logging.getLogger("trainwarden")


def never_raises(hook: _Hook) -> _Hook:
    """Return the hook of a callback with its exceptions logged, such as those of a framework's other version."""
    is_logged = False

    @functools.wraps(hook)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_logged
        try:
            return hook(*args, **kwargs)
        except Exception:  # nothing ever raises into the loop
            level, is_logged = logging.DEBUG if is_logged else logging.WARNING, True
            logger.log(level, "%s could not be recorded", hook.__name__, exc_info=True)
            return None

    return guarded  # type: ignore[return-value]  # wraps() keeps the signature


class CallbackAdapter:
    """Reports to the run in progress; without one, begins a run of its own, and ends it.

    Args:
        run_id: of the run to begin; `TRAINWARDEN_RUN_ID` if None.
        options: arguments of `trainwarden.run()` for the run to begin.
    """

    def __init__(self, run_id: str | None, options: Mapping[str, Any]) -> None:
        self._run_id = run_id
        self._options = options
        self._scope: tuple[str, PhaseScope] | None = None
        self._is_own = False
        # Trainers log some values every few steps only; each stays until there is a newer one.
        self._values: dict[str, Any] = {}
        self.run: Run | None = None

    def begin(self, framework: str, environ: Mapping[str, str] | None = None, **known: Any) -> Run:
        """Return the run to report to, which is begun if none is in progress.

        Args:
            framework: name of the framework.
            environ: environment variables that identify this process, where its own do not.
            known: arguments of `trainwarden.run()` that the trainer knows and the user did not pass.

        Raises:
            RunRefused: no run is in progress, and none can begin.
        """
        running = run_in_progress()
        if running is None:
            options = {"framework": framework, **known, **self._options}
            with _variables(environ or {}):
                running = trainwarden.run(self._run_id, **options)
            self._is_own = True
        elif running is not self.run:
            self._is_own = False
        if running is not self.run:
            self._scope, self._values = None, {}
        self.run = running
        return running

    def expect(self, total_steps: Any) -> None:
        """Set the total number of steps, if the trainer knows it: a finite number above 0."""
        if self.run and isinstance(total_steps, (int, float)) and 0 < total_steps < math.inf:
            self.run.expect(int(total_steps))

    def step(self, step: int, **values: Any) -> None:
        """Report a step with these values, and with the last finite ones of those that are absent or None."""
        if self.run is None:
            return
        given = {name: value for name, value in values.items() if value is not None}
        self.run.step(step, **{**self._values, **given})
        lasting = {name: given[name] for name in given.keys() - {"tokens", "samples"}}
        self._values = {name: value for name, value in {**self._values, **lasting}.items() if _is_finite(value)}

    def enter(self, phase: str) -> None:
        """Enter a phase until `leave`, unless it is entered already."""
        if self.run is None or (self._scope and self._scope[0] == phase):
            return
        self.leave()
        self._scope = (phase, self.run.phase(phase))

    def leave(self) -> None:
        """Restore the previous phase, if one was entered."""
        if self._scope:
            scope, self._scope = self._scope[1], None
            scope.__exit__(None, None, None)

    def end(self, exc: BaseException | None = None, *, foreign: bool = False) -> None:
        """End the run: succeeded, or failed by `exc`. One that was in progress before only if `foreign`."""
        run = self.run
        if run is None:
            return
        self.leave()
        if self._is_own or foreign:
            run.__exit__(None if exc is None else type(exc), exc, exc.__traceback__ if exc else None)
        self.run, self._is_own = None, False


@contextmanager
def _variables(environ: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in environ}
    os.environ.update(environ)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
