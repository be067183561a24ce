"""TLS from its settings. Imported only where it is configured: `ssl` costs some MiB."""

from __future__ import annotations

import contextlib
import re
import ssl
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from trainwarden.errors import UsageError
from trainwarden.regular_file import read_regular_file
from trainwarden.server.tls_settings import IF_GIVEN, NO_CLIENT, REQUIRED

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from trainwarden.server.tls_settings import TlsSettings

MAX_BYTES = 2**20
# The times from and until which a certificate holds, in DER: the first two that follow each other.
_TIME = rb"(?:\x17\x0d|\x18\x0f)(\d{12,14})Z"
_VALIDITY = re.compile(_TIME * 2)
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VERIFY = {NO_CLIENT: ssl.CERT_NONE, IF_GIVEN: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}


class ClientRefused(Exception):
    """The client's certificate holds none of the allowed names."""


class Tls:
    """Wraps connections as `settings` ask; raises `UsageError` if they, or a file that they name, cannot be used.

    Attributes:
        warning: that the certificate has expired or does not hold yet; empty where it holds.
    """

    def __init__(self, settings: TlsSettings, file: Path) -> None:
        self.allowed_sans = settings.client_allowed_sans
        self._context = context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion[settings.min_version]
        context.maximum_version = ssl.TLSVersion[settings.max_version]
        if not settings.server_preference:
            context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        section = f"{file}: key tls_server_config"
        try:
            # Read first: OpenSSL waits for a pipe, and its error does not name which of the two is wrong.
            pair = read_regular_file(settings.cert_file, MAX_BYTES), read_regular_file(settings.key_file, MAX_BYTES)
            _check(settings, pair, section)
            context.load_cert_chain(settings.cert_file, settings.key_file, password=_no_password)
        except (OSError, ValueError) as error:  # OSError: ssl.SSLError too
            files = f"cert_file {settings.cert_file}, key_file {settings.key_file}"
            raise UsageError(
                f"{section}: {files}: {_reason(error)}, expected a certificate and its key in PEM"
            ) from error
        lapse = _lapse(pair[0], time.time())
        self.warning = f"{section}.cert_file: {settings.cert_file}: {lapse}; clients refuse it" if lapse else ""
        context.verify_mode = _VERIFY[settings.client_auth]
        if settings.client_auth != NO_CLIENT:
            _trust(context, settings.client_ca_file, section)
        try:
            if settings.ciphers:
                context.set_ciphers(":".join(settings.ciphers))
            if settings.curve:
                context.set_ecdh_curve(settings.curve)
        except (OSError, ValueError) as error:
            raise UsageError(f"{section}: {_reason(error)}, expected suites and a curve that OpenSSL has") from error

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """Return the connection with TLS around it; the handshake is still to be done."""
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def is_wrapped(self, connection: socket.socket) -> bool:
        """Return whether TLS is around the connection."""
        return isinstance(connection, ssl.SSLSocket)

    def handshake(self, connection: socket.socket) -> None:
        """Go on with the handshake of a wrapped connection.

        Raises:
            ClientRefused: the client's certificate is for none of the names that are allowed.
            OSError: it broke, or `waits_for` something.
        """
        if not isinstance(connection, ssl.SSLSocket):
            raise TypeError("the connection is not wrapped")
        connection.do_handshake()
        if not self.allowed_sans:
            return
        certificate = connection.getpeercert() or {}
        names = certificate.get("subjectAltName", ())
        if self.allowed_sans.isdisjoint(str(entry[1]) for entry in names if isinstance(entry, tuple)):
            raise ClientRefused(f"its certificate names {names}")

    def waits_for(self, error: OSError) -> str:
        """Return what a call that did not wait needs to go on: "read" or "write"; "" where it failed."""
        if isinstance(error, ssl.SSLWantReadError):
            return "read"
        return "write" if isinstance(error, ssl.SSLWantWriteError) else ""


def _trust(context: ssl.SSLContext, file: Path | None, section: str) -> None:
    if file is None:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    try:
        read_regular_file(file, 1)
        context.load_verify_locations(cafile=file)
    except (OSError, ValueError) as error:
        raise UsageError(f"{section}.client_ca_file: {file}: {_reason(error)}, expected certificates in PEM") from error


def _check(settings: TlsSettings, pair: tuple[bytes, bytes], section: str) -> None:
    kinds = (("cert_file", settings.cert_file, "CERTIFICATE"), ("key_file", settings.key_file, "PRIVATE KEY"))
    for (name, file, kind), content in zip(kinds, pair, strict=True):
        if not re.search(rb"-----BEGIN [A-Z0-9 ]*%b-----" % kind.encode(), content):
            raise UsageError(f"{section}.{name}: {file}: it holds no {kind.lower()}, expected one in PEM")


def _lapse(content: bytes, now: float) -> str:
    """Return how the first certificate of a PEM does not hold `now`, Unix seconds; empty where it does."""
    with contextlib.suppress(ValueError):  # what OpenSSL reads otherwise
        first = _CERTIFICATE.search(content)
        found = _VALIDITY.search(ssl.PEM_cert_to_DER_cert(first[0].decode())) if first else None
        if found:
            begins, ends = (_date(text.decode()) for text in found.groups())
            if now < begins.timestamp():
                return f"holds only from {begins.isoformat(' ')} on"
            if now > ends.timestamp():
                return f"has expired at {ends.isoformat(' ')}"
    return ""


def _date(text: str) -> datetime:
    form = "%y%m%d%H%M%S" if len(text) == len("YYMMDDhhmmss") else "%Y%m%d%H%M%S"
    return datetime.strptime(text, form).replace(tzinfo=timezone.utc)


def _no_password() -> str:
    """Refuse, in place of OpenSSL's question on the terminal."""
    raise ValueError("the key is encrypted")


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).lower().replace("_", " ")
