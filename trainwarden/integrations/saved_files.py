"""Which files Lightning's `ModelCheckpoint` callbacks have just written: nothing tells their names directly."""

import os
from collections.abc import Iterable
from typing import Any

_Signature = tuple[int, int, int] | None


class SavedFiles:
    """Compares what the callbacks name, and what is there, before and after."""

    def __init__(self) -> None:
        self._before: dict[str, _Signature] = {}
        self._step: int | None = None

    @property
    def expected(self) -> bool:
        """Whether something is being written."""
        return self._step is not None

    def begin(self, savers: Iterable[Any], step: int) -> None:
        """A checkpoint of that step is about to be written."""
        if self._step is None:
            self._before = {path: _signature(path) for saver in savers for path in _named(saver)}
        self._step = step

    def written(self, savers: Iterable[Any]) -> list[tuple[str, int]]:
        """What has been written since, one for each callback, with its step. Until something has, it is expected."""
        step = self._step
        if step is None:
            return []
        found = [path for saver in savers if (path := self._newest(saver))]
        if found:
            self._step = None
        return [(path, step) for path in found]

    def _newest(self, saver: Any) -> str | None:
        # `last` comes last: it is written over each time, and is often no more than a link to another.
        for path in _named(saver):
            if (now := _signature(path)) is not None and now != self._before.get(path):
                return path
        return None


def _named(saver: Any) -> list[str]:
    kept = [saver.best_model_path, *reversed(saver.best_k_models)] if hasattr(saver, "best_k_models") else []
    return [str(path) for path in (*kept, getattr(saver, "last_model_path", "")) if path]


def _signature(path: str) -> _Signature:
    try:
        status = os.stat(path)  # noqa: PTH116  # a remote address may be no Path
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
