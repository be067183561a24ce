"""The calls of NVML that concern one GPU: what it does not have is asked once, what fails is counted."""

from __future__ import annotations

import logging
import time
from typing import Any

import pynvml

from trainwarden_exporter.collectors.gpu.nvidia.library import (
    GPU_DOWN,
    LIBRARY_DOWN,
    NO_PERMISSION,
    UNSUPPORTED,
    error_word,
)
from trainwarden_exporter.sampling.calls import enter

log = logging.getLogger(__name__)

# A GPU may learn something while it is open: MIG is switched off, a driver's service starts.
FORGET_SECONDS = 600.0


class GpuDown(Exception):
    """The GPU answers nothing; the message is one word that says why."""


class LibraryDown(GpuDown):
    """No GPU answers: NVML must be initialised again."""


class Calls:
    """Calls with the handle of one GPU, for one thread.

    Attributes:
        answered: how many calls gave an answer.
        errors: how many failed, by the word for their code.
    """

    def __init__(self, handle: Any, bus: str, errors: dict[str, int]) -> None:
        self.handle = handle
        self.answered = 0
        self.errors = errors
        self._bus = bus
        self._absent: set[tuple[str, tuple[int, ...]]] = set()
        self._since = time.monotonic()

    def ask(self, name: str, *arguments: Any) -> Any:
        """Return what the function of pynvml says; None where there is no such thing, or no answer this time.

        Raises:
            GpuDown: it says that the GPU is lost.
        """
        return self.of(self.handle, name, *arguments)

    def of(self, handle: Any, name: str, *arguments: Any) -> Any:
        """Do the same with another handle: an instance of the GPU."""
        key = (name, tuple(each for each in arguments if isinstance(each, int)))
        if key in self._absent:
            return None
        function = getattr(pynvml, name, None)
        if function is None:
            self._absent.add(key)
            return None
        enter(name)
        try:
            answer = function(handle, *arguments)
        except pynvml.NVMLError as error:
            self.failed(key, error.value)
            return None
        self.answered += 1
        return answer

    def failed(self, key: tuple[str, tuple[int, ...]], code: int) -> None:
        """Take in a return code; raises `GpuDown` if the GPU, or the library, is gone."""
        if code in UNSUPPORTED:
            self._absent.add(key)
            return
        word = error_word(code)
        if code in LIBRARY_DOWN:
            raise LibraryDown(word)
        if code in GPU_DOWN:
            raise GpuDown(word)
        if code == NO_PERMISSION:
            self._absent.add(key)
        if word not in self.errors:
            log.warning("GPU %s: %s gives %s; its other calls go on", self._bus, key[0], word)
        self.errors[word] = self.errors.get(word, 0) + 1

    def is_absent(self, name: str, *arguments: int) -> bool:
        """Tell whether the GPU is known not to have it."""
        return (name, arguments) in self._absent

    def outdated(self) -> bool:
        """Tell whether it is time to ask again for what the GPU did not have."""
        return time.monotonic() - self._since > FORGET_SECONDS
