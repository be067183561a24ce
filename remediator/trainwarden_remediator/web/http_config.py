"""Credentials and certificates with which Prometheus and Alertmanager are reached, from a file for each.

The format is that of `promtool --http.config.file` and `amtool --http.config.file`, without what has no use here:

    authorization: {credentials_file: token}                # or credentials: the token itself
    basic_auth: {username: me, password_file: password}     # or password: the password itself
    tls_config: {ca_file: ca.pem, cert_file: client.pem, key_file: client.key}

File names are relative to the folder of this file. The files that it names may be replaced while they are in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden.clients.http import HttpAuth, HttpClient, HttpError, TlsFiles
from trainwarden.errors import UsageError
from trainwarden.yaml_file import read_yaml
from trainwarden_remediator.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainwarden.yaml_file import YamlValue


def http_client(flag: str, url: str, config_file: Path | None, timeout: float) -> HttpClient:
    """Return the client of a service, its credentials and certificates checked.

    Args:
        flag: that names `config_file`, for messages.
        url: of the service.
        config_file: None without credentials.
        timeout: seconds for each request.

    Raises:
        ConfigError: the file, or one that it names, cannot be used.
    """
    if config_file is None:
        return HttpClient(url, timeout)
    try:
        keys = _keys(read_yaml(config_file), "authorization", "basic_auth", "tls_config")
        if "authorization" in keys and "basic_auth" in keys:
            raise keys["basic_auth"].wrong("only one of authorization and basic_auth", "a second way to authenticate")
        auth = _bearer(keys["authorization"]) if "authorization" in keys else HttpAuth()
        auth = _basic(keys["basic_auth"]) if "basic_auth" in keys else auth
        tls = _tls(keys["tls_config"], url) if "tls_config" in keys else TlsFiles()
        client = HttpClient(url, timeout, auth=auth, tls=tls)
        client.check()
    except (UsageError, HttpError) as error:
        raise ConfigError([f"{flag}: {error}"]) from None
    return client


def _keys(value: YamlValue, *known: str) -> Mapping[str, YamlValue]:
    """Return the entries of a mapping. Raises UsageError without the text that stands in its place, maybe a secret."""
    if value.kind == "text":
        raise value.wrong("a mapping of keys", "a text")
    return value.mapping(known)


def _bearer(value: YamlValue) -> HttpAuth:
    keys = _keys(value, "type", "credentials", "credentials_file")
    if "type" in keys and keys["type"].scalar().lower() != "bearer":
        raise keys["type"].wrong("Bearer")
    token, file = _secret(value, "credentials")
    if token is not None and not all("!" <= letter <= "~" for letter in token):
        raise keys["credentials"].wrong("printable ASCII without spaces", "a token")
    return HttpAuth(token=token, token_file=file)


def _basic(value: YamlValue) -> HttpAuth:
    keys = _keys(value, "username", "password", "password_file")
    if "username" not in keys:
        raise value.wrong("username", "no username")
    if ":" in keys["username"].scalar():
        raise keys["username"].wrong("a name without a colon")
    password, file = _secret(value, "password")
    return HttpAuth(username=keys["username"].text, password=password, password_file=file)


def _secret(value: YamlValue, name: str) -> tuple[str | None, Path | None]:
    """Return what the key `name` holds, or the file that `<name>_file` names. No message quotes the former."""
    keys = value.mapping()
    if (name in keys) == (f"{name}_file" in keys):
        raise value.wrong(f"{name} or {name}_file", "both" if name in keys else "neither")
    if name in keys:
        if keys[name].kind != "text" or not keys[name].text:
            raise keys[name].wrong("a text", "no text")
        return keys[name].text, None
    return None, _file(keys[f"{name}_file"])


def _tls(value: YamlValue, url: str) -> TlsFiles:
    keys = _keys(value, "ca_file", "cert_file", "key_file")
    if ("cert_file" in keys) != ("key_file" in keys):
        raise value.wrong("both cert_file and key_file, or neither", "one of them")
    if not url.startswith("https:"):
        raise value.wrong("a URL that begins with https://", f"certificates for {url}")
    return TlsFiles(**{name: _file(keys[name]) for name in keys})


def _file(value: YamlValue) -> Path:
    return value.file.parent / value.scalar("the name of a file")
