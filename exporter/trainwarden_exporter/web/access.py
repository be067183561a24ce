"""Who may read and over what, as the file of `--web.config.file` has it now."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainwarden_exporter.core.errors import UsageError
from trainwarden_exporter.sampling import metrics
from trainwarden_exporter.web.configuration import WebSettings, read_web_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from trainwarden_exporter.core.metric import Families
    from trainwarden_exporter.web.tls import Tls
    from trainwarden_exporter.web.users import Users

log = logging.getLogger(__name__)

Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class Access:
    """What holds for a connection that comes now; by default everyone, over plain HTTP."""

    tls: Tls | None = None
    users: Users | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    limit: Limit | None = None


class Limit:
    """Lets so many requests through at once, and one more in each interval."""

    def __init__(self, interval: float, burst: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._burst = burst
        self._monotonic = monotonic
        self._left = float(burst)
        self._seen = monotonic()
        self._lock = threading.Lock()

    def admits(self) -> bool:
        """Tell whether one more request may pass, and count it if so."""
        with self._lock:
            now = self._monotonic()
            self._left = min(self._burst, self._left + (now - self._seen) / self._interval)
            self._seen = now
            if self._left < 1:
                return False
            self._left -= 1
            return True


def access_of(settings: WebSettings, file: Path) -> Access:
    """Return what the settings of a file ask for; raises `UsageError` if it cannot be had."""
    return Access(_tls(settings, file), _users(settings, file), settings.headers, _limit(settings))


_EVERYONE = Access()


class Open:
    """No file: everyone may read."""

    def current(self) -> Access:
        """Return what holds."""
        return _EVERYONE

    def families(self, families: Families) -> None:
        """Nothing can have been read wrongly."""


class Watched:
    """What a file asks for, read again when it or a certificate changes; a wrong one changes nothing.

    Raises `UsageError` if the file is wrong at the start.
    """

    def __init__(self, file: Path, wall: Callable[[], float] = time.time) -> None:
        self._file = file
        self._wall = wall
        self._lock = threading.Lock()
        self._files: tuple[Path, ...] = (file,)
        self._stamp: Stamp = ()
        self._access = Access()
        self._good = True
        self._last_success = 0.0
        self._read()

    def current(self) -> Access:
        """Return what holds now."""
        with self._lock:
            if _stamp(self._files) != self._stamp:
                self._read_again()
            return self._access

    def families(self, families: Families) -> None:
        """Say how the last reading went."""
        self.current()
        families.add(metrics.TRAINWARDEN_CONFIG_LAST_RELOAD_SUCCESSFUL, self._good, file="web")
        families.add(metrics.TRAINWARDEN_CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS, self._last_success, file="web")

    def _read_again(self) -> None:
        try:
            self._read()
        except UsageError as error:
            self._good = False
            log.error("%s; what held before still holds", error)  # noqa: TRY400  # the user's mistake, in one line
        else:
            self._good = True
            log.info("read %s again", self._file)

    def _read(self) -> None:
        # Stamped before they are read, so that what changes meanwhile is read again, and whether or not they are good,
        # so that what is wrong is said once.
        self._stamp = _stamp(self._files)
        settings = read_web_settings(self._file)
        self._files = (self._file, *_files(settings))
        self._stamp = (self._stamp[0], *_stamp(self._files[1:]))
        self._access = access_of(settings, self._file)
        self._last_success = self._wall()


def _tls(settings: WebSettings, file: Path) -> Tls | None:
    if settings.tls is None:
        return None
    from trainwarden_exporter.web.tls import Tls  # noqa: PLC0415  # some MiB, for those who ask for it

    return Tls(settings.tls, file)


def _users(settings: WebSettings, file: Path) -> Users | None:
    if not settings.users:
        return None
    try:
        from trainwarden_exporter.web.users import Users  # noqa: PLC0415  # as above
    except ImportError as error:
        raise UsageError(
            f"{file}: key basic_auth_users: bcrypt is not installed, expected trainwarden[exporter]"
        ) from error

    return Users(settings.users)


def _limit(settings: WebSettings) -> Limit | None:
    return Limit(*settings.limit) if settings.limit else None


def _files(settings: WebSettings) -> tuple[Path, ...]:
    tls = settings.tls
    return tuple(file for file in (tls.cert_file, tls.key_file, tls.client_ca_file) if file) if tls else ()


def _stamp(files: Iterable[Path]) -> Stamp:
    return tuple(_stamp_of(file) for file in files)


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
