"""The file of `--web.config.file`, in exporter-toolkit's format: TLS, users, headers and a rate limit.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
"""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainwarden.duration import parse_duration
from trainwarden.errors import UsageError
from trainwarden.regular_file import stamp_of
from trainwarden.server.tls_settings import NO_CLIENT, tls_settings
from trainwarden.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trainwarden.regular_file import Stamp
    from trainwarden.server.basic_auth import BasicAuthUsers
    from trainwarden.server.tls import Tls
    from trainwarden.server.tls_settings import TlsSettings
    from trainwarden.yaml_file import YamlValue

log = logging.getLogger(__name__)

SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit")
HEADERS: Mapping[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
# To check a password takes two seconds with this cost and a minute with 20, while every other new one waits.
MAX_COST = 15


@dataclass(frozen=True)
class WebSettings:
    """The file's settings; `rate_limit` is (seconds between two requests, requests at once)."""

    tls: TlsSettings | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)
    rate_limit: tuple[float, int] | None = None


def read_web_settings(file: Path) -> WebSettings:
    """Read the file; raises `UsageError` for what is wrong in it. The files that it names are not opened."""
    sections = read_yaml(file).mapping(SECTIONS)
    return WebSettings(
        tls_settings(sections["tls_server_config"]) if "tls_server_config" in sections else None,
        _read_headers(sections["http_server_config"]) if "http_server_config" in sections else {},
        _read_users(sections["basic_auth_users"]) if "basic_auth_users" in sections else {},
        _read_rate_limit(sections["rate_limit"]) if "rate_limit" in sections else None,
    )


def _read_headers(section: YamlValue) -> dict[str, str]:
    entries = section.mapping(("http2", "headers"))
    if "http2" in entries:
        entries["http2"].boolean()  # checked, and without effect: the server has HTTP/1.1 alone
    found = {}
    for name, value in entries["headers"].mapping(HEADERS).items() if "headers" in entries else ():
        if value.kind == "nothing" or not value.scalar():
            continue  # blank means unset
        if HEADERS[name] and value.text not in HEADERS[name]:
            raise value.wrong(" or ".join(HEADERS[name]))
        if not re.fullmatch(r"[ -~]+", value.text):
            raise value.wrong("one line of plain characters")
        found[name] = value.text
    return found


def _read_users(section: YamlValue) -> dict[str, str]:
    found = {}
    for user, value in section.mapping().items():
        if value.kind != "text" or not _HASH.fullmatch(value.text):
            # Not the value itself: it may be the password.
            raise value.wrong("a bcrypt hash, such as htpasswd -nBC 10 prints", "a value that is not shown")
        cost = int(value.text.split("$")[2])
        if cost > MAX_COST:
            raise value.wrong(
                f"a cost of {MAX_COST} at most, such as htpasswd -nBC 10 prints", f"a hash of cost {cost}"
            )
        if not user or ":" in user:
            raise value.wrong("a name without colon")
        found[user] = value.text
    return found


def _read_rate_limit(section: YamlValue) -> tuple[float, int] | None:
    entries = section.mapping(("interval", "burst"))
    interval, burst = entries.get("interval"), entries.get("burst")
    if interval is None or interval.scalar() in {"0", "0s"}:
        return None
    try:
        seconds = parse_duration(interval.text)
    except ValueError as error:
        raise interval.wrong("a duration, such as 1s or 500ms, or 0") from error
    if burst is not None and not re.fullmatch(r"[1-9]\d{0,8}", burst.scalar()):
        raise burst.wrong("a whole number above zero")
    return seconds, int(burst.text) if burst else 1


class RateLimit:
    """Admits `burst` requests at once, and one more after each interval of so many seconds."""

    def __init__(self, interval: float, burst: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._burst = burst
        self._monotonic = monotonic
        self._tokens = float(burst)
        self._updated = monotonic()
        self._lock = threading.Lock()

    def admits(self) -> bool:
        """Return whether one more request may pass, and count it if so."""
        with self._lock:
            now = self._monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._updated) / self._interval)
            self._updated = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


@dataclass(frozen=True)
class WebAccess:
    """What holds for a connection that comes now; by default plain HTTP without users or limits."""

    tls: Tls | None = None
    users: BasicAuthUsers | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    rate_limit: RateLimit | None = None


