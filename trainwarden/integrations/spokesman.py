"""What the callbacks share: a run to speak for, and never a word that disturbs the trainer."""

import functools
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import trainwarden
from trainwarden.training.current import run_in_progress
from trainwarden.training.phase_scope import PhaseScope
from trainwarden.training.run import Run

_Hook = TypeVar("_Hook", bound=Callable[..., Any])

logger = logging.getLogger("trainwarden")


def harmless(hook: _Hook) -> _Hook:
    """A hook of a callback that never raises into the trainer, whatever its version does not have."""
    is_known = False

    @functools.wraps(hook)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_known
        try:
            return hook(*args, **kwargs)
        except Exception:  # nothing ever raises into the loop
            level, is_known = logging.DEBUG if is_known else logging.WARNING, True
            logger.log(level, "%s could not be recorded", hook.__name__, exc_info=True)
            return None

    return guarded  # type: ignore[return-value]  # wraps() keeps the signature


class Spokesman:
    """Speaks for the run in progress; where there is none, begins one of its own, and ends it.

    Args:
        run_id: of the run to begin; `TRAINWARDEN_RUN_ID` if None.
        options: of `trainwarden.run()`, for the run to begin.
    """

    def __init__(self, run_id: str | None, options: Mapping[str, Any]) -> None:
        self._run_id = run_id
        self._options = options
        self._scope: tuple[str, PhaseScope] | None = None
        self._is_own = False
        # How often it is said is up to others; the last values stand until there are newer ones.
        self._values: dict[str, Any] = {}
        self.run: Run | None = None

    def begin(self, framework: str, environ: Mapping[str, str] | None = None, **known: Any) -> Run:
        """The run to speak for, from now on.

        Args:
            framework: that trains.
            environ: variables that say who this process is, where its own do not.
            known: options that the trainer knows, for a run that is begun and where the user gave none.

        Raises:
            RunRefused: there is no run in progress, and none can begin.
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
        """Say how many steps there will be; nothing where the trainer does not know."""
        if self.run and isinstance(total_steps, (int, float)) and 0 < total_steps < math.inf:
            self.run.expect(int(total_steps))

    def step(self, step: int, **values: Any) -> None:
        """Report a step: with the values given, and for those not given with the last ones that were finite."""
        if self.run is None:
            return
        given = {name: value for name, value in values.items() if value is not None}
        self.run.step(step, **{**self._values, **given})
        lasting = {name: given[name] for name in given.keys() - {"tokens", "samples"}}
        self._values = {name: value for name, value in {**self._values, **lasting}.items() if _is_finite(value)}

    def enter(self, phase: str) -> None:
        """Begin a phase, for as long as it takes; the one before is kept in mind."""
        if self.run is None or (self._scope and self._scope[0] == phase):
            return
        self.leave()
        self._scope = (phase, self.run.phase(phase))

    def leave(self) -> None:
        """Bring back the phase before, if one was entered."""
        if self._scope:
            scope, self._scope = self._scope[1], None
            scope.__exit__(None, None, None)

    def end(self, exc: BaseException | None = None, *, foreign: bool = False) -> None:
        """End the run: one of its own, or with `foreign` any. In success, unless an exception is given."""
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
