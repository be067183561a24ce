"""The calls of amdsmi that concern one GPU: what it does not have is asked seldom, what fails is counted."""

from __future__ import annotations

import logging
import time
from typing import Any

from trainwarden_exporter.collectors.gpu.amd.library import LIBRARY_DOWN, UNSUPPORTED, error_word
from trainwarden_exporter.sampling.calls import enter

log = logging.getLogger(__name__)

# What it did not have, it may have later: after a reset, after its first load.
FORGET_SECONDS = 600.0


class GpuDown(Exception):
    """The GPU answers nothing; the message is one word that says why."""


class LibraryDown(GpuDown):
    """No GPU answers: amdsmi must be opened again."""


class Calls:
    """Calls for one GPU in one thread. `answered` counts those that gave an answer, `errors` those that failed."""

    def __init__(self, amdsmi: Any, handle: Any, bus: str, errors: dict[str, int]) -> None:
        self.amdsmi = amdsmi
        self.answered = 0
        self.last_error = "no_answer"
        self._handle = handle
        self._bus = bus
        self._errors = errors
        self._absent: dict[tuple[str, tuple[Any, ...]], float] = {}

    def ask(self, name: str, *arguments: Any) -> Any:
        """Return what the function says; None where there is no such thing, or no answer this time.

        Raises:
            LibraryDown: the library has lost its driver.
        """
        key, now = (name, arguments), time.monotonic()
        if now - self._absent.get(key, -FORGET_SECONDS) < FORGET_SECONDS:
            return None
        function = getattr(self.amdsmi, name, None)
        if function is None:
            self._absent[key] = now
            return None
        enter(name)
        try:
            answer = function(self._handle, *arguments)
        except Exception as error:  # noqa: BLE001  # codes, but also what its conversions stumble over
            self._failed(key, error, now)
            return None
        self.answered += 1
        return answer

    def table(self, name: str, *arguments: Any) -> dict[str, Any]:
        """Return what a function says that answers with names and values; nothing where it says nothing."""
        answer = self.ask(name, *arguments)
        return answer if isinstance(answer, dict) else {}

    def constant(self, group: str, name: str) -> Any:
        """Return a member of one of the library's enumerations; None where this version has none."""
        return getattr(getattr(self.amdsmi, group, None), name, None)

    def _failed(self, key: tuple[str, tuple[Any, ...]], error: Exception, now: float) -> None:
        code = getattr(error, "err_code", None)
        if code in UNSUPPORTED:
            self._absent[key] = now
            return
        word = self.last_error = error_word(error)
        if code in LIBRARY_DOWN:
            raise LibraryDown(word)
        if word not in self._errors:
            log.warning("GPU %s: %s gives %s; its other calls go on", self._bus, key[0], word)
        self._errors[word] = self._errors.get(word, 0) + 1
