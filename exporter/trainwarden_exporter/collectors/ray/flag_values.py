"""The values that the flags of this collector take."""

from __future__ import annotations

import argparse
import re
from urllib.parse import urlsplit

_NAME = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_POD = re.compile(rf"(?:(?:pod|service|svc|deployment|deploy)/)?(?=.{{1,253}}$){_NAME}(?:\.{_NAME})*")


def base_url(text: str) -> str:
    """Parse the URL of a dashboard, which may lie below a path."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    plain = re.fullmatch(r"[!-~]+", text) and not (parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or not plain:
        # Not repeated: it may hold a password.
        raise argparse.ArgumentTypeError("expected a URL such as http://127.0.0.1:8265, without user and query")
    return text.rstrip("/")


def pod(text: str) -> str:
    """Parse the name of a pod; svc/NAME and deploy/NAME mean a pod of theirs."""
    if not _POD.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no pod: expected a name of lower case letters, digits, - and .")
    return text


def namespace(text: str) -> str:
    """Parse the name of a namespace."""
    return _label(text, "namespace")


def container(text: str) -> str:
    """Parse the name of a container."""
    return _label(text, "container")


def _label(text: str, what: str) -> str:
    if not re.fullmatch(_NAME, text):
        raise argparse.ArgumentTypeError(f"{text!r} is no {what}: expected lower case letters, digits and -")
    return text
