"""The file of `--web.config.file`, in exporter-toolkit's format: who may read, over what."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainwarden_exporter.configuration.document import read_document
from trainwarden_exporter.flag_values import duration
from trainwarden_exporter.web.tls_settings import tls_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainwarden_exporter.configuration.document import Value
    from trainwarden_exporter.web.tls_settings import TlsSettings

SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit")
HEADERS: Mapping[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")


@dataclass(frozen=True)
class WebSettings:
    """What the file says; `limit` is (seconds between two requests, requests at once)."""

    tls: TlsSettings | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)
    limit: tuple[float, int] | None = None


def read_web_settings(file: Path) -> WebSettings:
    """Read the file; raises `UsageError` for what is wrong in it. What it names is not opened."""
    document = read_document(file)
    sections = document.mapping(SECTIONS)
    return WebSettings(
        tls_settings(sections["tls_server_config"]) if "tls_server_config" in sections else None,
        _headers(sections["http_server_config"]) if "http_server_config" in sections else {},
        _users(sections["basic_auth_users"]) if "basic_auth_users" in sections else {},
        _limit(sections["rate_limit"]) if "rate_limit" in sections else None,
    )


def _headers(section: Value) -> dict[str, str]:
    entries = section.mapping(("http2", "headers"))
    if "http2" in entries:
        entries["http2"].boolean()  # read and of no effect: HTTP/1.1 is what there is
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


def _users(section: Value) -> dict[str, str]:
    found = {}
    for user, value in section.mapping().items():
        if value.kind != "text" or not _HASH.fullmatch(value.text):
            # Not the value itself: it may be the password.
            raise value.wrong("a bcrypt hash, such as htpasswd -nBC 10 prints", "a value that is not shown")
        if not user or ":" in user:
            raise value.wrong("a name without colon")
        found[user] = value.text
    return found


def _limit(section: Value) -> tuple[float, int] | None:
    entries = section.mapping(("interval", "burst"))
    interval, burst = entries.get("interval"), entries.get("burst")
    if interval is None or interval.scalar() in {"0", "0s"}:
        return None
    try:
        seconds = duration(interval.text)
    except argparse.ArgumentTypeError as error:
        raise interval.wrong("a duration, such as 1s or 500ms, or 0") from error
    if burst is not None and not re.fullmatch(r"[1-9]\d{0,8}", burst.scalar()):
        raise burst.wrong("a whole number above zero")
    return seconds, int(burst.text) if burst else 1