def access_of(settings: WebSettings, file: Path) -> WebAccess:
    """Return what the settings of `file` configure.

    Raises:
        UsageError: a certificate or a package is missing.
    """
    tls = None
    if settings.tls is not None:
        from trainwarden.server.tls import Tls  # noqa: PLC0415  # some MiB, where it is configured

        tls = Tls(settings.tls, file)
    rate_limit = RateLimit(*settings.rate_limit) if settings.rate_limit else None
    return WebAccess(tls, _users(settings, file), settings.headers, rate_limit)


def _client_auth(settings: WebSettings) -> str:
    return settings.tls.client_auth if settings.tls is not None else NO_CLIENT


# By the key, whether settings ask for something of a client.
_ASKS: Mapping[str, Callable[[WebSettings], bool]] = {
    "basic_auth_users": lambda settings: bool(settings.users),
    "tls_server_config": lambda settings: settings.tls is not None,
    "tls_server_config.client_auth_type": lambda settings: _client_auth(settings) != NO_CLIENT,
    "tls_server_config.client_allowed_sans": lambda settings: bool(settings.tls and settings.tls.client_allowed_sans),
}


def check_closed(before: WebSettings, after: WebSettings, file: Path) -> None:
    """Raise `UsageError` if settings let in whom those before did not.

    A file that is empty or half written, on a full disk for one, may be right and lack what comes behind.
    """
    for key, asks in _ASKS.items():
        if asks(before) and not asks(after):
            raise UsageError(f"{file}: key {key}: nothing, expected it as before; only a restart takes it away")


def _users(settings: WebSettings, file: Path) -> BasicAuthUsers | None:
    if not settings.users:
        return None
    try:
        from trainwarden.server.basic_auth import BasicAuthUsers  # noqa: PLC0415  # as above
    except ImportError as error:
        raise UsageError(
            f"{file}: key basic_auth_users: bcrypt is not installed, expected trainwarden[exporter]"
        ) from error

    return BasicAuthUsers(settings.users)


class NoWebConfig:
    """No file: plain HTTP, without users."""

    _access = WebAccess()

    def current(self) -> WebAccess:
        """Return what holds."""
        return self._access


class ReloadingWebConfig:
    """A file that is read again when it or a certificate changes; where it becomes wrong, the old settings hold on.

    It is wrong too where it no longer asks for TLS, certificates of clients or passwords, and did before.

    Attributes:
        is_current: whether the settings that hold are those of the file as it is now.
        last_success: when they were read, Unix seconds.

    Raises:
        UsageError: the file is wrong at the start.
    """

    def __init__(self, file: Path, wall: Callable[[], float] = time.time) -> None:
        self.file = file
        self.is_current = True
        self.last_success = 0.0
        self._wall = wall
        self._lock = threading.Lock()
        self._files: tuple[Path, ...] = (file,)
        self._stamp: Stamp = ()
        self._settings = WebSettings()
        self._access = WebAccess()
        self._read()

    def current(self) -> WebAccess:
        """Return what holds now, read again if a file changed."""
        with self._lock:
            if stamp_of(self._files) != self._stamp:
                self._reload()
            return self._access

    def _reload(self) -> None:
        try:
            self._read()
        except UsageError as error:
            self.is_current = False
            log.error("%s; what held before still holds", error)  # noqa: TRY400  # the user's mistake, in one line
        else:
            self.is_current = True
            log.info("read %s again", self.file)

    def _read(self) -> None:
        # Stamped before the files are read, so that a change meanwhile is read too; and whether or not they are right,
        # so that an error is logged once.
        self._stamp = stamp_of(self._files)
        settings = read_web_settings(self.file)
        check_closed(self._settings, settings, self.file)
        tls = settings.tls
        named = (tls.cert_file, tls.key_file, tls.client_ca_file) if tls else ()
        self._files = (self.file, *(file for file in named if file is not None))
        self._stamp = (self._stamp[0], *stamp_of(self._files[1:]))
        access = access_of(settings, self.file)
        if settings.users == self._settings.users:
            access = replace(access, users=self._access.users)  # with the passwords that it has checked
        if access.tls is not None and access.tls.warning:
            log.warning("%s", access.tls.warning)
        self._settings, self._access = settings, access
        self.last_success = self._wall()


WebConfig = NoWebConfig | ReloadingWebConfig
