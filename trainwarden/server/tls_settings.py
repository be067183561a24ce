"""The section `tls_server_config` in the terms of exporter-toolkit, as far as Python's TLS can do it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainwarden.yaml_file import YamlValue

KEYS = (
    "cert_file", "key_file", "client_auth_type", "client_ca_file", "client_allowed_sans", "min_version", "max_version",
    "cipher_suites", "prefer_server_cipher_suites", "curve_preferences",
)  # fmt: skip
INLINE = ("cert", "key", "client_ca")
NO_CLIENT, IF_GIVEN, REQUIRED = "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
# RequestClientCert admits any certificate, and none: the same as not asking.
AUTH_TYPES = {NO_CLIENT: NO_CLIENT, "RequestClientCert": NO_CLIENT, IF_GIVEN: IF_GIVEN, REQUIRED: REQUIRED}
VERSIONS = {"TLS12": "TLSv1_2", "TLS13": "TLSv1_3"}
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
# Of TLS 1.2, those with forward secrecy and a certificate. All of TLS 1.3 are always on.
_SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:!aNULL:!PSK"
_KEY_BITS = re.compile(r"AES_(\d+)")


@dataclass(frozen=True)
class TlsSettings:
    """The settings in OpenSSL's names; empty means its defaults."""

    cert_file: Path
    key_file: Path
    client_auth: str = NO_CLIENT
    client_ca_file: Path | None = None
    client_allowed_sans: frozenset[str] = frozenset()
    min_version: str = "TLSv1_2"
    max_version: str = "TLSv1_3"
    ciphers: tuple[str, ...] = ()
    server_preference: bool = True
    curve: str = ""


def tls_settings(section: YamlValue) -> TlsSettings | None:
    """Read the section; None where it is empty. Raises `UsageError` for what is wrong or cannot be done."""
    entries = section.mapping((*KEYS, *INLINE))
    for name in INLINE:
        if name in entries:
            raise entries[name].wrong(f"{name}_file, a file: Python's TLS reads no certificate from memory", "a text")
    if not entries:
        return None
    for name in ("cert_file", "key_file"):
        if name not in entries:
            raise section.wrong("both cert_file and key_file", f"no {name}")
    _check_clients(entries)
    client_ca = entries.get("client_ca_file")
    suites = entries.get("cipher_suites")
    ciphers = _ciphers(suites) if suites else []
    lowest, highest = _version(entries, "min_version", "TLS12"), _version(entries, "max_version", "TLS13")
    if suites and not any(ciphers):
        lowest = "TLSv1_3"  # no suite is left for the older one
    if lowest > highest:
        raise entries.get("max_version", section).wrong("a max_version not below min_version and cipher_suites")
    sans = entries.get("client_allowed_sans")
    preference = entries.get("prefer_server_cipher_suites")
    return TlsSettings(
        _file(entries["cert_file"]),
        _file(entries["key_file"]),
        _auth_type(entries),
        _file(client_ca) if client_ca else None,
        frozenset(item.text for item in sans.scalars()) if sans else frozenset(),
        lowest,
        highest,
        tuple(filter(None, ciphers)),
        preference.boolean() if preference else True,
        _curve(entries),
    )


def _check_clients(entries: Mapping[str, YamlValue]) -> None:
    auth = _auth_type(entries)
    if "client_ca_file" in entries and auth == NO_CLIENT:
        raise entries["client_ca_file"].wrong(f"client_auth_type {IF_GIVEN} or {REQUIRED} together with it")
    if "client_allowed_sans" in entries and auth != REQUIRED:
        raise entries["client_allowed_sans"].wrong(f"client_auth_type {REQUIRED} together with it")


def _auth_type(entries: Mapping[str, YamlValue]) -> str:
    value = entries.get("client_auth_type")
    if value is None:
        return NO_CLIENT
    if value.scalar() == "RequireAnyClientCert":
        raise value.wrong(f"{REQUIRED}: Python's TLS takes no certificate that it does not verify")
    return _one_of(value, AUTH_TYPES)


def _version(entries: Mapping[str, YamlValue], name: str, default: str) -> str:
    value = entries.get(name)
    return _one_of(value, VERSIONS) if value else VERSIONS[default]


def _ciphers(suites: YamlValue) -> list[str]:
    """Return OpenSSL's names of suites that have those of the standards, as in Go; "" for those of TLS 1.3."""
    import ssl  # noqa: PLC0415  # some MiB, where it is configured

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(_SUITES)
    known = {cipher["name"]: cipher["protocol"] for cipher in context.get_ciphers()}
    found = []
    for item in suites.scalars():
        name = item.text if item.text in known else _openssl_name(item.text)
        if name not in known:
            raise item.wrong("a suite with ECDHE or of TLS 1.3, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
        found.append("" if known[name] == "TLSv1.3" else name)
    return found


def _openssl_name(suite: str) -> str:
    """Return `ECDHE-RSA-AES128-GCM-SHA256` for `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`."""
    name = _KEY_BITS.sub(r"AES\1", suite.removeprefix("TLS_").replace("_WITH_", "_")).replace("_CBC_", "_")
    if "CHACHA20" in name:
        name = name.removesuffix("_SHA256")
    return name.replace("_", "-")


def _curve(entries: Mapping[str, YamlValue]) -> str:
    value = entries.get("curve_preferences")
    if value is None:
        return ""
    items = value.scalars()
    curves = [_one_of(item, CURVES) for item in items]
    if len(curves) > 1:
        raise value.wrong("one curve: Python's TLS takes no second", f"{len(curves)} curves")
    return curves[0] if curves else ""


def _one_of(value: YamlValue, names: Mapping[str, str]) -> str:
    if value.scalar() not in names:
        raise value.wrong(f"one of {', '.join(names)}")
    return names[value.text]


def _file(value: YamlValue) -> Path:
    """Return a path; one that is relative is so to the folder of the file that names it."""
    if not value.scalar():
        raise value.wrong("a file")
    return value.file.parent / value.text
