"""What the remediator reads again while it runs: files whose old content stays in use while the new one is wrong."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from trainwarden.regular_file import Stamp, stamp_of
from trainwarden_remediator.errors import ConfigError

log = logging.getLogger(__name__)

Value = TypeVar("Value")
_YAML = (".yaml", ".yml")


class Reloading(Generic[Value]):
    """Something that is read from files, and read again when one of them changes or `refresh` is forced.

    For any thread.

    Args:
        name: of the setting, in metrics and messages.
        read: returns it; raises ConfigError where a file is wrong.
        files: returns the files that it depends on; called before each reading.

    Attributes:
        is_current: whether the value in use is that of the files as they are now.
        last_success: when it was read, Unix seconds.

    Raises:
        ConfigError: a file is wrong at the start.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Value],
        files: Callable[[], Iterable[Path]],
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.is_current = True
        self._read = read
        self._files = files
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # Stamped before the files are read, so that a change meanwhile is seen the next time.
        self._stamp = self._stamp_now()
        self._value = read()
        self._before: tuple[Value, float] | None = None  # the value that was replaced last, and when
        self.last_success = wall()

    def current(self) -> Value:
        """Return the value in use, read again if a file changed."""
        self.refresh()
        with self._lock:
            return self._value

    def before(self, seconds: float) -> Value | None:
        """Return the value that was in use before, where it was replaced less than `seconds` ago."""
        with self._lock:
            is_young = self._before is not None and self._monotonic() - self._before[1] < seconds
            return self._before[0] if self._before is not None and is_young else None

    def refresh(self, *, force: bool = False) -> None:
        """Read the files again if one changed, or if `force` is set; keep the old value where they are wrong."""
        with self._lock:
            stamp = self._stamp_now()
            if stamp == self._stamp and not force:
                return
            self._stamp = stamp
            try:
                value = self._read()
            except ConfigError as error:
                self.is_current = False
                log.error("%s; what held before still holds", error)  # noqa: TRY400  # the user's mistake, in one line
                return
            if value != self._value:
                self._before = self._value, self._monotonic()
            self._value = value
            self.is_current, self.last_success = True, self._wall()
        log.info("read the %s again", self.name)

    def _stamp_now(self) -> tuple[tuple[Path, ...], Stamp]:
        files = tuple(self._files())
        return files, stamp_of(files)


def policy_files(policy: str, folder: Path | None) -> list[Path]:
    """Return the files that the policies depend on: all of `folder`, and those beside the one that `policy` names."""
    beside = Path(policy).parent if "/" in policy or policy.endswith(_YAML) else None
    found = set()
    for each in (beside, folder):
        with suppress(OSError):  # reading the policies gives the reason
            found |= {file for file in each.iterdir() if file.suffix in _YAML} if each else set()
    return sorted(found)
