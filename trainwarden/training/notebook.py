"""The cells of a notebook: between two of them no step is expected, and an interrupt of one ends the run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainwarden.training.outcome import AttemptOutcome, exception_outcome

if TYPE_CHECKING:
    from trainwarden.training.recorder import RecordThread


class NotebookCells:
    """Follows the cells that IPython runs in this process; does nothing elsewhere.

    Args:
        on_end: called with the outcome when a cell was interrupted.
        recorder: whose phase is idle between two cells.
    """

    def __init__(self, on_end: Callable[[AttemptOutcome], None], recorder: RecordThread) -> None:
        self._on_end = on_end
        self._recorder = recorder
        self._events: Any = None
        self._phase = recorder.phase
        self.failure: BaseException | None = None
        """The exception of the last cell, if it failed."""

    def install(self) -> None:
        """Register with IPython, if the process runs it."""
        shell = ipython_shell()
        if shell is not None:
            self._events = shell.events
            self._events.register("pre_run_cell", self._on_start)
            self._events.register("post_run_cell", self._on_result)

    def remove(self) -> None:
        """Unregister."""
        events, self._events = self._events, None
        if events is not None:
            events.unregister("pre_run_cell", self._on_start)
            events.unregister("post_run_cell", self._on_result)
        self.failure = None

    def _on_start(self, _info: Any = None) -> None:
        if self._recorder.phase == "idle":
            self._recorder.enter_phase(self._phase)

    def _on_result(self, result: Any = None) -> None:
        self.failure = getattr(result, "error_in_exec", None) or getattr(result, "error_before_exec", None)
        self._phase = self._recorder.phase
        self._recorder.enter_phase("idle")
        if isinstance(self.failure, KeyboardInterrupt):
            self._on_end(exception_outcome(self.failure))


def ipython_shell() -> Any:
    """Return IPython's shell in this process; None where there is none."""
    ipython = sys.modules.get("IPython")
    try:
        return ipython.get_ipython() if ipython else None
    except Exception:  # noqa: BLE001  # a library of the user may raise anything
        return None
